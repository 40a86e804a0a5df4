"""Draw loss and accuracy over the epochs of one or more trainings.

Only Figure objects are used, not pyplot, so no display is needed and nothing stays open.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

from .settings import Epoch

# The palette of Okabe and Ito, which is safe for color-blind readers.
BLUE, ORANGE, VERMILION = "#0072b2", "#e69f00", "#d55e00"
INK, MUTED, LINE = "#1f2933", "#66717d", "#c9d1d9"

WIDTH = 10.0  # inches
DOTS_PER_INCH = 192

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib
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

COLORS = (BLUE, VERMILION, "#009e73", ORANGE, "#cc79a7", "#56b4e9")
PANELS: dict[str, Callable[[Epoch], float]] = {
    "training loss": lambda epoch: epoch.train_loss,
    "accuracy on the validation or test split, percent": lambda epoch: 100 * epoch.accuracy,
}


def training_curves(histories: Mapping[str, Sequence[Epoch]]) -> bytes:
    """Draw loss and accuracy of each history as a PNG; names with the same part before "/" share a color."""
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        groups = list(dict.fromkeys(name.split("/")[0] for name in histories))
        for axes, (title, value) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            for name, history in histories.items():
                group = name.split("/")[0]
                epochs = [epoch.epoch for epoch in history]
                label = group if name == next(n for n in histories if n.split("/")[0] == group) else None
                color = COLORS[groups.index(group) % len(COLORS)]
                axes.plot(epochs, list(map(value, history)), color=color, label=label, marker=".", alpha=0.85)
            axes.set_title(title)
            axes.set_xlabel("epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(visible=True)
        if len(groups) > 1:
            axes.legend(frameon=False, labelcolor=MUTED)
        return as_png(figure)


def as_png(figure: Figure) -> bytes:
    """Return the figure as the content of a PNG file."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph"
        )  # characters missing from the font are drawn as boxes
        figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()
