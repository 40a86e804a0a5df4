"""docs/bring-your-own.md: every block of the page, in its order, in an empty folder."""

import importlib.util
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
    "export weights.pt": "PyTorch model: 0 of ",
    "fit mine.loihi2": "estimated from 16 samples",
    "train --data recordings": "on recordings",
}


def run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{end_of(done.stderr)}"
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.lava
def test_every_line_of_the_page_works(tmp_path):
    shown = set()
    for kind, block in BLOCKS:
        if kind == "python":
            run([sys.executable, "-c", block], tmp_path)
            continue
        for line in block.strip().splitlines():
            if "safetensors" in line and importlib.util.find_spec("safetensors") is None:
                continue
            printed = run([sys.executable, *line.split()[1:]], tmp_path)
            shown |= {start for start, text in EXPECTED.items() if f".{start}" in line and text in printed}
    assert shown == set(EXPECTED)


def test_the_page_has_blocks():
    assert [kind for kind, _ in BLOCKS] == ["python", "sh", "python", "sh"]
