"""Try other options for a network that lost accuracy by quantization, so that advice is known to help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..base import DeployError, announce
from ..formats.options import AUTO, ExportOptions
from ..verify import Accuracy, Trial

MAX_TRIALS = 6
PLAIN: dict[str, Any] = {"calibration": AUTO, "input_offset": AUTO, "thresholds": "own", "input_bits": None}
WIDEST: dict[str, Any] = {"weight_bits": None, "most_bytes": None, "most_cores": None}


def try_others(
    options: ExportOptions,
    widest: int,
    measure: Callable[[ExportOptions], Accuracy],
    command: Callable[[ExportOptions], str],
) -> tuple[Trial, ...]:
    """Measure the accuracy with other options, one change after another, until it is kept."""
    tried: list[Trial] = []
    for changes in [*_changes(options, widest)][:MAX_TRIALS]:
        other = replace(options, **changes)
        announce(f"accuracy was lost; trying {command(other)}")
        try:
            found = measure(other)
        except DeployError as error:
            announce(f"not possible: {error}")
            continue
        trial = Trial(command=command(other), integer_network=found.integer_network, keeps=not found.lost)
        tried.append(trial)
        if trial.keeps:
            break
    return tuple(tried)


def _changes(options: ExportOptions, widest: int) -> Iterator[dict[str, Any]]:
    """Yield changes of the options given by hand, each alone and all together; then finer integers."""
    given = {name: value for name, value in PLAIN.items() if getattr(options, name) != value}
    yield from ({name: value} for name, value in given.items())
    if len(given) > 1:
        yield given
    if options.weight_bits == AUTO:
        yield {**given, **WIDEST}
    bits = options.weight_bits if isinstance(options.weight_bits, int) else widest
    yield from ({**given, "weight_bits": more} for more in (bits + 1, bits + 2) if more < widest)
    if bits < widest:
        yield {**given, **WIDEST}
    if options.overflow == "proved":
        yield {**given, **WIDEST, "overflow": "measured"}
