"""Hardware profiles: what a chip can hold, read from hw_profiles/*.toml, every number with its source.

`load_profile("loihi2")`, or the path of a TOML file, gives a HardwareProfile.

    profile    HardwareProfile: read from a TOML file, and asked for limits and costs; where profiles are
               found: this package, installed packages, the user's folder; a chip as a row of a table
    keys       the keys that a profile may hold, the kind of number each is; all problems of a profile
    place/     assigns neurons to cores
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .keys import KEYS as KEYS
    from .profile import (
        BUILT_IN as BUILT_IN,
        UNBOUNDED as UNBOUNDED,
        Allowed as Allowed,
        Cost as Cost,
        HardwareProfile as HardwareProfile,
        Limit as Limit,
        ProfileFile as ProfileFile,
        ProfileSummary as ProfileSummary,
        export_profile as export_profile,
        load_profile as load_profile,
        profile_files as profile_files,
        profile_names as profile_names,
        readable_profiles as readable_profiles,
        summarize_profile as summarize_profile,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
