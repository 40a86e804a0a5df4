"""Several chips: which core sits on which, so that few spikes cross from one to another.

As few chips as hold the cores. The graph of cores, joined by the spikes between them (both ways together), is
cut by METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998), which keeps parts only about equal. Then

    repair     cores of a chip that is too full move to one with room, those first that cost least
    improve    a core moves, or two change places, as long as fewer spikes cross

The cut in the order of cores, as it is and improved in the same way, is a candidate, too, and the best one is
taken: so the result is never worse than that cut, and there is one where METIS is not installed. Nothing is
random.

A spike counts once for each core on another chip that it goes to.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from ..base import Array, freeze_arrays, record
from ..hardware import HardwareProfile
from .messages import Traffic

SEED = 0
MOST_PASSES = 10  # of improvement over all cores; the last ones gain little
LARGEST = 2**22  # cores times chips beyond which nothing is improved: it would take minutes
METIS_TOTAL = 2**29  # what all edges weigh together, for METIS counts in whole numbers of 32 bits
METIS_ROOMS = (1, 30)  # how unequal parts may be, in thousandths, for two attempts
NEGLIGIBLE = 1e-9  # of all spikes: a smaller gain may be an error of rounding
CORE_ORDER, METIS = "core order", "METIS"


@record
class ChipMap:
    """Which chip each core is on, and its `slot` there.

    `crossings` are the spikes per sample that go from one chip to another, and `share` their part in all that
    cores send. `board` is the smallest that holds the chips or, where none does, the largest, of which
    `boards` are needed; None where no board is known. `method` is how the cut was found.
    """

    chip: Array
    slot: Array
    chips: int
    crossings: float
    share: float
    board: str | None
    boards: int
    method: str

    def __post_init__(self) -> None:
        freeze_arrays(self)


def assign_chips(traffic: Traffic, cores: int, profile: HardwareProfile) -> ChipMap:
    """Every core on one of as few chips as hold all; a profile that lacks `chip.cores` is refused."""
    capacity = profile.value("chip.cores")
    chips = -(-cores // capacity)
    cuts = _cuts(traffic, cores, chips, capacity)
    method, chip = min(cuts, key=lambda cut: crossings(traffic, cut[1]))
    crossing = crossings(traffic, chip)
    board, boards = _board(profile, chips)
    return ChipMap(
        chip=chip,
        slot=_slots(chip, chips),
        chips=chips,
        crossings=crossing,
        share=crossing / traffic.total if traffic.total else 0.0,
        board=board,
        boards=boards,
        method=method,
    )


def crossings(traffic: Traffic, chip: Array) -> float:
    """The spikes per sample between cores on different chips."""
    return float(traffic.spikes[chip[traffic.source] != chip[traffic.target]].sum())


def hops(traffic: Traffic, chip_map: ChipMap, profile: HardwareProfile) -> float | None:
    """Steps from router to router per sample, of all spikes that stay on their chip; None without a grid.

    A spike goes along its row, then along its column. Slots fill the routers row by row. What crosses chips
    is not counted, for how they are joined is not known: `crossings` says how many do.
    """
    columns, rows = profile.limit("chip.grid_columns"), profile.limit("chip.grid_rows")
    per_router = profile.limit("chip.cores_per_router")
    if columns is None or rows is None or per_router is None:
        return None
    y, x = np.divmod(chip_map.slot // per_router.value, columns.value)
    ends = traffic.source, traffic.target
    steps = sum(np.abs(place[ends[0]] - place[ends[1]]) for place in (x, y))
    same = chip_map.chip[ends[0]] == chip_map.chip[ends[1]]
    return float((traffic.spikes * steps)[same].sum())


def _slots(chip: Array, chips: int) -> Array:
    """The cores of each chip numbered from zero, in their order."""
    slots = np.empty(len(chip), np.int64)
    for number in range(chips):
        members = np.flatnonzero(chip == number)
        slots[members] = np.arange(len(members))
    return slots


def _board(profile: HardwareProfile, chips: int) -> tuple[str | None, int]:
    sizes = sorted((size, name) for name, size in profile.systems.items())
    if not sizes:
        return None, 0
    size, name = next(((size, name) for size, name in sizes if size >= chips), sizes[-1])
    return name, -(-chips // size)


# ---- cuts -------------------------------------------------------------------------------------


def _cuts(traffic: Traffic, cores: int, chips: int, capacity: int) -> Iterator[tuple[str, Array]]:
    """Chips of the cores, with how they were found: in core order, that improved, and METIS's, improved."""
    naive = np.arange(cores) // capacity
    yield CORE_ORDER, naive
    if chips == 1 or cores * chips > LARGEST:
        return
    graph = _graph(traffic, cores)
    yield CORE_ORDER, _Cut(graph, naive, chips, capacity).settle()
    for start in _metis_cuts(graph, chips):
        yield METIS, _Cut(graph, start, chips, capacity).settle()


def _graph(traffic: Traffic, cores: int) -> csr_array:
    """[core, core]: the spikes between them, both ways together."""
    apart = (traffic.source != traffic.target) & (traffic.spikes > 0)
    ends = traffic.source[apart], traffic.target[apart]
    one_way = csr_array((traffic.spikes[apart], ends), shape=(cores, cores))
    return csr_array(one_way + one_way.T)


def _metis_cuts(graph: csr_array, chips: int) -> Iterator[Array]:
    """Halves, cut again: for graphs of cores better than its other way. None where it is not installed."""
    try:
        import pymetis
    except ImportError:
        return
    weights = 1 + (graph.data / max(graph.data.sum(), 1) * METIS_TOTAL).astype(np.int64)
    start, other = graph.indptr.astype(np.int64), graph.indices.astype(np.int64)
    for room in METIS_ROOMS:
        cut = pymetis.part_graph(
            chips,
            pymetis.CSRAdjacency(start, other),
            eweights=weights,
            recursive=True,
            options=pymetis.Options(seed=SEED, ufactor=room),
        )
        yield np.array(cut.vertex_part, np.int64)


# ---- repair and improvement -------------------------------------------------------------------


class _Cut:
    """A cut that changes: `affinity[core, chip]` are the spikes between a core and all cores of a chip."""

    def __init__(self, graph: csr_array, chip: Array, chips: int, capacity: int) -> None:
        self.start, self.other, self.spikes = graph.indptr, graph.indices, graph.data
        self.chip, self.capacity = chip.copy(), capacity
        self.load = np.bincount(chip, minlength=chips)
        cores = np.repeat(np.arange(len(chip)), np.diff(self.start))
        places = cores * chips + chip[self.other]
        flat = np.bincount(places, weights=self.spikes, minlength=len(chip) * chips)
        self.affinity = flat.reshape(len(chip), chips)
        self.negligible = NEGLIGIBLE * self.spikes.sum()

    def settle(self) -> Array:
        """Repaired, then improved until nothing helps."""
        self.repair()
        for _ in range(MOST_PASSES):
            own = self.affinity[np.arange(len(self.chip)), self.chip]
            drawn = np.flatnonzero(self.affinity.max(axis=1) - own > self.negligible)
            if sum(self.improve(core) for core in drawn.tolist()) == 0:
                break
        return self.chip

    def repair(self) -> None:
        """Until no chip is too full, move the core that costs least."""
        while self.load.max() > self.capacity:
            full = int(self.load.argmax())
            members, room = np.flatnonzero(self.chip == full), np.flatnonzero(self.load < self.capacity)
            costs = self.affinity[members, full][:, None] - self.affinity[np.ix_(members, room)]
            core, chip = np.unravel_index(costs.argmin(), costs.shape)
            self.move(int(members[core]), int(room[chip]))

    def improve(self, core: int) -> bool:
        """Move a core to the chip where it is drawn most, if there is room or another core to change with."""
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
        swaps -= 2 * self.between(core)[others]  # two neighbours that change places stay apart
        if swaps.max() <= self.negligible:
            return False
        self.move(core, there)
        self.move(int(others[swaps.argmax()]), here)
        return True

    def between(self, core: int) -> Array:
        """The spikes between a core and each other one."""
        spikes = np.zeros(len(self.chip))
        around = slice(self.start[core], self.start[core + 1])
        spikes[self.other[around]] = self.spikes[around]
        return spikes

    def move(self, core: int, chip: int) -> None:
        around = slice(self.start[core], self.start[core + 1])
        self.affinity[self.other[around], self.chip[core]] -= self.spikes[around]
        self.affinity[self.other[around], chip] += self.spikes[around]
        self.load[self.chip[core]] -= 1
        self.load[chip] += 1
        self.chip[core] = chip
