"""A small network that tests whether a witness works on this machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir import as_steps
from ..reference import simulate
from ..trial import one_neuron
from .pieces import Answer, Piece, cut_pieces


def check_witness(name: str, run: Callable[[Piece], Answer]) -> str:
    """Compare a witness with the reference on the network of `check_one_neuron`."""
    network, inputs = one_neuron(), np.array([[[1], [1]], [[5], [0]], [[4], [4]]])
    expected = simulate(network, inputs)
    (piece,) = cut_pieces(network, "neuron", {"input": as_steps(inputs, (1,), network.timesteps)})
    answer = run(piece)
    if not np.array_equal(answer.spikes, expected.spikes["neuron"]):
        raise RuntimeError(f"{name}: spikes of a one-neuron network differ from the reference")
    return f"one neuron fired {int(answer.spikes.sum())} spikes as expected"
