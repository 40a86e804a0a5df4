"""The options of a LIF neuron, importable without torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, get_args

from ..base import Options, option

MpbnKind = Literal["channel", "element", "none"]
NormKind = Literal["batch", "tdbn", "tebn", "bntt", "tab", "psp"]
MPBN_EPSILON, ELEMENT_EPSILON = 1e-5, 0.1  # of channels; of elements, see `mpbn_epsilon` in train/settings.py


class NeuronOptions(Options):
    """The options of LIF neurons beside the kind of their MPBN."""

    mpbn_gain: Literal["free", "positive"] = option(
        "free",
        "positive: keep all gains above zero, so that thresholds can be folded for every chip; free: as in "
        "the paper",
    )
    mpbn_epsilon: float | None = option(
        None,
        "number added to the variance of MPBN; larger values keep gradients of neurons with almost constant "
        "membranes small",
        otherwise=f"{MPBN_EPSILON}; with --mpbn element {ELEMENT_EPSILON}",
    )
    surrogate: Literal["rectangle", "tanh", "wide"] = option(
        "rectangle",
        "surrogate gradient of a spike: rectangle, as printed in the paper; tanh, as in the paper's code; or "
        "wide, a rectangle of twice the width",
    )
    reset: Literal["zero", "subtract"] = option(
        "zero",
        "what a spike does to the membrane: set it to zero, as in the paper, or subtract the threshold",
    )
    reset_gradient: Literal["whole", "detached"] = option(
        "whole",
        "whether gradients pass through the reset; detached, they do not, and cannot grow there from step to "
        "step",
    )
    leak: float = option(
        0.25, "what a membrane keeps from one time step to the next, 0 to 1", metavar="FACTOR"
    )
    current_leak: float = option(
        0.0,
        "what a synaptic current keeps from one time step to the next, 0 to 1; 0: no such current",
        metavar="FACTOR",
    )
    threshold: float = option(0.5, "membrane above which a neuron fires")


NEURON_DEFAULTS: dict[str, Any] = {**asdict(NeuronOptions()), "mpbn_epsilon": MPBN_EPSILON}
# Where XyloLIF differs from LIF.
XYLO_DEFAULTS: dict[str, Any] = {
    "mpbn_gain": "positive",
    "reset": "subtract",
    "leak": 0.875,
    "current_leak": 0.5,
    "threshold": 1.0,
}
MPBN_KINDS: tuple[str, ...] = get_args(MpbnKind)
NORMS: tuple[str, ...] = get_args(NormKind)
MPBN_GAINS = NeuronOptions.declared["mpbn_gain"].choices
SURROGATE_NAMES = NeuronOptions.declared["surrogate"].choices
RESETS = NeuronOptions.declared["reset"].choices
RESET_GRADIENTS = NeuronOptions.declared["reset_gradient"].choices
