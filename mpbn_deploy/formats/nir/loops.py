"""Find the edges that close the loops of a graph; they take one time step."""

from __future__ import annotations

from collections.abc import Iterable

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
