"""Process models of our small processes, for Lava's CPU simulator, in fixed point and floating point.

They use NumPy only: calling torch inside a Lava process hangs.
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
from lava.proc.lif.models import PyLifResetModelBitAcc, PyLifResetModelFloat
from lava.proc.sdn.models import PyDeltaModelFixed, PySigmaDeltaModelFixed, PySigmaModelFixed


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
