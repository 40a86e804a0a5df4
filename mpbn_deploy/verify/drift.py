"""Measure how far the integer network drifts from the float network, and which rounding error causes it.

Both networks run on the same samples. For every neuron and time step, the two voltages are compared before
the reset, as the neuron compares them with its threshold.

A spike that differs is a *flip*. If none of the neuron's inputs and none of its own spikes differed before,
this population's rounding caused the flip. Each kind of rounding is then undone in turn (`flips`): the kind
whose undoing restores the float network's spike is the cause. All other flips follow from *earlier* flips,
upstream or of the neuron itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from ..base import Array, SimulationError, announce, freeze_arrays, layer_name, record, track
from ..execute.emulator import Emulator
from ..ir import (
    Connection,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Trace,
    as_steps,
    fires,
    incoming,
    neuron_kind,
    per_channel,
)
from .accuracy import Predictions, compare_predictions
from .flips import (
    CAUSES,
    ONE_WEIGHT,
    DrivenPopulation,
    Sent,
    driven_population,
    recovery_margins,
    synaptic_input,
)

SEVERAL, EARLIER = "several together", "earlier"
VALUES_AT_ONCE = 2**24  # neurons * time steps * samples whose traces are kept in memory
QUIET_SECONDS = 5.0
DIGITS = (6, 18)  # of a printed voltage; 17 digits tell any two floats apart


@record
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

    def __post_init__(self) -> None:
        freeze_arrays(self)

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
        whole = {key: _json_number(value) for key, value in self.over_steps().items()}
        if not self.fires:
            whole["spike_agreement"] = None
        steps = {key: [_json_number(value) for value in values] for key, values in self.steps().items()}
        return {**whole, "flips": dict(self.flips), "steps": steps}


MEASURES = (
    "spike_agreement",
    "rate_float",
    "rate_integer",
    "voltage_error_rms",
    "voltage_error_largest",
    "threshold_distance_rms",
    "near_threshold",
)


@record
class Flip:
    """A spike that differs: its place, both voltages and thresholds in the float network's unit, its cause.

    `mended_by` lists each kind of rounding whose undoing restores the float network's spike, the one with
    the largest margin first. The first is the cause; if there is none, several kinds act together.
    """

    population: str
    sample: int
    time_step: int
    index: tuple[int, ...]
    float_fires: bool
    float_voltage: float
    float_threshold: float
    integer_voltage: float
    integer_threshold: float
    mended_by: tuple[str, ...]

    @property
    def cause(self) -> str:
        return self.mended_by[0] if self.mended_by else SEVERAL

    def to_json(self) -> dict[str, Any]:
        numbers = {key: _json_number(value) if isinstance(value, float) else value
                   for key, value in asdict(self).items()}  # fmt: skip
        return {**numbers, "index": list(self.index), "mended_by": list(self.mended_by), "cause": self.cause}

    def __str__(self) -> str:
        float_does, integer_does = ("fires", "does not") if self.float_fires else ("does not fire", "does")
        others = ", ".join(self.mended_by[1:])
        also = f" (undoing {others} restores it too)" if others else ""
        return (
            f"{layer_name(self.population)}, sample {self.sample}, step {self.time_step}, neuron "
            f"{list(self.index)}: the float network {float_does} at "
            f"{_against(self.float_voltage, self.float_threshold)}, the integer network {integer_does} at "
            f"{_against(self.integer_voltage, self.integer_threshold)}; cause: {self.cause}{also}"
        )


def _against(voltage: float, threshold: float) -> str:
    """Return '0.12 against 0.34', with as many digits as it takes to tell different numbers apart."""
    pairs = [(f"{voltage:.{digits}g}", f"{threshold:.{digits}g}") for digits in range(*DIGITS)]
    shown = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    return " against ".join(shown)


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


# ---- both networks ----------------------------------------------------------------------------


@record
class _PairedRun:
    """Both networks on some samples: the spikes of every population, and where they differ."""

    folded: FoldedNetwork
    network: IntNetwork
    real: Sent
    integer: Sent
    different: Sent

    def driven(self, population: IntPopulation) -> tuple[DrivenPopulation, DrivenPopulation]:
        """Return a population of the integer and of the float network, with their inputs."""
        unit = ONE_WEIGHT * per_channel(self.network.scales[population.name], population.shape)
        return (
            driven_population(self.network, population.name, self.integer),
            driven_population(self.folded, population.name, self.real, unit),
        )

    def of_sample(self, sample: int) -> _PairedRun:
        def only(sent: Sent) -> Sent:
            return {name: values[sample : sample + 1] for name, values in sent.items()}

        return replace(self, real=only(self.real), integer=only(self.integer), different=only(self.different))


def measure_drift(
    folded: FoldedNetwork,
    network: IntNetwork,
    inputs: Array,
    labels: Array | None = None,
    trace: Trace | None = None,
) -> Drift:
    """Compare both networks on all inputs, in parts whose traces fit in memory.

    `trace` is the trace of the integer network, if it has been executed already.
    """
    check_pair(folded, network)
    as_steps(inputs, network.input.shape, network.timesteps)
    announce(f"verify: float against integer, {len(inputs)} samples")
    neurons = sum(population.size for population in network.populations)
    size = max(1, VALUES_AT_ONCE // (neurons * network.timesteps))
    starts = range(0, len(inputs), size)
    populations: dict[str, list[dict[str, Array]]] = {p.name: [] for p in network.layers}
    flips = {name: Counter(dict.fromkeys((*CAUSES, SEVERAL, EARLIER), 0)) for name in populations}
    firsts, predictions = [], []
    emulator, executed = Emulator(folded), _executed(network, inputs, trace)
    for start in track(starts, "verify: drift", len(starts), quiet_seconds=QUIET_SECONDS):
        part = slice(start, start + size)
        run, predicted = _run(folded, network, inputs[part], emulator.run(inputs[part]), executed(part))
        predictions.append(predicted)
        firsts.append(_first_flip(run, start))
        for population in network.layers:
            measures, causes = _measure(run, population)
            populations[population.name].append(measures)
            flips[population.name].update(causes)
    real, integer = np.concatenate(predictions, axis=1)
    return Drift(
        populations=tuple(
            PopulationDrift(name=name, flips=dict(flips[name]), **_joined(parts))
            for name, parts in populations.items()
        ),
        predictions=compare_predictions(real, integer, labels),
        first_flip=_earliest(network, firsts),
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


def _executed(network: IntNetwork, inputs: Array, trace: Trace | None) -> Callable[[slice], Trace]:
    """Return a function from a slice of the samples to their trace: cut from `trace`, or emulated."""
    if trace is not None:
        return partial(_part, trace)
    emulator = Emulator(network)
    return lambda part: emulator.run(inputs[part])


def _part(trace: Trace, samples: slice) -> Trace:
    spikes = {name: values[samples] for name, values in trace.spikes.items()}
    return replace(trace, spikes=spikes, voltages={}, outputs=trace.outputs[samples])


def _run(
    folded: FoldedNetwork, network: IntNetwork, inputs: Array, real: Trace, integer: Trace
) -> tuple[_PairedRun, Array]:
    """Return the spikes of both networks, and their predictions [float and integer, samples]."""
    given = {network.input.name: as_steps(inputs, network.input.shape, network.timesteps)}
    different = {name: spikes != integer.spikes[name] for name, spikes in real.spikes.items()}
    run = _PairedRun(
        folded=folded,
        network=network,
        real={**given, **real.spikes},
        integer={**given, **integer.spikes},
        different={name: np.zeros(steps.shape, bool) for name, steps in given.items()} | different,
    )
    return run, np.stack([real.predictions, integer.predictions])


def _measure(run: _PairedRun, population: IntPopulation) -> tuple[dict[str, Array], Counter[str]]:
    """Return the measures of a population, [samples, timesteps], RMS values still squared, and its flips."""
    name, (integer, real) = population.name, run.driven(population)
    voltage = real.voltages(run.real[name])
    unit = _voltage_unit(run.network, population)
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
    return measures, _causes(run, population, integer, real)


def _causes(
    run: _PairedRun, population: IntPopulation, integer: DrivenPopulation, real: DrivenPopulation
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


def _affected(run: _PairedRun, population: IntPopulation) -> Array:
    """[samples, timesteps, *shape]: whether a neuron has received, or sent in an earlier step, a flip."""
    own = np.logical_or.accumulate(run.different[population.name], axis=1)
    affected = np.zeros_like(own)
    affected[:, 1:] = own[:, :-1]
    for connections in (run.folded.connections, run.network.connections):
        masks = [
            _weight_mask(c) for c in incoming(connections, population.name) if run.different[c.source].any()
        ]
        if masks:
            affected |= synaptic_input(masks, population, run.different) > 0
    return np.logical_or.accumulate(affected, axis=1)


def _weight_mask(connection: Connection) -> Connection:
    """Replace every non-zero weight by one."""
    synapse = connection.synapse
    return replace(connection, synapse=replace(synapse, weight=synapse.weight != 0, exponent=0))


def _first_flip(run: _PairedRun, start: int) -> Flip | None:
    """Return the flip that is first in time, then by population, sample and neuron.

    `start` is the index of the run's first sample.
    """
    names = [population.name for population in run.network.populations]
    flips = {name: np.argwhere(run.different[name]) for name in names if run.different[name].any()}
    if not flips:
        return None
    name = min(flips, key=lambda name: (flips[name][:, 1].min(), names.index(name)))
    sample, step, *index = flips[name][flips[name][:, 1].argmin()].tolist()
    flip = _explain(run.of_sample(sample), name, step, tuple(index))
    return replace(flip, sample=start + sample)


def _explain(run: _PairedRun, name: str, step: int, index: tuple[int, ...]) -> Flip:
    """Explain a flip in a run of one sample that no earlier flip affects."""
    population = run.network.layer(name)
    integer, real = run.driven(population)
    places = tuple(np.array([place]) for place in (0, step, *index))
    at = (0, step, *index)
    found = recovery_margins(integer, real, run.integer[name], places, run.real[name][places])[:, 0]
    order = sorted(range(len(found)), key=lambda row: -found[row])
    unit = float(np.broadcast_to(_voltage_unit(run.network, population), population.shape)[index])
    return Flip(
        population=name,
        sample=0,
        time_step=step,
        index=index,
        float_fires=bool(run.real[name][at]),
        float_voltage=float(real.voltages(run.real[name])[at]) / unit,
        float_threshold=float(real.at(places).threshold[0]) / unit,
        integer_voltage=float(integer.voltages(run.integer[name])[at]) / unit,
        integer_threshold=float(integer.at(places).threshold[0]) / unit,
        mended_by=tuple(list(CAUSES)[row] for row in order if found[row] >= 0),
    )


def _earliest(network: IntNetwork, flips: Sequence[Flip | None]) -> Flip | None:
    names = [population.name for population in network.populations]
    found = [flip for flip in flips if flip is not None]
    return min(found, key=lambda flip: (flip.time_step, names.index(flip.population)), default=None)


def _voltage_unit(network: IntNetwork, population: IntPopulation) -> Array:
    """Return the integer voltage of one real unit: 2**6 * scale; for a readout, times the time steps."""
    summed = 1 if fires(population.neuron) else network.timesteps
    unit: Array = ONE_WEIGHT * summed * per_channel(network.scales[population.name], population.shape)
    return unit


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
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _json_number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
