"""A small network that tests whether a witness works on this machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir import DECAY_ONE, Neuron, as_steps
from ..reference import simulate
from ..trial import one_neuron
from .pieces import Answer, Piece, cut_pieces


def check_witness(name: str, obstacle: Callable[[Neuron], str | None], run: Callable[[Piece], Answer]) -> str:
    """Compare a witness with the reference on one neuron: leaky, or else one that forgets its voltage."""
    network, inputs = one_neuron(), np.array([[[1], [1]], [[5], [0]], [[4], [4]]])
    if obstacle(network.output.neuron) is not None:
        network = one_neuron(DECAY_ONE)
    expected = simulate(network, inputs)
    (piece,) = cut_pieces(network, "neuron", {"input": as_steps(inputs, (1,), network.timesteps)})
    answer = run(piece)
    if not np.array_equal(answer.spikes, expected.spikes["neuron"]):
        raise RuntimeError(f"{name}: spikes of a one-neuron network differ from the reference")
    fired = int(answer.spikes.sum())
    return f"one neuron fired {fired} spike{'s' if fired > 1 else ''} as expected"
