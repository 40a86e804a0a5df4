"""Quantize the network of an export folder again, with other options, and print the commands that do so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from ..base import DataError
from ..data import data_named_by_file, dataset_name
from ..formats.folder import ExportFolder, folder_beside
from ..formats.options import ExportOptions, Placing
from ..hardware import UNBOUNDED, export_profile
from ..ir import IntNetwork
from ..quantize import QUANTIZED, load_calibration, quantize
from .question import Question


class Requantizer:
    """The real numbers behind a network, if it is an export folder that holds them."""

    def __init__(self, question: Question) -> None:
        self.question, self.opened = question, question.opened
        self.export_profile = export_profile(question.profile)
        self.folder = self.opened if isinstance(self.opened, ExportFolder) else None
        self.trained_integers = self.folder is not None and self.folder.architecture == QUANTIZED

    @property
    def possible(self) -> bool:
        """Whether there are real numbers to quantize; trained integers and .net files have none."""
        return self.folder is not None and not self.trained_integers

    def quantize(self, options: ExportOptions) -> IntNetwork:
        assert self.opened.folded is not None
        calibration, name = None, str(options.calibration)
        if options.calibrated:
            try:
                data = data_named_by_file(name, self.question.data)
                calibration = load_calibration(self.opened.folded, data, self.question.data_dir).inputs
            except DataError as error:
                raise DataError(f"calibrated on {name}, which cannot be read: {error}") from error
        return quantize(
            self.opened.folded, self.export_profile, calibration, options, tiling=options.tiling
        ).network

    def commands(
        self, question: Question, options: ExportOptions | None, variant: str | None = None
    ) -> Iterator[str]:
        """Yield the commands: a fit of the same folder, or an export followed by a fit of its output.

        A `variant` is written to a folder of its own, MODEL.TARGET-VARIANT.
        """
        if options is None:
            yield question.command()
            return
        assert self.folder is not None
        beside = self.folder.path.parent / self.folder.manifest["model"]["name"]  # where `export` writes
        model = beside if beside.is_file() else Path(beside.name)
        target = UNBOUNDED
        if self.export_profile is question.profile:  # then the export's own verdict is that of the request
            target = question.target
            options = replace(options, **asdict(Placing.from_arguments(question)))
        usual = folder_beside(model, self.export_profile.name)
        out = None if variant is None else usual.with_name(f"{usual.name}-{variant}")
        yield self._completed(options).command(model, target, out)
        yield question.command(out or usual)

    def _completed(self, options: ExportOptions) -> ExportOptions:
        """Add the options that the manifest does not record."""
        assert self.folder is not None
        architecture = self.folder.architecture or ""
        own_code = ":" in architecture  # importable code, which only the user may name
        calibration, typed = options.calibration, self.question.data
        if typed is not None and dataset_name(typed) == calibration:
            calibration = typed
        return replace(
            options,
            calibration=calibration,
            arch=architecture if own_code else None,
            data=typed,
            data_dir=self.question.data_dir if typed or options.calibrated else None,
        )
