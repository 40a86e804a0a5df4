"""docs/bring-your-own.md: every block of the page, in its order, in an empty folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from networks import end_of

PAGE = Path(__file__).parents[2] / "docs" / "bring-your-own.md"
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
EXPECTED = {  # what some lines print
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
    if kind == "python":
        exec(text, {"__name__": "__main__"})
        continue
    sys.argv = text.split()[2:]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
"""


def pieces():
    """Return each block of Python and each line of the shell, as (kind, text)."""
    for kind, block in BLOCKS:
        yield from (
            [(kind, block)] if kind == "python" else [(kind, line) for line in block.strip().splitlines()]
        )


@pytest.mark.slow
@pytest.mark.lava
@pytest.mark.interop
def test_every_line_of_the_page_works(tmp_path):
    pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
    given = json.dumps([*pieces()])
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
    assert len(printed) == len([*pieces()])
    shown = {
        start for start, text in EXPECTED.items() for part in printed if f".{start}" in part and text in part
    }
    assert shown == set(EXPECTED)


def test_the_page_has_blocks():
    assert [kind for kind, _ in BLOCKS] == ["python", "sh"] * 4
