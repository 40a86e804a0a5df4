"""FoldedNetwork + HardwareProfile (+ calibration inputs) -> Quantized: integers, and what they cost.

stage              quantize: the steps below, in order
thresholds         thresholds under the limits of a chip, chosen by `evidence`
scales, rounding   the grid of the integers; rounding to it, with the proof that nothing overflows
calibrate          with data: the rounding that flips the fewest spikes (`joint_rounding`)
samples            calibration inputs from a data set
cost               Quantized, and what each population paid
twin               the integer network as a torch module that can be trained (`structure`)
"""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .cost import PopulationCost as PopulationCost, Quantized as Quantized
    from .rounding import round_without_overflow as round_without_overflow
    from .samples import (
        CALIBRATION_SAMPLES as CALIBRATION_SAMPLES,
        CalibrationData as CalibrationData,
        calibration_data as calibration_data,
        load_calibration as load_calibration,
    )
    from .scales import Formats as Formats, choose_grid as choose_grid
    from .stage import quantize as quantize, trained_integers as trained_integers
    from .thresholds import ThresholdLimits as ThresholdLimits
    from .twin import (
        QUANTIZED as QUANTIZED,
        QuantizedBody as QuantizedBody,
        QuantizedNeurons as QuantizedNeurons,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
