"""docs/bring-your-own.md and docs/tutorial.md: every block of the page, in its order, in an empty folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from networks import end_of

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = {  # what some lines print
    "export model.pt --target loihi2 --samples 4": "bit-exact",
    "run model.loihi2": "360 samples of digits, accuracy 9",
    "verify model.loihi2": "the certificate holds",
    "export own.pt": "bit-exact",
    "report model.loihi2": "written: comparison.html",
}
BRING_YOUR_OWN = {
    "run mine.loihi2 --backend emulator --data mine.npz": "120 samples of mine.npz, accuracy 9",
    "run mine.loihi2 --backend emulator --data inputs.npy": "16 samples of inputs.npy, ",
    "export theirs.nir": "assuming resets by subtraction, one step later",
    "export weights.pt": "PyTorch model: 0 of ",
    "export tutorial.pt": "PyTorch model: 0 of 640",
    "run tutorial.loihi2": "values of mine.npz are divided by 3 and rounded",
    "fit mine.loihi2": "estimated from 16 samples",
    "train --data recordings": "on recordings",
}


# In one process, because each would import torch again.
IN_ORDER = """
import json, runpy, sys
from mpbn_deploy.base import arguments

arguments.USUAL_BUDGET = 0.0  # as in the other tests, Lava's own models run only where they are asked for
for kind, text in json.load(sys.stdin):
    print("\\f" + text, flush=True)
    if text.startswith("# ") and ".py\\n" in text:  # the name of a file to save
        open(text.split()[1], "w").write(text)
        continue
    if kind == "python":
        exec(text, {"__name__": "__main__"})
        continue
    sys.argv = text.split()[2:]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code and not (ended.code == 1 and " --target speck" in text):  # which does not fit
            raise
"""


def blocks(page):
    return re.findall(r"```(python|sh)\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def pieces(page):
    """Return each block of Python and each line of the shell, as (kind, text)."""
    for kind, block in blocks(page):
        yield from (
            [(kind, block)] if kind == "python" else [(kind, line) for line in block.strip().splitlines()]
        )


@pytest.mark.slow
@pytest.mark.lava
@pytest.mark.interop
@pytest.mark.parametrize("page, expected", [("bring-your-own.md", BRING_YOUR_OWN), ("tutorial.md", TUTORIAL)])
def test_every_line_of_the_page_works(tmp_path, page, expected):
    pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
    given = json.dumps([*pieces(page)])
    done = subprocess.run(
        [sys.executable, "-c", IN_ORDER],
        cwd=tmp_path,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, end_of(done.stdout)
    printed = done.stdout.split("\f")[1:]
    assert len(printed) == len([*pieces(page)])
    shown = {
        start for start, text in expected.items() for part in printed if f".{start}" in part and text in part
    }
    assert shown == set(expected)


def test_the_page_has_blocks():
    assert [kind for kind, _ in blocks("bring-your-own.md")] == ["python", "sh"] * 4
