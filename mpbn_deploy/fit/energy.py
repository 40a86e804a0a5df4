"""Estimate energy and time per sample on a chip from the measured activity of a network.

    dynamic energy  = sum of count * energy per item, over operations, updates, spikes, hops and crossings
    static energy   = chips * static power * time per sample
    time per step   = sum of count * time per item on the busiest core, + barrier; or the chip's fixed step
    time per sample = time steps * time per step

What the host sends and receives (input and output) and barriers are counted as terms of their own. Where
no figure for them is public, they are listed with their counts beside the sum, which does not include them.

Low and high ends of ranges are added separately. Items without a public figure, or that were not counted, are
listed and excluded, and their sum is incomplete. A count of zero costs nothing, even without a figure.
Energies are in picojoules and times in nanoseconds, so power is in milliwatts. docs/energy.md discusses the
accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Literal, NamedTuple

from ..base import OptionError, Report, record
from ..hardware import Cost, HardwareProfile
from ..ir import IntNetwork
from .activity import Activity, CoreLoad, multiplications, operations, updates

NO_FIGURE = "no public figure"
NOT_COUNTED = "not counted"
FIXED, BUSIEST, AVERAGE = "fixed by the chip", "work of the busiest core", "work of an average core"
TOGETHER = "work of all cores, whose number is not known"

# Picojoules per multiply-accumulate of an ordinary network. KerasSpiking uses the figures of Degnan et al.
# for one operation of any width; Horowitz counts only arithmetic, no memory.
DEGNAN = "KerasSpiking model_energy.py; Degnan et al., IEEE Transactions on VLSI Systems 24(1), 2016"
ORDINARY: dict[str, Cost] = {
    "CPU": Cost(value=8600.0, low=8600.0, high=8600.0, source=DEGNAN, basis="published"),
    "ARM": Cost(value=900.0, low=900.0, high=900.0, source=DEGNAN, basis="published"),
    "GPU": Cost(value=300.0, low=300.0, high=300.0, source=DEGNAN, basis="published"),
    "bare arithmetic, 45 nm": Cost(
        value=0.3,
        low=0.23,
        high=0.3,
        source="Horowitz, ISSCC 2014: 8-bit multiply 0.2, 32-bit add 0.1 (low: 8-bit add 0.03); no memory",
        basis="published",
    ),
}


@record
class Range:
    """A value with its low and high end."""

    value: float
    low: float
    high: float

    def plus(self, other: Range) -> Range:
        return Range(value=self.value + other.value, low=self.low + other.low, high=self.high + other.high)

    def times(self, factor: float) -> Range:
        return Range(value=self.value * factor, low=self.low * factor, high=self.high * factor)


ZERO = Range(value=0.0, low=0.0, high=0.0)


@record
class CostItem(Report):
    """`count` items at `cost` each; `missing` says what the total excludes, or why there is none."""

    JSON = "name count each=cost total missing"

    name: str
    count: float | None
    cost: Cost | None
    total: Range | None
    missing: str | None = None


@record
class CostSum(Report):
    """A sum of items; `total` is None when no item has a known cost."""

    JSON = "items total missing"

    items: tuple[CostItem, ...]

    @property
    def total(self) -> Range | None:
        if self.missing and all(item.missing or item.count == 0 for item in self.items):
            return None
        return reduce(Range.plus, (item.total for item in self.items if item.total is not None), ZERO)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(f"{item.name}: {item.missing}" for item in self.items if item.missing)


class Units(NamedTuple):
    """The units of energy, power and time."""

    energy: Literal["pJ"] = "pJ"
    power: Literal["mW"] = "mW"
    time: Literal["ns"] = "ns"


@record
class EnergyReport(Report):
    """Energy and time per sample, in picojoules and nanoseconds.

    `step` is the time per step of the core that `step_of` describes. `operations` are the synaptic operations
    per sample of each connection. `ordinary` is the energy of an equivalent ordinary network. `random`
    marks costs of random inputs.
    """

    JSON = """target samples random_inputs=random assumed_activity?=assumed timesteps chips cores units
        complete missing energy_per_sample=energy time_per_sample=time time_per_step_of=step_of
        time_per_step=step dynamic static not_included=outside
        zero_weights_counted=zero_weights synaptic_operations=operations ordinary_network=ordinary"""

    target: str
    samples: int
    timesteps: int
    chips: int
    cores: int | None  # None if the chip's allocation of cores is not documented
    zero_weights: bool
    operations: Mapping[str, float]  # per sample, by connection
    dynamic: CostSum
    static: CostSum
    step: CostSum
    step_of: str
    ordinary: tuple[CostItem, ...]  # an equivalent ordinary network
    outside: tuple[CostItem, ...] = ()  # terms that no sum includes, because no figure is public
    random: bool = False
    assumed: bool = False  # of an activity that nobody measured

    @property
    def units(self) -> Units:
        return Units()

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def energy(self) -> Range | None:
        """Return dynamic and static energy per sample."""
        return CostSum(items=(*self.dynamic.items, *self.static.items)).total

    @property
    def time(self) -> Range | None:
        """Return the time per sample."""
        return None if self.step.total is None else self.step.total.times(self.timesteps)

    @property
    def missing(self) -> tuple[str, ...]:
        """List what energy and time exclude, and why."""
        return (
            *(f"energy of {text}" for text in self.dynamic.missing),
            *(f"energy of {text}" for text in self.static.missing),
            *(f"time of {text}" for text in self.step.missing),
        )

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """Map each source, with its basis, to the names of the items whose cost it supplies."""
        found: dict[str, dict[str, None]] = {}
        for item in (*self.dynamic.items, *self.static.items, *self.step.items, *self.ordinary):
            if item.cost is not None:
                found.setdefault(f"{item.cost.source} ({item.cost.basis})", {})[item.name] = None
        return {source: tuple(names) for source, names in found.items()}


# ---- the estimate -----------------------------------------------------------------------------


def estimate(
    network: IntNetwork,
    profile: HardwareProfile,
    activity: Activity,
    *,
    cores: int | None,
    chips: int = 1,
    loads: Sequence[CoreLoad] | None = None,
    hops: float | None = None,
    crossings: float | None = None,
    input_messages: float | None = None,
    axons_per_input: int = 1,
    zero_weights: bool = False,
) -> EnergyReport:
    """Estimate energy and time per sample.

    `loads` is the work of each core (`core_loads`); without it, a step takes as long as on an average core,
    or as all work on one core, if the number of `cores` is not known (None).
    `hops` and `crossings` count the transfers of spikes to another router or chip, per sample, and
    `input_messages` the input values that arrive at cores, which cost as much as spikes. If an input takes
    several axons, the chip performs up to `axons_per_input` operations for one of ours.
    """
    if chips < 1 or (cores is not None and cores < 1):
        raise OptionError(f"{cores} cores on {chips} chips; at least one of each is needed.")
    found = operations(network, activity, zero_weights=zero_weights)
    neurons = sum(updates(population.neuron, profile) * population.size for population in network.layers)
    whole = CoreLoad(operations=sum(found.values()), neurons=neurons, spikes=_spikes(network, activity))
    if crossings is None and chips == 1:
        crossings = 0.0
    step, step_of = _step(profile, whole, cores, loads, network.timesteps)
    dynamic = _dynamic(profile, whole, network.timesteps, hops, crossings, input_messages, axons_per_input)
    system = _system(profile, network, activity, chips)
    return EnergyReport(
        target=profile.name,
        samples=activity.samples,
        random=activity.random,
        assumed=activity.assumed,
        timesteps=network.timesteps,
        chips=chips,
        cores=cores,
        zero_weights=zero_weights,
        operations=found,
        dynamic=CostSum(items=(*dynamic.items, *(item for item in system if item.cost is not None))),
        outside=tuple(item for item in system if item.cost is None),
        static=CostSum(items=(_static(profile.cost("power.static"), chips, step, network.timesteps),)),
        step=step,
        step_of=step_of,
        ordinary=_ordinary(network),
    )


def _spikes(network: IntNetwork, activity: Activity) -> float:
    """Return the spikes of all neurons per sample; input values arrive from outside the chip."""
    names = [population.name for population in network.layers]
    return sum(float(activity.counts(name).sum()) for name in names) / activity.samples


def _dynamic(
    profile: HardwareProfile,
    whole: CoreLoad,
    timesteps: int,
    hops: float | None,
    crossings: float | None,
    input_messages: float | None,
    axons_per_input: int,
) -> CostSum:
    counts = {
        "synaptic_operation": whole.operations,
        "neuron_update": float(whole.neurons * timesteps),
        "spike": whole.spikes,
        "hop": hops,
        "chip_crossing": crossings,
    }
    operations, *others = (_item(name, n, profile.cost(f"energy.{name}")) for name, n in counts.items())
    if input_messages is not None:
        others.append(_item("input_message", input_messages, profile.cost("energy.spike")))
    if axons_per_input > 1 and operations.missing is None:
        several = f"an input takes up to {axons_per_input} axons, and is counted as one"
        operations = replace(operations, missing=several)
    return CostSum(items=(operations, *others))


def _system(
    profile: HardwareProfile, network: IntNetwork, activity: Activity, chips: int
) -> tuple[CostItem, ...]:
    """Return what a system does beside its cores: barriers, and numbers to and from the host.

    The host sends every nonzero input value once, and receives each output of the readout once per sample.
    """
    sent = float(activity.counts(network.input.name).sum()) / activity.samples
    host, barrier = profile.cost("energy.host_message"), profile.cost("energy.barrier")
    inputs = _item("host_message", sent, host)
    outputs = _item("host_message", float(network.output.size), host)
    return (
        replace(inputs, name="input from the host"),
        replace(outputs, name="output to the host"),
        _item("barrier", float(network.timesteps * chips), barrier),
    )


def _item(name: str, count: float | None, cost: Cost | None) -> CostItem:
    plural = f"{name.replace('_', ' ')}s"
    if count == 0:
        return CostItem(name=plural, count=0.0, cost=cost, total=ZERO)
    if count is None or cost is None:
        missing = NOT_COUNTED if count is None else NO_FIGURE
        return CostItem(name=plural, count=count, cost=cost, total=None, missing=missing)
    return CostItem(name=plural, count=count, cost=cost, total=_range(cost).times(count))


def _range(cost: Cost) -> Range:
    return Range(value=cost.value, low=cost.low, high=cost.high)


def _static(power: Cost | None, chips: int, step: CostSum, timesteps: int) -> CostItem:
    """Return static power times the known part of the time; mW times ns are pJ."""
    name, count, time = "static power", float(chips), step.total
    if power is None or time is None:
        unknown = NO_FIGURE if power is None else "the time is not known"
        return CostItem(name=name, count=count, cost=power, total=None, missing=unknown)
    energy = Range(value=power.value * time.value, low=power.low * time.low, high=power.high * time.high)
    missing = "the time is incomplete, so this is a lower bound" if step.missing else None
    return CostItem(
        name=name, count=count, cost=power, total=energy.times(chips * timesteps), missing=missing
    )


def _step(
    profile: HardwareProfile,
    whole: CoreLoad,
    cores: int | None,
    loads: Sequence[CoreLoad] | None,
    timesteps: int,
) -> tuple[CostSum, str]:
    """Return the time per step, and the core it refers to."""
    fixed = profile.cost("time.step")
    if fixed is not None:
        return CostSum(items=(_item("step", 1.0, fixed),)), FIXED
    if loads:
        steps = [_work(profile, load, 1, timesteps) for load in loads]
        return max(steps, key=lambda step: step.total.value if step.total else 0.0), BUSIEST
    return _work(profile, whole, cores or 1, timesteps), AVERAGE if cores else TOGETHER


def _work(profile: HardwareProfile, load: CoreLoad, cores: int, timesteps: int) -> CostSum:
    """Return the time per step of `cores` that share a load equally, averaged over the time steps."""
    counts = {
        "synaptic_operation": load.operations / timesteps / cores,
        "neuron_update": load.neurons / cores,
        "spike": load.spikes / timesteps / cores,
        "barrier": 1.0,
    }
    return CostSum(items=tuple(_item(name, n, profile.cost(f"time.{name}")) for name, n in counts.items()))


def _ordinary(network: IntNetwork) -> tuple[CostItem, ...]:
    """Return the energy of one pass without time steps on ordinary processors."""
    count = float(multiplications(network))
    return tuple(
        CostItem(name=machine, count=count, cost=cost, total=_range(cost).times(count))
        for machine, cost in ORDINARY.items()
    )


# ---- in words -----------------------------------------------------------------------------------

# SI units, and the scale of our picojoules, nanoseconds and milliwatts in them.
JOULES, SECONDS, WATTS = ("J", 1e-12), ("s", 1e-9), ("W", 1e-3)
PREFIXES = {"p": 1e-12, "n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0}


def sample_kind(report: EnergyReport) -> str:
    """Return "samples", or what says little about the costs of real ones: "random inputs", an assumption."""
    if report.assumed:
        return "assumed activity"
    return "random inputs" if report.random else "samples"


def sample_costs(report: EnergyReport) -> list[tuple[Range | None, bool, tuple[str, float]]]:
    """Return energy and time per sample, each with whether it is a lower bound, and its unit."""
    left_out = bool(report.dynamic.missing or report.static.missing)
    return [(report.energy, left_out, JOULES), (report.time, bool(report.step.missing), SECONDS)]


def headline(report: EnergyReport) -> tuple[str, str]:
    """Return energy and time per sample without ranges; '> 1.2 µJ' for lower bounds."""
    energy, time = (
        f"> {short(found, *unit)}" if left_out and found is not None else short(found, *unit)
        for found, left_out, unit in sample_costs(report)
    )
    return energy, time


def short(found: Range | None, unit: str, scale: float) -> str:
    """Return '1.23 mJ'."""
    return "unknown" if found is None else quantity(found.value, unit, scale)


def spread(found: Range | None, unit: str, scale: float) -> str:
    """Return '1.23 mJ (0.9 mJ to 2 mJ)'."""
    if found is None:
        return "unknown"
    text = quantity(found.value, unit, scale)
    return text if found.low == found.high else f"{text} ({range_ends(found, unit, scale)})"


def range_ends(found: Range, unit: str, scale: float) -> str:
    """Return '0.9 mJ to 2 mJ'."""
    return f"{quantity(found.low, unit, scale)} to {quantity(found.high, unit, scale)}"


def quantity(value: float, unit: str, scale: float) -> str:
    """Return three digits with a metric prefix: for 1234567 at a scale of 1e-12, '1.23 µJ'."""
    if value == 0:
        return f"0 {unit}"
    amount = value * scale
    for prefix, size in PREFIXES.items():
        if amount / size < 999.5:
            return f"{amount / size:.3g} {prefix}{unit}"
    return f"{amount:,.0f} {unit}"
