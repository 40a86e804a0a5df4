"""Sigma-delta neurons in netx files: what lava-dl's reader makes of a layer, and what it can hold.

lava-dl never resets them, and each of its layers runs from the first time step on, before its input arrives.
So a file means a chain in which every connection takes one step; only the neurons of the input layer receive
the sample at once.

    layer/<i>/neuron/{type: SDNN, activation: relu, vThMant}     Delta in the input layer, else SigmaDelta
    layer/<i>/neuron/sigma_output                                Sigma

In our graphs, the type DELTA is a Delta that can be anywhere, and neurons may have keys `spikeExponent` and
`stateExponent`; lava-dl takes 6 for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, Tree
from ...ir import (
    NO_BORDER,
    STATE_EXPONENT,
    Connection,
    Conv2d,
    Delta,
    IntNetwork,
    Shape,
    Sigma,
    SigmaDelta,
    SigmaDeltaNeuron,
    compact,
    modulating,
)
from .node import Node

ToNetx = Callable[[Array], Array]  # from our axes to those of the format
SIGMA_DELTA = "SDNN"
ENCODER = "DELTA"  # in our extension
NO_CHAIN = (
    "sigma-delta neurons that are not a chain of lava-dl: one step per connection, one threshold per layer, "
    "exponents of 6, and neurons that encode changes only at the input"
)


# ---- reading ----------------------------------------------------------------------------------


def is_sigma_delta(layer: Node) -> bool:
    return "neuron" in layer and layer.group("neuron").text("type") in (SIGMA_DELTA, ENCODER)


def read_sigma_delta(layer: Node, shape: Shape) -> SigmaDeltaNeuron:
    """Return the neuron that lava-dl's reader builds: Delta for the input, Sigma for a sigma_output."""
    rule = layer.group("neuron")
    if "activation" in rule and (word := rule.text("activation")) != "relu":
        layer.fail(
            f"has activation {word!r}; lava-dl's reader takes every one for relu, so only that is read"
        )
    if rule.number_or("messageBits", 1) < 1:
        layer.fail("has messageBits 0, which means binary spikes; sigma-delta neurons send graded messages")
    encodes = layer.text("type") == "input" or rule.text("type") == ENCODER
    if "sigma_output" in rule and not encodes:
        if "bias" in layer and layer.integers("bias").any():
            layer.fail("has sigma_output and a bias; lava-dl's Sigma, which sums its input, has none")
        return Sigma()
    numbers: dict[str, Any] = {
        "threshold": compact(np.broadcast_to(rule.per_neuron("vThMant", shape), shape)),
        "message_exponent": rule.number_or("spikeExponent", STATE_EXPONENT),
        "state_exponent": rule.number_or("stateExponent", STATE_EXPONENT),
    }
    if encodes:
        return Delta(**numbers)
    bias = layer.per_neuron("bias", shape) if "bias" in layer else np.zeros_like(numbers["threshold"])
    return SigmaDelta(bias=bias, **numbers)


# ---- writing ----------------------------------------------------------------------------------


def sigma_delta_tree(neuron: SigmaDeltaNeuron, to_netx: ToNetx, *, in_input: bool = False) -> Tree:
    """Return the keys of a layer that describe its neurons; `in_input`, in the words of an input layer."""
    match neuron:
        case Delta():
            return {"neuron": {"type": SIGMA_DELTA if in_input else ENCODER, **_numbers(neuron, to_netx)}}
        case SigmaDelta():
            rule = {"type": SIGMA_DELTA, **_numbers(neuron, to_netx)}
            return {"bias": to_netx(neuron.bias), "neuron": rule}
        case Sigma():
            return {"neuron": {"type": SIGMA_DELTA, "activation": "relu", "sigma_output": np.int32(1)}}
        case _:
            assert_never(neuron)


def _numbers(neuron: Delta | SigmaDelta, to_netx: ToNetx) -> Tree:
    exponents = {"spikeExponent": neuron.message_exponent, "stateExponent": neuron.state_exponent}
    one = np.unique(neuron.threshold).size == 1
    return {
        "activation": "relu",
        "vThMant": np.int32(neuron.threshold.flat[0]) if one else to_netx(neuron.threshold),
        **{key: np.int32(value) for key, value in exponents.items() if value != STATE_EXPONENT},
    }


def is_stock_layer(network: IntNetwork, neuron: SigmaDeltaNeuron, entering: Sequence[Connection]) -> bool:
    """Whether lava-dl's reader gives these neurons and the delay of their only connection."""
    if len(entering) != 1 or not all(modulating(population.neuron) for population in network.layers):
        return False
    match neuron:
        case Delta():
            return _is_plain(neuron) and _is_own_input(network, entering[0])
        case SigmaDelta():
            return _is_plain(neuron) and entering[0].delay == 1
        case Sigma():
            return entering[0].delay == 1
        case _:
            assert_never(neuron)


def _is_plain(neuron: Delta | SigmaDelta) -> bool:
    exponents = (neuron.message_exponent, neuron.state_exponent)
    return exponents == (STATE_EXPONENT, STATE_EXPONENT) and np.unique(neuron.threshold).size == 1


def _is_own_input(network: IntNetwork, connection: Connection) -> bool:
    """Whether each neuron receives its own value of the input, at once."""
    synapse, channels = connection.synapse, network.input.shape[0]
    return (
        (connection.source, connection.delay) == (network.input.name, 0)
        and isinstance(synapse, Conv2d)
        and (synapse.weight.shape, synapse.groups) == ((channels, 1, 1, 1), channels)
        and (synapse.stride, synapse.padding, synapse.silent) == ((1, 1), (0, 0), NO_BORDER)
        and bool((synapse.weight == 1).all())
    )
