"""Quantize: FoldedNetwork + profile -> Quantized, the integer network and its rounding errors.

thresholds       remove the weights of constant channels
scales           choose the grid of each population: a scale per channel, an exponent per connection
rounding         round to the nearest integers, and prove that no state can overflow
thresholds       fix thresholds within the limits of chip and user, where there are such limits
widths           with --weight-bits auto: choose the bits of each layer's weights
calibrate        with data: choose the rounding, biases and thresholds that flip the fewest spikes
rounding_errors  compare the integers with the real numbers
pooling          make poolings relays, where asked for
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import (
    Array,
    OptionError,
    QuantizeError,
    changed,
    layer_name,
    record,
)
from ..execute.emulator import peaks
from ..formats.options import AUTO, OverflowChoice, PoolingChoice, Quantizing
from ..hardware import HardwareProfile
from ..hardware.place import Tiling, place
from ..ir import (
    FoldedNetwork,
    IntNetwork,
    firing,
    largest_per_channel,
    real_network,
    relay_names,
    varies,
)
from .calibrate import calibrate
from .pooling import check_calibration, express_pooling
from .rounding import round_without_overflow
from .rounding_errors import Quantized, with_errors
from .scales import Grid, NumberFormats, choose_grid, reachable
from .thresholds import core_limits_hold, cores_of_channels, fix_thresholds, one_core, silence_constants
from .voltage_samples import ThresholdLimits, sample_voltages
from .widths import Widths, check_widths, choose_widths
from .xylo import check_neurons, quantize_xylo, shifts_decays

MAX_MEASUREMENTS = 4  # of rounded networks
SAFE = 0.75  # how much of the range of a state the calibration inputs may use after rounding
MARGIN = 2.0  # with --overflow measured: range of a state / largest on the calibration inputs


def quantize(
    folded: FoldedNetwork,
    profile: HardwareProfile,
    calibration: Array | None = None,
    options: Quantizing | None = None,
    *,
    tiling: Tiling = "compiler",
    **changes: Any,
) -> Quantized:
    """Choose an integer for every weight, bias and threshold, in the formats of the profile.

    Keyword arguments are fields of `Quantizing`: quantize(folded, profile, weight_bits=4). With `calibration`
    inputs, integers and scales are chosen to flip as few spikes of the float network as possible on them;
    otherwise, numbers are rounded to the nearest integers. With `overflow="proved"`, no
    input can make a state overflow. With `overflow="measured"`, scales are larger, and leave only a margin
    above the states reached on the calibration inputs. `pooling` says whether pooling is part of the synapses
    after it ("composed"), a population of relays ("relay"), or what takes fewer cores in this `tiling`
    ("auto").
    """
    asked = changed(options, Quantizing, changes)
    check_neurons(folded, profile)
    if shifts_decays(profile):
        if isinstance(asked.weight_bits, str):
            raise OptionError(f"--weight-bits auto: all weights of {profile.name} have one width; drop it.")
        inputs = None if calibration is None else check_calibration(folded, calibration)
        return quantize_xylo(folded, profile, inputs, asked.weight_bits)
    formats = NumberFormats.of(profile, asked.weight_bits)
    check_overflow(asked.overflow, calibrated=calibration is not None)
    check_widths(asked, calibrated=calibration is not None)
    limits = ThresholdLimits.of(profile, asked.thresholds, formats)
    if limits.bind:
        check_constant(folded, limits)
    inputs = None if calibration is None else check_calibration(folded, calibration)
    folded = silence_constants(folded)
    if asked.overflow == "measured" and inputs is not None:
        formats = _measured(folded, inputs, formats)
    job = _Job(
        folded=folded,
        profile=profile,
        inputs=inputs,
        formats=formats,
        limits=limits,
        pooling=asked.pooling,
        tiling=tiling,
    )
    widths = None
    if asked.weight_bits == AUTO and inputs is not None:
        widths = job.widths(asked)
        job = replace(job, formats=replace(formats, narrow=widths.chosen.bits))
    network, grids = _rounded(folded, job.formats)
    network = job.within_limits(network, grids) if limits.bind else job.calibrated(network, grids)
    quantized = with_errors(network, folded, limits, job.formats)
    return replace(quantized, network=job.pooled(network), widths=widths)


def trained_integers(
    network: IntNetwork,
    folded: FoldedNetwork,
    profile: HardwareProfile,
    *,
    pooling: PoolingChoice = "composed",
    tiling: Tiling = "compiler",
) -> Quantized:
    """Return the integers of quantization-aware training unchanged, with their rounding errors.

    Relays can take the place of a pooling only where training has left the weights of its windows equal.
    """
    formats = NumberFormats.of(profile, None)
    limits = ThresholdLimits.of(profile, "own", formats)
    quantized = with_errors(network, silence_constants(folded), limits, formats)
    errors = tuple(replace(each, input_offset=None) for each in quantized.errors)  # no option helps here
    return Quantized(network=express_pooling(network, profile, pooling, tiling), errors=errors)


def check_constant(folded: FoldedNetwork, limits: ThresholdLimits) -> None:
    """Raise QuantizeError if thresholds, which must be few, depend on the time step."""
    if names := [population.name for population in folded.layers if varies(population.neuron)]:
        raise QuantizeError(
            f"{layer_name(names[0])}: thresholds that depend on the time step, in {len(names)} populations; "
            f"allowed are {limits.description}, the same in all steps. Export with --static-steps, which "
            "takes their means, or choose a target such as c or loihi2."
        )


def check_overflow(overflow: OverflowChoice, *, calibrated: bool) -> None:
    """Raise OptionError if this bound on states needs calibration data that was not given."""
    if overflow == "measured" and not calibrated:
        raise OptionError("--overflow measured needs calibration data: add --calibration NAME.")


@record
class _Job:
    """A folded network, and what it is quantized for; the methods change a network of rounded integers."""

    folded: FoldedNetwork
    profile: HardwareProfile
    inputs: Array | None
    formats: NumberFormats
    limits: ThresholdLimits
    pooling: PoolingChoice
    tiling: Tiling

    def pooled(self, network: IntNetwork) -> IntNetwork:
        return express_pooling(network, self.profile, self.pooling, self.tiling)

    def widths(self, asked: Quantizing) -> Widths:
        """Choose the bits of each layer's weights."""
        assert self.inputs is not None, "`check_widths` asks for them"

        def rounded(bits: Mapping[str, int]) -> IntNetwork:
            return _rounded(self.folded, replace(self.formats, narrow=bits))[0]

        def cores(network: IntNetwork) -> int | None:
            return place(self.pooled(network), self.profile, tiling=self.tiling).cores

        return choose_widths(self.folded, self.inputs, self.formats.weight_bits, rounded, cores, asked)

    def calibrated(self, network: IntNetwork, grids: Mapping[str, Grid]) -> IntNetwork:
        if self.inputs is None:
            return network
        tied = bool(relay_names(self.pooled(network)))  # untied weights may be rounded better
        return calibrate(self.folded, network, grids, self.inputs, self.formats, tied=tied)

    def within_limits(self, network: IntNetwork, grids: Mapping[str, Grid]) -> IntNetwork:
        """Fix thresholds within the limits; the placement of `network` tells which channels share a core."""
        samples = sample_voltages(self.folded, self.inputs)
        # New weights can move channels to other cores. As a last resort, whole populations share thresholds,
        # which holds for every placement.
        for whole in (False, False, True):
            together = whole or self.limits.shared
            cores = one_core(network) if together else self._cores(network)
            network, fixed = fix_thresholds(self.folded, grids, samples, cores, self.limits, self.formats)
            network = self.calibrated(network, fixed)
            if core_limits_hold(self.pooled(network), self.profile, self.limits, self.tiling):
                break
        return network

    def _cores(self, network: IntNetwork) -> dict[str, Array]:
        return cores_of_channels(self.pooled(network), self.profile, self.tiling)


def _rounded(folded: FoldedNetwork, formats: NumberFormats) -> tuple[IntNetwork, dict[str, Grid]]:
    grids = {p.name: choose_grid(folded, p, formats) for p in folded.layers}
    return round_without_overflow(folded, grids, formats)


def _measured(folded: FoldedNetwork, inputs: Array, formats: NumberFormats) -> NumberFormats:
    """Return the formats with the allowances that the inputs show.

    Coarsely rounded weights lead to larger states than the real ones, so rounded networks are measured too.
    """
    reached = peaks(folded, inputs)
    for _ in range(MAX_MEASUREMENTS):
        formats = replace(formats, allowances=measured_allowances(folded, reached))
        now = peaks(real_network(_rounded(folded, formats)[0]), inputs)
        if all((now[name] <= SAFE * MARGIN * reached[name]).all() for name in now):
            break
        reached = {name: np.maximum(reached[name], now[name]) for name in now}
    return formats


def measured_allowances(folded: FoldedNetwork, reached: Mapping[str, Array]) -> dict[str, Array]:
    """Return, per channel, the factor by which proved intervals may overestimate reachable states.

    share     = largest state that was reached / interval
    allowance = max(1, 1 / (MARGIN * max(share, median share of the population)))

    Readouts have no allowance. The median is for channels that happen to be quiet on the calibration inputs.
    """
    allowances = {}
    for population in firing(folded):
        current, voltage = reachable(folded, population)
        widest = np.max([largest_per_channel(edge) for edge in (*current, *voltage)], axis=0)
        share = np.divide(reached[population.name], widest, out=np.ones_like(widest), where=widest > 0)
        likely = MARGIN * np.maximum(share, np.median(share))
        allowances[population.name] = np.maximum(1 / np.where(likely > 0, likely, 1.0), 1.0)
    return allowances
