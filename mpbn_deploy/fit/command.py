"""Run `python -m mpbn_deploy.fit`.

torch is imported only to execute samples; `fit --targets` and `fit NETWORK --samples 0` do not need it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from ..base import DataError, OptionError, Outcome, announce, progress_bar, typed
from ..formats.options import CLASSES, FIRING_RATE, INPUT_RANGE, DataChoice, FileFacts, Placing, Pooling
from ..hardware import load_profile, profile_names, readable_profiles, summarize_profile
from .text import comparison_text, fit_text, targets_text

if TYPE_CHECKING:
    from ..data import Samples
    from ..formats.folder import ExportFolder, NetworkFile
    from ..hardware import HardwareProfile
    from ..ir import IntNetwork
    from .activity import Activity
    from .advice import Advice
    from .form import Question
    from .search import SearchResult, ThresholdVariant
    from .stage import FitReport


def execute(options: argparse.Namespace) -> Outcome:
    if options.targets:
        return _targets()
    if options.network is None and options.arch is None:
        raise OptionError(
            "no network given. Name a folder that `export` wrote or a .net file, an untrained network with "
            "--arch, or list the targets with --targets."
        )
    questions = _questions(options) if options.arch is None else _untrained_questions(options)
    reports = _ask(questions)
    advice = _advise(questions, reports) if options.advise else []
    variants = _compare_thresholds(questions) if options.compare_thresholds else []
    results = _search(questions) if options.search else []
    return Outcome(
        data=_data(reports, advice, variants, results),
        text=_text(questions, reports, advice, variants, results, options),
        exit_code=0 if all(report.fits for report in reports) else 1,
    )


def _targets() -> Outcome:
    profiles, unreadable = readable_profiles()
    chips = [summarize_profile(profile, file.origin) for file, profile in profiles]
    known = [
        {"name": profile.name, "description": profile.description, **asdict(chip)}
        for (_, profile), chip in zip(profiles, chips, strict=True)
    ]
    data: dict[str, Any] = {"targets": known, "left_out": unreadable}
    return Outcome(data=data, text=targets_text(chips, unreadable))


# ---- the questions ------------------------------------------------------------------------------


def _questions(options: argparse.Namespace) -> list[Question]:
    """One question for each target."""
    _reject(options, "--classes", "--firing-rate", why="describe untrained networks; they go with --arch")
    from ..formats.folder import open_network
    from .form import Question

    opened = open_network(options.network, **asdict(FileFacts.from_arguments(options)))
    targets = options.target or [_own_target(opened, options)]
    samples = _samples(opened, options)
    if samples is None and options.energy:
        raise OptionError(_energy_obstacle(options))
    profiles = [load_profile(target) for target in targets]
    return [
        Question(
            opened=opened,
            target=target,
            profile=profile,
            form=_form(opened, profile, options),
            samples=samples,
            strict=options.strict,
            file_options=typed(options, FileFacts),
            **asdict(DataChoice.from_arguments(options)),
            **asdict(Placing.from_arguments(options)),
            **asdict(Pooling.from_arguments(options)),
        )
        for target, profile in zip(targets, profiles, strict=True)
    ]


def _form(
    opened: ExportFolder | NetworkFile, profile: HardwareProfile, options: argparse.Namespace
) -> IntNetwork | None:
    """Return the network with pooling as an export for this target has it; None for the given file."""
    from ..ir import without_relays
    from ..quantize import express_pooling

    if options.arch is None and options.pooling == "auto" and opened.target in (None, profile.name):
        return None
    return express_pooling(without_relays(opened.network), profile, options.pooling, options.tiling)


def _untrained_questions(options: argparse.Namespace) -> list[Question]:
    """One question for each target, about a network that is quantized for it."""
    from .form import Question
    from .measurement import UntrainedNetwork

    if options.network is not None:
        raise OptionError(f"{options.network} and --arch {options.arch}: give one network.")
    needed = {
        "--input-shape": options.input_shape,
        "--timesteps": options.timesteps,
        "--target": options.target,
    }
    if missing := [name for name, value in needed.items() if not value]:
        raise OptionError(f"--arch {options.arch}: an untrained network also needs {', '.join(missing)}.")
    if options.advise or options.compare_thresholds:
        raise OptionError("--advise and --compare-thresholds need a trained network: export one.")
    _reject(options, "--data", "--data-dir", why="run in trained networks; with --arch, activity is assumed")
    untrained = UntrainedNetwork(
        arch=options.arch,
        input_shape=tuple(options.input_shape),
        timesteps=options.timesteps,
        input_range=tuple(options.input_range or INPUT_RANGE),
        classes=options.classes or CLASSES,
        firing_rate=FIRING_RATE if options.firing_rate is None else options.firing_rate,
    )
    profiles = [load_profile(target) for target in options.target]
    networks = [untrained.quantized_for(profile, options.tiling) for profile in profiles]
    return [
        Question(
            opened=opened,
            target=target,
            profile=profile,
            form=_form(opened, profile, options),
            strict=options.strict,
            untrained=untrained,
            **asdict(Placing.from_arguments(options)),
            **asdict(Pooling.from_arguments(options)),
        )
        for target, profile, opened in zip(options.target, profiles, networks, strict=True)
    ]


def _reject(options: argparse.Namespace, *names: str, why: str) -> None:
    """Raise if one of these options is given, which would have no effect."""
    for name in names:
        if getattr(options, name.removeprefix("--").replace("-", "_")) is not None:
            raise OptionError(f"{name} has no effect here: {' and '.join(names)} {why}.")


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
        announce(f"note: energy and time are not estimated, because {known} is not at hand: {error}")
        return None


def _energy_obstacle(options: argparse.Namespace) -> str:
    if options.samples == 0:
        return "--energy needs the activity of samples: use a larger number than --samples 0."
    return "--energy needs the activity of samples: name their data set with --data."


# ---- the answers --------------------------------------------------------------------------------


def _ask(questions: Sequence[Question]) -> list[FitReport]:
    """Check the network against each chip; the activity of each form is measured once."""
    activities: dict[IntNetwork, Activity | None] = {}
    for question in questions:
        if question.network not in activities:
            activities[question.network] = _activity(question)
    return [question.ask(question.network, activities[question.network]) for question in questions]


def _activity(question: Question) -> Activity | None:
    """Return the activity of a network: assumed if it is untrained, otherwise measured on samples."""
    network, samples = question.network, question.samples
    if question.untrained is not None:
        return question.untrained.activity(network)
    if samples is None:
        return None
    from .measurement import measure

    progress = progress_bar("activity, chunks of samples")
    return measure(network, samples.inputs, progress, random=samples.random)


def _advise(questions: Sequence[Question], reports: Sequence[FitReport]) -> list[list[Advice]]:
    from .advice import advise

    return [advise(*asked) for asked in zip(questions, reports, strict=True)]


def _compare_thresholds(questions: Sequence[Question]) -> list[list[ThresholdVariant]]:
    from .search import compare_thresholds

    return [compare_thresholds(question) for question in questions]


def _search(questions: Sequence[Question]) -> list[list[SearchResult]]:
    from .search import check_searchable, search

    for question in questions:  # before the first search, which takes long
        check_searchable(question)
    return [search(question) for question in questions]


def _data(
    reports: Sequence[FitReport],
    advice: Sequence[Sequence[Advice]],
    variants: Sequence[Sequence[ThresholdVariant]],
    results: Sequence[Sequence[SearchResult]],
) -> dict[str, Any]:
    """Return one report, or a list of several."""
    found = [report.to_json() for report in reports]
    for report, tried in zip(found, advice, strict=False):
        report["advice"] = [one.to_json() for one in tried]
    for report, compared in zip(found, variants, strict=False):
        report["thresholds"] = [one.to_json() for one in compared]
    for report, forms in zip(found, results, strict=False):
        report["search"] = [one.to_json() for one in forms]
    return found[0] if len(found) == 1 else {"targets": found}


def _text(
    questions: Sequence[Question],
    reports: Sequence[FitReport],
    advice: Sequence[Sequence[Advice]],
    variants: Sequence[Sequence[ThresholdVariant]],
    results: Sequence[list[SearchResult]],
    options: argparse.Namespace,
) -> RenderableType:
    if len(reports) == 1:
        tried, forms = (advice[0] if advice else None), (results[0] if results else ())
        command = next_command(questions[0], reports[0], advice=tried, forms=forms, compared=bool(variants))
        found = reports[0].summary.with_rows(next=command, report=_where_to_read(questions[0]))
        parts = [str(found), *([fit_text(reports[0])] if options.verbose else [])]
    else:
        parts = [comparison_text(reports, verbose=options.verbose)]
    if options.energy:
        from .text import energy_table

        parts += [energy_table(report.energy) for report in reports if report.energy is not None]
    if advice:
        from .text import advice_text

        parts += [advice_text(report, tried) for report, tried in zip(reports, advice, strict=True)]
    if variants:
        from .text import variants_text

        parts += [variants_text(report.target, each) for report, each in zip(reports, variants, strict=True)]
    if results:
        from .text import search_text

        parts += [search_text(report.target, forms) for report, forms in zip(reports, results, strict=True)]
    return Group(*parts)


def _where_to_read(question: Question) -> str:
    """Return the report of the export, if it is about this chip, and the option that prints everything."""
    from ..formats.folder import REPORT_FILE, ExportFolder

    opened, details = question.opened, "--verbose"
    if isinstance(opened, ExportFolder) and opened.target == question.profile.name:
        return f"{opened.path / REPORT_FILE}, or {details}"
    return details


# Choose the command that a report ends with: what to type next.


CHIPS, INPUT, LAYERS = "cores_fit_on_chip", "input_values_fit_message", "layers_fit_on_cores"


def next_command(
    question: Question,
    report: FitReport,
    *,
    advice: Sequence[Advice] | None = None,
    forms: Sequence[SearchResult] = (),
    compared: bool = False,
) -> str:
    """Return the smallest change that fits, the search for one, or a run.

    A comparison of thresholds is suggested where one is possible and has not just been made.
    """
    if question.untrained is not None:
        if report.fits is False:
            return _another_form(question, report, forms)
        return question.training_command()
    if report.fits is False:
        if advice is None:
            return question.command(None, "--advise")
        return next((one.commands[0] for one in advice if one.report.fits), "")
    if not compared and report.found("not known") and question.samples is not None:
        from .search import Requantizer

        if Requantizer(question).possible:
            return question.command(None, "--compare-thresholds")
    return question.run_command


def _another_form(question: Question, report: FitReport, forms: Sequence[SearchResult]) -> str:
    """Return how an untrained network may fit: with more room, as a search finds, or on another chip."""
    broken = {finding.rule for finding in report.found("error")}
    if not broken:  # with --strict, what is not known blocks
        return replace(question, strict=False).command()
    if broken <= {CHIPS} and (found := _more_chips(question, report)) is not None:
        return found.command()
    if forms:
        return _found(forms)
    free = replace(question, tiling="auto", first_layer="auto", readout="auto", pooling="auto")
    if broken <= {CHIPS, INPUT, LAYERS} and free.command() != question.command():
        return free.command()
    others = [each.name for _, each in readable_profiles()[0] if each.exportable and each.is_chip]
    first, *more = [name for name in others if name != question.target]
    return replace(question, target=first).command(
        None, *(word for name in more for word in ("--target", name))
    )


def _found(forms: Sequence[SearchResult]) -> str:
    """Return the command of the best form that a search found; nothing if none fits.

    A rewritten network can be made only from a trained one.
    """
    from .search import fewest  # imports torch

    best = fewest(list(forms))
    if best.report.fits is False:
        return ""
    return best.commands[-1] if best.commands else replace(best.question, pooling="auto").training_command()


def _more_chips(question: Question, report: FitReport) -> Question | None:
    """Return the request with as many chips as are needed; None if it does not fit these either."""
    question = replace(question, chips=max(question.chips, report.chips or 1))
    return question if question.ask(question.network).fits else None
