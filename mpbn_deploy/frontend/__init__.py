"""To be described."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .foreign import foreign_converters as foreign_converters
    from .stage import trace as trace

__getattr__, __dir__ = door(__name__, __file__)
