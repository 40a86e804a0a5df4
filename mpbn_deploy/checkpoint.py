"""model.pt: what it holds, and how it is read without running any code.

A dictionary, written by torch.save and read with `weights_only=True`:

    format, version     "mpbn_deploy.model", 1
    architecture        name in the zoo, or package.module:factory
    arguments           keyword arguments of that function
    timesteps           how many steps the network was trained for
    input               shape, minimum, maximum, mean, deviation
    class_names         one per output
    training            a record of how it was trained
    state_dict          the parameters and buffers of the body

Checkpoints of the paper's own code, which hold tensors only, are read too: see zoo/paper.py.
"""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .errors import CheckpointError, NetworkError, OptionError, did_you_mean
from .files import write_atomically
from .float_ir import InputFormat
from .nn import ModelCard, SpikingNetwork
from .zoo import ARCHITECTURES, Architecture, paper

FORMAT = "mpbn_deploy.model"
VERSION = 1
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
LARGEST_FILE = 4 * 2**30


def save_model(path: str | Path, network: SpikingNetwork) -> None:
    """Write a network to model.pt; its card says how the body is built again."""
    if network.card is None:
        raise OptionError("save_model: the network has no ModelCard, so nobody could build its body again.")
    card, given = network.card, network.input_format
    if card.architecture not in ARCHITECTURES and ":" not in card.architecture:
        raise OptionError(
            f"save_model: architecture {card.architecture!r}; package.module:factory is needed."
        )
    _plain_arguments("save_model", card.arguments)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": card.architecture,
        "arguments": {k: list(v) if isinstance(v, tuple) else v for k, v in card.arguments.items()},
        "timesteps": network.timesteps,
        "input": {
            "shape": list(given.shape),
            "minimum": given.minimum,
            "maximum": given.maximum,
            "mean": given.mean.tolist(),
            "deviation": given.deviation.tolist(),
        },
        "class_names": list(card.class_names),
        "training": dict(card.training),
        "state_dict": {name: tensor.cpu().contiguous() for name, tensor in network.body.state_dict().items()},
    }
    # Through memory, because torch puts the name of the file into its bytes.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(Path(path), buffer.getvalue())


def load_model(path: str | Path, arch: str | None = None, timesteps: int | None = None) -> SpikingNetwork:
    """Read model.pt into a network in evaluation mode.

    `arch` overrides the architecture that the file names, and is the only way in which code
    outside of this package is imported. `timesteps` overrides the number of time steps.

    With `arch="paper:res20m"` (or res19, res20, VGG16) and `timesteps`, the file is a checkpoint of
    the paper's own code. The network takes raw pixels: what it says of them is what theirs says of
    (pixels / 255 - mean) / deviation, with the mean and deviation in their code.
    """
    content = read_plain(Path(path))
    if arch is not None and arch.startswith(paper.PREFIX):
        return _load_paper(path, content, arch, timesteps)
    _check_content(path, content)
    name = _allowed_architecture(path, content["architecture"], arch)
    card = ModelCard(
        architecture=name,
        arguments=_plain_arguments(path, content["arguments"]),
        class_names=tuple(map(str, content["class_names"])),
        training=content["training"],
    )
    network = SpikingNetwork(
        _build_with_state(path, card, content["state_dict"]),
        timesteps=content["timesteps"] if timesteps is None else timesteps,
        input_format=_input_format(path, content["input"]),
        card=card,
    )
    return network.eval()


def _load_paper(
    path: str | Path, content: dict[str, Any], arch: str, timesteps: int | None
) -> SpikingNetwork:
    """A checkpoint of the paper's code as a network of our zoo, which save_model can write."""
    if arch not in paper.PAPER_ARCHITECTURES:
        raise OptionError(f"no architecture {arch!r}. {did_you_mean(arch, paper.PAPER_ARCHITECTURES)}")
    if timesteps is None:
        raise OptionError(
            f"{path}: checkpoints of the paper's code do not say their steps; give --timesteps."
        )
    state = _paper_state(path, content)
    classes = paper.classes_of(arch, state)
    if classes not in paper.DATA:
        raise CheckpointError(f"{path}: {classes} classes; the paper's code has {_either(paper.DATA)}.")
    card = ModelCard(
        architecture=paper.PAPER_ARCHITECTURES[arch],
        arguments={
            "input_shape": paper.INPUT_SHAPE,
            "classes": classes,
            "mpbn": paper.mpbn_of(arch, state),
            "surrogate": "tanh",
        },
        training={"data": paper.DATA[classes][0], "source": arch},
    )
    network = SpikingNetwork(
        _build_with_state(path, card, state, names=partial(paper.their_names, arch=arch)),
        timesteps=timesteps,
        input_format=paper.input_format(classes),
        card=card,
    )
    return network.eval()


def build_body(architecture: str, arguments: dict[str, Any]) -> nn.Module:
    """Call the function that an architecture's name stands for."""
    function = ARCHITECTURES.get(architecture) or _import_factory(architecture)
    try:
        inspect.signature(function).bind(**arguments)
    except (TypeError, ValueError) as error:
        given = ", ".join(arguments) or "nothing"
        raise OptionError(f"architecture {architecture!r}: {error}; it is called with {given}.") from error
    try:
        body = function(**arguments)
    except OptionError as error:
        raise OptionError(f"architecture {architecture!r}: {error}") from error
    except (Exception, SystemExit) as error:  # a file's arguments, somebody's function: may do anything
        reason = f"{type(error).__name__}: {error}"
        raise OptionError(
            f"architecture {architecture!r} cannot be built with {arguments}: {reason}"
        ) from error
    if not isinstance(body, nn.Module):
        raise OptionError(f"{architecture} gave a {type(body).__name__}; a torch.nn.Module is needed.")
    return body


def _import_factory(name: str) -> Architecture:
    """The function `package.module:factory`; importing it runs that package's code."""
    module_name, separator, attribute = name.partition(":")
    if not separator:
        known = did_you_mean(name, ARCHITECTURES)
        raise OptionError(f"no architecture named {name!r}. {known} Your own: package.module:factory.")
    try:
        factory = getattr(import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # importing runs somebody's code, which may do anything
        reason = f"{type(error).__name__}: {error}"
        raise OptionError(f"architecture {name!r} cannot be imported ({reason}).") from error
    if not callable(factory):
        raise OptionError(f"architecture {name!r} is not a function, but a {type(factory).__name__}.")
    return factory  # type: ignore[no-any-return]


def _allowed_architecture(path: str | Path, named: str, asked: str | None) -> str:
    """A file may name a network of our zoo; code from elsewhere the user must name himself."""
    if asked is not None:
        return asked
    if named in ARCHITECTURES:
        return named
    if ":" in named:
        raise CheckpointError(
            f"{path}: its network is built by {named!r}, which is not part of this package. Importing it "
            f"runs its code; if you trust it, say so with --arch {named}"
        )
    raise CheckpointError(f"{path}: no architecture named {named!r}. {did_you_mean(named, ARCHITECTURES)}")


def read_plain(path: Path) -> dict[str, Any]:
    """The dictionary that a file of torch.save holds, if it holds numbers and plain values only."""
    if not path.is_file():
        raise CheckpointError(f"{path}: {'not a file' if path.exists() else 'no such file'}.")
    if path.stat().st_size > LARGEST_FILE:
        raise CheckpointError(f"{path}: {path.stat().st_size} bytes; at most {LARGEST_FILE} are read.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle protocols, in files that are refused anyway
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile file makes the reader do
        raise CheckpointError(_unreadable(path, str(error))) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a checkpoint of mpbn_deploy, but a {type(content).__name__}.")
    return content


def _check_content(path: str | Path, content: dict[str, Any]) -> None:
    if paper.looks_like_paper(content):
        raise CheckpointError(
            f"{path}: looks like a checkpoint of the paper's code; say which network with --arch "
            f"{_either(paper.PAPER_ARCHITECTURES)}, and --timesteps."
        )
    if content and all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(
            f"{path}: a bare state_dict; save the network with mpbn_deploy.checkpoint.save_model."
        )
    if problems := _key_problems(content, KEYS):
        raise CheckpointError(f"{path}: not a checkpoint of mpbn_deploy:\n  - " + "\n  - ".join(problems))
    if content["format"] != FORMAT or content["version"] != VERSION:
        found = f"{content['format']!r} version {content['version']}"
        raise CheckpointError(f"{path}: format {found}; this release reads {FORMAT!r} version {VERSION}.")


def _paper_state(path: str | Path, content: dict[Any, Any]) -> dict[str, Tensor]:
    """The tensors of a SpikeModel, under the names that they have in it."""
    if content.get("format") == FORMAT:
        raise CheckpointError(
            f"{path}: not of the paper's code, but of mpbn_deploy; leave --arch paper: out."
        )
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()):
        raise CheckpointError(f"{path}: not of the paper's code, which saves a bare state_dict of tensors.")
    if not paper.looks_like_paper(content):
        raise CheckpointError(
            f"{path}: no SpikeModel of the paper's code, whose tensors are called model....pool.weight. "
            "Was it trained with --spike? Without, the code trains an ordinary network."
        )
    return paper.without_parallel(content)


def _either(values: Iterable[Any]) -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}"


def _unreadable(path: Path, reason: str) -> str:
    """Never torch's own words, which advise to read the file in the way that runs code."""
    with path.open("rb") as file:
        is_pickle = file.read(1) == b"\x80"
    if is_pickle or "Unsupported global" in reason or "Unsupported class" in reason:
        return f"{path}: holds more than numbers and plain values; refused, reading it would run code."
    return f"{path}: not a checkpoint, or a damaged one. Write one with python -m mpbn_deploy.train."


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
    """Arguments as the zoo's functions take them: numbers, words, or tuples of them."""
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    wrong = [key for key, value in plain.items() if not _is_plain(value)]
    if wrong:
        raise CheckpointError(
            f"{path}: arguments {', '.join(wrong)} are not numbers, words or lists of them."
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


def _own_names(body: nn.Module) -> dict[str, str]:
    return {name: name for name in body.state_dict()}


def _build_with_state(
    path: str | Path,
    card: ModelCard,
    state: dict[str, Any],
    names: Callable[[nn.Module], dict[str, str]] = _own_names,
) -> nn.Module:
    """The body with the file's tensors. Built on torch's meta device, so absurd sizes take no memory.

    `names` says what the file calls the body's tensors; messages name them as the file does.
    """
    not_tensors = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if not_tensors:
        raise CheckpointError(f"{path}: state_dict entries {not_tensors[:5]} are not tensors.")
    hollow = [name for name, tensor in state.items() if _is_hollow(tensor)]
    if hollow:
        raise CheckpointError(
            f"{path}: state_dict entries {hollow[:5]} claim more numbers than the file holds."
        )
    with torch.device("meta"):
        body = build_body(card.architecture, card.arguments)
    in_file = names(body)
    problems = _state_problems({in_file[name]: value for name, value in body.state_dict().items()}, state)
    if problems:
        more = [f"and {len(problems) - 12} more"] if len(problems) > 12 else []
        listed = "\n  - ".join([*problems[:12], *more])
        raise CheckpointError(f"{path}: does not fit the network {card.architecture!r}:\n  - {listed}")
    body.load_state_dict({name: state[found] for name, found in in_file.items()}, assign=True)
    return body


def _is_hollow(tensor: Tensor) -> bool:
    """Whether a tensor of few stored numbers poses, by strides of zero, as a large one."""
    return (
        tensor.layout != torch.strided
        or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes()
    )


def _state_problems(expected: dict[str, Tensor], state: dict[str, Tensor]) -> list[str]:
    problems = [f"missing {name}" for name in expected if name not in state]
    problems += [f"unknown {name}" for name in state if name not in expected]
    for name in expected.keys() & state.keys():
        found, wanted = state[name], expected[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            problems.append(
                f"{name}: {found.dtype} {tuple(found.shape)}; {wanted.dtype} {tuple(wanted.shape)} is needed"
            )
        elif bad := int((~torch.isfinite(found)).sum()):
            problems.append(f"{name}: {bad} of {found.numel()} values are NaN or infinite")
        elif name.endswith("running_var") and found.min() < 0:
            problems.append(f"{name}: a variance below zero")
    return sorted(problems)
