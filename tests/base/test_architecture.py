"""docs/architecture.md names rooms, files and functions that exist, and every room there is."""

import re
from pathlib import Path

import pytest

import mpbn_deploy

PACKAGE = Path(mpbn_deploy.__file__).parent
ROOT = PACKAGE.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^\n?## |\Z)", TEXT, re.MULTILINE | re.DOTALL)


def rooms_of(step):
    """The rooms in bold, and those of paths, of a step on the path of a sample."""
    return re.findall(r"\*\*(\w+)\*\*", step) + re.findall(r"`(\w+)/", step)


def named_files():
    """Yield (rooms, file, name) of each `file.py:name` and `folder:name`; it is in one of the rooms."""
    rooms = []
    for step in STEPS:
        rooms = rooms_of(step) or rooms
        for file, name in re.findall(r"`([\w/]+(?:\.py)?):(\w+)`", step):
            yield tuple(rooms), file, name


def sources(rooms, file):
    """Return the text of each file that is meant; a folder is meant with all its files."""
    paths = [place / file for place in (PACKAGE, *(PACKAGE / room for room in rooms))]
    found = [path for path in paths if path.exists()]
    files = [each for path in found for each in ([path] if path.is_file() else path.glob("*.py"))]
    return [each.read_text(encoding="utf-8") for each in files]


@pytest.mark.parametrize(("rooms", "file", "name"), list(named_files()))
def test_functions_on_the_path_are_where_it_says(rooms, file, name):
    defined = re.compile(rf"^(?: *def {name}\(|class {name}\b|{name}\b.* = )", re.MULTILINE)
    assert any(defined.search(text) for text in sources(rooms, file))


def test_there_are_steps():
    assert len(STEPS) >= 18 and len(list(named_files())) > 25


def test_every_room_has_its_row_and_every_row_its_room():
    rows = re.findall(r"^\| (`[^|]*`) \|", TEXT.split("## The doors")[0], re.MULTILINE)
    named = {name.strip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"doctor.py"}
    assert named == rooms


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(\w+/[\w/.]*)`", TEXT))))
def test_paths_exist(path):
    places = (ROOT, PACKAGE, PACKAGE / "execute", PACKAGE / "formats")
    assert any((place / path).exists() for place in places)
