"""What `scan` needs to know of neurons."""

from __future__ import annotations

from ..base import record
from .feedback import Feedback
from .norm import Norm
from .surrogate import Surrogate


@record
class LIFParameters:
    """The constants of LIF neurons over all time steps."""

    timesteps: int
    leak: float
    current_leak: float
    threshold: float
    subtrahend: float | None  # of a soft reset
    reset_is_constant: bool  # in backward
    surrogate: Surrogate
    norm: Norm | None
    feedback: Feedback | None = None  # of a recurrent layer
