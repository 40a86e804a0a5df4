"""How many bits a weight takes, and how many words a row of weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base import Array
from ..profile import HardwareProfile


def weight_bits(weight: Array) -> int:
    """The bits, sign included, that hold every weight once common factors of two are left out.

    Factors of two go to the exponent that a connection's weights share, as in lava-dl's
    `optimize_weight_bits`.
    """
    mantissa = weight >> trailing_zeros(weight)
    return signed_bits(int(mantissa.min()), int(mantissa.max()))


def stored_bits(weight: Array, profile: HardwareProfile) -> int:
    """The bits in which a core stores each weight: no sign where all have the same, no width it lacks.

    Intel's compiler does so: 1 bit for weights that are all one, 8 bits for those that need 7.
    """
    mantissa = weight >> trailing_zeros(weight)
    low, high = int(mantissa.min()), int(mantissa.max())
    needed = signed_bits(low, high) if low < 0 <= high else max(max(high, -low).bit_length(), 1)
    widths = profile.allowed("core.stored_weight_bits")
    return next_width(needed, widths.values if widths else ())


def next_width(needed: int, widths: Sequence[int]) -> int:
    """The first width that is wide enough; `needed` itself if none is."""
    return min((width for width in widths if width >= needed), default=needed)


def trailing_zeros(weight: Array) -> int:
    """The largest k such that 2**k divides every weight; 0 if all are zero."""
    together = int(np.bitwise_or.reduce(weight, axis=None))
    return (together & -together).bit_length() - 1 if together else 0


def signed_bits(low: int, high: int) -> int:
    """The least b with -2**(b-1) <= low and high < 2**(b-1)."""
    return max(high, -low - 1, 0).bit_length() + 1


def row_words(weights: int, bits: int, profile: HardwareProfile) -> int:
    """The words of one row; a row longer than `core.row_entries` goes on after another header."""
    header, word = profile.value("core.row_header_bits"), profile.value("core.word_bits")
    entries = profile.limit("core.row_entries")
    return words_of_row(weights, bits, header, word, entries.value if entries else None)


def words_of_row(weights: int, bits: int, header: int, word: int, entries: int | None) -> int:
    """The same, for those who know the profile's numbers."""
    longest = entries or max(weights, 1)
    whole, rest = divmod(weights, longest)
    words = whole * -(-(longest * bits + header) // word)
    return words + (-(-(rest * bits + header) // word) if rest else 0)
