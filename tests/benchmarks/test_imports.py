"""Benchmarks and examples import only what the package has: most of them are not run by any other test."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [file for folder in ("benchmarks", "examples") for file in sorted((ROOT / folder).glob("*.py"))]


def imported(text):
    """Yield (module, name) of each `from mpbn_deploy... import name` of a file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mpbn_deploy":
            for alias in node.names:
                yield node.module, alias.name


def has(module, name):
    try:
        return hasattr(import_module(module), name) or bool(import_module(f"{module}.{name}"))
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_imported_exists(file):
    assert [pair for pair in imported(file.read_text(encoding="utf-8")) if not has(*pair)] == []


def test_what_does_not_exist_is_noticed():
    text = "from mpbn_deploy.fit import no_such_name\nfrom mpbn_deploy.nowhere import fit\nimport math"
    assert [has(*pair) for pair in imported(text)] == [False, False]
