"""The trace of an execution, and the checks of its inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..base import Array, SimulationError, array_record
from .membranes import AnyNetwork
from .synapses import Shape


@array_record
class Trace:
    """Spikes, voltages and outputs of a network on some samples.

    `spikes` and `voltages` have shape [samples, timesteps, *shape] for each layer; voltages are those at the
    end of a step, after the reset. Spikes are bool; populations that send graded messages have those instead,
    as whole numbers. `outputs` [samples, *shape] are the voltages of the readout after the last
    step, or the spike counts of the last population if it fires.
    """

    spikes: Mapping[str, Array]
    voltages: Mapping[str, Array]
    outputs: Array

    @property
    def predictions(self) -> Array:
        """The index of the largest output of each sample; the first one in case of ties."""
        predictions: Array = self.outputs.reshape(len(self.outputs), -1).argmax(axis=1)
        return predictions


def as_steps(inputs: Array, shape: Shape, timesteps: int) -> Array:
    """Return inputs as [samples, timesteps, *shape]; repeat samples without a time axis in each step."""
    inputs = np.asarray(inputs)
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
            "normalized ones; for a NIR or netx file, --input-range sets another range."
        )
