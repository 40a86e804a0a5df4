"""Number formats of the report page, one per kind of number."""

from __future__ import annotations

NONE = "–"  # noqa: RUF001  (nothing to show)
UNKNOWN = "?"  # not published


def integer(number: int | None) -> str:
    """Return '1,234'."""
    return NONE if number is None else f"{number:,}"


def plural(count: int | None, noun: str) -> str:
    """Return '1 core', '1,234 cores' or '? cores'."""
    if count is None:
        return f"{UNKNOWN} {noun}s"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(share: float | None, digits: int = 2) -> str:
    """Format a share, where 1 is 100%."""
    return NONE if share is None else f"{share:,.{digits}%}"


def percentage(percents: float | None) -> str:
    """Format a number that is already in percent."""
    return NONE if percents is None else f"{percents:,.2f}%"


def number(value: float | None) -> str:
    """Return four significant digits, or all digits of large numbers."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def byte_size(count: int) -> str:
    """Return '512 B', '478 kB' or '12.3 MB'."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.0f} kB" if count < 999_500 else f"{count / 1e6:.1f} MB"


def dimensions(sizes: tuple[int, ...]) -> str:
    """Return '16 × 8 × 8'."""  # noqa: RUF002
    return " × ".join(map(str, sizes))  # noqa: RUF001


def shortened(name: str, letters: int) -> str:
    """Abbreviate the middle of a long name to fit a figure; tables show full names."""
    name = " ".join(name.split())
    if len(name) <= letters:
        return name
    half = (letters - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
