"""What NIR has no words for, as a JSON text in the graph's metadata; integer networks back from real ones.

An integer network is written as the network of real numbers that its integers mean, in units of a weight
(`real_network`). They are all exact in float32, so that with exponents and decays it can be restored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from typing_extensions import assert_never

from ...base import Array, FormatError, Tree, record
from ...ir import (
    DECAY_ONE,
    NO_BORDER,
    STATE_EXPONENT,
    Border,
    Connection,
    Conv2d,
    FloatLif,
    FloatNeuron,
    FloatPopulation,
    FloatReadout,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Lif,
    Neuron,
    Readout,
    Shape,
    fires,
    neuron_bias,
    neuron_threshold,
    per_channel,
)
from ..options import Dialect

DT = 1e-4  # seconds per time step; snntorch knows no other
NO_LEAK = 2.0**80  # time constant, in steps, of a neuron that does not leak but has biases of its own
KEY = "mpbn_deploy"
VERSION = 2
FAITHFUL, PORTABLE = DIALECTS = get_args(Dialect)
PORTABLE_THRESHOLD = 1.0


Hop = tuple[str, str, int, Border]  # what tells a connection from all others


@record
class Told:
    """What our own files say in their metadata; empty for files of others."""

    dialect: str = ""
    dt: float | None = None
    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    populations: tuple[str, ...] = ()
    connections: tuple[Hop, ...] = ()
    leaks: Mapping[str, tuple[float, float]]
    kernels: Mapping[str, tuple[int, int, int]]  # groups, height, width
    per_neuron: Mapping[str, tuple[bool, bool]]  # threshold, bias
    constants: frozenset[str] = frozenset()  # populations that stand for biases
    integers: Mapping[str, Any] | None = None


def told_of(
    network: FoldedNetwork, dialect: str, constants: Sequence[str], integers: IntNetwork | None
) -> str:
    """The metadata of a network that we write; `constants` are populations that stand for biases."""
    leaking = {p.name: p.neuron for p in network.layers if not is_average(p.neuron)}
    allowed = network.input_range
    return json.dumps(
        {
            "version": VERSION,
            "dialect": dialect,
            "dt": DT,
            "timesteps": network.timesteps,
            "input_range": [allowed.minimum, allowed.maximum],
            "comparison": "v > v_threshold",
            "reset": "to zero",
            "output": _output(network.output.neuron),
            "populations": [population.name for population in network.populations],
            "connections": [list(_without_default(hop(c))) for c in network.connections],
            "leaks": {name: [neuron.leak, neuron.current_leak] for name, neuron in leaking.items()},
            "kernels": {
                hop_text(c): [c.synapse.groups, *c.synapse.weight.shape[2:]]
                for c in network.connections
                if isinstance(c.synapse, Conv2d)
            },
            "per_neuron": {p.name: _per_neuron(p) for p in network.layers},
            "constants": list(constants),
            "integers": None if integers is None else _integers(integers),
        }
    )


def is_average(neuron: FloatNeuron) -> bool:
    """Whether a neuron is a readout that does not leak: in NIR, the output node itself."""
    match neuron:
        case FloatReadout(leak=leak, current_leak=current_leak):
            return (leak, current_leak) == (1.0, 0.0)
        case FloatLif():
            return False
        case _:
            assert_never(neuron)


def _output(neuron: FloatNeuron) -> str:
    if is_average(neuron):
        return "mean over time steps"
    return "spikes" if fires(neuron) else "voltage after the last step"


def safe(name: str) -> str:
    """Readers make attributes of node names, so no dots."""
    return name.replace(".", "_").replace("/", "_")


def _per_neuron(population: FloatPopulation) -> list[bool]:
    """Whether thresholds and biases are one per neuron of a picture, rather than one per channel."""
    shape, threshold = population.shape, neuron_threshold(population.neuron)
    return [threshold is not None and threshold.shape == shape, neuron_bias(population.neuron).shape == shape]


def _integers(network: IntNetwork) -> dict[str, Any]:
    rules: dict[str, dict[str, int]] = {}
    for population in network.layers:
        neuron = population.neuron
        rules[population.name] = {
            "bias_exponent": neuron.bias_exponent,
            "decay_current": neuron.decay_current,
            "decay_voltage": neuron.decay_voltage,
        }
    return {
        "populations": rules,
        "exponents": {hop_text(c): c.synapse.exponent for c in network.connections},
        "scales": {name: scales.tolist() for name, scales in network.scales.items()},
    }


def hop(connection: Connection) -> Hop:
    """Source, target, delay, and the border of the target that gets nothing."""
    synapse = connection.synapse
    border = synapse.silent if isinstance(synapse, Conv2d) else NO_BORDER
    return connection.source, connection.target, connection.delay, border


def hop_text(connection: Connection) -> str:
    """The same as a key of JSON."""
    border = hop(connection)[3]
    return f"{connection.label} after {connection.delay}" + (f" but {border}" if border != NO_BORDER else "")


def _without_default(found: Hop) -> tuple[Any, ...]:
    return found if found[3] != NO_BORDER else found[:3]


def _read_hop(source: Any, target: Any, delay: Any, border: Any = NO_BORDER) -> Hop:
    (top, bottom), (left, right) = border
    return str(source), str(target), int(delay), ((int(top), int(bottom)), (int(left), int(right)))


def read_told(path: Path, metadata: Tree) -> Told:
    text = metadata.get(KEY)
    if text is None:
        return Told(leaks={}, kernels={}, per_neuron={}, dt=_plain_dt(path, metadata))
    try:
        told = json.loads(text)
        if told["version"] != VERSION:
            raise FormatError(
                f"{path}: metadata {KEY!r} of version {told['version']!r}; version {VERSION} is read."
            )
        lowest, highest = map(int, told["input_range"])
        return Told(
            dialect=str(told["dialect"]),
            dt=_positive(told["dt"]),
            timesteps=int(told["timesteps"]),
            input_range=(lowest, highest),
            populations=tuple(map(str, told["populations"])),
            connections=tuple(_read_hop(*entry) for entry in told["connections"]),
            leaks={str(name): (float(a), float(b)) for name, (a, b) in told["leaks"].items()},
            kernels={str(key): (int(a), int(b), int(c)) for key, (a, b, c) in told["kernels"].items()},
            per_neuron={str(name): (bool(a), bool(b)) for name, (a, b) in told["per_neuron"].items()},
            constants=frozenset(map(str, told["constants"])),
            integers=told["integers"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path}: the metadata {KEY!r} is damaged ({error!r}).") from error


def _plain_dt(path: Path, metadata: Tree) -> float | None:
    """Other writers may say dt under that name."""
    if "dt" not in metadata:
        return None
    try:
        return _positive(metadata["dt"])
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}: metadata 'dt' is no positive number.") from error


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < np.inf:
        raise ValueError(f"{number} is not above zero")
    return number


# ---- integers -----------------------------------------------------------------------------------


def as_integers(path: Path, real: FoldedNetwork, told: Mapping[str, Any]) -> IntNetwork:
    """The integer network back, from what `real_network` and `_integers` made of it."""
    try:
        return IntNetwork(
            populations=(
                real.input,
                *(_integer_population(path, p, told["populations"]) for p in real.layers),
            ),
            connections=tuple(_integer_connection(path, c, told["exponents"]) for c in real.connections),
            timesteps=real.timesteps,
            scales={
                str(name): _scales(path, str(name), values, {p.name: p.shape for p in real.populations})
                for name, values in told["scales"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(
            f"{path}: the metadata {KEY!r} of an integer network is damaged ({error!r})."
        ) from error


def _integer_population(path: Path, population: FloatPopulation, rules: Mapping[str, Any]) -> IntPopulation:
    neuron, name = population.neuron, population.name
    match neuron:
        case FloatReadout():
            exponent = int(rules[name]["bias_exponent"])
            integer: Neuron = Readout(
                bias=_bias(path, name, neuron.bias, exponent),
                bias_exponent=exponent,
                decay_current=int(rules[name].get("decay_current", DECAY_ONE)),
                decay_voltage=int(rules[name].get("decay_voltage", 0)),
            )
        case FloatLif():
            exponent = int(rules[name]["bias_exponent"])
            integer = Lif(
                threshold=_whole(path, f"{name}: threshold", neuron.threshold),
                bias=_bias(path, name, neuron.bias, exponent),
                bias_exponent=exponent,
                decay_current=int(rules[name]["decay_current"]),
                decay_voltage=int(rules[name]["decay_voltage"]),
            )
        case _:
            assert_never(neuron)
    return population.with_neuron(integer)


def _integer_connection(path: Path, connection: Connection, exponents: Mapping[str, Any]) -> Connection:
    exponent, synapse = int(exponents[hop_text(connection)]), connection.synapse
    weight = _whole(path, f"{connection.label}: weight", synapse.weight * 2.0**-exponent)
    return replace(connection, synapse=replace(synapse, weight=weight, exponent=exponent))


def _bias(path: Path, name: str, values: Array, exponent: int) -> Array:
    return _whole(path, f"{name}: bias", values * 2.0 ** (STATE_EXPONENT - exponent))


def _whole(path: Path, label: str, values: Array) -> Array:
    """The integers that float32 rounded a little."""
    whole: Array = np.rint(values)
    if not np.allclose(whole, values, rtol=1e-6, atol=1e-6) or np.abs(whole).max() >= 2**31:
        raise FormatError(f"{path}: {label} holds values that are no 32-bit integers, as the metadata says.")
    return whole.astype(np.int32)


def _scales(path: Path, name: str, values: Any, shapes: Mapping[str, Shape]) -> Array:
    scales = np.asarray(values, np.float64)
    if name not in shapes or scales.shape != shapes[name][:1] or not (scales > 0).all():
        raise FormatError(
            f"{path}: the metadata {KEY!r} has no scale above zero for each channel of {name!r}."
        )
    return scales


def spread(values: Array, shape: Shape, per_neuron: bool) -> Array:
    """One value per neuron, or per channel as (channels, 1, 1), as the metadata says."""
    if per_neuron:
        return np.broadcast_to(values, shape)
    return per_channel(np.broadcast_to(values, shape).reshape(shape[0], -1)[:, 0], shape)
