"""What is assumed of an untrained network unless the user says otherwise; importable without torch."""

from __future__ import annotations

INPUT_RANGE = (0, 255)  # pixels
CLASSES = 10
FIRING_RATE = 0.1  # share of neurons that fire in a time step
