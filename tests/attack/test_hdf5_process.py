"""HDF5 files that hang, crash or exhaust memory: one message each, in bounded time and memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hostile_files
import numpy as np
import pytest

from mpbn_deploy.base import FormatError, hdf5, read_tree, write_tree
from mpbn_deploy.formats.netx import read_netx

GIGABYTE = 2**30


@pytest.fixture
def good(tmp_path):
    return hostile_files.good(tmp_path)


@pytest.mark.parametrize("build", hostile_files.REJECTED, ids=lambda build: build.__name__)
def test_expensive_files_are_rejected_within_a_gigabyte(tmp_path, build):
    path = build(tmp_path)
    assert path.stat().st_size < hdf5.SMALL
    started = time.monotonic()
    with pytest.raises(FormatError, match=hostile_files.REJECTED[build]) as caught:
        read_netx(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 500
    assert time.monotonic() - started < 10
    assert peak_of_the_process() < GIGABYTE
    assert read_netx(hostile_files.good(tmp_path)).timesteps == 4


def peak_of_the_process():
    """Return the most memory that the reading process had, in bytes."""
    status = Path(f"/proc/{hdf5._process.process.pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def test_a_file_that_hangs_is_given_up(tmp_path, monkeypatch, good):
    monkeypatch.setattr(hdf5, "SECONDS", 1.0)
    read_tree(good)
    process = hdf5._process.process
    with pytest.raises(FormatError, match=r"endless_heap.net: not read within 1 s") as caught:
        read_tree(hostile_files.endless_heap(tmp_path))
    assert "get another copy" in str(caught.value)
    assert process.returncode == -signal.SIGKILL
    assert "layer" in read_tree(good)
    assert hdf5._process.process.pid != process.pid


def test_the_kernel_ends_a_file_that_hangs_when_its_command_is_gone(tmp_path, monkeypatch):
    """Were the command killed meanwhile, nobody would be left to give up."""
    monkeypatch.setattr(hdf5, "SECONDS", 0.5)
    reader = hdf5._ReadingProcess()
    path = hostile_files.endless_heap(tmp_path)
    reader.connection.send((str(path), str(path), 0.5, hdf5.MEMORY))
    reader.connection.close()
    assert reader.process.wait(timeout=60) == -signal.SIGXCPU


def test_a_crash_of_the_library_is_one_message(good):
    read_tree(good)
    process = hdf5._process.process
    os.kill(process.pid, signal.SIGSEGV)
    with pytest.raises(FormatError, match=r"good.net: reading ended the HDF5 library \(exit code -11\)"):
        read_tree(good)
    assert "layer" in read_tree(good)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_starts_a_process_of_its_own(good):
    read_tree(good)
    before, exit_code = hdf5._process, 1
    child = os.fork()
    if child == 0:
        try:
            exit_code = 0 if "layer" in read_tree(good) and hdf5._process is not before else 1
            hdf5._process.end()
        finally:
            os._exit(exit_code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "layer" in read_tree(good) and hdf5._process is before


def test_another_process_takes_over_after_many_files(good, monkeypatch):
    monkeypatch.setattr(hdf5, "MAX_READS", 2)
    processes = []
    for _ in range(4):
        read_tree(good)
        processes.append(hdf5._process.process.pid)
    assert len(set(processes)) >= 2


def test_trees_arrive_as_they_were_written(tmp_path):
    tree = {
        "numbers": np.arange(12.0).reshape(3, 4),
        "none": np.zeros((0, 2), np.int8),
        "one": np.int16(-7),
        "text": "word",
        "inner": {"flags": np.array([True, False])},
    }
    write_tree(tmp_path / "a.h5", tree)
    found = read_tree(tmp_path / "a.h5")
    assert found.keys() == tree.keys() and found["text"] == "word" and found["one"] == -7
    for name in ("numbers", "none"):
        np.testing.assert_array_equal(found[name], tree[name])
        assert found[name].dtype == tree[name].dtype
    np.testing.assert_array_equal(found["inner"]["flags"], [True, False])


def test_the_current_folder_is_not_imported_from(tmp_path, good, monkeypatch):
    """Files named like modules, beside the network to be read."""
    for name in ("json", "h5py", "numpy", "multiprocessing", "mpbn_deploy"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    reader = hdf5._ReadingProcess()
    assert "layer" in reader.read(good, 10.0, hdf5.MEMORY)
    reader.end()
    assert not (tmp_path / "executed").exists()


def test_a_command_that_waits_for_a_file_can_be_terminated(tmp_path):
    path = hostile_files.endless_heap(tmp_path)
    command = [sys.executable, "-m", "mpbn_deploy.fit", str(path), "--target", "loihi2", "--samples", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        reader = wait_for_child(process.pid)
        time.sleep(0.5)
        process.terminate()
        process.communicate(timeout=8)
    assert process.returncode == 143
    assert not is_alive(reader)


def wait_for_child(parent):
    """Return the process that a process started."""
    for _ in range(600):
        if children := Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            return int(children[0])
        time.sleep(0.1)
    raise AssertionError("it started no process")


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_limits_are_those_of_the_machine_if_they_are_lower():
    """A limit that the user set still holds."""
    code = """
import resource
from mpbn_deploy.base import hdf5
resource.setrlimit(resource.RLIMIT_CPU, (50, 50))
hdf5._limit(1000, 2**30)
print(resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_AS)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == f"(50, 50) {2**30}"
