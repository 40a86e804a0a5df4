"""Build the module that an architecture's name stands for.

A name is a network of the zoo, "quantized", or "package.module:factory" for a user's own code.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base import CheckpointError, OptionError, class_of, did_you_mean, import_function
from ..data import CIFAR10_PIXELS, CIFAR100_PIXELS, byte_format
from ..ir import InputFormat
from ..nn.zoo import ARCHITECTURES, Architecture
from ..quantize import QUANTIZED, QuantizedBody


def build_body(architecture: str, arguments: dict[str, Any]) -> nn.Module:
    """Build the body of a network from its architecture's name and keyword arguments."""
    built_in = built_in_factory(architecture)
    factory = built_in or _import_factory(architecture)
    try:
        inspect.signature(factory).bind(**arguments)
    except (TypeError, ValueError) as error:
        given = ", ".join(arguments) or "no arguments"
        raise OptionError(
            f"architecture {architecture!r}: {error}; it is called with {given} and must accept them. "
            "Write it as `def build(input_shape, classes, **neuron)`, and give **neuron to LIF."
        ) from error
    if built_in is not None and "width" in arguments and not accepted(architecture, {"width": None}):
        raise OptionError(f"architecture {architecture!r} has no width to choose; drop --width.")
    try:
        body = factory(**arguments)
    except OptionError as error:
        raise OptionError(f"architecture {architecture!r}: {error}") from error
    except (Exception, SystemExit) as error:  # a user's factory can raise anything
        reason = f"{type(error).__name__}: {error}"
        given = f" with {', '.join(f'{name}={value!r}' for name, value in arguments.items())}"
        raise OptionError(
            f"architecture {architecture!r} cannot be built{given if arguments else ''}: {reason}"
        ) from error
    if not isinstance(body, nn.Module):
        raise OptionError(
            f"architecture {architecture!r} returned {class_of(body)}; a torch.nn.Module is needed."
        )
    return body


def build_untrained(architecture: str, input_shape: Sequence[int], classes: int) -> nn.Module:
    """Build a body from its shape and number of classes, as far as its factory takes them."""
    offered = {"input_shape": tuple(input_shape), "classes": classes}
    return build_body(architecture, accepted(architecture, offered))


def accepted(
    architecture: str, offered: dict[str, Any], *, as_neuron_arguments: bool = False
) -> dict[str, Any]:
    """Return the arguments that the factory of an architecture takes.

    Those of neurons may also be meant by its `**neuron`.
    """
    factory = built_in_factory(architecture) or (
        _import_factory(architecture) if ":" in architecture else None
    )
    try:
        taken = inspect.signature(factory).parameters if factory is not None else {}
    except (TypeError, ValueError):  # of built-in functions
        taken = {}
    passed_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    if factory is None or (as_neuron_arguments and passed_on):
        return offered
    return {name: value for name, value in offered.items() if name in taken}


def built_in_factory(architecture: str) -> Architecture | None:
    """Return this package's factory of that name, or None if it has none."""
    return QuantizedBody if architecture == QUANTIZED else ARCHITECTURES.get(architecture)


def _import_factory(name: str) -> Architecture:
    """Import the function `package.module:factory`, which runs that package's code."""
    if name.startswith(PREFIX):
        ours = PAPER_ARCHITECTURES.get(name, "resnet20")
        raise OptionError(
            f"architecture {name!r} only reads checkpoints of the paper's code; train with --arch {ours}."
        )
    if ":" not in name:
        known = did_you_mean(name, ARCHITECTURES)
        module, _, function = name.rpartition(".")
        own = f"{module}:{function}" if module else "package.module:factory"
        raise OptionError(f"no architecture named {name!r}. {known} For your own, give {own}.")
    # torch warns that Triton is missing for each operation that SpikingJelly defines.
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
    return import_function(name, "architecture")


def allowed_architecture(path: str | Path, in_file: str, arch: str | None) -> str:
    """Return the architecture to build; a file alone cannot make other packages' code run."""
    if in_file == QUANTIZED:
        return in_file  # its integers are complete, so the factory of the original network is not needed
    if arch is not None:
        return arch
    if built_in_factory(in_file) is not None:
        return in_file
    if ":" in in_file:
        raise CheckpointError(
            f"{path}: its network is built by {in_file!r}, which is not part of this package. Importing it "
            f"runs its code; if you trust it, add --arch {in_file}"
        )
    raise CheckpointError(
        f"{path}: no architecture named {in_file!r}. {did_you_mean(in_file, ARCHITECTURES)}"
    )


# Map checkpoints of the paper's own code to networks of the zoo.
#
# Its `main_train.py` saves only the state dict of a `SpikeModel`. A layer keeps its name under `model.`,
# inside a wrapper whose attribute depends on the kind of layer:
#
#     ours                            theirs                                  wrapper
#     conv1.weight                    model.conv1.0.pool.weight               SpikePool.pool       (res20m)
#     layer1.0.norm1.running_mean     model.layer1.0.bn1.bn.running_mean      myBatchNorm3d.bn
#     layer1.0.lif2.mpbn.bn.weight    model.layer1.0.output_act.bn.weight     LIFAct.bn            the MPBN
#     layer2.0.shortcut.conv.weight   model.layer2.0.downsample.1.pool.weight SpikePool.pool
#     readout.bias                    model.fc.conv.bias                      SpikeConv.conv


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
