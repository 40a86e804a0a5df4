"""Find hardware profiles: those of this package, of installed packages, and of the user.

An installed package offers a folder of profiles by an entry point of the group `mpbn_deploy.profiles`, whose
value is the package that holds the .toml files. The user's folders are those in MPBN_DEPLOY_PROFILES, or else
~/.config/mpbn_deploy/profiles. Nothing is executed but the `__init__` of the parents of that package.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from ..base import one_line, record

GROUP = "mpbn_deploy.profiles"
VARIABLE = "MPBN_DEPLOY_PROFILES"
BUILT_IN = "built-in"


@record
class ProfileFile:
    """A profile and its origin: built-in, the name of an installed package, or the folder of the user."""

    name: str
    path: Path
    origin: str


def profile_files() -> list[ProfileFile]:
    """Return all profiles, sorted by name; a name may occur twice, with different origins."""
    folders = [(_own_folder(), BUILT_IN), *_installed_folders()[0], *((f, str(f)) for f in user_folders())]
    found = [
        ProfileFile(name=path.stem, path=path, origin=origin)
        for folder, origin in folders
        for path in folder.glob("*.toml")
    ]
    return sorted(found, key=lambda file: (file.name, file.origin != BUILT_IN, file.origin))


def user_folders() -> list[Path]:
    """Return the folders in which the user keeps profiles."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return [Path(folder) for folder in named.split(os.pathsep) if folder]
    configuration = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [configuration / "mpbn_deploy" / "profiles"]


def missing_folders() -> list[Path]:
    """Return the folders that MPBN_DEPLOY_PROFILES names and that do not exist."""
    return [folder for folder in user_folders() if os.environ.get(VARIABLE) and not folder.is_dir()]


def broken_packages() -> list[str]:
    """Return a line for each installed package whose entry point leads to no folder of profiles."""
    return _installed_folders()[1]


def _own_folder() -> Path:
    """Return the folder of profiles: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "hw_profiles"
    return inside if inside.is_dir() else package.with_name("hw_profiles")


def _installed_folders() -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the folders of installed packages, each with its package's name; a line for each broken one."""
    folders: list[tuple[Path, str]] = []
    broken: list[str] = []
    for entry in entry_points(group=GROUP):
        origin = entry.name if entry.dist is None else entry.dist.name
        try:
            spec, failure = find_spec(entry.value), ""
        except Exception as error:  # the `__init__` of a parent can raise anything
            spec, failure = None, f" ({type(error).__name__}: {one_line(str(error))})"
        if spec is None or not spec.submodule_search_locations:
            broken.append(
                f"{origin}: its entry point {entry.name!r} ({GROUP}) names {entry.value!r}, which is not an "
                f"importable package{failure}. It must be the package that holds the .toml files."
            )
        else:
            folders += ((Path(folder), origin) for folder in spec.submodule_search_locations)
    return folders, broken
