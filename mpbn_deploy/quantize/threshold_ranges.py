"""The threshold limits of a target, and the thresholds and biases with which a population keeps its spikes.

The equations are in `thresholds`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np

from ..base import Array, OptionError, record
from ..formats.options import Thresholds
from ..hardware import HardwareProfile
from ..ir import FloatFiringNeuron, FloatPopulation, FoldedNetwork, Population, compact, per_channel
from .scales import NumberFormats
from .voltage_samples import VoltageSamples, threshold_range

ROUND_UP = 0.5 - 1e-9  # added before rounding to the nearest integer, it rounds up
FIRING_MARGIN = 1.5  # integer units by which a neuron that always fires exceeds its threshold


@record
class ThresholdLimits:
    """The limits that the target and the user set on thresholds."""

    shared: bool
    lowest: int
    highest: int
    per_core: int | None

    @classmethod
    def of(cls, profile: HardwareProfile, thresholds: Thresholds, formats: NumberFormats) -> ThresholdLimits:
        if thresholds not in get_args(Thresholds):
            raise OptionError(f"thresholds {thresholds!r}; allowed are {', '.join(get_args(Thresholds))}.")
        shared, per_core = thresholds == "shared", profile.limit("core.thresholds")
        few = None if shared or per_core is None else per_core.value
        few = 1 if thresholds == "core" else few
        lowest = formats.lowest_threshold if few is None and not shared else max(1, formats.lowest_threshold)
        return cls(shared=shared, lowest=lowest, highest=formats.threshold, per_core=few)

    @property
    def bind(self) -> bool:
        """Whether rounded thresholds could violate the limits."""
        return self.shared or self.per_core is not None or self.lowest > -self.highest

    @property
    def description(self) -> str:
        if self.shared:
            return "shared by the population"
        if self.per_core is not None:
            return f"at most {self.per_core} per core"
        return f"own, at least {self.lowest}" if self.bind else "own"


def is_memoryless(folded: FoldedNetwork, neuron: FloatFiringNeuron) -> bool:
    """Whether no voltage is kept from one time step to the next."""
    return not np.any(neuron.leak) or folded.timesteps == 1


@record
class ThresholdRanges:
    """Biases and threshold ranges of a population; every array is [channels, neurons].

    If the neurons of each channel are all alike, there is one neuron per channel.
    """

    bias: Array
    lowest: Array  # as in `threshold_range`
    highest: Array
    share: Array  # the bias that makes up for a threshold higher by one: see `thresholds`
    memoryless: bool

    @property
    def constant(self) -> Array:
        return self.lowest < self.highest

    @property
    def typical(self) -> Array:
        """The median threshold of each channel; NaN if all its neurons are constant."""
        values = np.where(self.constant, np.nan, self.lowest)
        some = ~self.constant.all(axis=1)
        typical = np.full(len(values), np.nan)
        typical[some] = np.nanmedian(values[some], axis=1)
        return typical

    def offset(self, scales: Array, thresholds: Array) -> Array:
        """Return the offsets of the integer biases, [channels, neurons]; see `thresholds`."""
        low, high = scales[:, None] * self.lowest, scales[:, None] * self.highest
        offset: Array = self.share * (thresholds - np.clip(thresholds, low, high))
        margin = np.where(self.constant & (offset > 0), FIRING_MARGIN, 0.0)
        offset += np.where(self.constant, margin, ROUND_UP) if self.memoryless else margin
        return offset

    def bias_limits(self, thresholds: Array, most: int) -> Array:
        """Return the largest scales for which |scale * bias + offset| <= most, given integer thresholds."""
        towards = np.where(self.constant, np.clip(0.0, self.lowest, self.highest), self.lowest)
        rest = self.bias - self.share * towards
        moved = self.share * thresholds
        with np.errstate(divide="ignore", over="ignore"):  # a tiny `rest` sets no limit
            above = np.where(rest > 0, (most - FIRING_MARGIN - 1 - moved) / rest, np.inf)
            below = np.where(rest < 0, (most - FIRING_MARGIN - 1 + moved) / -rest, np.inf)
        limits: Array = np.minimum(above, below).min(axis=1)
        return limits

    def at(self, channels: Array) -> ThresholdRanges:
        """Select some channels."""
        parts = {name: getattr(self, name)[channels] for name in ("bias", "lowest", "highest", "share")}
        return replace(self, **parts)


def threshold_ranges(
    folded: FoldedNetwork, population: Population[FloatFiringNeuron], samples: VoltageSamples
) -> ThresholdRanges:
    neuron, shape = population.neuron, population.shape
    lowest, highest = threshold_range(folded, population)
    growth = samples.growth.numpy()
    fitted = per_channel(growth.sum(axis=0) / (growth**2).sum(axis=0), shape)
    # A share of one is exact for a neuron that always fires, and on the safe side for one that never does.
    share = np.where(lowest < highest, 1.0, fitted)
    whole = [np.broadcast_to(values, shape) for values in (neuron.bias, lowest, highest, share)]
    if all(compact(values).size == shape[0] for values in whole):
        whole = [compact(values) for values in whole]
    bias, lowest, highest, share = (values.reshape(shape[0], -1) for values in whole)
    return ThresholdRanges(
        bias=bias,
        lowest=lowest,
        highest=highest,
        share=share,
        memoryless=is_memoryless(folded, neuron),
    )


def as_population(values: Array, population: FloatPopulation) -> Array:
    """Reshape [channels, neurons] to the shape of a population's parameters."""
    whole = values.shape[1] > 1 or len(population.shape) == 1
    return compact(values.reshape(population.shape)) if whole else per_channel(values, population.shape)
