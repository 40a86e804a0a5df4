"""To be described."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .certificate import LAVA_CLAIM as LAVA_CLAIM
    from .comparison import Mismatch as Mismatch, compare as compare
    from .drift import Drift as Drift
    from .stage import VerifyReport as VerifyReport, trained_spikes as trained_spikes, verify as verify
    from .text import verify_text as verify_text

__getattr__, __dir__ = door(__name__, __file__)
