"""Train a spiking network: data set + architecture -> model.pt (`python -m mpbn_deploy.train`).

stage          `train`: builds the network, checks it against the data, runs the epochs
loop           epochs of shuffled, augmented batches; evaluation; stops a run that has diverged
optimizer      SGD, or Muon for weights with a norm behind them; bfloat16 where it is faster; one training
               on several processes (torchrun)
files          checkpoint, log and curves after each epoch; resuming
settings       hyperparameters, their defaults, and recipes
recalibration  running statistics of the trained network, estimated again
command        what the command does with its options; the integer twin of quantization-aware training
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .command import quantized_rate as quantized_rate, quantized_twin as quantized_twin
    from .files import (
        COLORS as COLORS,
        MUTED as MUTED,
        STYLE as STYLE,
        as_png as as_png,
        resume_file as resume_file,
        training_curves as training_curves,
    )
    from .loop import accuracy as accuracy, evaluate as evaluate
    from .settings import (
        RECIPES as RECIPES,
        Building as Building,
        Epoch as Epoch,
        Training as Training,
    )
    from .stage import train as train
else:
    __getattr__, __dir__ = door(__name__, __file__)
