"""IntNetwork -> FoldedNetwork: the real numbers that the integers of a network represent,

    weight * 2**exponent,  threshold,  subtrahend,  bias * 2**(bias_exponent - 6),  leak = 1 - decay / 4096

divided by the scale of their channel, as before quantization, or in units of one weight.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from typing_extensions import assert_never

from ..base import Array, NetworkError
from .folded import FoldedNetwork
from .graph import Connection
from .integer import IntNetwork
from .neurons import (
    DECAY_ONE,
    STATE_EXPONENT,
    FloatLif,
    FloatNeuron,
    FloatReadout,
    FloatSoftLif,
    IntegratingNeuron,
    Lif,
    Readout,
    SoftLif,
    integrating,
    map_steps,
    modulating,
)
from .relays import without_relays
from .synapses import scale_channels, scaled


def real_network(network: IntNetwork, *, in_weights: bool = False) -> FoldedNetwork:
    """Return the real network that the integers represent; it differs only in not truncating its leak.

    Quantizing it with the same scales gives the integers back. With `in_weights`, all numbers stay in
    units of one weight, and scales are not needed. Relays are composed into the synapses after them.
    """
    network = without_relays(network)
    if own := [p.name for p in network.layers if modulating(p.neuron) is not None]:
        reason = "sigma-delta neurons, of which there is no version in real numbers; keep the netx file"
        raise NetworkError("FoldedNetwork", [f"{name}: {reason}" for name in own])
    units = {
        p.name: np.ones(p.shape[0]) if in_weights else 1 / network.scales[p.name] for p in network.layers
    }
    layers = [
        p.with_neuron(map_steps(neuron, partial(_real_neuron, unit=units[p.name])))
        for p in network.layers
        if (neuron := integrating(p.neuron)) is not None
    ]
    return FoldedNetwork(
        populations=(network.input, *layers),
        connections=tuple(_real_connection(c, units[c.target]) for c in network.connections),
        timesteps=network.timesteps,
    )


def _real_connection(connection: Connection, unit: Array) -> Connection:
    real = scaled(connection.synapse, unit)
    return replace(connection, synapse=replace(real, weight=real.weight * 2.0**real.exponent, exponent=0))


def _real_neuron(neuron: IntegratingNeuron, unit: Array) -> FloatNeuron:
    bias = scale_channels(neuron.bias * 2.0 ** (neuron.bias_exponent - STATE_EXPONENT), unit)
    leak, current_leak = 1 - neuron.decay_voltage / DECAY_ONE, 1 - neuron.decay_current / DECAY_ONE
    match neuron:
        case Lif():
            threshold = scale_channels(neuron.threshold, unit)
            return FloatLif(threshold=threshold, bias=bias, leak=leak, current_leak=current_leak)
        case SoftLif():
            threshold, subtrahend = (
                scale_channels(values, unit) for values in (neuron.threshold, neuron.subtrahend)
            )
            return FloatSoftLif(
                threshold=threshold, subtrahend=subtrahend, bias=bias, leak=leak, current_leak=current_leak
            )
        case Readout():
            return FloatReadout(bias=bias, leak=leak, current_leak=current_leak)
        case _:
            assert_never(neuron)
