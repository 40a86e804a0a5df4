"""Compare the trace of an executor with the reference's, in every spike, voltage and output it holds.

Samples are independent, so they can be compared in parts: `join_samples` merges the results of the parts
into the result of one comparison of all samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, FormatError, Report, layer_name, read_json, record
from ..ir import IntNetwork, SpikeCounts, Trace, join_counts, join_overflows

QUANTITIES = ("spike", "voltage", "output")
COUNTS = tuple(f"{quantity}s_{count}" for quantity in QUANTITIES for count in ("compared", "mismatched"))


@record
class Mismatch:
    """The first difference between two executions."""

    quantity: str  # spike, voltage or output
    population: str
    sample: int
    time_step: int | None  # None for an output
    index: tuple[int, ...]
    expected: int
    got: int

    def __str__(self) -> str:
        """'spike of lif1, sample 0, time step 2, neuron [3, 1, 0]: expected 1, got 0'"""
        step = "" if self.time_step is None else f", time step {self.time_step}"
        return (
            f"{self.quantity} of {layer_name(self.population)}, sample {self.sample}{step}, "
            f"neuron {list(self.index)}: expected {self.expected}, got {self.got}"
        )


@record
class Comparison:
    """One executor compared with the reference; `not_run` gives the reason if it did not run.

    `extent` says what was compared if not all samples of the whole network were: '2 of 16 samples'.
    """

    execution: str
    extent: str | None = None
    spikes_compared: int = 0
    spikes_mismatched: int = 0
    voltages_compared: int = 0
    voltages_mismatched: int = 0
    outputs_compared: int = 0
    outputs_mismatched: int = 0
    first_mismatch: Mismatch | None = None
    not_run: str | None = None

    @property
    def exact(self) -> bool:
        return not (self.spikes_mismatched or self.voltages_mismatched or self.outputs_mismatched)


@record
class Comparisons:
    """All executors on some samples; `failed` names those that failed during the run.

    `trace` is the reference's of the first samples, without voltages; None if a cluster compared them.
    `counted` are its spikes on all samples; None if the reference did not run.
    """

    comparisons: tuple[Comparison, ...]
    failed: tuple[str, ...] = ()
    overflows: Mapping[str, Array] = field(default_factory=dict)  # the reference's, as in a trace
    trace: Trace | None = None
    counted: SpikeCounts | None = None


# ---- two traces -------------------------------------------------------------------------------


def compare(execution: str, expected: Trace, got: Trace) -> Comparison:
    """Count the differences between two traces, over the populations that `got` holds."""
    pairs = [("spike", name, expected.spikes[name], values) for name, values in got.spikes.items()]
    pairs += [("voltage", name, expected.voltages[name], values) for name, values in got.voltages.items()]
    pairs.append(("output", "output", expected.outputs, got.outputs))
    counts: dict[str, Any] = dict.fromkeys(COUNTS, 0)
    for quantity, _, left, right in pairs:
        counts[f"{quantity}s_compared"] += left.size
        counts[f"{quantity}s_mismatched"] += int(np.count_nonzero(left != right))
    found = [mismatch for pair in pairs if (mismatch := _first_of_pair(*pair)) is not None]
    return Comparison(execution=execution, **counts, first_mismatch=_first(found, list(expected.spikes)))


def _first_of_pair(quantity: str, population: str, expected: Array, got: Array) -> Mismatch | None:
    """Return the mismatch that is first in time, then by sample, then by neuron."""
    where = np.argwhere(expected != got)
    if not len(where):
        return None
    timed = quantity != "output"
    at = tuple(where[where[:, 1].argmin()] if timed else where[0])
    return Mismatch(
        quantity=quantity,
        population=population,
        sample=int(at[0]),
        time_step=int(at[1]) if timed else None,
        index=tuple(int(i) for i in at[2 if timed else 1 :]),
        expected=int(expected[at]),
        got=int(got[at]),
    )


def _first(mismatches: Sequence[Mismatch], populations: Sequence[str]) -> Mismatch | None:
    """Return the mismatch that is first by time step, then quantity, population and sample; outputs are last.

    If each mismatch is the first of its part of the samples, the result is the first of all samples.
    """

    def rank(mismatch: Mismatch) -> tuple[float, int, int, int]:
        step, quantity = mismatch.time_step, QUANTITIES.index(mismatch.quantity)
        place = populations.index(mismatch.population) if step is not None else 0
        return (np.inf if step is None else step, quantity, place, mismatch.sample)

    return min(mismatches, key=rank, default=None)


# ---- parts ------------------------------------------------------------------------------------


def join_samples(network: IntNetwork, parts: Sequence[tuple[int, Comparisons]]) -> Comparisons:
    """Merge (index of the first sample, result) of all parts into the result of one comparison."""
    alike = zip(*([(start, each) for each in part.comparisons] for start, part in parts), strict=True)
    failed = dict.fromkeys(name for _, part in parts for name in part.failed)
    counted = [part.counted for _, part in parts if part.counted is not None]
    return Comparisons(
        comparisons=tuple(join_parts(network, comparisons) for comparisons in alike),
        failed=tuple(failed),
        overflows=join_overflows(part.overflows for _, part in parts),
        trace=parts[0][1].trace,
        counted=join_counts(counted) if counted else None,
    )


def join_parts(network: IntNetwork, parts: Sequence[tuple[int, Comparison]]) -> Comparison:
    """Merge the parts of one executor; if one of them did not run, the whole counts as not run."""
    one = parts[0][1]
    if broken := [part for _, part in parts if part.not_run]:
        return Comparison(execution=one.execution, not_run=broken[0].not_run)
    found = [
        replace(part.first_mismatch, sample=start + part.first_mismatch.sample)
        for start, part in parts
        if part.first_mismatch is not None
    ]
    counts = {count: sum(getattr(part, count) for _, part in parts) for count in COUNTS}
    return replace(one, **counts, first_mismatch=_first(found, [p.name for p in network.layers]))


# verify.json as a certificate: `verify FOLDER --check` repeats the verification and compares the results.
#
# Counts must be equal; averages (rates, errors) must agree within the rounding of their sums. Results that
# cannot be reproduced here (Lava is not installed, the PyTorch model is not in the folder) are reported as
# not checked.


STATEMENTS = ("assumptions", "samples", "populations", "first_flip", "predictions", "lava_floating_point")
ACCURACIES = ("data", "samples", "float", "integer")
ROUNDING = 1e-9  # tolerance for averages, which other processors may sum in another order

LAVA_CLAIM = "bit-accurate to Lava's fixed-point model"


@record
class CertificateCheck(Report):
    """How many statements of a certificate were reproduced, and which were not."""

    held: int
    broken: tuple[str, ...]
    not_checked: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.broken

    def lines(self) -> list[str]:
        """Return the lines of the printed report."""
        verdict = "the certificate holds" if self.holds else "the certificate does not hold"
        lines = [f"{verdict}: {self.held} statements reproduced, {len(self.broken)} not"]
        lines += [f"  {statement}" for statement in self.broken]
        return lines + [f"not checked: {statement}" for statement in self.not_checked]


def read_certificate(file: Path) -> dict[str, Any]:
    """Read verify.json; raise FormatError if it is not a certificate."""
    recorded = read_json(file)
    samples = recorded.get("samples") if isinstance(recorded, dict) else None
    comparisons = recorded.get("comparisons") if isinstance(samples, int) and samples > 0 else None
    if not isinstance(comparisons, list) or not all(
        isinstance(each, dict) and isinstance(each.get("execution"), str) for each in comparisons
    ):
        raise FormatError(f"{file}: not a certificate written by `export`. Export again.")
    return dict(recorded)


def check_certificate(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> CertificateCheck:
    """Compare the recorded results of `verify` with new ones, both as JSON."""
    again = {each["execution"]: each for each in found["comparisons"]}
    pairs: list[tuple[str, Any, Any]] = []
    not_checked = []
    for before in recorded["comparisons"]:
        name = before["execution"]
        now = again.get(name, {"not_run": "the folder lacks what it needs"})
        if why := before.get("not_run") or now.get("not_run"):
            not_checked.append(f"the comparison with {name}, which was not run: {why}")
        elif before.get("extent") != now.get("extent"):
            extents = (each.get("extent") or "all samples" for each in (before, now))
            not_checked.append("the comparison with {}: {} then, {} now".format(name, *extents))
        else:
            pairs.append((name, before, now))
    pairs += [(key, recorded.get(key), found.get(key)) for key in STATEMENTS]
    before, now = (each.get("accuracy") or {} for each in (recorded, found))
    pairs += [(f"accuracy, {key}", before.get(key), now.get(key)) for key in ACCURACIES]
    known = [(where, old, new) for where, old, new in pairs if old is not None and new is not None]
    broken = [list(_differences(*pair)) for pair in known]
    return CertificateCheck(
        held=sum(not differences for differences in broken),
        broken=tuple(difference for differences in broken for difference in differences),
        not_checked=tuple(not_checked),
    )


def _differences(where: str, old: Any, new: Any) -> Iterator[str]:
    """Yield a message for each place where two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            yield from _differences(f"{where}, {key}", old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            name = left.get("name", index) if isinstance(left, dict) else index
            yield from _differences(f"{where} {name}", left, right)
    elif isinstance(old, float) and isinstance(new, float):
        if not isclose(old, new, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"{where}: {old} then, {new} now"
    elif old != new:
        yield f"{where}: {old} then, {new} now"
