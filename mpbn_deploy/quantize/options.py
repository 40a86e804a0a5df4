"""The choices that quantization offers, by name."""

from __future__ import annotations

from typing import Literal, get_args

CALIBRATION_SAMPLES = 256  # taken from a data set

Thresholds = Literal["own", "shared"]
Overflow = Literal["proved", "measured"]

THRESHOLD_CHOICES: tuple[Thresholds, ...] = get_args(Thresholds)
OVERFLOW_CHOICES: tuple[Overflow, ...] = get_args(Overflow)
