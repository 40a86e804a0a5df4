"""The choices that a neuron offers, by name."""

from __future__ import annotations

MPBN_KINDS = ("channel", "element", "none")
MPBN_GAINS = ("free", "positive")
SURROGATE_NAMES = ("rectangle", "tanh")
