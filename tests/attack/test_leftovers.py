"""What killed processes leave behind is removed by the next one; what living ones own is not."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mpbn_deploy.base import OptionError, files, write_atomically
from mpbn_deploy.formats.folder import FORMAT, MANIFEST_FILE, new_folder

WRITE = """
import os, signal, sys
from pathlib import Path
from mpbn_deploy.base import files
from mpbn_deploy.formats import folder

def die():
    os.kill(os.getpid(), signal.SIGKILL)

out, place = Path(sys.argv[1]), sys.argv[2]
if place == "file":
    os.fsync = lambda descriptor: die()
    files.write_atomically(out, b"half")
elif place == "folder":
    with folder.new_folder(out) as staging:
        (staging / "network.net").write_bytes(b"half")
        die()
elif place == "replacing":
    rename = Path.rename
    Path.rename = lambda path, target: die() if path.name == "new" else rename(path, target)
    with folder.new_folder(out) as staging:
        (staging / "network.net").write_bytes(b"new")
else:
    files.new_temporary_folder()
    die()
"""


def killed(out, place):
    """Kill a process while it writes."""
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(out), place],
        env={**os.environ, "TMPDIR": str(out.parent)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_folder_survives_when_its_replacement_fails(tmp_path, monkeypatch, error):
    out, rename = tmp_path / "out", Path.rename
    out.mkdir()
    (out / MANIFEST_FILE).write_text(json.dumps({"format": FORMAT}))

    def interrupted(path, target):
        if path.name == "new":
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises((KeyboardInterrupt, OptionError)), new_folder(out):
        pass
    assert names(tmp_path) == ["out"] and names(out) == [MANIFEST_FILE]


def test_only_errors_about_the_folder_say_that_it_cannot_be_written(tmp_path):
    for error, raised in (
        (FileNotFoundError(errno.ENOENT, "missing", str(tmp_path / "data.npz")), FileNotFoundError),
        (OSError(errno.EAGAIN, "no process can be started"), OSError),
        (OSError(errno.ENOSPC, "no space left"), OptionError),
    ):
        with pytest.raises(raised) as caught, new_folder(tmp_path / "out"):
            raise error
        assert (caught.value is error) == (raised is not OptionError)
    with (
        pytest.raises(OptionError, match="out: cannot be written"),
        new_folder(tmp_path / "out") as staging,
    ):
        (staging / "missing" / "network.net").write_bytes(b"")
    assert names(tmp_path) == []


def test_a_file_half_written_by_a_killed_process_is_removed(tmp_path):
    killed(tmp_path / "model.pt", "file")
    (left,) = names(tmp_path)
    assert left.startswith(".model.pt.") and left.endswith(".part")
    write_atomically(tmp_path / "other.pt", b"other")
    assert left in names(tmp_path)  # it belongs to another file
    write_atomically(tmp_path / "model.pt", b"whole")
    assert names(tmp_path) == ["model.pt", "other.pt"]
    assert (tmp_path / "model.pt").read_bytes() == b"whole"


def test_a_folder_half_written_by_a_killed_process_is_removed(tmp_path):
    killed(tmp_path / "out", "folder")
    assert len(names(tmp_path)) == 1
    with new_folder(tmp_path / "out") as staging:
        (staging / "network.net").write_bytes(b"whole")
    assert names(tmp_path) == ["out"]


def test_an_export_that_was_moved_aside_comes_back(tmp_path):
    """Killed between the two renames: the earlier export is in the temporary folder only."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST_FILE).write_text(f'{{"format": "{FORMAT}"}}')
    killed(tmp_path / "out", "replacing")
    assert "out" not in names(tmp_path)
    with pytest.raises(KeyError), new_folder(tmp_path / "out"):
        raise KeyError
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == [MANIFEST_FILE]


def test_temporary_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    killed(tmp_path / "nothing", "temporary")
    assert len(names(tmp_path)) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with files.temporary_folder() as folder:
        assert names(tmp_path) == [Path(folder).name]
    assert names(tmp_path) == []


def test_what_others_own_stays(tmp_path, monkeypatch):
    """Living processes, other machines, other users, and names that are not ours."""
    own = files.owned_name(".a.")
    machine = own.removeprefix(".a.").partition("-")[0]
    dead = killed_process()
    (tmp_path / "elsewhere").mkdir()
    kept = [f"{own}part", f".a.00000000-{dead}.part", f".a.{machine}-x.part", f".a.{dead}.part", ".b.part"]
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / f".a.{machine}-{dead}.part").symlink_to(tmp_path / "elsewhere")
    files.remove_abandoned(tmp_path, ".a.")
    assert names(tmp_path) == sorted([*kept, "elsewhere"])  # the link is gone, not what it led to
    (tmp_path / f".a.{machine}-{dead}.part").touch()
    monkeypatch.setattr(os, "getuid", lambda: -1)
    files.remove_abandoned(tmp_path, ".a.")
    assert f".a.{machine}-{dead}.part" in names(tmp_path)
    files.remove_abandoned(tmp_path / "absent", ".a.")


def killed_process():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_processes_of_others_are_alive():
    assert not files._is_dead(1) and not files._is_dead(os.getpid())
    assert files._is_dead(10**30)


CRASH = """
import os, signal, sys
from pathlib import Path
from mpbn_deploy import become_command
from mpbn_deploy.formats import folder

become_command()
with folder.new_folder(Path(sys.argv[1])) as staging:
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_crash_of_a_library_says_so_and_where(tmp_path):
    out = tmp_path / "export"
    command = [sys.executable, "-c", CRASH, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.startswith("Fatal Python error: Segmentation fault") and "line 9" in done.stderr
    assert not out.exists() and names(tmp_path)
    with new_folder(out):
        pass
    assert names(tmp_path) == ["export"]
