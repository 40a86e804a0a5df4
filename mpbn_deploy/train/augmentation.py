"""The paper's augmentation: random crop, flip, AutoAugment and cutout of images, roll of event frames.

Each sample of each epoch gets its own row of DRAWS random numbers in 0..1, which alone determine its
augmentation: neither the batch nor the process that computes it matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..base import OptionError, did_you_mean
from ..data import POLICY_DRAWS, autoaugmented, center_crop

DRAWS = 5 + POLICY_DRAWS  # two for the crop, one for the flip, two for the cutout, and AutoAugment's
PADDING = 4  # zeros around an image before it is cropped to its original size
HOLE = 16  # side of the cutout in pixels, for an image of 32 x 32
ROLL = 5  # maximum shift of event frames in pixels


def augment(kind: str, samples: Tensor, draws: Tensor, *size: int) -> Tensor:
    """Augment samples [batch, ..., channels, *, *] to [batch, ..., channels, height, width]."""
    if kind not in KINDS:
        raise OptionError(f"no augmentation named {kind!r}. {did_you_mean(kind, KINDS)}")
    for change in KINDS[kind]:
        samples = change(samples, draws, *size)
    return samples


def _center(samples: Tensor, _draws: Tensor, *size: int) -> Tensor:
    """Crop the window in the middle."""
    return cast(Tensor, center_crop(samples, (1, *size)))


def _crop(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Crop a random window; images of the window's size are padded with zeros first."""
    if samples.shape[-2:] == (height, width):
        samples = pad(samples, [PADDING] * 4)
    top = _choose(draws[:, 0], samples.shape[-2] - height + 1)
    left = _choose(draws[:, 1], samples.shape[-1] - width + 1)
    return _gather(samples, top[:, None] + torch.arange(height), left[:, None] + torch.arange(width))


def _flip(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Mirror half of the samples horizontally."""
    turned = (draws[:, 2] < 0.5).view(-1, *[1] * (samples.dim() - 1))
    return torch.where(turned, samples.flip(-1), samples)


def _cutout(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Zero a square around a random pixel; the square may extend beyond the image."""
    rows = _inside(_choose(draws[:, 3], height), height, HOLE * height // 32)
    columns = _inside(_choose(draws[:, 4], width), width, HOLE * width // 32)
    hole = rows[:, :, None] & columns[:, None, :]
    return samples.masked_fill(hole.view(len(hole), *[1] * (samples.dim() - 3), height, width), 0)


def _autoaugment(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Apply AutoAugment to color pictures of bytes."""
    if samples.dtype != torch.uint8 or samples.dim() != 4 or samples.shape[1] != 3:
        raise OptionError(
            f"AutoAugment changes color pictures, bytes of shape (3, {height}, {width}); samples are "
            f"{samples.dtype} of shape {tuple(samples.shape[1:])}. Choose another --augmentation."
        )
    rows = zip(samples.numpy(), draws[:, -POLICY_DRAWS:].numpy(), strict=True)
    return torch.from_numpy(np.stack([autoaugmented(picture, chances) for picture, chances in rows]))


def _roll(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Shift all frames of a sample cyclically by the same offset of up to ROLL pixels."""
    down = _choose(draws[:, 0], 2 * ROLL + 1) - ROLL
    right = _choose(draws[:, 1], 2 * ROLL + 1) - ROLL
    rows = (torch.arange(height) - down[:, None]) % height
    columns = (torch.arange(width) - right[:, None]) % width
    return _gather(samples, rows, columns)


KINDS: dict[str, tuple[Callable[[Tensor, Tensor, int, int], Tensor], ...]] = {
    "none": (_center,),
    "flip": (_center, _flip),
    "crop-flip": (_crop, _flip),
    "crop-flip-cutout": (_crop, _flip, _cutout),
    "crop-flip-autoaugment-cutout": (_crop, _flip, _autoaugment, _cutout),
    "roll-flip": (_roll, _flip),
}


def _choose(draws: Tensor, count: int) -> Tensor:
    """Map draws in 0..1 to integers 0 .. count - 1, uniformly."""
    return (draws * count).long().clamp_(max=count - 1)


def _inside(center: Tensor, size: int, hole: int) -> Tensor:
    """Return a mask [batch, size] of the pixels in center - hole / 2 .. center + hole / 2 - 1."""
    distance = torch.arange(size) - center[:, None]
    return (distance >= -(hole // 2)) & (distance < hole - hole // 2)


def _gather(samples: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Select rows [batch, height] and columns [batch, width], different for each sample."""
    batch = torch.arange(len(samples))
    middle = samples.flatten(1, -3)
    chosen = middle[
        batch[:, None, None, None],
        torch.arange(middle.shape[1])[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
    return chosen.view(*samples.shape[:-2], rows.shape[1], columns.shape[1])
