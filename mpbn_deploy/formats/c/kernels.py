"""The functions of a program that do not depend on its network; templates/kernels.c holds their text."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from ...base import record

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
