"""The options of a LIF neuron by name, importable without torch."""

from __future__ import annotations

MPBN_KINDS = ("channel", "element", "none")
MPBN_GAINS = ("free", "positive")
SURROGATE_NAMES = ("rectangle", "tanh", "wide")
RESETS = ("zero", "subtract")
