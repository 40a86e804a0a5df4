"""How the page writes numbers: one way for each kind, here and nowhere else."""

from __future__ import annotations

NONE = "–"  # noqa: RUF001  (where there is nothing to show)
UNKNOWN = "?"  # what nobody published


def whole(number: int | None) -> str:
    return NONE if number is None else f"{number:,}"


def plural(count: int | None, noun: str) -> str:
    """'1 core', '1,234 cores', '? cores'"""
    if count is None:
        return f"{UNKNOWN} {noun}s"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(share: float | None, digits: int = 2) -> str:
    """Of a share, where 1 is all."""
    return NONE if share is None else f"{share:,.{digits}%}".replace("%", " %")


def hundredths(percents: float | None) -> str:
    """Of a number that is in percent already."""
    return NONE if percents is None else f"{percents:,.2f} %"


def number(value: float | None) -> str:
    """Four digits that count, or all before the point."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def size(count: int) -> str:
    """Of so many bytes: '512 B', '478 kB', '12.3 MB'"""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.0f} kB" if count < 999_500 else f"{count / 1e6:.1f} MB"


def by(sizes: tuple[int, ...]) -> str:
    """'16 × 8 × 8'"""  # noqa: RUF002
    return " × ".join(map(str, sizes))  # noqa: RUF001


def shortened(name: str, letters: int) -> str:
    """A name in one line of a picture, its middle left out where it is longer; tables show it whole."""
    name = " ".join(name.split())
    if len(name) <= letters:
        return name
    half = (letters - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
