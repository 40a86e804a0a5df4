"""To be described."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .curves import COLORS as COLORS, as_png as as_png, training_curves as training_curves
    from .drawing import MUTED as MUTED, STYLE as STYLE
    from .files import resume_file as resume_file
    from .loop import accuracy as accuracy, evaluate as evaluate
    from .quantized import quantized_rate as quantized_rate, quantized_twin as quantized_twin
    from .settings import NEURON_DEFAULTS as NEURON_DEFAULTS, Epoch as Epoch, Training as Training
    from .stage import train as train

__getattr__, __dir__ = door(__name__, __file__)
