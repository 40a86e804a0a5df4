"""Convert neurons of other libraries that a folded neuron reproduces exactly.

| module                       | conversion                                                          |
|------------------------------|---------------------------------------------------------------------|
| snnTorch `Leaky`             | reset to zero; one beta; any thresholds, also per feature           |
| SpikingJelly `IFNode`,       | hard reset to 0; `decay_input` scales the threshold;                |
| `LIFNode`, `ParametricLIF..` | `>=` becomes `>` with the next smaller float64                      |

Neurons without an exact equivalent raise FrontendError with the reason: reset by subtraction, inhibition,
quantized states, and SpikingJelly's MPBN, which carries the normalized membrane to the next step, so that
no threshold can replace it. The libraries are not imported here: a module of theirs can only exist if the
caller has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
from torch import nn

from ..base import Array, FrontendError
from ..ir import BatchNorm, Operation, Spike

Converter = Callable[[Any], Operation]


def foreign_converters() -> dict[type[nn.Module], Converter]:
    """Return the converters for the libraries that are already imported."""
    found: dict[type[nn.Module], Converter] = {}
    if (snntorch := sys.modules.get("snntorch")) is not None:
        found[snntorch.Leaky] = leaky
    if (neuron := sys.modules.get("spikingjelly.activation_based.neuron")) is not None:
        found |= {neuron.IFNode: if_node, neuron.LIFNode: lif_node, neuron.ParametricLIFNode: parametric_node}
        if hasattr(neuron, "MPBNLIFNode"):
            found[neuron.MPBNLIFNode] = mpbn_node
    return found


# ---- snnTorch -----------------------------------------------------------------------------------


def leaky(module: Any) -> Spike:
    """mem <- beta * mem + x; spike = mem > threshold; mem <- 0 where spike"""
    _expect(module.init_hidden and not module.output, "returns its state; create it with init_hidden=True")
    _expect(
        module.reset_mechanism == "zero",
        f"reset by {module.reset_mechanism!r}; only reset_mechanism='zero' is supported",
    )
    _expect(not module.inhibition and not module.state_quant, "inhibition and state_quant are not supported")
    _expect(
        float(module.graded_spikes_factor) == 1, "graded spikes; only graded_spikes_factor=1 is supported"
    )
    threshold, beta = _numbers(module.threshold), np.clip(_numbers(module.beta), 0, 1)
    _expect(beta.size == 1, f"{beta.size} values of beta; only one for all neurons of a layer is supported")
    _expect(module.reset_delay or threshold.min() >= 0, "negative thresholds need reset_delay=True")
    return _spike(float(beta.item()), threshold)


def _spike(leak: float, threshold: Array) -> Spike:
    """Return the neuron; thresholds per feature become the offset of a norm: v - threshold > 0."""
    if threshold.size == 1:
        return Spike(leak=leak, threshold=float(threshold.item()), norm=None)
    ones, zeros = np.ones(threshold.size), np.zeros(threshold.size)
    norm = BatchNorm(gain=ones, offset=-threshold, mean=zeros, variance=ones, epsilon=0.0)
    return Spike(leak=leak, threshold=0.0, norm=norm)


# ---- SpikingJelly -------------------------------------------------------------------------------


def if_node(module: Any) -> Spike:
    """v <- v + x; spike = v >= threshold; v <- 0 where spike"""
    _expect_hard_reset(module)
    return Spike(leak=1.0, threshold=_at_least(module.v_threshold), norm=None)


def lif_node(module: Any) -> Spike:
    """v <- (1 - 1 / tau) v + x; with decay_input, x / tau, which a threshold scaled by tau absorbs"""
    return _leaking(module, float(module.tau), module.decay_input)


def parametric_node(module: Any) -> Spike:
    """v <- (1 - sigmoid(w)) v + x, or with decay_input, sigmoid(w) x"""
    return _leaking(module, 1 / float(_numbers(module.w.sigmoid()).item()), module.decay_input)


def mpbn_node(module: Any) -> Spike:
    """Raise FrontendError: this neuron has no exact equivalent."""
    raise FrontendError(
        "carries the normalized membrane into the next step, so no threshold can replace its norm. "
        "Train with mpbn_deploy.nn.LIF, which normalizes a copy as in the paper."
    )


def _leaking(module: Any, tau: float, decay_input: bool) -> Spike:
    _expect_hard_reset(module)
    threshold = module.v_threshold * tau if decay_input else module.v_threshold
    return Spike(leak=1 - 1 / tau, threshold=_at_least(threshold), norm=None)


def _expect_hard_reset(module: Any) -> None:
    _expect(
        module.v_reset == 0,
        "reset by subtraction (v_reset=None); only v_reset=0.0 is supported"
        if module.v_reset is None
        else f"resets to {module.v_reset}; only v_reset=0.0 is supported",
    )


def _at_least(threshold: float) -> float:
    """Return t such that v > t is v >= threshold: the next smaller float64."""
    return float(np.nextafter(float(threshold), -inf))


def _numbers(values: Any) -> Array:
    numbers: Array = np.asarray(getattr(values, "detach", lambda: values)(), np.float64).ravel()
    return numbers


def _expect(holds: Any, found: str) -> None:
    if not holds:
        raise FrontendError(f"{found}.")
