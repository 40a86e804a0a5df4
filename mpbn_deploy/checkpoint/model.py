"""The format of model.pt, and how it is written and read.

The file holds a dictionary, written by torch.save and read without running code (safe_reading.py):

    format, version     "mpbn_deploy.model", 1
    architecture        name in the zoo, "quantized", or package.module:factory
    arguments           keyword arguments of that function
    timesteps           time steps the network was trained with
    input               shape, minimum, maximum, mean, deviation
    class_names         one per output
    training            a record of how it was trained
    state_dict          the parameters and buffers of the body; weights may be in half precision,
                        and those of trained integers their mantissas

model.safetensors holds the same: the state_dict as its tensors, the rest as JSON in its metadata.
Bare state_dicts of other tools (state.py) and checkpoints of the paper's own code, which hold only tensors
(architectures.py), are read as well.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base import CheckpointError, NetworkError, OptionError, did_you_mean, one_line, write_atomically
from ..ir import Input, InputFormat
from ..nn import ModelCard, SpikingNetwork
from ..quantize import QUANTIZED, QuantizedBody, QuantizedSynapse
from . import architectures
from .architectures import allowed_architecture, built_in_factory
from .safe_reading import SUFFIX, read_safely, read_safetensors, safetensors_bytes
from .state import InputFacts, build_with_state, find_state, load_bare

FORMAT = "mpbn_deploy.model"
VERSION = 1
TRAINING_FORMAT = "mpbn_deploy.training"  # of the file that an interrupted training goes on from
KEYS = {
    "format": str,
    "version": int,
    "architecture": str,
    "arguments": dict,
    "timesteps": int,
    "input": dict,
    "class_names": list,
    "training": dict,
    "state_dict": dict,
}
INPUT_KEYS = {"shape": list, "minimum": int, "maximum": int, "mean": list, "deviation": list}


# ---- writing ----------------------------------------------------------------------------------


def save_model(path: str | Path, network: SpikingNetwork, *, half: bool = False) -> None:
    """Write a network to model.pt or model.safetensors; its card says how to build the body again.

    `half` rounds the weights of convolutions and dense layers to float16, which halves the file; norms keep
    all their bits. Of trained integers it stores the integers, in a byte each, and not the fractions that
    they were rounded from.
    """
    if network.card is None:
        raise OptionError("save_model: the network has no ModelCard, so its body could not be built again.")
    card, given = network.card, network.input_format
    if built_in_factory(card.architecture) is None and ":" not in card.architecture:
        raise OptionError(
            f"save_model: architecture {card.architecture!r} is not in the zoo; "
            "package.module:factory is needed."
        )
    _plain_arguments("save_model", card.arguments)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": card.architecture,
        "arguments": {k: list(v) if isinstance(v, (tuple, list)) else v for k, v in card.arguments.items()},
        "timesteps": network.timesteps,
        "input": {
            "shape": list(given.shape),
            "minimum": given.minimum,
            "maximum": given.maximum,
            "mean": given.mean.tolist(),
            "deviation": given.deviation.tolist(),
        },
        "class_names": list(card.class_names),
        "training": _unshared(dict(card.training)),
        "state_dict": _stored(network.body, half),
    }
    if Path(path).suffix == SUFFIX:
        write_atomically(Path(path), safetensors_bytes(content))
        return
    # To a buffer first, because torch stores the name of the file it writes.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(Path(path), buffer.getvalue())


def _stored(body: nn.Module, half: bool) -> dict[str, Tensor]:
    """Return the body's tensors as the file holds them."""
    short = _short_weights(body) if half else {}
    return {name: short.get(name, tensor).cpu().contiguous() for name, tensor in body.state_dict().items()}


def _short_weights(body: nn.Module) -> dict[str, Tensor]:
    """Return weights in half precision, and those of trained integers as these integers."""
    found = {}
    for path, module in body.named_modules():
        if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
            found[f"{path}.weight"] = module.weight.half()
        elif isinstance(module, QuantizedSynapse):
            mantissa = module.mantissa().detach()
            bytes_do = bool((mantissa == mantissa.to(torch.int8)).all())
            found[f"{path}.weight"] = mantissa.to(torch.int8 if bytes_do else torch.int16)
    return found


def _unshared(value: Any) -> Any:
    """Copy nested lists and dictionaries: read_safely rejects a container that occurs twice."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_unshared, value))
    return value


# ---- reading ----------------------------------------------------------------------------------


def load_model(
    path: str | Path,
    arch: str | None = None,
    timesteps: int | None = None,
    *,
    inputs: InputFacts | None = None,
) -> SpikingNetwork:
    """Read model.pt or model.safetensors into a network in evaluation mode.

    `arch` overrides the architecture in the file; it is the only way to import code from outside this
    package. `timesteps` overrides the number of time steps; integers keep the number they were trained for.

    With `arch="paper:res20m"` (or res19, res20, VGG16) and `timesteps`, the file is a checkpoint of the
    paper's own code. The network then takes raw pixels: it includes the normalization
    (pixels / 255 - mean) / deviation of the paper's data loader.

    A bare state_dict of any tool is read with `arch`, `timesteps` and `inputs`.
    """
    content = _read(Path(path))
    state = None if "format" in content else find_state(path, content)
    if arch is not None and arch.startswith(architectures.PREFIX):
        if inputs is not None and inputs.given:
            raise OptionError(
                f"{path}: {inputs.given[0]} does not apply to checkpoints of the paper's own code, whose "
                "inputs are known."
            )
        return _load_paper(path, content, arch, timesteps)
    if state is not None and not (arch is None and architectures.looks_like_paper(content)):
        return load_bare(path, content, state, arch, timesteps, inputs or InputFacts())
    if inputs is not None and inputs.given:
        raise OptionError(
            f"{path}: {inputs.given[0]} applies to NIR files and bare state_dicts only; a checkpoint states "
            "it itself."
        )
    _check_content(path, content)
    _check_timesteps(path, content, timesteps)
    name = allowed_architecture(path, content["architecture"], arch)
    card = ModelCard(
        architecture=name,
        arguments=_plain_arguments(path, content["arguments"]),
        class_names=tuple(one_line(str(name)) for name in content["class_names"]),
        training=content["training"],
    )
    network = SpikingNetwork(
        build_with_state(path, card, content["state_dict"]),
        timesteps=content["timesteps"] if timesteps is None else timesteps,
        input_format=_input_format(path, content["input"]),
        card=card,
    )
    if isinstance(network.body, QuantizedBody):
        _check_inputs(path, network.input_format, network.body.source.neuron)
    return network.eval()


def _check_inputs(path: str | Path, given: InputFormat, taken: Input) -> None:
    """Raise if the integers of a network take other inputs than its module gives them."""
    values = given.minimum - taken.offset, given.maximum - taken.offset
    normalized = (given.mean != taken.offset).any() or (given.deviation != 1).any()
    if normalized or values != (taken.minimum, taken.maximum):
        raise CheckpointError(
            f"{path}: its module takes (x - {given.mean[0]:g}) / {given.deviation[0]:g} for inputs x of "
            f"{given.minimum}..{given.maximum}, but its integers take x - {taken.offset} of {taken.minimum}.."
            f"{taken.maximum}; the file contradicts itself. Repeat train --quantize."
        )


def _read(path: Path) -> dict[str, Any]:
    return read_safetensors(path) if path.suffix == SUFFIX else read_safely(path)


def _load_paper(
    path: str | Path, content: dict[str, Any], arch: str, timesteps: int | None
) -> SpikingNetwork:
    """Load a checkpoint of the paper's code as a network of the zoo, which save_model can write."""
    if arch not in architectures.PAPER_ARCHITECTURES:
        raise OptionError(
            f"no architecture {arch!r}. {did_you_mean(arch, architectures.PAPER_ARCHITECTURES)}"
        )
    if timesteps is None:
        raise OptionError(
            f"{path}: checkpoints of the paper's code do not store the number of time steps; add --timesteps."
        )
    if content.get("format") == FORMAT:
        raise CheckpointError(
            f"{path}: a checkpoint of mpbn_deploy, not of the paper's code; drop --arch {arch}."
        )
    state = architectures.paper_state(path, content)
    classes = architectures.class_count(arch, state)
    if classes not in architectures.PAPER_DATASETS:
        known = architectures.either(architectures.PAPER_DATASETS)
        raise CheckpointError(f"{path}: {classes} classes; networks of the paper's code have {known}.")
    card = ModelCard(
        architecture=architectures.PAPER_ARCHITECTURES[arch],
        arguments={
            "input_shape": architectures.INPUT_SHAPE,
            "classes": classes,
            "mpbn": architectures.mpbn_kind(arch, state),
            "surrogate": "tanh",
        },
        training={"data": architectures.PAPER_DATASETS[classes][0], "source": arch},
    )
    network = SpikingNetwork(
        build_with_state(path, card, state, names=partial(architectures.paper_names, arch=arch)),
        timesteps=timesteps,
        input_format=architectures.input_format(classes),
        card=card,
    )
    return network.eval()


def _check_timesteps(path: str | Path, content: dict[str, Any], timesteps: int | None) -> None:
    """Raise if integers chosen by training are asked to run for another number of time steps."""
    trained = content["timesteps"]
    if content["architecture"] == QUANTIZED and timesteps not in (None, trained):
        raise OptionError(
            f"{path}: --timesteps {timesteps}, but its integers were trained, and proved not to overflow, "
            f"for {trained} time steps. Drop --timesteps."
        )


def _check_content(path: str | Path, content: dict[str, Any]) -> None:
    if architectures.looks_like_paper(content):
        raise CheckpointError(
            f"{path}: looks like a checkpoint of the paper's code; name its network with --arch "
            f"{architectures.either(architectures.PAPER_ARCHITECTURES)}, and add --timesteps."
        )
    if content.get("format") == TRAINING_FORMAT:
        raise CheckpointError(
            f"{path}: the state of an interrupted training. The network is in the .pt beside it; `train "
            "--resume` goes on."
        )
    if problems := _key_problems(content, KEYS):
        raise CheckpointError(f"{path}: not a checkpoint of mpbn_deploy:\n  - " + "\n  - ".join(problems))
    if content["format"] != FORMAT or content["version"] != VERSION:
        found = f"{content['format']!r} version {content['version']}"
        raise CheckpointError(f"{path}: format {found}; this release reads {FORMAT!r} version {VERSION}.")


def _key_problems(content: dict[str, Any], keys: dict[str, type]) -> list[str]:
    problems = [f"missing key {key!r}" for key in keys if key not in content]
    problems += [f"unknown key {key!r}" for key in content if key not in keys]
    problems += [
        f"{key!r} is of type {type(content[key]).__name__}; {kind.__name__} is needed"
        for key, kind in keys.items()
        if key in content and (not isinstance(content[key], kind) or isinstance(content[key], bool))
    ]
    return problems


def _plain_arguments(path: str | Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with lists as tuples; only numbers, strings and lists of them are allowed."""
    if unnamed := [key for key in arguments if not isinstance(key, str)]:
        raise CheckpointError(f"{path}: names of arguments must be strings; found {unnamed}.")
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    wrong = [key for key, value in plain.items() if not _is_plain(value)]
    if wrong:
        raise CheckpointError(
            f"{path}: arguments {', '.join(wrong)} are not numbers, strings or lists of them."
        )
    return plain


def _is_plain(value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(each, (int, float, str, type(None))) for each in values)


def _input_format(path: str | Path, content: dict[str, Any]) -> InputFormat:
    if problems := _key_problems(content, INPUT_KEYS):
        raise CheckpointError(f"{path}: input format: {'; '.join(problems)}.")
    try:
        return InputFormat(**content)
    except NetworkError as error:
        raise CheckpointError(f"{path}: {error}") from error


# The trained networks that ship with this package (examples/models).


def example_models() -> dict[str, Path]:
    """Return the checkpoint of every trained network that ships with this package, by name."""
    return {path.stem: path for path in sorted(_folder().glob("*.pt"))}


def example_model(name: str) -> Path:
    """Return the checkpoint of one of them."""
    known = example_models()
    if name not in known:
        raise OptionError(f"no example model {name!r}. {did_you_mean(name, known)}")
    return known[name]


def _folder() -> Path:
    """Return the folder of models: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "example_models"
    return inside if inside.is_dir() else package.parent / "examples" / "models"
