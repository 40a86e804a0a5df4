"""The top of the page: the verdict, what changed at each step from model to chip, and some numbers."""

from __future__ import annotations

from typing import Literal

from ..base import record
from ..fit import headline
from ..ir import STATE_LIMIT
from ..verify import VerifyReport
from .story import Story
from .wording import NONE, UNKNOWN, percent, plural, size, whole

Tone = Literal["good", "bad", "unknown", ""]

MARKS: dict[Tone, str] = {"good": "✓", "bad": "✗", "unknown": "?", "": ""}


@record
class Verdict:
    """One part of the line at the top."""

    text: str
    tone: Tone

    @property
    def mark(self) -> str:
        return MARKS[self.tone]


@record
class Card:
    """One number, and what it is about."""

    label: str
    value: str
    note: str = ""
    tone: Tone = ""


def verdicts(story: Story) -> list[Verdict]:
    """Whether it is exact, whether it fits, and the accuracy."""
    return [_exactness(story.verify), _fitting(story), *_accuracy(story.verify)]


def _exactness(report: VerifyReport) -> Verdict:
    if not report.bit_exact:
        return Verdict(text=report.verdict, tone="bad")
    return Verdict(
        text=report.verdict, tone="good" if report.executed == len(report.comparisons) else "unknown"
    )


def _fitting(story: Story) -> Verdict:
    fit = story.fit
    if fit.fits is None:
        return Verdict(text=f"no error on {story.profile.title}, whose cores are not known", tone="unknown")
    if not fit.fits:
        errors = plural(len(fit.found("error")), "reason")
        return Verdict(text=f"does not fit {story.profile.title} ({errors})", tone="bad")
    warnings = len(fit.found("warning"))
    aside = f", with {plural(warnings, 'warning')}" if warnings else ""
    cores = "" if fit.cores is None else f" on {plural(fit.cores, 'core')}"
    return Verdict(text=f"fits {story.profile.title}{cores}{aside}", tone="unknown" if warnings else "good")


def _accuracy(report: VerifyReport) -> list[Verdict]:
    if report.accuracy is None:
        return []
    before, after = report.accuracy.float_network, report.accuracy.integer_network
    return [Verdict(text=f"accuracy {percent(before)} float → {percent(after)} integer", tone="")]


# ---- from model to chip -----------------------------------------------------------------------


def pipeline(story: Story) -> list[Card]:
    """Each step with the number of what it changed; files where there are any."""
    files = [_files(story)] if story.files else []
    return [_model(story), _folded(story), _integers(story), *files, _executions(story), _chip(story)]


def _model(story: Story) -> Card:
    name = story.facts.get("model architecture") or story.facts.get("model name") or story.title
    accuracy = story.verify.accuracy
    right = None if accuracy is None else accuracy.trained_network
    if right is not None:
        return Card(label="model", value=percent(right), note=f"right; {name} in PyTorch")
    steps = story.network.timesteps
    return Card(label="model", value=whole(steps), note=f"time step{'' if steps == 1 else 's'}; {name}")


def _folded(story: Story) -> Card:
    check = story.verify.fold
    if check is None or not check.spikes_compared:
        return Card(label="folded", value=NONE, note="not compared with PyTorch")
    note = f"of {whole(check.spikes_compared)} spikes changed"
    tone: Tone = "unknown" if check.spikes_mismatched else "good"
    return Card(label="folded", value=whole(check.spikes_mismatched), note=note, tone=tone)


def _integers(story: Story) -> Card:
    report = story.verify
    found = None if report.accuracy is None else report.accuracy.predictions
    found = found or (None if report.drift is None else report.drift.predictions)
    if found is None:
        return Card(label="integers", value=NONE, note="not compared with the float network")
    note = f"of {plural(found.samples, 'prediction')} changed"
    tone: Tone = "unknown" if found.changed else "good"
    return Card(label="integers", value=whole(found.changed), note=note, tone=tone)


def _files(story: Story) -> Card:
    written = f"{size(sum(story.files.values()))} in {plural(len(story.files), 'file')}"
    note = f"integers changed, read back; {written}"
    return Card(label="files", value="0", note=note, tone="good")


def _executions(story: Story) -> Card:
    report, kinds = story.verify, ("spikes", "voltages", "outputs")
    different = sum(report.total(f"{kind}_mismatched") for kind in kinds)
    compared = sum(report.total(f"{kind}_compared") for kind in kinds)
    ran = f"{report.executed} of {plural(len(report.comparisons), 'execution')}"
    note = f"of {whole(compared)} values differ, in {ran}"
    return Card(label="executions", value=whole(different), note=note, tone=_exactness(report).tone)


def _chip(story: Story) -> Card:
    fit = story.fit
    value = UNKNOWN if fit.cores is None else whole(fit.cores)
    noun = "core" if fit.cores == 1 else "cores"
    on = noun if fit.chips is None else f"{noun} on {plural(fit.chips, 'chip')}"
    broken = [plural(n, word) for word in ("error", "warning") if (n := len(fit.found(word)))]
    unknown = [f"{n} not checked"] if (n := len(fit.found("not checked"))) else []
    note = f"{on}; {', '.join([*(broken or ['no rule broken']), *unknown])}"
    return Card(label="chip", value=value, note=note, tone=_fitting(story).tone)


# ---- numbers ----------------------------------------------------------------------------------


def cards(story: Story) -> list[Card]:
    network = story.network
    neurons = sum(population.size for population in network.populations[1:])
    weights = sum(connection.synapse.weight.size for connection in network.connections)
    return [
        *_cost_cards(story),
        _cores_card(story),
        Card(
            label="neurons",
            value=whole(neurons),
            note=f"in {plural(len(network.populations) - 1, 'population')}",
        ),
        Card(
            label="weights", value=whole(weights), note=f"in {plural(len(network.connections), 'connection')}"
        ),
        Card(label="time steps", value=whole(network.timesteps), note="for each sample"),
        *_activity_cards(story),
        _overflow_card(story.verify),
    ]


def _cost_cards(story: Story) -> list[Card]:
    if story.fit.energy is None:
        return []
    energy, time = headline(story.fit.energy)
    note = "of a sample, estimated"
    return [Card(label="energy", value=energy, note=note), Card(label="time", value=time, note=note)]


def _cores_card(story: Story) -> Card:
    fit, per_chip = story.fit, story.profile.limit("chip.cores")
    note = "the cores of a chip are not known"
    if fit.chips is not None and per_chip is not None:
        note = f"{plural(fit.chips, 'chip')} of {plural(per_chip.value, 'core')}"
    if fit.cores is None:
        note = "how they are filled is not known"
    return Card(label="cores", value=UNKNOWN if fit.cores is None else whole(fit.cores), note=note)


def _activity_cards(story: Story) -> list[Card]:
    rate = story.firing_rate()
    return [] if rate is None else [Card(label="firing rate", value=percent(rate), note="mean per time step")]


def _overflow_card(report: VerifyReport) -> Card:
    largest = max(report.bounds.values(), default=0)
    value = "impossible" if largest <= STATE_LIMIT else "possible"
    note = f"at most {percent(largest / STATE_LIMIT)} of the range"
    return Card(label="overflow of 24-bit states", value=value, note=note)
