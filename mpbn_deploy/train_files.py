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

from .checkpoint import read_plain, save_model
from .errors import CheckpointError
from .files import write_atomically
from .nn import SpikingNetwork

FORMAT = "mpbn_deploy.training"


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What one pass over the training split gave; a line of the log."""

    epoch: int
    learning_rate: float
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float


@dataclass(kw_only=True)
class Progress:
    """Where a training stands: everything that the epochs to come depend on."""

    network: SpikingNetwork
    optimizer: Optimizer
    history: list[Epoch]


@dataclass(frozen=True, kw_only=True)
class TrainingFiles:
    """Keeps a training in files; `settings` are what must be equal for it to be the same training."""

    model: Path
    settings: dict[str, Any]

    def beside(self, ending: str) -> Path:
        """model.pt -> model.<ending>"""
        return self.model.with_name(f"{self.model.stem}.{ending}")

    def keep(self, progress: Progress) -> None:
        """Write everything after an epoch; each file whole or not at all."""
        last = progress.history[-1]
        save_model(self.model, progress.network)
        if last.test_accuracy > max((e.test_accuracy for e in progress.history[:-1]), default=-1.0):
            save_model(self.beside("best.pt"), progress.network)
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in progress.history)
        write_atomically(self.beside("log.jsonl"), lines.encode())
        write_atomically(self.beside("resume.pt"), self._state(progress))

    def finish(self, history: list[Epoch]) -> None:
        """Draw the curves; what was only needed to resume goes."""
        from .report.curves import training_curves

        write_atomically(self.beside("curves.png"), training_curves({self.model.stem: history}))
        self.beside("resume.pt").unlink(missing_ok=True)

    def _state(self, progress: Progress) -> bytes:
        buffer = io.BytesIO()
        torch.save(
            {
                "format": FORMAT,
                "settings": self.settings,
                "history": [asdict(epoch) for epoch in progress.history],
                "network": progress.network.body.state_dict(),
                "optimizer": progress.optimizer.state_dict(),
                "random_state": torch.get_rng_state(),
            },
            buffer,
        )
        return buffer.getvalue()

    def restore(self, progress: Progress) -> None:
        """Bring network, optimizer and random state to where the interrupted training left them."""
        path = self.beside("resume.pt")
        if not path.is_file():
            raise CheckpointError(
                f"{path}: not there, so there is nothing to resume; the training of {self.model} has ended, "
                "or its first epoch never did. Start anew without --resume."
            )
        content = read_plain(path)
        if content.get("format") != FORMAT:
            raise CheckpointError(f"{path}: not the state of a training.")
        try:
            self._refuse_other_settings(path, content["settings"])
            progress.network.body.load_state_dict(content["network"])
            progress.optimizer.load_state_dict(content["optimizer"])
            torch.set_rng_state(content["random_state"])
            progress.history.extend(Epoch(**epoch) for epoch in content["history"])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path}: a damaged state of a training ({error}).") from error

    def _refuse_other_settings(self, path: Path, found: dict[str, Any]) -> None:
        names = sorted(found.keys() | self.settings.keys())
        other = [n for n in names if found.get(n) != self.settings.get(n)]
        if other:
            listed = ", ".join(f"{n} {found.get(n)} (now {self.settings.get(n)})" for n in other)
            raise CheckpointError(
                f"{path}: belongs to a training with {listed}. Resume with the same options."
            )
