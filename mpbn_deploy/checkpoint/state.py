"""Build a network and load a file's tensors into it, once they are checked."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Set
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..base import CheckpointError, NetworkError, OptionError, announce, problem_lines, record
from ..ir import InputFormat
from ..nn import LIF, RESETS, ModelCard, SpikingNetwork
from .architectures import accepted, build_body

# Checkpoints as people save them: a state_dict without a word about its network.
#
#     torch.save(model.state_dict(), path)                       bare
#     torch.save({"state_dict": ..., "epoch": 9}, path)          nested, under any key; announced
#     {"module.conv.weight": ...}                                of DataParallel; `_orig_mod.` of
#     torch.compile
#
# The user names the function that builds the network, its time steps, and shape and range of its inputs. Half
# and bfloat16 numbers become float32. `num_batches_tracked`, which no inference needs, may be missing.


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


# How neurons reset, as their network is built and as its file says.
#
# Weights trained with one reset do not suit another. snnTorch stores it as a number, our checkpoints as an
# argument of the network; a state_dict of other neurons does not say.


SNNTORCH = "reset_mechanism"  # its attribute; with _val, its number in a state_dict


def check_resets(
    path: str | Path, body: nn.Module, state: Mapping[str, Tensor], arguments: Mapping[str, Any]
) -> None:
    """Raise CheckpointError if neurons are built with another reset than the file says.

    The names in `state` are those of the body.
    """
    problems = []
    for name, module in body.named_modules():
        stored = state.get(f"{name}.{SNNTORCH}_val")
        if stored is not None and hasattr(module, SNNTORCH):
            numbers = {number: reset for reset, number in module.reset_dict.items()}
            built, trained = getattr(module, SNNTORCH), numbers.get(int(stored), int(stored))
            problems += [f"{name}: {trained} in the file, {built} as built"] * (built != trained)
    ours = {name: module.reset for name, module in body.named_modules() if isinstance(module, LIF)}
    stated = arguments.get("reset")
    if stated in RESETS and ours and stated not in ours.values():
        problems += [f"{name}: {stated} in the file, {reset} as built" for name, reset in ours.items()]
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise CheckpointError(
            f"{path}: its neurons were trained with another reset than the network is built with:{listed}\n"
            "Name a function with --arch that builds them with the reset of the file."
        )


def announce_resets(path: str | Path, body: nn.Module, arch: str) -> None:
    """Announce how neurons reset whose state_dict does not say it: ours and SpikingJelly's."""
    ours = {module.reset for module in body.modules() if isinstance(module, LIF)}
    theirs = {module.v_reset for module in body.modules() if hasattr(module, "v_reset")}
    found = ours | {"subtract" if value is None else "zero" for value in theirs}
    if found:
        words = {"zero": "reset to zero", "subtract": "subtract the threshold"}
        announce(
            f"note: {path}: a state_dict does not say how neurons reset; as {arch} builds them, spikes "
            f"{' or '.join(words[reset] for reset in sorted(found))}"
        )
