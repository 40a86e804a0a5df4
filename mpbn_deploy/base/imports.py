"""Import what a user names as `package.module:function`, which runs that package's code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import OptionError, class_of, did_you_mean


def _import_hint(module_name: str, attribute: str) -> str:
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").replace("/", ".").strip(".")
        return f"Name the module, not its file: {dotted}:{attribute}."
    if (module := sys.modules.get(module_name)) is not None:
        package = module_name.partition(".")[0]
        return did_you_mean(
            attribute, [name for name, value in vars(module).items() if _is_of(value, package)]
        )
    return "Run the command in the folder that holds the module, or set PYTHONPATH."


def _is_of(value: Any, package: str) -> bool:
    """Whether a function or class was written in a package, and not imported from another one."""
    return callable(value) and (getattr(value, "__module__", None) or "").partition(".")[0] == package


def import_function(name: str, kind: str) -> Callable[..., Any]:
    """Return the function `package.module:function`; `kind` says in messages what it is for."""
    module_name, _, attribute = name.partition(":")
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, "")  # as `python -m` has it; only here, so that no library is shadowed elsewhere
    try:
        found = getattr(import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # a user's module can raise anything on import
        reason = f"{type(error).__name__}: {error}"
        raise OptionError(
            f"{kind} {name!r} cannot be imported ({reason}). {_import_hint(module_name, attribute)}"
        ) from error
    if not callable(found):
        raise OptionError(
            f"{kind} {name!r} is {class_of(found)}, which cannot be called. Name a function or a class."
        )
    return found  # type: ignore[no-any-return]
