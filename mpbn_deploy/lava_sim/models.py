"""Fixed-point process models of our processes, for Lava's CPU simulator.

NumPy only: calling torch inside a Lava process hangs. The arithmetic of the neuron is inherited
from Lava's own fixed-point LIF, which is the judge; we add thresholds per neuron, phases and tapes.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ..records import Array
from .processes import DelayLine, TapedLif, TapeInput, TapeOutput

# isort: split
from lava.magma.core.decorator import implements, requires, tag
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol
from lava.proc.lif.models import AbstractPyLifModelFixed


@implements(proc=TapeInput, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class TapeInputModel(PyLoihiProcessModel):  # type: ignore[misc]
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        self.tape = np.load(proc_params["tape"], mmap_mode="r")
        self.rest = np.zeros(proc_params["shape"], np.int32)

    def run_spk(self) -> None:
        step = self.time_step - 1
        self.s_out.send(np.array(self.tape[step]) if step < len(self.tape) else self.rest)


@implements(proc=TapeOutput, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class TapeOutputModel(PyLoihiProcessModel):  # type: ignore[misc]
    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        self.tape = np.load(proc_params["tape"], mmap_mode="r+")

    def run_spk(self) -> None:
        self.tape[self.time_step - 1] = self.s_in.recv()


@implements(proc=DelayLine, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class DelayLineModel(PyLoihiProcessModel):  # type: ignore[misc]
    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        self.rest = np.zeros(proc_params["shape"], np.int32)
        self.waiting: deque[Array] = deque([self.rest] * proc_params["delay"])
        self.interval, self.offset = proc_params["interval"], proc_params["offset"]
        self.heard = self.interval - proc_params["silent"]  # steps of a sample that arrive within it

    def run_spk(self) -> None:
        received = self.s_in.recv()
        step = (self.time_step - self.offset) % self.interval
        self.waiting.append(received if step < self.heard else self.rest)
        self.s_out.send(self.waiting.popleft())


@implements(proc=TapedLif, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class TapedLifModel(AbstractPyLifModelFixed):  # type: ignore[misc]
    a_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=24)
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32, precision=24)
    vth: np.ndarray[Any, Any] = LavaPyType(np.ndarray, np.int32, precision=18)

    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        self.act_shift = proc_params["shift"]
        self.reset_interval = proc_params["reset_interval"]
        self.reset_offset = proc_params["reset_offset"] % self.reset_interval
        self.spike_tape = np.load(proc_params["spike_tape"], mmap_mode="r+")
        self.voltage_tape = np.load(proc_params["voltage_tape"], mmap_mode="r+")

    def scale_threshold(self) -> None:
        self.effective_vth = np.left_shift(self.vth, self.vth_shift)
        self.isthrscaled = True

    def spiking_activation(self) -> Array:
        fires: Array = self.v > self.effective_vth
        return fires

    def run_spk(self) -> None:
        if self.time_step % self.reset_interval == self.reset_offset:
            self.u[:] = 0
            self.v[:] = 0
        super().run_spk()
        self.spike_tape[self.time_step - 1] = self.s_out_buff
        self.voltage_tape[self.time_step - 1] = self.v
