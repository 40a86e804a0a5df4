"""The options of a LIF neuron by name, and their defaults, importable without torch."""

from __future__ import annotations

from typing import Any

MPBN_KINDS = ("channel", "element", "none")
MPBN_GAINS = ("free", "positive")
SURROGATE_NAMES = ("rectangle", "tanh", "wide")
RESETS = ("zero", "subtract")
RESET_GRADIENTS = ("whole", "detached")
# Where XyloLIF differs from LIF.
XYLO_DEFAULTS: dict[str, Any] = {
    "mpbn_gain": "positive",
    "reset": "subtract",
    "leak": 0.875,
    "current_leak": 0.5,
    "threshold": 1.0,
}
NEURON_DEFAULTS: dict[str, Any] = {
    "mpbn_gain": "free",
    "mpbn_epsilon": 1e-5,
    "surrogate": "rectangle",
    "reset": "zero",
    "reset_gradient": "whole",
    "leak": 0.25,
    "current_leak": 0.0,
    "threshold": 0.5,
}
