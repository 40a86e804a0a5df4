"""Our Lava processes: a layer per population, and parts of it that Lava does not provide."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ...base import Array
from ...ir import Shape
from .compat import load_lava
from .plans import Plan, Tape, lava_shape

load_lava()
from lava.magma.core.decorator import implements, requires, tag  # noqa: E402
from lava.magma.core.model.py.model import PyLoihiProcessModel  # noqa: E402
from lava.magma.core.model.py.ports import PyInPort, PyOutPort  # noqa: E402
from lava.magma.core.model.py.type import LavaPyType  # noqa: E402
from lava.magma.core.process.ports.ports import InPort, OutPort  # noqa: E402
from lava.magma.core.process.process import AbstractProcess  # noqa: E402
from lava.magma.core.process.variable import Var  # noqa: E402
from lava.magma.core.resources import CPU  # noqa: E402
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol  # noqa: E402
from lava.proc.lif.models import PyLifResetModelBitAcc, PyLifResetModelFloat  # noqa: E402
from lava.proc.lif.process import LIFReset  # noqa: E402
from lava.proc.sdn.models import PyDeltaModelFixed, PySigmaDeltaModelFixed, PySigmaModelFixed  # noqa: E402
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


# Process models of our small processes, for Lava's CPU simulator, in fixed point and floating point.
#
# They use NumPy only: calling torch inside a Lava process hangs.


@implements(proc=TapeInput, protocol=LoihiProtocol)
@requires(CPU)
class TapeInputModel(PyLoihiProcessModel):  # type: ignore[misc]
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def run_spk(self) -> None:
        self.s_out.send(self.proc_params["tape"].read(self.time_step))


@implements(proc=TapeOutput, protocol=LoihiProtocol)
@requires(CPU)
class TapeOutputModel(PyLoihiProcessModel):  # type: ignore[misc]
    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)

    def run_spk(self) -> None:
        self.proc_params["tape"].write(self.time_step, self.s_in.recv())


class DelayBuffer:
    """Returns what was received `wait` steps ago, and zeros for the last `silent` steps of a sample."""

    def __init__(self, shape: tuple[int, ...], wait: int, silent: int, interval: int, offset: int) -> None:
        self.zeros = np.zeros(shape, np.int32)
        self.waiting: deque[Array] = deque([self.zeros] * wait)
        self.interval, self.offset, self.passed = interval, offset, interval - silent

    def __call__(self, time_step: int, received: Array) -> Array:
        step = (time_step - self.offset) % self.interval
        self.waiting.append(received if step < self.passed else self.zeros)
        return self.waiting.popleft()


@implements(proc=DelayLine, protocol=LoihiProtocol)
@requires(CPU)
class DelayLineModel(PyLoihiProcessModel):  # type: ignore[misc]
    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        names = ("shape", "delay", "silent", "interval", "offset")
        self.delayed = DelayBuffer(*(proc_params[name] for name in names))

    def run_spk(self) -> None:
        self.s_out.send(self.delayed(self.time_step, self.s_in.recv()))


class AbstractWindowModel(PyLoihiProcessModel):  # type: ignore[misc]
    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        self.inside = tuple(slice(near, far) for near, far in proc_params["ends"])

    def run_spk(self) -> None:
        received = self.a_in.recv()
        passed = np.zeros_like(received)
        passed[self.inside] = received[self.inside]
        self.a_out.send(passed)


@implements(proc=Window, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class WindowModelFixed(AbstractWindowModel):
    a_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    a_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)


@implements(proc=Window, protocol=LoihiProtocol)
@requires(CPU)
@tag("floating_pt")
class WindowModelFloat(AbstractWindowModel):
    a_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, float)
    a_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, float)


# ---- Lava's own neurons, with types for one parameter per neuron, and with tapes -------------------
#
# Everything that decides a spike or a voltage is inherited from Lava's concrete models: tests change each
# of their functions and constants, and the comparison with the reference must notice.


class TapedPort(PyOutPort.VEC_DENSE):  # type: ignore[misc]
    """Lava's port, which also writes what is sent to a tape."""

    def send(self, data: Array) -> None:
        model = self._process_model
        model.proc_params["plan"].write_spikes(model.time_step, data)
        super().send(data)


class _Taped:
    """Writes voltages to a tape after each step of Lava's model."""

    proc_params: Any
    time_step: int
    v: Array

    def run_spk(self) -> None:
        super().run_spk()  # type: ignore[misc]
        self.proc_params["plan"].write_voltages(self.time_step, self.v)


class _InUnitsOfWeights(_Taped):
    """Adds the exponent of the weights, which Lava's Conv ignores, to Lava's shift of synaptic input."""

    act_shift: int

    def __init__(self, proc_params: Any) -> None:
        super().__init__(proc_params)  # type: ignore[call-arg]
        self.act_shift += proc_params["plan"].lowest_exponent


class TapedLifModelFixed(_InUnitsOfWeights, PyLifResetModelBitAcc):  # type: ignore[misc]
    # Lava's LIF declares 16 bits for inputs and biases, and would truncate wider ones silently.
    a_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=24)
    s_out: PyOutPort = LavaPyType(TapedPort, np.int32, precision=24)
    vth: np.ndarray[Any, Any] = LavaPyType(np.ndarray, np.int32, precision=18)
    bias_mant: np.ndarray[Any, Any] = LavaPyType(np.ndarray, np.int32, precision=24)


class TapedLifModelFloat(_Taped, PyLifResetModelFloat):  # type: ignore[misc]
    s_out: PyOutPort = LavaPyType(TapedPort, float)
    vth: np.ndarray[Any, Any] = LavaPyType(np.ndarray, float)


def _number() -> LavaPyType:
    return LavaPyType(np.ndarray, np.int32)


class _Modulated:
    """Additions to Lava's sigma-delta models: a reset at the start of a sample, and sums on a tape."""

    a_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=24)
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32, precision=24)
    vth: np.ndarray[Any, Any] = _number()
    bias: np.ndarray[Any, Any] = _number()
    sigma: np.ndarray[Any, Any] = _number()
    act: np.ndarray[Any, Any] = _number()
    residue: np.ndarray[Any, Any] = _number()
    error: np.ndarray[Any, Any] = _number()
    spike_exp: np.ndarray[Any, Any] = _number()
    state_exp: np.ndarray[Any, Any] = _number()
    cum_error: np.ndarray[Any, Any] = LavaPyType(np.ndarray, bool)
    proc_params: Any
    time_step: int
    traced = "sigma"

    def run_spk(self) -> None:
        plan: Plan = self.proc_params["plan"]
        if plan.resets_at(self.time_step):
            for state in (self.sigma, self.act, self.residue, self.error):
                state[:] = 0
        super().run_spk()  # type: ignore[misc]
        plan.write_voltages(self.time_step, getattr(self, self.traced))


class TapedDeltaModel(_Modulated, PyDeltaModelFixed):  # type: ignore[misc]
    implements_process = TapedDelta
    traced = "act"


class TapedSigmaDeltaModel(_Modulated, PySigmaDeltaModelFixed):  # type: ignore[misc]
    implements_process = TapedSigmaDelta


class TapedSigmaModel(_Modulated, PySigmaModelFixed):  # type: ignore[misc]
    implements_process = TapedSigma
