"""How commands start: what they import, and what an interrupt does while they import it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from networks import end_of, heed_interrupts

HEAVY = {"torch", "lava", "nir", "matplotlib", "sklearn"}
COMMANDS = ("train", "export", "run", "verify", "fit", "report", "doctor")
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


INTERRUPTED_FIRST = """
import sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mpbn_deploy.base":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder)
"""


def test_an_interrupt_before_the_first_import_ends_without_a_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_FIRST)
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-m", "mpbn_deploy.fit", "--targets"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


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


EVIL = "open('executed', 'a').write(__name__ + ' ')\n"
IMPORTED_LATE = ("sklearn", "rich", "torch", "numpy", "h5py", "multiprocessing", "pickle", "tomllib")


@pytest.fixture
def downloaded(tmp_path):
    """Return a folder with files named like modules, which note that they were executed."""
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name in IMPORTED_LATE:
        (folder / f"{name}.py").write_text(EVIL)
    return folder


def run_in(folder, *command):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("start", [[SCRIPT], [sys.executable, "-m", "mpbn_deploy"]], ids=["script", "module"])
def test_no_code_of_the_current_folder_runs_in_a_command(start, downloaded, netx_path):
    """A network from the internet may come in a folder with more in it."""
    out = run_in(downloaded, *start, "fit", netx_path, "--target", "loihi2", "--samples", 0, "--json")
    assert json.loads(out)["fits"]
    assert not (downloaded / "executed").exists(), (downloaded / "executed").read_text()


# The current folder is first in sys.path, as with `python -m`; then processes start, and --arch is read.
STARTED = """
import sys
import mpbn_deploy
assert sys.path[0] == ""
mpbn_deploy.become_command()
from multiprocessing import get_context, resource_tracker
resource_tracker.ensure_running()
process = get_context("spawn").Process(target=print, args=("spawned",))
process.start()
process.join()
assert process.exitcode == 0 and "" not in sys.path
from mpbn_deploy.base import import_function
print(import_function("mine:build", "architecture")())
"""


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 puts the current folder first in processes"
)
def test_processes_import_nothing_from_the_current_folder_but_what_is_named_is(downloaded):
    (downloaded / "mine.py").write_text("def build():\n    return 'built'\n")
    assert run_in(downloaded, sys.executable, "-c", STARTED) == "spawned\nbuilt\n"
    assert not (downloaded / "executed").exists(), (downloaded / "executed").read_text()


# ---- interrupts -----------------------------------------------------------------------------------


def interrupted(arguments, seconds, folder, after=" argparse"):
    """Interrupt a command so many seconds after its first line; return its exit code and all it said.

    That its first line ran is seen by the import of the module `after`.
    """
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
        preexec_fn=heed_interrupts,
    ) as run:  # fmt: skip
        while not (line := run.stderr.readline()).rstrip().endswith(after):
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
    assert code == 130 and "interrupted\n" in said and "Traceback" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["mpbn_deploy.fit", "--targets"], ["mpbn_deploy", "doctor"]])
def test_an_interrupt_ends_a_command_from_the_first_import_on(arguments, tmp_path):
    """The import after the handler is installed is that of the room, or of `__main__`."""
    code, said = interrupted(arguments, 0, tmp_path, after=" mpbn_deploy")
    assert code == 130 and "interrupted\n" in said and "Traceback" not in said


# A command that interrupts itself. It runs as `python -m odd`, because Python ends differently without -m.
ODD = """
import builtins, os, signal, sys, time
from mpbn_deploy.base import Command, Outcome, exit_when_interrupted, main

def interrupt(number=signal.SIGINT, kill=os.kill, own=os.getpid()):
    kill(own, number)

class Last:
    def __init__(self, *arguments):
        self.arguments = arguments
    def __del__(self, interrupt=interrupt):
        interrupt(*self.arguments)

def swallow():
    try:
        interrupt()
    except BaseException:
        pass

def slowly_cleaned_up():
    try:
        interrupt()
    finally:
        time.sleep(1)
        print("cleaned up", file=sys.stderr)

def execute(options):
    {place}
    return Outcome(data={{}}, text="done")

exit_when_interrupted()
raise SystemExit(main(Command(
    name="odd", summary="", details="", add_arguments=lambda parser: None, load=lambda: execute
), []))
"""


@pytest.mark.parametrize(
    ("place", "code", "out", "err"),
    [
        ("interrupt()", 130, "", "interrupted\n"),
        ("exec('interrupt()')", 130, "", "interrupted\n"),
        ("Last(); time.sleep(60)", 130, "", "interrupted\n"),
        ("swallow(); time.sleep(60)", 130, "", "interrupted\n"),
        ("slowly_cleaned_up()", 130, "", "cleaned up\ninterrupted\n"),
        (
            "builtins.last = Last()",
            0,
            "done\n",
            "",
        ),  # deleted when the command has ended, and its modules are gone
    ],
)
def test_wherever_an_interrupt_arrives_the_exit_code_is_right(tmp_path, place, code, out, err):
    (tmp_path / "odd.py").write_text(ODD.format(place=place))
    done = subprocess.run(
        [sys.executable, "-m", "odd"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_other_errors_of_destructors_are_shown(tmp_path):
    (tmp_path / "odd.py").write_text(ODD.format(place="Last('no signal')"))
    done = subprocess.run(
        [sys.executable, "-m", "odd"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode == 0 and "Exception ignored in" in done.stderr and "TypeError" in done.stderr


@pytest.mark.parametrize("arguments", [["-c", "import theirs"], ["-m", "theirs"]])
def test_importing_the_package_leaves_interrupts_alone(tmp_path, arguments):
    """Even if Python imports it while it looks for another package's module."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__main__.py").touch()
    (tmp_path / "theirs" / "__init__.py").write_text(
        "import signal, mpbn_deploy\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, check=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
