"""A deployment as one self-contained HTML page, for people.

story       all that the page shows
wording     how numbers are written
svg         what pictures share: elements, axes, colors
summary     the verdict, the way from model to chip, some numbers
diagram     the picture of populations and connections
panels      small pictures side by side
histograms  thresholds and weights
spikes      a raster, and shares of neurons in each time step
core_map    the cores of every chip
findings    what the rules found
costs       energy and time
html        Story -> page.html.j2 with page.css -> a file

drawing, curves    pictures of trainings, as PNG files
"""

from .html import write_html
from .story import Story

__all__ = ["Story", "write_html"]
