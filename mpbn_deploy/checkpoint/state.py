"""Build a network and load a file's tensors into it, once they are checked."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base import CheckpointError, OptionError, problem_lines
from ..nn import ModelCard
from .architectures import build_body
from .resets import check_resets

HALF_PRECISION = (torch.float16, torch.bfloat16)
LARGEST_ARGUMENT = 4096  # of a network that is built in memory before its file is checked


def _same_names(body: nn.Module) -> dict[str, str]:
    return {name: name for name in body.state_dict()}


def build_with_state(
    path: str | Path,
    card: ModelCard,
    state: dict[str, Any],
    names: Callable[[nn.Module], dict[str, str]] = _same_names,
) -> nn.Module:
    """Build the card's network with the file's tensors.

    `names` maps the body's tensor names to those in the file; messages use the names in the file.
    """
    check_tensors(path, state)
    body = _build_on_meta_device(path, card)
    in_file = names(body)
    expected = {in_file[name]: value for name, value in body.state_dict().items()}
    state = converted({**state, **_from_mantissas(state)}, expected, _is_exact)
    check_state(path, card.architecture, expected, state)
    named = {name: state[found] for name, found in in_file.items()}
    check_resets(path, body, named, card.arguments)
    body.load_state_dict(named, assign=True)
    return body


def _is_exact(value: Tensor, wanted: Tensor) -> bool:
    """Whether the network's type holds every number of the file's type."""
    return value.dtype in HALF_PRECISION and wanted.dtype in (torch.float32, torch.float64)


def _from_mantissas(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weight = mantissa / quanta for the weights of trained integers that are stored as integers."""
    return {
        name: (value / quanta.double().view(-1, *[1] * (value.dim() - 1))).float()
        for name, value in state.items()
        if value.dtype in (torch.int8, torch.int16)
        and (quanta := state.get(name.removesuffix("weight") + "quanta")) is not None
        and quanta.shape == value.shape[:1]
    }


def converted(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], allowed: Callable[[Tensor, Tensor], bool]
) -> dict[str, Tensor]:
    """Convert tensors to the network's type, where `allowed(value, wanted)`."""
    changed = {
        name: value.to(expected[name].dtype)
        for name, value in state.items()
        if name in expected and value.dtype != expected[name].dtype and allowed(value, expected[name])
    }
    return {**state, **changed}


def check_state(
    path: str | Path, architecture: str, expected: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> None:
    """Raise CheckpointError if tensors do not match those of a network, or hold invalid values."""
    if problems := _structure_problems(expected, state):
        raise CheckpointError(
            f"{path}: does not match the network {architecture!r}:{problem_lines(problems)}"
        )
    if problems := _value_problems(state):
        raise CheckpointError(
            f"{path}: tensors of the network {architecture!r} hold invalid values:{problem_lines(problems)}\n"
            "The training has diverged, or the file is damaged. Train again, with a lower learning rate if "
            "it diverges."
        )


def check_tensors(path: str | Path, state: dict[str, Any]) -> None:
    """Raise if an entry is not a tensor, or claims more numbers than the file holds."""
    if unnamed := [name for name in state if not isinstance(name, str)]:
        raise CheckpointError(f"{path}: names of tensors must be strings; found {unnamed[:5]}.")
    not_tensors = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if not_tensors:
        raise CheckpointError(f"{path}: state_dict entries {not_tensors[:5]} are not tensors.")
    hollow = [name for name, tensor in state.items() if _is_hollow(tensor)]
    if hollow:
        raise CheckpointError(
            f"{path}: state_dict entries {hollow[:5]} claim more numbers than the file holds."
        )


def _build_on_meta_device(path: str | Path, card: ModelCard) -> nn.Module:
    """Build a network without allocating memory, so that a file cannot ask for an enormous one.

    Neurons of other libraries may read tensor values in their constructor, which tensors on the meta device
    do not have. Such a network is built in memory, unless the file asks for large numbers.
    """
    try:
        with torch.device("meta"):
            return build_body(card.architecture, card.arguments)
    except OptionError as error:
        if error.__cause__ is None or "meta tensor" not in str(error.__cause__).lower():
            raise
        if _largest_number(card.arguments) <= LARGEST_ARGUMENT:
            return build_body(card.architecture, card.arguments)
        raise CheckpointError(
            f"{path}: {_failing_module(error.__cause__)}, of the network {card.architecture!r}, reads tensor "
            "values in its constructor, so the network must be built in memory; but the file asks for "
            f"arguments above {LARGEST_ARGUMENT}, which may need too much memory. Build the network in "
            "Python, and export what write_nir(fold(trace(body, input_shape, timesteps)), 'model.nir') "
            "writes (docs/folding.md)."
        ) from error


def _largest_number(arguments: Mapping[str, Any]) -> float:
    values = [
        each for value in arguments.values() for each in (value if isinstance(value, tuple) else (value,))
    ]
    return max((abs(value) for value in values if isinstance(value, (int, float))), default=0)


def _failing_module(error: BaseException) -> str:
    """Return the innermost module whose constructor raised the error."""
    frames = [
        frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "__init__"
    ]
    classes = [type(frame.f_locals.get("self")) for frame in frames]
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in classes if issubclass(kind, nn.Module)]
    return names[-1] if names else "a function"


def _is_hollow(tensor: Tensor) -> bool:
    """Return whether a tensor has more elements than it stores, which strides of zero allow."""
    return (
        tensor.layout != torch.strided
        or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes()
    )


def _structure_problems(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> list[str]:
    """List the tensors that are missing, unknown or of another shape or type, with the nearest names."""
    missing = [name for name in expected if name not in state]
    unknown = [name for name in state if name not in expected]
    problems = [f"missing {name}{_nearest(name, unknown, 'file')}" for name in missing]
    problems += [f"unknown {name}{_nearest(name, missing, 'network')}" for name in unknown]
    for name in expected.keys() & state.keys():
        found, wanted = state[name], expected[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            problems.append(
                f"{name}: {found.dtype} {tuple(found.shape)}; {wanted.dtype} {tuple(wanted.shape)} is needed"
            )
    return sorted(problems)


def _nearest(name: str, others: list[str], where: str) -> str:
    close = get_close_matches(name, others, n=1)
    return f" (nearest in the {where}: {close[0]})" if close else ""


def _value_problems(state: Mapping[str, Tensor]) -> list[str]:
    problems = []
    for name, found in state.items():
        if bad := int((~torch.isfinite(found)).sum()):
            problems.append(f"{name}: {bad} of {found.numel()} values are NaN or infinite")
        elif name.endswith("running_var") and found.min() < 0:
            problems.append(f"{name}: a negative variance")
        elif name.endswith((".scale", ".width", ".quanta")) and found.min() <= 0:
            problems.append(f"{name}: a scale that is not positive")
    return sorted(problems)
