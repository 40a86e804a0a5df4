"""Tapes: memory that this process and Lava's share, one row per time step.

Lava moves variables between processes one number at a time, which takes minutes for a trace. A tape is
mapped before Lava's processes are born, and they inherit it: it has no name and no file, so nothing is
left of it when all who hold it are gone, however they went.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np

from ...base import Array
from ...ir import Shape


class Tape:
    """Rows of one shape, used in turn: what belongs to Lava's time step t is in row (t - 1) mod rows."""

    def __init__(self, rows: int, shape: Shape, kind: Any) -> None:
        size = rows * prod(shape) * np.dtype(kind).itemsize
        self.values: Array = np.frombuffer(mmap.mmap(-1, size), kind).reshape(rows, *shape)

    def __len__(self) -> int:
        return len(self.values)

    def write(self, time_step: int, values: Array) -> None:
        self.values[(time_step - 1) % len(self)] = values

    def read(self, time_step: int) -> Array:
        row: Array = self.values[(time_step - 1) % len(self)]
        return row

    def rows(self, done: int, count: int) -> Array:
        """Where the `count` time steps after the first `done` are; no more than there are rows."""
        return (done + np.arange(count)) % len(self)
