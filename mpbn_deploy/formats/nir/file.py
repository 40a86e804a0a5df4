"""HDF5 -> the nodes and edges of a NIR graph, checked; nested graphs are flattened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ...base import Array, FormatError, Tree, as_text, did_you_mean, read_tree, record
from ...ir import MOST_NEURONS, Pair, Shape

# Far more than networks need; they bound the memory and time that a hostile file can take.
MOST_NODES = 5_000
MOST_DEPTH = 16  # of nested graphs
LARGEST_NUMBER = 2**31 - 1  # of strides, paddings and sizes


@record
class Node:
    """One node of a file, with checked access to its keys; errors name the file, the node and the key."""

    path: Path
    name: str
    kind: str
    tree: Tree

    def numbers(self, key: str) -> Array:
        """Return the finite numbers under a key, as float64."""
        values = np.asarray(self._value(key))
        if values.dtype.kind not in "iuf" or values.size == 0:
            self.fail(key, f"holds {_shown(values)}; numbers are needed")
        if bad := int(np.count_nonzero(~np.isfinite(values))):
            self.fail(key, f"has {bad} of {values.size} values that are NaN or infinite")
        return values.astype(np.float64)

    def whole(self, key: str) -> tuple[int, ...]:
        """Return the whole numbers under a key, of at most 31 bits."""
        values = self.numbers(key).ravel()
        if values.size > 8 or not np.array_equal(values, np.rint(values)):
            self.fail(key, f"holds {_shown(values)}; a few whole numbers are needed")
        if np.abs(values).max() > LARGEST_NUMBER:
            self.fail(key, f"holds {_shown(values)}; at most {LARGEST_NUMBER} is allowed")
        return tuple(int(value) for value in values)

    def number(self, key: str) -> int:
        values = self.whole(key)
        if len(values) != 1:
            self.fail(key, f"holds {len(values)} numbers; one is needed")
        return values[0]

    def pair(self, key: str) -> Pair:
        """(vertical, horizontal), of two numbers or of one for both"""
        values = self.whole(key)
        if len(values) > 2:
            self.fail(key, f"holds {len(values)} numbers; one or two are needed")
        return values[0], values[-1]

    def text(self, key: str) -> str | None:
        """Return the string under a key; None for anything else."""
        return as_text(self.tree.get(key))

    def shape(self, key: str) -> Shape:
        """Return a shape: one to three sizes above zero."""
        sizes = self.whole(key)
        if len(sizes) > 3 or min(sizes) < 1:
            self.fail(key, f"is {list(sizes)}; one to three sizes above zero are needed")
        return self.bounded(key, sizes)

    def bounded(self, key: str, shape: Shape) -> Shape:
        """Return the shape; raise if it has too many elements."""
        if prod(shape) > MOST_NEURONS:
            self.fail(key, f"gives shape {list(shape)}; at most {MOST_NEURONS} values are allowed")
        return shape

    def fail(self, key: str, reason: str) -> NoReturn:
        raise FormatError(f"{self.path}: node {self.name!r} ({self.kind}), key {key!r}: {reason}.")

    def reject(self, reason: str) -> NoReturn:
        raise FormatError(f"{self.path}: node {self.name!r} ({self.kind}): {reason}.")

    def _value(self, key: str) -> Any:
        if key not in self.tree:
            self.fail(key, "is missing")
        return self.tree[key]


@record
class NirFile:
    """All nodes by name, edges between them, and the metadata of the outermost graph."""

    path: Path
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    input: Node
    output: Node
    metadata: Tree


def read_file(path: Path, known: frozenset[str]) -> NirFile:
    """Read a file; raise if a node is of a kind that is not in `known`."""
    tree = read_tree(path)
    outer = tree.get("node")
    if not isinstance(outer, dict) or as_text(outer.get("type")) != "NIRGraph":
        raise FormatError(f"{path}: holds no NIRGraph under the key 'node'.")
    opened = _Opened(path, known)
    inputs, outputs = opened.graph(outer, "", 0)
    for kind, names in (("Input", inputs), ("Output", outputs)):
        if len(names) != 1:
            raise FormatError(f"{path}: {len(names)} nodes of type {kind}; one is needed.")
    metadata = outer.get("metadata", {})
    if not isinstance(metadata, dict):
        raise FormatError(f"{path}: key 'metadata' is not a group.")
    # nir and its readers treat edges as a set.
    return NirFile(
        path=path,
        nodes=opened.nodes,
        edges=tuple(dict.fromkeys(opened.edges)),
        input=opened.nodes[inputs[0]],
        output=opened.nodes[outputs[0]],
        metadata=metadata,
    )


class _Opened:
    """Flattens nested graphs: node x of graph a becomes a.x; edges of a attach to its Input and Output.

    Edges may also name a node inside a nested graph: a.x, as graphs with several inputs or outputs need.
    """

    def __init__(self, path: Path, known: frozenset[str]) -> None:
        self.path = path
        self.known = known
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []

    def graph(self, tree: Tree, prefix: str, depth: int) -> tuple[list[str], list[str]]:
        """Add the nodes and edges of a graph; return the names of its inputs and of its outputs."""
        where = f"graph {prefix[:-1]!r}" if prefix else "the graph"
        if depth > MOST_DEPTH:
            raise FormatError(f"{self.path}: {where} is nested in more than {MOST_DEPTH} graphs.")
        nodes = tree.get("nodes")
        if not isinstance(nodes, dict) or not nodes:
            raise FormatError(f"{self.path}: {where} has no nodes under the key 'nodes'.")
        doors = {name: self._node(prefix, name, node, depth) for name, node in nodes.items()}
        for source, target in self._pairs(tree, where):
            leaving, entering = self._end(source, prefix, doors, 1), self._end(target, prefix, doors, 0)
            self.edges.append((leaving, entering))
        kinds = {
            kind: [prefix + n for n in nodes if self._is(prefix + n, kind)] for kind in ("Input", "Output")
        }
        return kinds["Input"], kinds["Output"]

    def _is(self, name: str, kind: str) -> bool:
        return name in self.nodes and self.nodes[name].kind == kind

    def _node(self, prefix: str, name: str, tree: Any, depth: int) -> tuple[list[str], list[str]]:
        """Add a node; return the names to which its incoming and its outgoing edges attach."""
        whole = prefix + name
        kind = as_text(tree.get("type")) if isinstance(tree, dict) else None
        if kind is None:
            raise FormatError(f"{self.path}: node {whole!r}: key 'type' is missing or not a string.")
        if kind == "NIRGraph":
            return self.graph(tree, f"{whole}.", depth + 1)
        if kind not in self.known:
            raise FormatError(
                f"{self.path}: node {whole!r} has type {kind!r}, which is not supported. "
                f"{did_you_mean(kind, self.known)}"
            )
        if whole in self.nodes:
            raise FormatError(f"{self.path}: node {whole!r}: the name occurs twice.")
        if len(self.nodes) >= MOST_NODES:
            raise FormatError(f"{self.path}: more than {MOST_NODES} nodes, which is the limit.")
        self.nodes[whole] = Node(path=self.path, name=whole, kind=kind, tree=tree)
        return [whole], [whole]

    def _end(self, end: str, prefix: str, doors: dict[str, tuple[list[str], list[str]]], side: int) -> str:
        """Return the node at an end of an edge of a graph: side 0 of a node takes, side 1 gives."""
        names = doors[end][side] if end in doors else [prefix + end]
        if len(names) != 1:
            kind = ("Input", "Output")[side]
            raise FormatError(
                f"{self.path}: graph {prefix + end!r} is nested and must have one Input and one Output; an "
                f"edge to or from it meets {len(names)} nodes of type {kind}. Name one: {end}.NODE."
            )
        if names[0] not in self.nodes:
            where = f"graph {prefix[:-1]!r}" if prefix else "the graph"
            raise FormatError(f"{self.path}: {where}: edge to or from {end!r}, which is not a node.")
        return names[0]

    def _pairs(self, tree: Tree, where: str) -> Iterator[Edge]:
        values = np.asarray(tree.get("edges", 0))
        if values.size == 0:
            return
        if values.ndim != 2 or values.shape[1] != 2 or len(values) > 10 * MOST_NODES:
            raise FormatError(f"{self.path}: {where}: key 'edges' holds no pairs of names.")
        for row in values.tolist():
            source, target = (as_text(end) for end in row)
            if source is None or target is None:
                raise FormatError(f"{self.path}: {where}: key 'edges' holds no pairs of names.")
            yield source, target


def _shown(values: Array) -> str:
    few = ", ".join(str(value) for value in values.ravel()[:4].tolist())
    return f"[{few}{', ...' if values.size > 4 else ''}] of {values.dtype}"


# Find the edges that close the loops of a graph; they take one time step.


Edge = tuple[str, str]


class AmbiguousLoopError(Exception):
    """A loop that is entered at several nodes, or at none, so the edge that closes it is ambiguous."""

    def __init__(self, loop: Iterable[str]) -> None:
        self.loop = sorted(loop)
        super().__init__(", ".join(self.loop))


def closing_edges(start: str, instant: Iterable[Edge], delayed: Iterable[Edge] = ()) -> set[Edge]:
    """Return the edges that lead back to the entry of a loop; without them the graph has no cycles.

    Visits nodes in the order in which spikes from `start` reach them. When no node is ready, a loop is next:
    its entry is the node with an edge from a visited node, and edges from the loop to its entry close it.
    """
    instant = set(instant)
    before, after = neighbours(sorted(instant))
    _, late = neighbours(sorted(delayed))
    waiting = {name: set(sources) for name, sources in before.items() if name != start}
    closing = {(source, target) for source, target in instant if target == start}
    reached, reached_late = {start}, set[str]()
    ready = [start, *sorted(name for name in after if name not in waiting and name != start)]
    while True:
        while ready:
            name = ready.pop()
            waiting.pop(name, None)
            reached.update(after.get(name, ()))
            reached_late.update(late.get(name, ()))
            for target in after.get(name, ()):
                if target in waiting:
                    waiting[target].discard(name)
                    if not waiting[target]:
                        ready.append(target)
        if not waiting:
            return closing
        entry, loop = _next_loop(waiting, before, after, (reached, reached_late))
        closing |= {(source, entry) for source in loop if (source, entry) in instant}
        waiting[entry] -= loop
        ready.append(entry)


def _next_loop(
    waiting: dict[str, set[str]],
    before: dict[str, list[str]],
    after: dict[str, list[str]],
    reached: tuple[set[str], set[str]],
) -> tuple[str, set[str]]:
    """Return the entry and the nodes of a loop that waits only for itself; prefer undelayed entries."""
    for names in reached:
        entered = sorted(name for name in waiting if name in names)
        for name in entered:
            loop = _connected(name, before, waiting)
            if loop <= _connected(name, after, waiting):
                if sum(other in loop for other in entered) == 1:
                    return name, loop
                raise AmbiguousLoopError(loop)
    raise AmbiguousLoopError(waiting)


def _connected(name: str, neighbours: dict[str, list[str]], among: Iterable[str]) -> set[str]:
    """Return all nodes of `among` that are reachable from a node, itself included."""
    allowed, found, queue = set(among), {name}, [name]
    while queue:
        for other in neighbours.get(queue.pop(), ()):
            if other in allowed and other not in found:
                found.add(other)
                queue.append(other)
    return found


def neighbours(edges: Iterable[Edge]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Map each node to the sources of its incoming edges, and to the targets of its outgoing edges."""
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for source, target in edges:
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    return before, after
