"""How far the integer network is from the float one, per population and time step, and which rounding did it.

Both networks run on the same samples, and of every neuron both voltages are held against each other as
they are compared with their thresholds, before the reset.

A spike that differs is a *flip*. Where nothing that the neuron received, and none of its own spikes,
differed before, the flip was made by this population's rounding, and each kind is turned off in turn, the
others staying (`flips`): the one that gives back the float network's decision is the cause. All other flips
follow from *earlier* ones, upstream or of the neuron itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from ..base import Array, SimulationError, announce, freeze_arrays, record, track
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
from .flips import CAUSES, ONE_WEIGHT, Sent, Side, arriving, recoveries, side

SEVERAL, EARLIER = "several together", "earlier"
VALUES_AT_ONCE = 2**24  # neurons times steps times samples whose traces are held at once
QUIET_SECONDS = 5.0


@record
class PopulationDrift:
    """One population in both networks, step by step; every array is [timesteps].

    spike_agreement         share of neurons that decide alike
    rate_float, _integer    share of neurons that fire
    voltage_error_rms       root mean square of integer voltage / (2**6 * scale) - float voltage, in the
    voltage_error_largest   unit of the float network, before the reset; largest magnitude
    threshold_distance_rms  root mean square of float voltage - threshold: what an error is to be held against
    near_threshold          share of neurons whose float voltage is within one unit of weight, 1 / scale, of
                            the threshold: rounding the threshold alone can decide there

    A readout's voltage is divided by the time steps, as the float network does. Neurons without a finite
    threshold are at no distance from it and not near it; where all are such, as in a readout, both are NaN.
    `flips` counts the spikes that differ, by their cause.
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
        """Whether there was a spike in either network; two silent populations agree about nothing."""
        return bool(self.rate_float.any() or self.rate_integer.any())

    @property
    def relative_error(self) -> float:
        """The voltage error as a share of the distance from the threshold, both root mean squares."""
        distance = _root_mean_square(self.threshold_distance_rms)
        return _root_mean_square(self.voltage_error_rms) / distance if distance else float("nan")

    def over_steps(self) -> dict[str, float]:
        """The same numbers for all steps together."""
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
    """A spike that differs: where, what both networks compared, in the float network's unit, and why.

    `mended_by` lists every rounding that, turned off alone, gives back the float network's decision, the
    clearest first. The first of them is the cause; where there is none, several act together.
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
        also = f" (so would {', '.join(self.mended_by[1:])})" if self.mended_by[1:] else ""
        return (
            f"{self.population}, sample {self.sample}, step {self.time_step}, neuron {list(self.index)}: "
            f"the float network {float_does} at {self.float_voltage:.6g} against {self.float_threshold:.6g}, "
            f"the integer network {integer_does} at {self.integer_voltage:.6g} "
            f"against {self.integer_threshold:.6g}; cause: {self.cause}{also}"
        )


@record
class Drift:
    """Float against integer on some samples; `first_flip` is the first in time, then in population order."""

    populations: tuple[PopulationDrift, ...]
    predictions: Predictions
    first_flip: Flip | None = None

    @property
    def spike_agreement(self) -> dict[str, float]:
        """Of the populations that fire, the share of equal spikes."""
        return {p.name: float(p.spike_agreement.mean()) for p in self.populations if p.fires}

    def population(self, name: str) -> PopulationDrift:
        return next(population for population in self.populations if population.name == name)


# ---- both networks ----------------------------------------------------------------------------


@record
class _Run:
    """Both networks on some samples: what every population sends in each, and where that differs."""

    folded: FoldedNetwork
    network: IntNetwork
    real: Sent
    integer: Sent
    different: Sent

    def sides(self, population: IntPopulation) -> tuple[Side, Side]:
        """Of the integer and of the float network."""
        unit = ONE_WEIGHT * per_channel(self.network.scales[population.name], population.shape)
        return (
            side(self.network, population.name, self.integer),
            side(self.folded, population.name, self.real, unit),
        )

    def of_sample(self, sample: int) -> _Run:
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
    """Compare both networks on all inputs, as many samples at once as their traces allow.

    `trace` is that of the integer network, where it was executed before.
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
    """Refuse networks that are not one and the same but for rounding, or integers of unknown scale."""
    expected, found = (
        {p.name: (p.shape, neuron_kind(p.neuron)) for p in each.populations} for each in (folded, network)
    )
    if unlike := [name for name in {**expected, **found} if expected.get(name) != found.get(name)]:
        raise SimulationError(
            f"{', '.join(unlike)}: another population in the float network than in the integer network; "
            "compare a network with the one it was quantized from."
        )
    if folded.timesteps != network.timesteps:
        raise SimulationError(
            f"the float network runs {folded.timesteps} time steps, the integer network {network.timesteps}."
        )
    unscaled = [p.name for p in network.layers if len(network.scales.get(p.name, ())) != p.shape[0]]
    if unscaled:
        raise SimulationError(
            f"{', '.join(unscaled)}: no scale for each channel, so nobody knows what its integers mean; "
            "quantize the network again."
        )


def _executed(network: IntNetwork, inputs: Array, trace: Trace | None) -> Callable[[slice], Trace]:
    """Return what gives the trace of some samples: cut out of that of all, or emulated."""
    if trace is not None:
        return partial(_part, trace)
    emulator = Emulator(network)
    return lambda part: emulator.run(inputs[part])


def _part(trace: Trace, samples: slice) -> Trace:
    spikes = {name: values[samples] for name, values in trace.spikes.items()}
    return replace(trace, spikes=spikes, voltages={}, outputs=trace.outputs[samples])


def _run(
    folded: FoldedNetwork, network: IntNetwork, inputs: Array, real: Trace, integer: Trace
) -> tuple[_Run, Array]:
    """What both networks send, and their predictions [float and integer, samples]."""
    given = {network.input.name: as_steps(inputs, network.input.shape, network.timesteps)}
    different = {name: spikes != integer.spikes[name] for name, spikes in real.spikes.items()}
    run = _Run(
        folded=folded,
        network=network,
        real={**given, **real.spikes},
        integer={**given, **integer.spikes},
        different={name: np.zeros(steps.shape, bool) for name, steps in given.items()} | different,
    )
    return run, np.stack([real.predictions, integer.predictions])


def _measure(run: _Run, population: IntPopulation) -> tuple[dict[str, Array], Counter[str]]:
    """The measures of one population, [samples, timesteps], errors as squares; and its flips by cause."""
    name, (integer, real) = population.name, run.sides(population)
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


def _causes(run: _Run, population: IntPopulation, integer: Side, real: Side) -> Counter[str]:
    """How many flips each rounding made."""
    different = run.different[population.name]
    if not different.any():
        return Counter()
    places = np.nonzero(different & ~_reached(run, population))
    wanted = run.real[population.name][places]
    found = recoveries(integer, real, run.integer[population.name], places, wanted)
    chosen = np.where(found.max(axis=0) >= 0, found.argmax(axis=0), len(CAUSES))
    counts = Counter({name: int((chosen == row).sum()) for row, name in enumerate((*CAUSES, SEVERAL))})
    return counts + Counter({EARLIER: int(different.sum()) - len(wanted)})


def _reached(run: _Run, population: IntPopulation) -> Array:
    """[samples, timesteps, *shape]: which neurons have received, or sent before, a spike that differs."""
    own = np.logical_or.accumulate(run.different[population.name], axis=1)
    reached = np.zeros_like(own)
    reached[:, 1:] = own[:, :-1]
    for connections in (run.folded.connections, run.network.connections):
        bearing = [
            _bearing(c) for c in incoming(connections, population.name) if run.different[c.source].any()
        ]
        if bearing:
            reached |= arriving(bearing, population, run.different) > 0
    return np.logical_or.accumulate(reached, axis=1)


def _bearing(connection: Connection) -> Connection:
    """One wherever there is a weight."""
    synapse = connection.synapse
    return replace(connection, synapse=replace(synapse, weight=synapse.weight != 0, exponent=0))


def _first_flip(run: _Run, start: int) -> Flip | None:
    """The first in time, then in population order, sample and neuron; samples count from `start`."""
    names = [population.name for population in run.network.populations]
    flips = {name: np.argwhere(run.different[name]) for name in names if run.different[name].any()}
    if not flips:
        return None
    name = min(flips, key=lambda name: (flips[name][:, 1].min(), names.index(name)))
    sample, step, *index = flips[name][flips[name][:, 1].argmin()].tolist()
    flip = _explained(run.of_sample(sample), name, step, tuple(index))
    return replace(flip, sample=start + sample)


def _explained(run: _Run, name: str, step: int, index: tuple[int, ...]) -> Flip:
    """A flip of the only sample of a run, before which nothing differed that reaches it."""
    population = run.network.layer(name)
    integer, real = run.sides(population)
    places = tuple(np.array([place]) for place in (0, step, *index))
    at = (0, step, *index)
    found = recoveries(integer, real, run.integer[name], places, run.real[name][places])[:, 0]
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
    """What a voltage is divided by to be a real number: 2**6 * scale; of a readout, times the time steps."""
    summed = 1 if fires(population.neuron) else network.timesteps
    unit: Array = ONE_WEIGHT * summed * per_channel(network.scales[population.name], population.shape)
    return unit


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    """Measures of all samples, [samples, timesteps] each, as one number per step."""
    whole = {key: np.concatenate([part[key] for part in parts]) for key in MEASURES}
    joined = {key: values.mean(axis=0) for key, values in whole.items()}
    for key in ("voltage_error_rms", "threshold_distance_rms"):
        joined[key] = np.sqrt(joined[key])
    return {**joined, "voltage_error_largest": whole["voltage_error_largest"].max(axis=0)}


def _mean_where_finite(values: Array, axes: tuple[int, ...]) -> Array:
    """NaN where nothing is finite."""
    finite = np.isfinite(values)
    count = finite.sum(axis=axes)
    total = np.where(finite, values, 0.0).sum(axis=axes)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _json_number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
