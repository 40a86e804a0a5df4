"""EXECUTOR: SynSense's xylosim, the maker's simulator of Xylo Audio 2, on a whole network of Xylo neurons."""

from __future__ import annotations

import numpy as np

from ...base import Array, FormatError
from ...formats.xylo import specification
from ...ir import IntNetwork, Trace, as_steps, check_input_values
from ..options import ExecutionOptions
from ..traces import outputs_of
from .xylosim import WholeNetwork, version


def obstacle(network: IntNetwork) -> str | None:
    """Return why the chip, and so its simulator, cannot hold a network."""
    try:
        specification(network)
    except FormatError as error:
        return str(error)
    return None


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """Run all samples, one after the other; all spikes and voltages are xylosim's."""
    version()
    check_input_values(network, np.asarray(inputs))
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    steps = steps.reshape(*steps.shape[:2], -1).astype(np.int64)
    chip = WholeNetwork(specification(network))
    answers = [chip.run(steps[index]) for index in options.progress(range(len(steps)))]
    fired, charged = (np.stack(parts).astype(np.int64) for parts in zip(*answers, strict=True))
    ends = np.cumsum([0, *(p.size for p in network.layers)])
    places = {p.name: slice(a, b) for p, a, b in zip(network.layers, ends[:-1], ends[1:], strict=True)}

    def split(values: Array) -> dict[str, Array]:
        return {
            p.name: values[..., places[p.name]].reshape(*values.shape[:2], *p.shape) for p in network.layers
        }

    spikes, voltages = split(fired), split(charged)
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs_of(network, spikes, voltages))
