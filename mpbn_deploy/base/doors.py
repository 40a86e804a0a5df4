"""Doors: the public names of a package, each imported on first use (PEP 562).

A room's `__init__.py` lists its names once, under `if TYPE_CHECKING`, where mypy and import-linter see them:

    if TYPE_CHECKING:
        from .stage import fit as fit
    else:
        __getattr__, __dir__ = door(__name__, __file__)

A package that has a function of its own name can be called: `mpbn_deploy.export(net, "loihi2")` is
`mpbn_deploy.export.export(net, "loihi2")`, since one name cannot be a package and a function.

This keeps commands such as `python -m mpbn_deploy.fit --help` from importing torch.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def door(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the package whose `__init__.py` is `file`."""
    homes = listed_names(Path(file).read_text(encoding="utf-8"))
    if package.rpartition(".")[2] in homes:
        sys.modules[package].__class__ = CallableRoom

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{homes[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names


class CallableRoom(ModuleType):
    """A package that is called as its function of the same name."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*given, **options)


def listed_names(source: str) -> dict[str, str]:
    """Return the names that a door lists, each with the submodule that defines it."""
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: node.module for node in imports if node.level == 1 and node.module for alias in node.names
    }
