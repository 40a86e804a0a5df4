"""Run `python -m mpbn_deploy.fit`.

torch is imported only to execute samples; `fit --targets` and `fit NETWORK --samples 0` do not need it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from ..base import DataError, OptionError, Outcome, announce, network_facts, progress_bar
from ..hardware import load_profile, profile_names, summarize_profile
from .text import comparison_text, fit_text, targets_text

if TYPE_CHECKING:
    from ..data import Samples
    from ..formats.folder import ExportFolder, NetworkFile
    from .advice import Advice
    from .question import Question
    from .stage import FitReport


def execute(options: argparse.Namespace) -> Outcome:
    if options.targets:
        return _targets()
    if options.network is None:
        raise OptionError(
            "no network given. Name a folder that `export` wrote or a .net file, or list the targets with "
            "--targets."
        )
    questions = _questions(options)
    reports = _ask(questions)
    advice = _advise(questions, reports) if options.advise else []
    return Outcome(
        data=_data(reports, advice),
        text=_text(reports, advice, options),
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


# ---- the questions ------------------------------------------------------------------------------


def _questions(options: argparse.Namespace) -> list[Question]:
    """One question for each target."""
    from ..formats.folder import open_network
    from .question import Question

    opened = open_network(options.network, **network_facts(options))
    targets = options.target or [_own_target(opened, options)]
    samples = _samples(opened, options)
    if samples is None and options.energy:
        raise OptionError(_energy_obstacle(options))
    return [
        Question(
            opened=opened,
            target=target,
            profile=load_profile(target),
            chips=options.chips,
            tiling=options.tiling,
            first_layer=options.first_layer,
            readout=options.readout,
            samples=samples,
            data=options.data,
            data_dir=options.data_dir,
            file_options=_file_options(options),
        )
        for target in targets
    ]


def _own_target(opened: ExportFolder | NetworkFile, options: argparse.Namespace) -> str:
    if opened.target is None:
        raise OptionError(f"{options.network}: does not name a target chip; give one with --target.")
    if opened.target not in profile_names():
        raise OptionError(
            f"{options.network}: exported for {opened.target!r}, a profile of your own; give its file with "
            "--target."
        )
    return opened.target


def _samples(opened: ExportFolder | NetworkFile, options: argparse.Namespace) -> Samples | None:
    """Return samples to measure activity; a data set that the user names must exist."""
    from ..data import RANDOM
    from ..formats.folder import ExportFolder

    if options.samples == 0:
        announce("note: energy and time are not estimated, because --samples 0 measures no activity")
        return None
    known = opened.manifest["data"] if isinstance(opened, ExportFolder) else RANDOM
    if options.data is None and known == RANDOM:
        announce("note: no data set is known, so energy and time are not estimated; name one with --data")
        return None
    try:
        return opened.samples(options.samples, options.data, options.data_dir)
    except DataError as error:
        if options.data is not None or options.data_dir is not None:
            raise
        announce(f"note: energy and time are not estimated, because {known} cannot be read: {error}")
        return None


def _energy_obstacle(options: argparse.Namespace) -> str:
    if options.samples == 0:
        return "--energy needs the activity of samples: use a larger number than --samples 0."
    return "--energy needs the activity of samples: name their data set with --data."


def _file_options(options: argparse.Namespace) -> str:
    """Return the options that describe a .net file, for printed commands."""
    given = {name.replace("_", "-"): value for name, value in network_facts(options).items() if value}
    typed = {name: value if isinstance(value, tuple) else [value] for name, value in given.items()}
    return "".join(f" --{name} {' '.join(map(str, value))}" for name, value in typed.items())


# ---- the answers --------------------------------------------------------------------------------


def _ask(questions: Sequence[Question]) -> list[FitReport]:
    """Check the network against each chip; its activity is measured once."""
    first, activity = questions[0], None
    if first.samples is not None:
        from .measurement import measure

        progress = progress_bar("activity, chunks of samples")
        network, samples = first.opened.network, first.samples
        activity = measure(network, samples.inputs, progress, random=samples.random)
    return [question.ask(question.opened.network, activity) for question in questions]


def _advise(questions: Sequence[Question], reports: Sequence[FitReport]) -> list[list[Advice]]:
    from .advice import advise

    return [advise(*asked) for asked in zip(questions, reports, strict=True)]


def _data(reports: Sequence[FitReport], advice: Sequence[Sequence[Advice]]) -> dict[str, Any]:
    """Return one report, or a list of several."""
    found = [report.to_json() for report in reports]
    for report, tried in zip(found, advice, strict=False):
        report["advice"] = [one.to_json() for one in tried]
    return found[0] if len(found) == 1 else {"targets": found}


def _text(
    reports: Sequence[FitReport], advice: Sequence[Sequence[Advice]], options: argparse.Namespace
) -> RenderableType:
    parts = [fit_text(reports[0]) if len(reports) == 1 else comparison_text(reports)]
    if options.energy:
        from .energy_text import energy_table

        parts += [energy_table(report.energy) for report in reports if report.energy is not None]
    if advice:
        from .advice_text import advice_text

        parts += [advice_text(report, tried) for report, tried in zip(reports, advice, strict=True)]
    return Group(*parts)
