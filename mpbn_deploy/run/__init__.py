"""Run an exported network or a .net file in any executor (`python -m mpbn_deploy.run`).

IntNetwork + samples -> predictions, accuracy and speed

    command    `run`: in this process, or on the workers of a cluster; what the command does with its
               options; __main__ defines them
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .command import run as run
else:
    __getattr__, __dir__ = door(__name__, __file__)
