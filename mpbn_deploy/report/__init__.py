"""Report a deployment as one self-contained HTML page.

`write_html` renders a `ReportContent`, which holds the results of all stages. The command `report` compares
several export folders on one page.

    content     ReportContent: everything the page shows
    html        renders page.html.j2 with page.css and writes the file
    summary     verdicts, the pipeline from model to chip, key figures
    diagram     populations and connections
    histograms  thresholds and weights
    spikes      spike raster, and heat maps of shares per time step
    core_map    the cores of every chip
    findings    findings grouped by design rule
    costs       energy and time
    lava_lines  the Python that runs network.net in lava-dl's reader
    panels      rows of small figures
    comparison  several exports: accuracy, cores and energy against bits
    svg         SVG elements, axes and colors
    formatting  number formats
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .comparison import ComparedExport as ComparedExport
    from .content import ReportContent as ReportContent
    from .html import write_html as write_html
else:
    __getattr__, __dir__ = door(__name__, __file__)
