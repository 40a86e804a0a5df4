"""Tapes: memory shared with Lava's processes, one row per time step.

Lava moves variables between processes one number at a time, which takes minutes for a trace. A tape is
mapped before Lava's processes are forked, so they inherit it. It has no name and no file, so the operating
system frees it when the last process exits, even after a crash.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np

from ...base import Array
from ...ir import Shape


class Tape:
    """A ring of rows: Lava's time step t uses row (t - 1) mod rows."""

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
        """Return the rows of the `count` time steps after the first `done`; count <= len(self)."""
        return (done + np.arange(count)) % len(self)
