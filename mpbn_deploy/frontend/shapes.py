"""The shapes of what operations give."""

from __future__ import annotations

import numpy as np
from typing_extensions import assert_never

from ..base import FrontendError
from ..ir import (
    AdaptivePool,
    Add,
    AveragePool,
    BatchNorm,
    Convolution,
    CountingSpike,
    Delay,
    Flatten,
    Linear,
    MaxPool,
    Operation,
    Shape,
    Spike,
    output_shape,
    pooled_shape,
)


def shape_after(where: str, operation: Operation, sources: list[Shape]) -> Shape:
    """Return the output shape of an operation; raise FrontendError if it cannot take its inputs."""
    source = sources[0]
    match operation:
        case Linear(weight=weight):
            _expect(where, source, len(source) == 1 and source[0] == weight.shape[1], f"({weight.shape[1]},)")
            return (weight.shape[0],)
        case Convolution(synapse=synapse):
            channels = synapse.groups * synapse.weight.shape[1]
            _expect(where, source, len(source) == 3 and source[0] == channels, f"({channels}, height, width)")
            shape = output_shape(synapse, source)
            _expect(where, source, min(shape) > 0, "an input at least as large as the kernel")
            return shape
        case BatchNorm():
            count = len(operation.at(0).gain)
            _expect(where, source, source[0] == count, f"{count} channels")
            return source
        case Flatten():
            return (int(np.prod(source)),)
        case AveragePool() | AdaptivePool() | MaxPool():
            _expect(where, source, len(source) == 3, "(channels, height, width)")
            shape = pooled_shape(operation, source)
            _expect(where, source, min(shape) > 0, "an input at least as large as the window")
            return shape
        case Add():
            _expect(where, sources[1], sources[1] == source, f"{source}, the shape of its other input")
            return source
        case Delay():
            return source
        case Spike(norm=norm, recurrent=recurrent) | CountingSpike(norm=norm, recurrent=recurrent):
            size = 0 if norm is None else len(norm.at(0).gain)
            _expect(where, source, size in (0, source[0], np.prod(source)), f"{size} channels or neurons")
            if (
                recurrent is not None
                and (again := shape_after(f"{where}, recurrent", recurrent, sources)) != source
            ):
                raise FrontendError(f"{where}: its recurrent synapse gives shape {again}, not {source}.")
            return source
        case _:
            assert_never(operation)


def _expect(where: str, found: Shape, holds: bool, wanted: str) -> None:
    if not holds:
        raise FrontendError(f"{where}: its input has shape {found}; it takes {wanted}.")
