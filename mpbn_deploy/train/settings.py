"""What a training can be told, and what it does when it is not told."""

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
    """How to train: SGD with momentum, a cosine from `learning_rate` to zero, as in the paper.

    Weights of convolutions and dense layers decay; norms and biases do not.
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
    """What one pass over the training split gave; a line of the log."""

    epoch: int
    learning_rate: float
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float
