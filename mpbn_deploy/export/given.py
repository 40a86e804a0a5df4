"""What Python callers export: a torch module, and samples in memory.

    export(net, "loihi2", data=(x, y))

What a command line would state follows from the samples: the shape and the range of inputs, and how the
module's inputs follow from whole numbers. Time steps follow from the samples or the module, if either states
them.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..base import NetworkError, OptionError, announce, changed, record
from ..data import InMemory, LoadedPart, in_memory, parts_of
from ..formats.options import AUTO, ExportOptions
from ..ir import InputFormat, Shape
from ..nn import ModelCard, SpikingNetwork

# What people call the number of time steps.
NAMES_OF_STEPS = (
    "timesteps",
    "time_steps",
    "num_steps",
    "n_steps",
    "nsteps",
    "steps",
    "T",
    "STEPS",
    "NUM_STEPS",
)
BYTES = (0.0, 255.0)  # mean and deviation of bytes that were divided by 255


@record
class Parts:
    """Samples of data sets, to test and to calibrate with; None where there are none."""

    test: LoadedPart | None = None
    train: LoadedPart | None = None


@record
class Given:
    """A model to export: a file, or a module in memory; samples in memory are in `parts`."""

    model: Path | SpikingNetwork
    parts: Parts | None
    notes: tuple[str, ...] = ()  # on the samples

    @property
    def path(self) -> Path:
        """The file; the name of the class of a module."""
        return self.model if isinstance(self.model, Path) else Path(class_name(self.model))

    @property
    def file(self) -> Path | None:
        return self.model if isinstance(self.model, Path) else None

    def command(self, options: ExportOptions, target: str, out: Path | None) -> str:
        """Return what to type for an export with these options: a command, or a call."""
        if self.file is not None and self.parts is None:
            return options.command(self.file, target, out)
        usual = ExportOptions()
        kept = ("data", "calibration") if self.parts is not None else ()
        changes = {
            name: getattr(options, name)
            for name in ExportOptions.declared
            if name not in kept and getattr(options, name) != getattr(usual, name)
        }
        where = {} if out is None else {"out": str(out)}
        words = [f"{name}={value!r}" for name, value in {**where, **changes}.items()]
        data = ["data=..."] if self.parts is not None else []
        return f"export({', '.join([self.path.stem, repr(target), *data, *words])})"


def taken(
    model: str | Path | nn.Module, data: Any, calibration: Any, options: ExportOptions
) -> tuple[Given, ExportOptions]:
    """Return the model, with samples that are in memory, and options that name them."""
    asked = {"data": data} if data is not None else {}
    asked |= {} if isinstance(calibration, str) and calibration == AUTO else {"calibration": calibration}
    named = {key: None if value is None else str(value) for key, value in asked.items() if _is_name(value)}
    options = changed(options, ExportOptions, named)
    samples = None
    if not _is_name(data):
        samples = in_memory(data, None if _is_name(calibration) else calibration)
        options = replace(options, data=samples.own.name)
    elif not _is_name(calibration):
        raise OptionError("calibration samples in memory go with data in memory: give data=(x, y), too.")
    parts = None if samples is None else Parts(**parts_of(samples.own))
    notes = () if samples is None or samples.note is None else (samples.note,)
    if isinstance(model, (str, Path)):
        _check_raw(str(model), samples)
        return Given(model=Path(model), parts=parts), options
    network = spiking_network(model, samples, options)
    return Given(model=network, parts=parts, notes=notes), options


def _check_raw(name: str, samples: InMemory | None) -> None:
    """Raise if samples are not the whole numbers that a network takes which normalizes them itself."""
    if samples is None or samples.scaling.identity or samples.scaling.numbers == BYTES:
        return
    raise OptionError(
        f"{name}: takes whole numbers and normalizes them itself, but the samples hold fractions. Give the "
        "raw values, before they were scaled or normalized."
    )


def _is_name(value: Any) -> bool:
    """Whether data are named as on the command line, or left to the model."""
    return value is None or isinstance(value, (str, Path))


def spiking_network(module: nn.Module, samples: InMemory | None, options: ExportOptions) -> SpikingNetwork:
    """Return a copy of a module as a network that takes whole numbers; what it infers is announced."""
    body = copy_of(module)
    if isinstance(body, SpikingNetwork):
        _check_raw(class_name(body), samples)
        if options.timesteps is not None:
            body.timesteps = options.timesteps
        return body.eval()
    name = class_name(module)
    if samples is None:
        raise OptionError(
            f"{name}: a torch module does not say what it takes; add data=(x, y): arrays, tensors, a Dataset "
            "or a DataLoader, such as it was trained on."
        )
    shape, frames = _shape(body, samples, options)
    timesteps = _timesteps(body, frames, options)
    numbers = options.normalize or samples.scaling.numbers
    lowest, highest = options.input_range or (samples.lowest, samples.highest)
    scaled = "" if numbers == (0.0, 1.0) else f", which the module gets as {_formula(numbers)}"
    announce(
        f"note: {name}: inputs of shape {shape}, whole numbers {lowest}..{highest}{scaled}; "
        f"time steps: {timesteps}"
    )
    half = len(numbers) // 2
    try:
        given = InputFormat(
            shape=shape,
            minimum=lowest,
            maximum=highest,
            mean=np.array(numbers[:half]),
            deviation=np.array(numbers[half:]),
        )
    except NetworkError as error:
        raise OptionError(f"{name}: input {'; '.join(error.problems)}.") from error
    card = ModelCard(architecture=name, training={"source": "torch module"})
    return SpikingNetwork(body, timesteps=timesteps, input_format=given, card=card).eval()


def copy_of(module: nn.Module) -> nn.Module:
    """Return a copy with states of its own, so that an export changes nothing of the caller's.

    States of an earlier run hang on its gradients, and torch copies no such tensor.
    """
    states = (tensor for part in module.modules() for tensor in _tensors(vars(part)))
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in states if not each.is_leaf})


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested dictionaries and lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(each)


def class_name(module: nn.Module) -> str:
    """Return the name of the network's class: that of the body, where we wrapped it."""
    if isinstance(module, SpikingNetwork):
        return module.card.architecture.rpartition(":")[2] if module.card else class_name(module.body)
    return type(module).__name__


def _formula(numbers: tuple[float, ...]) -> str:
    """Return '(n - 0) / 255', or with a list of one number per channel."""
    half = len(numbers) // 2
    mean, deviation = (
        f"{part[0]:.6g}" if half == 1 else f"[{', '.join(f'{each:.4g}' for each in part)}]"
        for part in (numbers[:half], numbers[half:])
    )
    return f"(n - {mean}) / {deviation}"


def _shape(body: nn.Module, samples: InMemory, options: ExportOptions) -> tuple[Shape, int | None]:
    """Return the shape of one time step, as the first weights take it, and the number of frames."""
    part = next(iter(samples.own.parts.values()))
    sample = tuple(part.inputs.shape[1:])
    if options.input_shape is not None:
        shape = options.input_shape
        return shape, sample[0] if sample[1:] == shape else None
    first = next(
        (each for each in body.modules() if isinstance(each, (nn.Linear, nn.modules.conv._ConvNd))), None
    )
    if isinstance(first, nn.Conv2d):
        if len(sample) == 4:
            return sample[1:], sample[0]
        if len(sample) == 3 and sample[0] != first.in_channels == 1:
            return (1, *sample[1:]), sample[0]
        return (1, *sample) if len(sample) == 2 else sample, None
    if isinstance(first, nn.Linear):
        if prod(sample) == first.in_features:
            return (first.in_features,), None
        if prod(sample[1:]) == first.in_features:
            return (first.in_features,), sample[0]
    return sample, None


def _timesteps(body: nn.Module, frames: int | None, options: ExportOptions) -> int:
    """Return the time steps that were asked for, that samples have, or that the module names."""
    found = {value for _, value in _named_steps(body)}
    if options.timesteps is not None:
        return options.timesteps
    if frames is not None:
        return frames
    if len(found) == 1:
        return found.pop()
    listed = ", ".join(f"{name} {value}" for name, value in _named_steps(body)) or "nothing that names them"
    raise OptionError(
        f"{class_name(body)}: for how many time steps each sample is shown is not known ({listed}); add "
        "timesteps=N, or samples with an axis of time."
    )


def _named_steps(body: nn.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of time steps, and their values, in attributes and in globals that forward reads."""
    for part in body.modules():
        code = getattr(inspect.unwrap(type(part).forward), "__code__", None)
        seen = getattr(inspect.unwrap(type(part).forward), "__globals__", {})
        read = {name: seen.get(name) for name in (code.co_names if code else ())}
        for name in NAMES_OF_STEPS:
            value = vars(part).get(
                name, None if type(part).__module__.startswith("torch.") else read.get(name)
            )
            if type(value) is int and value > 0:
                yield name, value
