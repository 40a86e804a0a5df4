"""An executor that runs the PyTorch model of quantization-aware training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from ..base import Array, record
from ..execute import ExecutionOptions
from ..ir import IntNetwork, Trace, as_steps
from ..nn import SpikingNetwork
from ..quantize import QuantizedBody


@record
class TwinExecutor:
    """Runs the PyTorch model that an integer network was taken from; reports spikes and outputs only."""

    model: SpikingNetwork
    name: str = "PyTorch, as trained"
    parts: str = "all samples at once"

    def obstacle(self, network: IntNetwork) -> str | None:
        """Return None: the model can run the network that was taken from it."""
        return None

    def opened(
        self, network: IntNetwork, samples: int, options: ExecutionOptions
    ) -> AbstractContextManager[Callable[[Array], Trace]]:
        return nullcontext(lambda inputs: self.run(network, inputs, options))

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        """Run the model on inputs [samples, ...] and return its trace, without voltages."""
        model, body = self.model, self.model.body
        assert isinstance(body, QuantizedBody)
        stepped = as_steps(np.asarray(inputs, np.float32), model.input_format.shape, model.timesteps)
        with torch.no_grad():
            sent = body.run(torch.from_numpy(stepped.swapaxes(0, 1).copy()).flatten(0, 1))
        arrays = {
            name: values.view(model.timesteps, -1, *values.shape[1:]).transpose(0, 1).numpy()
            for name, values in sent.items()
        }
        *firing, readout = (neurons.population.name for neurons in body.all_neurons)
        spikes = {name: arrays[name].astype(bool) for name in firing}
        return Trace(spikes=spikes, voltages={}, outputs=arrays[readout].sum(axis=1).astype(np.int64))
