"""Inline SVG figures: elements, paths, axes, and the colors of populations.

Inline figures take their fonts and their light or dark colors from the page's style sheet. All external text
is escaped. The output is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from math import floor, log10

from markupsafe import Markup, escape

from ..base import record

# Okabe and Ito's color-blind safe palette, adapted to be readable on white and on black.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#a89a1c", "#8c6bb1")
FIRST_HUE, LAST_HUE = 265, 30  # for more populations than COLORS: blue to orange, by depth
NICE_STEPS = (1, 2, 2.5, 5, 10)


def element(tag: str, content: str | Markup = "", **attributes: object) -> Markup:
    """Return '<tag name="value">content</tag>'; `class_` means class, and underscores become hyphens."""
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _text(value))
        for name, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(Markup(tag), written, escape(content), Markup(tag))


def group(parts: Iterable[Markup], **attributes: object) -> Markup:
    return element("g", Markup("").join(parts), **attributes)


def picture(parts: Iterable[Markup], width: float, height: float, label: str, **attributes: object) -> Markup:
    """Return a scalable <svg>; `label` describes it to screen readers."""
    box = f"0 0 {short(width)} {short(height)}"
    content = Markup("").join(parts)
    return element("svg", content, viewBox=box, role="img", aria_label=label, **attributes)


def text(x: float, y: float, content: str, class_: str = "", anchor: str = "start") -> Markup:
    return element("text", content, x=x, y=y, class_=class_, text_anchor=anchor)


def line(start: tuple[float, float], end: tuple[float, float], class_: str) -> Markup:
    return element("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=class_)


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """Return path data; many rectangles in one path element take little space."""
    return f"M{short(x)} {short(y)}h{short(width)}v{short(height)}h{short(-width)}z"


def short(value: float) -> str:
    """Round to two decimals and drop trailing zeros."""
    written = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if written in ("", "-0") else written


def _text(value: object) -> str:
    return short(value) if isinstance(value, float) else str(value)


# ---- axes -------------------------------------------------------------------------------------


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` equidistant round numbers from low to high."""
    rough = (high - low) / (most - 1)
    size = 10.0 ** floor(log10(rough))
    step = next(size * nice for nice in NICE_STEPS if size * nice >= rough * (1 - 1e-9))
    first = -floor(-low / step + 1e-9)
    numbers = takewhile(lambda value: value <= high + step * 1e-9, (n * step for n in count(first)))
    return [round(value, 12) for value in numbers]


def decades(low: float, high: float) -> list[int]:
    """Return the exponents of the powers of ten that enclose low and high."""
    return list(range(floor(log10(low)), -floor(-log10(high)) + 1))


# ---- colors -----------------------------------------------------------------------------------


def population_colors(names: Sequence[str]) -> dict[str, str]:
    """Assign each population the color it has in all figures of the page."""
    if len(names) <= len(COLORS):
        return dict(zip(names, COLORS, strict=False))
    share = (LAST_HUE - FIRST_HUE) / (len(names) - 1)
    lightness = (0.58, 0.72)  # alternates, so that neighbors differ in more than hue
    return {
        name: f"oklch({lightness[place % 2]} 0.13 {FIRST_HUE + share * place:.0f})"
        for place, name in enumerate(names)
    }


# Number formats of the report page, one per kind of number.


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


# Rows of small figures of one kind; the page shows the first ones and collapses the rest.


SHOWN = 12  # the rest are in a closed <details> element


@record
class Panel:
    """A figure of one population or connection."""

    name: str
    notes: tuple[str, ...]
    picture: Markup
    color: str | None = None


@record
class Panels:
    """Panels shown directly, and panels that the reader can expand."""

    shown: tuple[Panel, ...]
    collapsed: tuple[Panel, ...]


def arrange(panels: Sequence[Panel]) -> Panels:
    """Divide panels into shown and collapsed ones."""
    return Panels(shown=tuple(panels[:SHOWN]), collapsed=tuple(panels[SHOWN:]))
