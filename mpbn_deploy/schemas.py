"""The JSON schemas of what commands print with --json and of the JSON files of an export folder.

Every such object has a key "schema", "mpbn_deploy.fit/1": its name and version. Within a version, keys may be
added; none is removed, renamed or given another type or meaning. The manifest has `format` and `version`
instead. What is said of options derives from their records.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .base import OptionError, did_you_mean, options_schema
from .formats.options import ExportOptions
from .train import Building, Training

FOLDER = Path(__file__).parent / "base" / "json_schemas"


def schema_names() -> list[str]:
    """Return the names of all schemas."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def json_schema(name: str) -> dict[str, Any]:
    """Return a schema by name: json_schema("fit")."""
    if name not in schema_names():
        raise OptionError(f"no JSON schema {name!r}. {did_you_mean(name, schema_names())}")
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    if name == "manifest":
        schema["properties"]["options"] |= options_schema(ExportOptions)
    if name == "train":
        settings = Building.declared | Training.declared
        schema["properties"] |= {name: each.schema for name, each in settings.items() if name != "arch"}
    return schema
