"""Build the module that an architecture's name stands for.

A name is a network of the zoo, "quantized", or "package.module:factory" for a user's own code.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..base import CheckpointError, OptionError, class_of, did_you_mean, import_function
from ..nn.zoo import ARCHITECTURES, Architecture
from ..quantize import QUANTIZED, QuantizedBody
from . import paper


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
    if name.startswith(paper.PREFIX):
        ours = paper.PAPER_ARCHITECTURES.get(name, "resnet20")
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
