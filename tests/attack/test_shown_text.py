"""Names that hold escape sequences, carriage returns or marks of direction are shown, not obeyed."""

import json
import unicodedata

import h5py
import hostile_files
import pytest
from hypothesis import given, strategies as st
from properties import examples
from rich.table import Table

from mpbn_deploy.base import announce, commands, one_line, printable, shortened, track
from mpbn_deploy.base.terminal import LONGEST_MESSAGE, LONGEST_NAME
from mpbn_deploy.fit.__main__ import COMMAND as FIT
from mpbn_deploy.formats.folder import ExportFolder

# Clears the screen, overwrites the line, reverses a name, hides in it, ends a line, is not UTF-8.
HOSTILE = [
    "\x1b[2J",
    "bad\rgood",
    "\x9b31m",
    "a\u202ecba",
    "x\u2066y\u2069",
    "a\u200bb",
    "a\u2028b",
    "a\udc80b",
]
OBEYED = {"Cc", "Cs", "Zl", "Zp"}


def is_harmless(text):
    return all(unicodedata.category(each) not in OBEYED or each in "\n\t" for each in text) and not any(
        unicodedata.bidirectional(each) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        for each in text
    )


@examples(200)
@given(st.text(st.characters()))
def test_shown_text_is_harmless_and_shown_again_as_it_is(text):
    shown = printable(text)
    assert is_harmless(shown) and printable(shown) == shown
    name = one_line(text)
    assert is_harmless(name) and "\n" not in name and len(name) <= LONGEST_NAME


@pytest.mark.parametrize(
    "text",
    ["conv1", "große Straße", "日本語", "\u0642\u0637", "\u0645\u06cc\u200c\u062e", "👩\u200d🔬", "a\tb\nc"],
)
def test_ordinary_text_stays_as_it_is(text):
    assert printable(text) == text


def test_long_text_is_shortened():
    assert len(one_line("x" * 10**6)) == LONGEST_NAME and one_line("x" * 300) == "x" * 300
    assert shortened("short") == "short" and len(shortened("x" * 10**6)) == LONGEST_MESSAGE


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_tables_messages_and_progress_are_escaped(name, capfd):
    table = Table("name")
    table.add_row(f"<{name}>")
    for text in (table, f"<{name}>"):
        commands._show(commands.Outcome(data={}, text=text), as_json=False)
    commands._bad_input(f"<{name}>", as_json=False)
    announce(f"<{name}>")
    list(track([1], f"<{name}>", 1))
    out, err = capfd.readouterr()
    assert is_harmless(out) and is_harmless(err)
    escaped = f"<{printable(name)}>"
    assert err.count(escaped) == 3
    assert out.count(escaped) == 2 or name == "bad\rgood"  # rich drops carriage returns


def test_json_is_escaped(capfd):
    commands._show(commands.Outcome(data={"name": "".join(HOSTILE)}, text=""), as_json=True)
    out, _ = capfd.readouterr()
    assert is_harmless(out) and json.loads(out)["name"] == "".join(HOSTILE)


@pytest.mark.parametrize("name", [*HOSTILE[:-1], "two\nlines", "x" * 100_000])
def test_hostile_names_of_layers_are_rejected_in_one_short_message(name, tmp_path, capfd):
    path = hostile_files.good(tmp_path)
    with h5py.File(path, "a") as file:
        metadata = json.loads(file["mpbn_deploy/json"][()])
        metadata["populations"][1] = name
        del file["mpbn_deploy/json"]
        file["mpbn_deploy/json"] = json.dumps(metadata)
    assert commands.main(FIT, [str(path), "--target", "loihi2", "--samples", "0"]) == 2
    out, err = capfd.readouterr()
    assert "allowed are names of up to 300 characters" in err
    assert out == "" and is_harmless(err) and len(err) < 1000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_of_files_and_classes(name, tmp_path, capfd):
    assert commands.main(FIT, [str(tmp_path / f"{name}.net"), "--target", "loihi2"]) == 2
    assert is_harmless(capfd.readouterr().err)
    folder = ExportFolder(path=tmp_path, manifest={"class_names": [name]}, network=None, folded=None)
    assert all(is_harmless(each) for each in folder.class_names)
