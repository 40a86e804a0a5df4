"""Assign cores to as few chips as hold them, so that few spikes cross between chips.

METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998) partitions two graphs of cores. In one, edges are
the spikes in both directions. In the other, cores that read the same spikes are connected too, because a
spike goes once to each chip, however many cores read it there. Parts have only roughly equal sizes. Then

    repair     moves cores from chips that are too full to others, cheapest first
    improve    moves or swaps cores as long as fewer spikes cross

The partition in core order, as it is and improved, is also a candidate, and the best candidate wins. So the
result is never worse than core order, and METIS is optional. The result is deterministic. Partitions that
would take minutes to improve are only repaired.

Candidates are judged by the messages between chips (`chip_messages`) if they are given, and otherwise by the
spikes between pairs of cores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import isqrt
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ..base import Array, Report, array_record
from ..hardware import HardwareProfile
from .activity import Traffic

SEED = 0
MAX_PASSES = 10  # of improvement over all cores; later passes gain little
LARGEST = 2**22  # cores times chips; larger partitions are repaired only, because improving takes minutes
MAX_PAIRS = 2**21  # of receivers of the same core
METIS_TOTAL = 2**29  # total weight of all edges; METIS uses 32-bit integers
METIS_IMBALANCES = (1, 30)  # allowed imbalance of parts, in thousandths, in two attempts
NEGLIGIBLE = 1e-9  # share of all spikes; smaller gains may be rounding errors
CORE_ORDER, METIS = "core order", "METIS"


@array_record
class ChipMap(Report):
    """The chip of each core, and its `slot` there.

    `crossings` are the spikes per sample that cross between chips, and `share` is their share of all spikes
    that cores send. `board` is the smallest board that holds all chips, or else the largest one, of which
    `boards` are needed; None if no board is known. `method` names the partitioning method. `messages` are
    those per sample from chip to chip, [chips, chips], where they have been counted; then `crossings` and
    `share` count a spike once per chip, and otherwise once per core.
    """

    JSON = """spikes_per_sample=crossings share_of_all_spikes=share board boards cut_by=method chip_grid?
        busiest_link? busiest_chip?"""

    chip: Array
    slot: Array
    chips: int
    crossings: float
    share: float
    board: str | None
    boards: int
    method: str
    messages: Array | None = None

    def with_messages(self, messages: Array) -> ChipMap:
        """Count what crosses between chips by messages, each spike once per chip."""
        crossing, total = float(messages.sum() - np.trace(messages)), float(messages.sum())
        return replace(self, messages=messages, crossings=crossing, share=crossing / total if total else 0.0)

    @property
    def chip_grid(self) -> Grid | None:
        """The assumed arrangement of chips."""
        return grid_of(self.chips)

    @property
    def busiest_link(self) -> BusyLink | None:
        """The two neighbors in the grid of chips with the most messages on their link, and their number."""
        if self.messages is None or not (loads := link_loads(self.messages)):
            return None
        (source, target), load = max(loads.items(), key=lambda link: link[1])
        return BusyLink(source, target, load)

    @property
    def busiest_chip(self) -> BusyChip | None:
        """The chip with the most messages to and from other chips, and their number."""
        if self.messages is None or self.chips == 1:
            return None
        between = self.messages - np.diag(np.diag(self.messages))
        loads = between.sum(axis=0) + between.sum(axis=1)
        return BusyChip(int(loads.argmax()), float(loads.max()))


def assign_chips(
    traffic: Traffic,
    cores: int,
    profile: HardwareProfile,
    messages: Callable[[Array, int], Array] | None = None,
) -> ChipMap:
    """Assign every core to one of as few chips as possible; the profile must have `chip.cores`.

    `messages` returns the messages from chip to chip, for the chip of each core and the number of chips.
    """
    capacity = profile.value("chip.cores")
    chips = -(-cores // capacity)

    def cost(candidate: tuple[str, Array]) -> float:
        if messages is None or chips == 1:
            return crossings(traffic, candidate[1])
        found = messages(candidate[1], chips)
        return float(found.sum() - np.trace(found))

    method, chip = min(partitions(traffic, cores, chips, capacity), key=cost)
    crossing = crossings(traffic, chip)
    board, boards = board_of(profile, chips)
    found = ChipMap(
        chip=chip,
        slot=_slots(chip, chips),
        chips=chips,
        crossings=crossing,
        share=crossing / traffic.total if traffic.total else 0.0,
        board=board,
        boards=boards,
        method=method,
    )
    return found if messages is None or chips == 1 else found.with_messages(messages(chip, chips))


def crossings(traffic: Traffic, chip: Array) -> float:
    """Return the spikes per sample between cores on different chips."""
    return float(traffic.spikes[chip[traffic.source] != chip[traffic.target]].sum())


def hops(traffic: Traffic, chip_map: ChipMap, profile: HardwareProfile) -> float | None:
    """Return the router hops per sample of all spikes that stay on their chip; None without a known grid.

    Spikes travel along their row, then along their column. Slots fill the routers row by row. Spikes that
    leave their chip are not included, because the links between chips are not documented; see `crossings`.
    """
    columns, rows = profile.limit("chip.grid_columns"), profile.limit("chip.grid_rows")
    per_router = profile.limit("chip.cores_per_router")
    if columns is None or rows is None or per_router is None:
        return None
    y, x = np.divmod(chip_map.slot // per_router.value, columns.value)
    ends = traffic.source, traffic.target
    distance = sum(np.abs(place[ends[0]] - place[ends[1]]) for place in (x, y))
    same = chip_map.chip[ends[0]] == chip_map.chip[ends[1]]
    return float((traffic.spikes * distance)[same].sum())


def _slots(chip: Array, chips: int) -> Array:
    """Number the cores of each chip from zero, in their order."""
    slots = np.empty(len(chip), np.int64)
    for number in range(chips):
        members = np.flatnonzero(chip == number)
        slots[members] = np.arange(len(members))
    return slots


def board_of(profile: HardwareProfile, chips: int) -> tuple[str | None, int]:
    """Return the smallest board that holds all chips, or else the largest one, and how many are needed."""
    sizes = sorted((size, name) for name, size in profile.systems.items())
    if not sizes:
        return None, 0
    size, name = next(((size, name) for size, name in sizes if size >= chips), sizes[-1])
    return name, -(-chips // size)


# ---- candidate partitions ---------------------------------------------------------------------


def partitions(traffic: Traffic, cores: int, chips: int, capacity: int) -> Iterator[tuple[str, Array]]:
    """Yield candidates with their methods: core order, the same improved, METIS improved."""
    naive = np.arange(cores) // capacity
    yield CORE_ORDER, naive
    if chips == 1:
        return
    graph = core_graph(traffic, cores)
    graphs = [graph] if (readers := _reader_graph(traffic, cores)) is None else [graph, readers]
    if cores * chips > LARGEST:
        for each in graphs:
            for start in _metis_partitions(each, chips, METIS_IMBALANCES[:1]):
                yield METIS, _repaired(each, start, capacity)
        return
    yield CORE_ORDER, _Partition(graph, naive, chips, capacity).settle()
    for each in graphs:
        for start in _metis_partitions(each, chips):
            yield METIS, _Partition(each, start, chips, capacity).settle()


def core_graph(traffic: Traffic, cores: int) -> csr_array:
    """Return the spikes between each pair of cores, both directions added: [core, core]."""
    apart = (traffic.source != traffic.target) & (traffic.spikes > 0)
    ends = traffic.source[apart], traffic.target[apart]
    one_way = csr_array((traffic.spikes[apart], ends), shape=(cores, cores))
    return csr_array(one_way + one_way.T)


def _reader_graph(traffic: Traffic, cores: int) -> csr_array | None:
    """Return the graph in which a core's k receivers are connected to it and to each other, all by 1/k.

    Cutting it costs about as much as the messages from a core to the chips of its receivers. None if it would
    have too many edges.
    """
    apart = (traffic.source != traffic.target) & (traffic.spikes > 0)
    ends = traffic.source[apart], traffic.target[apart]
    sent = csr_array((traffic.spikes[apart], ends), shape=(cores, cores))
    if int((np.diff(sent.indptr).astype(np.int64) ** 2).sum()) > MAX_PAIRS:
        return None
    share = sent.copy()
    share.data = sent.data / np.repeat(np.maximum(sent.sum(axis=1), 1e-300), np.diff(sent.indptr))
    to_receivers = sent.multiply(share)
    joint = csr_array(sent.T @ share + to_receivers + to_receivers.T)
    joint.setdiag(0)
    joint.eliminate_zeros()
    return joint


def _metis_partitions(
    graph: csr_array, chips: int, imbalances: Sequence[int] = METIS_IMBALANCES
) -> Iterator[Array]:
    """Yield METIS partitions, by recursive bisection (better here than k-way); none if not installed."""
    try:
        import pymetis
    except ImportError:
        return
    weights = 1 + (graph.data / max(graph.data.sum(), 1) * METIS_TOTAL).astype(np.int64)
    start, other = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    for imbalance in imbalances:
        partition = pymetis.part_graph(
            chips,
            pymetis.CSRAdjacency(start, other),
            eweights=weights,
            recursive=True,
            options=pymetis.Options(seed=SEED, ufactor=imbalance),
        )
        yield np.array(partition.vertex_part, np.int64)


# ---- repair and improvement -------------------------------------------------------------------


def _repaired(graph: csr_array, chip: Array, capacity: int) -> Array:
    """Move the cheapest cores out of full chips, without a table of all cores and chips."""
    chip, chips = chip.copy(), int(-(-len(chip) // capacity))
    load = np.bincount(chip, minlength=chips)
    while load.max() > capacity:
        full = int(load.argmax())
        members, room = np.flatnonzero(chip == full), np.flatnonzero(load < capacity)
        rows = graph[members]
        places = np.repeat(np.arange(len(members)), np.diff(rows.indptr)) * chips + chip[rows.indices]
        affinity = np.bincount(places, weights=rows.data, minlength=len(members) * chips)
        affinity = affinity.reshape(len(members), chips)
        costs = affinity[:, [full]] - affinity[:, room]
        for member in np.argsort(costs.min(axis=1), kind="stable")[: load[full] - capacity]:
            there = int(room[costs[member].argmin()])
            if load[there] < capacity:
                chip[members[member]] = there
                load[full] -= 1
                load[there] += 1
    return chip


class _Partition:
    """A mutable partition; `affinity[core, chip]` are the spikes between a core and a chip's cores."""

    def __init__(self, graph: csr_array, chip: Array, chips: int, capacity: int) -> None:
        self.start, self.other, self.spikes = graph.indptr, graph.indices, graph.data
        self.chip, self.capacity = chip.copy(), capacity
        self.load = np.bincount(chip, minlength=chips)
        cores = np.repeat(np.arange(len(chip)), np.diff(self.start))
        places = cores * chips + chip[self.other]
        flat = np.bincount(places, weights=self.spikes, minlength=len(chip) * chips)
        self.affinity = flat.reshape(len(chip), chips).astype(np.float64)  # integers if no core sends spikes
        self.negligible = NEGLIGIBLE * self.spikes.sum()

    def settle(self) -> Array:
        """Repair, then improve until nothing changes; return the chip of each core."""
        self.repair()
        for _ in range(MAX_PASSES):
            own = self.affinity[np.arange(len(self.chip)), self.chip]
            drawn = np.flatnonzero(self.affinity.max(axis=1) - own > self.negligible)
            if sum(self.improve(core) for core in drawn.tolist()) == 0:
                break
        return self.chip

    def repair(self) -> None:
        """Move the cheapest core until no chip is too full."""
        while self.load.max() > self.capacity:
            full = int(self.load.argmax())
            members, room = np.flatnonzero(self.chip == full), np.flatnonzero(self.load < self.capacity)
            costs = self.affinity[members, full][:, None] - self.affinity[np.ix_(members, room)]
            core, chip = np.unravel_index(costs.argmin(), costs.shape)
            self.move(int(members[core]), int(room[chip]))

    def improve(self, core: int) -> bool:
        """Move a core to the chip with the highest affinity, or swap it; return whether it moved."""
        here = int(self.chip[core])
        gains = self.affinity[core] - self.affinity[core, here]
        with_room = np.where(self.load < self.capacity, gains, 0.0)
        if with_room.max() > self.negligible:
            self.move(core, int(with_room.argmax()))
            return True
        there = int(gains.argmax())
        if gains[there] <= self.negligible:
            return False
        others = np.flatnonzero(self.chip == there)
        swaps = gains[there] + self.affinity[others, here] - self.affinity[others, there]
        swaps -= 2 * self.between(core)[others]  # spikes between two swapped cores still cross
        if swaps.max() <= self.negligible:
            return False
        self.move(core, there)
        self.move(int(others[swaps.argmax()]), here)
        return True

    def between(self, core: int) -> Array:
        """Return the spikes between a core and every other core."""
        spikes = np.zeros(len(self.chip))
        around = slice(self.start[core], self.start[core + 1])
        spikes[self.other[around]] = self.spikes[around]
        return spikes

    def move(self, core: int, chip: int) -> None:
        """Move a core to a chip, and update loads and affinities."""
        around = slice(self.start[core], self.start[core + 1])
        self.affinity[self.other[around], self.chip[core]] -= self.spikes[around]
        self.affinity[self.other[around], chip] += self.spikes[around]
        self.load[self.chip[core]] -= 1
        self.load[chip] += 1
        self.chip[core] = chip


# Loads of the links between chips.
#
# Chips have links to their four neighbors: Loihi has a parallel interface on each side (WikiChip Fuse, 2019).
# How the chips of a board are arranged is not public. So a grid as square as possible is assumed, in which
# chips are numbered in rows, every second row backwards, so that consecutive chips are neighbors:
#
#     0 1 2 3
#     7 6 5 4
#
# Messages travel along their row, then along their column, as they do on a chip.


LONGEST_SIDE = 3  # columns per row of a full grid
Place = tuple[int, int]  # row and column


class Grid(NamedTuple):
    """The arrangement of chips."""

    columns: int
    rows: int


class BusyLink(NamedTuple):
    """The two neighbors in the grid of chips with the most messages on their link, per sample."""

    from_chip: int
    to_chip: int
    messages: float


class BusyChip(NamedTuple):
    """The chip with the most messages to and from other chips, per sample."""

    chip: int
    messages: float


def grid_of(chips: int) -> Grid:
    """Return columns and rows of the grid that is assumed for a number of chips.

    It is full if the sides of a full one differ at most by a factor of three; otherwise its last row is not.
    """
    side = max(isqrt(chips), 1)
    rows = next(rows for rows in range(side, 0, -1) if chips % rows == 0)
    rows = rows if chips <= LONGEST_SIDE * rows * rows else side
    return Grid(-(-chips // rows), rows)


def place_of(chip: int, columns: int) -> Place:
    row, column = divmod(chip, columns)
    return row, columns - 1 - column if row % 2 else column


def chip_at(place: Place, columns: int) -> int:
    row, column = place
    return row * columns + (columns - 1 - column if row % 2 else column)


def link_loads(messages: Array) -> dict[tuple[int, int], float]:
    """Return the messages on each link in use, given those from chip to chip, [chips, chips]."""
    columns, _ = grid_of(len(messages))
    loads: Counter[tuple[int, int]] = Counter()
    for source, target in np.argwhere(messages > 0).tolist():
        for link in _route(source, target, columns):
            loads[link] += messages[source, target]
    return dict(loads)


def _route(source: int, target: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield the links on the way from one chip to another; none if they are the same."""
    (row, column), (last_row, last_column) = place_of(source, columns), place_of(target, columns)
    here = source
    while (row, column) != (last_row, last_column):
        if column != last_column:
            column += 1 if last_column > column else -1
        else:
            row += 1 if last_row > row else -1
        there = chip_at((row, column), columns)
        yield here, there
        here = there
