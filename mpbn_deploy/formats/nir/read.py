"""Nodes and edges of a NIR file -> FoldedNetwork.

Linear nodes between neurons are composed into as few synapses as possible, usually one, and their biases
into one constant. As in nirtorch, an edge that closes a loop takes one time step unless the loop has a Delay
node; which edge closes the loop must be unambiguous (see `loops`). Resets, and the order of a CubaLIF's
update, are those of `conventions`; those that nobody stated are returned as assumptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...base import Array, FormatError, NetworkError, announce, record
from ...ir import (
    Affine,
    Algebra,
    Connection,
    FloatFiringNeuron,
    FloatLif,
    FloatNeuron,
    FloatReadout,
    FoldedNetwork,
    Input,
    IntNetwork,
    Population,
    Shape,
    Value,
    compact,
    constant_source,
    fires,
    has_current,
    picture_shape,
    soft_reset,
    xylo_reset,
)
from ..options import NirCurrent, NirReset
from .file import AmbiguousLoopError, NirFile, Node, closing_edges, neighbours, read_file
from .linear import LINEAR, linear, without_constants
from .metadata import (
    PORTABLE,
    PORTABLE_THRESHOLD,
    Metadata,
    as_integers,
    as_written,
    connection_key,
    read_metadata,
    safe,
    spread,
    with_steps,
)
from .neurons import (
    AFTER,
    CUBA,
    INTEGRATING,
    SPIKING,
    Assumption,
    Conventions,
    Timing,
    conventions,
    integrator,
    parameter_shape,
    spiking_neuron,
)

KNOWN = LINEAR | SPIKING | INTEGRATING
MOST_VALUES = 2**27  # total over all nodes


@record
class NirNetwork:
    """A network read from a file, with what was assumed and what was changed in order to read it."""

    path: Path
    network: FoldedNetwork | IntNetwork
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def folded(self) -> FoldedNetwork:
        """The network of real numbers; raise if the file has an integer network."""
        if isinstance(self.network, IntNetwork):
            raise FormatError(
                f"{self.path}: an integer network, already quantized; a network of real numbers is needed."
            )
        return self.network

    def announced(self) -> NirNetwork:
        """Print assumptions and notes on standard error."""
        for text in (*self.assumptions, *self.notes):
            announce(f"note: {text}")
        return self


def read_nir(path: str | Path, **given: Any) -> FoldedNetwork | IntNetwork:
    """Read a network as `open_nir` does; assumptions are printed on standard error."""
    return open_nir(path, **given).announced().network


def read_folded(path: str | Path, **given: Any) -> FoldedNetwork:
    """Read a network of real numbers, as `read_nir` does; raise if the file has an integer network."""
    return open_nir(path, **given).announced().folded


def open_nir(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    dt: float | None = None,
    reset: NirReset = "auto",
    current: NirCurrent = "auto",
    input_shape: Shape | None = None,
) -> NirNetwork:
    """Read a network; arguments supply or override what the metadata of the file has.

    Files of other writers lack time steps, input range, dt and conventions: give them. Without them, the
    input range is 0..1 (spikes), dt is 1e-4 seconds, which most writers use, and `reset` and `current` are
    assumed as `conventions` describes. `input_shape` replaces the shape of the Input node.
    """
    path = Path(path)
    file = read_file(path, KNOWN)
    metadata = read_metadata(path, file.metadata)
    timesteps = metadata.timesteps if timesteps is None else timesteps
    if timesteps is None or timesteps < 1:
        found = "unknown" if timesteps is None else timesteps
        raise FormatError(f"{path}: time steps {found}; give --timesteps above zero.")
    if dt is not None and not 0 < dt < np.inf:
        raise FormatError(f"{path}: dt {dt}; seconds above zero are needed.")
    lowest, highest = input_range or metadata.input_range or (0, 1)
    if lowest > highest:
        raise FormatError(f"{path}: input range {lowest}..{highest} is empty; give the lowest value first.")
    before, after = neighbours(file.edges)
    chosen = conventions(file, metadata, dt or metadata.dt, reset, current)
    reading = _Reading(
        file=file,
        before=before,
        after=after,
        metadata=metadata,
        names={safe(name): name for name in (*metadata.populations, *metadata.constants)},
        timing=Timing(
            dt=dt or metadata.dt,
            leaks={safe(name): leaks for name, leaks in metadata.leaks.items()},
            float32=chosen.writer == "snnTorch",
        ),
        conventions=chosen,
        timesteps=timesteps,
        source=Input(
            minimum=lowest,
            maximum=highest,
            divisor=1 if input_range else metadata.input_step,
            offset=0 if input_range else metadata.input_offset,
        ),
    )
    try:
        shape, notes = reading.input_shape(input_shape)
        network = reading.network(shape)
        return NirNetwork(
            path=path,
            network=network if metadata.integers is None else as_integers(path, network, metadata.integers),
            assumptions=chosen.assumptions,
            notes=(*notes, *chosen.notes),
        )
    except NetworkError as error:
        raise FormatError(f"{path}: {error}") from error


@record
class _Reading:
    """A file being read, with its metadata and the properties given by the caller."""

    file: NirFile
    before: Mapping[str, list[str]]
    after: Mapping[str, list[str]]
    metadata: Metadata
    names: Mapping[str, str]
    timing: Timing
    conventions: Conventions
    timesteps: int
    source: Input

    def input_shape(self, given: Shape | None) -> tuple[Shape, tuple[str, ...]]:
        """Return the shape of one sample in one step, and a note if the file counts a batch axis."""
        node = self.file.input
        stated = node.whole("shape")
        if given is not None:
            if not 1 <= len(given) <= 3 or min(given) < 1:
                node.reject(f"--input-shape {list(given)}; one to three sizes above zero are needed")
            return node.bounded("shape", tuple(given)), ()
        inner = stated[1:]
        sizes = 1 < len(stated) <= 4 and min(stated) > 0
        if not sizes or (len(stated) < 4 and not self._is_batch_of(inner)):
            return node.shape("shape"), ()
        note = (
            f"the Input node {node.name!r} has shape {list(stated)}; its first axis is taken for a batch "
            f"axis and left out. Samples have shape {list(inner)}. If this is wrong, give --input-shape"
        )
        return inner, (note,)

    def _is_batch_of(self, inner: Shape) -> bool:
        """Whether the graph takes samples of this shape, and not a batch of them."""
        following = [self.file.nodes[name] for name in self.after.get(self.file.input.name, ())]
        if len(inner) == 1 and any(node.kind in ("Affine", "Linear") for node in following):
            return self._takes(inner)
        return not self._takes(self.file.input.whole("shape")) and self._takes(inner)

    def _takes(self, shape: Shape) -> bool:
        try:
            self._shapes(shape)
        except FormatError:
            return False
        return True

    def network(self, shape: Shape) -> FoldedNetwork:
        shapes, maps = self._shapes(shape)
        algebra = Algebra(shapes={self.named(name): picture_shape(shape) for name, shape in shapes.items()})
        values = self._values(shapes, maps, algebra)
        return _Building(self, shapes, values, algebra).network()

    def named(self, node: str) -> str:
        return self.names.get(node, node)

    def arriving(
        self, node: Node, shapes: Mapping[str, Shape], values: Mapping[str, Value], algebra: Algebra
    ) -> Value:
        """Return the sum of the values that enter a node."""
        first, *others = self.before[node.name]
        for other in others:
            if prod(shapes[first]) != prod(shapes[other]):
                node.reject(
                    f"edges to it bring shapes {shapes[first]} and {shapes[other]}, which do not add up"
                )
        with _named(node):
            return reduce(algebra.sum, (values[source] for source in self.before[node.name]))

    def _shapes(self, shape: Shape) -> tuple[dict[str, Shape], dict[str, Affine]]:
        """Return the shape of each node's result, given the input's, and the maps of linear nodes."""
        nodes, first = self.file.nodes, self.file.input
        if first.name in self.before:
            first.reject("is the input, but an edge leads to it")
        shapes, maps = {first.name: shape}, dict[str, Affine]()
        queue, total = deque([first.name]), 0
        while queue:
            source = queue.popleft()
            total += prod(shapes[source])
            if total > MOST_VALUES:
                nodes[source].reject(f"nodes up to this one have more than {MOST_VALUES} values in total")
            for node in (nodes[name] for name in self.after.get(source, ()) if name not in shapes):
                if node.kind in LINEAR:
                    shapes[node.name], maps[node.name] = linear(node, shapes[source], self.timing.step)
                else:
                    shapes[node.name] = parameter_shape(node) or shapes[source]
                queue.append(node.name)
        if unreached := sorted(set(nodes) - set(shapes)):
            raise FormatError(f"{self.file.path}: node {unreached[0]!r}: nothing leads to it from the input.")
        return shapes, maps

    def _values(
        self, shapes: Mapping[str, Shape], maps: Mapping[str, Affine], algebra: Algebra
    ) -> dict[str, Value]:
        """Return the value of each node: the spikes of neurons, and the results of linear nodes."""
        sources = {name: self.before[name] if name in maps else [] for name in self.file.nodes}
        try:
            order = list(TopologicalSorter(sources).static_order())
        except CycleError as error:
            loop = " -> ".join(error.args[1])
            raise FormatError(f"{self.file.path}: a loop without a neuron in it: {loop}.") from error
        values: dict[str, Value] = {}
        for name in order:
            if name in maps:
                node = self.file.nodes[name]
                arriving = self.arriving(node, shapes, values, algebra)
                with _named(node):
                    values[name] = algebra.through(maps[name], arriving)
            else:
                values[name] = algebra.sent(self.named(name))
        return values


@contextmanager
def _named(node: Node) -> Iterator[None]:
    """Add the name of a node to errors of the algebra of values, which does not know it."""
    try:
        yield
    except NetworkError as error:
        node.reject(error.problems[0])


class _Building:
    """Builds the network: its populations and connections so far."""

    def __init__(
        self, reading: _Reading, shapes: Mapping[str, Shape], values: Mapping[str, Value], algebra: Algebra
    ) -> None:
        self.reading = reading
        self.shapes = shapes
        self.values = values
        self.algebra = algebra
        self.populations: dict[str, Population[Input | FloatNeuron]] = {}
        self.connections: list[Connection] = []
        self.previous: set[str] = set()  # populations that integrate the current of the step before

    def network(self) -> FoldedNetwork:
        nodes, first = self.reading.file.nodes, self.reading.file.input
        self._add(first.name, self.reading.source)
        for node in nodes.values():
            if node.kind in SPIKING:
                self._add_lif(node)
        last = self._add_output()
        self._delay_loops(self.reading.named(first.name))
        self._delay_currents()
        populations = self._ordered(self.reading.named(first.name), last)
        network = FoldedNetwork(
            populations=populations,
            connections=self._listed(populations),
            timesteps=self.reading.timesteps,
        )
        return with_steps(self.reading.file.path, self._without_constants(network), self.reading.metadata)

    def _add(self, node: str, neuron: Input | FloatNeuron) -> None:
        name, shape = self.reading.named(node), picture_shape(self.shapes[node])
        self.populations[name] = Population(name=name, shape=shape, neuron=neuron)

    def _add_lif(self, node: Node) -> None:
        shape = picture_shape(self.shapes[node.name])
        arriving = self._arriving(node)
        neuron = spiking_neuron(node, shape, self.reading.timing)
        constant, threshold = arriving.constant, compact(neuron.threshold)
        name, builds_up = self.reading.named(node.name), has_current(neuron)
        bias = neuron.bias if constant is None or builds_up else neuron.bias + constant
        neuron = replace(neuron, threshold=threshold, bias=compact(bias))
        self._add(node.name, self._with_reset(node, self._with_metadata(name, neuron, shape)))
        self._connect(node, arriving, name)
        if builds_up and constant is not None:
            self._add_constant_source(name, constant)

    def _with_metadata(self, name: str, neuron: FloatLif, shape: Shape) -> FloatLif:
        """Restore the properties of a neuron that only our metadata has exactly."""
        metadata = self.reading.metadata
        if metadata.dialect == PORTABLE:
            neuron = replace(neuron, threshold=np.full_like(neuron.threshold, PORTABLE_THRESHOLD))
        if name in metadata.per_neuron:
            threshold, bias = metadata.per_neuron[name]
            neuron = replace(
                neuron,
                threshold=spread(neuron.threshold, shape, threshold),
                bias=spread(neuron.bias, shape, bias),
            )
        return neuron

    def _with_reset(self, node: Node, neuron: FloatLif) -> FloatFiringNeuron:
        """Return the neuron with the reset of the file: leak v - threshold = leak (v - threshold / leak)"""
        reset, listed = self.reading.conventions.reset, self.reading.metadata.subtrahends
        if (most := self.reading.metadata.counts.get(self.reading.named(node.name))) is not None:
            return xylo_reset(neuron, most)
        if (subtrahend := listed.get(self.reading.named(node.name))) is not None:
            return soft_reset(neuron, subtrahend)
        if reset == "zero" or node.kind == "Threshold":
            return neuron
        if "v_reset" in node.tree and np.any(node.numbers("v_reset")):
            node.fail("v_reset", "is not zero, so spikes reset to it and do not subtract; drop --nir-reset")
        if reset != AFTER:
            return soft_reset(neuron, neuron.threshold)
        if not np.all(neuron.leak) or neuron.threshold.min() < 0:
            node.reject(
                "cannot subtract after the leak with a leak of zero or a threshold below zero; give "
                "--nir-reset zero or subtract-before-leak"
            )
        subtrahend = neuron.threshold / neuron.leak
        threshold = np.broadcast_to(neuron.threshold, subtrahend.shape)
        return soft_reset(replace(neuron, threshold=threshold), subtrahend)

    def _arriving(self, node: Node) -> Value:
        """Return the sum of the values that enter a node of neurons, in the shape of the neurons."""
        arriving = self.reading.arriving(node, self.shapes, self.values, self.algebra)
        shape = picture_shape(self.shapes[node.name])
        if prod(arriving.shape) != prod(shape):
            found = self.shapes[self.reading.before[node.name][0]]
            node.reject(f"edges to it bring values of shape {found}; it has {shape}")
        return self.algebra.through(Affine(source=shape, shape=shape), arriving)

    def _add_constant_source(self, target: str, constant: Array) -> None:
        """Express a bias on a leaking current, which accumulates over time steps, as the spikes of a neuron
        that always fires; a bias of the voltage would act at once."""
        name = f"{target}_constant"
        while name in self.populations or name in self.algebra.shapes:
            name += "_"
        driver = Population(
            name=self.reading.named(self.reading.file.input.name),
            shape=picture_shape(self.shapes[self.reading.file.input.name]),
            neuron=self.reading.source,
        )
        self.populations[name], connections = constant_source(name, target, constant, driver)
        self.connections += connections

    def _connect(self, node: Node, arriving: Value, target: str) -> None:
        if node.kind in CUBA and self.reading.conventions.current == "previous":
            self.previous.add(target)
        with _named(node):
            synapses = self.algebra.onto(arriving, self.populations[target].shape)
        self.connections += (
            Connection(source=source, target=target, synapse=synapse, delay=delay)
            for (source, delay), parts in synapses.items()
            for synapse in parts
        )

    # ---- the end ----------------------------------------------------------------------------------

    def _add_output(self) -> str:
        """Add a readout, unless the output is just the spikes of a population; return the last population."""
        reading, node = self.reading, self.reading.file.output
        integrators = [n for n in reading.file.nodes.values() if n.kind in INTEGRATING]
        if integrators:
            before = reading.before[node.name]
            if [n.name for n in integrators] != before:
                integrators[0].reject("integrators are supported only as the one node before the output")
            node = integrators[0]
        arriving = self._arriving(node)
        if not integrators and (fired := self._only_spikes(arriving)):
            return fired
        shape = picture_shape(self.shapes[node.name])
        if not integrators:
            return self._add_readout(node, arriving, np.ones(shape), FloatReadout(bias=np.zeros(shape)))
        return self._add_readout(node, arriving, *integrator(node, shape, reading.timing, reading.timesteps))

    def _only_spikes(self, value: Value) -> str | None:
        """Return the population whose spikes a value equals; None for any other value."""
        sent = value.as_sent()
        if sent is None or sent[1]:
            return None
        return sent[0] if fires(self.populations[sent[0]].neuron) else None

    def _add_readout(self, node: Node, arriving: Value, factor: Array, readout: FloatReadout) -> str:
        shape, name = picture_shape(self.shapes[node.name]), self.reading.named(node.name)
        if (factor != 1).any():
            with _named(node):
                scale = Affine(source=shape, shape=shape, factor=factor)
                arriving = self.algebra.through(scale, arriving)
        constant, builds_up = arriving.constant, has_current(readout)
        bias = readout.bias if constant is None or builds_up else readout.bias + constant
        _, per_neuron = self.reading.metadata.per_neuron.get(name, (False, False))
        bias = spread(bias, shape, True) if per_neuron else compact(bias)
        self._add(node.name, replace(readout, bias=bias))
        self._connect(node, arriving, name)
        if builds_up and constant is not None:
            self._add_constant_source(name, constant)
        return name

    # ---- order ------------------------------------------------------------------------------------

    def _delay_loops(self, first: str) -> None:
        edges = [((c.source, c.target), c.delay) for c in self.connections]
        try:
            closing = closing_edges(
                first, [edge for edge, delay in edges if not delay], [edge for edge, delay in edges if delay]
            )
        except AmbiguousLoopError as error:
            members = ", ".join(error.loop[:8])
            raise FormatError(
                f"{self.reading.file.path}: a loop of {members} is not entered at exactly one node, so it is "
                "ambiguous which of its edges takes a time step; add a Delay node to the loop."
            ) from error
        self.connections = [
            replace(c, delay=1) if not c.delay and (c.source, c.target) in closing else c
            for c in self.connections
        ]

    def _delay_currents(self) -> None:
        """v[t] integrates I[t - 1], which is the current that inputs one step late would give."""
        self.connections = [
            replace(c, delay=c.delay + 1) if c.target in self.previous else c for c in self.connections
        ]

    def _ordered(self, first: str, last: str) -> tuple[Population[Input | FloatNeuron], ...]:
        metadata = self.reading.metadata
        if {*metadata.populations, *metadata.constants} == set(self.populations):
            order = [*metadata.populations[:1], *sorted(metadata.constants), *metadata.populations[1:]]
            return tuple(self.populations[name] for name in order)
        sources: dict[str, list[str]] = {
            name: [c.source for c in self.connections if c.target == name and not c.delay]
            for name in self.populations
        }
        order = [name for name in TopologicalSorter(sources).static_order() if name not in (first, last)]
        return tuple(self.populations[name] for name in (first, *order, last))

    def _without_constants(self, network: FoldedNetwork) -> FoldedNetwork:
        """Turn the populations that our metadata lists as constants back into biases."""
        names = self.reading.metadata.constants
        for name in names:
            if name not in self.populations or self.populations[name].shape != (1, 1, 1):
                raise FormatError(
                    f"{self.reading.file.path}: node {safe(name)!r}: the metadata lists it as a neuron that "
                    "replaces a bias, but there is no such neuron."
                )
        return without_constants(network, names, self.reading.metadata.per_neuron) if names else network

    def _listed(self, populations: Sequence[Population[Any]]) -> tuple[Connection, ...]:
        """Return the connections in the order of our metadata, all others by their targets."""
        place = {entry: index for index, entry in enumerate(self.reading.metadata.connections)}
        target = {population.name: index for index, population in enumerate(populations)}

        def key(connection: Connection) -> tuple[int, int]:
            return place.get(connection_key(connection), len(place)), target[connection.target]

        return tuple(as_written(c, self.reading.metadata) for c in sorted(self.connections, key=key))
