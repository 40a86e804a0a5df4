"""Measure how far the integer network drifts from the float network.

Both networks run on the same samples. For every neuron and time step, the two voltages are compared before
the reset, as the neuron compares them with its threshold.

A spike that differs is a *flip*; `flips` finds its cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..base import Array, SimulationError, announce, array_record, progress_bar, record
from ..execute import chunks
from ..execute.emulator import Emulator
from ..ir import (
    FloatPopulation,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Trace,
    as_steps,
    neuron_kind,
    neuron_threshold,
    per_channel,
    shift_rules,
    without_relays,
)
from .accuracy import Predictions, compare_predictions
from .flips import ALL_CAUSES, ONE_WEIGHT, Flip, PairedRun, count_causes, earliest, first_flip, json_number

ROUNDING = "rounding"  # of weights, thresholds, biases or decays


@array_record
class PopulationDrift:
    """The drift of one population; every array is [timesteps].

    spike_agreement         share of neurons with the same spike in both networks
    rate_float, _integer    share of neurons that fire
    voltage_error_rms       root mean square of integer voltage / (2**6 * scale) - float voltage, before
                            the reset, in the unit of the float network
    voltage_error_largest   largest magnitude of that difference
    threshold_distance_rms  root mean square of float voltage - threshold, for comparison with the error
    near_threshold          share of neurons whose float voltage is within one unit of weight, 1 / scale, of
                            the threshold, where rounding the threshold alone can flip a spike

    A readout's voltage is divided by the number of time steps, as in the float network. Neurons without a
    finite threshold are left out of the last two; if there are no others, as in a readout, both are NaN.
    `flips` counts the spikes that differ, by cause.
    """

    name: str
    spike_agreement: Array
    rate_float: Array
    rate_integer: Array
    voltage_error_rms: Array
    voltage_error_largest: Array
    threshold_distance_rms: Array
    near_threshold: Array
    flips: Mapping[str, int]

    @property
    def fires(self) -> bool:
        """Whether there is a spike in either network; otherwise, agreement is meaningless."""
        return bool(self.rate_float.any() or self.rate_integer.any())

    @property
    def relative_error(self) -> float:
        """The RMS voltage error relative to the RMS distance from the threshold."""
        distance = _root_mean_square(self.threshold_distance_rms)
        return _root_mean_square(self.voltage_error_rms) / distance if distance else float("nan")

    def over_steps(self) -> dict[str, float]:
        """Return the same measures over all time steps."""
        whole = {key: float(values.mean()) for key, values in self.steps().items()}
        for key in ("voltage_error_rms", "threshold_distance_rms"):
            whole[key] = _root_mean_square(getattr(self, key))
        return {**whole, "voltage_error_largest": float(self.voltage_error_largest.max())}

    def steps(self) -> dict[str, Array]:
        return {key: getattr(self, key) for key in MEASURES}

    def to_json(self) -> dict[str, Any]:
        whole = {key: json_number(value) for key, value in self.over_steps().items()}
        if not self.fires:
            whole["spike_agreement"] = None
        steps = {key: [json_number(value) for value in values] for key, values in self.steps().items()}
        return {**whole, "flips": dict(self.flips), "steps": steps}


MEASURES = tuple(field.name for field in fields(PopulationDrift))[1:-1]  # all but its name and its flips


def drift_schema() -> dict[str, Any]:
    """Return the JSON schemas of the keys of a population's drift."""
    number, count = {"type": ["number", "null"]}, {"type": "integer", "minimum": 0}
    steps = {
        "description": "the same measures, one number per time step",
        "type": "object",
        "required": list(MEASURES),
        "properties": {key: {"type": "array", "items": number} for key in MEASURES},
    }
    flips = {
        "description": "spikes that differ, by cause",
        "type": "object",
        "required": list(ALL_CAUSES),
        "properties": dict.fromkeys(ALL_CAUSES, count),
    }
    return {**dict.fromkeys(MEASURES, number), "flips": flips, "steps": steps}


@record
class Drift:
    """The drift on some samples; `first_flip` is the first in time, then in population order."""

    populations: tuple[PopulationDrift, ...]
    predictions: Predictions
    first_flip: Flip | None = None

    @property
    def spike_agreement(self) -> dict[str, float]:
        """The share of equal spikes, for each population that fires."""
        return {p.name: float(p.spike_agreement.mean()) for p in self.populations if p.fires}

    def population(self, name: str) -> PopulationDrift:
        return next(population for population in self.populations if population.name == name)


def measure_drift(
    folded: FoldedNetwork, network: IntNetwork, inputs: Array, labels: Array | None = None
) -> Drift:
    """Compare both networks on all inputs, in chunks whose traces fit in memory."""
    meter = DriftMeter(folded, network)
    announce(f"verify: float against integer, {len(inputs)} samples")
    as_steps(inputs, network.input.shape, network.timesteps)
    emulator, parts = Emulator(network), chunks(network, len(inputs))
    for index in progress_bar("verify: drift")(range(len(parts))):
        meter.add(inputs[parts[index]], emulator.run(inputs[parts[index]]))
    return meter.drift(labels)


class DriftMeter:
    """Measures drift on one part of the samples after the other.

    Relays have no counterpart in the float network, and decide nothing: they are composed into the synapses
    after them.
    """

    def __init__(self, folded: FoldedNetwork, network: IntNetwork) -> None:
        self.folded, self.network = folded, without_relays(network)
        check_pair(folded, self.network)
        self.emulator, self.samples = Emulator(folded), 0
        self.parts: dict[str, list[dict[str, Array]]] = {p.name: [] for p in self.network.layers}
        self.counts = shift_rules(self.network) is not None
        causes = (ROUNDING,) if self.counts else ALL_CAUSES
        self.flips = {name: Counter(dict.fromkeys(causes, 0)) for name in self.parts}
        self.first: Flip | None = None
        self.predictions: list[Array] = []

    def add(self, inputs: Array, trace: Trace) -> None:
        """Add the next samples, and what the integer network did on them."""
        real = self.emulator.run(inputs)
        if self.counts:
            self._add_counts(real, trace)
            return
        run, predicted = _run(self.folded, self.network, inputs, replace(real, voltages={}), trace)
        self.predictions.append(predicted)
        self.first = earliest(self.network, [self.first, first_flip(run, self.samples)])
        for population in self.network.layers:
            measures, causes = _measure(run, population)
            self.parts[population.name].append(measures)
            self.flips[population.name].update(causes)
        self.samples += len(inputs)

    def _add_counts(self, real: Trace, trace: Trace) -> None:
        """Add samples of neurons that fire several times in a step; causes of flips are not told apart."""
        self.predictions.append(np.stack([real.predictions, trace.predictions]))
        for population in self.network.layers:
            name, other = population.name, self.folded.layer(population.name)
            measures = _measure_counts(population, other, real, trace, self.network.scales[name])
            self.parts[name].append(measures)
            self.flips[name][ROUNDING] += int(np.count_nonzero(real.spikes[name] != trace.spikes[name]))
        self.samples += len(real.outputs)

    def drift(self, labels: Array | None) -> Drift:
        """Return the drift on all samples that were added."""
        real, integer = np.concatenate(self.predictions, axis=1)
        return Drift(
            populations=tuple(
                PopulationDrift(name=name, flips=dict(self.flips[name]), **_joined(parts))
                for name, parts in self.parts.items()
            ),
            predictions=compare_predictions(real, integer, labels),
            first_flip=self.first,
        )


def check_pair(folded: FoldedNetwork, network: IntNetwork) -> None:
    """Raise SimulationError if the networks differ in more than rounding, or a scale is missing."""
    expected, found = (
        {p.name: (p.shape, neuron_kind(p.neuron)) for p in each.populations} for each in (folded, network)
    )
    if unlike := [name for name in {**expected, **found} if expected.get(name) != found.get(name)]:
        raise SimulationError(
            f"{', '.join(unlike)}: not the same population in the float and the integer network; compare "
            "a network with the one it was quantized from."
        )
    if folded.timesteps != network.timesteps:
        raise SimulationError(
            f"the float network runs {folded.timesteps} time steps, the integer network {network.timesteps}; "
            "they must be equal."
        )
    unscaled = [p.name for p in network.layers if len(network.scales.get(p.name, ())) != p.shape[0]]
    if unscaled:
        raise SimulationError(
            f"{', '.join(unscaled)}: no scale per channel, so integers cannot be compared with real "
            "numbers; quantize the network again."
        )


def _run(
    folded: FoldedNetwork, network: IntNetwork, inputs: Array, real: Trace, integer: Trace
) -> tuple[PairedRun, Array]:
    """Return the spikes of both networks, and their predictions [float and integer, samples]."""
    given = {network.input.name: as_steps(inputs, network.input.shape, network.timesteps)}
    different = {name: spikes != integer.spikes[name] for name, spikes in real.spikes.items()}
    run = PairedRun(
        folded=folded,
        network=network,
        real={**given, **real.spikes},
        integer={**given, **integer.spikes},
        different={name: np.zeros(steps.shape, bool) for name, steps in given.items()} | different,
    )
    return run, np.stack([real.predictions, integer.predictions])


def _measure(run: PairedRun, population: IntPopulation) -> tuple[dict[str, Array], Counter[str]]:
    """Return the measures of a population, [samples, timesteps], RMS values still squared, and its flips."""
    name, (integer, real) = population.name, run.driven(population)
    voltage = real.voltages(run.real[name])
    unit = run.voltage_unit(population)
    error = np.abs(integer.voltages(run.integer[name]) - voltage) / unit
    distance = np.abs(voltage - real.threshold)
    neurons = tuple(range(2, voltage.ndim))
    measures = {
        "spike_agreement": 1 - run.different[name].mean(axis=neurons),
        "rate_float": run.real[name].mean(axis=neurons),
        "rate_integer": run.integer[name].mean(axis=neurons),
        "voltage_error_rms": (error**2).mean(axis=neurons),
        "voltage_error_largest": error.max(axis=neurons),
        "threshold_distance_rms": _mean_where_finite((distance / unit) ** 2, neurons),
        "near_threshold": _mean_where_finite(
            np.where(np.isfinite(distance), distance <= ONE_WEIGHT, np.nan), neurons
        ),
    }
    return measures, count_causes(run, population, integer, real)


def _measure_counts(
    population: IntPopulation, folded: FloatPopulation, real: Trace, integer: Trace, scales: Array
) -> dict[str, Array]:
    """Return the measures of a population of Xylo, whose spikes tell its voltages before the reset."""
    name = population.name
    units, wanted = neuron_threshold(population.neuron), neuron_threshold(folded.neuron)
    assert units is not None and wanted is not None, "Xylo's neurons fire"
    scale = per_channel(scales, population.shape)
    voltage = real.voltages[name] + real.spikes[name] * wanted
    error = np.abs((integer.voltages[name] + integer.spikes[name] * units) / scale - voltage)
    distance = np.abs(voltage - wanted)
    neurons = tuple(range(2, voltage.ndim))
    return {
        "spike_agreement": (real.spikes[name] == integer.spikes[name]).mean(axis=neurons),
        "rate_float": real.spikes[name].mean(axis=neurons),
        "rate_integer": integer.spikes[name].mean(axis=neurons),
        "voltage_error_rms": (error**2).mean(axis=neurons),
        "voltage_error_largest": error.max(axis=neurons),
        "threshold_distance_rms": (distance**2).mean(axis=neurons),
        "near_threshold": (distance * scale <= 1).mean(axis=neurons),
    }


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    """Average the measures, [samples, timesteps] per part, over all samples."""
    whole = {key: np.concatenate([part[key] for part in parts]) for key in MEASURES}
    joined = {key: values.mean(axis=0) for key, values in whole.items()}
    for key in ("voltage_error_rms", "threshold_distance_rms"):
        joined[key] = np.sqrt(joined[key])
    return {**joined, "voltage_error_largest": whole["voltage_error_largest"].max(axis=0)}


def _mean_where_finite(values: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean of the finite values along some axes; NaN if there are none."""
    finite = np.isfinite(values)
    count = finite.sum(axis=axes)
    total = np.where(finite, values, 0.0).sum(axis=axes)
    mean: Array = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return mean


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
