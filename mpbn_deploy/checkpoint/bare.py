"""Checkpoints as people save them: a state_dict without a word about its network.

    torch.save(model.state_dict(), path)                       bare
    torch.save({"state_dict": ..., "epoch": 9}, path)          nested, under any key; announced
    {"module.conv.weight": ...}                                of DataParallel; `_orig_mod.` of torch.compile

The user names the function that builds the network, its time steps, and shape and range of its inputs. Half
and bfloat16 numbers become float32. `num_batches_tracked`, which no inference needs, may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..base import CheckpointError, NetworkError, OptionError, announce, record
from ..ir import InputFormat
from ..nn import ModelCard, SpikingNetwork
from .architectures import accepted, build_body
from .resets import announce_resets, check_resets
from .state import check_state, check_tensors, converted

NESTED = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights")
NAMES_OF_NETWORKS = ("arch", "architecture", "model_name")
MAX_DEPTH = 3  # of dictionaries in a file
COUNTER = "num_batches_tracked"
SPIKES = (0, 1)  # a range of inputs that nobody normalizes


@record
class InputFacts:
    """What the user says about the inputs of a network; None where nothing is said."""

    shape: tuple[int, ...] | None = None
    range: tuple[int, int] | None = None
    normalization: tuple[float, ...] | None = None  # means, then as many deviations; one each, or per channel

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        options = {
            "--input-shape": self.shape,
            "--input-range": self.range,
            "--normalize": self.normalization,
        }
        return [option for option, value in options.items() if value is not None]


def find_state(path: str | Path, content: Mapping[str, Any]) -> dict[str, Tensor] | None:
    """Return the state_dict in a file, at the top or under any key, which is announced; None without one.

    Of several, the one under a usual name is taken; otherwise it is the user who must choose.
    """
    found = dict(_states(content))
    if not found or "" in found:
        return found.get("")
    usual = [key for name in NESTED for key in found if key == name]
    if len(found) > 1 and not usual:
        raise CheckpointError(
            f"{path}: holds several dictionaries of tensors, under {', '.join(map(repr, found))}. Save the "
            "one to export: torch.save(content[KEY], path)."
        )
    key = [*usual, *found][0]
    announce(f"note: {path}: the tensors under the key {key!r} are the network's")
    return found[key]


def _states(
    content: Mapping[Any, Any], prefix: str = "", depth: int = MAX_DEPTH
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield dictionaries of tensors with their keys, joined by dots; those in an optimizer are no weights."""
    if content and all(isinstance(value, Tensor) for value in content.values()):
        if not prefix or any(value.dim() > 1 for value in content.values()):
            yield prefix, dict(content)
        return
    for key, value in content.items() if depth else ():
        if isinstance(key, str) and isinstance(value, dict) and "optim" not in key.lower():
            yield from _states(value, f"{prefix}.{key}" if prefix else key, depth - 1)


def how_to_name(path: str | Path, content: Mapping[str, Any], state: Mapping[str, Tensor]) -> str:
    """Say what a bare state_dict needs to be read, and what it says about its network."""
    named = [f"{key} {content[key]!r}" for key in NAMES_OF_NETWORKS if isinstance(content.get(key), str)]
    trained = f" The file says it was trained with {', '.join(named)}." if named else ""
    texts = (content[key] for key in NAMES_OF_NETWORKS if isinstance(content.get(key), str))
    arch = next((text for text in texts if re.fullmatch(r"[\w.]+:\w+", text)), "package.module:build")
    return (
        f"{path}: a bare state_dict, which does not say how its network is built.{trained} Name the class "
        "or function that builds it, and its inputs: "
        f"--arch {arch} --timesteps N --input-shape {_sizes(state)} {RANGE} (docs/bring-your-own.md)"
    )


RANGE = "--input-range LOWEST HIGHEST (0 255 for bytes, 0 1 for spikes)"


def _sizes(state: Mapping[str, Tensor]) -> str:
    """Return what the first weights say about the shape of inputs."""
    first = next((tensor for tensor in state.values() if tensor.dim() in (2, 4)), None)
    if first is None:
        return "SIZE ..."
    return f"{first.shape[1]}" if first.dim() == 2 else f"{first.shape[1]} HEIGHT WIDTH"


def load_bare(
    path: str | Path,
    content: Mapping[str, Any],
    state: dict[str, Tensor],
    arch: str | None,
    timesteps: int | None,
    facts: InputFacts,
) -> SpikingNetwork:
    """Build the network that the user names, and load a bare state_dict into it."""
    if arch is None:
        raise CheckpointError(how_to_name(path, content, state))
    needed = {
        "--timesteps N": timesteps,
        f"--input-shape {_sizes(state)}": facts.shape,
        RANGE: facts.range,
    }
    if missing := [option for option, value in needed.items() if value is None]:
        raise OptionError(f"{path}: a bare state_dict does not say everything; add {' '.join(missing)}.")
    assert timesteps is not None and facts.shape is not None
    check_tensors(path, state)
    arguments = _arguments(arch, facts.shape, state)
    body = build_body(arch, arguments)
    _load(path, arch, body, state)
    if facts.normalization is None and facts.range != SPIKES:
        announce(
            f"note: the network of {path} gets raw input values; if it was trained on (x - mean) / "
            "deviation, computed outside of forward, add --normalize MEAN DEVIATION"
        )
    card = ModelCard(architecture=arch, arguments=arguments, training={"source": "state_dict"})
    given = _input_format(path, facts)
    return SpikingNetwork(body, timesteps=timesteps, input_format=given, card=card).eval()


def _arguments(arch: str, shape: tuple[int, ...], state: dict[str, Tensor]) -> dict[str, Any]:
    """Return `input_shape`, and `classes` (the rows of the last tensor), if the function takes them."""
    last = next((tensor for tensor in reversed(state.values()) if tensor.dim()), None)
    return accepted(arch, {"input_shape": shape, "classes": 0 if last is None else len(last)})


def _load(path: str | Path, arch: str, body: nn.Module, state: dict[str, Tensor]) -> None:
    expected = body.state_dict()
    state = _without_prefix(state, expected)
    for name, wanted in expected.items():
        if name.endswith(COUNTER) and name not in state:
            state[name] = torch.zeros_like(wanted)
    state |= _as_built(path, body, expected.keys() - state.keys())
    found = converted(state, expected, _is_convertible)
    changed = (value.dtype for name, value in state.items() if found[name] is not value)
    if kinds := dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in changed):
        announce(f"note: {path}: {', '.join(kinds)} numbers are converted to the network's type")
    check_state(path, arch, expected, found)
    check_resets(path, body, found, {})
    announce_resets(path, body, arch)
    body.load_state_dict(found)


def _without_prefix(state: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove prefixes that all names have, such as module. or net., until a name is one of the network's."""
    found = dict(state)
    while found and not found.keys() & expected.keys():
        if len({name.partition(".")[0] for name in found}) > 1 or not all("." in name for name in found):
            return dict(state)
        found = {name.partition(".")[2]: value for name, value in found.items()}
    return found


def _as_built(path: str | Path, body: nn.Module, missing: Set[str]) -> dict[str, Tensor]:
    """Return constants of snnTorch's neurons that are missing, as the network was built; announced.

    Other versions of snnTorch save other constants, and some people save parameters only.
    """
    found = {
        name: value
        for name, value in body.named_buffers()
        if name in missing and _owner(body, name).__module__.startswith("snntorch.")
    }
    if found:
        announce(f"note: {path}: does not hold {', '.join(found)}; taken from the network as it is built")
    return found


def _owner(body: nn.Module, name: str) -> type[nn.Module]:
    """Return the class of the module that holds a tensor."""
    return type(body.get_submodule(name.rpartition(".")[0]))


def _is_convertible(value: Tensor, wanted: Tensor) -> bool:
    """Whether a tensor holds floats for a float type, or whole floats for an integer type."""
    return value.is_floating_point() and (wanted.is_floating_point() or torch.equal(value, value.round()))


def _input_format(path: str | Path, facts: InputFacts) -> InputFormat:
    assert facts.shape is not None and facts.range is not None
    numbers = facts.normalization or (0.0, 1.0)
    means, odd = divmod(len(numbers), 2)
    if odd or means not in (1, facts.shape[0]):
        channels = f", or {2 * facts.shape[0]}" if facts.shape[0] > 1 else ""
        raise OptionError(
            f"{path}: --normalize with {len(numbers)} numbers; 2{channels} are needed: one mean, or one per "
            "channel, and as many deviations."
        )
    try:
        return InputFormat(
            shape=facts.shape,
            minimum=facts.range[0],
            maximum=facts.range[1],
            mean=np.array(numbers[:means]),
            deviation=np.array(numbers[means:]),
        )
    except NetworkError as error:
        raise OptionError(f"{path}: input {'; '.join(error.problems)}.") from error
