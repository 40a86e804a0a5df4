"""JSON objects that state their schema (`mpbn_deploy/schemas.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .files import json_text

VERSION = 1


def marked_json(name: str, data: Mapping[str, Any]) -> str:
    """Return an object as JSON that states its schema."""
    return json_text({"schema": f"mpbn_deploy.{name}/{VERSION}", **data})
