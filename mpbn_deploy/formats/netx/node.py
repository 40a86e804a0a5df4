"""A node of a netx file (a layer, its neurons, a connection), with checked access to its keys.

Errors name the file, the node and the key. Sizes are checked before values are expanded.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import NoReturn

import numpy as np

from ...base import Array, FormatError, Tree, as_text, record
from ...ir import MOST_NEURONS, Pair, Shape

LARGEST_NUMBER = 2**31


@record
class Node:
    """Keys and values of one node; errors call it `name`."""

    path: Path
    name: str
    tree: Tree
    index: int = 0

    def __contains__(self, key: str) -> bool:
        return key in self.tree

    def group(self, key: str) -> Node:
        """Return a child node; its errors name this one."""
        tree = self.tree.get(key)
        if not isinstance(tree, dict):
            self.fail(f"has no group {key!r}")
        return replace(self, tree=tree)

    def shape(self) -> Shape:
        sizes: list[int] = self.integers("shape", most=3).ravel().tolist()
        if len(sizes) not in (1, 3) or min(sizes) < 1 or prod(sizes) > MOST_NEURONS:
            wanted = f"[features] or [channels, height, width], in all 1..{MOST_NEURONS}"
            self.fail(f"has shape {sizes}; {wanted}, is needed")
        return tuple(sizes)

    def per_neuron(self, key: str, shape: Shape) -> Array:
        """One value for all, [channels], or [x, y, channel] -> (channels, 1, 1) or (channel, y, x)"""
        values, channels = self.integers(key), (shape[0], *(1 for _ in shape[1:]))
        if values.size == 1:
            return np.full(channels, values.ravel()[0])
        if values.shape == (shape[0],):
            return values.reshape(channels)
        if values.shape != shape[::-1]:
            self.fail(f"has {key} of shape {values.shape}; ({shape[0]},) or {shape[::-1]} is needed")
        return values.T

    def pair(self, key: str) -> Pair:
        values = self.integers(key, most=2).ravel().tolist()
        return values[0], values[-1]

    def number(self, key: str) -> int:
        """Return one number; lava-dl also writes it once per neuron."""
        values = np.unique(self.integers(key))
        if values.size != 1:
            self.fail(
                f"has {values.size} different values of {key}, {values[0]}..{values[-1]}; one is needed"
            )
        return int(values[0])

    def number_or(self, key: str, default: int) -> int:
        return self.number(key) if key in self.tree else default

    def integers(self, key: str, most: int | None = None) -> Array:
        """Return the 32-bit integers under a key, at least one and at most `most`."""
        values = np.asarray(self.tree.get(key))
        if values.dtype.kind not in "iuf" or values.size == 0:
            self.fail(f"has no numbers under the key {key!r}")
        if most is not None and values.size > most:
            self.fail(f"has {values.size} values of {key}; at most {most} are allowed")
        whole: Array = values if values.dtype.kind in "iu" else np.rint(values)
        fits = whole.min() >= -LARGEST_NUMBER and whole.max() < LARGEST_NUMBER  # both are false for NaN
        if not fits or not np.array_equal(whole, values):
            self.fail(f"has values of {key} that are not 32-bit integers")
        return whole.astype(np.int32)

    def text(self, key: str) -> str:
        if (value := as_text(self.tree.get(key))) is None:
            self.fail(f"has no string under the key {key!r}")
        return value

    def fail(self, reason: str) -> NoReturn:
        raise FormatError(f"{self.path}: {self.name} {reason}.")


def numbered_nodes(path: Path, group: Tree, name: str) -> list[Node]:
    """Return the nodes 0, 1, 2, ... of a group; raise if one is missing."""
    missing = [str(index) for index in range(len(group)) if not isinstance(group.get(str(index)), dict)]
    if missing:
        raise FormatError(f"{path}: {name}s 0..{len(group) - 1} expected; {', '.join(missing[:5])} missing.")
    return [Node(path=path, name=f"{name} {i}", index=i, tree=group[str(i)]) for i in range(len(group))]
