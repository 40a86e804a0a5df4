"""model.pt: write a SpikingNetwork, and read it back without running code from the file.

In goes a path, out comes a SpikingNetwork in evaluation mode, or the other way round. Checkpoints of the
paper's own code are read as well.

    model           the file format; `load_model` and `save_model`; the trained networks of this package
    safe_reading    reads torch.save files that hold only tensors and plain values, and model.safetensors
    architectures   an architecture's name -> the module it stands for; those of the paper's code
    state           builds a network and checks the file's tensors against it; state_dicts of other tools,
                    whose network the user names; how neurons reset, as built and as the file says
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .architectures import (
        PAPER_ARCHITECTURES as PAPER_ARCHITECTURES,
        PAPER_DATASETS as PAPER_DATASETS,
        accepted as accepted,
        build_body as build_body,
        build_untrained as build_untrained,
        paper_names as paper_names,
    )
    from .model import (
        TRAINING_FORMAT as TRAINING_FORMAT,
        example_model as example_model,
        example_models as example_models,
        load_model as load_model,
        save_model as save_model,
    )
    from .safe_reading import read_safely as read_safely
    from .state import InputFacts as InputFacts
else:
    __getattr__, __dir__ = door(__name__, __file__)
