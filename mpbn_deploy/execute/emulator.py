"""The fast simulator, in torch: whole batches at once; integers equal those of `simulate` bit by bit.

Population after population, each over all its time steps: what one sends is kept as bits until all that
read it have run, so little memory is needed, and each weight is fetched once. Only populations in a
loop (a connection that leads back) run together, step by step.

Spikes are convolved in integers where torch can (`spike_convolution`). All other numbers are floats:
float32 is exact on integers as long as no partial sum, in whatever order it is taken, reaches 2**24.
States cannot where `bounds` proves it, and are watched in float64 where it does not; synapses are
checked one by one, and float64 is taken where they could. Convolutions must be sums of products and
nothing cleverer, so torch's NNPACK, which would transform them, is switched off.

`_Membranes` is `ir.Membrane` in place and in torch, for speed; tests hold it to the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, inf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import assert_never

from ..base import Array, SimulationError, record
from ..ir import (
    DECAY_ONE,
    NO_BORDER,
    STATE_LIMIT,
    AnyNetwork,
    AnyPopulation,
    Connection,
    Conv2d,
    Decay,
    Dense,
    IntNetwork,
    Leak,
    Shape,
    Synapse,
    Trace,
    Truncation,
    as_steps,
    bounds,
    check_input_values,
    exact_float,
    fires,
    largest_sum,
    membrane,
    output_shape,
    span,
    value_range,
    window,
)
from .options import ExecutionOptions
from .spike_convolution import spike_convolution

CHUNK = 128  # samples computed at once; bounds the memory whatever the number of samples
RESPONSE_CHUNK = 32  # the same where one population answers to all that was sent

PLAIN_SPIKES = (0, 1)  # the range of what is sent
FLOATS: dict[type[np.floating[Any]], torch.dtype] = {np.float32: torch.float32, np.float64: torch.float64}

DecayInPlace = Callable[[Tensor], Tensor]
Watch = Callable[[Iterable[int], int], Iterable[int]]


def emulate(
    network: AnyNetwork,
    inputs: Array,
    *,
    keep_trace: bool = True,
    watch: Watch = lambda chunks, total: chunks,
) -> Trace:
    """Run a network on inputs [samples, timesteps, *shape], or [samples, *shape] held for all steps.

    With `keep_trace=False` the trace holds outputs only, and spikes are forgotten when all have read them.
    `watch` sees the chunks of samples go by, to show progress.
    """
    return Emulator(network).run(inputs, keep_trace=keep_trace, watch=watch)


class Emulator:
    """A network made ready once, to run on many inputs."""

    def __init__(self, network: AnyNetwork) -> None:
        self.network = network
        with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
            self.units = [_unit(network, population) for population in network.layers]

    def run(
        self,
        inputs: Array,
        *,
        keep_trace: bool = True,
        watch: Watch = lambda chunks, total: chunks,
    ) -> Trace:
        """As `emulate`."""
        network = self.network
        as_steps(np.asarray(inputs)[:1], network.input.shape, network.timesteps)
        if isinstance(network, IntNetwork):
            check_input_values(network, np.asarray(inputs))
        starts = range(0, len(inputs), CHUNK)
        with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
            chunks = watch(starts, len(starts))
            parts = (inputs[start : start + CHUNK] for start in chunks)
            traces = [_run(network, self.units, part, keep_trace) for part in parts]
        return _join(traces)


def respond(network: AnyNetwork, name: str, sent: Mapping[str, Array]) -> tuple[Array, Array]:
    """Spikes [samples, timesteps, *shape] and last voltages [samples, *shape] of one population alone.

    `sent` holds what its sources send: [samples, timesteps, *shape], or without time what stands still.
    Real numbers are computed in float32: this is for calibration, where a few spikes do not matter.
    """
    unit = _unit(network, network.layer(name), torch.float32)
    shapes = {p.name: p.shape for p in network.populations}
    sources = {current.connection.source for current in unit.currents}
    spikes, voltages = [], []
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        for start in range(0, min(len(sent[source]) for source in sources), RESPONSE_CHUNK):
            chunk = {s: _sent(sent[s][start : start + RESPONSE_CHUNK], shapes[s]) for s in sources}
            once = {c: c(chunk[c.connection.source].values) for c in unit.currents
                    if chunk[c.connection.source].still}  # fmt: skip
            membranes = _Membranes(unit, chunk[next(iter(sources))].samples)
            steps = [
                membranes.step(_gather(unit, chunk, step, once)).bool() for step in range(network.timesteps)
            ]
            spikes.append(torch.stack(steps, dim=1).numpy())
            voltages.append(membranes.voltage.numpy())
    return np.concatenate(spikes), np.concatenate(voltages)


# ---- what it takes to compute a population ----------------------------------------------------


@record
class _Current:
    """One connection, ready to compute; its weights give currents in units of the state."""

    connection: Connection
    product: Callable[[Tensor], Tensor]

    def __call__(self, values: Tensor) -> Tensor:
        return self.product(values)


@record
class _Unit:
    """One population, ready to compute. A decay of None forgets everything within a step."""

    name: str
    shape: Shape
    currents: tuple[_Current, ...]
    state_type: torch.dtype
    bias: Tensor
    threshold: Tensor | None
    decay_current: DecayInPlace | None
    decay_voltage: DecayInPlace | None
    divisor: int
    watched: bool = False  # whether the largest states are kept
    limit: float = inf  # which none of them may pass


def _unit(network: AnyNetwork, population: AnyPopulation, real_type: torch.dtype = torch.float64) -> _Unit:
    """Real numbers are computed in `real_type`, integers in a float that holds them."""
    name, rule = population.name, membrane(population.neuron, network.timesteps)
    proved, kind = True, real_type
    if isinstance(network, IntNetwork):
        proved = bounds(network, (name,))[name].fits
        kind = torch.float32 if proved else torch.float64
    return _Unit(
        name=name,
        shape=population.shape,
        currents=tuple(_current(network, c, rule.unit, real_type) for c in network.entering(name)),
        state_type=kind,
        bias=torch.tensor(rule.bias, dtype=kind),
        threshold=None if rule.threshold is None else torch.tensor(rule.threshold, dtype=kind),
        decay_current=_in_place(rule.decay_current),
        decay_voltage=_in_place(rule.decay_voltage),
        divisor=rule.divisor,
        watched=not proved,
        limit=rule.limit,
    )


def _current(network: AnyNetwork, connection: Connection, unit: int, real_type: torch.dtype) -> _Current:
    """Integers in integers where torch can, else in floats that hold every sum."""
    synapse, source, kind = connection.synapse, network.population(connection.source), real_type
    if isinstance(network, IntNetwork):
        bits = source is not network.input and value_range(source.neuron) == PLAIN_SPIKES
        if bits and isinstance(synapse, Conv2d):
            product = spike_convolution(synapse, source.shape, CHUNK)
            if product is not None:
                return _Current(connection=connection, product=product)
        kind = _sufficient_type(connection, largest_sum(connection, source))
    # A factor of two moves the point of a float and no digit, so it may go into the weights.
    weight = torch.tensor(synapse.weight).to(kind) * (unit * 2.0**synapse.exponent)
    return _Current(
        connection=connection, product=lambda values: apply_weight(synapse, weight, values.to(kind))
    )


def _in_place(decay: Decay) -> DecayInPlace | None:
    match decay:
        case Truncation(amount=amount):
            return truncated_decay(amount)
        case Leak(kept=kept):
            return None if kept == 0 else lambda state: state.mul_(kept)
        case _:
            assert_never(decay)


def truncated_decay(decay: int) -> DecayInPlace | None:
    """state <- trunc(state * (4096 - decay) / 4096), toward zero, of whole numbers in floats, in place"""
    keep = DECAY_ONE - decay
    if keep == 0:
        return None
    if keep == DECAY_ONE:
        return lambda state: state
    if keep == gcd(keep, DECAY_ONE):  # a power of two: moves the point and no digit
        return lambda state: state.mul_(keep / DECAY_ONE).trunc_()
    return lambda state: state.copy_((state.double() * keep / DECAY_ONE).trunc_())


def _sufficient_type(connection: Connection, largest: float) -> torch.dtype:
    kind = exact_float(largest)
    if kind is None:
        raise SimulationError(f"{connection.label}: sums of up to {largest:.3g} are too large to be exact.")
    return FLOATS[kind]


# ---- one chunk of samples ---------------------------------------------------------------------


@record
class _Sent:
    """What a population sends: [timesteps, samples, *shape], or [samples, *shape] in every step alike."""

    values: Tensor
    still: bool

    @property
    def samples(self) -> int:
        return self.values.shape[0 if self.still else 1]

    def at(self, step: int) -> Tensor:
        return self.values if self.still else self.values[step]


def _sent(values: Array, shape: Shape) -> _Sent:
    """Of an array [samples, timesteps, *shape], or without time."""
    tensor = torch.tensor(np.asarray(values))
    still = tensor.shape[1:] == shape
    return _Sent(values=tensor if still else tensor.transpose(0, 1), still=still)


class _Membranes:
    """The neurons of a population, for some samples."""

    def __init__(self, unit: _Unit, samples: int) -> None:
        self.unit = unit
        self.voltage = _zeros((samples, *unit.shape), unit.state_type)
        self.current = None if unit.decay_current is None else torch.zeros_like(self.voltage)
        self.spikes = torch.zeros_like(self.voltage)
        self.peak = torch.zeros(unit.shape[0], dtype=torch.float64) if unit.watched else None

    def step(self, synapses: Tensor) -> Tensor:
        """Decay, integrate, fire, reset; gives the spikes, which the next step overwrites."""
        unit = self.unit
        if self.current is not None and unit.decay_current is not None:
            synapses = self.current = unit.decay_current(self.current).add_(synapses)
        if unit.divisor > 1:
            synapses = (synapses + unit.bias) / unit.divisor
        if unit.decay_voltage is None:
            self.voltage.copy_(synapses)
        else:
            unit.decay_voltage(self.voltage).add_(synapses)
        if unit.divisor == 1:
            self.voltage.add_(unit.bias)
        self._look(synapses)
        if unit.threshold is None:
            return self.spikes
        torch.gt(self.voltage, unit.threshold, out=self.spikes)
        # voltage <- voltage - voltage * spike: zero where it fired, and quicker than to fill a mask.
        self.voltage.addcmul_(self.voltage, self.spikes, value=-1)
        return self.spikes

    def _look(self, current: Tensor) -> None:
        """Keep the largest magnitude of each channel's states, where they are watched."""
        if self.peak is None:
            return
        for state in (current, self.voltage):
            largest = state.abs().transpose(0, 1).flatten(1).amax(dim=1).to(self.peak.dtype)
            self.peak = torch.maximum(self.peak, largest)
        if self.peak.max() > self.unit.limit:
            raise SimulationError(
                f"{self.unit.name}: a state of magnitude {int(self.peak.max())} leaves the 24-bit state (at "
                f"most {STATE_LIMIT}); that it could was not excluded. Quantize with --overflow proved."
            )


def peaks(network: AnyNetwork, inputs: Array) -> dict[str, Array]:
    """The largest current or voltage, by magnitude and before reset, of each channel on some inputs."""
    units = [replace(unit, watched=True) for unit in Emulator(network).units]
    found: dict[str, Array] = {}
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        for start in range(0, len(inputs), CHUNK):
            _run(network, units, inputs[start : start + CHUNK], keep_trace=False, found=found)
    return found


def _run(
    network: AnyNetwork,
    units: Sequence[_Unit],
    inputs: Array,
    keep_trace: bool,
    found: dict[str, Array] | None = None,
) -> Trace:
    """One chunk; the peaks of units that are watched are entered into what was `found` before."""
    sent = {network.input.name: _sent(inputs, network.input.shape)}
    spikes: dict[str, Array] = {}
    voltages: dict[str, Array] = {}
    for block in _blocks(network, units):
        membranes = [_Membranes(unit, len(inputs)) for unit in block]
        seen = _run_block(block, membranes, sent, network.timesteps, keep_trace)
        if keep_trace:
            spikes |= {unit.name: _by_sample(sent[unit.name].values) for unit in block}
            voltages |= {name: _by_sample(_number(network, values)) for name, values in seen.items()}
        for neurons in membranes:
            if found is not None and neurons.peak is not None:
                before = found.get(neurons.unit.name, 0.0)
                found[neurons.unit.name] = np.maximum(before, neurons.peak.numpy())
        _forget(network, block[-1].name, sent)
    if fires(network.output.neuron):
        outputs = sent[network.output.name].values.sum(dim=0)
    else:
        outputs = _number(network, membranes[-1].voltage)
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs.numpy())


def _blocks(network: AnyNetwork, units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
    """Units that run together: one alone, or from where a loop begins to where it ends."""
    place = {unit.name: index for index, unit in enumerate(units)}
    begun, end = 0, 0
    for index, unit in enumerate(units):
        end = max([end, index, *(place.get(c.connection.source, 0) for c in unit.currents)])
        if end == index:
            yield list(units[begun : index + 1])
            begun = index + 1


def _run_block(
    block: list[_Unit],
    membranes: list[_Membranes],
    sent: dict[str, _Sent],
    timesteps: int,
    keep_voltages: bool,
) -> dict[str, Tensor]:
    """Run some units over all time steps; what they send is added to `sent`, their voltages are returned."""
    for neurons in membranes:
        kept = _zeros((timesteps, *neurons.voltage.shape), torch.bool)
        sent[neurons.unit.name] = _Sent(values=kept, still=False)
    currents = [current for unit in block for current in unit.currents]
    # What a picture that stands still sends is computed once for all time steps.
    once = {c: c(sent[c.connection.source].values) for c in currents if sent[c.connection.source].still}
    seen: dict[str, list[Tensor]] = {unit.name: [] for unit in block}
    for step in range(timesteps):
        for neurons in membranes:
            unit = neurons.unit
            sent[unit.name].values[step] = neurons.step(_gather(unit, sent, step, once))
            if keep_voltages:
                seen[unit.name].append(neurons.voltage.clone())
    return {name: torch.stack(steps) for name, steps in seen.items() if steps}


def _gather(unit: _Unit, sent: Mapping[str, _Sent], step: int, once: Mapping[_Current, Tensor]) -> Tensor:
    """The sum of all synapses into a population in one step, in units of its state."""
    total: Tensor | None = None
    for current in unit.currents:
        connection = current.connection
        if step < connection.delay:
            continue
        arriving = once.get(current)
        if arriving is None:
            arriving = current(sent[connection.source].at(step - connection.delay))
        arriving = arriving.to(unit.state_type).view(-1, *unit.shape)
        total = arriving if total is None else total + arriving
    return torch.zeros(1, *unit.shape, dtype=unit.state_type) if total is None else total


def _zeros(size: Shape, kind: torch.dtype) -> Tensor:
    """Zeros [..., channels, height, width], the channels of a pixel side by side: convolutions like that."""
    if len(size) < 4:
        return torch.zeros(size, dtype=kind)
    *others, channels, height, width = size
    return torch.zeros(*others, height, width, channels, dtype=kind).movedim(-1, -3)


def _forget(network: AnyNetwork, done: str, sent: dict[str, _Sent]) -> None:
    """Drop what no population to come will read."""
    names = [population.name for population in network.populations]
    later = set(names[names.index(done) + 1 :])
    read = {c.source for c in network.connections if c.target in later} | {names[-1]}
    for name in set(sent) - read:
        del sent[name]


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
    """Only the pixels that the neurons of its window read are convolved; zeros are put around the result."""
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


# ---- traces -----------------------------------------------------------------------------------


def _number(network: AnyNetwork, values: Tensor) -> Tensor:
    """Integers leave as int64, as the reference gives them."""
    return values.to(torch.int64) if isinstance(network, IntNetwork) else values


def _by_sample(values: Tensor) -> Array:
    """[timesteps, samples, ...] as [samples, timesteps, ...]"""
    return values.transpose(0, 1).numpy()


def _join(traces: list[Trace]) -> Trace:
    names = traces[0].spikes
    return Trace(
        spikes={name: np.concatenate([trace.spikes[name] for trace in traces]) for name in names},
        voltages={name: np.concatenate([trace.voltages[name] for trace in traces]) for name in names},
        outputs=np.concatenate([trace.outputs for trace in traces]),
    )


# ---- as an executor ---------------------------------------------------------------------------


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """As `emulate`."""
    return emulate(network, inputs, keep_trace=options.keep_trace, watch=options.watch)
