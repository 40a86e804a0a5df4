"""The notebook runs, and is stored with its outputs."""

import json
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / "examples" / "story.ipynb").read_text(encoding="utf-8"))


def kinds(notebook):
    """Return the kinds of outputs of each code cell."""
    return [
        [output["output_type"] for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_the_notebook_runs_and_is_stored_with_its_outputs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci")
    try:
        found = import_module("notebook").executed(NOTEBOOK)
    finally:
        sys.modules.pop("notebook", None)
    assert kinds(found) == kinds(NOTEBOOK)
    assert sum(map(len, kinds(found))) == 9
    printed = "".join(
        line
        for cell in found["cells"]
        for output in cell.get("outputs", [])
        for line in output.get("text", [])
    )
    assert (
        "8 bits: integer accuracy 9" in printed and "bit-exact: True" in printed and "fits: True" in printed
    )
