"""To be described."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .activity import Activity as Activity, core_loads as core_loads, operations as operations
    from .chips import ChipMap as ChipMap
    from .energy import EnergyReport as EnergyReport, Item as Item, Range as Range, estimate as estimate
    from .energy_text import (
        JOULES as JOULES,
        SECONDS as SECONDS,
        energy_table as energy_table,
        headline as headline,
        quantity as quantity,
        spread as spread,
    )
    from .measurement import measure as measure
    from .stage import FitReport as FitReport, LayerFit as LayerFit, fit as fit
    from .text import column as column, fit_text as fit_text, shown_resources as shown_resources

__getattr__, __dir__ = door(__name__, __file__)
