"""docs/bring-your-own.md and docs/tutorial.md: every block of the page, in its order, in an empty folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    "export tutorial.pt": "folding   0 of 640 spikes differ",
    "run tutorial.loihi2": "values of mine.npz, divided by 3 and rounded",
    "fit mine.loihi2": "estimated from 16 samples",
    "train --data recordings": "on recordings",
}
# The network of snnTorch that wrote theirs.nir, and what was exported from that file, on the same samples.
BESIDE = """
import numpy as np
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.nir import read_folded

inputs = np.load("mine.npz")["inputs"][:20].reshape(20, 64)
ours = simulate(read_folded("theirs.loihi2/network.nir"), inputs.astype(int)).spikes
theirs = {"1": [], "3": []}
for name, sent in theirs.items():
    network[int(name)].register_forward_hook(
        lambda part, given, output, sent=sent: sent.append(output[0] if isinstance(output, tuple) else output)
    )
with torch.no_grad():
    for _ in range(16):
        network(torch.tensor(inputs / 16, dtype=torch.float32))
spikes = {name: torch.stack(sent, dim=1).bool().numpy() for name, sent in theirs.items()}
assert all(each.any() for each in spikes.values()) and set(spikes) <= set(ours)
different = sum(int((ours[name] != each).sum()) for name, each in spikes.items())
print("beside snnTorch:", different, "of", sum(each.size for each in spikes.values()))
"""


# In one process, because each would import torch again.
IN_ORDER = """
import json, runpy, sys
from mpbn_deploy.base import options
from mpbn_deploy.execute.lava import compat

exports = 0
options.USUAL_BUDGET = 0.0  # as in the other tests, Lava's own models run only where they are asked for
for kind, text in json.load(sys.stdin):
    print("\\f" + text, flush=True)
    if text.startswith("# ") and ".py\\n" in text:  # the name of a file to save
        open(text.split()[1], "w").write(text)
        continue
    if kind == "python":
        exec(text, {"__name__": "__main__"})
        continue
    sys.argv = text.split()[2:]
    exports += "mpbn_deploy.export" in text
    if exports == 2:  # Lava, which is slow to start, takes part in the first
        compat.installed_version = lambda package: None
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
    for library in ("snntorch", "spikingjelly", "norse"):
        pytest.importorskip(library, reason=f"{library} is not installed (pip install {library})")
    given = [*pieces(page)]
    if page == "bring-your-own.md":
        writer = next(text for _, text in given if "export_to_nir(" in text)
        given.append(("python", writer + BESIDE))
    done = subprocess.run(
        [sys.executable, "-c", IN_ORDER],
        cwd=tmp_path,
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    printed = done.stdout.split("\f")[1:]
    assert len(printed) == len(given)
    shown = {
        start for start, text in expected.items() for part in printed if f".{start}" in part and text in part
    }
    assert shown == set(expected)
    for _, text in given:
        if "mpbn_deploy.export" in text and ".nir " not in text:
            assert_beside_pytorch(exported_by(text, tmp_path))
    if page == "bring-your-own.md":
        assert printed[-1].endswith("beside snnTorch: 0 of 12800\n")


def exported_by(line, folder):
    """Return the export folder of a line of the shell."""
    words = line.split()
    target = words[words.index("--target") + 1]
    named = words[words.index("--out") + 1] if "--out" in words else f"{Path(words[3]).stem}.{target}"
    return folder / named


def assert_beside_pytorch(folder):
    """The module, of another library or of PyTorch, ran beside the folded network: no spike differs."""
    fold = json.loads((folder / "verify.json").read_text())["fold"]
    assert fold["spikes_mismatched"] == 0 < fold["spikes_compared"]


def test_the_page_has_blocks():
    assert [kind for kind, _ in blocks("bring-your-own.md")] == ["python", "sh"] * 4
