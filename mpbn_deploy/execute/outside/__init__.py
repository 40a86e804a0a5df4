"""Simulators of others, as witnesses: each is given the populations of a network and recorded spikes.

Given its input spikes, a neuron does not depend on others of its population. So a population is cut into
pieces that a simulator holds, each with only the axons that reach it; what the simulator answers is compared
with the reference, in every spike and voltage.

    witnesses        the dict of all witnesses, which imports none of them; a population in pieces; how much
                     a witness can run in a given time, and whether it works on this machine
    nengo_loihi      the emulator of nengo-loihi (Loihi 1)
    sana_fe          SANA-FE (Loihi), in a process of its own: sana_fe_child
    xylosim          SynSense's simulator of Xylo, for neurons that forget their voltage and, as an executor,
                     for whole networks of Xylo's own
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .witnesses import (
        ASKED as ASKED,
        WITNESSES as WITNESSES,
        Answer as Answer,
        ObstacleError as ObstacleError,
        Piece as Piece,
        Share as Share,
        Witness as Witness,
        WitnessFailedError as WitnessFailedError,
        chosen_witnesses as chosen_witnesses,
        cut_pieces as cut_pieces,
        share as share,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
