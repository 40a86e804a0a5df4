"""A node of a netx file (a layer, its neurons, a connection), with checked access to its keys.

Errors name the file, the node and the key. Sizes are checked before values are expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from typing_extensions import assert_never

from ...base import Array, FormatError, Tree, as_text, record
from ...ir import (
    DECAY_ONE,
    MOST_NEURONS,
    NO_BORDER,
    STATE_EXPONENT,
    THRESHOLD_LIMIT,
    Connection,
    Conv2d,
    Delta,
    IntNetwork,
    Lif,
    Neuron,
    Pair,
    Readout,
    Relay,
    Shape,
    Sigma,
    SigmaDelta,
    SigmaDeltaNeuron,
    SoftLif,
    Xylo,
    compact,
    in_steps,
    modulating,
)

LARGEST_NUMBER = 2**31


@record
class Node:
    """Keys and values of one node; errors call it `name`."""

    path: Path
    name: str
    tree: Tree
    index: int = 0

    def __contains__(self, key: str) -> bool:
        return key in self.tree

    def group(self, key: str) -> Node:
        """Return a child node; its errors name this one."""
        tree = self.tree.get(key)
        if not isinstance(tree, dict):
            self.fail(f"has no group {key!r}")
        return replace(self, tree=tree)

    def shape(self) -> Shape:
        sizes: list[int] = self.integers("shape", most=3).ravel().tolist()
        if len(sizes) not in (1, 3) or min(sizes) < 1 or prod(sizes) > MOST_NEURONS:
            wanted = f"[features] or [channels, height, width], in all 1..{MOST_NEURONS}"
            self.fail(f"has shape {sizes}; {wanted}, is needed")
        return tuple(sizes)

    def per_neuron(self, key: str, shape: Shape) -> Array:
        """One value for all, [channels], or [x, y, channel] -> (channels, 1, 1) or (channel, y, x)"""
        values, channels = self.integers(key), (shape[0], *(1 for _ in shape[1:]))
        if values.size == 1:
            return np.full(channels, values.ravel()[0])
        if values.shape == (shape[0],):
            return values.reshape(channels)
        if values.shape != shape[::-1]:
            self.fail(f"has {key} of shape {values.shape}; ({shape[0]},) or {shape[::-1]} is needed")
        return values.T

    def pair(self, key: str) -> Pair:
        values = self.integers(key, most=2).ravel().tolist()
        return values[0], values[-1]

    def number(self, key: str) -> int:
        """Return one number; lava-dl also writes it once per neuron."""
        values = np.unique(self.integers(key))
        if values.size != 1:
            self.fail(
                f"has {values.size} different values of {key}, {values[0]}..{values[-1]}; one is needed"
            )
        return int(values[0])

    def number_or(self, key: str, default: int) -> int:
        return self.number(key) if key in self.tree else default

    def integers(self, key: str, most: int | None = None) -> Array:
        """Return the 32-bit integers under a key, at least one and at most `most`."""
        values = np.asarray(self.tree.get(key))
        if values.dtype.kind not in "iuf" or values.size == 0:
            self.fail(f"has no numbers under the key {key!r}")
        if most is not None and values.size > most:
            self.fail(f"has {values.size} values of {key}; at most {most} are allowed")
        whole: Array = values if values.dtype.kind in "iu" else np.rint(values)
        fits = whole.min() >= -LARGEST_NUMBER and whole.max() < LARGEST_NUMBER  # both are false for NaN
        if not fits or not np.array_equal(whole, values):
            self.fail(f"has values of {key} that are not 32-bit integers")
        return whole.astype(np.int32)

    def text(self, key: str) -> str:
        if (value := as_text(self.tree.get(key))) is None:
            self.fail(f"has no string under the key {key!r}")
        return value

    def fail(self, reason: str) -> NoReturn:
        raise FormatError(f"{self.path}: {self.name} {reason}.")


def numbered_nodes(path: Path, group: Tree, name: str) -> list[Node]:
    """Return the nodes 0, 1, 2, ... of a group; raise if one is missing."""
    missing = [str(index) for index in range(len(group)) if not isinstance(group.get(str(index)), dict)]
    if missing:
        raise FormatError(f"{path}: {name}s 0..{len(group) - 1} expected; {', '.join(missing[:5])} missing.")
    return [Node(path=path, name=f"{name} {i}", index=i, tree=group[str(i)]) for i in range(len(group))]


# Read the neurons of a netx layer.


PER_STEP = "PER_STEP"  # the type of neurons with numbers of each time step under `steps`, in our extension
RELAY = "RELAY"  # the type of relays, in our extension
XYLO = "XYLO"  # the type of Xylo's neurons, in our extension
SOFT = "CUBA_SUBTRACT"  # the type of neurons with a soft reset, in our extension
NEVER_FIRES = THRESHOLD_LIMIT - 1  # the largest threshold of the format
KINDS = {
    "RF_PHASE": "resonate-and-fire",
    "RF_IZHIKEVICH": "resonate-and-fire",
    "ADRF_PHASE": "adaptive resonate-and-fire",
    "ADRF_IZHIKEVICH": "adaptive resonate-and-fire",
    "ALIF": "adaptive leaky integrate-and-fire",
}


def read_neuron(layer: Node, shape: Shape, *, is_last: bool, is_readout: bool | None) -> Neuron:
    """Return the neuron of a layer; `is_readout` is about the last layer, None if the file does not say."""
    kind = layer.text("type")
    if kind == "average":
        return Readout(bias=np.zeros(shape, np.int32))
    if kind == "concat" and layer.group("neuron").text("type") == PER_STEP:
        steps = numbered_nodes(layer.path, layer.group("steps").tree, f"{layer.name}, step")
        layers = [replace(layer, tree={**layer.tree, **step.tree}) for step in steps]
        neurons = [read_neuron(each, shape, is_last=is_last, is_readout=is_readout) for each in layers]
        if len({type(neuron) for neuron in neurons}) != 1:
            layer.fail("has no steps, or steps with neurons of several kinds; one kind is needed")
        return in_steps(neurons)
    if kind == "concat" and layer.group("neuron").text("type") == RELAY:
        return _relay(layer.group("neuron"))
    if kind == "concat" and layer.group("neuron").text("type") == XYLO:
        return _xylo(layer, shape)
    if is_sigma_delta(layer):
        return read_sigma_delta(layer, shape)
    neuron = _lif(layer, shape)
    if not is_last or is_readout is False:
        return neuron
    never_fires = bool(neuron.threshold.min() >= NEVER_FIRES)  # no voltage of 24 bits reaches that
    if is_readout and not never_fires:
        layer.fail("can fire, but the file declares it a readout")
    if is_readout:
        return _readout(neuron, neuron.decay_current, neuron.decay_voltage)
    return _undeclared_readout(neuron) if never_fires and kind != "dense_rec" else neuron


def _relay(rule: Node) -> Relay:
    ends = rule.integers("messageRange", most=2).ravel().tolist()
    if len(ends) != 2:
        rule.fail("has a messageRange of one number; the smallest and the largest message are needed")
    return Relay(minimum=ends[0], maximum=ends[1])


def _xylo(layer: Node, shape: Shape) -> Xylo:
    rule = layer.group("neuron")
    return Xylo(
        threshold=rule.per_neuron("threshold", shape),
        bias=layer.per_neuron("bias", shape),
        shift_current=_decay(rule, "shiftCurrent", shape),
        shift_voltage=_decay(rule, "shiftVoltage", shape),
        max_spikes=rule.number("maxSpikes"),
    )


def _undeclared_readout(neuron: Lif | SoftLif) -> Readout:
    """Return the readout of a file by lava-dl, whose dense layers without neurons sum in the current."""
    forgets = not np.any(neuron.decay_current) and bool(np.all(neuron.decay_voltage == DECAY_ONE))
    if forgets and not neuron.bias.any():
        return _readout(neuron, DECAY_ONE, 0)
    return _readout(neuron, neuron.decay_current, neuron.decay_voltage)


def _readout(neuron: Lif | SoftLif, decay_current: int | Array, decay_voltage: int | Array) -> Readout:
    return Readout(
        bias=neuron.bias,
        bias_exponent=neuron.bias_exponent,
        decay_current=decay_current,
        decay_voltage=decay_voltage,
    )


def _lif(layer: Node, shape: Shape) -> Lif | SoftLif:
    kind = layer.text("type")
    if "neuron" not in layer and kind in ("dense", "dense_rec"):
        layer = _with_default_neuron(layer)
    rule = layer.group("neuron")
    if (word := rule.text("type")) not in ("CUBA", "LOIHI", SOFT):
        named = f" ({KINDS[word]})" if word in KINDS else ""
        layer.fail(f"has neurons of type {word!r}{named}; CUBA, LOIHI and SDNN are supported")
    if rule.number_or("refDelay", 1) != 1:
        layer.fail("has neurons with a refractory delay; only refDelay 1, which means none, is supported")
    for key in ("wgtExp", "weight_exp"):
        if rule.number_or(key, 0) != 0:
            layer.fail(f"has {key} {rule.number(key)}; lava-dl's reader ignores it, so only 0 is supported")
    if kind == "input":
        return _input_lif(layer, rule, shape)
    numbers: dict[str, Any] = {
        "threshold": _threshold(rule, shape),
        "bias": layer.per_neuron("bias", shape) if "bias" in layer else _no_bias(shape),
        "bias_exponent": layer.number_or("biasExponent", STATE_EXPONENT),
        "decay_current": _decay(rule, "iDecay", shape),
        "decay_voltage": _decay(rule, "vDecay", shape),
    }
    if word == SOFT:
        return SoftLif(subtrahend=rule.per_neuron("subtrahend", shape), **numbers)
    return Lif(**numbers)


def _decay(rule: Node, key: str, shape: Shape) -> int | Array:
    """Return one decay; lava-dl also writes it once per neuron, and sometimes different ones."""
    if np.unique(rule.integers(key)).size == 1:
        return rule.number(key)
    decays: Array = compact(rule.per_neuron(key, shape))
    return decays


def _input_lif(layer: Node, rule: Node, shape: Shape) -> Lif:
    """Return input neurons, driven by a bias, which the decay of the current does not affect."""
    threshold = np.broadcast_to(_threshold(rule, layer.shape()), layer.shape())
    return Lif(
        threshold=compact(threshold.reshape(shape)),
        bias=_no_bias(shape),
        decay_voltage=rule.number("vDecay"),
    )


def _with_default_neuron(layer: Node) -> Node:
    """Add the neuron that lava-dl's reader gives dense layers without one."""
    rule = {"type": "CUBA", "iDecay": 0, "vDecay": DECAY_ONE, "vThMant": THRESHOLD_LIMIT}
    return Node(path=layer.path, name=layer.name, index=layer.index, tree={**layer.tree, "neuron": rule})


def _threshold(rule: Node, shape: Shape) -> Array:
    """Return thresholds up to 2**17, which no voltage reaches; lava-dl writes 2**18 - 1 for "never"."""
    return np.minimum(rule.per_neuron("vThMant", shape), THRESHOLD_LIMIT)


def _no_bias(shape: Shape) -> Array:
    return np.zeros((shape[0], *(1 for _ in shape[1:])), np.int32)


# Sigma-delta neurons in netx files: what lava-dl's reader makes of a layer, and what it can hold.
#
# lava-dl never resets them, and each of its layers runs from the first time step on, before its input
# arrives. So a file means a chain in which every connection takes one step; only the neurons of the input
# layer receive the sample at once.
#
#     layer/<i>/neuron/{type: SDNN, activation: relu, vThMant}     Delta in the input layer, else SigmaDelta
#     layer/<i>/neuron/sigma_output                                Sigma
#
# In our graphs, the type DELTA is a Delta that can be anywhere, and neurons may have keys `spikeExponent` and
# `stateExponent`; lava-dl takes 6 for both.


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
