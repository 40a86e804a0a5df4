"""A one-neuron network that tests whether an executor works on this machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..base import Array
from ..ir import Connection, Dense, Input, IntNetwork, Lif, Population, Trace
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
