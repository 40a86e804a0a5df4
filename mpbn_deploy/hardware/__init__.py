"""To be described."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .keys import KEYS as KEYS
    from .profile import (
        Allowed as Allowed,
        Cost as Cost,
        HardwareProfile as HardwareProfile,
        Limit as Limit,
        Summary as Summary,
        describe as describe,
        load_profile as load_profile,
        profile_names as profile_names,
    )

__getattr__, __dir__ = door(__name__, __file__)
