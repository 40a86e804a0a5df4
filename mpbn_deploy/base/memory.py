"""What glibc does with freed memory; elsewhere, nothing happens."""

from __future__ import annotations

import ctypes
import sys

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # parameters of mallopt
LARGEST_BLOCK = 2**30


def keep_freed_memory() -> None:
    """Let glibc keep freed blocks up to 1 GB.

    By default it returns blocks above 32 MB to the system, and every layer of every training step then pays
    for fresh, zeroed pages.
    """
    _call("mallopt", MMAP_THRESHOLD, LARGEST_BLOCK)
    _call("mallopt", TRIM_THRESHOLD, 2 * LARGEST_BLOCK - 1)


def return_freed_memory() -> None:
    """Let glibc return freed memory to the system: forks copy the tables of all pages, also of free ones."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
