"""The examples run, and the package is whole."""

import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from networks import needs_lava

from mpbn_deploy import __version__

ROOT = Path(__file__).parents[2]


@needs_lava
def test_quickstart(capfd):
    text = (ROOT / "examples" / "quickstart.py").read_text()
    assert len(text.splitlines()) < 40
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"))
    out, _ = capfd.readouterr()
    assert "25760 spikes, 0 different" in out and "fits: True" in out


OWN = {
    "snntorch_digits.py": "0 spikes differ from snnTorch's; bit-exact",
    "spikingjelly_digits.py": "0 spikes differ from SpikingJelly's; bit-exact",
    "own_loop.py": "0 spikes changed by folding; bit-exact",
    "own_data.py": "of 359 test samples right; bit-exact",
}


@needs_lava
@pytest.mark.interop
@pytest.mark.parametrize("name", OWN)
def test_networks_and_data_of_ones_own(run_here, tmp_path, name):
    for library in ("snntorch", "spikingjelly"):
        pytest.importorskip(library, reason=f"{library} is not installed (pip install {library})")
    done = run_here(name, tmp_path)
    assert done.returncode == 0, done.stderr
    assert OWN[name] in done.stdout


def test_the_loop_of_the_docs_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "training.md").read_text()
    (loop,) = [part.split("```")[0] for part in text.split("```python\n")[1:] if "optimizer.step()" in part]
    exec(compile(loop, "docs/training.md", "exec"), {})
    from mpbn_deploy.checkpoint import load_model

    assert load_model(tmp_path / "model.pt").card.architecture == "digits-mlp"


def test_ablation_takes_a_network_of_ones_own_and_finds_it_again(run_here, tmp_path):
    small = ["--arch", "own_network:build", "--kinds", "none", "--seeds", 1, "--epochs", 1, "--out", tmp_path]
    assert "none, seed 0" in run_here("ablation.py", *small).stderr
    again = run_here("ablation.py", *small)
    assert again.returncode == 0 and "seed 0" not in again.stderr and "| none | 1 |" in again.stdout


def test_ablation_goes_on_where_it_was_and_the_landscape_walks_from_its_networks(run_here, tmp_path):
    small = ["--arch", "digits-mlp", "--seeds", 2, "--epochs", 2, "--out", tmp_path / "ablation"]
    first = run_here("ablation.py", *small)
    assert first.returncode == 0 and first.stderr.count(", seed ") == 4
    assert "| none | 2 |" in first.stdout and "| channel | 2 |" in first.stdout
    assert (tmp_path / "ablation" / "ablation.png").read_bytes().startswith(b"\x89PNG")
    again = run_here("ablation.py", *small)
    assert "seed 0" not in again.stderr
    assert (tmp_path / "ablation" / "ablation.md").read_text() in again.stdout

    changed = {"--batch": "32 (now 64)", "--leak": "0.25 (now 0.5)", "--clip-gradient": "None (now 1.0)"}
    for option, found in changed.items():
        other = run_here("ablation.py", *small, option, found.partition("now ")[2].rstrip(")"))
        name = option.lstrip("-").replace("-", "_")
        assert other.returncode == 2 and f"none-0.pt: belongs to a study with {name} {found}" in other.stderr

    models = [tmp_path / "ablation" / f"{kind}-0.pt" for kind in ("none", "channel")]
    picture = tmp_path / "landscape.png"
    walk = run_here(
        "landscape.py", *models, "--samples", 64, "--points", 5, "--directions", 2, "--out", picture
    )
    assert walk.returncode == 0 and picture.read_bytes().startswith(b"\x89PNG")
    rows = [line.split("|") for line in walk.stdout.splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["none-0", "channel-0"]
    assert all(float(row[-2]) > 0.1 for row in rows)  # a whole filter's length away, the loss is higher


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ablation.py", "--data", "cifar10", "--data-dir", "nowhere"], "nowhere is not a folder"),
        (["ablation.py", "--seeds", "0"], "argument --seeds"),
        (["landscape.py", "nothing.pt"], "nothing.pt: no such file"),
    ],
)
def test_examples_say_what_is_wrong(run_here, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run_here(*arguments)
    assert found.returncode == 2 and message in found.stderr and "Traceback" not in found.stderr


@pytest.mark.slow
def test_demo_meets_its_promise(tmp_path, capfd):
    """Integer accuracy within 0.6 points of float, nothing mismatched."""
    from mpbn_deploy.formats.folder import open_folder

    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import demo

        assert demo.main(tmp_path / "demo", None, None) == 0
    finally:
        sys.path.remove(str(ROOT / "examples"))
    out, _ = capfd.readouterr()
    (first, *rows) = out.splitlines()
    assert first.partition(": ")[0] in ("green", "yellow") and len(rows) <= 12 and "report.html" in rows[-2]
    import json

    folder = tmp_path / "demo" / "model.loihi2"
    accuracy = json.loads((folder / "verify.json").read_text())["accuracy"]
    assert accuracy["samples"] == 360 and accuracy["float"] > 0.95
    assert accuracy["float"] - accuracy["integer"] <= 0.006
    assert open_folder(folder).manifest["data"] == "digits"


@pytest.mark.slow
def test_the_wheel_carries_profiles_template_types_and_license(tmp_path):
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(tmp_path),
            str(ROOT),
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "mpbn_deploy/hw_profiles/loihi2.toml",
        "mpbn_deploy/example_models/digits.pt",
        "mpbn_deploy/report/page.html.j2",
        "mpbn_deploy/report/comparison.html.j2",
        "mpbn_deploy/py.typed",
        f"mpbn_deploy-{__version__}.dist-info/licenses/LICENSE",
    } <= names


def test_importing_the_package_imports_nothing_heavy():
    heavy = ("torch", "lava", "nir", "h5py")
    code = f"import sys, mpbn_deploy.execute.lava.compat; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
