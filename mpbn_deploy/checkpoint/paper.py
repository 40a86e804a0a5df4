"""Map checkpoints of the paper's own code to networks of the zoo.

Its `main_train.py` saves only the state dict of a `SpikeModel`. A layer keeps its name under `model.`,
inside a wrapper whose attribute depends on the kind of layer:

    ours                            theirs                                  wrapper
    conv1.weight                    model.conv1.0.pool.weight               SpikePool.pool       (res20m)
    layer1.0.norm1.running_mean     model.layer1.0.bn1.bn.running_mean      myBatchNorm3d.bn
    layer1.0.lif2.mpbn.bn.weight    model.layer1.0.output_act.bn.weight     LIFAct.bn            the MPBN
    layer2.0.shortcut.conv.weight   model.layer2.0.downsample.1.pool.weight SpikePool.pool
    readout.bias                    model.fc.conv.bias                      SpikeConv.conv
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base import CheckpointError
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
# Number of classes -> data set, with mean and deviation of pixels scaled to 0..1.
PAPER_DATASETS = {
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
SEQUENTIAL_STEMS = {"paper:res20m": "conv1", "paper:VGG16": "features"}  # their layers are numbered
STEM = {"conv1": "conv1", "norm1": "bn1", "lif1": "relu"}  # of the other networks
BLOCK = {
    "conv1": "conv1",
    "norm1": "bn1",
    "lif1": "relu1",
    "conv2": "conv2",
    "norm2": "bn2",
    "lif2": "output_act",
}


def looks_like_paper(state: Mapping[Any, Any]) -> bool:
    """Return whether the tensors are named as in a SpikeModel, with or without DataParallel's prefix."""
    return any(
        isinstance(name, str) and name.removeprefix("module.").startswith("model.") and ".pool." in name
        for name in state
    )


def paper_state(path: str | Path, content: dict[Any, Any]) -> dict[str, Tensor]:
    """Return the tensors of a SpikeModel under its own names, without DataParallel's prefix."""
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()):
        raise CheckpointError(
            f"{path}: not a checkpoint of the paper's code, which saves a bare state_dict of tensors."
        )
    if not looks_like_paper(content):
        raise CheckpointError(
            f"{path}: not a SpikeModel of the paper's code, whose tensors are named model....pool.weight. "
            "Train with the code's --spike option; without it, it trains an ordinary network."
        )
    parallel = all(name.startswith("module.") for name in content)
    return {name.removeprefix("module.") if parallel else name: value for name, value in content.items()}


def class_count(arch: str, state: Mapping[str, Tensor]) -> int:
    """Return the number of rows of the last layer, or 10 if it is missing, which is reported later."""
    weight = state.get(f"model.{_readout_name(arch)}.conv.weight")
    return 10 if weight is None or weight.dim() == 0 else weight.shape[0]


def mpbn_kind(arch: str, state: Mapping[str, Tensor]) -> str:
    """Return `channel`, or `none` if no neuron in the file has a batch norm (the paper's baseline)."""
    with torch.device("meta"):
        body = ARCHITECTURES[PAPER_ARCHITECTURES[arch]](INPUT_SHAPE, classes=10)
    names = paper_names(body, arch)
    return "channel" if any(names[name] in state for name in names if ".mpbn." in name) else "none"


def input_format(classes: int) -> InputFormat:
    """Return the format of raw pixels 0..255, normalized as the paper's code does after division by 255."""
    _, mean, deviation = PAPER_DATASETS[classes]
    return byte_format(INPUT_SHAPE, mean, deviation)


def either(values: Iterable[Any]) -> str:
    """Return 'a, b or c'."""
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}"


def paper_names(body: nn.Module, arch: str) -> dict[str, str]:
    """Map the name of every tensor of a body to its name in the paper's code."""
    names: dict[str, str] = {}
    for path, module in body.named_modules():
        if wrapper := WRAPPERS.get(type(module)):
            layer = _paper_layer(body, path.removesuffix(".mpbn.bn"), arch)
            names |= {f"{path}.{key}": f"model.{layer}.{wrapper}.{key}" for key in module.state_dict()}
    return names


def _readout_name(arch: str) -> str:
    return "classifier" if arch == "paper:VGG16" else "fc"


def _paper_layer(body: nn.Module, path: str, arch: str) -> str:
    match path.split("."):
        case ["readout"]:
            return _readout_name(arch)
        case [layer] if arch in SEQUENTIAL_STEMS:
            return f"{SEQUENTIAL_STEMS[arch]}.{_position(body, layer)}"
        case [layer]:
            return STEM[layer]
        case [stage, number, "shortcut", layer]:
            shortcut = body.get_submodule(f"{stage}.{number}.shortcut")
            return f"{stage}.{number}.downsample.{_position(shortcut, layer)}"
        case [stage, number, layer]:
            return f"{stage}.{number}.{BLOCK[layer]}"
    raise AssertionError(f"{path}: not a layer of the paper's networks")


def _position(parent: nn.Module, child: str) -> int:
    return [name for name, _ in parent.named_children()].index(child)
