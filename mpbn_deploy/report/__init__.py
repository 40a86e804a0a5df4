"""A deployment as one self-contained HTML page, for people.

story       all that the page shows
drawing     what pictures share: palette, style, a Figure as an SVG that is the same every time
diagram     the picture of populations and connections
pictures    the other pictures: thresholds, spikes, core use, agreement
html        Story -> page.html.j2 -> a file
"""

from .html import write_html
from .story import Story

__all__ = ["Story", "write_html"]
