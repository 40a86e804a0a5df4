"""Report a deployment as one self-contained HTML page.

`write_html` renders a `ReportContent`, which holds the results of all stages. The command `report` compares
several export folders on one page.

    html        renders page.html.j2 with page.css and writes the file
    summary     ReportContent: everything the page shows; verdicts, the pipeline from model to chip, key
                figures, findings by rule, the Python that runs network.net in lava-dl's reader
    diagram     populations and connections
    histograms  thresholds and weights; spike raster, and heat maps of shares per time step
    costs       energy and time; the cores of every chip
    command     several exports: accuracy, cores and energy against bits
    svg         SVG elements, axes and colors, rows of small figures, number formats
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .command import ComparedExport as ComparedExport
    from .html import write_html as write_html
    from .summary import ReportContent as ReportContent
else:
    __getattr__, __dir__ = door(__name__, __file__)
