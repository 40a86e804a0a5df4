"""A one-neuron network that tests whether an executor works on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import Array
from ..ir import (
    XYLO_HIDDEN_SPIKES,
    XYLO_OUTPUT_SPIKES,
    Connection,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Trace,
    Xylo,
)
from .options import ExecutionOptions
from .reference import simulate

Run = Callable[[IntNetwork, Array, ExecutionOptions], Trace]


def one_neuron(decay_voltage: int = 3072) -> IntNetwork:
    """Return a network of one leaky neuron: weight 2, threshold 9, inputs 0..7, two time steps."""
    neuron = Lif(threshold=np.array([9]), bias=np.array([0]), decay_voltage=decay_voltage)
    return IntNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=0, maximum=7)),
            Population(name="neuron", shape=(1,), neuron=neuron),
        ),
        connections=(Connection(source="input", target="neuron", synapse=Dense(weight=np.array([[2]]))),),
        timesteps=2,
        scales={"neuron": np.ones(1)},
    )


def one_xylo_neuron() -> IntNetwork:
    """Return two neurons of Xylo in a row: weight 20, threshold 30, inputs 0..15, four time steps."""
    numbers: dict[str, Any] = {
        "threshold": np.array([30]),
        "bias": np.array([1]),
        "shift_current": 1,
        "shift_voltage": 2,
    }
    synapse = Dense(weight=np.array([[20]]))
    return IntNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=0, maximum=15)),
            Population(name="hidden", shape=(1,), neuron=Xylo(max_spikes=XYLO_HIDDEN_SPIKES, **numbers)),
            Population(name="output", shape=(1,), neuron=Xylo(max_spikes=XYLO_OUTPUT_SPIKES, **numbers)),
        ),
        connections=(
            Connection(source="input", target="hidden", synapse=synapse),
            Connection(source="hidden", target="output", synapse=synapse, delay=1),
        ),
        timesteps=4,
        scales={},
    )


def check_one_neuron(name: str, run: Run) -> str:
    """Compare `run` with the reference on three samples.

    The second fires in its first step (2 * 5 > 9), the third in its second step (2 * 4 + 8 // 4 > 9).
    """
    inputs = np.array([[[1], [1]], [[5], [0]], [[4], [4]]])
    expected = simulate(one_neuron(), inputs).spikes["neuron"]
    got = run(one_neuron(), inputs, ExecutionOptions()).spikes["neuron"]
    if not np.array_equal(expected, got):
        raise RuntimeError(f"{name}: spikes of a one-neuron network differ from the reference")
    return f"one neuron fired {int(got.sum())} spikes as expected"
