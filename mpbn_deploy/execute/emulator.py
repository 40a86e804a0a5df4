"""The fast simulator, in torch: runs whole batches and gives the integers of the reference bit by bit.

Populations run one after the other, each over all its time steps. The spikes of a population are kept until
all its targets have run, so memory stays small. Only populations in a loop (a recurrent connection) run
together, step by step. A population runs on as many samples at once as keep its currents and states in the
processor's cache: products and updates are twice as fast there.

`layers` prepares the populations, and says why floats are exact; `membranes` updates the states of neurons.
Convolutions must be plain sums of products, so torch's NNPACK, which transforms them, is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
import torch
from torch import Tensor

from ..base import Array, Progress, no_progress, record
from ..ir import (
    AnyNetwork,
    IntNetwork,
    Modulator,
    Shape,
    Trace,
    as_steps,
    check_input_values,
    counting,
    shift_rules,
    wrapped,
)
from .layers import Current, Layer, apply_weight as apply_weight, prepared, truncated_decay as truncated_decay
from .membranes import Membranes, Modulations, NarrowMembranes, States, channels_last, emulate_shifts
from .reference import ExecutionOptions, join_traces, outputs_of, simulate

CHUNK = 128  # samples computed at once, to bound memory
MOST_SPIKES = 2**20  # of more samples at once
MOST_STATES = 2**19  # of a population, or of those in a loop, at once: 2 MB of float32
RESPONSE_CHUNK = 32  # the same in `respond`


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
        self.shifts = shift_rules(network)
        self.counts = any(counting(p.neuron) is not None for p in network.layers)
        if self.counts:
            return
        with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
            self.layers = [prepared(network, population) for population in network.layers]
            self.settled = {layer.name: _settled(network, layer) for layer in self.layers}

    def run(self, inputs: Array, *, keep_trace: bool = True, progress: Progress = no_progress) -> Trace:
        """Run the network; arguments as for `emulate`."""
        network = self.network
        as_steps(np.asarray(inputs)[:1], network.input.shape, network.timesteps)
        check_input_values(network, np.asarray(inputs), fractions=not isinstance(network, IntNetwork))
        size = _chunk(network)
        starts = range(0, len(inputs), size)
        if self.counts:
            parts = (inputs[start : start + size] for start in progress(starts))
            return join_traces([self._run_counts(part, keep_trace) for part in parts])
        with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
            parts = (inputs[start : start + size] for start in progress(starts))
            traces = [_run(network, self.layers, part, keep_trace, self.settled) for part in parts]
        return join_traces(traces)

    def _run_counts(self, inputs: Array, keep_trace: bool) -> Trace:
        """Run neurons that fire several times in a step; those of real numbers as the reference does."""
        if self.shifts is not None and isinstance(self.network, IntNetwork):
            return emulate_shifts(self.network, self.shifts, inputs, keep_trace=keep_trace)
        trace = simulate(self.network, inputs)
        return trace if keep_trace else replace(trace, spikes={}, voltages={})


def _chunk(network: AnyNetwork) -> int:
    """Return how many samples to compute at once: more in small networks, whose steps are short."""
    spikes = network.timesteps * sum(population.size for population in network.populations)
    return max(CHUNK, MOST_SPIKES // spikes)


def respond(network: AnyNetwork, name: str, sent: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return spikes [samples, timesteps, *shape] and last voltages [samples, *shape] of one population.

    `sent` holds the spikes of its sources: [samples, timesteps, *shape], or [samples, *shape] if constant in
    time. Real numbers are computed in float32, because calibration tolerates a few different spikes.
    """
    layer = prepared(network, network.layer(name), torch.float32)
    spikes, voltages = [], []
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        for start in range(0, min(len(sent[source]) for source in layer.sources), RESPONSE_CHUNK):
            part = slice(start, start + RESPONSE_CHUNK)
            known = {source: _sent(sent[source][part], network.shapes[source]) for source in layer.sources}
            samples = next(iter(known.values())).samples
            recorded = _recording(layer, samples, network.timesteps, 1, layer.state_type)
            _run_block([layer], [recorded], known, slice(0, samples))
            spikes.append(_by_sample(recorded.spikes, samples))
            voltages.append(recorded.voltages[-1].numpy())
    return np.concatenate(spikes), np.concatenate(voltages)


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


def peaks(network: AnyNetwork, inputs: Array) -> dict[str, Array]:
    """Return the largest magnitude of current or voltage of each channel on `inputs`."""
    found: dict[str, Array] = {}
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        layers = [prepared(network, population, watched=True) for population in network.layers]
        for start in range(0, len(inputs), CHUNK):
            _run(network, layers, inputs[start : start + CHUNK], keep_trace=False, found=found)
    return found


@record
class _Recording:
    """What a population did, [timesteps, samples, *shape]; voltages of the last steps, none or more."""

    spikes: Tensor
    voltages: Tensor


def _recording(layer: Layer, samples: int, timesteps: int, kept: int, kind: torch.dtype) -> _Recording:
    """Return an empty recording, with the voltages of the `kept` last time steps."""
    sent = torch.int64 if layer.graded else torch.bool
    return _Recording(
        spikes=channels_last((timesteps, samples, *layer.shape), sent),
        voltages=channels_last((kept, samples, *layer.shape), kind),
    )


Settled = Mapping[str, _Recording | None]  # by population: what one sample did, if all samples are alike
NOT_SETTLED: Settled = {}


def _run(
    network: AnyNetwork,
    layers: Sequence[Layer],
    inputs: Array,
    keep_trace: bool,
    settled: Settled = NOT_SETTLED,
    found: dict[str, Array] | None = None,
) -> Trace:
    """Run one chunk; merge the peaks that were recorded into `found`."""
    sent = {network.input.name: _sent(inputs, network.input.shape)}
    spikes: dict[str, Array] = {}
    voltages: dict[str, Array] = {}
    overflows: dict[str, Array] = {}
    for block in _blocks(layers):
        alike = settled.get(block[0].name) if len(block) == 1 else None
        recordings = [alike or _new_recording(network, layer, len(inputs), keep_trace) for layer in block]
        for part in parts(block, len(inputs) if alike is None else 0, network.timesteps):
            for neurons in _run_block(block, recordings, sent, part):
                name, largest = neurons.layer.name, neurons.peaks()
                if neurons.overflows.any():
                    overflows[name] = overflows.get(name, 0) + neurons.overflows
                if found is not None and largest is not None:
                    found[name] = np.maximum(found.get(name, 0.0), largest)
        for layer, recorded in zip(block, recordings, strict=True):
            sent[layer.name] = _Sent(values=recorded.spikes, constant=False)
            if keep_trace:
                spikes[layer.name] = _by_sample(recorded.spikes, len(inputs))
                voltages[layer.name] = _by_sample(recorded.voltages, len(inputs))
        for name in set(sent) - network.sources_after(block[-1].name) - {network.output.name}:
            del sent[name]
    last, output = network.output.name, recordings[-1]  # the output ends the last block
    fired, charged = (_by_sample(each, len(inputs)) for each in (output.spikes, output.voltages))
    outputs = outputs_of(network, {last: fired}, {last: charged})
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs, overflows=overflows)


def _new_recording(network: AnyNetwork, layer: Layer, samples: int, keep_trace: bool) -> _Recording:
    """Return an empty recording; the states of an integer network are int64, like the reference's."""
    kept = network.timesteps if keep_trace else int(layer.name == network.output.name)
    kind = torch.int64 if layer.integers else layer.state_type
    return _recording(layer, samples, network.timesteps, kept, kind)


def _settled(network: AnyNetwork, layer: Layer) -> _Recording | None:
    """Run a population that nothing reaches on one sample, which stands for all; None for others."""
    if layer.narrows or layer.is_reached:
        return None
    recorded = _new_recording(network, layer, 1, keep_trace=True)
    _run_block([replace(layer, currents=())], [recorded], {}, slice(0, 1))
    return recorded


def _blocks(layers: Sequence[Layer]) -> Iterator[list[Layer]]:
    """Yield the populations that run together: a single one, or all from the start to the end of a loop."""
    place = {layer.name: index for index, layer in enumerate(layers)}
    begun, end = 0, 0
    for index, layer in enumerate(layers):
        end = max([end, index, *(place.get(c.connection.source, 0) for c in layer.currents)])
        if end == index:
            yield list(layers[begun : index + 1])
            begun = index + 1


def parts(block: Sequence[Layer], samples: int, timesteps: int) -> Iterator[slice]:
    """Divide samples into parts whose currents, in all time steps, are few enough for the cache."""
    states = sum(prod(layer.shape) for layer in block)
    size = max(1, MOST_STATES // (timesteps * states))
    return (slice(start, min(start + size, samples)) for start in range(0, samples, size))


def _run_block(
    block: Sequence[Layer], recordings: Sequence[_Recording], known: Mapping[str, _Sent], part: slice
) -> list[States]:
    """Run populations over all time steps on a part of a chunk; record their spikes and voltages."""
    sources = {source for layer in block for source in layer.sources}
    before = {source: known[source].part(part) for source in sources if source in known}
    inside = {
        layer.name: _Sent(values=recorded.spikes[:, part], constant=False)
        for layer, recorded in zip(block, recordings, strict=True)
    }
    states = [_states(layer, inside[layer.name].samples) for layer in block]
    timesteps = len(recordings[0].spikes)
    arrivals = [_Arrivals(layer, before, inside, timesteps) for layer in block]
    voltages = [[None] * (timesteps - len(each.voltages)) + [*each.voltages[:, part]] for each in recordings]
    for step in range(timesteps):
        for neurons, arriving, sent, charged in zip(states, arrivals, inside.values(), voltages, strict=True):
            moduli = neurons.layer.moduli
            exact = arriving.at(step) if moduli else None
            sent.values[step].copy_(neurons.step(step, arriving.at(step, moduli), exact))
            if charged[step] is not None:
                charged[step].copy_(neurons.voltage)
    return states


def _states(layer: Layer, samples: int) -> States:
    if isinstance(layer.rule, Modulator):
        return Modulations(layer, samples)
    return NarrowMembranes(layer, samples) if layer.narrows else Membranes(layer, samples)


NO_MODULI: Mapping[Current, float] = {}


class _Arrivals:
    """The sums of currents into a population, in units of its state, [samples, *shape] for each time step.

    They are computed ahead where all that a source sends is known before the first step: one product for all
    steps is faster. Sums of real numbers depend on their order and on how many are computed together, so of
    those only the currents of sources that are constant in time are.
    """

    def __init__(
        self, layer: Layer, before: Mapping[str, _Sent], inside: Mapping[str, _Sent], timesteps: int
    ) -> None:
        self.layer, self.sent = layer, {**before, **inside}
        self.total: Tensor | None = None  # of integers, [timesteps or 1, samples, *shape]
        self.constant: dict[Current, Tensor] = {}
        self.others: list[Current] = []
        for current in layer.currents:
            if current.connection.delay >= timesteps:  # arrives after the last step
                continue
            source = before.get(current.connection.source)
            if source is not None and layer.integers and not layer.moduli:
                self._add(_ahead(current, source, timesteps))
                continue
            self.others.append(current)
            if source is not None and source.constant:
                self.constant[current] = current.product(source.values)

    def _add(self, currents: Tensor) -> None:
        if self.total is None:
            self.total = currents
        elif self.total.shape == currents.shape:
            self.total.add_(currents)
        else:
            self.total = self.total + currents

    def at(self, step: int, moduli: Mapping[Current, float] = NO_MODULI) -> Tensor:
        """Return the sums in one step; currents with a modulus wrap."""
        total = None if self.total is None else self.total[step % self.total.shape[0]]
        for current in self.others:
            connection = current.connection
            if step < connection.delay:
                continue
            arriving = self.constant.get(current)
            if arriving is None:
                arriving = current.product(self.sent[connection.source].at(step - connection.delay))
            if current in moduli:
                arriving = torch.from_numpy(wrapped(arriving.numpy(), moduli[current]))
            total = arriving if total is None else total + arriving
        layer = self.layer
        return torch.zeros(1, *layer.shape, dtype=layer.state_type) if total is None else total


def _ahead(current: Current, source: _Sent, timesteps: int) -> Tensor:
    """Return the currents of all time steps, [timesteps, samples, *shape]; [1, ...] if they are constant."""
    delay, values = current.connection.delay, source.values
    if source.constant:
        currents = current.product(values)[None]
    else:
        values = values[: timesteps - delay]
        product = current.product(_merged(values))
        currents = product.view(*values.shape[:2], *product.shape[1:])
    if not delay:
        return currents
    late = channels_last((timesteps, *currents.shape[1:]), currents.dtype)
    late[:delay], late[delay:] = 0, currents
    return late


def _merged(values: Tensor) -> Tensor:
    """[timesteps, samples, *shape] as [timesteps * samples, *shape], with channels last in memory"""
    if values.dim() < 5:
        return values.flatten(0, 1)
    return values.movedim(-3, -1).flatten(0, 1).movedim(-1, 1)


def _by_sample(values: Tensor, samples: int) -> Array:
    """[timesteps, samples, ...] as [samples, timesteps, ...]; one sample may stand for all"""
    return values.expand(-1, samples, *values.shape[2:]).transpose(0, 1).numpy()


# ---- as an executor ---------------------------------------------------------------------------


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """Emulate a network."""
    return emulate(network, inputs, keep_trace=options.keep_trace, progress=options.progress)


@contextmanager
def opened(
    network: IntNetwork, samples: int, options: ExecutionOptions
) -> Iterator[Callable[[Array], Trace]]:
    """Prepare the network once."""
    yield partial(Emulator(network).run, keep_trace=options.keep_trace, progress=options.progress)
