"""Convolutions in forms that torch computes correctly, whatever their geometry.

oneDNN, which torch calls, leaves outputs unwritten or ends the process for some odd geometries: a side of
one pixel with a stride, or kernels that reach beyond the image. So torch is asked for ordinary ones only.
Along each side of an image, a convolution is ordinary if it has several outputs and several taps, its windows
leave no gaps, and its kernel is neither larger than the image nor beside it. On any other side, the pixels
that the taps of each output read are laid side by side: windows that do not overlap, without padding and
dilation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..base import record
from ..ir import Conv2d, Pair


@record
class Side:
    """How a convolution reads one side of an image."""

    stride: int = 1
    padding: int = 0
    dilation: int = 1
    pixels: Tensor | None = None  # what is read, if not the side as it is: 0 is a zero, n + 1 is pixel n
    taps: list[int] | None = None  # of the kernel that are kept, if not all


@record
class OrdinaryForm:
    """A convolution as torch is asked for it: that of `read(values)` with `kernel(weight)`."""

    rows: Side
    columns: Side

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int]]:
        """Stride, padding and dilation."""
        sides = (self.rows, self.columns)
        return [s.stride for s in sides], [s.padding for s in sides], [s.dilation for s in sides]

    def read(self, values: Tensor) -> Tensor:
        if self.rows.pixels is not None:
            values = functional.pad(values, (0, 0, 1, 0)).index_select(2, self.rows.pixels)
        if self.columns.pixels is not None:
            values = functional.pad(values, (1, 0)).index_select(3, self.columns.pixels)
        return values

    def kernel(self, weight: Any) -> Any:
        """Return the taps that are kept, of a tensor or an array."""
        weight = weight if self.rows.taps is None else weight[:, :, self.rows.taps]
        return weight if self.columns.taps is None else weight[:, :, :, self.columns.taps]


def ordinary_form(synapse: Conv2d, source: Pair) -> OrdinaryForm:
    """Return the ordinary form of a convolution of images of `source` pixels."""
    geometry = (synapse.weight.shape[2:], synapse.stride, synapse.padding, synapse.dilation)
    rows, columns = (_side(*side) for side in zip(source, *geometry, strict=True))
    return OrdinaryForm(rows=rows, columns=columns)


@lru_cache(maxsize=4096)
def _side(source: int, kernel: int, stride: int, padding: int, dilation: int) -> Side:
    """Output o reads pixel o * stride + t * dilation - padding with tap t."""
    reach = dilation * (kernel - 1) + 1
    outputs = (source + 2 * padding - reach) // stride + 1
    if outputs > 1 and kernel > 1 and max(padding + 1, stride) <= reach <= source:
        return Side(stride=stride, padding=padding, dilation=dilation)
    read = [[o * stride + t * dilation - padding for o in range(outputs)] for t in range(kernel)]
    taps = [t for t, pixels in enumerate(read) if any(0 <= pixel < source for pixel in pixels)] or [0]
    pixels = [read[t][o] + 1 if 0 <= read[t][o] < source else 0 for o in range(outputs) for t in taps]
    return Side(
        stride=len(taps) if outputs > 1 else 1,
        pixels=None if pixels == [*range(1, source + 1)] else torch.tensor(pixels),
        taps=None if len(taps) == kernel else taps,
    )


def convolve(values: Tensor, weight: Tensor, synapse: Conv2d) -> Tensor:
    """Return the convolution of a synapse whose weight is given."""
    form = ordinary_form(synapse, (values.shape[2], values.shape[3]))
    read, kernel = form.read(values), form.kernel(weight)
    return functional.conv2d(read, kernel, None, *form.geometry, synapse.groups)
