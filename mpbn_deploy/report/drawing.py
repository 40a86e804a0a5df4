"""What pictures share: palette, style, and a Figure as an SVG that is the same every time.

Only Figure objects are used, never pyplot: no window, no display, nothing left open.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, VERMILION = "#0072b2", "#e69f00", "#d55e00"
INK, MUTED, LINE, PALE = "#1f2933", "#66717d", "#c9d1d9", "#eef3f7"
LETTERS = 22  # a longer name is shortened in pictures; tables show it whole

WIDTH = 10.0  # inches, which at 96 pixels per inch is the width of the page's column
SHARP = 192  # dots per inch of what cannot be vectors: two per pixel

STYLE: dict[str, Any] = {
    "svg.hashsalt": "mpbn_deploy",  # ids in the file come from this and not from chance
    "svg.fonttype": "path",  # outlines, so that the picture looks alike on every machine
    "font.family": "DejaVu Sans",  # the one that matplotlib brings along
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.titlepad": 7.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "grid.color": "#e8ecf0",
    "figure.facecolor": "white",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.hspace": 0.04,
    "patch.linewidth": 0.0,
}


def as_data_uri(draw: Callable[..., Figure], *arguments: Any) -> str:
    """The figure that `draw(*arguments)` makes, as a data URI for an <img>."""
    with style.context(["default", STYLE]), warnings.catch_warnings():
        # A name in a script that the font lacks shows as boxes here, and rightly in the tables.
        warnings.filterwarnings("ignore", message="Glyph")
        content = _svg(draw(*arguments))
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode("ascii")


def _svg(figure: Figure) -> bytes:
    buffer = BytesIO()
    nothing = {"Date": None, "Creator": None}
    figure.savefig(buffer, format="svg", dpi=SHARP, metadata=nothing)
    return buffer.getvalue()


def label(name: str, letters: int = LETTERS) -> str:
    """A name as plain text for a picture: not too long, and its dollars are no formula."""
    if len(name) > letters:
        half = (letters - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    return " ".join(name.split()).replace("$", r"\$")
