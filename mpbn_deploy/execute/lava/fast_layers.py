"""A layer as one process model of ours: its synapses and its neurons, for many samples in parallel.

Integers and timing equal those of `stock_layers`: currents that arrive in one step are integrated in the
next. It is faster because of faster products, fewer processes and larger messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.linalg.blas import dgemm, sgemm
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn
from typing_extensions import assert_never

from ...base import Array, SimulationError, layer_name
from ...ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    STATE_LIMIT,
    Connection,
    Conv2d,
    Decay,
    Dense,
    Leak,
    Membrane,
    Modulator,
    Shape,
    Truncation,
    output_shape,
    span,
    window,
)
from .plans import Arrival, Plan, lava_shape
from .processes import DelayBuffer, Layer, port_name
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


# Neurons in NumPy, for all neurons of a population and all lanes at once, in Lava's axes.
#
# `Neurons` repeats `ir.Membrane` in place, for speed; tests compare it with the reference and with Lava's own
# neurons.
#
# Integers are stored in floats if it is proved that no state overflows 24 bits. Lava's wrapping of currents
# and clipping of voltages then never happens, and float32 holds every state exactly.


DecayInPlace = Callable[[Array], None]


class Neurons:
    """Decays, integrates, fires and resets; integers are stored in floats that hold all states."""

    def __init__(self, rule: Membrane, shape: Shape, kind: type | None = None) -> None:
        kind = kind or _state_type(rule)
        self.voltage: Array = np.zeros(shape, kind)
        self.decay_current, self.decay_voltage = map(_in_place, (rule.decay_current, rule.decay_voltage))
        self.current: Array | None = None if self.decay_current is None else np.zeros(shape, kind)
        self.bias = _laid_out(rule.bias, kind)
        self.threshold, self.subtrahend = (
            None if values is None else _laid_out(values, kind)
            for values in (rule.threshold, rule.subtrahend)
        )
        self.divisor = rule.divisor
        self.graded = rule.graded
        self.silence: Array | None = np.zeros(shape, np.bool_) if rule.threshold is None else None

    def reset(self) -> None:
        self.voltage.fill(0)
        if self.current is not None:
            self.current.fill(0)

    def step(self, synapses: Array) -> Array:
        """Return the spikes or graded messages, given the synaptic current, which is not modified."""
        if self.current is not None and self.decay_current is not None:
            self.decay_current(self.current)
            self.current += synapses
            synapses = self.current
        if self.divisor > 1:
            synapses = (synapses + self.bias) / self.divisor
        if self.decay_voltage is None:
            self.voltage[...] = synapses
        else:
            self.decay_voltage(self.voltage)
            self.voltage += synapses
        if self.divisor == 1:
            self.voltage += self.bias
        if self.graded:
            messages: Array = self.voltage.astype(np.int32)
            self.voltage.fill(0)
            return messages
        if self.silence is not None:
            return self.silence
        spikes: Array = self.voltage > self.threshold
        if self.subtrahend is None:
            self.voltage *= ~spikes  # many times faster than a masked assignment
        else:
            self.voltage -= spikes * self.subtrahend
        return spikes


class SteppedNeurons:
    """Neurons with numbers per time step: those of each step, on the same states."""

    def __init__(self, rule: Membrane, shape: Shape, timesteps: int) -> None:
        rules, kind = [rule.at(step) for step in range(timesteps)], _state_type(rule)
        self.each = [Neurons(each, shape, kind) for each in rules]
        self.voltage, self.steps_taken = self.each[0].voltage, 0
        current = next((each.current for each in self.each if each.current is not None), None)
        for neurons in self.each:
            neurons.voltage, neurons.current = self.voltage, current
            neurons.decay_current = neurons.decay_current or _forget

    def reset(self) -> None:
        self.steps_taken = 0
        self.each[0].reset()

    def step(self, synapses: Array) -> Array:
        """Return the spikes; before the first sample arrives, neurons run as in the steps of a sample."""
        neurons = self.each[self.steps_taken % len(self.each)]
        self.steps_taken += 1
        return neurons.step(synapses)


def _forget(state: Array) -> None:
    state.fill(0)


class ModulatedNeurons:
    """Sigma-delta neurons: `ir.Modulator` itself, which raises where states would overflow 24 bits."""

    def __init__(self, name: str, rule: Modulator, shape: Shape) -> None:
        self.name, self.shape = name, shape
        threshold = None if rule.threshold is None else rule.threshold.T
        self.rule = replace(rule, bias=rule.bias.T, threshold=threshold)
        self.reset()

    @property
    def voltage(self) -> Array:
        return self.state[1]

    def reset(self) -> None:
        self.state: tuple[Array, Array] = (np.zeros(self.shape, np.int64), np.zeros(self.shape, np.int64))

    def step(self, synapses: Array) -> Array:
        """Return the graded messages, given the sums of synapses."""
        arriving = synapses.astype(np.int64)
        self.state, messages = self.rule.fire(self.rule.integrate(self.state, arriving))
        largest = max(int(np.abs(values).max()) for values in (arriving, *self.state))
        if largest > self.rule.limit:
            raise SimulationError(f"{layer_name(self.name)}: a sum of magnitude {largest} overflows 24 bits.")
        return messages


def _laid_out(values: Array, kind: type) -> Array:
    """Return numbers per neuron, or per channel, in Lava's axes."""
    return np.ascontiguousarray(values.T, kind)


def _state_type(rule: Membrane) -> type:
    """Return float32 if all decays are exact in it, else float64."""
    return np.float32 if all(map(_exact_in_float32, (rule.decay_current, rule.decay_voltage))) else np.float64


def _exact_in_float32(decay: Decay) -> bool:
    """Return whether a decay multiplies integers by zero or a power of two."""
    match decay:
        case Truncation(amount=amount):
            return all(each == DECAY_ONE or DECAY_ONE % (DECAY_ONE - each) == 0 for each in np.unique(amount))
        case Leak():
            return False
        case _:
            assert_never(decay)


def _in_place(decay: Decay) -> DecayInPlace | None:
    """Return the decay as an in-place function, or None if it keeps no state.

    The fraction that a truncation keeps is exact as a float. So is its product with a 24-bit state: always in
    float64, and in float32 if the fraction is a power of two.
    """
    if not np.any(decay.kept):
        return None
    kept = np.ascontiguousarray(np.transpose(decay.kept))  # in Lava's axes
    match decay:
        case Truncation():
            return lambda state: _truncate(state, kept)
        case Leak():
            return lambda state: _multiply(state, kept)
        case _:
            assert_never(decay)


def _truncate(state: Array, kept: Array) -> None:
    if (kept != 1).any():
        state *= kept
        np.trunc(state, out=state)


def _multiply(state: Array, kept: Array) -> None:
    state *= kept


# Synapses as matrix products, on values in Lava's axes [lanes, x, y, channel] or [lanes, feature].
#
# A convolution gathers the receptive field of each neuron (im2col) and multiplies it by the kernel with BLAS.
# Sums are exact in the float type that `ir.exact_float` returns.


GATHERED_BYTES = 2**22  # receptive fields gathered at once, which should fit the cache


def multiply(left: Array, right: Array, product: Array) -> None:
    """product = left @ right, with SciPy's BLAS, in place; all arrays are contiguous.

    Lava requires NumPy 1, whose BLAS does not recognize newer processors and is five times slower on them.
    SciPy, which Lava requires too, brings a newer BLAS.
    """
    gemm = sgemm if left.dtype == np.float32 else dgemm
    gemm(1.0, right.T, left.T, beta=0.0, c=product.T, overwrite_c=True)  # BLAS is column-major


class DenseProduct:
    """target = weight @ values, with rows and columns of the weight in Lava's order"""

    def __init__(self, synapse: Dense, source: Shape, target: Shape, kind: type, factor: float) -> None:
        weight = synapse.weight.astype(np.float64).reshape(*target, *source)
        axes = [*reversed(range(len(target))), *reversed(range(len(target), weight.ndim))]
        weight = weight.transpose(axes).reshape(prod(target), prod(source))
        self.weight: Array = np.ascontiguousarray(weight.T * factor, kind)
        self.shape = target[::-1]
        self.inside: tuple[slice, ...] = (slice(None),)

    def __call__(self, values: Array) -> Array:
        flat = values.reshape(len(values), -1).astype(self.weight.dtype)
        product: Array = np.empty((len(values), self.weight.shape[1]), self.weight.dtype)
        multiply(flat, self.weight, product)
        return product.reshape(len(values), *self.shape)


class ConvolutionProduct:
    """target[x, y, o] = sum of weight * values over the receptive field, inside the window of the synapse"""

    def __init__(self, synapse: Conv2d, source: Shape, kind: type, factor: float) -> None:
        self.synapse = synapse
        target = output_shape(synapse, source)
        rows, columns = window(synapse, target)
        self.inside: tuple[slice, ...] = (slice(None), columns, rows)
        self.windows = (columns.stop - columns.start, rows.stop - rows.start)
        groups, kernel = synapse.groups, synapse.weight.astype(np.float64) * factor
        channels, inner, height, width = kernel.shape
        kernel = kernel.reshape(groups, channels // groups, inner, height, width).transpose(0, 4, 3, 2, 1)
        self.weight: Array = np.ascontiguousarray(kernel.reshape(groups, -1, channels // groups), kind)
        self.taps = (width, height, inner)
        size = groups * prod(self.windows) * prod(self.taps) * self.weight.itemsize
        self.lanes_at_once = max(1, GATHERED_BYTES // size)
        self._gathered: Array = np.empty(0, kind)

    def __call__(self, values: Array) -> Array:
        groups, _, channels = self.weight.shape
        product: Array = np.empty((len(values), *self.windows, groups * channels), self.weight.dtype)
        for start in range(0, len(values), self.lanes_at_once):
            part = slice(start, start + self.lanes_at_once)
            self._multiply(values[part], product[part])
        return product

    def _multiply(self, values: Array, product: Array) -> None:
        gathered = self._gather(values)  # [groups, lanes * windows, taps]
        columns = product.reshape(-1, product.shape[-1])
        if len(gathered) == 1:
            multiply(gathered[0], self.weight[0], columns)
            return
        channels = self.weight.shape[2]
        for group, (left, right) in enumerate(zip(gathered, self.weight, strict=True)):
            own = np.empty((len(columns), channels), columns.dtype)
            multiply(left, right, own)
            columns[:, group * channels : (group + 1) * channels] = own

    def _gather(self, values: Array) -> Array:
        """Return the receptive fields of the window by group, in memory that is reused."""
        (step_y, step_x), (skip_y, skip_x) = self.synapse.stride, self.synapse.dilation
        reach_y, reach_x = span(self.synapse)
        read = sliding_window_view(self._padded(values), (reach_x, reach_y), axis=(1, 2))  # type: ignore[call-overload]
        read = read[:, ::step_x, ::step_y, :, ::skip_x, ::skip_y][self.inside]
        groups, lanes = self.synapse.groups, len(values)
        read = read.reshape(*read.shape[:3], groups, -1, *read.shape[4:])
        shape = (groups, lanes, *self.windows, *self.taps)
        if self._gathered.shape != shape:
            self._gathered = np.empty(shape, self.weight.dtype)
        self._gathered[...] = read.transpose(3, 0, 1, 2, 5, 6, 4)
        return self._gathered.reshape(groups, lanes * prod(self.windows), -1)

    def _padded(self, values: Array) -> Array:
        pad_y, pad_x = self.synapse.padding
        if not (pad_x or pad_y):
            return values
        lanes, width, height, channels = values.shape
        padded: Array = np.zeros((lanes, width + 2 * pad_x, height + 2 * pad_y, channels), values.dtype)
        padded[:, pad_x : pad_x + width, pad_y : pad_y + height] = values
        return padded


Product = DenseProduct | ConvolutionProduct


def product(connection: Connection, source: Shape, target: Shape, kind: type, factor: float) -> Product:
    """Prepare a synapse, times 2**exponent and a factor, in floats of type `kind`."""
    synapse = connection.synapse
    factor = factor * 2.0**synapse.exponent
    match synapse:
        case Dense():
            return DenseProduct(synapse, source, target, kind, factor)
        case Conv2d():
            return ConvolutionProduct(synapse, source, kind, factor)
        case _:
            assert_never(synapse)
