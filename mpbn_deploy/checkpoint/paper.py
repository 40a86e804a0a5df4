"""Checkpoints of the paper's own code: which network of our zoo they hold, under which names.

Its `main_train.py` saves the state dict of a `SpikeModel` and nothing else. A layer keeps its
name under `model.`, inside of a wrapper whose attribute says what was wrapped:

    ours                            theirs                                  wrapper
    conv1.weight                    model.conv1.0.pool.weight               SpikePool.pool       (res20m)
    layer1.0.norm1.running_mean     model.layer1.0.bn1.bn.running_mean      myBatchNorm3d.bn
    layer1.0.lif2.mpbn.bn.weight    model.layer1.0.output_act.bn.weight     LIFAct.bn            the MPBN
    layer2.0.shortcut.conv.weight   model.layer2.0.downsample.1.pool.weight SpikePool.pool
    readout.bias                    model.fc.conv.bias                      SpikeConv.conv
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..data import CIFAR10_PIXELS, CIFAR100_PIXELS, byte_format
from ..ir import InputFormat
from ..nn.zoo import ARCHITECTURES

PREFIX = "paper:"
PAPER_ARCHITECTURES = {
    "paper:res20m": "resnet20",
    "paper:res19": "resnet19",
    "paper:res20": "resnet20-128",
    "paper:VGG16": "vgg16",
}
# What the code is trained on, by the number of classes: name, mean and deviation of pixels in 0..1.
DATA = {
    10: ("cifar10", *CIFAR10_PIXELS),
    100: ("cifar100", *CIFAR100_PIXELS),
}
INPUT_SHAPE = (3, 32, 32)

WRAPPERS: dict[type[nn.Module], str] = {
    nn.Conv2d: "pool",
    nn.Linear: "conv",
    nn.BatchNorm1d: "bn",
    nn.BatchNorm2d: "bn",
}
SEQUENTIAL_STEMS = {"paper:res20m": "conv1", "paper:VGG16": "features"}  # there, layers have numbers
STEM = {"conv1": "conv1", "norm1": "bn1", "lif1": "relu"}  # of the others
BLOCK = {
    "conv1": "conv1",
    "norm1": "bn1",
    "lif1": "relu1",
    "conv2": "conv2",
    "norm2": "bn2",
    "lif2": "output_act",
}


def looks_like_paper(state: Mapping[Any, Any]) -> bool:
    """Whether tensors are called as in a SpikeModel, with or without the prefix of DataParallel."""
    return any(
        isinstance(name, str) and name.removeprefix("module.").startswith("model.") and ".pool." in name
        for name in state
    )


def without_parallel(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A network's state dict, of that of the DataParallel around it."""
    wrapped = all(name.startswith("module.") for name in state)
    return {name.removeprefix("module.") if wrapped else name: tensor for name, tensor in state.items()}


def their_readout(arch: str) -> str:
    """What their code calls the last layer."""
    return "classifier" if arch == "paper:VGG16" else "fc"


def classes_of(arch: str, state: Mapping[str, Tensor]) -> int:
    """The rows of the last layer. Where it is missing, ten: the comparison of names will then say so."""
    weight = state.get(f"model.{their_readout(arch)}.conv.weight")
    return 10 if weight is None or weight.dim() == 0 else weight.shape[0]


def mpbn_of(arch: str, state: Mapping[str, Tensor]) -> str:
    """`channel`; or `none`, where no neuron of the file has a batch norm: the paper's baseline."""
    with torch.device("meta"):
        body = ARCHITECTURES[PAPER_ARCHITECTURES[arch]](INPUT_SHAPE, classes=10)
    names = their_names(body, arch)
    return "channel" if any(names[name] in state for name in names if ".mpbn." in name) else "none"


def input_format(classes: int) -> InputFormat:
    """Raw pixels, 0..255, normalized as their code does after it has divided them by 255."""
    _, mean, deviation = DATA[classes]
    return byte_format(INPUT_SHAPE, mean, deviation)


def their_names(body: nn.Module, arch: str) -> dict[str, str]:
    """Our name -> theirs, of every tensor of a body."""
    names: dict[str, str] = {}
    for path, module in body.named_modules():
        if wrapper := WRAPPERS.get(type(module)):
            layer = _their_layer(body, path.removesuffix(".mpbn.bn"), arch)
            names |= {f"{path}.{key}": f"model.{layer}.{wrapper}.{key}" for key in module.state_dict()}
    return names


def _their_layer(body: nn.Module, path: str, arch: str) -> str:
    match path.split("."):
        case ["readout"]:
            return their_readout(arch)
        case [layer] if arch in SEQUENTIAL_STEMS:
            return f"{SEQUENTIAL_STEMS[arch]}.{_position(body, layer)}"
        case [layer]:
            return STEM[layer]
        case [stage, number, "shortcut", layer]:
            shortcut = body.get_submodule(f"{stage}.{number}.shortcut")
            return f"{stage}.{number}.downsample.{_position(shortcut, layer)}"
        case [stage, number, layer]:
            return f"{stage}.{number}.{BLOCK[layer]}"
    raise AssertionError(f"{path}: no network of the paper has such a layer")


def _position(parent: nn.Module, child: str) -> int:
    return [name for name, _ in parent.named_children()].index(child)
