"""Curves over the epochs of one training, or of several side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO

from matplotlib import style
from matplotlib.figure import Figure

from .drawing import BLUE, MUTED, ORANGE, SHARP, STYLE, VERMILION, WIDTH
from .settings import Epoch

COLORS = (BLUE, VERMILION, "#009e73", ORANGE, "#cc79a7", "#56b4e9")
PANELS: dict[str, Callable[[Epoch], float]] = {
    "training loss": lambda epoch: epoch.train_loss,
    "test accuracy, percent": lambda epoch: 100 * epoch.test_accuracy,
}


def training_curves(histories: Mapping[str, Sequence[Epoch]]) -> bytes:
    """A PNG: loss and accuracy of each history; names before a '/' share a color."""
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
    """The figure as a file's content."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters the font lacks show as boxes
        figure.savefig(buffer, format="png", dpi=SHARP, metadata={"Software": None})
    return buffer.getvalue()
