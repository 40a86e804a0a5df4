"""Top of the page: verdicts, changes at each step from model to chip, and key figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod
from typing import Literal

from ..base import layer_name, record
from ..data import RANDOM
from ..fit import FitReport, by_rule, conditions, headline
from ..fit.rules import Finding
from ..hardware import HardwareProfile
from ..ir import (
    STATE_LIMIT,
    Conv2d,
    FiringNeuron,
    FoldedNetwork,
    IntNetwork,
    Population,
    SpikeCounts,
    Trace,
    fires,
    firing,
    modulating,
)
from ..quantize import RoundingErrors, Widths
from ..verify import VerifyReport
from .svg import NONE, UNKNOWN, byte_size, integer, percent, plural, population_colors

# Everything the report page shows: the results of all stages.


@record
class ReportContent:
    """The results of one deployment.

    `trace` is the integer network's execution of the first verified samples, and `counted` has its spikes on
    all of them. `folded` is the network before quantization, and `trained_thresholds` are the thresholds
    before folding, by population; `normalized` names the populations whose membrane-potential batch norm was
    folded. `files` maps the files that store the network to their sizes in bytes; reading network.net back
    gave the same integers. The page omits sections whose optional content is missing.
    """

    title: str
    network: IntNetwork
    profile: HardwareProfile
    verify: VerifyReport
    fit: FitReport
    quantization: tuple[RoundingErrors, ...]
    trace: Trace
    counted: SpikeCounts
    facts: Mapping[str, str]
    folded: FoldedNetwork | None = None
    trained_thresholds: Mapping[str, float] = field(default_factory=dict)
    normalized: tuple[str, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # of all stages, for the user
    widths: Widths | None = None

    @property
    def colors(self) -> dict[str, str]:
        """The color of each population, the same in all figures."""
        return population_colors([population.name for population in self.network.layers])

    def spiking(self) -> list[Population[FiringNeuron]]:
        """Return the spiking populations."""
        return list(firing(self.network))

    def firing_rate(self) -> float | None:
        """Return the mean spikes per neuron and time step; None without spiking populations."""
        names = [population.name for population in self.spiking()]
        size = self.counted.samples * self.network.timesteps * sum(p.size for p in self.spiking())
        return sum(float(self.counted.per_step[name].sum()) for name in names) / size if size else None


Tone = Literal["good", "bad", "unknown", ""]

MARKS: dict[Tone, str] = {"good": "✓", "bad": "✗", "unknown": "?", "": ""}


@record
class Verdict:
    """One statement of the line at the top."""

    text: str
    tone: Tone

    @property
    def mark(self) -> str:
        return MARKS[self.tone]


@record
class Card:
    """One labelled number."""

    label: str
    value: str
    note: str = ""
    tone: Tone = ""


def verdicts(content: ReportContent) -> list[Verdict]:
    """Return the verdicts on exactness and fit, lost weights, and the accuracy."""
    return [_exactness(content.verify), _fitting(content), *_losses(content), *_accuracy(content.verify)]


def _losses(content: ReportContent) -> list[Verdict]:
    lost = [layer_name(errors.name) for errors in content.quantization if errors.lost]
    return [Verdict(text=f"weights lost to rounding: {', '.join(lost)}", tone="bad")] if lost else []


def _exactness(report: VerifyReport) -> Verdict:
    lost = report.accuracy is not None and report.accuracy.lost
    if not report.bit_exact or report.silent or lost or (report.fold is not None and not report.fold.agrees):
        return Verdict(text=report.verdict, tone="bad")
    complete = report.lava_claim is not None and report.executed == len(report.comparisons)
    certain = complete and not report.assumptions
    return Verdict(text=report.verdict, tone="good" if certain else "unknown")


def _fitting(content: ReportContent) -> Verdict:
    fit = content.fit
    if fit.fits is None:
        return Verdict(
            text=f"no error found for {content.profile.title}; core allocation unknown", tone="unknown"
        )
    if not fit.fits:
        errors = f"{plural(len(by_rule(fit, ('error',))), 'rule')} broken"
        return Verdict(text=f"does not fit {content.profile.title} ({errors})", tone="bad")
    warnings, aside = len(fit.found("warning")), conditions(fit)
    aside += f", with {plural(warnings, 'warning')}" if warnings else ""
    cores = "" if fit.cores is None else f" on {plural(fit.cores, 'core')}"
    return Verdict(text=f"fits {content.profile.title}{cores}{aside}", tone="unknown" if aside else "good")


def _accuracy(report: VerifyReport) -> list[Verdict]:
    if report.accuracy is None:
        changed = report.drift and report.drift.predictions
        return [Verdict(text=f"predictions that differ from folded: {changed}", tone="")] if changed else []
    before, after = report.accuracy.float_network, report.accuracy.integer_network
    text = f"accuracy {percent(before)} folded → {percent(after)} integer"
    return [Verdict(text=text, tone="bad" if report.accuracy.lost else "")]


# ---- from model to chip -----------------------------------------------------------------------


def pipeline(content: ReportContent) -> list[Card]:
    """Return one card per step, with the number of changes; files only if there are any."""
    files = [_files(content)] if content.files else []
    return [
        _model(content),
        _folded(content),
        _integers(content),
        *files,
        _executions(content),
        _chip(content),
    ]


def _model(content: ReportContent) -> Card:
    name = content.facts.get("model architecture") or content.facts.get("model name") or content.title
    accuracy = content.verify.accuracy
    right = None if accuracy is None else accuracy.trained_network
    if right is not None:
        return Card(label="model", value=percent(right), note=f"accuracy; {name} in PyTorch")
    steps = content.network.timesteps
    return Card(label="model", value=integer(steps), note=f"time step{'' if steps == 1 else 's'}; {name}")


def _folded(content: ReportContent) -> Card:
    check = content.verify.fold
    if check is None or not check.compared:
        tone: Tone = "" if check is None else "bad"
        return Card(label="folded", value=NONE, note="not compared with PyTorch", tone=tone)
    note = f"of {integer(check.spikes_compared)} spikes changed"
    if check.samples_undecided:
        note += f"; {plural(check.samples_undecided, 'sample')} undecided by float64"
    tone = "bad" if not check.agrees else "unknown" if check.samples_undecided else "good"
    return Card(label="folded", value=integer(check.spikes_mismatched), note=note, tone=tone)


def _integers(content: ReportContent) -> Card:
    report = content.verify
    found = None if report.accuracy is None else report.accuracy.predictions
    found = found or (None if report.drift is None else report.drift.predictions)
    if found is None:
        return Card(label="integers", value=NONE, note="not compared with the folded network")
    note = f"of {plural(found.samples, 'prediction')} changed"
    tone: Tone = "unknown" if found.changed else "good"
    return Card(label="integers", value=integer(found.changed), note=note, tone=tone)


def _files(content: ReportContent) -> Card:
    written = f"{byte_size(sum(content.files.values()))} in {plural(len(content.files), 'file')}"
    note = f"integers changed on reading network.net back; {written}"
    return Card(label="files", value="0", note=note, tone="good")


def _executions(content: ReportContent) -> Card:
    report, kinds = content.verify, ("spikes", "voltages", "outputs")
    different = sum(report.total(f"{kind}_mismatched") for kind in kinds)
    compared = sum(report.total(f"{kind}_compared") for kind in kinds)
    ran = f"{report.executed} of {plural(len(report.comparisons), 'execution')}"
    note = f"of {integer(compared)} values differ, in {ran}"
    return Card(label="executions", value=integer(different), note=note, tone=_exactness(report).tone)


def _chip(content: ReportContent) -> Card:
    fit = content.fit
    value = UNKNOWN if fit.cores is None else integer(fit.cores)
    noun = "core" if fit.cores == 1 else "cores"
    on = noun if fit.chips is None else f"{noun} on {plural(fit.chips, 'chip')}"
    broken = [plural(n, word) for word in ("error", "warning") if (n := len(fit.found(word)))]
    unknown = [f"{n} {word}" for word in ("not known", "not checked") if (n := len(fit.found(word)))]
    note = f"{on}; {', '.join([*(broken or ['no rule violated']), *unknown])}"
    return Card(label="chip", value=value, note=note, tone=_fitting(content).tone)


# ---- numbers ----------------------------------------------------------------------------------


def cards(content: ReportContent) -> list[Card]:
    """Return the key figures."""
    network = content.network
    neurons = sum(population.size for population in network.layers)
    weights = sum(connection.synapse.weight.size for connection in network.connections)
    return [
        *_cost_cards(content),
        _cores_card(content),
        Card(
            label="neurons",
            value=integer(neurons),
            note=f"in {plural(len(network.populations) - 1, 'population')}",
        ),
        Card(
            label="weights",
            value=integer(weights),
            note=f"in {plural(len(network.connections), 'connection')}",
        ),
        Card(label="time steps", value=integer(network.timesteps), note="per sample"),
        *_activity_cards(content),
        _overflow_card(content.verify),
    ]


def _cost_cards(content: ReportContent) -> list[Card]:
    if content.fit.energy is None:
        return []
    energy, time = headline(content.fit.energy)
    note = "per random input, estimated" if content.fit.energy.random else "per sample, estimated"
    return [Card(label="energy", value=energy, note=note), Card(label="time", value=time, note=note)]


def _cores_card(content: ReportContent) -> Card:
    fit, per_chip = content.fit, content.profile.limit("chip.cores")
    note = "cores per chip unknown"
    if fit.chips is not None and per_chip is not None:
        note = f"{plural(fit.chips, 'chip')} of {plural(per_chip.value, 'core')}"
    if fit.cores is None:
        note = "core allocation unknown"
    return Card(label="cores", value=UNKNOWN if fit.cores is None else integer(fit.cores), note=note)


def _activity_cards(content: ReportContent) -> list[Card]:
    rate = content.firing_rate()
    random = content.verify.data == RANDOM
    note = "mean per time step, on random inputs" if random else "mean per time step"
    return [] if rate is None else [Card(label="firing rate", value=percent(rate), note=note)]


def _overflow_card(report: VerifyReport) -> Card:
    largest = max(report.bounds.values(), default=0)
    value = "impossible" if largest <= STATE_LIMIT else "possible"
    note = f"at most {percent(largest / STATE_LIMIT)} of the range"
    return Card(label="overflow of 24-bit states", value=value, note=note)


# Findings grouped by design rule; the page shows the first ones of each rule and collapses the rest.


SHOWN = 4  # per rule; the rest are in a closed <details> element


@record
class ShownFindings:
    """The findings of one rule, divided into shown and collapsed ones."""

    rule: str
    shown: tuple[Finding, ...]
    collapsed: tuple[Finding, ...]


def shown_findings(report: FitReport, severity: str) -> list[ShownFindings]:
    """Return the findings of one severity, rule by rule."""
    return [
        ShownFindings(rule=group.rule, shown=group.findings[:SHOWN], collapsed=group.findings[SHOWN:])
        for group in by_rule(report, (severity,))
    ]


# The lines of Python that run an exported network.net in lava-dl's own reader.


_LINES = """\
import numpy as np
from mpbn_deploy.execute.lava import load_netx  # imports Lava on Python 3.11 and newer

Network = load_netx().Network  # on Python 3.10 also: from lava.lib.dl.netx.hdf5 import Network
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg
from lava.proc.io.source import RingBuffer

network = Network("network.net", input_message_bits={bits}, reset_interval={timesteps}, reset_offset=1)
source = RingBuffer(data=np.load("samples.npy"))  # one sample of yours, {shape}: {axes}, time step
source.s_out.connect(network.inp){recording}
network.run(condition=RunSteps(num_steps={steps}), run_cfg=Loihi2SimCfg(select_tag="fixed_pt"))
print({output}
network.stop()"""
_RECORDING = """
from lava.proc.io.sink import RingBuffer as Recording
recording = Recording(shape=network.out.shape, buffer={steps})
network.out.connect(recording.a_in)"""
_VOLTAGES = "network.layers[-1].neuron.v.get().astype(int))  # the output: the voltage of the readout"
_COUNTS = "recording.data.get()[..., {depth}:].sum(axis=-1).astype(int))  # the output: the number of spikes"


def reader_obstacle(network: IntNetwork, report: VerifyReport) -> str | None:
    """Return why lava-dl's reader alone does not run the network; None if the lines below do."""
    if report.stock_reader_obstacle is not None:
        return report.stock_reader_obstacle
    for population in network.layers:
        if modulating(population.neuron) is not None:
            return f"{population.name}: sigma-delta neurons, which lava-dl never resets"
    return None


def lava_lines(network: IntNetwork) -> str:
    """Return the lines that print the output of one sample.

    A layer at depth d sees the stream d steps late, so the last layer ends its sample after as many more
    steps as there are layers.
    """
    depth, timesteps = len(network.layers), network.timesteps
    steps, counted = timesteps + depth, fires(network.output.neuron)
    shape, axes = _sample(network)
    return _LINES.format(
        bits=_message_bits(network),
        timesteps=timesteps,
        steps=steps,
        shape=(*shape, timesteps),
        axes=axes,
        recording=_RECORDING.format(steps=steps) if counted else "",
        output=_COUNTS.format(depth=depth) if counted else _VOLTAGES,
    )


def _sample(network: IntNetwork) -> tuple[tuple[int, ...], str]:
    """Return the shape of an input in lava-dl's reader, and the names of its axes."""
    shape = network.input.shape
    if isinstance(network.connections[0].synapse, Conv2d):
        return shape[::-1], "x, y, channel"
    return (prod(shape),), "feature" if len(shape) == 1 else "pixel (channel, y, x)"


def _message_bits(network: IntNetwork) -> int:
    """Return the bits of a signed message that holds every input value."""
    allowed = network.input_range
    return max(allowed.maximum, -allowed.minimum).bit_length() + 1
