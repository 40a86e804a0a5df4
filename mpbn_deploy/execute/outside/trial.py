"""A small network that tests whether a witness works on this machine."""

from __future__ import annotations

import numpy as np

from ...ir import DECAY_ONE, as_steps
from ..reference import simulate
from ..trial import one_neuron
from .pieces import cut_pieces
from .witnesses import Witness


def check_witness(witness: Witness) -> str:
    """Compare a witness with the reference on one neuron: leaky, or else one that forgets its voltage."""
    network, inputs = one_neuron(), np.array([[[1], [1]], [[5], [0]], [[4], [4]]])
    if witness.obstacle(network.output.neuron) is not None:
        network = one_neuron(DECAY_ONE)
    expected = simulate(network, inputs)
    (piece,) = cut_pieces(network, "neuron", {"input": as_steps(inputs, (1,), network.timesteps)})
    answer = witness.run(piece)
    if not np.array_equal(answer.spikes, expected.spikes["neuron"]):
        raise RuntimeError(f"{witness.name}: spikes of a one-neuron network differ from the reference")
    return f"one neuron fired {int(answer.spikes.sum())} spikes as expected"
