"""The hyperparameters of a training and their defaults."""

from __future__ import annotations

from ..base import record

DEFAULT_ARCHITECTURE = "digits-cnn"
DEFAULT_TIMESTEPS = 4
FINE_TUNING_RATE = 0.0005  # of a network that is trained already
QUANTIZED_RATE = 0.005  # of batches of 32
FULL_RATE_BITS = 4
NEURON_DEFAULTS = {"mpbn_gain": "free", "surrogate": "rectangle"}


@record
class Training:
    """SGD with momentum and a cosine schedule from `learning_rate` to zero, as in the paper.

    Weight decay applies to the weights of convolutions and dense layers, not to norms and biases.
    """

    epochs: int = 8
    batch: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    augmentation: bool = True
    seed: int = 0


@record
class Epoch:
    """The results of one epoch: a line of the log."""

    epoch: int
    learning_rate: float
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float
