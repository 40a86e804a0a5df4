"""verify.json as a certificate: `verify FOLDER --check` repeats the verification and compares the results.

Counts must be equal; averages (rates, errors) must agree within the rounding of their sums. Results that
cannot be reproduced here (Lava is not installed, the PyTorch model is not in the folder) are reported as
not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from pathlib import Path
from typing import Any

from ..base import FormatError, Report, read_json, record

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
