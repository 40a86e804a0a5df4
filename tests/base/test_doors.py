"""Doors: each lists names that exist, once, and no name hides a file of its room."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import mpbn_deploy
from mpbn_deploy import api
from mpbn_deploy.base.doors import listed_names

PACKAGE = Path(mpbn_deploy.__file__).parent
DOORS = {
    ".".join(file.parent.relative_to(PACKAGE.parent).parts): file
    for file in sorted(PACKAGE.glob("*/**/__init__.py"))
    if "door(__name__" in file.read_text(encoding="utf-8")
}

# Files that are doors of their own: each executor, each kind of file.
OPEN_FILES = {
    "mpbn_deploy.execute.cluster",
    "mpbn_deploy.execute.emulator",
    "mpbn_deploy.execute.reference",
    "mpbn_deploy.formats.options",
    "mpbn_deploy.formats.folder",
    "mpbn_deploy.formats.xylo",
}


def imports():
    """Yield (importing module, imported module) for every relative import of the package."""
    for file in sorted(PACKAGE.rglob("*.py")):
        package = file.parent.relative_to(PACKAGE.parent).parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                above = package[: len(package) - node.level + 1]
                yield (
                    ".".join([*package, file.stem]),
                    ".".join([*above, *([node.module] if node.module else [])]),
                )


def may_import(importer, imported):
    """A door, a file that is one, or a file of the same room or of a room around it."""
    room = imported if imported in DOORS else imported.rpartition(".")[0]
    return (
        imported in DOORS
        or imported in OPEN_FILES
        or imported.count(".") == 0
        or importer.startswith(f"{room}.")
        or (importer == "mpbn_deploy.__main__" and imported.endswith(".__main__"))
    )


def test_rooms_are_entered_by_their_doors():
    assert [pair for pair in imports() if not may_import(*pair)] == []


@pytest.mark.parametrize("door", DOORS)
def test_every_listed_name_is_there(door):
    module, names = import_module(door), listed_names(DOORS[door].read_text(encoding="utf-8"))
    assert names and all(getattr(module, name) is not None for name in names)
    assert set(names) <= set(dir(module))


@pytest.mark.parametrize("door", DOORS)
def test_no_name_is_that_of_a_file(door):
    """Importing the file would put the file in the place of the name."""
    files = {path.stem for path in DOORS[door].parent.iterdir()}
    assert not files & set(listed_names(DOORS[door].read_text(encoding="utf-8")))


@pytest.mark.parametrize("door", DOORS)
def test_every_file_is_on_its_map(door):
    """The docstring of a door says what each file of the room is for."""
    words = set(re.findall(r"\w+", import_module(door).__doc__))
    files = {path.stem for path in DOORS[door].parent.glob("*.py")} - {"__init__", "__main__"}
    assert files - words == set()


def test_another_name_is_not_there():
    with pytest.raises(AttributeError, match=r"'mpbn_deploy\.ir' has no attribute 'nothing'"):
        import_module("mpbn_deploy.ir").nothing  # noqa: B018


def test_the_api_lists_what_it_imports():
    imported = {name for name in vars(api) if not name.startswith("_") and name not in dir(mpbn_deploy)}
    assert set(api.__all__) >= imported - {"annotations"}


def test_the_package_shows_the_pipeline_at_a_glance():
    assert len([path for path in PACKAGE.iterdir() if path.name != "__pycache__"]) <= 23
