"""Our Lava processes: what netx has none of.

Lava moves variables between processes one number at a time, which takes minutes for a trace. So
inputs and traces go through *tapes*: arrays in files that both sides map into memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..records import Array
from .compat import load_lava

load_lava()

from lava.magma.core.process.ports.ports import InPort, OutPort  # noqa: E402
from lava.magma.core.process.process import AbstractProcess  # noqa: E402
from lava.magma.core.process.variable import Var  # noqa: E402

Shape = tuple[int, ...]


def new_tape(path: Path, steps: int, shape: Shape, kind: type) -> str:
    """A file of zeros for one value per neuron and time step."""
    np.save(path, np.zeros((steps, *shape), kind))
    return str(path)


class TapeInput(AbstractProcess):  # type: ignore[misc]
    """Sends the next entry of its tape in each time step, and zeros after its end."""

    def __init__(self, *, shape: Shape, tape: str) -> None:
        super().__init__(shape=shape, tape=tape)
        self.s_out = OutPort(shape=shape)


class TapeOutput(AbstractProcess):  # type: ignore[misc]
    """Writes the spikes it receives to its tape."""

    def __init__(self, *, shape: Shape, tape: str) -> None:
        super().__init__(shape=shape, tape=tape)
        self.s_in = InPort(shape=shape)


class DelayLine(AbstractProcess):  # type: ignore[misc]
    """Sends what it received `delay` time steps ago: a path that is shorter than its neighbour waits.

    Samples of `interval` steps start at the steps of phase `offset`. What comes in the last `silent` steps of
    one would arrive in the next, and is dropped.
    """

    def __init__(self, *, shape: Shape, delay: int, silent: int, interval: int, offset: int) -> None:
        super().__init__(shape=shape, delay=delay, silent=silent, interval=interval, offset=offset)
        self.s_in = InPort(shape=shape)
        self.s_out = OutPort(shape=shape)


class TapedLif(AbstractProcess):  # type: ignore[misc]
    """LIF neurons with a threshold and a bias each, reset by phase, whose trace goes to tapes.

    Lava's own LIF declares one threshold for all neurons. Variables bear Lava's names; `shift` is
    the power of two by which synaptic input is scaled (6 in Lava's own LIF).
    """

    def __init__(
        self,
        *,
        shape: Shape,
        vth: Array,
        bias_mant: Array,
        bias_exp: int,
        du: int,
        dv: int,
        shift: int,
        reset_interval: int,
        reset_offset: int,
        spike_tape: str,
        voltage_tape: str,
    ) -> None:
        super().__init__(
            shape=shape,
            shift=shift,
            reset_interval=reset_interval,
            reset_offset=reset_offset,
            spike_tape=spike_tape,
            voltage_tape=voltage_tape,
        )
        self.a_in = InPort(shape=shape)
        self.s_out = OutPort(shape=shape)
        self.u = Var(shape=shape, init=0)
        self.v = Var(shape=shape, init=0)
        self.du = Var(shape=(1,), init=du)
        self.dv = Var(shape=(1,), init=dv)
        self.vth = Var(shape=shape, init=vth)
        self.bias_mant = Var(shape=shape, init=bias_mant)
        self.bias_exp = Var(shape=shape, init=bias_exp)
