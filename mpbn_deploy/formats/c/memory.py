"""Place the arrays of a program in static memory; those never needed at the same time share bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from string import Template

import numpy as np

from ...base import record
from .plan import Layer, Program

TYPES = ("int64_t", "int32_t", "int16_t", "uint16_t", "uint8_t")  # wide ones first: no gaps between them
FIRED = "uint8_t"


@record
class Array:
    """Numbers that are needed from the run of population `born` to that of population `dies`.

    `per` is how many belong to one place: a pixel, or a pixel in one time step.
    """

    name: str
    c_type: str
    per: int
    places: int
    born: int
    dies: int
    ring: int = 0  # time steps that are kept, a power of two, if older ones are overwritten

    @property
    def count(self) -> int:
        return self.per * self.places


@record
class Placed:
    """An array, and where it begins among those of its type."""

    array: Array
    start: int


@record
class Memory:
    """All arrays of a program, and how many numbers of each type they take together."""

    placed: tuple[Placed, ...]
    sizes: dict[str, int]
    blocks: tuple[tuple[Layer, ...], ...]  # populations that run together, step by step if several

    @property
    def bytes(self) -> int:
        """The size of the struct, padded to its widest member."""
        widths = {kind: np.dtype(kind.removesuffix("_t")).itemsize for kind in self.sizes}
        total, widest = sum(widths[kind] * n for kind, n in self.sizes.items()), max(widths.values())
        return -(-total // widest) * widest

    def find(self, name: str) -> Placed | None:
        return next((each for each in self.placed if each.array.name == name), None)


def place(program: Program, *, stepped: bool) -> Memory:
    """Place all arrays; `stepped` keeps the states of all populations, so that single steps can run."""
    blocks = (program.layers,) if stepped else tuple(loops(program))
    ends = {layer.number: (block[0].number, block[-1].number) for block in blocks for layer in block}
    alone = {block[0].number for block in blocks if not stepped and not _repeats(program, block)}
    arrays = [
        array
        for layer in program.layers
        for array in (
            *_sent(program, layer, ends, stepped),
            *_states(layer, ends[layer.number], layer.number in alone),
            *_scratch(program, layer),
        )
    ]
    placed = [each for kind in TYPES for each in _packed([a for a in arrays if a.c_type == kind])]
    sizes = {
        kind: max(each.start + each.array.count for each in placed if each.array.c_type == kind)
        for kind in TYPES
        if any(each.array.c_type == kind for each in placed)
    }
    return Memory(placed=tuple(placed), sizes=sizes, blocks=blocks)


def loops(program: Program) -> Iterator[tuple[Layer, ...]]:
    """Yield the populations that run together: a single one, or all from the start to the end of a loop."""
    begun, end = 0, 0
    for index, layer in enumerate(program.layers):
        end = max([end, index, *(arrival.source.number - 1 for arrival in layer.arrivals)])
        if end == index:
            yield program.layers[begun : index + 1]
            begun = index + 1


def _repeats(program: Program, block: Sequence[Layer]) -> bool:
    """Whether a block runs step by step: several populations, or one that reads itself."""
    return len(block) > 1 or any(a.source.number == block[0].number for a in block[0].arrivals)


def _sent(program: Program, layer: Layer, ends: dict[int, tuple[int, int]], stepped: bool) -> Iterator[Array]:
    """Yield the arrays that hold what a population sends, if another one reads it."""
    readers = program.readers(layer.population.name)
    if not readers:
        return
    sender = program.senders[layer.population.name]
    ring = 1 << sender.latest.bit_length() if stepped else 0
    places = (ring or program.network.timesteps) * layer.pixels
    born, dies = ends[layer.number][0], max(ends[reader.number][1] for reader, _ in readers)
    life = {"places": places, "born": born, "dies": max(dies, ends[layer.number][1]), "ring": ring}
    n, channels = layer.number, layer.channels
    if sender.kind == "messages":
        yield Array(name=f"MESSAGES_{n}", c_type=sender.c_type, per=channels, **life)
    elif not program.fast:
        yield Array(name=f"SPIKES_{n}", c_type="uint8_t", per=-(-channels // 8), **life)
    else:
        if any(arrival.depthwise for _, arrival in readers):
            yield Array(name=f"FIRED_{n}", c_type=FIRED, per=channels, **life)
        if not all(arrival.depthwise for _, arrival in readers):
            yield Array(name=f"LIST_{n}", c_type=program.index_type, per=channels, **life)
            starts = places // layer.pixels * (layer.pixels + 1)
            yield Array(name=f"START_{n}", c_type="int32_t", per=1, **{**life, "places": starts})


def _states(layer: Layer, block: tuple[int, int], alone: bool) -> Iterator[Array]:
    """Yield voltages and currents: of all pixels if they must outlast a run, else of one tile."""
    first, last = (layer.number, layer.number) if alone else block
    life = {"places": layer.tile if alone else layer.pixels, "born": first, "dies": last}
    for name, there in (("VOLTAGE", layer.has_voltage), ("CURRENT", layer.has_current)):
        if there:
            yield Array(name=f"{name}_{layer.number}", c_type="int32_t", per=layer.channels, **life)


def _scratch(program: Program, layer: Layer) -> Iterator[Array]:
    """Yield what a population needs while it runs: sums, a list of who fired, its own spikes."""
    n, life = layer.number, {"born": layer.number, "dies": layer.number}
    sums = {"per": layer.channels, "places": layer.tile * layer.steps, **life}
    yield Array(name=f"SUMS_{n}", c_type=layer.sum_type, **sums)
    if layer.total_type is not None:
        yield Array(name=f"TOTALS_{n}", c_type=layer.total_type, **sums)
    if any(arrival.wraps for arrival in layer.arrivals):
        yield Array(name=f"EXACT_{n}", c_type="int64_t", **sums)
    listed = [a.source.channels for a in layer.arrivals if a.source.kind == "spikes" and not a.depthwise]
    listed = [] if program.fast else listed
    fired = layer.channels if layer.sends_spikes else 0
    if program.index_type == FIRED:  # a list is read before neurons fire: both share bytes
        if most := max([fired, *listed]):
            yield Array(name=f"SCRATCH_{n}", c_type=FIRED, per=most, places=1, **life)
        return
    if fired:
        yield Array(name=f"SCRATCH_{n}", c_type=FIRED, per=fired, places=1, **life)
    if listed:
        yield Array(name=f"LISTED_{n}", c_type=program.index_type, per=max(listed), places=1, **life)


def _packed(arrays: Sequence[Array]) -> Iterator[Placed]:
    """Give each array the first place where no other one lives at the same time."""
    placed: list[Placed] = []
    for array in sorted(arrays, key=lambda each: (each.born, -each.dies)):
        start = 0
        for other in sorted(placed, key=lambda each: each.start):
            alive = other.array.born <= array.dies and array.born <= other.array.dies
            if alive and start < other.start + other.array.count and other.start < start + array.count:
                start = other.start + other.array.count
        placed.append(Placed(array=array, start=start))
        yield placed[-1]


# The functions of a program that do not depend on its network; templates/kernels.c holds their text.


SHORT_NAMES = {
    "int8_t": "i8",
    "uint8_t": "u8",
    "int16_t": "i16",
    "uint16_t": "u16",
    "int32_t": "i32",
    "int64_t": "i64",
}
MAX_LANES = 32  # of a vector: 64 bytes, the widest that processors have
CHOSEN = ", ".join(  # of all numbers of eight bits: which of them are set
    "{" + ", ".join(map(str, ([k for k in range(8) if mask >> k & 1] + [0] * 8)[:8])) + "}"
    for mask in range(256)
)


def template(name: str) -> Template:
    """Return a file of the folder templates."""
    return Template((files(__package__) / "templates" / name).read_text(encoding="utf-8"))


def _sections() -> dict[str, Template]:
    """Divide kernels.c into its functions."""
    _, *sections = template("kernels.c").template.split("\n//// ")
    parted = (section.partition("\n") for section in sections)
    return {name: Template(text) for name, _, text in parted}


TEXTS = _sections()
NEEDS = {"wrapped_current": ("wrapped",), "clipped": ("wrapped",)}


@record
class Kernel:
    """A kernel for certain types; its text may call those of `before`."""

    name: str
    text: str
    before: tuple[Kernel, ...] = ()


def kernel(stem: str, *, index: str, total: str, weight: str, value: str = "", factor: int = 1) -> Kernel:
    """Return a kernel for some types of sums, weights and values, and a common factor of its weights."""
    types = [SHORT_NAMES[kind] for kind in (weight, *filter(None, [value]), total)]
    name = "_".join([stem, *types, *([f"x{factor}"] if factor > 1 else [])])
    text, add = stem, ""
    before: tuple[Kernel, ...] = ()
    if stem.startswith("add_grouped"):  # which adds one row at a time
        text, single = "add_grouped", stem.replace("_grouped", "")
        before = (kernel(single, index=index, total=total, weight=weight, factor=factor),)
        add = before[0].name
    times = f" * {factor}" if factor > 1 else ""
    filled = TEXTS[text].substitute(
        name=name, index=index, sum=total, weight=weight, value=value, times=times, add=add
    )
    return Kernel(name=name, text=filled, before=before)


def pair_kernel(targets: int, index: str) -> Kernel:
    """Return the kernel of rows of lanes, whose sums stay in registers: as vectors of up to 32 lanes."""
    lanes = min(MAX_LANES, targets // 2)
    vectors = range(targets // 2 // lanes)
    name, kind = f"add_pairs_{targets}", f"lanes_{targets}"
    text = TEXTS["add_pairs"].substitute(
        name=name,
        lanes=kind,
        bytes=2 * lanes,
        index=index,
        targets=targets,
        half=targets // 2,
        zeros=", ".join(f"all{j} = {{0}}" for j in vectors),
        highs=", ".join(f"high{j} = {{0}}" for j in vectors),
        adds=" ".join(
            f"const {kind} row{j} = row[{j}]; all{j} += (u{kind})row{j}; high{j} += row{j} >> 8;"
            for j in vectors
        ),
        stores=" ".join(
            f"first[{j}] += ({kind})(all{j} - ((u{kind})high{j} << 8) - extra); second[{j}] += high{j};"
            for j in vectors
        ),
    )
    return Kernel(name=name, text=text)
