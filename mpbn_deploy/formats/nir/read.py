"""Nodes and edges of a NIR file -> FoldedNetwork.

Linear nodes between neurons are composed into as few synapses as can be (`compose`), mostly one, and
their biases into one constant. An edge that closes a loop takes one time step, as nirtorch has it,
unless a Delay node says how many; which edge that is must be clear (`loops`).
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

from ...base import Array, FormatError, NetworkError, record
from ...ir import (
    Affine,
    Algebra,
    Connection,
    Dense,
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
    fires,
    incoming,
)
from .constants import always_fires, without_constants
from .file import NirFile, Node, read_file
from .kernels import as_written
from .linear import LINEAR, linear, picture
from .loops import AmbiguousLoopError, closing_edges
from .metadata import PORTABLE, PORTABLE_THRESHOLD, Told, as_integers, hop, read_told, safe, spread
from .neurons import INTEGRATING, SPIKING, Given, Integrator, integrating, lif, parameter_shape, spiking

KNOWN = LINEAR | SPIKING | INTEGRATING
MOST_VALUES = 2**27  # of all nodes together


def read_network(
    path: Path, *, timesteps: int | None, input_range: tuple[int, int] | None, dt: float | None
) -> FoldedNetwork | IntNetwork:
    """The network of a file; what the file does not say must be given."""
    file = read_file(path, KNOWN)
    told = read_told(path, file.metadata)
    timesteps = told.timesteps if timesteps is None else timesteps
    if timesteps is None or timesteps < 1:
        found = "unknown" if timesteps is None else timesteps
        raise FormatError(f"{path}: time steps {found}; the file does not say how many: give --timesteps.")
    if dt is not None and not 0 < dt < np.inf:
        raise FormatError(f"{path}: dt {dt}; seconds above zero are needed.")
    lowest, highest = input_range or told.input_range or (0, 1)
    if lowest > highest:
        raise FormatError(f"{path}: input range {lowest}..{highest} is empty; say the lowest value first.")
    reading = _Reading(
        file=file,
        before=file.before(),
        told=told,
        names={safe(name): name for name in (*told.populations, *told.constants)},
        given=Given(dt=dt or told.dt, leaks={safe(name): leaks for name, leaks in told.leaks.items()}),
        timesteps=timesteps,
        source=Input(minimum=lowest, maximum=highest),
    )
    try:
        network = reading.network()
        return network if told.integers is None else as_integers(path, network, told.integers)
    except NetworkError as error:
        raise FormatError(f"{path}: {error}") from error


@record
class _Reading:
    """A file being read."""

    file: NirFile
    before: Mapping[str, list[str]]
    told: Told
    names: Mapping[str, str]
    given: Given
    timesteps: int
    source: Input

    def network(self) -> FoldedNetwork:
        shapes, steps = self._shapes()
        algebra = Algebra(shapes={self.named(name): picture(shape) for name, shape in shapes.items()})
        values = self._values(shapes, steps, algebra)
        return _Building(self, shapes, values, algebra).network()

    def named(self, node: str) -> str:
        return self.names.get(node, node)

    def arriving(
        self, node: Node, shapes: Mapping[str, Shape], values: Mapping[str, Value], algebra: Algebra
    ) -> Value:
        """The sum of all that leads to a node."""
        first, *others = self.before[node.name]
        for other in others:
            if prod(shapes[first]) != prod(shapes[other]):
                node.refuse(
                    f"edges to it bring shapes {shapes[first]} and {shapes[other]}, which do not add up"
                )
        with _named(node):
            return reduce(algebra.sum, (values[source] for source in self.before[node.name]))

    def _shapes(self) -> tuple[dict[str, Shape], dict[str, Affine]]:
        """The shape of what each node gives, from the input on; and what linear nodes do."""
        nodes, first, after = self.file.nodes, self.file.input, self.file.after()
        if first.name in self.before:
            first.refuse("an edge leads to it, although it is the input")
        shapes, steps = {first.name: first.shape("shape")}, dict[str, Affine]()
        queue, total = deque([first.name]), 0
        while queue:
            source = queue.popleft()
            total += prod(shapes[source])
            if total > MOST_VALUES:
                nodes[source].refuse(f"with it, nodes give more than {MOST_VALUES} values in all")
            for node in (nodes[name] for name in after.get(source, ()) if name not in shapes):
                if node.kind in LINEAR:
                    shapes[node.name], steps[node.name] = linear(node, shapes[source], self.given.step)
                else:
                    shapes[node.name] = parameter_shape(node) or shapes[source]
                queue.append(node.name)
        if unreached := sorted(set(nodes) - set(shapes)):
            raise FormatError(f"{self.file.path}: node {unreached[0]!r}: nothing leads to it from the input.")
        return shapes, steps

    def _values(
        self, shapes: Mapping[str, Shape], steps: Mapping[str, Affine], algebra: Algebra
    ) -> dict[str, Value]:
        """What each node gives: neurons their spikes, linear nodes what they make of others."""
        sources = {name: self.before[name] if name in steps else [] for name in self.file.nodes}
        try:
            order = list(TopologicalSorter(sources).static_order())
        except CycleError as error:
            loop = " -> ".join(error.args[1])
            raise FormatError(f"{self.file.path}: a loop without a neuron in it: {loop}.") from error
        values: dict[str, Value] = {}
        for name in order:
            if name in steps:
                node = self.file.nodes[name]
                arriving = self.arriving(node, shapes, values, algebra)
                with _named(node):
                    values[name] = algebra.through(steps[name], arriving)
            else:
                values[name] = algebra.sent(self.named(name))
        return values


@contextmanager
def _named(node: Node) -> Iterator[None]:
    """The algebra of values knows no names of nodes; its messages get them here."""
    try:
        yield
    except NetworkError as error:
        node.refuse(error.problems[0])


class _Building:
    """The network as far as it is made."""

    def __init__(
        self, reading: _Reading, shapes: Mapping[str, Shape], values: Mapping[str, Value], algebra: Algebra
    ) -> None:
        self.reading = reading
        self.shapes = shapes
        self.values = values
        self.algebra = algebra
        self.populations: dict[str, Population[Input | FloatNeuron]] = {}
        self.connections: list[Connection] = []

    def network(self) -> FoldedNetwork:
        nodes, first = self.reading.file.nodes, self.reading.file.input
        self._add(first.name, self.reading.source)
        for node in nodes.values():
            if node.kind in SPIKING:
                self._add_lif(node)
        last = self._add_output()
        self._delay_loops(self.reading.named(first.name))
        populations = self._ordered(self.reading.named(first.name), last)
        network = FoldedNetwork(
            populations=populations,
            connections=self._listed(populations),
            timesteps=self.reading.timesteps,
        )
        return self._without_constants(network)

    def _add(self, node: str, neuron: Input | FloatNeuron) -> None:
        name, shape = self.reading.named(node), picture(self.shapes[node])
        self.populations[name] = Population(name=name, shape=shape, neuron=neuron)

    def _add_lif(self, node: Node) -> None:
        shape = picture(self.shapes[node.name])
        arriving = self._arriving(node)
        neuron = spiking(node, shape, self.reading.given)
        constant = arriving.constant
        name, builds_up = self.reading.named(node.name), neuron.current_leak > 0
        self._add(node.name, self._as_told(name, lif(neuron, None if builds_up else constant), shape))
        self._connect(node, arriving, name)
        if builds_up and constant is not None:
            self._add_constant_source(name, constant)

    def _as_told(self, name: str, neuron: FloatLif, shape: Shape) -> FloatLif:
        """The neuron as our metadata describes it, where a file cannot say it exactly."""
        told = self.reading.told
        if told.dialect == PORTABLE:
            neuron = replace(neuron, threshold=np.full_like(neuron.threshold, PORTABLE_THRESHOLD))
        if name not in told.per_neuron:
            return neuron
        threshold, bias = told.per_neuron[name]
        return replace(
            neuron,
            threshold=spread(neuron.threshold, shape, threshold),
            bias=spread(neuron.bias, shape, bias),
        )

    def _arriving(self, node: Node) -> Value:
        """The sum of all that leads to a node of neurons, in their shape."""
        arriving = self.reading.arriving(node, self.shapes, self.values, self.algebra)
        shape = picture(self.shapes[node.name])
        if prod(arriving.shape) != prod(shape):
            found = self.shapes[self.reading.before[node.name][0]]
            node.refuse(f"edges to it bring values of shape {found}; it has {shape}")
        return self.algebra.through(Affine(source=shape, shape=shape), arriving)

    def _add_constant_source(self, target: str, constant: Array) -> None:
        """A bias before a current that leaks builds up step by step, as the spikes of one neuron that always
        fires do; a bias of the voltage would be there at once."""
        name = f"{target}_constant"
        while name in self.populations or name in self.algebra.shapes:
            name += "_"
        self.populations[name] = Population(name=name, shape=(1,), neuron=always_fires((1,)))
        first = self.reading.named(self.reading.file.input.name)
        nothing = Dense(weight=np.zeros((1, prod(self.populations[first].shape))))
        self.connections.append(Connection(source=first, target=name, synapse=nothing))
        weights = Dense(weight=constant.reshape(-1, 1))
        self.connections.append(Connection(source=name, target=target, synapse=weights))

    def _connect(self, node: Node, arriving: Value, target: str) -> None:
        with _named(node):
            synapses = self.algebra.onto(arriving, self.populations[target].shape)
        self.connections += (
            Connection(source=source, target=target, synapse=synapse, delay=delay)
            for (source, delay), parts in synapses.items()
            for synapse in parts
        )

    # ---- the end ----------------------------------------------------------------------------------

    def _add_output(self) -> str:
        """Neurons that fire straight into the output are the last population; all else is a readout."""
        reading, node = self.reading, self.reading.file.output
        integrators = [n for n in reading.file.nodes.values() if n.kind in INTEGRATING]
        if integrators:
            before = reading.before[node.name]
            if [n.name for n in integrators] != before:
                integrators[0].refuse("an integrator that is not alone just before the output; not known")
            node = integrators[0]
        arriving = self._arriving(node)
        if not integrators and (fired := self._only_spikes(arriving)):
            return fired
        shape = picture(self.shapes[node.name])
        if not integrators:
            return self._add_readout(node, arriving, Integrator(factor=np.ones(shape), bias=np.zeros(shape)))
        return self._add_readout(node, arriving, integrating(node, shape, reading.given, reading.timesteps))

    def _only_spikes(self, value: Value) -> str | None:
        """The population whose spikes a value is, if it is nothing else."""
        sent = value.as_sent()
        if sent is None or sent[1]:
            return None
        return sent[0] if fires(self.populations[sent[0]].neuron) else None

    def _add_readout(self, node: Node, arriving: Value, rule: Integrator) -> str:
        shape, name = picture(self.shapes[node.name]), self.reading.named(node.name)
        if (rule.factor != 1).any():
            with _named(node):
                scale = Affine(source=shape, shape=shape, factor=rule.factor)
                arriving = self.algebra.through(scale, arriving)
        constant, builds_up = arriving.constant, rule.current_leak > 0
        bias = rule.bias if constant is None or builds_up else rule.bias + constant
        _, per_neuron = self.reading.told.per_neuron.get(name, (False, False))
        bias = spread(bias, shape, True) if per_neuron else compact(bias)
        self._add(node.name, FloatReadout(bias=bias, leak=rule.leak, current_leak=rule.current_leak))
        self._connect(node, arriving, name)
        if builds_up and constant is not None:
            self._add_constant_source(name, constant)
        return name

    # ---- order ------------------------------------------------------------------------------------

    def _delay_loops(self, first: str) -> None:
        hops = [((c.source, c.target), c.delay) for c in self.connections]
        try:
            closing = closing_edges(
                first, [hop for hop, delay in hops if not delay], [hop for hop, delay in hops if delay]
            )
        except AmbiguousLoopError as error:
            members = ", ".join(error.loop[:8])
            raise FormatError(
                f"{self.reading.file.path}: a loop of {members} is not entered at one place, so which of its "
                "edges takes a time step is not said; put a Delay node into it."
            ) from error
        self.connections = [
            replace(c, delay=1) if not c.delay and (c.source, c.target) in closing else c
            for c in self.connections
        ]

    def _ordered(self, first: str, last: str) -> tuple[Population[Input | FloatNeuron], ...]:
        told = self.reading.told
        if {*told.populations, *told.constants} == set(self.populations):
            order = [*told.populations[:1], *sorted(told.constants), *told.populations[1:]]
            return tuple(self.populations[name] for name in order)
        sources: dict[str, list[str]] = {
            name: [c.source for c in incoming(self.connections, name) if not c.delay]
            for name in self.populations
        }
        order = [name for name in TopologicalSorter(sources).static_order() if name not in (first, last)]
        return tuple(self.populations[name] for name in (first, *order, last))

    def _without_constants(self, network: FoldedNetwork) -> FoldedNetwork:
        """Populations that our metadata names as biases are biases again."""
        names = self.reading.told.constants
        for name in names:
            if name not in self.populations or self.populations[name].shape != (1, 1, 1):
                raise FormatError(
                    f"{self.reading.file.path}: node {safe(name)!r}: the metadata says that one neuron there "
                    "stands for a bias, but there is none."
                )
        return without_constants(network, names, self.reading.told.per_neuron) if names else network

    def _listed(self, populations: Sequence[Population[Any]]) -> tuple[Connection, ...]:
        """Connections in the order of our metadata; those of others in that of their targets."""
        place = {told: index for index, told in enumerate(self.reading.told.connections)}
        target = {population.name: index for index, population in enumerate(populations)}

        def key(connection: Connection) -> tuple[int, int]:
            return place.get(hop(connection), len(place)), target[connection.target]

        return tuple(as_written(c, self.reading.told) for c in sorted(self.connections, key=key))


def read_nir(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    dt: float | None = None,
) -> FoldedNetwork | IntNetwork:
    """Read a network. Files of other writers do not say time steps, input range or dt: give them.

    Their input is taken as plain spikes (0 or 1) unless `input_range` says otherwise, and dt as
    1e-4 seconds, with which most of them write.
    """
    return read_network(Path(path), timesteps=timesteps, input_range=input_range, dt=dt)


def read_folded(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    dt: float | None = None,
) -> FoldedNetwork:
    """The same, of a network of real numbers."""
    network = read_nir(path, timesteps=timesteps, input_range=input_range, dt=dt)
    if isinstance(network, IntNetwork):
        raise FormatError(f"{path}: holds an integer network, which is quantized already.")
    return network
