"""The hyperparameters of a training, and recipes: named sets of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, isfinite
from typing import Any, Literal

from ..base import Options, option, record
from ..nn import ELEMENT_EPSILON, MPBN_EPSILON, MpbnKind, NeuronOptions, NormKind
from ..nn.zoo import ARCHITECTURES

DEFAULT_TIMESTEPS = 4
FINE_TUNING_RATE = 0.0005  # of a network that is trained already, in batches of 32
QUANTIZED_RATE = 0.005  # in batches of 32
FULL_RATE_BITS = 4
XYLO_RECIPE = "xylo"
TEACHER_PART = 0.5  # of the loss
NO_MUON_FOR_INTEGERS = "--optimizer muon keeps the norms of weights; integers are trained with sgd."

# What values must be, and how messages say it.
POSITIVE = (lambda value: isfinite(value) and value > 0, "a positive number")
NOT_NEGATIVE = (lambda value: isfinite(value) and value >= 0, "zero or a positive number")
MOST_OF_ALL = (lambda value: 0 <= value < 1, "a fraction from 0 to below 1")


class NetworkChoice(Options):
    """The network to build."""

    arch: str = option(
        "digits-cnn",
        f"network to build: {', '.join(ARCHITECTURES)}; or package.module:factory, a function of your own "
        "code (which is imported and runs), called with input_shape, classes and mpbn, and with the other "
        "options of this group only if you set them",
    )
    width: int | None = option(
        None,
        "channels of the first layer, in networks that can be scaled",
        least=1,
        otherwise="the network's own",
    )
    timesteps: int | None = option(
        None,
        "time steps per sample",
        least=1,
        otherwise=f"{DEFAULT_TIMESTEPS}",
        also="for recordings, their number of frames; with --init, that of the network",
    )
    mpbn: MpbnKind = option(
        "channel",
        "membrane-potential batch norm: one gain and shift per channel, one per element (neuron), or none",
    )
    norm: NormKind = option(
        "batch",
        "norm of the currents between a layer and its neurons: batch norm over batch and time, tdBN, TEBN, "
        "BNTT, TAB or PSP-BN; TEBN, BNTT and TAB have numbers for each time step",
    )


class Building(NeuronOptions, NetworkChoice):
    """The network to build, and its neurons."""


class Training(Options):
    """SGD with momentum, or Muon (`optimizer`), on the cross entropy; the rate follows a schedule to zero.

    Weight decay applies to the weights that SGD moves, not to norms and biases, whose learning rate is
    `norm_rate` times that of these weights. `augmentation` None is the data set's own.
    """

    optimizer: Literal["sgd", "muon", "adam"] = option(
        "sgd",
        "sgd, with momentum; muon, which keeps the norms of weights, for layers with a batch norm behind "
        "them, and sgd for the rest; or adam; with --init, sgd unless you set it",
    )
    epochs: int = option(8, "passes over the training samples", least=1, must=(lambda n: n >= 1, "1 or more"))
    batch: int = option(32, "samples per step", least=2)
    learning_rate: float = option(
        0.1,
        "highest learning rate",
        metavar="RATE",
        must=POSITIVE,
        also=f"with --init {FINE_TUNING_RATE}; with --quantize {QUANTIZED_RATE}, and more below "
        f"{FULL_RATE_BITS} bits",
    )
    norm_rate: float = option(
        1.0,
        "learning rate of norms and biases, relative to that of weights",
        metavar="FACTOR",
        must=NOT_NEGATIVE,
    )
    schedule: Literal["cosine", "one-cycle"] = option(
        "cosine",
        "cosine: the rate falls to zero along a cosine; one-cycle: it rises from zero during the warmup, "
        "then falls to zero along a line",
    )
    warmup: float = option(
        0.2,
        "fraction of a one-cycle schedule in which the rate rises",
        metavar="FRACTION",
        must=(lambda fraction: 0 < fraction < 1, "a fraction between 0 and 1"),
    )
    momentum: float = option(
        0.9,
        "momentum of the optimizer",
        metavar="FACTOR",
        must=(MOST_OF_ALL[0], "a number from 0 to below 1"),
    )
    nesterov: bool = option(False, "Nesterov's form of momentum")
    weight_decay: float = option(
        5e-4,
        "decay of the weights that sgd moves; norms and biases have none",
        metavar="RATE",
        must=NOT_NEGATIVE,
    )
    label_smoothing: float = option(
        0.0, "part of each label that is spread over all classes", metavar="FRACTION", must=MOST_OF_ALL
    )
    clip_gradient: float | None = option(
        None,
        "scale the gradient of a step down to this norm where it is larger",
        metavar="NORM",
        must=POSITIVE,
        otherwise="no limit",
    )
    augmentation: (
        Literal[
            "none",
            "flip",
            "crop-flip",
            "crop-flip-cutout",
            "crop-flip-autoaugment-cutout",
            "roll-flip",
        ]
        | None
    ) = option(None, "random changes of the training samples", otherwise="the data set's own")
    precision: Literal["float32", "bfloat16", "auto"] = option(
        "float32",
        "arithmetic of convolutions in training; auto: bfloat16 if a trial on this machine is clearly "
        "faster; evaluation and export always use float32",
    )
    single_step: float = option(
        0.0,
        "fraction of the epochs, the first ones, that run one time step per sample, which is faster",
        metavar="FRACTION",
        must=MOST_OF_ALL,
    )
    freeze_mpbn: float = option(
        0.0,
        "fraction of the epochs, the last ones, in which MPBN uses its running statistics, as in inference; "
        "for inputs that change over time",
        metavar="FRACTION",
        must=MOST_OF_ALL,
    )
    validation: float = option(
        0.0,
        "fraction of the training samples to hold out: epochs are judged on them, and the test samples are "
        "used once, at the end",
        metavar="FRACTION",
    )
    recalibration: Literal["auto", "on", "off"] = option(
        "auto",
        "re-estimate the running statistics of all norms after training, layer by layer in inference mode; "
        "auto: keep them if the validation split (or else other training samples) is classified clearly "
        "better",
    )
    average: float = option(
        0.0,
        "fraction of the epochs, the last ones, over whose steps weights are averaged; the mean, with norms "
        "re-estimated for it, replaces the last weights if it classifies the validation split (or else "
        "other training samples) better",
        metavar="FRACTION",
        must=MOST_OF_ALL,
    )
    distillation: float | None = option(
        None,
        "with --teacher: part of the loss that compares with the teacher's outputs instead of labels",
        metavar="FRACTION",
        must=(lambda value: 0 < value <= 1, "a fraction above 0, up to 1"),
        otherwise=f"{TEACHER_PART}",
    )
    seed: int = option(0, "seed of all random numbers: the same seed gives the same network", least=0)

    @property
    def free_epochs(self) -> int:
        """The number of epochs in which MPBN uses the statistics of each batch."""
        return self.epochs - int(self.freeze_mpbn * self.epochs)

    @property
    def single_step_epochs(self) -> int:
        """The number of epochs with one time step."""
        return int(self.single_step * self.epochs)

    @property
    def averaged_epochs(self) -> int:
        """The number of epochs over which weights are averaged: at least one, if any."""
        return ceil(self.average * self.epochs)


FAST: dict[str, Any] = {
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
}
# What each recipe sets, by the name of the option; the rest is as in Training and Building.
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
    "fast": FAST,
    "strong": {
        **FAST,
        "width": 96,
        "epochs": 60,
        "learning_rate": 0.1,
        "augmentation": "crop-flip-cutout",
        "average": 0.1,
    },
    XYLO_RECIPE: {
        "arch": "xylo-rnn",
        "optimizer": "adam",
        "learning_rate": 0.003,
        "epochs": 40,
        "weight_decay": 0.0,
        "clip_gradient": 1.0,
        "freeze_mpbn": 0.5,
    },
}


def mpbn_epsilon(kind: str) -> float:
    """Return the default epsilon of a kind of MPBN.

    Element-wise, many neurons have almost the same membrane for every sample of a batch: their gradients
    are multiplied by up to 1 / sqrt(epsilon) in each time step, and with 1e-5 they explode.
    """
    return ELEMENT_EPSILON if kind == "element" else MPBN_EPSILON


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
