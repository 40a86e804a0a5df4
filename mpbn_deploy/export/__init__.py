"""Export a trained network for a chip (`python -m mpbn_deploy.export`).

model.pt or a NIR file, and a target -> export folder, verified and fitted

stage      `export`: runs all stages of the pipeline and writes the folder; other options, tried for a
           network that lost accuracy
given      a torch module and samples in memory, as Python callers give them
model      reads and folds the model; keeps the integers of quantization-aware training; the samples to
           verify with, and those to calibrate on
folder     what the folder holds beside networks and reports: model, options and versions for the manifest;
           remarks for the user; a C program to build outside of Python
command    what the command does with its options; __main__ defines them
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .stage import ExportResult as ExportResult, export as export
else:
    __getattr__, __dir__ = door(__name__, __file__)
