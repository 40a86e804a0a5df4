"""To be described."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .calibrate import calibration_inputs as calibration_inputs
    from .options import (
        CALIBRATION_SAMPLES as CALIBRATION_SAMPLES,
        OVERFLOW_CHOICES as OVERFLOW_CHOICES,
        THRESHOLD_CHOICES as THRESHOLD_CHOICES,
    )
    from .rounding import round_without_overflow as round_without_overflow
    from .scales import Formats as Formats, choose_grid as choose_grid
    from .stage import describe as describe, quantize as quantize
    from .thresholds import ThresholdLimits as ThresholdLimits
    from .twin import (
        QUANTIZED as QUANTIZED,
        QuantizedBody as QuantizedBody,
        QuantizedNeurons as QuantizedNeurons,
    )

__getattr__, __dir__ = door(__name__, __file__)
