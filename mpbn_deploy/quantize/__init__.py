"""Quantize a folded network to the number formats of a chip.

FoldedNetwork + HardwareProfile (+ calibration inputs) -> Quantized: IntNetwork and its rounding errors

    stage            `quantize`: the steps in order
    pooling          which poolings become relays; calibration inputs from a data set
    scales           the grid of each population's integers: scales and weight exponents
    rounding         rounds to the grid and proves that no state can overflow
    calibrate        with data: the integers that flip the fewest spikes
    joint_rounding   the mathematics of `calibrate`; weights that stay equal, for relays
    thresholds       few thresholds per core, or none below one, for chips with such limits
    voltage_samples  voltages of the float network, and the ranges of thresholds that they allow
    widths           --weight-bits auto: bits per layer
    rounding_errors  Quantized, with the rounding errors of every population
    xylo             the same for Xylo, whose decays are shifts
    twin             the integer network as a torch module, for quantization-aware training
    structure        an integer network without its numbers, as JSON in a checkpoint
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .pooling import (
        CALIBRATION_SAMPLES as CALIBRATION_SAMPLES,
        CalibrationData as CalibrationData,
        calibration_data as calibration_data,
        express_pooling as express_pooling,
        fewest_cores as fewest_cores,
        load_calibration as load_calibration,
        messages_fit as messages_fit,
        read_calibration as read_calibration,
    )
    from .rounding import round_without_overflow as round_without_overflow
    from .rounding_errors import Quantized as Quantized, RoundingErrors as RoundingErrors
    from .scales import (
        NumberFormats as NumberFormats,
        choose_grid as choose_grid,
        choose_offset as choose_offset,
        constant_neurons as constant_neurons,
    )
    from .stage import (
        check_overflow as check_overflow,
        quantize as quantize,
        trained_integers as trained_integers,
    )
    from .thresholds import constant_channels as constant_channels
    from .twin import (
        QUANTIZED as QUANTIZED,
        QuantizedBody as QuantizedBody,
        QuantizedNeurons as QuantizedNeurons,
        QuantizedSynapse as QuantizedSynapse,
    )
    from .voltage_samples import ThresholdLimits as ThresholdLimits
    from .widths import Widths as Widths, check_widths as check_widths
    from .xylo import shifts_decays as shifts_decays
else:
    __getattr__, __dir__ = door(__name__, __file__)
