"""To be described."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .model import (
        build_body as build_body,
        load_model as load_model,
        read_plain as read_plain,
        save_model as save_model,
    )
    from .paper import DATA as DATA, PAPER_ARCHITECTURES as PAPER_ARCHITECTURES

__getattr__, __dir__ = door(__name__, __file__)
