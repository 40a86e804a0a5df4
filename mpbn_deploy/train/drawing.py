"""What images of trainings share: palette and style.

Only Figure objects are used, never pyplot: no window, no display, nothing left open.
"""

from __future__ import annotations

from typing import Any

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, VERMILION = "#0072b2", "#e69f00", "#d55e00"
INK, MUTED, LINE = "#1f2933", "#66717d", "#c9d1d9"

WIDTH = 10.0  # inches
SHARP = 192  # dots per inch

STYLE: dict[str, Any] = {
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
