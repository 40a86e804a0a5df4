"""Convolutions in forms that torch computes correctly, whatever their geometry.

oneDNN, which torch calls, leaves outputs unwritten or ends the process for some geometries in which a side
has one pixel: it mishandles strides and dilations that have no effect there. So strides and dilations are
passed on only where they have one. Along each side of an image, a convolution is one of these:

    one output     reads only the pixels that its taps hit, and becomes a product of as many taps as pixels
    one tap        reads only the pixels that it hits, one for each output
    others         keep their form; a single pixel is first padded with zeros
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import Tensor
from torch.nn import functional

from ..base import record
from ..ir import Conv2d, Pair


@record
class Side:
    """One side of an image: which pixels are read, which taps of the kernel are kept, and how they meet."""

    pads: Pair = (0, 0)  # zeros before and after the source
    read: range  # pixels of the padded source
    taps: range
    stride: int = 1
    padding: int = 0
    dilation: int = 1


@record
class PlainForm:
    """A convolution as torch is asked for it: that of `read(values)` with `kernel(weight)`."""

    rows: Side
    columns: Side

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int]]:
        """Stride, padding and dilation."""
        rows, columns = self.rows, self.columns
        return (
            [rows.stride, columns.stride],
            [rows.padding, columns.padding],
            [rows.dilation, columns.dilation],
        )

    def read(self, values: Tensor) -> Tensor:
        pads = (*self.columns.pads, *self.rows.pads)
        if any(pads):
            values = functional.pad(values, pads)
        return values[:, :, _slice(self.rows.read), _slice(self.columns.read)]

    def kernel(self, weight: Any) -> Any:
        """Return the taps that are kept, of a tensor or an array."""
        return weight[:, :, _slice(self.rows.taps), _slice(self.columns.taps)]


def _slice(chosen: range) -> slice:
    return slice(chosen.start, chosen.stop, chosen.step)


@lru_cache(maxsize=4096)
def plain_form(source: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> PlainForm:
    """Return the plain form of a convolution of images of `source` pixels."""
    rows, columns = map(_side, source, kernel, stride, padding, dilation)
    return PlainForm(rows=rows, columns=columns)


def _side(source: int, kernel: int, stride: int, padding: int, dilation: int) -> Side:
    """Output o reads pixel o * stride + t * dilation - padding with tap t."""
    last = (source + 2 * padding - dilation * (kernel - 1) - 1) // stride  # output
    kept = [t for t in range(kernel) if padding - last * stride <= t * dilation < padding + source] or [0]
    taps, first = range(kept[0], kept[-1] + 1), kept[0] * dilation - padding
    if last == 0:
        return _reading(source, range(first, first + len(kept) * dilation, dilation), taps)
    if len(kept) == 1:
        return _reading(source, range(first, first + (last + 1) * stride, stride), taps)
    pads = padding if source == 1 else 0
    return Side(
        pads=(pads, pads),
        read=range(source + 2 * pads),
        taps=range(kernel),
        stride=stride,
        padding=padding - pads,
        dilation=dilation,
    )


def _reading(source: int, pixels: range, taps: range) -> Side:
    """Read some pixels, and zeros outside the source."""
    before, after = max(0, -pixels[0]), max(0, pixels[-1] + 1 - source)
    read = range(pixels[0] + before, pixels[-1] + before + 1, pixels.step)
    return Side(pads=(before, after), read=read, taps=taps)


def convolve(values: Tensor, weight: Tensor, bias: Tensor | None, synapse: Conv2d) -> Tensor:
    """Return the convolution of a synapse whose weight is given, plus a bias per channel."""
    form = plain_form_of(synapse, (values.shape[2], values.shape[3]))
    stride, padding, dilation = form.geometry
    read, kernel = form.read(values), form.kernel(weight)
    return functional.conv2d(read, kernel, bias, stride, padding, dilation, synapse.groups)


def plain_form_of(synapse: Conv2d, source: Pair) -> PlainForm:
    height, width = synapse.weight.shape[2:]
    return plain_form(source, (height, width), synapse.stride, synapse.padding, synapse.dilation)
