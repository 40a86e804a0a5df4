"""NIR's neurons -> ours, with one Euler step of length dt per time step.

    LIF        tau dv/dt = (v_leak - v) + r I       v <- (1 - a) v + a (v_leak + r I),  a = dt / tau
    CubaLIF    tau_syn dI/dt = -I + w_in S          I <- (1 - s) I + s w_in S,          s = dt / tau_syn
               and a LIF on I
    IF         dv/dt = r I                          v <- v + dt r I
    Threshold                                       v <- I
    LI, CubaLI, I    as LIF, CubaLIF, IF, without a threshold: readouts

Voltages are in units of the factor of the input (a r, a r s w_in, dt r), so weights do not change and
thresholds are divided by it. Readouts keep their voltages, which are the output, so weights into them are
multiplied instead. The current of a CubaLIF is updated before its voltage; a file in which the voltage
integrates the previous current has connections that take one step longer (`read`). A neuron starts at zero;
one whose v_reset equals v_leak starts there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...base import Array, record
from ...ir import FloatLif, FloatReadout, Shape, compact
from .file import Node
from .metadata import DT, NO_LEAK

SPIKING = frozenset({"LIF", "CubaLIF", "IF", "Threshold"})
INTEGRATING = frozenset({"I", "LI", "CubaLI"})
NEARLY = 1e-6  # relative tolerance for float32


@record
class _Dynamics:
    """v <- leak v + rate v_leak + unit I, where I leaks with `current_leak`"""

    unit: Array
    leak: float | Array = 1.0
    rate: float | Array = 1.0
    current_leak: float | Array = 0.0


@record
class Timing:
    """dt, if known, and the exact leaks of our metadata."""

    dt: float | None
    leaks: Mapping[str, tuple[float | Array, float | Array]]
    float32: bool = False  # whether leaks were float32 numbers before they became time constants

    @property
    def step(self) -> float:
        return self.dt or DT


def parameter_shape(node: Node) -> Shape | None:
    """Return the shape of a neuron's parameters; None if all neurons share one value."""
    key = {"Threshold": "threshold", "I": "r", "LI": "r", "CubaLI": "r"}.get(node.kind, "v_threshold")
    values = node.numbers(key)
    if values.size == 1:
        return None
    if values.ndim > 3:
        node.fail(key, f"has shape {values.shape}; at most three axes are supported")
    return node.bounded(key, values.shape)


def spiking_neuron(node: Node, shape: Shape, timing: Timing) -> FloatLif:
    """Return the neuron of a node, in units of its synapses, without the bias that they add."""
    if node.kind == "Threshold":
        threshold = _per_neuron(node, "threshold", shape)
        return FloatLif(threshold=threshold, bias=np.zeros(shape), leak=0.0)
    rest, reset = _rest_and_reset(node, shape)
    threshold = _per_neuron(node, "v_threshold", shape) - reset
    rule = _dynamics(node, shape, timing)
    if not (rule.unit > 0).all():
        node.fail("r", "r (times w_in) must be above zero")
    return FloatLif(
        threshold=threshold / rule.unit,
        bias=rule.rate * (rest - reset) / rule.unit,
        leak=rule.leak,
        current_leak=rule.current_leak,
    )


def integrator(node: Node, shape: Shape, timing: Timing, timesteps: int) -> tuple[Array, FloatReadout]:
    """Return the factor of a node's weights, and its readout without the bias that synapses add.

    Both are multiplied by the time steps, by which our readouts divide.
    """
    rule = _dynamics(node, shape, timing)
    rest = np.zeros(shape) if node.kind == "I" else _per_neuron(node, "v_leak", shape)
    ours = node.name in timing.leaks  # has a factor of one, up to the rounding of r
    factor = np.ones(shape) if ours else rule.unit * timesteps
    bias = rule.rate * rest * timesteps
    return factor, FloatReadout(bias=bias, leak=rule.leak, current_leak=rule.current_leak)


def _dynamics(node: Node, shape: Shape, timing: Timing) -> _Dynamics:
    unit = _per_neuron(node, "r", shape)
    if node.kind in ("IF", "I"):
        return _Dynamics(unit=unit * _if_step(timing, unit))
    exact = timing.leaks.get(node.name, (None, None))
    leak, rate = _decay(node, "tau" if node.kind in ("LIF", "LI") else "tau_mem", shape, timing, exact[0])
    if node.kind in ("LIF", "LI"):
        return _Dynamics(unit=_one(unit * rate), leak=leak, rate=rate)
    current_leak, share = _decay(node, "tau_syn", shape, timing, exact[1])
    weight = _per_neuron(node, "w_in", shape) if "w_in" in node.tree else 1.0
    unit = _one(unit * rate * share * weight)
    return _Dynamics(unit=unit, leak=leak, rate=rate, current_leak=current_leak)


def _one(unit: Array) -> Array:
    """Return the unit of an input, one if it is one up to rounding: most writers choose r = tau / dt."""
    return np.where(np.abs(unit - 1) < NEARLY, 1.0, unit)


def _rest_and_reset(node: Node, shape: Shape) -> tuple[Array, Array]:
    rest = np.zeros(shape) if node.kind == "IF" else _per_neuron(node, "v_leak", shape)
    reset = _per_neuron(node, "v_reset", shape) if "v_reset" in node.tree else np.zeros(shape)
    if reset.any() and not np.array_equal(rest, reset):
        node.fail(
            "v_reset", "is neither zero nor the resting voltage (v_leak); other values are not supported"
        )
    return rest, reset


def _if_step(timing: Timing, r: Array) -> float:
    """Return dt; or one, if dt is unknown and r = 1, because such files integrate per time step."""
    if timing.dt is not None:
        return timing.dt
    return 1.0 if (r == 1).all() else DT


def _decay(
    node: Node, key: str, shape: Shape, timing: Timing, exact: float | Array | None
) -> tuple[float | Array, float | Array]:
    """(leak, rate) of a time constant: 1 - dt / tau and dt / tau"""
    tau, dt = _one_or_each(node, key, shape), timing.step
    least = float(np.min(tau))
    if least <= 0:
        node.fail(key, f"is {least:g}; a time constant must be above zero")
    highest = dt / least
    if highest > 1 + NEARLY:
        found = f"is {least:g} with a dt of {dt:g}, so the leak 1 - dt/tau is {1 - highest:g}"
        node.fail(key, f"{found}; allowed are 0 to 1. Give the dt that the file was written with")
    if exact is not None:
        return exact, _plain(np.where(np.asarray(exact) < 1, 1 - np.asarray(exact), 1 / NO_LEAK))
    rate = dt / np.asarray(tau)
    leak = np.maximum(0.0, 1 - rate)
    if timing.float32:
        leak = leak.astype(np.float32).astype(np.float64)
        return _plain(leak), _plain(1 - leak)
    return _plain(leak), _plain(np.minimum(1.0, rate))


def _plain(values: Array) -> float | Array:
    """Return a number as such, and an array as it is."""
    return values if values.ndim else float(values)


def _one_or_each(node: Node, key: str, shape: Shape) -> float | Array:
    """Return one time constant if all agree up to float32, else one per neuron."""
    values = node.numbers(key)
    lowest, highest = float(values.min()), float(values.max())
    if highest - lowest <= NEARLY * abs(highest):
        return float(values.flat[0])
    each: float | Array = compact(_per_neuron(node, key, shape))
    return each


def _per_neuron(node: Node, key: str, shape: Shape) -> Array:
    values = node.numbers(key)
    if values.size not in (1, int(np.prod(shape))):
        node.fail(key, f"holds {values.size} values; the node has {list(shape)}")
    return np.broadcast_to(values.ravel(), shape) if values.size == 1 else values.reshape(shape)
