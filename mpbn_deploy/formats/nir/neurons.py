"""NIR's neurons -> ours, in one Euler step of length dt.

    LIF        tau dv/dt = (v_leak - v) + r I       v <- (1 - a) v + a (v_leak + r I),  a = dt / tau
    CubaLIF    tau_syn dI/dt = -I + w_in S          I <- (1 - s) I + s w_in S,          s = dt / tau_syn
               and a LIF on I
    IF         dv/dt = r I                          v <- v + dt r I
    Threshold                                       v <- I
    LI, CubaLI, I    as LIF, CubaLIF, IF, without a threshold: readouts

The voltage is counted in units of what multiplies the input (a r, a r s w_in, dt r), so weights stay
as they are and thresholds are divided; weights into a readout, whose voltages are what is read, are
multiplied instead. The current of a CubaLIF is updated before its voltage, as
snntorch does. A neuron starts at zero; one that resets to where it rests starts there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...base import Array, record
from ...ir import FloatLif, Shape, compact
from .file import Node
from .metadata import DT, NO_LEAK

SPIKING = frozenset({"LIF", "CubaLIF", "IF", "Threshold"})
INTEGRATING = frozenset({"I", "LI", "CubaLI"})
NEARLY = 1e-6  # relative differences that float32 makes


@record
class Neuron:
    """A neuron of ours before what its synapses add to the bias."""

    threshold: Array
    bias: Array
    leak: float
    current_leak: float = 0.0


@record
class Integrator:
    """A readout of ours before what its synapses add to the bias; `factor` multiplies their weights."""

    factor: Array
    bias: Array
    leak: float = 1.0
    current_leak: float = 0.0


@record
class _Dynamics:
    """v <- leak v + rate v_leak + unit I, where I leaks too"""

    unit: Array
    leak: float = 1.0
    rate: float = 1.0
    current_leak: float = 0.0


@record
class Given:
    """dt where it is known, and the leaks that our own metadata says exactly."""

    dt: float | None
    leaks: Mapping[str, tuple[float, float]]

    @property
    def step(self) -> float:
        return self.dt or DT


def parameter_shape(node: Node) -> Shape | None:
    """The shape that a neuron's parameters have, or None where one value serves all neurons."""
    key = {"Threshold": "threshold", "I": "r", "LI": "r", "CubaLI": "r"}.get(node.kind, "v_threshold")
    values = node.numbers(key)
    if values.size == 1:
        return None
    if values.ndim > 3:
        node.fail(key, f"has shape {values.shape}; up to three axes are known")
    return node.bounded(key, values.shape)


def spiking(node: Node, shape: Shape, given: Given) -> Neuron:
    """The neuron that a node describes, with thresholds and biases in units of its synapses."""
    if node.kind == "Threshold":
        threshold = _per_neuron(node, "threshold", shape)
        return Neuron(threshold=threshold, bias=np.zeros(shape), leak=0.0)
    rest, reset = _rest_and_reset(node, shape)
    threshold = _per_neuron(node, "v_threshold", shape) - reset
    rule = _dynamics(node, shape, given)
    if not (rule.unit > 0).all():
        node.fail("r", "r (times w_in) is not above zero; such neurons are not known")
    return Neuron(
        threshold=threshold / rule.unit,
        bias=rule.rate * (rest - reset) / rule.unit,
        leak=rule.leak,
        current_leak=rule.current_leak,
    )


def integrating(node: Node, shape: Shape, given: Given, timesteps: int) -> Integrator:
    """The readout that a node describes: ours divides by the time steps what it adds, so it gets as many."""
    rule = _dynamics(node, shape, given)
    rest = np.zeros(shape) if node.kind == "I" else _per_neuron(node, "v_leak", shape)
    ours = node.name in given.leaks  # whose factor is one, but for the rounding of r
    return Integrator(
        factor=np.ones(shape) if ours else rule.unit * timesteps,
        bias=rule.rate * rest * timesteps,
        leak=rule.leak,
        current_leak=rule.current_leak,
    )


def _dynamics(node: Node, shape: Shape, given: Given) -> _Dynamics:
    unit = _per_neuron(node, "r", shape)
    if node.kind in ("IF", "I"):
        return _Dynamics(unit=unit * _if_step(given, unit))
    exact = given.leaks.get(node.name, (None, None))
    leak, rate = _decay(node, "tau" if node.kind in ("LIF", "LI") else "tau_mem", given, exact[0])
    if node.kind in ("LIF", "LI"):
        return _Dynamics(unit=unit * rate, leak=leak, rate=rate)
    current_leak, share = _decay(node, "tau_syn", given, exact[1])
    weight = _per_neuron(node, "w_in", shape) if "w_in" in node.tree else 1.0
    return _Dynamics(unit=unit * rate * share * weight, leak=leak, rate=rate, current_leak=current_leak)


def lif(neuron: Neuron, constant: Array | None) -> FloatLif:
    """The neuron with what its synapses add to its bias; one value per channel where neurons agree."""
    bias = neuron.bias if constant is None else neuron.bias + constant
    return FloatLif(
        threshold=compact(neuron.threshold),
        bias=compact(bias),
        leak=neuron.leak,
        current_leak=neuron.current_leak,
    )


def _rest_and_reset(node: Node, shape: Shape) -> tuple[Array, Array]:
    rest = np.zeros(shape) if node.kind == "IF" else _per_neuron(node, "v_leak", shape)
    reset = _per_neuron(node, "v_reset", shape) if "v_reset" in node.tree else np.zeros(shape)
    if reset.any() and not np.array_equal(rest, reset):
        node.fail(
            "v_reset", "is neither zero nor where the neuron rests (v_leak); such neurons are not known"
        )
    return rest, reset


def _if_step(given: Given, r: Array) -> float:
    """dt; or one, where a file that says nothing of dt has r = 1: then it counts per time step."""
    if given.dt is not None:
        return given.dt
    return 1.0 if (r == 1).all() else DT


def _decay(node: Node, key: str, given: Given, exact: float | None) -> tuple[float, float]:
    """(leak, rate) of a time constant: 1 - dt / tau and dt / tau"""
    tau, dt = _uniform(node, key), given.step
    rate = dt / tau if tau > 0 else np.inf
    if rate > 1 + NEARLY:
        found = f"is {tau:g} with a dt of {dt:g}, so the leak 1 - dt/tau is {1 - rate:g}; allowed are 0 to 1"
        node.fail(key, f"{found}. Give the dt that the file was written with")
    if exact is not None:
        return exact, 1 - exact if exact < 1 else 1 / NO_LEAK
    return max(0.0, 1 - rate), min(1.0, rate)


def _uniform(node: Node, key: str) -> float:
    values = node.numbers(key)
    lowest, highest = float(values.min()), float(values.max())
    if highest - lowest > NEARLY * abs(highest):
        different = np.unique(values)
        few = ", ".join([f"{value:g}" for value in different[:4]] + ["..."] * (len(different) > 4))
        found = f"differs among its {values.size} neurons: {len(different)} values, {few}"
        node.fail(
            key,
            f"{found}; all neurons of a node must leak alike. Train with one time constant per layer, or "
            "split the node and the weights to and from it into one part for each value",
        )
    return float(values.flat[0])


def _per_neuron(node: Node, key: str, shape: Shape) -> Array:
    values = node.numbers(key)
    if values.size not in (1, int(np.prod(shape))):
        node.fail(key, f"holds {values.size} values; the node has {list(shape)}")
    return np.broadcast_to(values.ravel(), shape) if values.size == 1 else values.reshape(shape)
