"""Print what rich renders; text of others is shown, never obeyed."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from .text import printable


class _Shown:
    """A text or a table, in which characters that a terminal would obey are escaped."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def show_text(content: RenderableType) -> None:
    """Print a text or a table on standard output; names in it are not interpreted as markup."""
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    console.print(_Shown(content))
