"""To be described."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..base import Array, SimulationError, freeze_arrays, record
from .membranes import AnyNetwork
from .synapses import Shape


@record
class Trace:
    """What a network did on some samples.

    `spikes` and `voltages` hold, for each population but the input, [samples, timesteps, *shape];
    a voltage is the one at the end of the step, after the reset of those that fired. `outputs`
    hold [samples, *shape] of the last population: the readout's voltage after the last step, or,
    where the last population fires, its spike counts.
    """

    spikes: Mapping[str, Array]
    voltages: Mapping[str, Array]
    outputs: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def predictions(self) -> Array:
        """The index of the largest output of each sample; the first one where several are largest."""
        predictions: Array = self.outputs.reshape(len(self.outputs), -1).argmax(axis=1)
        return predictions


def as_steps(inputs: Array, shape: Shape, timesteps: int) -> Array:
    """Inputs as [samples, timesteps, *shape]; a sample without a time axis is held for all steps."""
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


def check_input_values(network: AnyNetwork, inputs: Array) -> None:
    """Refuse inputs that are not integers of the network's input range."""
    allowed = network.input_range
    if inputs.dtype.kind not in "iuf":
        raise SimulationError(f"inputs are of type {inputs.dtype}; whole numbers are needed.")
    if not np.isfinite(inputs).all():
        raise SimulationError("inputs hold NaN or infinity; whole numbers are needed.")
    if not np.array_equal(inputs, np.rint(inputs)):
        raise SimulationError("inputs hold fractions; an integer network takes whole numbers.")
    if inputs.min() < allowed.minimum or inputs.max() > allowed.maximum:
        raise SimulationError(
            f"inputs from {inputs.min()} to {inputs.max()}; "
            f"the network takes {allowed.minimum}..{allowed.maximum}. Give raw values of that range, not "
            "normalized ones; of a NIR or netx file, --input-range says another range."
        )
