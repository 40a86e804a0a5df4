"""Train a spiking network: data set + architecture -> model.pt (`python -m mpbn_deploy.train`).

stage          `train`: builds the network, checks it against the data, runs the epochs
loop           epochs, evaluation
optimizer      SGD, or Muon for weights with a norm behind them
batching       shuffled, augmented batches            augmentation   crop, flip, AutoAugment, cutout, roll
files          checkpoint, log and curves after each epoch; resuming
curves         the figure of loss and accuracy
processes      one training on several processes (torchrun)
quantized      the integer twin that quantization-aware training starts from
settings       hyperparameters, their defaults, and recipes
recalibration  running statistics of the trained network, estimated again
health         stops a run that has diverged
norms          batch norms outside neurons
precision      bfloat16 where it is faster
command        what the command does with its options
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .curves import (
        COLORS as COLORS,
        MUTED as MUTED,
        STYLE as STYLE,
        as_png as as_png,
        training_curves as training_curves,
    )
    from .files import resume_file as resume_file
    from .loop import accuracy as accuracy, evaluate as evaluate
    from .quantized import quantized_rate as quantized_rate, quantized_twin as quantized_twin
    from .settings import (
        RECIPES as RECIPES,
        Building as Building,
        Epoch as Epoch,
        Training as Training,
    )
    from .stage import train as train
else:
    __getattr__, __dir__ = door(__name__, __file__)
