"""IntNetwork -> netx files: in lava-dl's own words where it has them, else in our extension."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, Tree, record, write_tree
from ...ir import (
    NO_BORDER,
    STATE_EXPONENT,
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    IntPopulation,
    Lif,
    Neuron,
    Population,
    Readout,
    Shape,
    Synapse,
    fires,
    incoming,
    neuron_bias,
    state_intervals,
)
from .neurons import NEVER_FIRES
from .read import CHAIN_VERSION, GRAPH_VERSION

LARGEST_STOCK_DELAY = 62  # lava-dl's reader clamps larger ones
MOST_STOCK_GROUPS = 127  # Lava's convolution, which that reader builds, counts them in 8 bits with sign


def write_netx(network: IntNetwork, path: str | Path) -> None:
    """Write a network; of a chain, the stock reader `lava.lib.dl.netx.hdf5.Network` fires the same spikes."""
    holdings = _holdings(network)
    in_layers = _hold_all(holdings, network)
    if not in_layers:  # then a layer holds no more than one plain connection
        holdings = [h if h.is_plain else _JOINT for h in holdings]
    layers, numbers = _layers(network, holdings)
    extra = _extra(network, CHAIN_VERSION if in_layers else GRAPH_VERSION)
    if not in_layers:
        extra["connection"] = _connection_trees(network, holdings, numbers)
    write_tree(Path(path), {"layer": {str(i): layer for i, layer in enumerate(layers)}, "mpbn_deploy": extra})


def stock_reader_loads(network: IntNetwork) -> bool:
    """Whether `write_netx` writes a file that lava-dl's own reader loads: a chain, in its words."""
    return _hold_all(_holdings(network), network)


def stock_reader_obstacle(network: IntNetwork) -> str | None:
    """Why lava-dl's own reader cannot load what `write_netx` writes; None where it can."""
    if stock_reader_loads(network):
        return None
    for before, population in _pairs(network):
        if _holding(network, before, population).layer is None:
            return f"{population.name}: {_obstacle(network, before, population)}"
    return "its format cannot say in which order the connections of this network stand"


def _obstacle(network: IntNetwork, before: Population[Any], population: IntPopulation) -> str:
    """Of the connections into a population, or its neurons, what no layer of netx can say."""
    entering = incoming(network.connections, population.name)
    others = sorted({c.source for c in entering} - {before.name, population.name})
    if others:
        return f"a graph with skip connections (from {', '.join(others)}); netx is a chain of layers"
    if any(c.synapse.exponent for c in entering):
        return "weights with exponents, for which netx has no key"
    if not _neurons_fit(network, population):
        return "a bias with an exponent, or a readout that could reach the largest threshold of netx"
    return "several kernels, loops, delays, groups or a matrix onto a picture that no layer of netx can hold"


# ---- what a layer of netx can hold ------------------------------------------------------------


@record
class _Holding:
    """What the layer of a population holds: its synapses under netx' keys, and those connections."""

    layer: Tree | None = None
    connections: tuple[Connection, ...] = ()

    @property
    def is_plain(self) -> bool:
        return self.layer is not None and len(self.connections) == 1 and self.connections[0].delay == 0


_JOINT = _Holding()


def _pairs(network: IntNetwork) -> list[tuple[Population[Any], IntPopulation]]:
    """Each population but the input, after the one that is listed before it."""
    return list(zip(network.populations[:-1], network.layers, strict=True))


def _holdings(network: IntNetwork) -> list[_Holding]:
    return [_holding(network, *pair) for pair in _pairs(network)]


def _hold_all(holdings: Sequence[_Holding], network: IntNetwork) -> bool:
    """Whether reading the layers one after the other gives all connections, in their order."""
    return network.connections == tuple(c for holding in holdings for c in holding.connections)


def _holding(network: IntNetwork, before: Population[Any], population: IntPopulation) -> _Holding:
    """Of the connections into a population, those that netx can say; all, or none."""
    entering = incoming(network.connections, population.name)
    forward = [c for c in entering if c.source == before.name]
    again = [c for c in entering if c.source == population.name]
    exponents = {c.synapse.exponent for c in entering}
    if (
        len(forward) + len(again) != len(entering)
        or exponents != {0}
        or not _neurons_fit(network, population)
    ):
        return _JOINT
    layer = _synapse_layer(forward, again, population.shape)
    return _Holding(layer=layer, connections=(*forward, *again)) if layer else _JOINT


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
    """Dense synapses of different delays as one; None where reading would not take them apart again."""
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
    """netx has no exponent of a bias, and no neuron that cannot fire."""
    neuron = population.neuron
    if neuron.bias_exponent != STATE_EXPONENT:
        return False
    match neuron:
        case Lif():
            return True
        case Readout():
            _, (_, highest) = state_intervals(network, population)
            return bool(highest.max() <= NEVER_FIRES << STATE_EXPONENT)
        case _:
            assert_never(neuron)


# ---- layers -----------------------------------------------------------------------------------


def _layers(network: IntNetwork, holdings: Sequence[_Holding]) -> tuple[list[Tree], dict[str, int]]:
    """The layers, and which of them is whose."""
    layers: list[Tree] = [{"type": "input", "shape": _int32(network.input.shape)}]
    numbers = {network.input.name: 0}
    for (before, population), holding in zip(_pairs(network), holdings, strict=True):
        layer = holding.layer or {"type": "concat"}
        if layer["type"].startswith("dense") and len(before.shape) == 3:
            layers.append({"type": "flatten", "shape": _int32([prod(before.shape)])})
        numbers[population.name] = len(layers)
        layers.append({**layer, **_population_tree(population)})
    for population, holding in zip(network.layers, holdings, strict=True):
        if holding.layer is None:
            sources = {numbers[c.source] for c in incoming(network.connections, population.name)}
            joint = layers[numbers[population.name]]
            joint |= {
                "layers": _int32(sorted(sources)),
                "biasExponent": np.int32(population.neuron.bias_exponent),
            }
    return layers, numbers


def _population_tree(population: IntPopulation) -> Tree:
    return {
        "shape": _int32(population.shape),
        "bias": _to_netx(neuron_bias(population.neuron)),
        "neuron": _neuron_tree(population.neuron),
    }


def _neuron_tree(neuron: Neuron) -> Tree:
    match neuron:
        case Lif(threshold=thresholds):
            threshold: Array | int = _to_netx(thresholds)
        case Readout():
            threshold = NEVER_FIRES
        case _:
            assert_never(neuron)
    fixed = {"type": "CUBA", "refDelay": np.int32(1), "gradedSpike": np.int32(0)}
    rule = {"iDecay": neuron.decay_current, "vDecay": neuron.decay_voltage, "vThMant": threshold}
    return fixed | {key: np.asarray(value, np.int32) for key, value in rule.items()}


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
    """What netx has no words for."""
    told = {
        "version": version,
        "timesteps": network.timesteps,
        "input_range": [network.input_range.minimum, network.input_range.maximum],
        "populations": [population.name for population in network.populations],
        "readout": not fires(network.output.neuron),
    }
    scales = {
        str(i): network.scales[p.name] for i, p in enumerate(network.populations) if p.name in network.scales
    }
    return {"json": json.dumps(told), "scales": scales}


def _connection_trees(
    network: IntNetwork, holdings: Sequence[_Holding], numbers: dict[str, int]
) -> dict[str, Tree]:
    in_layers = {connection for holding in holdings for connection in holding.connections}
    trees = {}
    for index, connection in enumerate(network.connections):
        ends = {"source": numbers[connection.source], "target": numbers[connection.target]}
        values = {**ends, "delay": connection.delay, "exponent": connection.synapse.exponent}
        synapse = {} if connection in in_layers else _synapse_tree(connection.synapse)
        border = _border_tree(connection.synapse)
        trees[str(index)] = {**{key: np.int32(value) for key, value in values.items()}, **synapse, **border}
    return trees


def _border_tree(synapse: Synapse) -> Tree:
    """Rows and columns of the target that get nothing, where there are some."""
    if isinstance(synapse, Dense) or synapse.silent == NO_BORDER:
        return {}
    return {"silent": _int32(synapse.silent)}
