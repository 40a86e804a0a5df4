"""IntNetwork -> netx files: with lava-dl's keys where they suffice, otherwise with our extension."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, Tree, layer_name, record, write_tree
from ...ir import (
    NO_BORDER,
    STATE_EXPONENT,
    Connection,
    Conv2d,
    Delta,
    Dense,
    IntegratingNeuron,
    IntNetwork,
    IntPopulation,
    Lif,
    Modulator,
    Neuron,
    Population,
    Readout,
    Relay,
    Shape,
    Sigma,
    SigmaDelta,
    SigmaDeltaNeuron,
    SoftLif,
    Synapse,
    Xylo,
    at_step,
    counting,
    fires,
    integrating,
    modulating,
    neuron_bias,
    neuron_subtrahend,
    neuron_threshold,
    sends,
    state_intervals,
    update_rule,
    varies,
)
from .node import NEVER_FIRES, NO_CHAIN, PER_STEP, RELAY, SOFT, XYLO, is_stock_layer, sigma_delta_tree
from .read import CHAIN_VERSION, GRAPH_VERSION

LARGEST_STOCK_DELAY = 62  # lava-dl's reader clamps larger delays
MOST_STOCK_GROUPS = 127  # Lava's convolution, which that reader builds, stores them in signed 8 bits


def write_netx(network: IntNetwork, path: str | Path) -> None:
    """Write a network; chains fire the same spikes in lava-dl's reader `lava.lib.dl.netx.hdf5.Network`."""
    contents = _layer_contents(network)
    in_layers = _express_all(contents, network)
    if not in_layers:  # in a graph, a layer holds at most one plain connection
        contents = [c if c.is_plain else _NO_LAYER for c in contents]
    layers, numbers = _layers(network, contents)
    extra = _extra(network, CHAIN_VERSION if in_layers else GRAPH_VERSION)
    if not in_layers:
        extra["connection"] = _connection_trees(network, contents, numbers)
    write_tree(Path(path), {"layer": {str(i): layer for i, layer in enumerate(layers)}, "mpbn_deploy": extra})


def stock_reader_loads(network: IntNetwork) -> bool:
    """Whether lava-dl's reader loads the file that `write_netx` writes: a chain with lava-dl's keys."""
    return _express_all(_layer_contents(network), network)


def stock_reader_obstacle(network: IntNetwork) -> str | None:
    """Return why lava-dl's reader cannot run the file that `write_netx` writes; None if it can."""
    if stock_reader_loads(network):
        return _zero_weights(network) or _early_spikes(network)
    for before, population in _pairs(network):
        if _layer_content(network, before, population).layer is None:
            return f"{layer_name(population.name)}: {_obstacle(network, before, population)}"
    return "its format cannot express the order of the connections of this network"


def _zero_weights(network: IntNetwork) -> str | None:
    """Return the first layer for which lava-dl's `optimize_weight_bits` divides by a largest weight of zero.

    It does so for dense layers only, with their loops.
    """
    for population in network.layers:
        synapses = [connection.synapse for connection in network.entering(population.name)]
        if all(isinstance(synapse, Dense) and not synapse.weight.any() for synapse in synapses):
            return (
                f"{layer_name(population.name)}: all weights are zero, so its neurons ignore their inputs; "
                "lava-dl divides by the largest weight of a dense layer"
            )
    return None


def _early_spikes(network: IntNetwork) -> str | None:
    """Return which neurons would fire into a sample from before it; None if there are none.

    In Lava, a layer at depth d runs d steps before the first step of the first sample reaches it. What it
    fires then arrives in the sample if its connection has a delay, as loops have.
    """
    for connection in network.connections:
        source = network.population(connection.source)
        if not connection.delay or source is network.input:
            continue
        rule = update_rule(network.layer(source.name).neuron, 1)
        if isinstance(rule, Modulator):  # what it sends early is part of its chain
            continue
        charged = np.maximum(network.order[source.name] * rule.bias, 0)  # from below, with any decay
        if rule.threshold is not None and (charged > rule.threshold).any():
            return (
                f"{layer_name(source.name)}: neurons that fire without input, with a loop or delay after "
                "them; lava-dl runs them before the first step, and their spikes arrive in it"
            )
    return None


def _obstacle(network: IntNetwork, before: Population[Any], population: IntPopulation) -> str:
    """Return the property of a population or its connections that no layer of netx can express."""
    entering = network.entering(population.name)
    others = sorted({c.source for c in entering} - {before.name, population.name})
    if others:
        listed = ", ".join(map(layer_name, others))
        return f"a graph with skip connections (from {listed}); netx is a chain of layers"
    if counting(population.neuron) is not None:
        return "neurons of Xylo, which netx does not have"
    if neuron_subtrahend(population.neuron) is not None:
        return "neurons with a soft reset; those of netx reset to zero"
    if varies(population.neuron):
        return "neurons whose numbers depend on the time step; netx has one set of numbers for all steps"
    if modulating(population.neuron) is not None:
        return NO_CHAIN
    if integrating(population.neuron) is None:
        return "relays, which pass sums on as graded messages; netx has no such layer"
    if any(c.synapse.exponent for c in entering):
        return "weights with exponents, for which netx has no key"
    if not _neurons_fit(network, population):
        return "a bias with an exponent, or a readout that could reach the largest threshold of netx"
    return "several kernels, loops, delays, groups or a matrix onto a picture that no layer of netx can hold"


# ---- what a layer of netx can hold ------------------------------------------------------------


@record
class _LayerContent:
    """The connections that a layer of netx can express, and the keys of that layer; None if it cannot."""

    layer: Tree | None = None
    connections: tuple[Connection, ...] = ()

    @property
    def is_plain(self) -> bool:
        if self.layer is None or self.layer["type"] == "input":
            return False
        return len(self.connections) == 1 and self.connections[0].delay == 0


_NO_LAYER = _LayerContent()


def _pairs(network: IntNetwork) -> list[tuple[Population[Any], IntPopulation]]:
    """Return each layer with the population before it."""
    return list(zip(network.populations[:-1], network.layers, strict=True))


def _layer_contents(network: IntNetwork) -> list[_LayerContent]:
    return [_layer_content(network, *pair) for pair in _pairs(network)]


def _express_all(contents: Sequence[_LayerContent], network: IntNetwork) -> bool:
    """Whether reading the layers in order gives all connections of the network, in order."""
    return network.connections == tuple(c for content in contents for c in content.connections)


def _layer_content(network: IntNetwork, before: Population[Any], population: IntPopulation) -> _LayerContent:
    """Express the connections into a population as a layer of netx: all of them, or none."""
    entering = network.entering(population.name)
    forward = [c for c in entering if c.source == before.name]
    again = [c for c in entering if c.source == population.name]
    exponents = {c.synapse.exponent for c in entering}
    if (
        len(forward) + len(again) != len(entering)
        or exponents != {0}
        or not _neurons_fit(network, population)
    ):
        return _NO_LAYER
    if (own := modulating(population.neuron)) is not None:
        layer = _sigma_delta_layer(network, own, entering, population.shape)
    else:
        layer = _synapse_layer(forward, again, population.shape)
    return _LayerContent(layer=layer, connections=(*forward, *again)) if layer else _NO_LAYER


def _sigma_delta_layer(
    network: IntNetwork, neuron: SigmaDeltaNeuron, entering: Sequence[Connection], shape: Shape
) -> Tree | None:
    """Return the layer of neurons whose connection lava-dl delays by one step, or of those of the input."""
    if not is_stock_layer(network, neuron, entering):
        return None
    if entering[0].delay == 0:
        return {"type": "input"}
    return _synapse_layer([replace(entering[0], delay=0)], [], shape)


def _synapse_layer(forward: Sequence[Connection], again: Sequence[Connection], shape: Shape) -> Tree | None:
    match ([(c.synapse, c.delay) for c in forward], [(c.synapse, c.delay) for c in again]):
        case [(Conv2d(silent=border) as convolution, 0)], [] if border == NO_BORDER:
            return _synapse_tree(convolution) if convolution.groups <= MOST_STOCK_GROUPS else None
        case [(Dense() as dense, 0)], [] if len(shape) == 1:
            return _synapse_tree(dense)
        case [(Dense() as dense, 0)], [(Dense() as loop, 1)] if len(shape) == 1:
            return {"type": "dense_rec", "weight": _int32(dense.weight), "weight_rec": _int32(loop.weight)}
        case [(Dense(), _), *_] as parts, [] if len(shape) == 1:
            return _delayed_dense(parts)
        case _:
            return None


def _delayed_dense(parts: Sequence[tuple[Synapse, int]]) -> Tree | None:
    """Merge dense synapses of different delays; None if reading could not split them again."""
    delays = [delay for _, delay in parts]
    if max(delays) > LARGEST_STOCK_DELAY:
        return None
    weights = np.stack([synapse.weight for synapse, _ in parts])
    if len(parts) == 1:
        return {"type": "dense", "weight": _int32(weights[0]), "delay": np.int32(delays[0])}
    used = weights != 0
    if delays != sorted(set(delays)) or used.sum(axis=0).max() > 1 or not used.any(axis=(1, 2)).all():
        return None
    delay = np.tensordot(np.array(delays, np.int32), used.astype(np.int32), axes=1)
    return {"type": "dense", "weight": _int32(weights.sum(axis=0)), "delay": delay}


def _neurons_fit(network: IntNetwork, population: IntPopulation) -> bool:
    """Whether netx has the neurons: they reset to zero, can fire, and have no exponents of biases."""
    if modulating(population.neuron) is not None:
        return True  # see `is_stock_layer`
    neuron = integrating(population.neuron)
    if neuron is None or varies(neuron):
        return False
    if neuron.bias_exponent != STATE_EXPONENT or neuron_subtrahend(neuron) is not None:
        return False
    if fires(population.neuron):
        return True
    _, (_, highest) = state_intervals(network, population)
    return bool(highest.max() <= NEVER_FIRES << STATE_EXPONENT)


# ---- layers -----------------------------------------------------------------------------------


def _layers(network: IntNetwork, contents: Sequence[_LayerContent]) -> tuple[list[Tree], dict[str, int]]:
    """Return the layers, and the index of the layer of each population."""
    layers: list[Tree] = [{"type": "input", "shape": _int32(network.input.shape)}]
    numbers = {network.input.name: 0}
    for (before, population), content in zip(_pairs(network), contents, strict=True):
        layer = content.layer or {"type": "concat"}
        if layer["type"] == "input":  # whose neurons are the population
            layers[0] |= _population_tree(population, in_input=True)
            numbers[population.name] = 0
            continue
        if layer["type"].startswith("dense") and len(before.shape) == 3:
            layers.append({"type": "flatten", "shape": _int32([prod(before.shape)])})
        numbers[population.name] = len(layers)
        layers.append({**layer, **_population_tree(population)})
    for population, content in zip(network.layers, contents, strict=True):
        if content.layer is None:
            sources = {numbers[c.source] for c in network.entering(population.name)}
            concat = layers[numbers[population.name]]
            concat |= {
                "layers": _int32(sorted(sources)),
                **_bias_exponent(population.neuron),
            }
    return layers, numbers


def _bias_exponent(neuron: Neuron) -> Tree:
    own = integrating(neuron)
    return {} if own is None else {"biasExponent": np.int32(own.bias_exponent)}


def _population_tree(population: IntPopulation, *, in_input: bool = False) -> Tree:
    neuron, shape = population.neuron, {"shape": _int32(population.shape)}
    if varies(neuron):
        steps = [population.with_neuron(at_step(neuron, t)) for t in range(len(neuron_bias(neuron)))]
        trees = {str(step): _population_tree(each) for step, each in enumerate(steps)}
        return {**shape, "neuron": {"type": PER_STEP}, "steps": trees}
    match neuron:
        case Lif() | SoftLif() | Readout():
            return {**shape, "bias": _to_netx(neuron_bias(neuron)), "neuron": _neuron_tree(neuron)}
        case Relay(minimum=minimum, maximum=maximum):
            return {**shape, "neuron": {"type": RELAY, "messageRange": _int32([minimum, maximum])}}
        case Xylo():
            return {**shape, "bias": _to_netx(neuron.bias), "neuron": _xylo_tree(neuron)}
        case Delta() | SigmaDelta() | Sigma():
            return {**shape, **sigma_delta_tree(neuron, _to_netx, in_input=in_input)}
        case _:
            assert_never(neuron)


def _neuron_tree(neuron: IntegratingNeuron) -> Tree:
    own = neuron_threshold(neuron)
    threshold = NEVER_FIRES if own is None else _to_netx(own)
    subtrahend = neuron_subtrahend(neuron)
    kind = "CUBA" if subtrahend is None else SOFT
    fixed = {"type": kind, "refDelay": np.int32(1), "gradedSpike": np.int32(0)}
    rule = {
        "iDecay": _to_netx(np.asarray(neuron.decay_current)),
        "vDecay": _to_netx(np.asarray(neuron.decay_voltage)),
        "vThMant": threshold,
    }
    if subtrahend is not None:
        rule["subtrahend"] = _to_netx(subtrahend)
    return fixed | {key: np.asarray(value, np.int32) for key, value in rule.items()}


def _xylo_tree(neuron: Xylo) -> Tree:
    numbers = {
        "threshold": _to_netx(neuron.threshold),
        "shiftCurrent": _to_netx(np.asarray(neuron.shift_current)),
        "shiftVoltage": _to_netx(np.asarray(neuron.shift_voltage)),
        "maxSpikes": np.int32(neuron.max_spikes),
    }
    return {"type": XYLO, **numbers}


def _synapse_tree(synapse: Synapse) -> Tree:
    match synapse:
        case Dense(weight=weight):
            return {"type": "dense", "weight": _int32(weight)}
        case Conv2d(weight=weight):
            return {
                "type": "conv",
                "weight": _int32(weight),
                "stride": _int32(synapse.stride),
                "padding": _int32(synapse.padding),
                "dilation": _int32(synapse.dilation),
                "groups": np.int32(synapse.groups),
            }
        case _:
            assert_never(synapse)


def _to_netx(values: Array) -> Array:
    """(channels, 1, 1) -> (channels,); (channel, y, x) -> (x, y, channel)"""
    per_channel = values.ndim == 3 and values.shape[1:] == (1, 1)
    return _int32(values.ravel() if per_channel else values.T)


def _int32(values: Any) -> Array:
    return np.asarray(values).astype(np.int32)


# ---- beside the layers ------------------------------------------------------------------------


def _extra(network: IntNetwork, version: int) -> Tree:
    """Return the properties of a network for which netx has no keys."""
    allowed = network.input_range
    metadata = {
        "version": version,
        "timesteps": network.timesteps,
        "input_range": [allowed.minimum, allowed.maximum],
        **({"input_step": allowed.divisor} if allowed.divisor > 1 else {}),
        **({"input_offset": allowed.offset} if allowed.offset else {}),
        "populations": [population.name for population in network.populations],
        "readout": not sends(network.output.neuron),
        **({"foreign": True} if network.foreign else {}),
    }
    scales = {
        str(i): network.scales[p.name] for i, p in enumerate(network.populations) if p.name in network.scales
    }
    return {"json": json.dumps(metadata), "scales": scales}


def _connection_trees(
    network: IntNetwork, contents: Sequence[_LayerContent], numbers: dict[str, int]
) -> dict[str, Tree]:
    in_layers = {connection for content in contents for connection in content.connections}
    trees = {}
    for index, connection in enumerate(network.connections):
        ends = {"source": numbers[connection.source], "target": numbers[connection.target]}
        values = {**ends, "delay": connection.delay, "exponent": connection.synapse.exponent}
        synapse = {} if connection in in_layers else _synapse_tree(connection.synapse)
        border = _border_tree(connection.synapse)
        trees[str(index)] = {**{key: np.int32(value) for key, value in values.items()}, **synapse, **border}
    return trees


def _border_tree(synapse: Synapse) -> Tree:
    """Return the silent border of a convolution, if it has one."""
    if isinstance(synapse, Dense) or synapse.silent == NO_BORDER:
        return {}
    return {"silent": _int32(synapse.silent)}
