"""The JSON schemas of what commands print with --json and of the JSON files of an export folder.

Every such object has a key "schema", "mpbn_deploy.fit/1": its name and version. Within a version, keys may be
added; none is removed, renamed or given another type or meaning. The manifest has `format` and `version`
instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import OptionError, did_you_mean
from .files import json_text

VERSION = 1
FOLDER = Path(__file__).with_name("json_schemas")


def schema_names() -> list[str]:
    """Return the names of all schemas."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def json_schema(name: str) -> dict[str, Any]:
    """Return a schema by name: json_schema("fit")."""
    if name not in schema_names():
        raise OptionError(f"no JSON schema {name!r}. {did_you_mean(name, schema_names())}")
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def marked_json(name: str, data: Mapping[str, Any]) -> str:
    """Return an object as JSON that states its schema."""
    return json_text({"schema": f"mpbn_deploy.{name}/{VERSION}", **data})
