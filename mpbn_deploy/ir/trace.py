"""The trace of an execution, and the checks of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np

from ..base import Array, Report, SimulationError, Summarized, Summary, array_record, layer_name, record
from .membranes import AnyNetwork
from .synapses import Shape, picture_shape

SHOWN_PREDICTIONS = 10


@array_record
class Trace(Summarized):
    """Spikes, voltages and outputs of a network on some samples.

    `spikes` and `voltages` have shape [samples, timesteps, *shape] for each layer; voltages are those at the
    end of a step, after the reset. Spikes are bool; populations that send graded messages have those instead,
    as whole numbers. `outputs` [samples, *shape] are the voltages of the readout after the last
    step, or the spike counts of the last population if it fires. `overflows` has the shape of each layer
    whose states left their width: in how many steps of all samples each neuron's did. Only the reference and
    the emulator count them.
    """

    spikes: Mapping[str, Array]
    voltages: Mapping[str, Array]
    outputs: Array
    overflows: Mapping[str, Array] = field(default_factory=dict)

    @property
    def summary(self) -> Summary:
        """The trace in a few lines: how often each layer fired, and the first predictions."""
        fired = {
            name: f"{np.count_nonzero(sent):,} of {sent.size:,} fired" for name, sent in self.spikes.items()
        }
        first = ", ".join(map(str, self.predictions[:SHOWN_PREDICTIONS].tolist()))
        more = ", ..." if len(self.outputs) > SHOWN_PREDICTIONS else ""
        rows = (*fired.items(), ("predictions", first + more))
        return Summary(color=None, verdict=f"trace of {len(self.outputs)} samples", rows=rows)

    def voltage_updates(self, name: str) -> int:
        """Count voltages of a population that differ from the step before; in the first step, all count."""
        values = self.voltages[name]
        return int(np.count_nonzero(values[:, 1:] != values[:, :-1])) + values[:, 0].size

    def of_samples(self, samples: slice) -> Trace:
        """Return the trace of some samples, without the counts that are over all of them."""
        return Trace(
            spikes={name: values[samples] for name, values in self.spikes.items()},
            voltages={name: values[samples] for name, values in self.voltages.items()},
            outputs=self.outputs[samples],
        )

    @property
    def predictions(self) -> Array:
        """The index of the largest output of each sample; the first one in case of ties."""
        predictions: Array = self.outputs.reshape(len(self.outputs), -1).argmax(axis=1)
        return predictions


@array_record
class SpikeCounts:
    """What a trace sums up to over its samples, by population; counts of parts of the samples add up.

    per_neuron   in how many steps of all samples each neuron sent a spike or a message, [*shape]
    per_step     how many neurons of all samples did in each step, [timesteps]
    updates      the `voltage_updates`
    """

    samples: int
    per_neuron: Mapping[str, Array]
    per_step: Mapping[str, Array]
    updates: Mapping[str, int]

    def rates(self, name: str) -> Array:
        """Return the fraction of neurons that sent something, [timesteps]."""
        rates: Array = self.per_step[name] / (self.samples * self.per_neuron[name].size)
        return rates


def count_spikes(trace: Trace) -> SpikeCounts:
    """Count what the neurons of a trace sent."""
    return SpikeCounts(
        samples=len(trace.outputs),
        per_neuron={name: np.count_nonzero(sent, axis=(0, 1)) for name, sent in trace.spikes.items()},
        per_step={
            name: np.count_nonzero(sent, axis=(0, *range(2, sent.ndim)))
            for name, sent in trace.spikes.items()
        },
        updates={name: trace.voltage_updates(name) for name in trace.voltages},
    )


def join_counts(parts: Sequence[SpikeCounts]) -> SpikeCounts:
    """Add the counts of several parts of the samples."""

    def added(counts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        return {name: np.sum([count[name] for count in counts], axis=0) for name in counts[0]}

    return SpikeCounts(
        samples=sum(part.samples for part in parts),
        per_neuron=added([part.per_neuron for part in parts]),
        per_step=added([part.per_step for part in parts]),
        updates={name: sum(part.updates[name] for part in parts) for name in parts[0].updates},
    )


@record
class Overflow(Report):
    """In how many neurons of a population, and in how many of their steps, a number left its width."""

    JSON = "neurons steps bits?"

    neurons: int
    steps: int
    bits: int = 24  # width of the state: 24, or 16 for Xylo


def join_overflows(parts: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Add the overflows of the traces of several samples."""
    total: dict[str, Array] = {}
    for part in parts:
        for name, steps in part.items():
            total[name] = total.get(name, 0) + steps
    return total


def count_overflows(overflows: Mapping[str, Array], bits: int = 24) -> dict[str, Overflow]:
    """Return the counts of each population of a trace's overflows."""
    return {
        name: Overflow(neurons=int(np.count_nonzero(steps)), steps=int(steps.sum()), bits=bits)
        for name, steps in overflows.items()
    }


def overflow_lines(overflows: Mapping[str, Overflow]) -> list[str]:
    """Return a printed line per population."""
    continues = {
        24: "they continue as in Lava, where currents wrap and voltages clip",
        16: "sums stop at the limits, as on the chip",
    }
    return [
        f"{layer_name(name)}: {found.neurons} neurons left {found.bits} bits, in {found.steps} steps of all "
        f"samples; {continues[found.bits]}"
        for name, found in overflows.items()
    ]


def as_steps(inputs: Array, shape: Shape, timesteps: int) -> Array:
    """Return inputs as [samples, timesteps, *shape]; repeat samples without a time axis in each step."""
    inputs = np.asarray(inputs)
    if inputs.ndim:
        inputs = inputs.reshape(len(inputs), *shape_for(inputs.shape[1:], shape))
    if inputs.shape[1:] == shape:
        inputs = np.broadcast_to(inputs[:, None], (len(inputs), timesteps, *shape))
    if inputs.shape[1:] != (timesteps, *shape):
        raise SimulationError(
            f"inputs of shape {inputs.shape}; the network takes [samples, {', '.join(map(str, shape))}], "
            f"or the same with {timesteps} time steps after the samples."
        )
    if len(inputs) == 0:
        raise SimulationError("no samples: inputs are empty; give at least one sample.")
    return inputs


def shape_for(sample: Shape, shape: Shape) -> Shape:
    """Return a sample's shape, with steps or without, as inputs of `shape` have it.

    A signal may come as (channels, length), or as a picture one pixel high.
    """
    signal = (shape[0], shape[2]) if len(shape) == 3 and shape[1] == 1 else shape
    if len(signal) == 2:
        for known in (picture_shape(signal), signal):
            if sample[-len(known) :] == known:
                return (*sample[: -len(known)], *shape)
    return sample


def check_input_values(network: AnyNetwork, inputs: Array, *, fractions: bool = False) -> None:
    """Raise unless inputs are whole numbers, or `fractions`, in the network's input range."""
    allowed = network.input_range
    if inputs.dtype.kind not in "biuf":
        raise SimulationError(f"inputs are of type {inputs.dtype}; whole numbers are needed.")
    real = inputs.dtype.kind == "f"
    if real and not np.isfinite(inputs).all():
        raise SimulationError("inputs hold NaN or infinity; whole numbers are needed.")
    if real and not fractions and not np.array_equal(inputs, np.rint(inputs)):
        raise SimulationError("inputs hold fractions; an integer network takes whole numbers.")
    if inputs.min() < allowed.minimum or inputs.max() > allowed.maximum:
        raise SimulationError(
            f"inputs from {inputs.min()} to {inputs.max()}; "
            f"the network takes {allowed.minimum}..{allowed.maximum}. Give raw values of that range, not "
            "normalized ones; for a bare state_dict, a NIR or a netx file, --input-range sets another range."
        )
