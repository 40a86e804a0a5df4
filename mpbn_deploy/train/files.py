"""The files that a training writes, and how it resumes from them.

model.pt            the network after the last complete epoch
model.best.pt       the network with the best accuracy on the validation split; without one, on the test
                    split, whose accuracy is then biased
model.log.jsonl     one line per epoch: losses, accuracies, learning rate, seconds by the clock and of
                    the processor
model.curves.png    the same as a figure
model.resume.pt     network and optimizer after the last complete epoch; deleted at the end
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from matplotlib import style
from matplotlib.figure import Figure
from torch import Tensor
from torch.optim import Optimizer

from ..base import CheckpointError, record, write_atomically
from ..checkpoint import TRAINING_FORMAT, read_safely, save_model
from ..nn import NEURON_DEFAULTS, SpikingNetwork
from .optimizer import MeanWeights
from .settings import Epoch, Training

ENDINGS = ("log.jsonl", "curves.png")
MOMENTUM, ADAM_STATE = ("momentum_buffer",), ("step", "exp_avg", "exp_avg_sq")  # what optimizers keep


@dataclass(kw_only=True)
class TrainingState:
    """The state of a training: with the settings, it determines the remaining epochs.

    The mean of weights is empty until the epochs that are averaged. Of a teacher, the settings have a digest.
    """

    network: SpikingNetwork
    optimizer: Optimizer
    history: list[Epoch]
    mean: MeanWeights = field(default_factory=MeanWeights)
    teacher: SpikingNetwork | None = None


@record
class TrainingFiles:
    """Writes and restores a training; resuming requires equal `settings`."""

    model: Path
    settings: dict[str, Any]

    def save_epoch(self, state: TrainingState) -> None:
        """Write all files after an epoch, each atomically."""
        last = state.history[-1]
        save_model(self.model, state.network)
        # Epochs of one time step come first and are those of another network.
        before = [epoch.accuracy for epoch in state.history[:-1] if epoch.timesteps == last.timesteps]
        if last.accuracy > max(before, default=-1.0):
            save_model(best_file(self.model), state.network)
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in state.history)
        write_atomically(beside(self.model, "log.jsonl"), lines.encode())
        write_atomically(resume_file(self.model), self._resume_content(state))

    def finish(self, network: SpikingNetwork, history: list[Epoch]) -> None:
        """Write the final network, draw the curves, and delete the file that was only needed to resume."""

        save_model(self.model, network)
        write_atomically(beside(self.model, "curves.png"), training_curves({self.model.stem: history}))
        resume_file(self.model).unlink(missing_ok=True)

    def _resume_content(self, state: TrainingState) -> bytes:
        buffer = io.BytesIO()
        torch.save(
            {
                "format": TRAINING_FORMAT,
                "settings": self.settings,
                "history": [asdict(epoch) for epoch in state.history],
                "network": state.network.body.state_dict(),
                "optimizer": state.optimizer.state_dict(),
                "mean": asdict(state.mean),
            },
            buffer,
        )
        return buffer.getvalue()

    def restore(self, state: TrainingState) -> None:
        """Restore network, optimizer and history of an interrupted training."""
        path = resume_file(self.model)
        if not path.is_file():
            raise CheckpointError(
                f"{path}: not found, so there is nothing to resume: the training of {self.model} is "
                "complete, or stopped during its first epoch. Start again without --resume."
            )
        content = read_safely(path)
        if content.get("format") != TRAINING_FORMAT:
            raise CheckpointError(f"{path}: not a file to resume training from.")
        try:
            self._check_settings(path, {**NEURON_DEFAULTS, **asdict(Training()), **content["settings"]})
            history = [Epoch(**epoch) for epoch in content["history"]]
            state.network.body.load_state_dict(content["network"])
            _restore_momentum(state.optimizer, content["optimizer"]["state"])
            _restore_mean(state, content.get("mean", {"steps": 0, "means": []}))  # older files have none
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path}: damaged, so training cannot resume ({error}).") from error
        if not history or [epoch.epoch for epoch in history] != list(range(1, len(history) + 1)):
            raise CheckpointError(f"{path}: damaged, so training cannot resume (epochs are missing).")
        state.history.extend(history)

    def _check_settings(self, path: Path, found: dict[str, Any]) -> None:
        names = sorted(found.keys() | self.settings.keys())
        other = [n for n in names if found.get(n) != self.settings.get(n)]
        if other:
            listed = ", ".join(
                "other formats or inputs of integers"
                if name == "structure"
                else f"{name} {found.get(name)} (now {self.settings.get(name)})"
                for name in other
            )
            raise CheckpointError(
                f"{path}: belongs to a training with {listed}. Resume with the same options."
            )


def settings_to_resume(model: Path) -> dict[str, Any]:
    """Return the settings of an interrupted training run, as far as they can be read."""
    path = resume_file(model)
    settings = read_safely(path).get("settings") if path.is_file() else None
    return settings if isinstance(settings, dict) else {}


def beside(model: Path, ending: str) -> Path:
    """Return model.<ending> for model.pt."""
    return model.with_name(f"{model.stem}.{ending}")


def files_beside(model: Path) -> list[Path]:
    """Return the paths of all files that a training writes."""
    return [model, best_file(model), *(beside(model, ending) for ending in ENDINGS), resume_file(model)]


def best_file(model: Path) -> Path:
    """Return the path of the network with the best accuracy, in the format of the last one."""
    return beside(model, f"best{model.suffix}")


def resume_file(model: Path) -> Path:
    """Return the path of the file that an interrupted training resumes from."""
    return beside(model, "resume.pt")


def _restore_momentum(optimizer: Optimizer, state: dict[int, dict[str, Any]]) -> None:
    """Restore what the optimizer keeps of each parameter; hyperparameters come from the options."""
    adam = isinstance(optimizer, torch.optim.Adam)
    names = ADAM_STATE if adam else MOMENTUM if optimizer.param_groups[0]["momentum"] > 0 else ()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, parameter in enumerate(parameters):
        if parameter.requires_grad and names:
            optimizer.state[parameter] = {name: _kept(state[index][name], name, parameter) for name in names}


def _restore_mean(state: TrainingState, stored: dict[str, Any]) -> None:
    """Restore the mean of weights over the steps so far."""
    parameters = list(state.network.parameters()) if stored["steps"] else []
    means = zip(stored["means"], parameters, strict=True)
    state.mean = MeanWeights(
        steps=int(stored["steps"]), means=[_kept(mean, "mean", parameter) for mean, parameter in means]
    )


def _kept(value: Tensor, name: str, parameter: Tensor) -> Tensor:
    """Return a copy of a parameter's number (a count of steps) or of its tensor (a mean of gradients)."""
    like = torch.zeros(()) if name == "step" else parameter
    if value.shape != like.shape or not value.isfinite().all():
        raise ValueError(f"{name} of the wrong shape, or not finite")
    return torch.empty_like(like).copy_(value)


# Draw loss and accuracy over the epochs of one or more trainings.
#
# Only Figure objects are used, not pyplot, so no display is needed and nothing stays open.


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
