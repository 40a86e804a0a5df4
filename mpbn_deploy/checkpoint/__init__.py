"""model.pt: write a SpikingNetwork, and read it back without running code from the file.

In goes a path, out comes a SpikingNetwork in evaluation mode, or the other way round. Checkpoints of the
paper's own code are read as well.

    model           the file format; `load_model` and `save_model`
    safe_reading    reads torch.save files that hold only tensors and plain values
    safetensors_file    reads and writes model.safetensors
    bare            state_dicts of other tools, whose network the user names
    architectures   an architecture's name -> the module it stands for
    resets          how neurons reset, as built and as the file says
    state           builds a network and checks the file's tensors against it
    examples        the trained networks that ship with this package
    paper           names and settings of the networks in the paper's code
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .architectures import (
        accepted as accepted,
        build_body as build_body,
        build_untrained as build_untrained,
    )
    from .bare import InputFacts as InputFacts
    from .examples import example_model as example_model, example_models as example_models
    from .model import (
        TRAINING_FORMAT as TRAINING_FORMAT,
        load_model as load_model,
        save_model as save_model,
    )
    from .paper import (
        PAPER_ARCHITECTURES as PAPER_ARCHITECTURES,
        PAPER_DATASETS as PAPER_DATASETS,
        paper_names as paper_names,
    )
    from .safe_reading import read_safely as read_safely
else:
    __getattr__, __dir__ = door(__name__, __file__)
