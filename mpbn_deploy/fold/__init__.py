"""To be described."""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .stage import fold as fold
else:
    __getattr__, __dir__ = door(__name__, __file__)
