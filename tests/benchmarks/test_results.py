"""docs/RESULTS.md and docs/results/*.json agree, and the README quotes only what is there."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# By its path: a folder of benchmarks on sys.path would hide libraries that are named like one.
SPECIFICATION = spec_from_file_location("results", ROOT / "benchmarks" / "results.py")
results = module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(results)
PAGE = results.PAGE.read_text(encoding="utf-8")
STORED = results.stored()


def test_the_tables_of_the_page_are_those_of_the_json():
    assert results.written(PAGE, STORED) == PAGE, "run python benchmarks/results.py --page, and read the diff"


def test_every_table_comes_from_json_and_every_json_is_on_the_page():
    page, found = results.adopted(PAGE, STORED)
    assert (page, found) == (PAGE, STORED), "run python benchmarks/results.py --adopt, and read the diff"


@pytest.mark.parametrize("name", STORED)
def test_every_result_says_where_it_comes_from(name):
    entry = STORED[name]
    assert entry["how"] in ("measured", "transcribed from a recorded run")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry["date"]) and entry["processor"] and entry["versions"]


def test_tables_are_read_as_they_are_written():
    table = {"columns": ["a", "b"], "rows": [["1", "x \\| y"], ["", "2 %"]]}
    assert results.tables(f"text\n\n{results.markdown(table)}\nmore") == [table]


def test_a_changed_number_is_noticed():
    changed = PAGE.replace("97.78", "97.79", 1)
    assert results.written(changed, STORED) == PAGE != changed


def test_the_readme_quotes_only_numbers_that_are_recorded():
    """Percentages and counts of a thousand and more are in docs/results, or on the cards of the networks."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    cards = (ROOT / "examples" / "models" / "README.md").read_text(encoding="utf-8")
    recorded = cards + PAGE
    quoted = re.findall(r"\d+\.\d+ ?%|\d{1,3}(?:,\d{3})+", readme)
    assert len(quoted) > 8 and [number for number in quoted if number not in recorded] == []
