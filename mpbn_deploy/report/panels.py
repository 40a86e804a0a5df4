"""Small pictures of one kind side by side: the first ones are shown, the others folded."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ..base import record

SHOWN = 12  # the others can be unfolded


@record
class Panel:
    """A picture of one population or connection."""

    name: str
    notes: tuple[str, ...]
    picture: Markup
    color: str | None = None


@record
class Panels:
    """Those that are shown at once, and those that are not."""

    shown: tuple[Panel, ...]
    folded: tuple[Panel, ...]


def arrange(panels: Sequence[Panel]) -> Panels:
    return Panels(shown=tuple(panels[:SHOWN]), folded=tuple(panels[SHOWN:]))
