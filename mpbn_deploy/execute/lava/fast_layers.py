"""A layer as one process model of ours: its synapses and its neurons, for many samples in parallel.

Integers and timing equal those of `stock_layers`: currents that arrive in one step are integrated in the
next. It is faster because of faster products, fewer processes and larger messages.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

from ...base import Array
from ...ir import STATE_EXPONENT, STATE_LIMIT, Conv2d, Modulator, Shape
from .models import DelayBuffer
from .neurons import ModulatedNeurons, Neurons, SteppedNeurons
from .plans import Arrival, Plan, lava_shape
from .processes import Layer, port_name
from .products import product
from .stock_layers import neuron_parameters

# isort: split
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol
from lava.proc.conv.utils import signed_clamp
from lava.proc.lif.models import AbstractPyLifModelFixed


@lru_cache
def fast_layer(sources: int, graded: bool) -> type:
    """Return the model of a layer with `sources` ports; Lava requires each port as a class attribute."""
    ports = {port_name(index): LavaPyType(PyInPort.VEC_DENSE, np.int8) for index in range(sources)}
    ports["s_out"] = LavaPyType(PyOutPort.VEC_DENSE, np.int32 if graded else np.int8)
    model = type(f"FastLayer{sources}{'Graded' if graded else ''}", (AbstractFastLayer,), ports)
    declared: type = implements(proc=Layer, protocol=LoihiProtocol)(requires(CPU)(model))
    return declared


class AbstractFastLayer(PyLoihiProcessModel):  # type: ignore[misc]
    """In each time step, integrates the currents of the last one and fires, then receives and multiplies."""

    s_out: PyOutPort

    def __init__(self, proc_params: dict[str, Any]) -> None:
        super().__init__(proc_params)
        threadpool_limits(1, user_api="blas")  # layers already run in parallel
        self.plan: Plan = proc_params["plan"]
        self.neurons = neurons_of(self.plan)
        self.currents = [Current(self.plan, arrival) for arrival in self.plan.arrivals]
        self.arrived = self._no_current()

    def run_spk(self) -> None:
        if self.plan.resets_at(self.time_step):
            self.neurons.reset()
        spikes = self.neurons.step(self.arrived)
        self.s_out.send(spikes)  # before receiving, so that loops do not deadlock
        self.plan.write_tapes(self.time_step, spikes, self.neurons.voltage)
        received = [getattr(self, port_name(index)).recv() for index in range(len(self.plan.sources))]
        self.arrived = self._sum(received)

    def _no_current(self) -> Array:
        shape = (*self.plan.lanes, *lava_shape(self.plan.population.shape))
        return np.zeros(shape, np.float64 if self.plan.proven else np.int32)

    def _sum(self, received: list[Array]) -> Array:
        """Sum the currents of all synapses, in float64 or in Lava's 32 bits."""
        results = [current(self.time_step, received[current.port]) for current in self.currents]
        if len(results) == 1 and results[0].shape == self.arrived.shape:
            return results[0]
        total = self._no_current()
        for current, result in zip(self.currents, results, strict=True):
            total[current.inside] += result
        return total


class Current:
    """A prepared connection: computes its currents.

    The last product is kept, so that a constant input is multiplied only once.
    """

    def __init__(self, plan: Plan, arrival: Arrival) -> None:
        connection, source = arrival.connection, arrival.source.shape
        target = plan.population.shape
        self.port = arrival.port
        self.product = product(connection, source, target, arrival.kind, _weight_scale(plan))
        self.inside = self.product.inside
        self.wraps = not plan.proven
        self.clamps = isinstance(connection.synapse, Conv2d)
        shape = (*plan.lanes, *lava_shape(source))
        silent = min(connection.delay, plan.timesteps)
        self.delayed = DelayBuffer(shape, arrival.wait, silent, plan.timesteps, arrival.source_depth + 1)
        self.seen: Array | None = None
        self.result: Array = np.zeros(0)

    def __call__(self, time_step: int, received: Array) -> Array:
        values = self.delayed(time_step, received)
        if self.seen is None or not np.array_equal(values, self.seen):
            self.seen, self.result = values, self._multiply(values)
        return self.result

    def _multiply(self, values: Array) -> Array:
        exact = self.product(values)
        if not self.wraps:
            return exact
        whole = exact.astype(np.int32)
        clamped: Array = signed_clamp(whole, bits=24) if self.clamps else whole  # like Lava's synapses
        return clamped


def _weight_scale(plan: Plan) -> float:
    """Return the scale of weights: the state's unit, or the lowest exponent in Lava's arithmetic."""
    return plan.rule.unit if plan.proven else 2.0**-plan.lowest_exponent


def neurons_of(plan: Plan) -> Neurons | SteppedNeurons | WrappingNeurons | ModulatedNeurons:
    shape = (*plan.lanes, *lava_shape(plan.population.shape))
    if isinstance(plan.rule, Modulator):
        return ModulatedNeurons(plan.population.name, plan.rule, shape)
    if plan.membrane.per_step:
        return SteppedNeurons(plan.membrane, shape, plan.timesteps)
    if not plan.proven:
        return WrappingNeurons(plan)
    return Neurons(plan.membrane, shape)


class WrappingNeurons(AbstractPyLifModelFixed):  # type: ignore[misc]
    """Lava's own arithmetic, for states that may overflow 24 bits: currents wrap, voltages clip."""

    def __init__(self, plan: Plan) -> None:
        super().__init__({})
        shape: Shape = (*plan.lanes, *lava_shape(plan.population.shape))
        parameters = neuron_parameters(plan)
        self.du, self.dv = parameters["du"], parameters["dv"]
        self.bias_mant, self.bias_exp = parameters["bias_mant"], np.int32(parameters["bias_exp"])
        self.scale_bias()
        self.effective_vth = np.left_shift(parameters["vth"], self.vth_shift)
        subtrahend = plan.membrane.subtrahend
        self.subtrahend = None if subtrahend is None else subtrahend.T
        self.act_shift = STATE_EXPONENT + plan.lowest_exponent
        self.u: Array = np.zeros(shape, np.int32)
        self.v: Array = np.zeros(shape, np.int32)

    @property
    def voltage(self) -> Array:
        return self.v

    def reset(self) -> None:
        self.u[:] = 0
        self.v[:] = 0

    def step(self, synapses: Array) -> Array:
        self.subthr_dynamics(activation_in=synapses)
        spikes: Array = self.v > self.effective_vth
        if self.subtrahend is None:
            self.reset_voltage(spike_vector=spikes)
        else:
            subtracted: Array = self.v - spikes * self.subtrahend
            self.v[:] = np.clip(subtracted, -STATE_LIMIT, STATE_LIMIT)
        return spikes
