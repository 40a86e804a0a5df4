"""Rows of small figures of one kind; the page shows the first ones and collapses the rest."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ..base import record

SHOWN = 12  # the rest are in a closed <details> element


@record
class Panel:
    """A figure of one population or connection."""

    name: str
    notes: tuple[str, ...]
    picture: Markup
    color: str | None = None


@record
class Panels:
    """Panels shown directly, and panels that the reader can expand."""

    shown: tuple[Panel, ...]
    collapsed: tuple[Panel, ...]


def arrange(panels: Sequence[Panel]) -> Panels:
    """Divide panels into shown and collapsed ones."""
    return Panels(shown=tuple(panels[:SHOWN]), collapsed=tuple(panels[SHOWN:]))
