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

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .html import write_html as write_html
    from .story import Story as Story

__getattr__, __dir__ = door(__name__, __file__)
