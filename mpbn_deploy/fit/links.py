"""Loads of the links between chips.

Chips have links to their four neighbors: Loihi has a parallel interface on each side (WikiChip Fuse, 2019).
How the chips of a board are arranged is not public. So a grid as square as possible is assumed, in which
chips are numbered in rows, every second row backwards, so that consecutive chips are neighbors:

    0 1 2 3
    7 6 5 4

Messages travel along their row, then along their column, as they do on a chip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isqrt
from typing import NamedTuple

import numpy as np

from ..base import Array

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
