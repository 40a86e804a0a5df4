"""Read the neurons of a netx layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...base import Array
from ...ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    THRESHOLD_LIMIT,
    Lif,
    Neuron,
    Readout,
    Relay,
    Shape,
    SoftLif,
    Xylo,
    compact,
    in_steps,
)
from .node import Node, numbered_nodes
from .sigma_delta import is_sigma_delta, read_sigma_delta

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
