"""model.pt: what it holds, and how it is read without running any code.

A dictionary, written by torch.save and read with `weights_only=True`:

    format, version     "mpbn_deploy.model", 1
    architecture        name in the zoo, "quantized", or package.module:factory
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
import reprlib
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base import (
    CONTAINER,
    RESULT,
    TUPLE,
    CheckpointError,
    ForeignNameError,
    NetworkError,
    OptionError,
    Rules,
    TrapError,
    did_you_mean,
    refuse_traps,
    write_atomically,
)
from ..ir import InputFormat
from ..nn import ModelCard, SpikingNetwork
from ..nn.zoo import ARCHITECTURES, Architecture
from ..quantize import QUANTIZED, QuantizedBody
from . import paper

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
# What torch.save writes for dictionaries, lists, texts, numbers and tensors.
OPCODES = """
    PROTO STOP MARK BINPUT LONG_BINPUT BINGET LONG_BINGET NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1
    BINFLOAT BINUNICODE SHORT_BINSTRING EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS
    EMPTY_DICT SETITEM SETITEMS GLOBAL REDUCE BUILD BINPERSID
"""
STORAGES = {
    "torch BoolStorage": torch.bool,
    "torch ByteStorage": torch.uint8,
    "torch CharStorage": torch.int8,
    "torch ShortStorage": torch.int16,
    "torch IntStorage": torch.int32,
    "torch LongStorage": torch.int64,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch FloatStorage": torch.float32,
    "torch DoubleStorage": torch.float64,
    "torch ComplexFloatStorage": torch.complex64,
    "torch ComplexDoubleStorage": torch.complex128,
}
RULES = Rules(
    opcodes=frozenset(OPCODES.split()),
    builds=CONTAINER,  # an OrderedDict, whose state is the _metadata of a state_dict
    names={
        "collections OrderedDict": CONTAINER,
        "torch Size": TUPLE,
        "torch._utils _rebuild_tensor_v2": RESULT,
        "torch._utils _rebuild_parameter": RESULT,
        **dict.fromkeys(STORAGES, RESULT),
        **{str(dtype).replace(".", " "): RESULT for dtype in STORAGES.values()},
    },
)
MAGIC_BEFORE_TORCH_1_6 = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"


def save_model(path: str | Path, network: SpikingNetwork) -> None:
    """Write a network to model.pt; its card says how the body is built again."""
    if network.card is None:
        raise OptionError("save_model: the network has no ModelCard, so nobody could build its body again.")
    card, given = network.card, network.input_format
    if _builder(card.architecture) is None and ":" not in card.architecture:
        raise OptionError(
            f"save_model: architecture {card.architecture!r}; package.module:factory is needed."
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
        "state_dict": {name: tensor.cpu().contiguous() for name, tensor in network.body.state_dict().items()},
    }
    # Through memory, because torch puts the name of the file into its bytes.
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(Path(path), buffer.getvalue())


def _unshared(value: Any) -> Any:
    """The same values, with lists and dictionaries copied: read_plain refuses those that occur twice."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_unshared, value))
    return value


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
    function = _builder(architecture) or _import_factory(architecture)
    try:
        inspect.signature(function).bind(**arguments)
    except (TypeError, ValueError) as error:
        given = ", ".join(arguments) or "nothing"
        raise OptionError(
            f"architecture {architecture!r}: {error}; it is called with {given}, and must take them."
        ) from error
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


def _builder(architecture: str) -> Architecture | None:
    """The function of this package that a name stands for, if it does."""
    return QuantizedBody if architecture == QUANTIZED else ARCHITECTURES.get(architecture)


def _import_factory(name: str) -> Architecture:
    """The function `package.module:factory`; importing it runs that package's code."""
    if name.startswith(paper.PREFIX):
        ours = paper.PAPER_ARCHITECTURES.get(name, "resnet20")
        raise OptionError(
            f"architecture {name!r} reads a checkpoint of the paper's code; to train, say {ours!r}."
        )
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
    if named == QUANTIZED:
        return named  # whoever built the network before: its integers say all that there is
    if asked is not None:
        return asked
    if _builder(named) is not None:
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
        checked = _checked_archive(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whatever torch has to say of files that it refuses
            content: Any = torch.load(checked, map_location="cpu", weights_only=True)
    except ForeignNameError as error:
        raise CheckpointError(_runs_code(path, f" ({error})")) from error
    except TrapError as error:
        raise CheckpointError(
            f"{path}: {error}; numbers and plain values need no such thing. Refused."
        ) from error
    except Exception as error:  # whatever a damaged or hostile file makes the reader do
        raise CheckpointError(_unreadable(path)) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not a checkpoint of mpbn_deploy, but a {type(content).__name__}.")
    return content


def _checked_archive(path: Path) -> io.BytesIO:
    """The archive that a file of torch.save is, written anew once all in it is known to be harmless.

    Anew, because there are zip files in which torch's reader finds other parts than Python's.
    """
    checked = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(checked, "w") as copy:
        parts = archive.infolist()
        _refuse_packed_parts(parts, path.stat().st_size)
        folder = parts[0].filename.partition("/")[0]  # where torch looks, too
        storages = refuse_traps(archive.read(f"{folder}/data.pkl"), RULES)
        _refuse_hollow_storages(
            [
                (kind, archive.getinfo(f"{folder}/data/{key}").file_size, count)
                for _, kind, key, _, count in storages
            ]
        )
        for part in parts:
            copy.writestr(part.filename, archive.read(part))
    checked.seek(0)
    return checked


def _refuse_packed_parts(parts: list[zipfile.ZipInfo], size: int) -> None:
    """What is read takes no more memory than the file has bytes."""
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
        raise TrapError("a zip archive with compressed parts")
    if sum(max(part.file_size, part.compress_size) for part in parts) > size:
        raise TrapError(f"a zip archive whose parts claim more than the {size} bytes of the file")
    if len({part.filename.lower() for part in parts}) < len(parts):  # torch ignores case
        raise TrapError("a zip archive with two parts of one name")


def _refuse_hollow_storages(storages: list[tuple[str, int, Any]]) -> None:
    """Old releases of torch (2.3) believe how many numbers a part is said to hold, and read beyond it."""
    for kind, size, count in storages:
        if type(count) is not int or count * STORAGES[kind].itemsize != size:
            raise TrapError(f"{reprlib.repr(count)} numbers claimed of {size} bytes")


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


def _unreadable(path: Path) -> str:
    """Never torch's own words, which advise to read the file in the way that runs code."""
    with path.open("rb") as file:
        start = file.read(32)
    if MAGIC_BEFORE_TORCH_1_6 in start:
        return (
            f"{path}: in the format of torch before 1.6, which is not read. If you trust it, load it with a "
            "newer torch and save it again."
        )
    if start.startswith(b"\x80"):  # a pickle
        return _runs_code(path)
    return f"{path}: not a checkpoint, or a damaged one. Write one with python -m mpbn_deploy.train."


def _runs_code(path: Path, found: str = "") -> str:
    return f"{path}: holds more than numbers and plain values{found}; refused, reading it would run code."


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
    body = _build_without_memory(path, card)
    in_file = names(body)
    problems = _state_problems({in_file[name]: value for name, value in body.state_dict().items()}, state)
    if problems:
        more = [f"and {len(problems) - 12} more"] if len(problems) > 12 else []
        listed = "\n  - ".join([*problems[:12], *more])
        raise CheckpointError(f"{path}: does not fit the network {card.architecture!r}:\n  - {listed}")
    body.load_state_dict({name: state[found] for name, found in in_file.items()}, assign=True)
    return body


def _build_without_memory(path: str | Path, card: ModelCard) -> nn.Module:
    try:
        with torch.device("meta"):
            return build_body(card.architecture, card.arguments)
    except OptionError as error:
        if error.__cause__ is None or "meta tensor" not in str(error.__cause__):
            raise
        raise CheckpointError(
            f"{path}: {_module_being_made(error.__cause__)}, of the network {card.architecture!r}, looks at "
            "numbers while it is made; networks are made without memory here, and get their numbers from the "
            "file. Fold it in Python, and export what you get: "
            "write_nir(fold(trace(body, input_shape, timesteps)), 'model.nir') (docs/folding.md)."
        ) from error


def _module_being_made(error: BaseException) -> str:
    """The innermost module whose constructor an error comes from."""
    frames = [
        frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "__init__"
    ]
    made = [type(frame.f_locals.get("self")) for frame in frames]
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in made if issubclass(kind, nn.Module)]
    return names[-1] if names else "a function"


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
        elif name.endswith((".scale", ".width", ".quanta")) and found.min() <= 0:
            problems.append(f"{name}: a scale that is not above zero")
    return sorted(problems)
