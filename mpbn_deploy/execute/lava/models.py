"""Process models of our small processes, for Lava's CPU simulator, in fixed point and floating point.

They use NumPy only: calling torch inside a Lava process hangs. The neurons inherit the arithmetic of Lava's
own LIF, to stay independent of ours; we add thresholds per neuron, resets and tapes.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ...base import Array
from .plans import Plan
from .processes import (
    DelayLine,
    TapedDelta,
    TapedLif,
    TapedSigma,
    TapedSigmaDelta,
    TapeInput,
    TapeOutput,
    Window,
)

# isort: split
from lava.magma.core.decorator import implements, requires, tag
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol
from lava.proc.lif.models import AbstractPyLifModelFixed, AbstractPyLifModelFloat
from lava.proc.sdn.models import (
    AbstractDeltaModel,
    AbstractSigmaDeltaModel,
    AbstractSigmaModel,
    PyDeltaModelFixed,
    PySigmaDeltaModelFixed,
    PySigmaModelFixed,
)


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


class _Traced:
    """Additions to Lava's LIF models: a reset at the start of a sample, and a trace on tapes."""

    proc_params: Any
    time_step: int
    u: Array
    v: Array
    s_out_buff: Array

    def run_spk(self) -> None:
        plan: Plan = self.proc_params["plan"]
        if plan.resets_at(self.time_step):
            self.u[:] = 0
            self.v[:] = 0
        super().run_spk()  # type: ignore[misc]
        plan.write_tapes(self.time_step, self.s_out_buff, self.v)


@implements(proc=TapedLif, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class TapedLifModelFixed(_Traced, AbstractPyLifModelFixed):  # type: ignore[misc]
    a_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=24)
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32, precision=24)
    vth: np.ndarray[Any, Any] = LavaPyType(np.ndarray, np.int32, precision=18)
    # Lava's LIF declares 16 bits, and would truncate wider biases silently.
    bias_mant: np.ndarray[Any, Any] = LavaPyType(np.ndarray, np.int32, precision=24)

    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        self.act_shift = proc_params["shift"]

    def scale_threshold(self) -> None:
        self.effective_vth = np.left_shift(self.vth, self.vth_shift)
        self.isthrscaled = True

    def spiking_activation(self) -> Array:
        fires: Array = self.v > self.effective_vth
        return fires


@implements(proc=TapedLif, protocol=LoihiProtocol)
@requires(CPU)
@tag("floating_pt")
class TapedLifModelFloat(_Traced, AbstractPyLifModelFloat):  # type: ignore[misc]
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, float)
    vth: np.ndarray[Any, Any] = LavaPyType(np.ndarray, float)

    def spiking_activation(self) -> Array:
        fires: Array = self.v > self.vth
        return fires


# ---- sigma-delta neurons: Lava's own steps, with a reset and a tape ------------------------------


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
    step: Any  # of Lava's own model, which cannot be inherited, because it already implements a process
    traced = "sigma"

    def run_spk(self) -> None:
        plan: Plan = self.proc_params["plan"]
        if plan.resets_at(self.time_step):
            for state in (self.sigma, self.act, self.residue, self.error):
                state[:] = 0
        self.step()
        if plan.voltage_tape is not None:
            plan.voltage_tape.write(self.time_step, getattr(self, self.traced))


@implements(proc=TapedDelta, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class TapedDeltaModel(_Modulated, AbstractDeltaModel):  # type: ignore[misc]
    step = PyDeltaModelFixed.run_spk
    traced = "act"


@implements(proc=TapedSigmaDelta, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class TapedSigmaDeltaModel(_Modulated, AbstractSigmaDeltaModel):  # type: ignore[misc]
    step = PySigmaDeltaModelFixed.run_spk


@implements(proc=TapedSigma, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class TapedSigmaModel(_Modulated, AbstractSigmaModel):  # type: ignore[misc]
    step = PySigmaModelFixed.run_spk
