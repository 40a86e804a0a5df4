"""Hardware profiles: what a chip can hold, read from hw_profiles/*.toml, every number with its source.

`load_profile("loihi2")`, or the path of a TOML file, gives a HardwareProfile.

    profile    HardwareProfile, and a one-line summary of each
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
        ProfileSummary as ProfileSummary,
        export_profile as export_profile,
        load_profile as load_profile,
        profile_names as profile_names,
        readable_profiles as readable_profiles,
        summarize_profile as summarize_profile,
    )
    from .sources import BUILT_IN as BUILT_IN, ProfileFile as ProfileFile, profile_files as profile_files
else:
    __getattr__, __dir__ = door(__name__, __file__)
