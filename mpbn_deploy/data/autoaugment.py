"""AutoAugment for CIFAR-10 (Cubuk et al., CVPR 2019): one of 25 pairs of image operations.

The pairs, ranges and fill color are those that the paper's code uses. Five numbers in 0..1 determine what
happens to a picture: which pair; for each change of the pair, whether it is made, and its sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..base import Array

if TYPE_CHECKING:
    from PIL.Image import Image

POLICY_DRAWS = 5
GRAY = (128, 128, 128)  # fills what a picture does not cover after a shift
LEVELS = 9  # a level from 0 to 9 is a fraction of the largest magnitude

Change = tuple[float, str, int]  # probability, name, level

POLICY: tuple[tuple[Change, Change], ...] = (
    ((0.1, "invert", 7), (0.2, "contrast", 6)),
    ((0.7, "rotate", 2), (0.3, "translate-x", 9)),
    ((0.8, "sharpness", 1), (0.9, "sharpness", 3)),
    ((0.5, "shear-y", 8), (0.7, "translate-y", 9)),
    ((0.5, "autocontrast", 8), (0.9, "equalize", 2)),
    ((0.2, "shear-y", 7), (0.3, "posterize", 7)),
    ((0.4, "color", 3), (0.6, "brightness", 7)),
    ((0.3, "sharpness", 9), (0.7, "brightness", 9)),
    ((0.6, "equalize", 5), (0.5, "equalize", 1)),
    ((0.6, "contrast", 7), (0.6, "sharpness", 5)),
    ((0.7, "color", 7), (0.5, "translate-x", 8)),
    ((0.3, "equalize", 7), (0.4, "autocontrast", 8)),
    ((0.4, "translate-y", 3), (0.2, "sharpness", 6)),
    ((0.9, "brightness", 6), (0.2, "color", 8)),
    ((0.5, "solarize", 2), (0.0, "invert", 3)),
    ((0.2, "equalize", 0), (0.6, "autocontrast", 0)),
    ((0.2, "equalize", 8), (0.8, "equalize", 4)),
    ((0.9, "color", 9), (0.6, "equalize", 6)),
    ((0.8, "autocontrast", 4), (0.2, "solarize", 8)),
    ((0.1, "brightness", 3), (0.7, "color", 0)),
    ((0.4, "solarize", 5), (0.9, "autocontrast", 3)),
    ((0.9, "translate-y", 9), (0.7, "translate-y", 9)),
    ((0.9, "autocontrast", 2), (0.8, "solarize", 3)),
    ((0.8, "equalize", 8), (0.1, "invert", 3)),
    ((0.7, "translate-y", 9), (0.9, "autocontrast", 1)),
)


def autoaugmented(picture: Array, draws: Array) -> Array:
    """Change a picture of bytes, [3, height, width], by POLICY_DRAWS numbers in 0..1."""
    from PIL import Image  # slow to import, and few trainings need it

    pair = POLICY[min(int(draws[0] * len(POLICY)), len(POLICY) - 1)]
    image = Image.fromarray(np.ascontiguousarray(picture.transpose(1, 2, 0)))
    for (probability, name, level), (drawn, side) in zip(pair, draws[1:].reshape(2, 2), strict=True):
        if drawn < probability:
            image = CHANGES[name](image, level / LEVELS, -1 if side < 0.5 else 1)
    return np.asarray(image).transpose(2, 0, 1)


def _shear_y(image: Image, level: float, sign: int) -> Image:
    return _affine(image, (1, 0, 0, 0.3 * level * sign, 1, 0), smooth=True)


def _translate_x(image: Image, level: float, sign: int) -> Image:
    return _affine(image, (1, 0, 150 / 331 * level * sign * image.width, 0, 1, 0))


def _translate_y(image: Image, level: float, sign: int) -> Image:
    return _affine(image, (1, 0, 0, 0, 1, 150 / 331 * level * sign * image.height))


def _affine(image: Image, matrix: tuple[float, ...], *, smooth: bool = False) -> Image:
    from PIL import Image

    resampling = Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST
    return image.transform(image.size, Image.Transform.AFFINE, matrix, resampling, fillcolor=GRAY)


def _rotate(image: Image, level: float, sign: int) -> Image:
    return image.rotate(30 * level, fillcolor=GRAY)  # the paper's code rotates in one direction only


def _posterize(image: Image, level: float, sign: int) -> Image:
    from PIL import ImageOps

    return ImageOps.posterize(image, round(8 - 4 * level))


def _solarize(image: Image, level: float, sign: int) -> Image:
    from PIL import ImageOps

    return ImageOps.solarize(image, int(np.ceil(256 * (1 - level))))


def _plain(name: str) -> Callable[[Image, float, int], Image]:
    """Return a change that has no level."""

    def change(image: Image, level: float, sign: int) -> Image:
        from PIL import ImageOps

        changed: Image = getattr(ImageOps, name)(image)
        return changed

    return change


def _enhance(name: str) -> Callable[[Image, float, int], Image]:
    """Return a change that strengthens or weakens a property by up to 90 percent."""

    def change(image: Image, level: float, sign: int) -> Image:
        from PIL import ImageEnhance

        changed: Image = getattr(ImageEnhance, name)(image).enhance(1 + 0.9 * level * sign)
        return changed

    return change


CHANGES: dict[str, Callable[[Image, float, int], Image]] = {
    "shear-y": _shear_y,
    "translate-x": _translate_x,
    "translate-y": _translate_y,
    "rotate": _rotate,
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": _plain("autocontrast"),
    "equalize": _plain("equalize"),
    "invert": _plain("invert"),
    "color": _enhance("Color"),
    "contrast": _enhance("Contrast"),
    "sharpness": _enhance("Sharpness"),
    "brightness": _enhance("Brightness"),
}
