"""FoldedNetwork + profile -> Quantized: the integer network, and what its integers cost

thresholds  constant channels lose their weights; thresholds that the chip's limits, or the user, fix
scales      the grid of each population's integers: a scale per channel, an exponent per connection
rounding    real numbers to the nearest integers; the proof that no state can overflow
calibrate   with data: rounding, biases and thresholds that flip the fewest spikes
cost        the integers compared with the real numbers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np

from ..base import Array, OptionError, did_you_mean
from ..execute.emulator import peaks
from ..formats.options import Overflow
from ..hardware import HardwareProfile
from ..ir import FoldedNetwork, IntNetwork, firing, largest_per_channel
from .calibrate import calibrate
from .cost import Quantized, with_costs
from .evidence import gather_evidence
from .rounding import round_without_overflow
from .samples import check_calibration
from .scales import Formats, Grid, choose_grid, reachable
from .thresholds import (
    ThresholdLimits,
    cores_of_channels,
    few_enough,
    hold_thresholds,
    one_core,
    silence_constants,
)

MARGIN = 1.25  # of measured states, above what calibration inputs reach


def quantize(
    folded: FoldedNetwork,
    profile: HardwareProfile,
    calibration: Array | None = None,
    *,
    weight_bits: int | None = None,
    thresholds: str = "own",
    overflow: str = "proved",
) -> Quantized:
    """Choose integers for every weight, bias and threshold, in the formats of the profile.

    With `calibration` inputs, weights are rounded, biases and thresholds shifted, and channels scaled so
    that the fewest spikes differ from those of the float network on them; without, nothing but the
    network itself is needed. That no state overflows is proved for every input, or, with
    `overflow="measured"`, only made likely: scales leave a margin above what calibration inputs reach.
    """
    formats = Formats.of(profile, weight_bits)
    _check_overflow(overflow, calibration)
    limits = ThresholdLimits.of(profile, thresholds, formats)
    inputs = None if calibration is None else check_calibration(folded, calibration)
    folded = silence_constants(folded)
    if overflow == "measured" and inputs is not None:
        formats = replace(formats, allowances=measured_allowances(folded, inputs))
    grids = {p.name: choose_grid(folded, p, formats) for p in folded.layers}
    network, grids = round_without_overflow(folded, grids, formats)
    if limits.bind:
        network = _under_limits(folded, network, grids, inputs, profile, limits, formats)
    else:
        network = _calibrated(folded, network, grids, inputs, formats)
    return with_costs(network, folded, limits, formats)


def trained_integers(network: IntNetwork, folded: FoldedNetwork, profile: HardwareProfile) -> Quantized:
    """Return integers that training chose as they are, with what they cost in the formats of a profile."""
    formats = Formats.of(profile, None)
    limits = ThresholdLimits.of(profile, "own", formats)
    return with_costs(network, silence_constants(folded), limits, formats)


def _check_overflow(overflow: str, calibration: Array | None) -> None:
    if overflow not in get_args(Overflow):
        raise OptionError(f"overflow {overflow!r}. {did_you_mean(overflow, get_args(Overflow))}")
    if overflow == "measured" and calibration is None:
        raise OptionError("overflow measured needs calibration inputs (--calibration NAME).")


def _under_limits(
    folded: FoldedNetwork,
    network: IntNetwork,
    grids: Mapping[str, Grid],
    inputs: Array | None,
    profile: HardwareProfile,
    limits: ThresholdLimits,
    formats: Formats,
) -> IntNetwork:
    """Fix thresholds as the limits ask; the network given shows on which cores its channels would sit."""
    evidence = gather_evidence(folded, inputs)
    # Other weights may sit on other cores; a population whose channels all share a few is safe anywhere.
    for whole in (False, False, True):
        cores = one_core(network) if whole or limits.shared else cores_of_channels(network, profile)
        network, held = hold_thresholds(folded, grids, evidence, cores, limits, formats)
        network = _calibrated(folded, network, held, inputs, formats)
        if few_enough(network, profile, limits):
            break
    return network


def _calibrated(
    folded: FoldedNetwork,
    network: IntNetwork,
    grids: Mapping[str, Grid],
    inputs: Array | None,
    formats: Formats,
) -> IntNetwork:
    return network if inputs is None else calibrate(folded, network, grids, inputs, formats)


def measured_allowances(folded: FoldedNetwork, inputs: Array) -> dict[str, Array]:
    """Return, per channel, the factor by which proved intervals exceed the states reached on inputs.

    allowance = interval / (1.25 * largest state on the inputs), and at least one; readouts stay proved
    """
    reached = peaks(folded, inputs)
    allowances = {}
    for population in firing(folded):
        current, voltage = reachable(folded, population)
        widest = np.max([largest_per_channel(edge) for edge in (*current, *voltage)], axis=0)
        likely = MARGIN * reached[population.name]
        room = np.divide(widest, likely, out=np.ones_like(widest), where=likely > 0)
        allowances[population.name] = np.maximum(room, 1.0)
    return allowances
