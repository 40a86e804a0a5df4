"""The whole pipeline: a trained model and a target -> an export folder, verified and fitted.

stage      export: the list of stages            command    what `python -m mpbn_deploy.export` does
model      what is exported: checkpoint or NIR file, folded, with its integers where training chose them
facts      where an export comes from, for the manifest and the report
"""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .stage import ExportResult as ExportResult, export as export
else:
    __getattr__, __dir__ = door(__name__, __file__)
