"""HDF5 files as trees of plain values, read with bounds and written to the same bytes each time.

A tree is a dictionary whose values are arrays, strings or trees. The only file that imports h5py.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .errors import FormatError
from .files import write_atomically

Tree = dict[str, Any]

# Far more than any network we know needs, and little enough for any machine: a hostile file must
# not fill the memory.
LARGEST_ARRAY = 2**27  # values of up to eight bytes
LARGEST_TREE = 2**28
MOST_ENTRIES = 100_000
UNSUSPICIOUS_BYTES = 2**24
LARGEST_EXPANSION = 1100  # of compressed values; those that were never written take no room at all


def read_tree(path: Path) -> Tree:
    """All of an HDF5 file; refuses links, virtual data and sizes beyond the bounds above."""
    if not path.is_file():
        raise FormatError(f"{path}: no such file.")
    try:
        with h5py.File(path, "r") as file:
            return _Reader(path).group(file)
    except FormatError:
        raise
    except Exception as error:  # whatever a damaged or hostile file makes the library do
        raise FormatError(f"{path}: not a readable HDF5 file ({error}). Is it complete?") from error


def write_tree(path: Path, tree: Tree) -> None:
    """Write a tree, whole or not at all; the same tree gives the same bytes."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=False) as file:
        _write(file, tree)
    write_atomically(path, buffer.getvalue())


def _write(group: Any, tree: Tree) -> None:
    for name, value in tree.items():
        match value:
            case dict():
                _write(group.create_group(name), value)
            case str():
                group.create_dataset(name, data=value, dtype=h5py.string_dtype("ascii"), track_times=False)
            case _:
                group.create_dataset(name, data=np.asarray(value), track_times=False)


class _Reader:
    """Reads one file and counts what it has read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.elements = 0
        self.entries = 0

    def group(self, group: Any) -> Tree:
        tree: Tree = {}
        for name in group:
            self._count(entries=1)
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise FormatError(f"{self.path}: {group.name}/{name} is a link; only plain data is read.")
            item = group[name]
            tree[name] = self.group(item) if isinstance(item, h5py.Group) else self.dataset(item)
        return tree

    def dataset(self, dataset: Any) -> Any:
        size = int(dataset.size or 0) * max(1, dataset.dtype.itemsize // 8)
        if size > LARGEST_ARRAY:
            raise FormatError(f"{self.path}: {dataset.name} is too large, {dataset.shape} of {dataset.dtype}")
        self._count(elements=size)
        stored, claimed = dataset.id.get_storage_size(), int(dataset.nbytes or 0)
        if claimed > max(UNSUSPICIOUS_BYTES, LARGEST_EXPANSION * stored):
            raise FormatError(
                f"{self.path}: {dataset.name} claims {claimed} bytes, of which the file holds {stored}."
            )
        if dataset.is_virtual or dataset.external:
            raise FormatError(
                f"{self.path}: {dataset.name} keeps its values in another file; that is not read."
            )
        value = dataset[()]
        if isinstance(value, bytes):
            return value.decode("utf-8", errors="replace")
        return value

    def _count(self, *, elements: int = 0, entries: int = 0) -> None:
        self.elements += elements
        self.entries += entries
        if self.elements > LARGEST_TREE or self.entries > MOST_ENTRIES:
            raise FormatError(
                f"{self.path}: more than {LARGEST_TREE} values or {MOST_ENTRIES} entries; not read further."
            )
