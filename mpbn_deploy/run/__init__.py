"""COMMAND: run an exported network, or a .net file, in any of the executors, alone or on a cluster."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .stage import run as run
else:
    __getattr__, __dir__ = door(__name__, __file__)
