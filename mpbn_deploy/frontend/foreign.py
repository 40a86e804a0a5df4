"""Neurons of other libraries, where what they compute is exactly what a folded neuron computes.

| module                       | translated                                                          |
|------------------------------|---------------------------------------------------------------------|
| snnTorch `Leaky`             | reset to zero; one beta; any thresholds (per feature too)           |
| SpikingJelly `IFNode`,       | hard reset to 0; `decay_input` becomes a scale of the threshold;    |
| `LIFNode`, `ParametricLIF..` | `>=` becomes `>` of the next smaller float64                        |

What has no exact translation is refused with the reason: reset by subtraction, SpikingJelly's MPBN
(which carries the normalized membrane on, so no threshold replaces it), inhibition, quantized states.
Nothing is imported here: who has such a module has imported its library.
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
    """Converters of the libraries that somebody has imported."""
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
    _expect(module.init_hidden and not module.output, "returns its state; make it with init_hidden=True")
    _expect(
        module.reset_mechanism == "zero",
        f"reset by {module.reset_mechanism!r}; only a reset to zero can be deployed: reset_mechanism='zero'",
    )
    _expect(not module.inhibition and not module.state_quant, "inhibition or quantized states are not known")
    _expect(float(module.graded_spikes_factor) == 1, "graded spikes; a spike must be 1")
    threshold, beta = _numbers(module.threshold), np.clip(_numbers(module.beta), 0, 1)
    _expect(beta.size == 1, f"{beta.size} values of beta; one for all its neurons is needed")
    _expect(module.reset_delay or threshold.min() >= 0, "thresholds below zero need reset_delay=True")
    return _spike(float(beta.item()), threshold)


def _spike(leak: float, threshold: Array) -> Spike:
    """A threshold per feature is said as a norm that subtracts it: v - threshold > 0."""
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
    """v <- (1 - 1 / tau) v + x; with decay_input x / tau, and then tau * v obeys the same"""
    return _leaking(module, float(module.tau), module.decay_input)


def parametric_node(module: Any) -> Spike:
    """The same, with 1 / tau = sigmoid(w)."""
    return _leaking(module, 1 / float(_numbers(module.w.sigmoid()).item()), module.decay_input)


def mpbn_node(module: Any) -> Spike:
    """Refused: its membrane goes on normalized."""
    raise FrontendError(
        "carries the normalized membrane into the next step, so no threshold on the membrane replaces its "
        "norm. Train with mpbn_deploy.nn.LIF, which normalizes a copy, as the paper does."
    )


def _leaking(module: Any, tau: float, decay_input: bool) -> Spike:
    _expect_hard_reset(module)
    threshold = module.v_threshold * tau if decay_input else module.v_threshold
    return Spike(leak=1 - 1 / tau, threshold=_at_least(threshold), norm=None)


def _expect_hard_reset(module: Any) -> None:
    _expect(
        module.v_reset == 0,
        "reset by subtraction (v_reset=None); only a hard reset can be deployed: v_reset=0.0"
        if module.v_reset is None
        else f"resets to {module.v_reset}; only v_reset=0.0 is known",
    )


def _at_least(threshold: float) -> float:
    """v >= threshold is v > the next smaller number."""
    return float(np.nextafter(float(threshold), -inf))


def _numbers(values: Any) -> Array:
    numbers: Array = np.asarray(getattr(values, "detach", lambda: values)(), np.float64).ravel()
    return numbers


def _expect(holds: Any, found: str) -> None:
    if not holds:
        raise FrontendError(f"{found}.")
