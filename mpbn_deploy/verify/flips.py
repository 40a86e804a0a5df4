"""Find the rounding error that flipped a spike, and the first spike that differs.

A spike that differs is a *flip*. If none of the neuron's inputs and none of its own spikes differed before,
this population's rounding caused the flip. Each kind of rounding is then undone in turn: the kind whose
undoing restores the float network's spike is the cause. All other flips follow from *earlier* flips, upstream
or of the neuron itself.

Multiplied by 2**6 * scale of their channel, the real numbers of a float neuron are in units of the integer
state. Float and integer neurons then obey the same equation (`ir.Membrane`), and one kind of rounded number
at a time can be replaced by its exact value (`recovery_margins`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any

import numpy as np

from ..base import Array, Report, layer_name, record
from ..execute.reference import gather
from ..ir import (
    STATE_EXPONENT,
    AnyNetwork,
    Connection,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Membrane,
    Population,
    fires,
    membrane,
    per_channel,
)

CAUSES = {  # a kind of rounding, and the parts of a `DrivenPopulation` that it changes
    "weight": ("synapses",),
    "bias": ("bias",),
    "threshold": ("threshold", "subtrahend"),
    "leak": ("decay_current", "decay_voltage"),  # rounding of the register, and truncation in every step
}
DIGITS = (6, 18)  # of a printed voltage; 17 digits tell any two floats apart
SEVERAL, EARLIER = "several together", "earlier"
ALL_CAUSES = (*CAUSES, SEVERAL, EARLIER)
ONE_WEIGHT = 2**STATE_EXPONENT  # one unit of weight or threshold, in units of the state

Sent = Mapping[str, Array]  # by population, the values it sends: [samples, timesteps, *shape]
Finite = Annotated[float, {"type": ["number", "null"]}]  # null in JSON, which has no NaN and no infinity
Places = tuple[Array, ...]  # (sample, step, *index) of some neurons, as returned by np.nonzero


@record
class Flip(Report):
    """A spike that differs: its place, both voltages and thresholds in the float network's unit, its cause.

    `mended_by` lists each kind of rounding whose undoing restores the float network's spike, the one with
    the largest margin first. The first is the cause; if there is none, several kinds act together.
    """

    JSON = """population sample time_step index float_fires float_voltage float_threshold integer_voltage
        integer_threshold mended_by cause"""

    population: str
    sample: int
    time_step: int
    index: tuple[int, ...]
    float_fires: bool
    float_voltage: Finite
    float_threshold: Finite
    integer_voltage: Finite
    integer_threshold: Finite
    mended_by: tuple[str, ...]  # roundings whose undoing restores the spike

    @property
    def cause(self) -> str:
        return self.mended_by[0] if self.mended_by else SEVERAL

    def to_json(self) -> dict[str, Any]:
        found = Report.to_json(self).items()
        return {key: json_number(value) if isinstance(value, float) else value for key, value in found}

    def __str__(self) -> str:
        float_does, integer_does = ("fires", "does not") if self.float_fires else ("does not fire", "does")
        others = ", ".join(self.mended_by[1:])
        also = f" (undoing {others} restores it too)" if others else ""
        return (
            f"{layer_name(self.population)}, sample {self.sample}, step {self.time_step}, neuron "
            f"{list(self.index)}: the folded network {float_does} at "
            f"{_against(self.float_voltage, self.float_threshold)}, the integer network {integer_does} at "
            f"{_against(self.integer_voltage, self.integer_threshold)}; cause: {self.cause}{also}"
        )


def _against(voltage: float, threshold: float) -> str:
    """Return '0.12 against 0.34', with as many digits as it takes to tell different numbers apart."""
    pairs = [(f"{voltage:.{digits}g}", f"{threshold:.{digits}g}") for digits in range(*DIGITS)]
    shown = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    return " against ".join(shown)


def json_number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# ---- one population ---------------------------------------------------------------------------


@record
class DrivenPopulation:
    """The membranes of a population and their synaptic input, in units of the integer state."""

    synapses: Array  # [samples, timesteps, *shape]
    membrane: Membrane

    @property
    def threshold(self) -> Array:
        """The threshold; infinity for a population that does not fire."""
        return np.array(np.inf) if self.membrane.threshold is None else self.membrane.threshold

    def voltages(self, spikes: Array) -> Array:
        """Return the voltages before the reset, if the neurons are reset by the given spikes."""
        found: Array = np.empty(self.synapses.shape)
        current = voltage = np.zeros_like(found[:, 0])
        for step in range(found.shape[1]):
            rule = self.membrane.at(step)
            current, found[:, step] = rule.integrate((current, voltage), self.synapses[:, step])
            voltage = rule.reset(found[:, step], spikes[:, step])
        return found

    def at(self, places: Places) -> DrivenPopulation:
        """Select some neurons, with all their time steps: [places, timesteps]."""
        whole = replace(self.membrane, threshold=self.threshold)
        shape, index = self.synapses.shape[1 + (not whole.per_step) :], places[2:]
        chosen: tuple[Any, ...] = (slice(None), *index) if whole.per_step else index
        return DrivenPopulation(
            synapses=in_all_steps(self.synapses, places),
            membrane=whole.selected(lambda values: np.broadcast_to(values, shape)[chosen]),
        )

    def thresholds(self, steps: Array) -> Array:
        """Return the thresholds of neurons that `at` selected, each in its time step."""
        return self.threshold[steps, np.arange(len(steps))] if self.membrane.per_step else self.threshold

    def exchanged(self, other: DrivenPopulation, parts: Sequence[str]) -> DrivenPopulation:
        """Replace some parts by those of `other`."""
        taken = {part: getattr(other.membrane, part) for part in parts if part != "synapses"}
        synapses = other.synapses if "synapses" in parts else self.synapses
        return DrivenPopulation(synapses=synapses, membrane=replace(self.membrane, **taken))


def in_all_steps(values: Array, places: Places) -> Array:
    """Select [places, timesteps] from values [samples, timesteps, *shape]."""
    sample, _, *index = places
    chosen: tuple[Any, ...] = (sample, slice(None), *index)
    taken: Array = values[chosen]
    return taken


def synaptic_input(entering: Sequence[Connection], population: Population[Any], sent: Sent) -> Array:
    """Return the sum over all synapses into a population, [samples, timesteps, *shape]."""
    steps = range(sent[population.name].shape[1])
    return np.stack([gather(entering, population, sent, step) for step in steps], axis=1)


def driven_population(
    network: AnyNetwork, name: str, sent: Sent, factor: Array | int = 1
) -> DrivenPopulation:
    """Return a population of a network with its input; for real numbers, `factor` is 2**6 * scale.

    All arithmetic is in float64, which represents both the integers and the scaled real numbers.
    """
    population = network.layer(name)
    rule = membrane(population.neuron, 1)
    synapses = factor * rule.unit * synaptic_input(network.entering(name), population, sent)
    return DrivenPopulation(synapses=synapses, membrane=rule.scaled(factor))


def recovery_margins(
    integer: DrivenPopulation, real: DrivenPopulation, spikes: Array, places: Places, wanted: Array
) -> Array:
    """Return [causes, places]: the margin by which undoing one kind of rounding gives the wanted spike.

    The margin is |voltage - threshold|, or -1 if the spike is still not the wanted one. Earlier resets
    follow `spikes`, which are the same in both networks.
    """
    integer, real, common = integer.at(places), real.at(places), in_all_steps(spikes, places)
    found = np.empty((len(CAUSES), len(wanted)))
    for row, parts in zip(found, CAUSES.values(), strict=True):
        mixed = integer.exchanged(real, parts)
        voltage = mixed.voltages(common)[np.arange(len(wanted)), places[1]]
        threshold = mixed.thresholds(places[1])
        row[:] = np.where((voltage > threshold) == wanted, np.abs(voltage - threshold), -1.0)
    return found


# ---- both networks ----------------------------------------------------------------------------


@record
class PairedRun:
    """Both networks on some samples: the spikes of every population, and where they differ."""

    folded: FoldedNetwork
    network: IntNetwork
    real: Sent
    integer: Sent
    different: Sent

    def driven(self, population: IntPopulation) -> tuple[DrivenPopulation, DrivenPopulation]:
        """Return a population of the integer and of the float network, with their inputs."""
        unit = ONE_WEIGHT * per_channel(self.network.scales[population.name], population.shape)
        both = (
            driven_population(self.network, population.name, self.integer),
            driven_population(self.folded, population.name, self.real, unit),
        )
        if not any(each.membrane.per_step for each in both):
            return both
        steps = self.network.timesteps  # their parts can be exchanged if both have that axis
        integer, real = (replace(each, membrane=each.membrane.in_steps(steps)) for each in both)
        return integer, real

    def voltage_unit(self, population: IntPopulation) -> Array:
        """Return the integer voltage of one real unit: 2**6 * scale; for a readout, times the time steps."""
        summed = 1 if fires(population.neuron) else self.network.timesteps
        unit: Array = (
            ONE_WEIGHT * summed * per_channel(self.network.scales[population.name], population.shape)
        )
        return unit

    def of_sample(self, sample: int) -> PairedRun:
        def only(sent: Sent) -> Sent:
            return {name: values[sample : sample + 1] for name, values in sent.items()}

        return replace(self, real=only(self.real), integer=only(self.integer), different=only(self.different))


def count_causes(
    run: PairedRun, population: IntPopulation, integer: DrivenPopulation, real: DrivenPopulation
) -> Counter[str]:
    """Count the flips by cause."""
    different = run.different[population.name]
    if not different.any():
        return Counter()
    places = np.nonzero(different & ~_affected(run, population))
    wanted = run.real[population.name][places]
    found = recovery_margins(integer, real, run.integer[population.name], places, wanted)
    chosen = np.where(found.max(axis=0) >= 0, found.argmax(axis=0), len(CAUSES))
    counts = Counter({name: int((chosen == row).sum()) for row, name in enumerate((*CAUSES, SEVERAL))})
    return counts + Counter({EARLIER: int(different.sum()) - len(wanted)})


def _affected(run: PairedRun, population: IntPopulation) -> Array:
    """[samples, timesteps, *shape]: whether a neuron has received, or sent in an earlier step, a flip."""
    own = np.logical_or.accumulate(run.different[population.name], axis=1)
    affected = np.zeros_like(own)
    affected[:, 1:] = own[:, :-1]
    both = [c for network in (run.folded, run.network) for c in network.entering(population.name)]
    if masks := _weight_masks([c for c in both if run.different[c.source].any()]):
        affected |= synaptic_input(masks, population, run.different) > 0
    return np.logical_or.accumulate(affected, axis=1)


def _weight_masks(connections: Sequence[Connection]) -> list[Connection]:
    """Replace every non-zero weight by one; connections that differ in their weights only become one."""
    masks: dict[tuple[Any, ...], Connection] = {}
    for connection in connections:
        synapse = connection.synapse
        others = [getattr(synapse, f.name) for f in fields(synapse) if f.name not in ("weight", "exponent")]
        place = (connection.source, connection.delay, type(synapse), synapse.weight.shape, *others)
        weight = synapse.weight != 0
        if place in masks:
            weight |= masks[place].synapse.weight
        masks[place] = replace(connection, synapse=replace(synapse, weight=weight, exponent=0))
    return list(masks.values())


def first_flip(run: PairedRun, start: int) -> Flip | None:
    """Return the flip that is first in time, then by population, sample and neuron.

    `start` is the index of the run's first sample.
    """
    order = run.network.order
    flips = {name: np.argwhere(run.different[name]) for name in order if run.different[name].any()}
    if not flips:
        return None
    name = min(flips, key=lambda name: (flips[name][:, 1].min(), order[name]))
    sample, step, *index = flips[name][flips[name][:, 1].argmin()].tolist()
    flip = _explain(run.of_sample(sample), name, step, tuple(index))
    return replace(flip, sample=start + sample)


def _explain(run: PairedRun, name: str, step: int, index: tuple[int, ...]) -> Flip:
    """Explain a flip in a run of one sample that no earlier flip affects."""
    population = run.network.layer(name)
    integer, real = run.driven(population)
    places = tuple(np.array([place]) for place in (0, step, *index))
    at = (0, step, *index)
    found = recovery_margins(integer, real, run.integer[name], places, run.real[name][places])[:, 0]
    order = sorted(range(len(found)), key=lambda row: -found[row])
    unit = float(np.broadcast_to(run.voltage_unit(population), population.shape)[index])
    return Flip(
        population=name,
        sample=0,
        time_step=step,
        index=index,
        float_fires=bool(run.real[name][at]),
        float_voltage=float(real.voltages(run.real[name])[at]) / unit,
        float_threshold=float(real.at(places).thresholds(places[1])[0]) / unit,
        integer_voltage=float(integer.voltages(run.integer[name])[at]) / unit,
        integer_threshold=float(integer.at(places).thresholds(places[1])[0]) / unit,
        mended_by=tuple(list(CAUSES)[row] for row in order if found[row] >= 0),
    )


def earliest(network: IntNetwork, flips: Sequence[Flip | None]) -> Flip | None:
    found = [flip for flip in flips if flip is not None]
    return min(found, key=lambda flip: (flip.time_step, network.order[flip.population]), default=None)
