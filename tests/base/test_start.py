"""How commands start: what they import, and what an interrupt does while they import it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from networks import end_of

HEAVY = {"torch", "lava", "nir", "matplotlib", "sklearn"}
COMMANDS = ("train", "export", "run", "verify", "fit", "doctor")
SCRIPT = Path(sys.executable).with_name("mpbn-deploy")


def imported(*arguments):
    """Run Python with arguments; return its exit code, and the top-level names that it imported."""
    command = [sys.executable, "-X", "importtime", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return done.returncode, {line.split("|")[-1].strip().split(".")[0] for line in lines}


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        *((0, (f"mpbn_deploy.{name}", "--help")) for name in COMMANDS),
        (0, ("mpbn_deploy", "--version")),
        (0, ("mpbn_deploy", "--help")),
        (0, ("mpbn_deploy.fit", "--targets")),
        (0, ("mpbn_deploy", "fit", "--targets", "--json")),
        (2, ("mpbn_deploy.export", "model.pt")),
        (2, ("mpbn_deploy.export", "model.pt", "--target", "loihi2", "--overflow", "hoped")),
        (2, ("mpbn_deploy.train", "--epochs", "0")),
        (2, ("mpbn_deploy.run", "folder", "--backend", "abacus")),
        (2, ("mpbn_deploy.fit",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)  # fmt: skip
def test_what_needs_no_network_imports_nothing_heavy(code, arguments):
    found, names = imported("-m", *arguments)
    assert found == code
    assert "mpbn_deploy" in names and not names & HEAVY


def test_fit_without_samples_needs_no_torch(export_folder, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('torch is absent')\n")
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-m", "mpbn_deploy.fit", str(export_folder), "--samples", "0", "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "energy and time are not estimated, because --samples 0 measures no activity" in done.stderr
    found, whole = json.loads(done.stdout), json.loads((export_folder / "fit.json").read_text())
    assert found["energy"] is None and whole["energy"] is not None
    same = whole.keys() - {"energy", "between_chips"}
    assert {key: found[key] for key in same} == {key: whole[key] for key in same}


def test_a_folder_named_like_a_library_is_not_imported(tmp_path):
    """The current folder is searched for modules of --arch, and for nothing else."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise SystemExit('the wrong rich')\n")
    done = subprocess.run(
        [SCRIPT, "fit", "--targets"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "Intel Loihi 2" in done.stdout, done.stderr


# ---- interrupts -----------------------------------------------------------------------------------


def interrupted(arguments, seconds, folder):
    """Interrupt a command so many seconds after its first line; return its exit code and all it said.

    That its first line ran is seen by the import after it, of argparse.
    """
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
    ) as run:  # fmt: skip
        while not (line := run.stderr.readline()).rstrip().endswith(" argparse"):
            assert line, "ended before it was interrupted"
        time.sleep(seconds)
        run.send_signal(signal.SIGINT)
        out, err = end_of(run)
    return run.returncode, out + err


@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("command", ["export", "fit", "train"])
def test_an_early_interrupt_ends_without_a_traceback(command, seconds, model_path, export_folder, tmp_path):
    arguments = {
        "export": ["mpbn_deploy.export", model_path, "--target", "loihi2", "--out", tmp_path / "out"],
        "fit": ["mpbn_deploy", "fit", export_folder, "--target", "loihi1", "--advise", "--samples", "all"],
        "train": ["mpbn_deploy.train", "--epochs", 1000, "--out", tmp_path / "model.pt"],
    }
    code, said = interrupted(arguments[command], seconds, tmp_path)
    # A process that is ended by the signal itself, while Python finishes, is 130 to a shell too.
    assert code in (130, -signal.SIGINT) and "Traceback" not in said
    assert code != 130 or "interrupted\n" in said
    assert not (tmp_path / "out").exists()
