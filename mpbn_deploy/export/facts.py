"""The provenance of an export, without dates and folders: the same inputs give the same bytes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..execute.lava import installed_version
from ..formats.options import ExportOptions
from ..hardware import HardwareProfile
from .model import FoldedModel

VERSIONED_PACKAGES = ("torch", "numpy", "nir", "h5py", "lava-nc", "lava-dl")


def facts_of(
    model: FoldedModel, profile: HardwareProfile, data: str, options: ExportOptions
) -> dict[str, Any]:
    """Return the manifest's entries on model, target, data, options, number formats and versions."""
    card = model.card
    return {
        "model": {
            "name": model.path.name,
            "sha256": model.digest,
            "architecture": None if card is None else card.architecture,
        },
        "target": {"name": profile.name},
        "data": data,
        "class_names": [] if card is None else list(card.class_names),
        "options": options.recorded(),
        "formats": {key: limit.value for key, limit in profile.limits.items() if key.startswith("formats.")},
        "versions": _versions(),
    }


def _versions() -> dict[str, str | None]:
    packages = {name: installed_version(name) for name in VERSIONED_PACKAGES}
    return {"mpbn_deploy": __version__, "python": platform.python_version(), **packages}


def as_lines(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested facts for the report: {"model": {"name": "a.pt"}} -> {"model name": "a.pt"}."""
    lines: dict[str, str] = {}
    for key, value in facts.items():
        if isinstance(value, dict):
            lines |= as_lines(value, f"{prefix}{key} ")
        elif value is not None:
            lines[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return lines
