"""The hyperparameters of a training, and recipes: named sets of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import record
from ..nn import NEURON_DEFAULTS

DEFAULT_ARCHITECTURE = "digits-cnn"
DEFAULT_TIMESTEPS = 4
FINE_TUNING_RATE = 0.0005  # of a network that is trained already, in batches of 32
QUANTIZED_RATE = 0.005  # in batches of 32
FULL_RATE_BITS = 4
OPTIMIZERS = ("sgd", "muon", "adam")
NEURONS = ("lif", "xylo")
XYLO_RECIPE = "xylo"
SCHEDULES = ("cosine", "one-cycle")
PRECISIONS = ("float32", "bfloat16")
AUGMENTATIONS = (
    "none",
    "flip",
    "crop-flip",
    "crop-flip-cutout",
    "crop-flip-autoaugment-cutout",
    "roll-flip",
)
RECALIBRATIONS = ("auto", "on", "off")
ELEMENT_EPSILON = 0.1
NO_MUON_FOR_INTEGERS = "--optimizer muon keeps the norms of weights; integers are trained with sgd."


@record
class Training:
    """SGD with momentum, or Muon (`optimizer`), on the cross entropy; the rate follows a schedule to zero.

    `warmup` is the fraction of a one-cycle schedule in which the rate rises. Weight decay applies to the
    weights that SGD moves, not to norms and biases, whose learning rate is `norm_rate` times that of these
    weights. `augmentation` None is the data set's own. In the first `single_step` (a fraction) of the epochs
    the network runs one time step per sample; in the last `freeze_mpbn` (a fraction) MPBN uses its running
    statistics, as in inference. `validation` is the fraction of the training split that is held out: epochs
    are then judged on it, and the test split is used once, at the end.
    """

    optimizer: str = "sgd"
    epochs: int = 8
    batch: int = 32
    learning_rate: float = 0.1
    norm_rate: float = 1.0
    schedule: str = "cosine"
    warmup: float = 0.2
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    clip_gradient: float | None = None
    augmentation: str | None = None
    precision: str = "float32"
    single_step: float = 0.0
    freeze_mpbn: float = 0.0
    validation: float = 0.0
    recalibration: str = "auto"
    seed: int = 0

    @property
    def free_epochs(self) -> int:
        """The number of epochs in which MPBN uses the statistics of each batch."""
        return self.epochs - int(self.freeze_mpbn * self.epochs)

    @property
    def single_step_epochs(self) -> int:
        """The number of epochs with one time step."""
        return int(self.single_step * self.epochs)


# What each recipe sets, by the name of the option; the rest is as in Training and NEURON_DEFAULTS.
RECIPES: dict[str, Mapping[str, Any]] = {
    "standard": {},
    "paper": {
        "epochs": 400,
        "batch": 128,
        "weight_decay": 1e-4,
        "augmentation": "crop-flip-autoaugment-cutout",
        "surrogate": "tanh",
        "arch": "resnet20",
    },
    "fast": {
        "arch": "cifar-cnn-lean",
        "width": 64,
        "surrogate": "wide",
        "reset_gradient": "detached",
        "timesteps": 2,
        "single_step": 0.8,
        "optimizer": "muon",
        "epochs": 28,
        "batch": 128,
        "learning_rate": 0.2,
        "schedule": "one-cycle",
        "nesterov": True,
        "label_smoothing": 0.1,
        "augmentation": "crop-flip",
        "precision": "auto",
        "validation": 0.02,
    },
    XYLO_RECIPE: {
        "arch": "xylo-rnn",
        "optimizer": "adam",
        "learning_rate": 0.003,
        "epochs": 40,
        "weight_decay": 0.0,
        "clip_gradient": 1.0,
    },
}


def mpbn_epsilon(kind: str) -> float:
    """Return the default epsilon of a kind of MPBN.

    Element-wise, many neurons have almost the same membrane for every sample of a batch: their gradients
    are multiplied by up to 1 / sqrt(epsilon) in each time step, and with 1e-5 they explode.
    """
    return ELEMENT_EPSILON if kind == "element" else float(NEURON_DEFAULTS["mpbn_epsilon"])


@record
class Epoch:
    """The results of one epoch: a line of the log.

    validation_* are None without a validation split; with one, test_* are None until the last epoch. The
    gradient of a step has one norm, before it is clipped: here are the median over the steps and the largest.
    `processor_seconds` are those of all threads of this process, whatever else runs on the machine.
    """

    epoch: int
    timesteps: int
    learning_rate: float
    train_loss: float
    train_accuracy: float
    test_loss: float | None = None
    test_accuracy: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    median_gradient: float | None = None  # None in logs of earlier versions
    largest_gradient: float | None = None
    seconds: float
    processor_seconds: float

    @property
    def accuracy(self) -> float:
        """The accuracy on the validation split, if there is one, or else on the test split."""
        found = self.test_accuracy if self.validation_accuracy is None else self.validation_accuracy
        assert found is not None
        return found
