"""One neuron, to see whether an executor works on this machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..base import Array
from ..ir import Connection, Dense, Input, IntNetwork, Lif, Population, Trace
from .options import ExecutionOptions
from .reference import simulate

Run = Callable[[IntNetwork, Array, ExecutionOptions], Trace]


def one_neuron() -> IntNetwork:
    """Return a neuron that fires when its input of 0..7, times two, exceeds nine."""
    neuron = Lif(threshold=np.array([9]), bias=np.array([0]), decay_voltage=3072)
    return IntNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=0, maximum=7)),
            Population(name="neuron", shape=(1,), neuron=neuron),
        ),
        connections=(Connection(source="input", target="neuron", synapse=Dense(weight=np.array([[2]]))),),
        timesteps=2,
        scales={"neuron": np.ones(1)},
    )


def one_neuron_fires(name: str, run: Run) -> str:
    """Run three samples, of which the second and third fire: 2 * 5 > 9, 2 * 4 + 8 // 4 > 9."""
    inputs = np.array([[[1], [1]], [[5], [0]], [[4], [4]]])
    expected = simulate(one_neuron(), inputs).spikes["neuron"]
    got = run(one_neuron(), inputs, ExecutionOptions()).spikes["neuron"]
    if not np.array_equal(expected, got):
        raise RuntimeError(f"one neuron in {name} fired other spikes than the reference")
    return f"one neuron fired {int(got.sum())} spikes as it should"
