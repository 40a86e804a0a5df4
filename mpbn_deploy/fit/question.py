"""A request of the command `fit`: a network, a chip, and the options of placement."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base import typed
from ..data import Samples
from ..formats.folder import ExportFolder, NetworkFile
from ..formats.options import DataChoice, Placing, Pooling
from ..hardware import HardwareProfile
from ..ir import IntNetwork
from .activity import Activity
from .form import fit_on_chip
from .stage import FitReport

if TYPE_CHECKING:
    from .untrained import UntrainedNetwork


PREDICTIONS_REFERENCE = "given integer network"  # what `predictions_changed` of `fit` counts against


class Question(Pooling, Placing, DataChoice):
    """A network and a chip, as named on the command line, with the options of placement."""

    opened: ExportFolder | NetworkFile
    target: str
    profile: HardwareProfile
    form: IntNetwork | None = None  # the network with pooling as the target asks for it; None: as given
    samples: Samples | None = None
    strict: bool = False
    untrained: UntrainedNetwork | None = None
    file_options: Sequence[str] = ()  # options that describe a .net file

    @property
    def network(self) -> IntNetwork:
        return self.opened.network if self.form is None else self.form

    def ask(self, network: IntNetwork, activity: Activity | None = None) -> FitReport:
        """Check a network against the chip."""
        report = fit_on_chip(
            network,
            self.profile,
            activity,
            Placing.from_arguments(self),
            pooling="composed" if self.form is None else self.pooling,
            strict=self.strict,
        )
        return report if self.untrained is None else replace(report, assumption=self.untrained.assumption)

    @property
    def path(self) -> Path:
        """The folder or file of the network."""
        return self.opened.path if isinstance(self.opened, ExportFolder) else self.opened.netx

    def command(self, folder: Path | None = None, *more: str) -> str:
        """Return the shell command that makes the same request, for the network in `folder` if given."""
        network = [str(self.path if folder is None else folder)]
        if self.untrained is not None:
            network = list(self.untrained.typed)
        strict = ["--strict"] if self.strict else []
        options = [
            *self.file_options,
            *typed(self, Placing, Pooling),
            *strict,
            *typed(self, DataChoice),
            *more,
        ]
        return shlex.join(["python", "-m", "mpbn_deploy.fit", *network, "--target", self.target, *options])

    def training_command(self, *more: str) -> str:
        """Return the shell command that trains the network, or exports it once it is trained."""
        assert self.untrained is not None
        return self.untrained.training_command(self.target, [*typed(self, Placing, Pooling), *more])

    @property
    def run_command(self) -> str:
        """The shell command that runs the network on the data named here, or else on those of its export."""
        recorded = self.opened.data_words if isinstance(self.opened, ExportFolder) else []
        data = typed(self, DataChoice) or recorded
        return shlex.join(["python", "-m", "mpbn_deploy.run", str(self.path), *self.file_options, *data])
