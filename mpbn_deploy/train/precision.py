"""Choose the arithmetic of convolutions in training: single precision, or bfloat16 where it is faster.

In bfloat16, spikes (0 and 1) are exact and weights have eight bits; membranes, norms' statistics, the loss
and the stored weights stay in single precision. Evaluation and export always use single precision.
"""

from __future__ import annotations

import os
import time

import torch
from torch import nn

CLEAR_GAIN = 1.2  # bfloat16 must be faster by this factor to be chosen
ROUNDS = 3


def fastest_precision(device: torch.device) -> str:
    """Return the faster of bfloat16 and float32, by a trial, because processors differ widely.

    Several processes must agree, and GPUs run asynchronously: both use float32.
    """
    if device.type != "cpu" or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return "float32"
    seconds = {name: _convolution_seconds(name, device) for name in ("float32", "bfloat16")}
    return "bfloat16" if seconds["float32"] > CLEAR_GAIN * seconds["bfloat16"] else "float32"


def _convolution_seconds(precision: str, device: torch.device) -> float:
    """Return the shortest time of one convolution, forward and backward."""
    convolution = nn.Conv2d(64, 64, 3, padding=1, bias=False).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = torch.ones(32, 64, 16, 16, device=device, requires_grad=True)
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    shortest = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            result = convolution(inputs).float().sum()
        result.backward()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest
