"""Links between chips: routes in a grid, and loads by hand."""

import numpy as np
import pytest

from mpbn_deploy.fit.chips import chip_at, grid_of, link_loads, place_of


@pytest.mark.parametrize(
    ("chips", "grid"),
    [
        (1, (1, 1)),
        (2, (2, 1)),
        (3, (3, 1)),
        (8, (4, 2)),
        (11, (4, 3)),
        (32, (8, 4)),
        (768, (32, 24)),
        (1152, (36, 32)),
    ],
)
def test_the_grid_holds_all_chips_and_is_nearly_square(chips, grid):
    columns, rows = grid_of(chips)
    assert (columns, rows) == grid and columns * rows >= chips > columns * (rows - 1)


@pytest.mark.parametrize("columns", [1, 3, 4])
def test_consecutive_chips_are_neighbors(columns):
    for chip in range(3 * columns - 1):
        (row, column), (other_row, other_column) = (place_of(each, columns) for each in (chip, chip + 1))
        assert abs(row - other_row) + abs(column - other_column) == 1
        assert chip_at((row, column), columns) == chip


def test_messages_load_every_link_on_their_way():
    """In a grid of 4 x 2, from chip 0 to chip 5 (below chip 2): two links east, then one south."""
    messages = np.zeros((8, 8))
    messages[0, 5], messages[1, 2], messages[3, 3] = 10, 4, 99
    assert link_loads(messages) == {(0, 1): 10, (1, 2): 14, (2, 5): 10}
    messages[5, 0] = 1  # back: two links east to west, then north
    back = {link: load for link, load in link_loads(messages).items() if load == 1}
    assert back == {(5, 6): 1, (6, 7): 1, (7, 0): 1}


def test_nothing_crosses_a_single_chip():
    assert link_loads(np.array([[7.0]])) == {}
