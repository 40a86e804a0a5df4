"""Small HDF5 files that are expensive to read, made from a good one; each function returns their path."""

import struct
import zlib
from itertools import pairwise

import h5py
import numpy as np
from networks import int_chain

from mpbn_deploy.formats.netx import write_netx

HEAP_HEADER, OBJECT_HEADER = 16, 16  # bytes


def good(folder):
    write_netx(int_chain(), folder / "good.net")
    return folder / "good.net"


def endless_heap(folder):
    """The first object of the global heap has a size of -16: the library never gets to the next one."""
    content = bytearray(good(folder).read_bytes())
    first = content.index(b"GCOL") + HEAP_HEADER
    struct.pack_into("<Q", content, first + 8, 2**64 - OBJECT_HEADER)
    return written(folder / "endless_heap.net", content)


def large_chunk(folder):
    """Ten values in a chunk of a gigabyte."""
    path = good(folder)
    with h5py.File(path, "a") as file:
        dataset = file.create_dataset(
            "layer/1/extra", shape=(10,), maxshape=(None,), dtype="i1", chunks=(2**30,), compression="gzip"
        )
        dataset.id.write_direct_chunk((0,), zlib.compress(bytes(2**20)))
    return path


def aliased_strings(folder, count=4000, length=2**20):
    """Four thousand strings of a megabyte each, which are all the same one in the file."""
    path = good(folder)
    with h5py.File(path, "a") as file:
        dataset = file.create_dataset("layer/1/extra", shape=(count,), dtype=h5py.string_dtype())
        dataset[0] = "x" * length
        start = dataset.id.get_offset()
    content = bytearray(path.read_bytes())
    content[start : start + 16 * count] = content[start : start + 16] * count
    return written(path, content)


def link_fan(folder, levels=8, links=20):
    """Groups that hold the next group twenty times, which holds the next group twenty times, and so on."""
    path = good(folder)
    with h5py.File(path, "a") as file:
        groups = [file.create_group(f"fan{level}") for level in range(levels)]
        for group, inner in pairwise(groups):
            for link in range(links):
                group[f"link{link}"] = inner
    return path


def endless_group(folder):
    """A group that holds itself."""
    path = good(folder)
    with h5py.File(path, "a") as file:
        file["layer/itself"] = file["layer"]
    return path


def many_zeros(folder, count=60):
    """Arrays of zeros that were never written: sixteen megabytes each, and none in the file."""
    path = good(folder)
    with h5py.File(path, "a") as file:
        for number in range(count):
            file.create_dataset(f"zeros{number}", shape=(2**21,), dtype="i8")
    return path


def lists(folder):
    """A list of lists, which may share their numbers in the file as strings do."""
    path = good(folder)
    with h5py.File(path, "a") as file:
        dataset = file.create_dataset("layer/1/extra", shape=(3,), dtype=h5py.vlen_dtype(np.int32))
        dataset[0] = [1, 2, 3]
    return path


def deep_groups(folder, levels=3000):
    path = good(folder)
    with h5py.File(path, "a") as file:
        group = file
        for _ in range(levels):
            group = group.create_group("a")
    return path


def written(path, content):
    path.write_bytes(bytes(content))
    return path


REJECTED = {
    large_chunk: "extra is stored in chunks of 1073741824 bytes, but holds 10",
    aliased_strings: "memory",
    link_fan: "has two names, or holds itself",
    endless_group: "has two names, or holds itself",
    many_zeros: "more than 33554432 values",
    lists: "extra holds lists or references",
    deep_groups: "not a readable HDF5 file",
}
