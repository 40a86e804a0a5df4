"""Inline SVG figures: elements, paths, axes, and the colors of populations.

Inline figures take their fonts and their light or dark colors from the page's style sheet. All external text
is escaped. The output is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from math import floor, log10

from markupsafe import Markup, escape

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
