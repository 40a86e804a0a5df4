"""The architectures by name."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

Architecture = Callable[..., "nn.Module"]
SLIM = {"width": 16}  # channels of the first layer, at most a quarter of the paper's

Entry = tuple[str, str, dict[str, Any]]  # module of this package, function in it, fixed arguments


class _Architectures(UserDict[str, Any]):
    """Imports an architecture's module on first access, so that listing names does not import torch."""

    def __getitem__(self, name: str) -> Architecture:
        found: Entry | Architecture = self.data[name]
        if not isinstance(found, tuple):
            return found
        module, function, fixed = found
        build: Architecture = getattr(import_module(f".{module}", __package__), function)
        return partial(build, **fixed) if fixed else build


ARCHITECTURES = _Architectures(
    {
        # small images
        "digits-cnn": ("networks", "digits_cnn", {}),
        "digits-graded": ("networks", "digits_graded", {}),
        "digits-mlp": ("networks", "digits_mlp", {}),
        "digits-rnn": ("networks", "digits_rnn", {}),
        "digits-transformer": ("networks", "digits_transformer", {}),
        "mnist-cnn": ("networks", "mnist_cnn", {}),
        # signals
        "signal-cnn": ("networks", "signal_cnn", {}),
        # channels over time, for Xylo
        "xylo-mlp": ("networks", "xylo_mlp", {}),
        "xylo-rnn": ("networks", "xylo_rnn", {}),
        # CIFAR
        "cifar-cnn": ("paper", "cifar_cnn", {}),
        "cifar-cnn-lean": ("paper", "cifar_cnn_lean", {}),
        "cifar-cnn-steep": ("paper", "cifar_cnn_steep", {}),
        "resnet19": ("paper", "resnet19", {}),
        "resnet20": ("paper", "resnet20", {}),
        "resnet20-128": ("paper", "resnet20_128", {}),
        "vgg16": ("paper", "vgg16", {}),
        "resnet19-slim": ("paper", "resnet19", SLIM),
        "resnet20-slim": ("paper", "resnet20", SLIM),
        "vgg16-slim": ("paper", "vgg16", SLIM),
        # event cameras
        "dvs-cnn": ("paper", "dvs_cnn", {}),
        # ImageNet
        "resnet18": ("paper", "resnet18", {}),
        "resnet34": ("paper", "resnet34", {}),
    }
)
