"""The structure of an integer network, which is everything but its numbers, as JSON in a checkpoint.

`QuantizedBody` is built from this structure; its numbers are then loaded from the checkpoint's tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np

from ..base import Array, NetworkError, OptionError, QuantizeError, layer_name
from ..ir import (
    DECAY_ONE,
    NO_BORDER,
    Connection,
    Conv2d,
    Dense,
    Input,
    IntegratingNeuron,
    IntNetwork,
    IntPopulation,
    Lif,
    Neuron,
    Pair,
    Population,
    Readout,
    SoftLif,
    Synapse,
    fires,
    integrating,
    membrane,
    neuron_subtrahend,
    neuron_threshold,
    varies,
)
from .scales import NumberFormats, grid_exponent

BY_POPULATION = ("allowances", "narrow")  # formats that twins do not have
MAX_NUMBERS = 2**27  # in one tensor; a hostile file must not exhaust time or memory


def describe_structure(network: IntNetwork, formats: NumberFormats) -> str:
    """Return the structure as JSON; raise QuantizeError if the network cannot be trained."""
    _check_trainable(network)
    source = network.input_range
    return json.dumps(
        {
            "formats": {name: size for name, size in asdict(formats).items() if name not in BY_POPULATION},
            "input": {
                "name": network.input.name,
                "shape": network.input.shape,
                "minimum": source.minimum,
                "maximum": source.maximum,
                "offset": source.offset,
            },
            "populations": [_describe_neurons(p) for p in network.layers],
            "connections": [_describe_connection(c, formats) for c in network.connections],
        }
    )


def _check_trainable(network: IntNetwork) -> None:
    for connection in network.feedback:
        if not _is_plain_loop(network, connection):
            raise QuantizeError(
                f"{connection.label}: a recurrent connection; quantization-aware training takes only those "
                "of a layer to itself with a delay of one step, one for each layer."
            )
    for population in network.layers:
        neuron = _trainable(population)
        if varies(neuron):
            raise QuantizeError(
                f"{layer_name(population.name)}: numbers that depend on the time step; quantization-aware "
                "training needs one set for all steps. Add --static-steps, which starts from their means."
            )
        if np.ndim(neuron.decay_current) or np.ndim(neuron.decay_voltage):
            raise QuantizeError(
                f"{layer_name(population.name)}: decays that differ between neurons; quantization-aware "
                "training needs one for each layer."
            )
    output = network.output.neuron
    rule = membrane(output, 1)
    if fires(output) or (rule.decay_current.kept, rule.decay_voltage.kept) != (0, 1):
        raise QuantizeError(
            f"{layer_name(network.output.name)}: quantization-aware training needs a readout that sums, "
            "without leak and without a current of its own, as the output."
        )


def _trainable(population: IntPopulation) -> IntegratingNeuron:
    if (neuron := integrating(population.neuron)) is not None:
        return neuron
    where = layer_name(population.name)
    raise QuantizeError(f"{where}: a relay; quantization-aware training takes composed pooling.")


def _is_plain_loop(network: IntNetwork, connection: Connection) -> bool:
    """Whether a connection is one that `nn.Loop` follows: of a layer to itself, and the only such."""
    entering, synapse = network.entering(connection.target), connection.synapse
    again = [c for c in entering if c.source == c.target]
    plain = isinstance(synapse, Dense) or (
        (synapse.stride, synapse.dilation, synapse.silent) == ((1, 1), (1, 1), NO_BORDER)
    )
    return plain and connection.delay == 1 and again == [connection] and len(entering) > 1


def _describe_neurons(population: IntPopulation) -> dict[str, Any]:
    neuron = _trainable(population)
    threshold, subtrahend = neuron_threshold(neuron), neuron_subtrahend(neuron)
    return {
        "name": population.name,
        "shape": population.shape,
        "bias": neuron.bias.shape,
        "bias_exponent": neuron.bias_exponent,
        "decay_current": neuron.decay_current,
        "decay_voltage": neuron.decay_voltage,
        "threshold": None if threshold is None else threshold.shape,
        "subtrahend": None if subtrahend is None else subtrahend.shape,
    }


def _describe_connection(connection: Connection, formats: NumberFormats) -> dict[str, Any]:
    synapse = connection.synapse
    step = formats.weight_step(grid_exponent(synapse, formats))
    stored = {"source": connection.source, "target": connection.target, "delay": connection.delay}
    stored |= {"weight": synapse.weight.shape, "exponent": synapse.exponent, "step": step}
    if isinstance(synapse, Conv2d):
        stored |= {
            name: getattr(synapse, name) for name in ("stride", "padding", "dilation", "groups", "silent")
        }
    return stored


def read_structure(structure: str) -> tuple[IntNetwork, NumberFormats, tuple[int, ...]]:
    """Return the network, its formats, and the step of each connection's weights.

    All numbers of the network are zeros, which take no memory.
    """
    try:
        stored = json.loads(structure)
        source = stored["input"]
        neuron = Input(
            minimum=int(source["minimum"]),
            maximum=int(source["maximum"]),
            offset=int(source.get("offset", 0)),  # older files do not have it
        )
        first = Population(name=str(source["name"]), shape=_sizes(source["shape"]), neuron=neuron)
        populations = (first, *map(_read_neurons, stored["populations"]))
        network = IntNetwork(
            populations=populations,
            connections=tuple(map(_read_connection, stored["connections"])),
            timesteps=1,
            scales={},
        )
        sizes: dict[str, Any] = {name: int(value) for name, value in stored["formats"].items()}
        formats = NumberFormats(**sizes)
        steps = tuple(_read_step(connection, formats) for connection in stored["connections"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise OptionError(f"structure of a quantized network: {type(error).__name__}: {error}") from error
    except NetworkError as error:
        raise OptionError(f"structure of a quantized network: {error}") from error
    _check_trainable(network)
    return network, formats, steps


def _read_neurons(stored: Mapping[str, Any]) -> IntPopulation:
    arguments: dict[str, Any] = {
        "bias": _zeros(stored["bias"]),
        "bias_exponent": int(stored["bias_exponent"]),
        "decay_current": int(stored.get("decay_current", DECAY_ONE)),  # older files do not have it
        "decay_voltage": int(stored["decay_voltage"]),
    }
    return Population(
        name=str(stored["name"]), shape=_sizes(stored["shape"]), neuron=_read_neuron(stored, arguments)
    )


def _read_neuron(stored: Mapping[str, Any], arguments: dict[str, Any]) -> Neuron:
    if stored["threshold"] is None:
        return Readout(**arguments)
    threshold = _zeros(stored["threshold"])
    if (subtrahend := stored.get("subtrahend")) is None:  # older files do not have it
        return Lif(threshold=threshold, **arguments)
    return SoftLif(threshold=threshold, subtrahend=_zeros(subtrahend), **arguments)


def _read_connection(stored: Mapping[str, Any]) -> Connection:
    weight, exponent = _zeros(stored["weight"]), int(stored["exponent"])
    if weight.ndim == 4:
        stride, padding, dilation = (_pair(stored[name]) for name in ("stride", "padding", "dilation"))
        top_bottom, left_right = stored["silent"]
        synapse: Synapse = Conv2d(
            weight=weight,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=int(stored["groups"]),
            exponent=exponent,
            silent=(_pair(top_bottom), _pair(left_right)),
        )
    else:
        synapse = Dense(weight=weight, exponent=exponent)
    return Connection(
        source=str(stored["source"]),
        target=str(stored["target"]),
        synapse=synapse,
        delay=int(stored["delay"]),
    )


def _read_step(stored: Mapping[str, Any], formats: NumberFormats) -> int:
    step = int(stored.get("step", formats.step))  # older files do not have it
    if not 1 <= step <= formats.step or step & (step - 1):
        raise ValueError(f"a step of {step}; a power of two up to {formats.step} is needed")
    return step


def _pair(stored: Any) -> Pair:
    vertical, horizontal = _sizes(stored)
    return vertical, horizontal


def _sizes(stored: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in stored)


def _zeros(shape: Any) -> Array:
    """Return zeros of any shape that take no memory."""
    if prod(_sizes(shape)) > MAX_NUMBERS:
        raise ValueError(f"a tensor of shape {shape}; a tensor may have at most {MAX_NUMBERS} numbers")
    return np.broadcast_to(np.zeros((), np.int32), _sizes(shape))
