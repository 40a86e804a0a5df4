"""model.safetensors: the tensors of a checkpoint, and everything else as JSON in the file's metadata.

The format holds no pickle, so no file can run code. Files of other tools have no entry of ours: they are
bare state_dicts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from ..base import CheckpointError, MissingPackageError
from .safe_reading import check_size

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
