"""Choose the bits of each layer's weights: FoldedNetwork + calibration inputs -> Widths.

    sensitivity[layer, bits]   how far the outputs move if this layer alone is rounded to so many bits
    path                       from the widest weights of all layers to 2 bits, a bit of one layer at a time:
                               always the one that adds the least sensitivity per byte that it saves

Networks on the path are rounded to the nearest integers, which is fast. The first within the bounds of bytes
and cores is taken; without bounds, the last that keeps the predictions of the folded network. It is then
calibrated, which usually changes fewer predictions than measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..base import Array, OptionError, Report, progress_bar, record
from ..execute.emulator import emulate
from ..formats.options import AUTO, Quantizing
from ..ir import FoldedNetwork, IntNetwork

NARROWEST = 2  # bits: -1, 0 and 1
SENSED = 64  # calibration inputs that tell sensitivities
MAX_LOSS = 0.01  # fraction of the calibration inputs whose predictions may change more than at the widest
CURVE_POINTS = 8

Bits = Mapping[str, int]  # by population that weights lead to


@record
class WidthTrial(Report):
    """A network on the path, rounded without calibration.

    `bytes` counts weights at their width, without headers of rows; `unchanged` is the fraction of calibration
    inputs on which the folded network and this one predict the same class.
    """

    JSON = "bytes bits unchanged"

    bytes: int
    bits: Mapping[str, int]
    unchanged: float


@record
class Widths(Report):
    """The chosen bits of each layer, and networks along the path for comparison, largest first."""

    JSON = "chosen curve"

    chosen: WidthTrial
    curve: tuple[WidthTrial, ...]

    @property
    def text(self) -> str:
        listed = ", ".join(f"{name} {bits}" for name, bits in self.chosen.bits.items())
        curve = ", ".join(f"{trial.bytes:,} bytes {trial.unchanged:.1%}" for trial in self.curve)
        return (
            f"--weight-bits auto: {self.chosen.bytes:,} bytes of weights; bits of layers: {listed}. "
            f"Unchanged predictions on the calibration data, before calibration: {curve}."
        )


def check_widths(asked: Quantizing, *, calibrated: bool) -> None:
    """Raise OptionError if bounds have no widths to choose, or widths no data to choose by."""
    automatic = asked.weight_bits == AUTO
    for option, bound in (("--most-bytes", asked.most_bytes), ("--most-cores", asked.most_cores)):
        if bound is not None and not automatic:
            raise OptionError(f"{option} has an effect only with --weight-bits auto; add --weight-bits auto.")
    if automatic and not calibrated:
        raise OptionError("--weight-bits auto needs calibration data: add --calibration NAME.")


def choose_widths(
    folded: FoldedNetwork,
    inputs: Array,
    widest: int,
    rounded: Callable[[Bits], IntNetwork],
    cores: Callable[[IntNetwork], int | None],
    asked: Quantizing,
) -> Widths:
    """Choose the bits of each layer within the bounds; `rounded` returns the network of given bits."""
    search = _Search(folded, inputs, rounded)
    path = _path(search, widest)
    if asked.most_bytes is None and asked.most_cores is None:
        least = search.unchanged(path[0]) - MAX_LOSS
        index = _last(path, lambda bits: search.unchanged(bits) >= least)
    else:
        index = _first_within(search, path, cores, asked)
    places = {round(at) for at in np.linspace(0, len(path) - 1, CURVE_POINTS)} | {index}
    curve = {at: search.trial(path[at]) for at in sorted(places)}
    return Widths(chosen=curve[index], curve=tuple(curve.values()))


@dataclass(frozen=True)
class _Search:
    """A folded network, calibration inputs, and how to round it to bits per layer."""

    folded: FoldedNetwork
    inputs: Array
    rounded: Callable[[Bits], IntNetwork]

    @property
    def sizes(self) -> dict[str, int]:
        """The number of stored weights of each layer."""
        entering = {p.name: self.folded.entering(p.name) for p in self.folded.layers}
        return {name: sum(c.synapse.weight.size for c in into) for name, into in entering.items() if into}

    def bytes(self, bits: Bits) -> int:
        return sum(-(-size * bits[name] // 8) for name, size in self.sizes.items())

    def unchanged(self, bits: Bits) -> float:
        real, got = (
            emulate(network, self.inputs, keep_trace=False).predictions
            for network in (self.folded, self.rounded(bits))
        )
        return float(np.mean(real == got))

    def trial(self, bits: Bits) -> WidthTrial:
        return WidthTrial(bytes=self.bytes(bits), bits=dict(bits), unchanged=self.unchanged(bits))

    def distance(self, real: Array, bits: Bits) -> float:
        """Return the mean square difference of the outputs from `real`, both standardized."""
        outputs = emulate(self.rounded(bits), self.inputs[:SENSED], keep_trace=False).outputs
        return float(np.mean((_standardized(outputs) - _standardized(real)) ** 2))


def _standardized(outputs: Array) -> Array:
    """Return outputs whose scale no longer matters."""
    values = np.asarray(outputs, float).reshape(len(outputs), -1)
    standardized: Array = (values - values.mean()) / (values.std() or 1.0)
    return standardized


def _path(search: _Search, widest: int) -> list[Bits]:
    """Return the bits of all layers after each step of the path."""
    names, sizes = list(search.sizes), search.sizes
    all_widest = dict.fromkeys(names, widest)
    real = emulate(search.folded, search.inputs[:SENSED], keep_trace=False).outputs
    losses: dict[tuple[str, int], float] = dict.fromkeys(((name, widest) for name in names), 0.0)
    narrower = range(widest - 1, NARROWEST - 1, -1)
    for number in progress_bar("sensitivity of layers")(range(len(names))):
        for bits in narrower:
            name = names[number]
            found = search.distance(real, all_widest | {name: bits})
            losses[name, bits] = max(found, losses[name, bits + 1])  # chance aside, fewer bits are no better
    path: list[Bits] = [all_widest]
    while wider := [name for name in names if path[-1][name] > NARROWEST]:
        now = path[-1]
        least = min(
            wider,
            key=lambda n: (losses[n, now[n] - 1] - losses[n, now[n]]) / sizes[n],
        )
        path.append({**now, least: now[least] - 1})
    return path


def _last(path: list[Bits], holds: Callable[[Bits], bool]) -> int:
    """Return the last place for which it holds, as if it held for all before it; 0 if for none."""
    low, high = 0, len(path)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(path[middle]) else (low, middle)
    return low


def _first_within(
    search: _Search, path: list[Bits], cores: Callable[[IntNetwork], int | None], asked: Quantizing
) -> int:
    """Return the first place on the path within the bounds; raise OptionError if there is none."""

    def exceeds(bits: Bits) -> bool:
        if asked.most_bytes is not None and search.bytes(bits) > asked.most_bytes:
            return True
        if asked.most_cores is None:
            return False
        used = cores(search.rounded(bits))
        if used is None:
            raise OptionError("--most-cores: how this target fills its cores is not known; use --most-bytes.")
        return used > asked.most_cores

    if exceeds(path[-1]):
        used = cores(search.rounded(path[-1]))
        raise OptionError(
            f"--weight-bits auto: with {NARROWEST}-bit weights in all layers, the network takes "
            f"{search.bytes(path[-1]):,} bytes of weights and {used} cores, which is more than asked; allow "
            "more, or train a smaller network."
        )
    return _last(path, exceeds) + 1 if exceeds(path[0]) else 0
