"""Hardware profiles: what a chip can hold, read from hw_profiles/*.toml, every number with its source.

`load_profile("loihi2")`, or the path of a TOML file, gives a HardwareProfile.

    profile    HardwareProfile: read from a TOML file, and asked for limits and costs
    summary    a chip as a row of a table
    sources    where profiles are found: this package, installed packages, the user's folder
    keys       the keys that a profile may hold, and the kind of number each is
    problems   finds everything wrong with a profile's text
    place/     assigns neurons to cores
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .keys import KEYS as KEYS
    from .profile import (
        UNBOUNDED as UNBOUNDED,
        Allowed as Allowed,
        Cost as Cost,
        HardwareProfile as HardwareProfile,
        Limit as Limit,
        export_profile as export_profile,
        load_profile as load_profile,
        profile_names as profile_names,
        readable_profiles as readable_profiles,
    )
    from .sources import BUILT_IN as BUILT_IN, ProfileFile as ProfileFile, profile_files as profile_files
    from .summary import ProfileSummary as ProfileSummary, summarize_profile as summarize_profile
else:
    __getattr__, __dir__ = door(__name__, __file__)
