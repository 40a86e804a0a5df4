"""The structure of an integer network in words: all but its numbers, as JSON in a checkpoint.

A `QuantizedBody` is built from it, and then gets its numbers from the checkpoint's tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ..base import Array, NetworkError, OptionError, QuantizeError
from ..ir import (
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    IntPopulation,
    Lif,
    Pair,
    Population,
    Readout,
    Shape,
    Synapse,
    fires,
    membrane,
)
from .scales import Formats

MOST_NUMBERS = 2**27  # in one tensor; a file must not make us count for ever


def describe_structure(network: IntNetwork, formats: Formats) -> str:
    """All of an integer network but its numbers, as JSON; refused where the twin could not run it."""
    _refuse_untrainable(network)
    source = network.input_range
    return json.dumps(
        {
            "formats": {name: size for name, size in asdict(formats).items() if name != "allowances"},
            "input": {
                "name": network.input.name,
                "shape": network.input.shape,
                "minimum": source.minimum,
                "maximum": source.maximum,
            },
            "populations": [_describe_neurons(p) for p in network.layers],
            "connections": [_describe_connection(c) for c in network.connections],
        }
    )


def _refuse_untrainable(network: IntNetwork) -> None:
    place = {p.name: index for index, p in enumerate(network.populations)}
    for connection in network.connections:
        if place[connection.source] >= place[connection.target]:
            raise QuantizeError(
                f"{connection.label}: recurrent; quantization-aware training is feed-forward."
            )
    for population in network.layers:
        if membrane(population.neuron, 1).decay_current.kept:
            raise QuantizeError(
                f"{population.name}: a current that leaks slowly; it must be forgotten at once."
            )
    output = network.output.neuron
    if fires(output) or membrane(output, 1).decay_voltage.kept != 1:
        raise QuantizeError(
            f"{network.output.name}: quantization-aware training needs a readout that adds up."
        )


def _describe_neurons(population: IntPopulation) -> dict[str, Any]:
    neuron = population.neuron
    match neuron:
        case Lif(threshold=threshold):
            fired_at: Shape | None = threshold.shape
        case Readout():
            fired_at = None
        case _:
            assert_never(neuron)
    return {
        "name": population.name,
        "shape": population.shape,
        "bias": neuron.bias.shape,
        "bias_exponent": neuron.bias_exponent,
        "decay_voltage": neuron.decay_voltage,
        "threshold": fired_at,
    }


def _describe_connection(connection: Connection) -> dict[str, Any]:
    synapse = connection.synapse
    told = {"source": connection.source, "target": connection.target, "delay": connection.delay}
    told |= {"weight": synapse.weight.shape, "exponent": synapse.exponent}
    if isinstance(synapse, Conv2d):
        told |= {
            name: getattr(synapse, name) for name in ("stride", "padding", "dilation", "groups", "silent")
        }
    return told


def read_structure(structure: str) -> tuple[IntNetwork, Formats]:
    """The network with zeros for all its numbers, which take no memory."""
    try:
        told = json.loads(structure)
        source = told["input"]
        neuron = Input(minimum=int(source["minimum"]), maximum=int(source["maximum"]))
        first = Population(name=str(source["name"]), shape=_sizes(source["shape"]), neuron=neuron)
        populations = (first, *map(_read_neurons, told["populations"]))
        network = IntNetwork(
            populations=populations,
            connections=tuple(map(_read_connection, told["connections"])),
            timesteps=1,
            scales={},
        )
        sizes: dict[str, Any] = {name: int(value) for name, value in told["formats"].items()}
        formats = Formats(**sizes)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise OptionError(f"structure of a quantized network: {type(error).__name__}: {error}") from error
    except NetworkError as error:
        raise OptionError(f"structure of a quantized network: {error}") from error
    _refuse_untrainable(network)
    return network, formats


def _read_neurons(told: Mapping[str, Any]) -> IntPopulation:
    arguments: dict[str, Any] = {
        "bias": _zeros(told["bias"]),
        "bias_exponent": int(told["bias_exponent"]),
        "decay_voltage": int(told["decay_voltage"]),
    }
    fires = told["threshold"] is not None
    neuron = Lif(threshold=_zeros(told["threshold"]), **arguments) if fires else Readout(**arguments)
    return Population(name=str(told["name"]), shape=_sizes(told["shape"]), neuron=neuron)


def _read_connection(told: Mapping[str, Any]) -> Connection:
    weight, exponent = _zeros(told["weight"]), int(told["exponent"])
    if weight.ndim == 4:
        stride, padding, dilation = (_pair(told[name]) for name in ("stride", "padding", "dilation"))
        top_bottom, left_right = told["silent"]
        synapse: Synapse = Conv2d(
            weight=weight,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=int(told["groups"]),
            exponent=exponent,
            silent=(_pair(top_bottom), _pair(left_right)),
        )
    else:
        synapse = Dense(weight=weight, exponent=exponent)
    return Connection(
        source=str(told["source"]), target=str(told["target"]), synapse=synapse, delay=int(told["delay"])
    )


def _pair(told: Any) -> Pair:
    vertical, horizontal = _sizes(told)
    return vertical, horizontal


def _sizes(told: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in told)


def _zeros(shape: Any) -> Array:
    """Zeros that take no memory, whatever their shape."""
    if prod(_sizes(shape)) > MOST_NUMBERS:
        raise ValueError(f"a tensor of shape {shape}; at most {MOST_NUMBERS} numbers are read")
    return np.broadcast_to(np.zeros((), np.int32), _sizes(shape))
