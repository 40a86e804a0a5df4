"""What `python -m mpbn_deploy.fit` does with its options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from ..base import (
    DataError,
    OptionError,
    Outcome,
    announce,
    watched,
)
from ..data import RANDOM, Samples
from ..formats.folder import ExportFolder, NetworkFile, open_network
from ..hardware import load_profile, profile_names, summarize_profile
from .advice import Advice, Question, advice_text, advise
from .energy_text import energy_table
from .measurement import measure
from .stage import FitReport
from .text import comparison_text, fit_text, targets_text


def execute(options: argparse.Namespace) -> Outcome:
    if options.targets:
        return _targets()
    if options.folder is None:
        raise OptionError("no folder given. Name a folder that `export` wrote, or ask for --targets.")
    opened = open_network(options)
    targets = options.target or [_own_target(opened, options)]
    samples = _samples(opened, options)
    if samples is None and options.energy:
        raise OptionError("--energy: of what activity? Name a data set with --data.")
    watch = watched("activity, chunks of samples")
    activity = None if samples is None else measure(opened.network, samples.inputs, watch=watch)
    questions = [
        Question(
            opened=opened,
            target=target,
            profile=load_profile(target),
            chips=options.chips,
            tiling=options.tiling,
            first_layer=options.first_layer,
            samples=samples,
            data_dir=options.data_dir,
            file_options=_file_options(options),
        )
        for target in targets
    ]
    reports = [question.ask(opened.network, activity) for question in questions]
    advice = [advise(*asked) for asked in zip(questions, reports, strict=True)] if options.advise else []
    return Outcome(
        data=_data(reports, advice),
        text=_text(reports, advice, options.energy),
        exit_code=0 if all(report.fits for report in reports) else 1,
    )


def _targets() -> Outcome:
    profiles = [load_profile(name) for name in profile_names()]
    chips = [summarize_profile(profile) for profile in profiles]
    known = [
        {"name": profile.name, "description": profile.description, **asdict(chip)}
        for profile, chip in zip(profiles, chips, strict=True)
    ]
    return Outcome(data={"targets": known}, text=targets_text(chips))


def _data(reports: Sequence[FitReport], advice: Sequence[Sequence[Advice]]) -> dict[str, Any]:
    """One report as it is; several as a list."""
    found = [report.to_json() for report in reports]
    for report, tried in zip(found, advice, strict=False):
        report["advice"] = [one.to_json() for one in tried]
    return found[0] if len(found) == 1 else {"targets": found}


def _text(reports: Sequence[FitReport], advice: Sequence[Sequence[Advice]], energy: bool) -> RenderableType:
    parts = [fit_text(reports[0]) if len(reports) == 1 else comparison_text(reports)]
    if energy:
        parts += [energy_table(report.energy) for report in reports if report.energy is not None]
    parts += [advice_text(report, tried) for report, tried in zip(reports, advice, strict=False)]
    return Group(*parts)


def _file_options(options: argparse.Namespace) -> str:
    """What was typed about a .net file, to be typed again."""
    given = {
        "timesteps": options.timesteps,
        "input-range": options.input_range,
        "input-shape": options.input_shape,
    }
    typed = {name: value if isinstance(value, list) else [value] for name, value in given.items() if value}
    return "".join(f" --{name} {' '.join(map(str, value))}" for name, value in typed.items())


def _own_target(opened: ExportFolder | NetworkFile, options: argparse.Namespace) -> str:
    if opened.target is None:
        raise OptionError(f"{options.folder}: does not say for which chip; give it with --target.")
    if opened.target not in profile_names():
        raise OptionError(
            f"{options.folder}: exported for {opened.target!r}, a profile of yours; give it with --target."
        )
    return opened.target


def _samples(opened: ExportFolder | NetworkFile, options: argparse.Namespace) -> Samples | None:
    """Those to measure activity with; what the user names must be there, what the folder names may be."""
    known = opened.manifest["data"] if isinstance(opened, ExportFolder) else RANDOM
    if options.data is None and known == RANDOM:
        announce("note: no data set is known, so energy and time are not estimated; name one with --data")
        return None
    try:
        return opened.samples(options.samples, options.data, options.data_dir)
    except DataError as error:
        if options.data is not None or options.data_dir is not None:
            raise
        announce(f"note: energy and time are not estimated, since {known} cannot be read: {error}")
        return None
