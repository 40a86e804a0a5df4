"""verify.json as a certificate: `verify FOLDER --check` finds again what was found when it was written.

Counts are compared with equality; averages (rates, errors) up to the rounding of their sums. What cannot
be found again here (Lava is not installed, the PyTorch model is not in the folder) is named, not passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isclose
from pathlib import Path
from typing import Any

from ..base import FormatError, record

STATEMENTS = ("samples", "populations", "first_flip", "predictions", "lava_floating_point")
ACCURACIES = ("data", "samples", "float", "integer")
ROUNDING = 1e-9  # of averages, which other processors may sum in another order

LAVA_CLAIM = "bit-accurate to Lava's fixed-point model"


@record
class Check:
    """What became of a certificate's statements."""

    held: int
    broken: tuple[str, ...]
    not_checked: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.broken

    def to_json(self) -> dict[str, Any]:
        return {"held": self.held, "broken": list(self.broken), "not_checked": list(self.not_checked)}

    def lines(self) -> list[str]:
        """For people."""
        verdict = "the certificate holds" if self.holds else "THE CERTIFICATE DOES NOT HOLD"
        lines = [f"{verdict}: {self.held} statements found again, {len(self.broken)} not"]
        lines += [f"  {statement}" for statement in self.broken]
        return lines + [f"not checked: {statement}" for statement in self.not_checked]


def read_certificate(file: Path) -> dict[str, Any]:
    """What verify.json says; refused where it is no such file."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{file}: not readable as JSON ({error}).") from error
    well_formed = isinstance(told, dict) and isinstance(told.get("samples"), int) and told["samples"] > 0
    comparisons = told.get("comparisons") if well_formed else None
    if not isinstance(comparisons, list) or not all(
        isinstance(each, dict) and isinstance(each.get("execution"), str) for each in comparisons
    ):
        raise FormatError(f"{file}: no certificate; `export` writes one. Export again.")
    return dict(told)


def check(told: Mapping[str, Any], found: Mapping[str, Any]) -> Check:
    """What `verify` found before against what it finds now, both as its JSON."""
    again = {each["execution"]: each for each in found["comparisons"]}
    pairs: list[tuple[str, Any, Any]] = []
    not_checked = []
    for before in told["comparisons"]:
        name = before["execution"]
        now = again.get(name, {"not_run": "it needs what the folder does not hold"})
        if why := before.get("not_run") or now.get("not_run"):
            not_checked.append(f"{name}: {why}")
        else:
            pairs.append((name, before, now))
    pairs += [(key, told.get(key), found.get(key)) for key in STATEMENTS]
    before, now = (each.get("accuracy") or {} for each in (told, found))
    pairs += [(f"accuracy, {key}", before.get(key), now.get(key)) for key in ACCURACIES]
    known = [(where, old, new) for where, old, new in pairs if old is not None and new is not None]
    broken = [list(_differences(*pair)) for pair in known]
    return Check(
        held=sum(not differences for differences in broken),
        broken=tuple(difference for differences in broken for difference in differences),
        not_checked=tuple(not_checked),
    )


def _differences(where: str, told: Any, found: Any) -> Iterator[str]:
    """Each place at which two pieces of JSON differ."""
    if isinstance(told, dict) and isinstance(found, dict):
        for key in told.keys() | found.keys():
            yield from _differences(f"{where}, {key}", told.get(key), found.get(key))
    elif isinstance(told, list) and isinstance(found, list) and len(told) == len(found):
        for index, (left, right) in enumerate(zip(told, found, strict=True)):
            name = left.get("name", index) if isinstance(left, dict) else index
            yield from _differences(f"{where} {name}", left, right)
    elif isinstance(told, float) and isinstance(found, float):
        if not isclose(told, found, rel_tol=ROUNDING, abs_tol=ROUNDING):
            yield f"{where}: {told} then, {found} now"
    elif told != found:
        yield f"{where}: {told} then, {found} now"
