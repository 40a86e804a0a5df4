"""Read and write HDF5 files as trees: dictionaries of arrays, strings and trees.

Reading is bounded, so that a hostile file cannot exhaust memory. Writing is reproducible: the same tree
gives the same bytes. No other file imports h5py.
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

# Well above the needs of any known network, and small enough for any machine.
LARGEST_ARRAY = 2**27  # values of up to eight bytes
LARGEST_TREE = 2**28
MOST_ENTRIES = 100_000
UNSUSPICIOUS_BYTES = 2**24
LARGEST_EXPANSION = 1100  # bytes per stored byte: values that were never written occupy no space in a file


def read_tree(path: Path) -> Tree:
    """Read a whole HDF5 file; reject links, virtual data and sizes beyond the bounds above."""
    if not path.is_file():
        raise FormatError(f"{path}: no such file.")
    try:
        with h5py.File(path, "r") as file:
            return _Reader(path).group(file)
    except FormatError:
        raise
    except Exception as error:  # a damaged or hostile file can make h5py raise anything
        raise FormatError(
            f"{path}: not a readable HDF5 file ({error}). Check that it is complete."
        ) from error


def as_text(value: Any) -> str | None:
    """Return a string, which some libraries write as bytes or as an array of one; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if isinstance(value, str) else None


def write_tree(path: Path, tree: Tree) -> None:
    """Write a tree atomically; the same tree gives the same bytes."""
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
    """Reads one file and enforces the bounds on what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.elements = 0
        self.entries = 0

    def group(self, group: Any) -> Tree:
        tree: Tree = {}
        for name in group:
            self._count(entries=1)
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise FormatError(f"{self.path}: {group.name}/{name} is a link; links are not followed.")
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
                f"{self.path}: {dataset.name} claims {claimed} bytes, but the file holds {stored}."
            )
        if dataset.is_virtual or dataset.external:
            raise FormatError(
                f"{self.path}: {dataset.name} stores its values in another file; only one file is read."
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
                f"{self.path}: more than {LARGEST_TREE} values or {MOST_ENTRIES} entries, which is the limit."
            )
