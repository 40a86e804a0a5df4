"""The pages and the JSON of docs/results agree, and other pages quote only what is there."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# By its path: a folder of benchmarks on sys.path would hide libraries that are named like one.
SPECIFICATION = spec_from_file_location("results", ROOT / "benchmarks" / "results.py")
results = module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(results)
PAGES = results.pages()
STORED = results.stored()


def test_the_tables_of_the_pages_are_those_of_the_json():
    written = {name: results.written(page, STORED) for name, page in PAGES.items()}
    assert written == PAGES, "run python benchmarks/results.py --page, and read the diff"


def test_every_table_comes_from_json_and_every_json_is_on_a_page():
    adopted = {name: results.adopted(page, STORED) for name, page in PAGES.items()}
    found = {name: entry for _, entries in adopted.values() for name, entry in entries.items()}
    pages = {name: page for name, (page, _) in adopted.items()}
    assert (pages, found) == (PAGES, STORED), "run python benchmarks/results.py --adopt, and read the diff"


@pytest.mark.parametrize("name", STORED)
def test_every_result_says_where_it_comes_from(name):
    entry = STORED[name]
    if not entry["how"].startswith("quoted from "):
        assert entry["how"] in ("measured", "transcribed from a recorded run")
        assert entry["processor"] and entry["versions"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry["date"])
    assert f"<!-- source: {name} -->\n\n{results.source(entry)}\n" in "".join(PAGES.values())


def test_tables_are_read_as_they_are_written():
    table = {"columns": ["a", "b"], "rows": [["1", "x \\| y"], ["", "2 %"]]}
    assert results.tables(f"text\n\n{results.markdown(table)}\nmore") == [table]


def test_a_changed_number_is_noticed():
    page = PAGES["digits-float-against-integer"]
    changed = page.replace("97.22", "97.23", 1)
    assert results.written(changed, STORED) == page != changed


SCRIPT = """import os, sys
from pathlib import Path
counted = Path("runs.txt")
counted.write_text((counted.read_text() if counted.exists() else "") + "x")
print("| a |\\n|---|\\n| " + os.environ.get("NUMBER", sys.argv[-1]) + " |")
"""
SMALL = """# First

```sh
python first.py
```

| a |
|---|
| 0 |

## Second

```sh
git clone theirs
NUMBER=7 python first.py FOLDER
```

| a |
|---|
| 0 |
"""


@pytest.fixture
def small_page(tmp_path, monkeypatch):
    """A page of two sections, of which the first can be measured anywhere; return what calls the program."""
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    results.FOLDER.mkdir()
    monkeypatch.setattr(results, "CHEAP", ("first.py",))
    (tmp_path / "first.py").write_text(SCRIPT)
    (results.FOLDER / "page.md").write_text(f"{SMALL}\n<!-- results -->\n")

    def call(*words):
        monkeypatch.setattr("sys.argv", ["results.py", *words])
        results.main()
        return (results.FOLDER / "page.md").read_text(), results.stored()

    return call


def test_sections_are_measured_once_and_again_when_asked(small_page, tmp_path):
    _, found = small_page("--adopt")
    assert {name: entry["how"] for name, entry in found.items()} == {
        "first": results.TRANSCRIBED, "second": results.TRANSCRIBED
    }  # fmt: skip
    page, found = small_page()
    assert found["first"]["how"] == "measured" and found["second"]["how"] == results.TRANSCRIBED
    assert "| first.py |" in page and results.source(found["first"]) in page
    small_page()
    assert (tmp_path / "runs.txt").read_text() == "x"  # nothing is left to measure
    page, found = small_page("--again", "second", "--place", f"FOLDER={tmp_path}")
    assert found["second"]["tables"] == [{"columns": ["a"], "rows": [["7"]]}] and "| 7 |" in page


def test_what_cannot_be_measured_is_said_and_keeps_its_table(small_page, tmp_path):
    _, before = small_page("--adopt")
    with pytest.raises(SystemExit, match="no section third"):
        small_page("--again", "third")
    (tmp_path / "first.py").write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match=r"first: python first\.py ended with exit code 3"):
        small_page()
    (tmp_path / "first.py").write_text("print('nothing')")
    with pytest.raises(SystemExit, match="print other tables"):
        small_page()
    assert results.stored() == before


def test_every_cheap_command_is_that_of_a_section():
    lines = [words for entry in STORED.values() for words in results.commands(entry, {})]
    assert set(results.CHEAP) <= {
        " ".join(words[words.index("python") + 1 :]) for words in lines if "python" in words
    }


def test_a_command_may_continue_the_table_of_the_one_before():
    first, second, other = ({"columns": [a], "rows": [[b]]} for a, b in (("a", "1"), ("a", "2"), ("b", "3")))
    both = {"columns": ["a"], "rows": [["1"], ["2"]]}
    assert results.joined([other, first], [second, other]) == [other, both, other]
    assert results.joined([first], [other]) == [first, other] and results.joined([], [first]) == [first]


CHECKED = """# Third

```sh
python -m pytest -p no:nengo test_third.py
```

| a |
|---|
| equal |
"""


def test_a_table_in_words_is_measured_if_all_tests_pass_and_none_is_skipped(small_page, tmp_path):
    (results.FOLDER / "page.md").write_text(f"{CHECKED}\n<!-- results -->\n")
    _, before = small_page("--adopt")
    for body, failure in (("assert False", "exit code 1"), ("__import__('pytest').skip()", "1 skipped")):
        (tmp_path / "test_third.py").write_text(f"def test_it():\n    {body}\n")
        with pytest.raises(SystemExit, match=failure):
            small_page("--again", "third")
    assert results.stored() == before
    (tmp_path / "test_third.py").write_text("def test_it():\n    pass\n")
    _, found = small_page("--again", "third")
    assert found["third"]["how"] == "measured" and found["third"]["tables"] == before["third"]["tables"]


DOCS, MEASURED = sorted((ROOT / "docs").glob("*.md")), sorted(results.FOLDER.glob("*.md"))
FACTS = {  # of chips and of networks, whose parameters tests/nn/test_zoo.py counts; not measurements
    "energy.md": {"150,710"},
    "fitting.md": {"1,152", "140,544"},
    "fpga.md": {"115,200", "4,097"},  # bauds; fractions of 12 bits
    "training.md": {"11,697,320", "21,812,904", "708,154", "199,610", "926,298", "207,450", "590,570",
                    "280,298", "5,002", "5,514"},
}  # fmt: skip


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=lambda page: page.name)
def test_pages_quote_only_numbers_that_are_recorded(page):
    """Percentages and counts of a thousand and more are in docs/results, or on the cards of the networks."""
    cards = (ROOT / "examples" / "models" / "README.md").read_text(encoding="utf-8")
    recorded = "".join([cards, *(page.read_text(encoding="utf-8") for page in MEASURED)]).replace(" %", "%")
    text = page.read_text(encoding="utf-8")
    if page.name != "README.md":  # whose demo is quoted
        text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    quoted = re.findall(r"\d+\.\d+%|\d{1,3}(?:,\d{3})+", text.replace(" %", "%"))
    assert {number for number in quoted if number not in recorded} <= FACTS.get(page.name, set())
    assert page.name != "README.md" or len(quoted) > 8
