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
        "digits-cnn": ("small", "digits_cnn", {}),
        "digits-graded": ("small", "digits_graded", {}),
        "digits-mlp": ("small", "digits_mlp", {}),
        "digits-rnn": ("small", "digits_rnn", {}),
        "digits-transformer": ("transformer", "digits_transformer", {}),
        "mnist-cnn": ("small", "mnist_cnn", {}),
        # signals
        "signal-cnn": ("signals", "signal_cnn", {}),
        # channels over time, for Xylo
        "xylo-mlp": ("small", "xylo_mlp", {}),
        "xylo-rnn": ("small", "xylo_rnn", {}),
        # CIFAR
        "cifar-cnn": ("vgg", "cifar_cnn", {}),
        "cifar-cnn-lean": ("vgg", "cifar_cnn_lean", {}),
        "cifar-cnn-steep": ("vgg", "cifar_cnn_steep", {}),
        "resnet19": ("resnet", "resnet19", {}),
        "resnet20": ("resnet", "resnet20", {}),
        "resnet20-128": ("resnet", "resnet20_128", {}),
        "vgg16": ("vgg", "vgg16", {}),
        "resnet19-slim": ("resnet", "resnet19", SLIM),
        "resnet20-slim": ("resnet", "resnet20", SLIM),
        "vgg16-slim": ("vgg", "vgg16", SLIM),
        # event cameras
        "dvs-cnn": ("vgg", "dvs_cnn", {}),
        # ImageNet
        "resnet18": ("resnet", "resnet18", {}),
        "resnet34": ("resnet", "resnet34", {}),
    }
)
