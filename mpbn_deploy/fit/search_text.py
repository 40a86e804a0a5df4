"""Print the forms of a network that the search for fewer cores found."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from .search import SearchResult, fewest
from .stage import UNKNOWN, list_names, short_verdict


def search_text(target: str, results: list[SearchResult]) -> RenderableType:
    """Return a table of the forms, and how to make the best one."""
    table = Table("equal integers", box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in ("cores", "at least", "chips", "fits"):
        table.add_column(heading, justify="right")
    for result in results:
        numbers = (result.report.cores, result.report.lower_bound, result.report.chips)
        cells = (UNKNOWN if number is None else f"{number:,}" for number in numbers)
        table.add_row(result.change, *cells, short_verdict(result.report))
    if all(result.report.fits is False for result in results):
        remedy = "; --advise looks for changes that do" if results[0].question.untrained is None else ""
        return Group(f"{target}: search for fewer cores", table, f"none of these fits{remedy}")
    best = fewest(results)
    lines = [f"fewest cores on the chip: {best.change}"]
    if best.sparse:
        lines.append(f"rows without zero weights: {list_names(best.sparse)}")
    lines += [f"  {command}" for command in best.commands]
    return Group(f"{target}: search for fewer cores", table, *lines)
