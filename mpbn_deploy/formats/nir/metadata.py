"""Properties for which NIR has no keys, as JSON in the graph's metadata; integer networks from real ones.

An integer network is written as the real network that its integers represent, in units of one weight
(`real_network`). All its numbers are exact in float32, so exponents and decays suffice to restore it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ...base import Array, FormatError, Tree, record
from ...ir import (
    NO_BORDER,
    STATE_EXPONENT,
    Border,
    Connection,
    Conv2d,
    FloatNeuron,
    FloatPopulation,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Shape,
    at_step,
    counting,
    fires,
    has_current,
    integer_neuron,
    integrating,
    neuron_bias,
    neuron_subtrahend,
    neuron_threshold,
    per_channel,
    regroup,
    varies,
)
from ..options import Dialect

DT = 1e-4  # seconds per time step; snntorch supports no other
MOST_LEAK = 1 - 2.0**-12  # of nodes whose leaks depend on the time step
NO_LEAK = 2.0**80  # time constant, in steps, of a neuron without a leak whose biases need v_leak
KEY = "mpbn_deploy"
# Without and with soft resets, several spikes, or numbers, per step, which older readers would not see.
VERSIONS = VERSION, SOFT_VERSION, COUNT_VERSION, STEP_VERSION = 2, 3, 4, 5
STEP_NUMBERS = ("threshold", "subtrahend", "bias", "leak", "current_leak")  # of neurons with numbers per step
FAITHFUL, PORTABLE = DIALECTS = get_args(Dialect)
PORTABLE_THRESHOLD = 1.0


ConnectionKey = tuple[str, str, int, Border]  # source, target, delay, silent border: unique in a network


@record
class Metadata:
    """The metadata of our own files; empty for other files."""

    dialect: str = ""
    dt: float | None = None
    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    input_step: int = 1
    input_offset: int = 0
    populations: tuple[str, ...] = ()
    connections: tuple[ConnectionKey, ...] = ()
    leaks: Mapping[str, tuple[float | Array, float | Array]]
    kernels: Mapping[str, tuple[int, int, int]]  # groups, height, width
    per_neuron: Mapping[str, tuple[bool, bool]]  # threshold, bias
    subtrahends: Mapping[str, Array]  # of populations with a soft reset
    counts: Mapping[str, int] = field(default_factory=dict)  # the most spikes of Xylo's neurons in a step
    steps: Mapping[str, Mapping[str, float | Array]] = field(default_factory=dict)  # numbers per time step
    constants: frozenset[str] = frozenset()  # populations that replace biases
    integers: Mapping[str, Any] | None = None


def first_steps(network: FoldedNetwork) -> FoldedNetwork:
    """Return the network with the numbers of the first time step in all: what nodes of NIR can hold.

    There is nothing to leak in that step, so that leaks of nodes may be any that NIR has.
    """
    layers = []
    for population in network.layers:
        first = at_step(population.neuron, 0)
        if varies(population.neuron):
            leaks: dict[str, Any] = {
                name: _node_leak(getattr(first, name)) for name in ("leak", "current_leak")
            }
            first = replace(first, **leaks)
        layers.append(population.with_neuron(first))
    return replace(network, populations=(network.input, *layers))


def _node_leak(leak: float | Array) -> float | Array:
    return np.minimum(leak, MOST_LEAK) if isinstance(leak, np.ndarray) else min(leak, 1.0)


def with_steps(path: Path, network: FoldedNetwork, metadata: Metadata) -> FoldedNetwork:
    """Return the network of a file with the numbers per time step of its metadata."""
    if unknown := set(metadata.steps) - {p.name for p in network.layers}:
        raise FormatError(
            f"{path}: the metadata {KEY!r} has time steps of {sorted(unknown)}, which are missing."
        )
    layers = []
    for population in network.layers:
        neuron, numbers = population.neuron, dict(metadata.steps.get(population.name, {}))
        known: dict[str, Any] = {name: numbers[name] for name in numbers if hasattr(neuron, name)}
        timed = {**known, "per_step": True} if known else {}
        layers.append(population.with_neuron(replace(neuron, **timed)))
    return replace(network, populations=(network.input, *layers))


def _steps(network: FoldedNetwork) -> dict[str, dict[str, Any]]:
    return {
        p.name: {
            name: np.asarray(getattr(p.neuron, name)).tolist()
            for name in STEP_NUMBERS
            if hasattr(p.neuron, name)
        }
        for p in network.layers
        if varies(p.neuron)
    }


def metadata_text(
    network: FoldedNetwork,
    dialect: Dialect,
    constants: Sequence[str],
    integers: IntNetwork | None,
    timed: FoldedNetwork,
) -> str:
    """Return the metadata of a network as JSON; `constants` are populations that replace biases.

    `timed` is the network with its numbers per time step, of which `network` has those of the first.
    """
    steps = _steps(timed)
    leaking = {p.name: p.neuron for p in network.layers if not is_average(p.neuron)}
    counts = {p.name: n.max_spikes for p in network.layers if (n := counting(p.neuron)) is not None}
    soft = {p.name: s.tolist() for p in network.layers if (s := neuron_subtrahend(p.neuron)) is not None}
    allowed = network.input_range
    return json.dumps(
        {
            "version": STEP_VERSION
            if steps
            else COUNT_VERSION
            if counts
            else SOFT_VERSION
            if soft
            else VERSION,
            "dialect": dialect,
            "dt": DT,
            "timesteps": network.timesteps,
            "input_range": [allowed.minimum, allowed.maximum],
            **({"input_step": allowed.divisor} if allowed.divisor > 1 else {}),
            **({"input_offset": allowed.offset} if allowed.offset else {}),
            "comparison": "v > v_threshold",
            "reset": "to zero; by subtraction in the populations of `subtrahends`" if soft else "to zero",
            **({"subtrahends": soft} if soft else {}),
            **({"counts": counts} if counts else {}),
            **({"steps": steps} if steps else {}),
            "output": _output(network.output.neuron),
            "populations": [population.name for population in network.populations],
            "connections": [list(_without_default(connection_key(c))) for c in network.connections],
            "leaks": {
                name: [np.asarray(leak).tolist() for leak in (neuron.leak, neuron.current_leak)]
                for name, neuron in leaking.items()
            },
            "kernels": {
                key_text(c): [c.synapse.groups, *c.synapse.weight.shape[2:]]
                for c in network.connections
                if isinstance(c.synapse, Conv2d)
            },
            "per_neuron": {p.name: _per_neuron(p) for p in network.layers},
            "constants": list(constants),
            "integers": None if integers is None else _integers(integers),
        }
    )


def _version(steps: Any, counts: Any, soft: Any) -> int:
    return STEP_VERSION if steps else COUNT_VERSION if counts else SOFT_VERSION if soft else VERSION


def is_average(neuron: FloatNeuron) -> bool:
    """Whether a neuron is a readout without a leak, which NIR writes as the output node itself."""
    return not fires(neuron) and not has_current(neuron) and bool(np.all(neuron.leak == 1.0))


def _output(neuron: FloatNeuron) -> str:
    if is_average(neuron):
        return "mean over time steps"
    return "spikes" if fires(neuron) else "voltage after the last step"


def safe(name: str) -> str:
    """Replace dots and slashes: readers use node names as attributes."""
    return name.replace(".", "_").replace("/", "_")


def _per_neuron(population: FloatPopulation) -> list[bool]:
    """Whether thresholds, and biases, are stored per neuron rather than per channel."""
    shape, threshold = population.shape, neuron_threshold(population.neuron)
    return [threshold is not None and threshold.shape == shape, neuron_bias(population.neuron).shape == shape]


def _integers(network: IntNetwork) -> dict[str, Any]:
    rules: dict[str, dict[str, Any]] = {}
    for population in network.layers:
        neuron = integrating(population.neuron)
        assert neuron is not None, "a folded network has no relays"
        rules[population.name] = {
            "bias_exponent": neuron.bias_exponent,
            "decay_current": np.asarray(neuron.decay_current).tolist(),
            "decay_voltage": np.asarray(neuron.decay_voltage).tolist(),
        }
    return {
        "populations": rules,
        "exponents": {key_text(c): c.synapse.exponent for c in network.connections},
        "scales": {
            p.name: network.scales[p.name].tolist() for p in network.layers if p.name in network.scales
        },
        **({"foreign": True} if network.foreign else {}),
    }


def connection_key(connection: Connection) -> ConnectionKey:
    """Return what identifies a connection: source, target, delay and silent border."""
    synapse = connection.synapse
    border = synapse.silent if isinstance(synapse, Conv2d) else NO_BORDER
    return connection.source, connection.target, connection.delay, border


def key_text(connection: Connection) -> str:
    """Return the same as a JSON key."""
    border = connection_key(connection)[3]
    return f"{connection.label} after {connection.delay}" + (f" but {border}" if border != NO_BORDER else "")


def _without_default(found: ConnectionKey) -> tuple[Any, ...]:
    return found if found[3] != NO_BORDER else found[:3]


def _read_key(source: Any, target: Any, delay: Any, border: Any = NO_BORDER) -> ConnectionKey:
    (top, bottom), (left, right) = border
    return str(source), str(target), int(delay), ((int(top), int(bottom)), (int(left), int(right)))


def read_metadata(path: Path, metadata: Tree) -> Metadata:
    text = metadata.get(KEY)
    if text is None:
        return Metadata(leaks={}, kernels={}, per_neuron={}, subtrahends={}, dt=_plain_dt(path, metadata))
    try:
        entries = json.loads(text)
        if entries["version"] not in VERSIONS:
            raise FormatError(
                f"{path}: metadata {KEY!r} has version {entries['version']!r}; versions {VERSION} to "
                f"{STEP_VERSION} are allowed."
            )
        lowest, highest = map(int, entries["input_range"])
        return Metadata(
            dialect=str(entries["dialect"]),
            dt=_positive(entries["dt"]),
            timesteps=int(entries["timesteps"]),
            input_range=(lowest, highest),
            input_step=_step(entries.get("input_step", 1)),
            input_offset=int(entries.get("input_offset", 0)),
            populations=tuple(map(str, entries["populations"])),
            connections=tuple(_read_key(*entry) for entry in entries["connections"]),
            leaks={str(name): (_leaks(a), _leaks(b)) for name, (a, b) in entries["leaks"].items()},
            kernels={str(key): (int(a), int(b), int(c)) for key, (a, b, c) in entries["kernels"].items()},
            per_neuron={str(name): (bool(a), bool(b)) for name, (a, b) in entries["per_neuron"].items()},
            subtrahends={
                str(name): np.array(values, np.float64)
                for name, values in entries.get("subtrahends", {}).items()
            },
            counts={str(name): int(most) for name, most in entries.get("counts", {}).items()},
            steps={
                str(name): {
                    str(key): _leaks(values) for key, values in numbers.items() if key in STEP_NUMBERS
                }
                for name, numbers in entries.get("steps", {}).items()
            },
            constants=frozenset(map(str, entries["constants"])),
            integers=entries["integers"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path}: the metadata {KEY!r} is damaged ({error!r}).") from error


def _step(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"input step {value!r}")
    return value


def _plain_dt(path: Path, metadata: Tree) -> float | None:
    """Return the dt of other writers, under the key `dt`."""
    if "dt" not in metadata:
        return None
    try:
        return _positive(metadata["dt"])
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}: metadata 'dt' is not a positive number.") from error


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < np.inf:
        raise ValueError(f"{number} is not above zero")
    return number


# ---- integers -----------------------------------------------------------------------------------


def as_integers(path: Path, real: FoldedNetwork, entries: Mapping[str, Any]) -> IntNetwork:
    """Restore the integer network from its real network and the metadata that `_integers` wrote."""
    try:
        return IntNetwork(
            populations=(
                real.input,
                *(_integer_population(path, p, entries["populations"]) for p in real.layers),
            ),
            connections=tuple(_integer_connection(path, c, entries["exponents"]) for c in real.connections),
            timesteps=real.timesteps,
            scales={
                str(name): _scales(path, str(name), values, real.shapes)
                for name, values in entries["scales"].items()
            },
            foreign=bool(entries.get("foreign", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(
            f"{path}: the metadata {KEY!r} of an integer network is damaged ({error!r})."
        ) from error


def _integer_population(path: Path, population: FloatPopulation, rules: Mapping[str, Any]) -> IntPopulation:
    name, neuron, rule = population.name, population.neuron, rules[population.name]
    exponent = int(rule["bias_exponent"])
    threshold, subtrahend = (
        None if values is None else _whole(path, f"{name}: {label}", values)
        for label, values in (
            ("threshold", neuron_threshold(neuron)),
            ("subtrahend", neuron_subtrahend(neuron)),
        )
    )
    integer = integer_neuron(
        neuron,
        threshold,
        subtrahend,
        bias=_whole(path, f"{name}: bias", neuron.bias * 2.0 ** (STATE_EXPONENT - exponent)),
        bias_exponent=exponent,
        decay_current=_decays(rule["decay_current"]),
        decay_voltage=_decays(rule["decay_voltage"]),
        per_step=varies(neuron),
    )
    return population.with_neuron(integer)


def _leaks(stored: Any) -> float | Array:
    return np.array(stored, np.float64) if isinstance(stored, list) else float(stored)


def _decays(stored: Any) -> int | Array:
    return np.array(stored, np.int32) if isinstance(stored, list) else int(stored)


def _integer_connection(path: Path, connection: Connection, exponents: Mapping[str, Any]) -> Connection:
    exponent, synapse = int(exponents[key_text(connection)]), connection.synapse
    weight = _whole(path, f"{connection.label}: weight", synapse.weight * 2.0**-exponent)
    return replace(connection, synapse=replace(synapse, weight=weight, exponent=exponent))


def _whole(path: Path, label: str, values: Array) -> Array:
    """Return integers, undoing the rounding of float32."""
    whole: Array = np.rint(values)
    if not np.allclose(whole, values, rtol=1e-6, atol=1e-6) or np.abs(whole).max() >= 2**31:
        raise FormatError(
            f"{path}: {label} has values that are not 32-bit integers, which the metadata requires."
        )
    return whole.astype(np.int32)


def _scales(path: Path, name: str, values: Any, shapes: Mapping[str, Shape]) -> Array:
    scales = np.asarray(values, np.float64)
    if name not in shapes or scales.shape != shapes[name][:1] or not (scales > 0).all():
        raise FormatError(
            f"{path}: the metadata {KEY!r} lacks a scale above zero for each channel of {name!r}."
        )
    return scales


def spread(values: Array, shape: Shape, per_neuron: bool) -> Array:
    """Return one value per neuron, or one per channel as (channels, 1, 1)."""
    if per_neuron:
        return np.broadcast_to(values, shape)
    return per_channel(np.broadcast_to(values, shape).reshape(shape[0], -1)[:, 0], shape)


# Kernels in the form that nir can type-check, ungrouped and square, and back.


def is_signal(network: FoldedNetwork) -> bool:
    """Whether all pictures of a network are one pixel high, and no kernel looks up or down."""
    synapses = [c.synapse for c in network.connections if isinstance(c.synapse, Conv2d)]
    flat = all(
        (s.weight.shape[2], s.stride[0], s.padding[0], s.dilation[0], s.silent[0]) == (1, 1, 0, 1, (0, 0))
        for s in synapses
    )
    return flat and bool(synapses) and all(len(p.shape) == 1 or p.shape[1] == 1 for p in network.populations)


def typeable(synapse: Conv2d) -> Conv2d:
    """Return the same convolution in one group, with its kernel padded with zeros to a square.

    A kernel with one even and one odd side cannot be padded evenly and keeps its sides.
    """
    synapse = _in_one_group(synapse)
    weight, sides = synapse.weight, synapse.weight.shape[2:]
    if (sides[0] - sides[1]) % 2:
        return synapse
    more = [(max(sides) - side) // 2 for side in sides]
    weight = np.pad(weight, ((0, 0), (0, 0), (more[0], more[0]), (more[1], more[1])))
    pads = [p + d * m for p, d, m in zip(synapse.padding, synapse.dilation, more, strict=True)]
    return replace(synapse, weight=weight, padding=(pads[0], pads[1]))


def _in_one_group(synapse: Conv2d) -> Conv2d:
    return replace(synapse, weight=regroup(synapse.weight, synapse.groups, 1), groups=1)


def as_written(connection: Connection, metadata: Metadata) -> Connection:
    """Restore the convolution that `typeable` was given, if our metadata has its groups and sides."""
    synapse = connection.synapse
    if not isinstance(synapse, Conv2d) or synapse.groups > 1 or key_text(connection) not in metadata.kernels:
        return connection
    groups, *sides = metadata.kernels[key_text(connection)]
    less = [(found - side) // 2 for found, side in zip(synapse.weight.shape[2:], sides, strict=True)]
    pads = [p - d * m for p, d, m in zip(synapse.padding, synapse.dilation, less, strict=True)]
    if (
        groups < 1
        or min(*less, *pads) < 0
        or len(synapse.weight) % groups
        or synapse.weight.shape[1] % groups
    ):
        return connection
    inner = synapse.weight[:, :, less[0] : less[0] + sides[0], less[1] : less[1] + sides[1]]
    restored = replace(synapse, weight=_in_groups(inner, groups), groups=groups, padding=(pads[0], pads[1]))
    forms = typeable(restored), _in_one_group(restored)  # kernels of signals are not made square
    same = (f.padding == synapse.padding and np.array_equal(f.weight, synapse.weight) for f in forms)
    return replace(connection, synapse=restored) if any(same) else connection


def _in_groups(whole: Array, groups: int) -> Array:
    """Return the kernels on the diagonal of groups, without the rest."""
    rows, columns = np.split(whole, groups), whole.shape[1] // groups
    return np.concatenate([row[:, g * columns : (g + 1) * columns] for g, row in enumerate(rows)])
