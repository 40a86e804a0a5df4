"""Our Lava processes: a layer per population, and parts of it that Lava does not provide."""

from __future__ import annotations

from typing import Any

from ...base import Array
from ...ir import Shape
from .compat import load_lava
from .plans import Plan, lava_shape
from .tapes import Tape

load_lava()

from lava.magma.core.process.ports.ports import InPort, OutPort  # noqa: E402
from lava.magma.core.process.process import AbstractProcess  # noqa: E402
from lava.magma.core.process.variable import Var  # noqa: E402
from lava.proc.lif.process import LIFReset  # noqa: E402
from lava.proc.sdn.process import ActivationMode  # noqa: E402


class TapeInput(AbstractProcess):  # type: ignore[misc]
    """Sends the next row of its tape in each time step."""

    def __init__(self, *, shape: Shape, tape: Tape, name: str) -> None:
        super().__init__(shape=shape, tape=tape, name=name)
        self.s_out = OutPort(shape=shape)


class TapeOutput(AbstractProcess):  # type: ignore[misc]
    """Writes the spikes it receives to its tape."""

    def __init__(self, *, shape: Shape, tape: Tape) -> None:
        super().__init__(shape=shape, tape=tape)
        self.s_in = InPort(shape=shape)


class Layer(AbstractProcess):  # type: ignore[misc]
    """A population and all synapses into it: receives the spikes of each source, sends its own.

    The run configuration chooses its model: a graph of Lava's own processes, or one process model of ours.
    """

    def __init__(self, *, plan: Plan) -> None:
        super().__init__(plan=plan, name=plan.population.name)
        for index, source in enumerate(plan.sources):
            setattr(self, port_name(index), InPort(shape=(*plan.lanes, *lava_shape(source.shape))))
        self.s_out = OutPort(shape=(*plan.lanes, *lava_shape(plan.population.shape)))


def port_name(index: int) -> str:
    return f"s_in{index}"


class DelayLine(AbstractProcess):  # type: ignore[misc]
    """Delays spikes by `delay` time steps, to align paths of different depth.

    Samples of `interval` steps start at time steps of phase `offset`. Spikes of the last `silent` steps of a
    sample would arrive in the next sample, and are dropped.
    """

    def __init__(
        self, *, shape: Shape, delay: int, silent: int, interval: int, offset: int, name: str
    ) -> None:
        super().__init__(shape=shape, delay=delay, silent=silent, interval=interval, offset=offset, name=name)
        self.s_in = InPort(shape=shape)
        self.s_out = OutPort(shape=shape)


class Window(AbstractProcess):  # type: ignore[misc]
    """Passes currents inside a window of the target, zeros elsewhere; `ends` holds (start, stop) per axis."""

    def __init__(self, *, shape: Shape, ends: tuple[tuple[int, int], ...], name: str) -> None:
        super().__init__(shape=shape, ends=ends, name=name)
        self.a_in = InPort(shape=shape)
        self.a_out = OutPort(shape=shape)


class TapedLif(LIFReset):  # type: ignore[misc]
    """Lava's LIFReset, cleared at the start of each sample, with one threshold per neuron and a plan.

    Lava's LIF declares one threshold for all neurons. Parameters have Lava's names.
    """

    def __init__(self, *, plan: Plan, vth: Array, **parameters: Any) -> None:
        shape = lava_shape(plan.population.shape)
        super().__init__(
            shape=shape,
            name=plan.population.name,
            reset_interval=plan.timesteps,
            reset_offset=plan.depth + 1,
            **parameters,
        )
        self.vth = Var(shape=shape, init=vth)
        self.proc_params["plan"] = plan


class TapedModulator(AbstractProcess):  # type: ignore[misc]
    """Sigma-delta neurons, reset at the start of a sample, with sums traced on a tape.

    Variables have Lava's names. Thresholds and biases are one per neuron, in units of the state; Lava's own
    processes have one threshold for all neurons.
    """

    def __init__(self, *, plan: Plan, vth: Array | int, bias: Array) -> None:
        super().__init__(plan=plan, act_mode=ActivationMode.RELU, name=plan.population.name)
        shape, spike_exponent, state_exponent = lava_shape(plan.population.shape), *plan.exponents
        self.a_in = InPort(shape=shape)
        self.s_out = OutPort(shape=shape)
        self.vth = Var(shape=shape, init=vth)
        self.bias = Var(shape=shape, init=bias)
        for name in ("sigma", "act", "residue", "error"):
            setattr(self, name, Var(shape=shape, init=0))
        self.spike_exp = Var(shape=(1,), init=spike_exponent)
        self.state_exp = Var(shape=(1,), init=state_exponent)
        self.cum_error = Var(shape=(1,), init=False)


class TapedDelta(TapedModulator):
    """Lava's Delta."""


class TapedSigmaDelta(TapedModulator):
    """Lava's SigmaDelta."""


class TapedSigma(TapedModulator):
    """Lava's Sigma."""
