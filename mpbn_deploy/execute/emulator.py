"""The fast simulator, in torch: runs whole batches and gives the integers of the reference bit by bit.

Populations run one after the other, each over all its time steps. The spikes of a population are kept until
all its targets have run, so memory stays small. Only populations in a loop (a recurrent connection) run
together, step by step. A population runs on as many samples at once as keep its states in the processor's
cache: convolutions and updates are twice as fast there.

Spikes are convolved in integers where torch supports it (`spike_convolution`). Everything else is computed in
floats: float32 is exact on integers while no partial sum, in any order of summation, reaches 2**24. For
states, `bounds` proves this, and `largest_total` for the sums of currents that enter a population; states
without a proof are computed in float64 and checked in every step, or in integers as `ir.overflow` defines if
we did not quantize the network. Each synapse is computed in float64 if its
sums could be too large. Convolutions must be plain sums of products, so torch's NNPACK, which transforms
them, is switched off.

`_Membranes` repeats `ir.Membrane` in place and in torch, for speed, and `modulation` repeats `ir.Modulator`;
tests compare them with the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, inf, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import assert_never

from ..base import Array, Progress, SimulationError, layer_name, no_progress, record
from ..ir import (
    DECAY_ONE,
    NO_BORDER,
    STATE_EXPONENT,
    STATE_LIMIT,
    AnyNetwork,
    AnyPopulation,
    Connection,
    Conv2d,
    Decay,
    Dense,
    IntNetwork,
    Leak,
    Membrane,
    Modulator,
    Rule,
    Shape,
    State,
    Synapse,
    Trace,
    Truncation,
    as_steps,
    bounds,
    check_input_values,
    exact_float,
    largest_sum,
    largest_total,
    output_shape,
    span,
    update_rule,
    value_range,
    wide_sums,
    window,
    wrapped,
)
from .modulation import Modulation
from .narrow import NarrowNeurons, may_narrow
from .options import ExecutionOptions
from .spike_convolution import spike_convolution
from .traces import join_traces, outputs_of

CHUNK = 128  # samples computed at once, to bound memory
MOST_SPIKES = 2**20  # of more samples at once
MOST_AT_ONCE = 2**22  # values that a matrix multiplies at once
MOST_STATES = 2**19  # of a population, or of those in a loop, at once: 2 MB of float32
RESPONSE_CHUNK = 32  # the same in `respond`

BINARY_SPIKES = (0, 1)  # range of values
FLOATS: dict[type[np.floating[Any]], torch.dtype] = {np.float32: torch.float32, np.float64: torch.float64}

DecayInPlace = Callable[[Tensor], Tensor]


def emulate(
    network: AnyNetwork, inputs: Array, *, keep_trace: bool = True, progress: Progress = no_progress
) -> Trace:
    """Run a network on inputs [samples, timesteps, *shape], or [samples, *shape] repeated in every step.

    With `keep_trace=False` the trace holds only outputs, and spikes are freed once all targets have run.
    `progress` counts chunks of samples.
    """
    return Emulator(network).run(inputs, keep_trace=keep_trace, progress=progress)


class Emulator:
    """A network prepared once, to run on many inputs."""

    def __init__(self, network: AnyNetwork) -> None:
        self.network = network
        with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
            layers = [_layer(network, population) for population in network.layers]
            self.layers = [replace(layer, settled=_settled(network, layer)) for layer in layers]

    def run(self, inputs: Array, *, keep_trace: bool = True, progress: Progress = no_progress) -> Trace:
        """Run the network; arguments as for `emulate`."""
        network = self.network
        as_steps(np.asarray(inputs)[:1], network.input.shape, network.timesteps)
        check_input_values(network, np.asarray(inputs), fractions=not isinstance(network, IntNetwork))
        size = _chunk(network)
        starts = range(0, len(inputs), size)
        with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
            parts = (inputs[start : start + size] for start in progress(starts))
            traces = [_run(network, self.layers, part, keep_trace) for part in parts]
        return join_traces(traces)


def _chunk(network: AnyNetwork) -> int:
    """Return how many samples to compute at once: more in small networks, whose steps are short."""
    spikes = network.timesteps * sum(population.size for population in network.populations)
    return max(CHUNK, MOST_SPIKES // spikes)


def respond(network: AnyNetwork, name: str, sent: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return spikes [samples, timesteps, *shape] and last voltages [samples, *shape] of one population.

    `sent` holds the spikes of its sources: [samples, timesteps, *shape], or [samples, *shape] if constant in
    time. Real numbers are computed in float32, because calibration tolerates a few different spikes.
    """
    layer = _layer(network, network.layer(name), torch.float32)
    sources = layer.sources
    spikes, voltages = [], []
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        for start in range(0, min(len(sent[source]) for source in sources), RESPONSE_CHUNK):
            chunk = {s: _sent(sent[s][start : start + RESPONSE_CHUNK], network.shapes[s]) for s in sources}
            ahead = _currents_ahead([layer], chunk)
            membranes = _Membranes(layer, chunk[next(iter(sources))].samples)
            gathered = (_gather(layer, chunk, step, ahead) for step in range(network.timesteps))
            steps = [membranes.step(synapses).bool() for synapses in gathered]
            spikes.append(torch.stack(steps, dim=1).numpy())
            voltages.append(membranes.voltage.numpy())
    return np.concatenate(spikes), np.concatenate(voltages)


# ---- a population, prepared --------------------------------------------------------------------


@record
class _Current:
    """A prepared connection: computes its currents in units of the state."""

    connection: Connection
    product: Callable[[Tensor], Tensor]


NO_MODULI: Mapping[_Current, float] = {}


@record
class _Layer:
    """A prepared population. A decay of None keeps no state from one step to the next."""

    name: str
    shape: Shape
    currents: tuple[_Current, ...]
    state_type: torch.dtype
    bias: Tensor
    threshold: Tensor | None
    graded: bool
    rule: Rule
    moduli: Mapping[_Current, float]  # of sums that may wrap
    subtrahend: Tensor | None = None
    decay_current: DecayInPlace | None = None
    decay_voltage: DecayInPlace | None = None
    divisor: int = 1
    settled: _Recording | None = None  # of one sample, if all samples are alike
    narrows: bool = False  # whether states may leave their width, and continue as in Lava
    records_peaks: bool = False  # the largest states, which may exceed the limit
    limit: float = inf  # of their magnitude

    @property
    def sources(self) -> set[str]:
        return {current.connection.source for current in self.currents}


def _layer(network: AnyNetwork, population: AnyPopulation, real_type: torch.dtype = torch.float64) -> _Layer:
    """Prepare a population: real numbers are computed in `real_type`, integers in a float that is exact."""
    name, rule = population.name, update_rule(population.neuron, network.timesteps)
    proved, kind, moduli = True, real_type, {}
    if isinstance(network, IntNetwork):
        moduli = {} if isinstance(rule, Modulator) else wide_sums(network, name)
        proved = bounds(network, (name,))[name].fits and not moduli
        arrivals = [(c, network.population(c.source)) for c in network.entering(name)]
        kind = FLOATS[exact_float(largest_total(arrivals))] if proved else torch.float64
    currents = tuple(_current(network, c, rule.unit, real_type) for c in network.entering(name))
    narrows = not proved and isinstance(rule, Membrane) and may_narrow(network, rule)
    kind = torch.float64 if isinstance(rule, Modulator) else kind
    layer = _Layer(
        name=name,
        shape=population.shape,
        currents=currents,
        state_type=kind,
        bias=torch.tensor(rule.bias, dtype=kind),
        threshold=None if rule.threshold is None else torch.tensor(rule.threshold, dtype=kind),
        graded=rule.graded,
        rule=rule,
        moduli={c: rule.unit * moduli[c.connection] for c in currents if c.connection in moduli},
        narrows=narrows,
        records_peaks=not proved and not narrows,
        limit=rule.limit,
    )
    if isinstance(rule, Modulator):
        return layer
    return replace(
        layer,
        subtrahend=None if rule.subtrahend is None else torch.tensor(rule.subtrahend, dtype=kind),
        decay_current=_in_place(rule.decay_current),
        decay_voltage=_in_place(rule.decay_voltage),
        divisor=rule.divisor,
    )


def _current(network: AnyNetwork, connection: Connection, unit: int, real_type: torch.dtype) -> _Current:
    """Prepare a connection: as an integer convolution if possible, else in floats that hold every sum."""
    synapse, source, kind = connection.synapse, network.population(connection.source), real_type
    if isinstance(network, IntNetwork):
        kind = FLOATS[exact_float(largest_sum(connection, source))]
        binary = source is not network.input and value_range(source.neuron) == BINARY_SPIKES
        # Integer convolutions give float32, in units of a membrane's state.
        in_states = unit == 2**STATE_EXPONENT
        if binary and in_states and isinstance(synapse, Conv2d) and kind == torch.float32:
            product = spike_convolution(synapse, source.shape)
            if product is not None:
                return _Current(connection=connection, product=product)
    # Multiplying a float by a power of two is exact, so the scale goes into the weights.
    weight = torch.tensor(synapse.weight).to(kind) * (unit * 2.0**synapse.exponent)
    return _Current(
        connection=connection, product=lambda values: apply_weight(synapse, weight, values.to(kind))
    )


def _in_place(decay: Decay) -> DecayInPlace | None:
    match decay:
        case Truncation(amount=amount):
            return truncated_decay(amount)
        case Leak(kept=kept):
            factor = torch.tensor(kept) if isinstance(kept, np.ndarray) else kept
            return (lambda state: state.mul_(factor)) if np.any(kept) else None
        case _:
            assert_never(decay)


def truncated_decay(decay: int | Array) -> DecayInPlace | None:
    """state <- trunc(state * (4096 - decay) / 4096), in place, on integers stored as floats

    torch.div rounds several times faster than torch.trunc.
    """
    if isinstance(decay, np.ndarray):
        each = torch.tensor(DECAY_ONE - decay, dtype=torch.float64)
        return lambda state: state.copy_(_truncated(state.double() * each))
    keep = DECAY_ONE - decay
    if keep == 0:
        return None
    if keep == DECAY_ONE:
        return lambda state: state
    if keep == gcd(keep, DECAY_ONE):  # a power of two: the product is exact
        return lambda state: torch.div(state, DECAY_ONE // keep, rounding_mode="trunc", out=state)
    return lambda state: state.copy_(_truncated(state.double() * keep))


def _truncated(product: Tensor) -> Tensor:
    """trunc(product / 4096), where float64 holds the product"""
    return torch.div(product, DECAY_ONE, rounding_mode="trunc", out=product)


# ---- one chunk of samples ---------------------------------------------------------------------


@record
class _Sent:
    """Values a population sends: [timesteps, samples, *shape], or [samples, *shape] if constant in time."""

    values: Tensor
    constant: bool

    @property
    def samples(self) -> int:
        return self.values.shape[0 if self.constant else 1]

    def part(self, samples: slice) -> _Sent:
        if not self.constant and self.samples == 1:  # which may stand for all
            return self
        values = self.values[samples] if self.constant else self.values[:, samples]
        return _Sent(values=values, constant=self.constant)

    def at(self, step: int) -> Tensor:
        return self.values if self.constant else self.values[step]


def _sent(values: Array, shape: Shape) -> _Sent:
    """Wrap an array [samples, timesteps, *shape] or [samples, *shape]."""
    tensor = torch.tensor(np.asarray(values))
    constant = tensor.shape[1:] == shape
    return _Sent(values=tensor if constant else tensor.transpose(0, 1), constant=constant)


class _Membranes:
    """State of the neurons of a population, for some samples."""

    def __init__(self, layer: _Layer, samples: int) -> None:
        self.layer = layer
        self.voltage = _empty((samples, *layer.shape), layer.state_type).zero_()
        self.current = None if layer.decay_current is None else torch.zeros_like(self.voltage)
        self.spikes = torch.zeros_like(self.voltage)
        self.peak = torch.zeros(layer.shape[0], dtype=torch.float64) if layer.records_peaks else None
        self.modulation = (
            Modulation(layer.rule, self.voltage, layer.bias, layer.threshold)
            if isinstance(layer.rule, Modulator)
            else None
        )

    @property
    def overflows(self) -> Array:
        """Per neuron, the steps in which its numbers left their width."""
        return np.zeros(0)

    def step(self, synapses: Tensor, exact: Tensor | None = None) -> Tensor:
        """Decay, integrate, fire, reset; return what is sent, in memory that the next step overwrites.

        `exact` are the currents before they wrapped, None if they did not.
        """
        layer = self.layer
        if self.modulation is not None:
            self.modulation.step(synapses, self.spikes)
            self._record_peak(synapses, self.voltage, self.modulation.encoded)
            return self.spikes
        if self.current is not None and layer.decay_current is not None:
            synapses = self.current = layer.decay_current(self.current).add_(synapses)
        if layer.divisor > 1:
            synapses = (synapses + layer.bias) / layer.divisor
        if layer.decay_voltage is None:
            self.voltage.copy_(synapses)
        else:
            layer.decay_voltage(self.voltage).add_(synapses)
        if layer.divisor == 1:
            self.voltage.add_(layer.bias)
        self._record_peak(synapses, self.voltage)
        if layer.graded:
            self.spikes.copy_(self.voltage)
            self.voltage.zero_()
            return self.spikes
        if layer.threshold is None:
            return self.spikes
        torch.gt(self.voltage, layer.threshold, out=self.spikes)
        # voltage <- voltage - voltage * spike: zero after a spike, and faster than a masked fill.
        subtrahend = self.voltage if layer.subtrahend is None else layer.subtrahend
        self.voltage.addcmul_(subtrahend, self.spikes, value=-1)
        if layer.subtrahend is not None:
            self._record_peak(self.voltage)  # a subtraction can overflow too
        return self.spikes

    def _record_peak(self, *states: Tensor) -> None:
        """Record the largest magnitude of each channel's states, and raise if it exceeds the limit."""
        if self.peak is None:
            return
        for state in states:
            largest = state.abs().transpose(0, 1).flatten(1).amax(dim=1).to(self.peak.dtype)
            self.peak = torch.maximum(self.peak, largest)
        if self.peak.max() > self.layer.limit:
            advice = "Quantize with --overflow proved, or calibrate on such inputs."
            advice = advice if self.modulation is None else "Give inputs of a smaller range."
            raise SimulationError(
                f"{layer_name(self.layer.name)}: a state of magnitude {int(self.peak.max())} overflows the "
                f"24-bit state (at most {STATE_LIMIT}). {advice}"
            )


class _NarrowMembranes(_Membranes):
    """Neurons whose states may leave their width; `ir.Membrane` itself computes them, in NumPy."""

    def __init__(self, layer: _Layer, samples: int) -> None:
        super().__init__(layer, samples)
        assert isinstance(layer.rule, Membrane)
        self.neurons = NarrowNeurons(layer.rule, layer.shape)
        self.state: State = (np.zeros(self.voltage.shape, np.int64),) * 2

    @property
    def overflows(self) -> Array:
        return self.neurons.overflows

    def step(self, synapses: Tensor, exact: Tensor | None = None) -> Tensor:
        kept, sums = (
            each.numpy() / self.layer.rule.unit for each in (synapses, synapses if exact is None else exact)
        )
        self.state, spikes = self.neurons.step(self.state, sums, kept)
        self.voltage.copy_(torch.from_numpy(self.state[1]))
        return torch.from_numpy(spikes)


def _membranes(layer: _Layer, samples: int) -> _Membranes:
    return _NarrowMembranes(layer, samples) if layer.narrows else _Membranes(layer, samples)


def peaks(network: AnyNetwork, inputs: Array) -> dict[str, Array]:
    """Return the largest magnitude of current or voltage of each channel on `inputs`."""
    layers = [
        replace(layer, records_peaks=True, narrows=False, settled=None) for layer in Emulator(network).layers
    ]
    found: dict[str, Array] = {}
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        for start in range(0, len(inputs), CHUNK):
            _run(network, layers, inputs[start : start + CHUNK], keep_trace=False, found=found)
    return found


@record
class _Recording:
    """What a population did, [timesteps, samples, *shape]; voltages of the last step, of all, or None."""

    spikes: Tensor
    voltages: Tensor | None


def _run(
    network: AnyNetwork,
    layers: Sequence[_Layer],
    inputs: Array,
    keep_trace: bool,
    found: dict[str, Array] | None = None,
) -> Trace:
    """Run one chunk; merge the peaks that were recorded into `found`."""
    sent = {network.input.name: _sent(inputs, network.input.shape)}
    spikes: dict[str, Array] = {}
    voltages: dict[str, Array] = {}
    overflows: dict[str, Array] = {}
    for block in _blocks(network, layers):
        alike = block[0].settled if len(block) == 1 else None
        recordings = [alike or _recording(network, layer, len(inputs), keep_trace) for layer in block]
        for layer, recorded in zip(block, recordings, strict=True):
            sent[layer.name] = _Sent(values=recorded.spikes, constant=False)
        for part in parts(block, len(inputs) if alike is None else 0):
            for neurons in _run_block(block, recordings, sent, part):
                name = neurons.layer.name
                if neurons.overflows.any():
                    overflows[name] = overflows.get(name, 0) + neurons.overflows
                if found is not None and neurons.peak is not None:
                    found[name] = np.maximum(found.get(name, 0.0), neurons.peak.numpy())
        for layer, recorded in zip(block, recordings, strict=True):
            if keep_trace and recorded.voltages is not None:
                spikes[layer.name] = _by_sample(recorded.spikes, len(inputs))
                voltages[layer.name] = _by_sample(recorded.voltages, len(inputs))
        for name in set(sent) - network.sources_after(block[-1].name) - {network.output.name}:
            del sent[name]
    last = network.output.name
    assert recorded.voltages is not None  # those of the output are always recorded
    fired, charged = (_by_sample(each, len(inputs)) for each in (recorded.spikes, recorded.voltages))
    outputs = outputs_of(network, {last: fired}, {last: charged})
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs, overflows=overflows)


def _settled(network: AnyNetwork, layer: _Layer) -> _Recording | None:
    """Run a population that nothing reaches on one sample, which stands for all; None for others."""
    if layer.narrows or any(current.connection.synapse.weight.any() for current in layer.currents):
        return None
    recorded, alone = _recording(network, layer, 1, keep_trace=True), replace(layer, currents=())
    _run_block([alone], [recorded], {layer.name: _Sent(values=recorded.spikes, constant=False)}, slice(0, 1))
    return recorded


def _recording(network: AnyNetwork, layer: _Layer, samples: int, keep_trace: bool) -> _Recording:
    """Return an empty recording; the states of an integer network are int64, like the reference's."""
    steps = network.timesteps if keep_trace else 1
    kind = torch.int64 if isinstance(network, IntNetwork) else layer.state_type
    recorded = keep_trace or layer.name == network.output.name
    sent = torch.int64 if layer.graded else torch.bool
    return _Recording(
        spikes=_empty((network.timesteps, samples, *layer.shape), sent),
        voltages=_empty((steps, samples, *layer.shape), kind) if recorded else None,
    )


def _blocks(network: AnyNetwork, layers: Sequence[_Layer]) -> Iterator[list[_Layer]]:
    """Yield the populations that run together: a single one, or all from the start to the end of a loop."""
    place = {layer.name: index for index, layer in enumerate(layers)}
    begun, end = 0, 0
    for index, layer in enumerate(layers):
        end = max([end, index, *(place.get(c.connection.source, 0) for c in layer.currents)])
        if end == index:
            yield list(layers[begun : index + 1])
            begun = index + 1


def parts(block: Sequence[_Layer], samples: int) -> Iterator[slice]:
    """Divide samples into parts whose states are few enough for the processor's cache."""
    size = max(1, MOST_STATES // sum(prod(layer.shape) for layer in block))
    return (slice(start, min(start + size, samples)) for start in range(0, samples, size))


def _run_block(
    block: Sequence[_Layer], recordings: Sequence[_Recording], chunk: Mapping[str, _Sent], part: slice
) -> list[_Membranes]:
    """Run populations over all time steps on a part of a chunk; record their spikes and voltages."""
    sent = {source: chunk[source].part(part) for layer in block for source in (layer.name, *layer.sources)}
    membranes = [_membranes(layer, sent[layer.name].samples) for layer in block]
    timesteps, inside = len(recordings[0].spikes), {layer.name for layer in block}
    ahead = _currents_ahead(block, {name: values for name, values in sent.items() if name not in inside})
    whole = {layer.name: _whole(layer, ahead, timesteps) for layer in block}
    for step in range(timesteps):
        for neurons, recorded in zip(membranes, recordings, strict=True):
            layer = neurons.layer
            summed = whole[layer.name]
            synapses = summed[step] if summed is not None else _gather(layer, sent, step, ahead, layer.moduli)
            exact = _gather(layer, sent, step, ahead) if layer.moduli else None
            recorded.spikes[step, part] = neurons.step(synapses, exact)
            if recorded.voltages is not None:
                recorded.voltages[min(step, len(recorded.voltages) - 1), part] = neurons.voltage
    return membranes


def _currents_ahead(layers: Sequence[_Layer], known: Mapping[str, _Sent]) -> dict[_Current, _Sent]:
    """Compute currents before the first step: those constant in time, and small products of matrices.

    `known` holds what the populations before a block sent. One product for all time steps is faster.
    """
    ahead = {}
    for target, current in [(layer, current) for layer in layers for current in layer.currents]:
        source = known.get(current.connection.source)
        if source is None or not (source.constant or _is_small(target, current, source.values)):
            continue
        lead = source.values.shape[: 1 if source.constant else 2]
        product = current.product(source.values.reshape(-1, *source.values.shape[len(lead) :]))
        values = product.to(target.state_type).view(*lead, *target.shape)
        ahead[current] = replace(source, values=values)
    return ahead


def _whole(layer: _Layer, ahead: Mapping[_Current, _Sent], timesteps: int) -> Tensor | None:
    """Return the sum of all currents of a population in all time steps, if none is left to compute."""
    if (
        layer.moduli
        or not layer.currents
        or any(c not in ahead or c.connection.delay for c in layer.currents)
    ):
        return None
    total: Tensor | None = None
    for current in layer.currents:
        values = ahead[current].values
        arriving = values[None] if ahead[current].constant else values
        total = arriving if total is None else total + arriving
    return None if total is None else total.expand(timesteps, *total.shape[1:])


def _is_small(layer: _Layer, current: _Current, values: Tensor) -> bool:
    """Whether a matrix can multiply the values of all time steps at once: integers, in little memory.

    Sums of real numbers would depend on how many are computed together.
    """
    integers, matrix = layer.limit < inf, isinstance(current.connection.synapse, Dense)
    return integers and matrix and values.numel() <= MOST_AT_ONCE


def _gather(
    layer: _Layer,
    sent: Mapping[str, _Sent],
    step: int,
    ahead: Mapping[_Current, _Sent],
    moduli: Mapping[_Current, float] = NO_MODULI,
) -> Tensor:
    """Sum the currents into a population in one step, in units of its state; those with a modulus wrap."""
    total: Tensor | None = None
    for current in layer.currents:
        connection = current.connection
        if step < connection.delay:
            continue
        if current in ahead:
            arriving = ahead[current].at(step - connection.delay)
        else:
            arriving = current.product(sent[connection.source].at(step - connection.delay))
            arriving = arriving.to(layer.state_type).view(-1, *layer.shape)
        if current in moduli:
            arriving = torch.from_numpy(wrapped(arriving.numpy(), moduli[current]))
        total = arriving if total is None else total + arriving
    return torch.zeros(1, *layer.shape, dtype=layer.state_type) if total is None else total


def _empty(size: Shape, kind: torch.dtype) -> Tensor:
    """Return memory for [..., channels, height, width], channels last, which speeds up convolutions."""
    if len(size) < 4:
        return torch.empty(size, dtype=kind)
    *others, channels, height, width = size
    return torch.empty(*others, height, width, channels, dtype=kind).movedim(-1, -3)


def apply_weight(synapse: Synapse, weight: Tensor, values: Tensor) -> Tensor:
    match synapse:
        case Dense():
            return functional.linear(values.flatten(1), weight)
        case Conv2d(silent=silent) if silent != NO_BORDER:
            return _apply_window(synapse, weight, values)
        case Conv2d(stride=stride, padding=padding, dilation=dilation, groups=groups):
            return functional.conv2d(values, weight, None, stride, padding, dilation, groups)
        case _:
            assert_never(synapse)


def _apply_window(synapse: Conv2d, weight: Tensor, values: Tensor) -> Tensor:
    """Convolve only the receptive fields of the window, and pad the result with zeros."""
    pad_y, pad_x = synapse.padding
    padded = functional.pad(values, (pad_x, pad_x, pad_y, pad_y))
    target = output_shape(synapse, tuple(values.shape[1:]))
    rows, columns = (
        slice(step * inside.start, step * (inside.stop - 1) + reach)
        for inside, step, reach in zip(window(synapse, target), synapse.stride, span(synapse), strict=True)
    )
    read = padded[:, :, rows, columns]
    inner = functional.conv2d(read, weight, None, synapse.stride, 0, synapse.dilation, synapse.groups)
    return functional.pad(inner, (*synapse.silent[1], *synapse.silent[0]))


def _by_sample(values: Tensor, samples: int) -> Array:
    """[timesteps, samples, ...] as [samples, timesteps, ...]; one sample may stand for all"""
    return values.expand(-1, samples, *values.shape[2:]).transpose(0, 1).numpy()


# ---- as an executor ---------------------------------------------------------------------------


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """Emulate a network."""
    return emulate(network, inputs, keep_trace=options.keep_trace, progress=options.progress)
