"""Read torch.save files without running code, and without using more memory than the file has bytes.

`torch.load(weights_only=True)` limits what a file may call. Before it runs, the archive and its pickle
are checked here for parts, storages and opcodes that could still exhaust memory or time.
"""

from __future__ import annotations

import io
import json
import reprlib
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base import (
    MANIFEST_FILE,
    CheckpointError,
    ForbiddenNameError,
    MissingPackageError,
    PickleKind,
    PickleRules,
    UnsafePickleError,
    check_pickle,
    class_of,
    similar_path,
)

LARGEST_FILE = 4 * 2**30
# The opcodes that torch.save writes for dictionaries, lists, strings, numbers and tensors.
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
RULES = PickleRules(
    opcodes=frozenset(OPCODES.split()),
    builds=PickleKind.CONTAINER,  # an OrderedDict, whose state is the _metadata of a state_dict
    names={
        "collections OrderedDict": PickleKind.CONTAINER,
        "torch Size": PickleKind.TUPLE,
        "torch._utils _rebuild_tensor_v2": PickleKind.RESULT,
        "torch._utils _rebuild_parameter": PickleKind.RESULT,
        **dict.fromkeys(STORAGES, PickleKind.RESULT),
        **{str(dtype).replace(".", " "): PickleKind.RESULT for dtype in STORAGES.values()},
    },
)
DATA = "a file of data, not a network. Name the network first, and the data with --data {path}"
NO_CHECKPOINTS = {  # by suffix
    ".npz": DATA,
    ".npy": DATA,
    ".py": "Python code, not weights. Name the file of the weights, and the code with --arch {name}:FUNCTION",
}
MAGIC_BEFORE_TORCH_1_6 = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"


def check_size(path: Path) -> None:
    """Raise CheckpointError if a file is too large to be read."""
    if (size := path.stat().st_size) > LARGEST_FILE:
        raise CheckpointError(f"{path}: {size} bytes; at most {LARGEST_FILE} are read.")


def read_safely(path: Path) -> dict[str, Any]:
    """Read the dictionary in a torch.save file that holds only tensors and plain values."""
    if not path.is_file():
        raise CheckpointError(f"{path}: {_not_a_file(path)}")
    if found := NO_CHECKPOINTS.get(path.suffix):
        raise CheckpointError(f"{path}: {found.format(name=path.stem, path=path)}")
    check_size(path)
    try:
        checked = _checked_archive(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about files that it then rejects
            content: Any = torch.load(checked, map_location="cpu", weights_only=True)
    except ForbiddenNameError as error:
        raise CheckpointError(_runs_code(path, f" ({error})")) from error
    except UnsafePickleError as error:
        raise CheckpointError(
            f"{path}: {error}; tensors and plain values never need that, so it is not loaded."
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # a damaged or hostile file can make the reader raise anything
        raise CheckpointError(_unreadable(path)) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path}: holds {class_of(content)}; a checkpoint of mpbn_deploy holds a dictionary."
        )
    return content


def _not_a_file(path: Path) -> str:
    if (path / MANIFEST_FILE).is_file():
        return (
            "an export folder already; run, verify, fit and report take it. To export again, name the model."
        )
    return "a folder, not a file." if path.exists() else f"no such file.{similar_path(path)}"


def _checked_archive(path: Path) -> io.BytesIO:
    """Check the zip archive that torch.save writes, and return a copy of it.

    The copy is needed because a crafted zip file can show torch's reader other parts than Python's.
    """
    checked = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(checked, "w") as copy:
        parts = archive.infolist()
        _check_parts(parts, path.stat().st_size)
        folder = parts[0].filename.partition("/")[0]  # where torch looks, too
        storages = check_pickle(archive.read(f"{folder}/data.pkl"), RULES)
        _check_storages(
            [
                (kind, archive.getinfo(f"{folder}/data/{key}").file_size, count)
                for _, kind, key, _, count in storages
            ]
        )
        for part in parts:
            copy.writestr(part.filename, archive.read(part))
    checked.seek(0)
    return checked


def _check_parts(parts: list[zipfile.ZipInfo], size: int) -> None:
    """Reject archives that would need more memory than the file has bytes."""
    if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
        raise UnsafePickleError("a zip archive with compressed parts")
    if sum(max(part.file_size, part.compress_size) for part in parts) > size:
        raise UnsafePickleError(f"a zip archive whose parts claim more than the {size} bytes of the file")
    if len({part.filename.lower() for part in parts}) < len(parts):  # torch ignores case
        raise UnsafePickleError("a zip archive with two parts of the same name")


def _check_storages(storages: list[tuple[str, int, Any]]) -> None:
    """Reject storages that claim a wrong length: torch 2.3 trusts it and reads past the end."""
    for kind, size, count in storages:
        if type(count) is not int or count * STORAGES[kind].itemsize != size:
            raise UnsafePickleError(f"a storage that claims {reprlib.repr(count)} numbers in {size} bytes")


def _unreadable(path: Path) -> str:
    """Explain why a file cannot be read; torch's own message suggests loading it unsafely."""
    with path.open("rb") as file:
        start = file.read(32)
    if MAGIC_BEFORE_TORCH_1_6 in start:
        return (
            f"{path}: saved in the format of torch before 1.6, which is not supported. If you trust the "
            "file, load it with a newer torch and save it again."
        )
    if start.startswith(b"\x80"):  # a pickle
        return _runs_code(path)
    return (
        f"{path}: not a checkpoint, or a damaged one. Write it again: torch.save(network.state_dict(), FILE) "
        "or python -m mpbn_deploy.train."
    )


def _runs_code(path: Path, found: str = "") -> str:
    found = f"holds more than tensors and plain values{found}"
    return (
        f"{path}: {found}; not loaded, because loading it would run code. Save the weights alone: "
        "torch.save(network.state_dict(), file)."
    )


# model.safetensors: the tensors of a checkpoint, and everything else as JSON in the file's metadata.
#
# The format holds no pickle, so no file can run code. Files of other tools have no entry of ours: they are
# bare state_dicts.


SUFFIX = ".safetensors"
ENTRY = "mpbn_deploy"  # of the metadata


def safetensors_bytes(content: dict[str, Any]) -> bytes:
    """Return a checkpoint as a safetensors file; the same checkpoint gives the same bytes."""
    rest = {key: value for key, value in content.items() if key != "state_dict"}
    tensors = {name: tensor.detach().clone() for name, tensor in content["state_dict"].items()}
    found: bytes = _package().torch.save(tensors, {ENTRY: json.dumps(rest)})
    return found


def read_safetensors(path: Path) -> dict[str, Any]:
    """Read a checkpoint of ours, or the bare state_dict of another tool."""
    if not path.is_file():
        raise CheckpointError(f"{path}: {'not a file' if path.exists() else 'no such file'}.")
    check_size(path)
    package = _package()
    try:
        with package.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        rest = json.loads(metadata[ENTRY]) if ENTRY in metadata else None
    except MemoryError:
        raise
    except Exception as error:  # a damaged or hostile file can make the reader raise anything
        raise CheckpointError(f"{path}: not a readable safetensors file ({error}).") from error
    if rest is not None and not isinstance(rest, dict):
        raise CheckpointError(f"{path}: its metadata {ENTRY!r} is damaged.")
    return tensors if rest is None else {**rest, "state_dict": tensors}


def _package() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise MissingPackageError(
            "files .safetensors need the package safetensors: pip install safetensors"
        ) from error
    return safetensors
