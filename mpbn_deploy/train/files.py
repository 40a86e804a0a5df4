"""What a training leaves beside model.pt, and how it goes on after an interruption.

model.pt            the network after the last finished epoch
model.best.pt       the network of the epoch that was best on the test split (chosen on it, so flattered)
model.log.jsonl     one line per epoch: losses, accuracies, learning rate, seconds
model.curves.png    the same, to look at
model.resume.pt     network, optimizer and random state after the last finished epoch; gone at the end
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from ..base import CheckpointError, record, write_atomically
from ..checkpoint import read_safely, save_model
from ..nn import SpikingNetwork
from .settings import Epoch

FORMAT = "mpbn_deploy.training"
ENDINGS = ("best.pt", "log.jsonl", "curves.png")


@dataclass(kw_only=True)
class Progress:
    """Where a training stands; what the epochs to come depend on besides its settings."""

    network: SpikingNetwork
    optimizer: Optimizer
    history: list[Epoch]


@record
class TrainingFiles:
    """Keeps a training in files; `settings` are what must be equal for it to be the same training."""

    model: Path
    settings: dict[str, Any]

    def keep(self, progress: Progress) -> None:
        """Write everything after an epoch; each file whole or not at all."""
        last = progress.history[-1]
        save_model(self.model, progress.network)
        if last.test_accuracy > max((e.test_accuracy for e in progress.history[:-1]), default=-1.0):
            save_model(beside(self.model, "best.pt"), progress.network)
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in progress.history)
        write_atomically(beside(self.model, "log.jsonl"), lines.encode())
        write_atomically(resume_file(self.model), self._state(progress))

    def finish(self, history: list[Epoch]) -> None:
        """Draw the curves; what was only needed to resume goes."""
        from .curves import training_curves

        write_atomically(beside(self.model, "curves.png"), training_curves({self.model.stem: history}))
        resume_file(self.model).unlink(missing_ok=True)

    def _state(self, progress: Progress) -> bytes:
        buffer = io.BytesIO()
        torch.save(
            {
                "format": FORMAT,
                "settings": self.settings,
                "history": [asdict(epoch) for epoch in progress.history],
                "network": progress.network.body.state_dict(),
                "optimizer": progress.optimizer.state_dict(),
            },
            buffer,
        )
        return buffer.getvalue()

    def restore(self, progress: Progress) -> None:
        """Bring network and optimizer to where the interrupted training left them."""
        path = resume_file(self.model)
        if not path.is_file():
            raise CheckpointError(
                f"{path}: not there, so there is nothing to resume; the training of {self.model} has ended, "
                "or its first epoch never did. Start anew without --resume."
            )
        content = read_safely(path)
        if content.get("format") != FORMAT:
            raise CheckpointError(f"{path}: not the state of a training.")
        try:
            self._refuse_other_settings(path, content["settings"])
            history = [Epoch(**epoch) for epoch in content["history"]]
            progress.network.body.load_state_dict(content["network"])
            _restore_momentum(progress.optimizer, content["optimizer"]["state"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path}: a damaged state of a training ({error}).") from error
        if not history or [epoch.epoch for epoch in history] != list(range(1, len(history) + 1)):
            raise CheckpointError(f"{path}: a damaged state of a training (epochs are missing).")
        progress.history.extend(history)

    def _refuse_other_settings(self, path: Path, found: dict[str, Any]) -> None:
        names = sorted(found.keys() | self.settings.keys())
        other = [n for n in names if found.get(n) != self.settings.get(n)]
        if other:
            listed = ", ".join(f"{n} {found.get(n)} (now {self.settings.get(n)})" for n in other)
            raise CheckpointError(
                f"{path}: belongs to a training with {listed}. Resume with the same options."
            )


def beside(model: Path, ending: str) -> Path:
    """model.pt -> model.<ending>"""
    return model.with_name(f"{model.stem}.{ending}")


def files_beside(model: Path) -> list[Path]:
    """Everything that a training writes."""
    return [model, *(beside(model, ending) for ending in ENDINGS), resume_file(model)]


def resume_file(model: Path) -> Path:
    """Where the state of an unfinished training lies."""
    return beside(model, "resume.pt")


def _restore_momentum(optimizer: Optimizer, state: dict[int, dict[str, Any]]) -> None:
    """The momentum of each parameter, and nothing else: how to train is said by the options."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    momenta = [state[index]["momentum_buffer"] for index in range(len(parameters))]
    for parameter, momentum in zip(parameters, momenta, strict=True):
        if momentum.shape != parameter.shape or not momentum.isfinite().all():
            raise ValueError("momentum of another shape, or not finite")
        kept = torch.empty_like(parameter).copy_(momentum)
        optimizer.state[parameter] = {"momentum_buffer": kept}
