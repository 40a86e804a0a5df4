"""Count the bits of weights and the memory words of rows of weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base import Array, remembered
from ..profile import HardwareProfile


def weight_bits(weight: Array) -> int:
    """Return the bits, sign included, of every weight divided by the common power of two.

    The power of two goes into the exponent of the connection, as in lava-dl's `optimize_weight_bits`.
    """
    return signed_bits(*_mantissa_ends(weight))


def stored_bits(weight: Array, profile: HardwareProfile) -> int:
    """Return the bits per weight in core memory: no sign bit if all signs agree, and only supported widths.

    Intel's compiler uses 1 bit for weights that are all one, and 8 bits where 7 are needed.
    """
    low, high = _mantissa_ends(weight)
    needed = signed_bits(low, high) if low < 0 <= high else max(max(high, -low).bit_length(), 1)
    widths = profile.allowed("core.stored_weight_bits")
    return next_width(needed, widths.values if widths else ())


@remembered
def _mantissa_ends(weight: Array) -> tuple[int, int]:
    """Return the smallest and the largest weight, divided by the common power of two."""
    mantissa = weight >> trailing_zeros(weight)
    return int(mantissa.min()), int(mantissa.max())


def next_width(needed: int, widths: Sequence[int]) -> int:
    """Return the smallest width that is at least `needed`; `needed` itself if there is none."""
    return min((width for width in widths if width >= needed), default=needed)


def trailing_zeros(weight: Array) -> int:
    """Return the largest k such that 2**k divides every weight; 0 if all are zero."""
    together = int(np.bitwise_or.reduce(weight, axis=None))
    return (together & -together).bit_length() - 1 if together else 0


def signed_bits(low: int, high: int) -> int:
    """Return the least b with -2**(b-1) <= low and high < 2**(b-1)."""
    return max(high, -low - 1, 0).bit_length() + 1


def row_words(weights: int, bits: int, profile: HardwareProfile) -> int:
    """Return the words of one row; after every `core.row_entries` weights, a row needs another header."""
    header, word = profile.value("core.row_header_bits"), profile.value("core.word_bits")
    entries = profile.limit("core.row_entries")
    return words_of_row(weights, bits, header, word, entries.value if entries else None)


def words_of_row(weights: int, bits: int, header: int, word: int, entries: int | None) -> int:
    """Return the words of one row, given the numbers of the profile."""
    longest = entries or max(weights, 1)
    whole, rest = divmod(weights, longest)
    words = whole * -(-(longest * bits + header) // word)
    return words + (-(-(rest * bits + header) // word) if rest else 0)
