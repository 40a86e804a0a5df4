"""Network architectures: each a function (input_shape, classes, mpbn) -> body of a SpikingNetwork."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from .small import digits_cnn, digits_mlp

Architecture = Callable[..., nn.Module]

ARCHITECTURES: dict[str, Architecture] = {
    "digits-cnn": digits_cnn,
    "digits-mlp": digits_mlp,
}
