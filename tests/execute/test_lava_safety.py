"""Lava's processes exit and free their memory: after errors, interrupts, and when the parent is killed."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from networks import (
    assert_same_trace,
    end_of,
    group_is_gone,
    inputs_for,
    int_chain,
    needs_lava,
    wait_for_lava,
)
from shard_work import outputs_in_lava

from mpbn_deploy.base import SimulationError, files, main
from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.run.__main__ import COMMAND as RUN
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY

pytestmark = needs_lava
on_linux = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks into /proc and /dev/shm")


def shared_memory_of(processes):
    """Return the files of shared memory that the processes have mapped."""
    found = set()
    for process in processes:
        maps = Path(f"/proc/{process}/maps").read_text()
        found |= {line.split()[5] for line in maps.splitlines() if "/dev/shm/psm_" in line}
    return {Path(path) for path in found}


def children():
    return [child.pid for child in multiprocessing.active_children()]


def failing(how):
    """Return a replacement of Neurons.step that calls `how` at the third step of the dense layer."""
    from mpbn_deploy.execute.lava import Neurons

    step, calls = Neurons.step, []

    def fail(self, synapses):
        calls.append(1)
        if self.voltage.shape[-1] == 5 and len(calls) == 3:
            how()
        return step(self, synapses)

    return fail


def divide():
    return 1 / 0


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def sleep():
    time.sleep(600)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (divide, r"Layer dense \(process \d+\): ZeroDivisionError: division by zero"),
        (die, r"Layer dense \(process \d+\): ended with exit code -9"),
        (
            sleep,
            r"Lava did not finish 8 time steps in 1 s; its processes are .*Layer dense ",
        ),
    ],
)
@on_linux
def test_a_process_that_fails_is_named_and_all_end(monkeypatch, how, message):
    from mpbn_deploy.execute.lava import Neurons

    monkeypatch.setattr(Neurons, "step", failing(how))
    network, before = int_chain(), children()
    patience = {"patience": 1.0} if how is sleep else {}
    with lava_sim.Session(network, lanes=1, **patience) as session:
        started = [child for child in children() if child not in before]
        memory = shared_memory_of(started)
        assert len(started) == 6 and memory  # the input, three layers, the service, the shared memory
        with pytest.raises(SimulationError, match=message):
            session.run(inputs_for(network))
        with pytest.raises(SimulationError, match="the session is not running"):
            session.run(inputs_for(network))
    assert children() == before
    assert not any(path.exists() for path in memory)


def test_after_a_failure_lava_can_be_used_again(monkeypatch):
    from mpbn_deploy.execute.lava import Neurons

    network = int_chain()
    inputs = inputs_for(network)
    with monkeypatch.context() as broken:
        broken.setattr(Neurons, "step", failing(divide))
        with pytest.raises(SimulationError, match="ZeroDivisionError"):
            lava_sim.run(network, inputs)
    assert_same_trace(simulate(network, inputs), lava_sim.run(network, inputs))


@on_linux
def test_processes_that_stop_slowly_are_killed(monkeypatch):
    """On a busy machine, for one: Lava, which waits for them in a thread, must not be disturbed."""
    from mpbn_deploy.execute.lava import graph

    monkeypatch.setattr(graph, "STOP_SECONDS", 0.0)
    network, before = int_chain(), children()
    inputs = inputs_for(network)
    with lava_sim.Session(network) as session:
        trace = session.run(inputs)
        memory = shared_memory_of(children())
    assert_same_trace(simulate(network, inputs), trace)
    assert children() == before and memory and not any(path.exists() for path in memory)


@on_linux
def test_an_error_of_the_user_ends_a_session():
    network, before = int_chain(), children()
    with pytest.raises(ValueError, match="mine"), lava_sim.Session(network) as session:
        session.run(inputs_for(network))
        memory = shared_memory_of(children())
        raise ValueError("mine")
    assert children() == before and memory and not any(path.exists() for path in memory)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ([RUN, "--backend", "lava"], 2, "error: Lava did not finish"),
        ([VERIFY, "--budget", "0"], 1, "executions that ran; Lava (our models) failed"),
    ],
)
def test_a_lava_that_hangs_ends_the_command_in_one_message(
    monkeypatch, netx_path, capfd, command, code, message
):
    from mpbn_deploy.execute.lava import Neurons

    monkeypatch.setattr(Neurons, "step", failing(sleep))
    before = children()
    command, *budget = command
    assert main(command, [str(netx_path), "--samples", "3", "--patience", "1", *budget]) == code
    out, err = capfd.readouterr()
    assert message in out + err and "in 1 s; its processes are" in out + err and "Traceback" not in err
    assert children() == before


@pytest.mark.parametrize("patience", ["0", "-1", "soon"])
def test_impossible_patience(netx_path, capfd, patience):
    with pytest.raises(SystemExit) as left:
        main(RUN, [str(netx_path), "--patience", patience])
    assert left.value.code == 2 and "--patience" in capfd.readouterr().err


@pytest.mark.parametrize("daemon", [False, True])
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_lava_runs_in_a_process_of_multiprocessing(method, daemon):
    """The start method is set there already, and daemonic processes may not have children."""
    context = multiprocessing.get_context(method)
    results = context.Queue()
    network, inputs = int_chain(), inputs_for(int_chain())
    process = context.Process(target=outputs_in_lava, args=(network, inputs, results), daemon=daemon)
    process.start()
    expected = simulate(network, inputs).outputs
    np.testing.assert_array_equal(results.get(timeout=60), expected)
    assert results.get(timeout=60) == method  # as it was
    process.join(30)
    assert process.exitcode == 0


def test_a_folder_of_sockets_with_too_long_a_path_is_rejected(monkeypatch, tmp_path):
    from mpbn_deploy.execute.lava import graph

    monkeypatch.setattr(graph, "_socket_folder", lambda: str(tmp_path / ("long" * 20)))
    before = children()
    with pytest.raises(
        SimulationError, match=r"longlong: the path has \d+ characters; the sockets .* TMPDIR"
    ):
        lava_sim.run(int_chain(), inputs_for(int_chain()))
    assert children() == before


def test_the_folder_of_sockets_is_one_that_the_next_run_removes_if_this_one_is_killed():
    from mpbn_deploy.execute.lava import graph

    lava_sim.run(int_chain(), inputs_for(int_chain()))
    folder = Path(graph._socket_folder())
    assert folder.is_dir() and folder.name.startswith(files.owned_name(files.TEMPORARY))
    assert folder.parent == Path(tempfile.gettempdir())


def test_a_layer_that_cannot_be_built_is_named(monkeypatch):
    """It fails in Lava's process, before the first time step."""
    from mpbn_deploy.execute.lava import fast_layers

    monkeypatch.setattr(fast_layers, "neurons_of", lambda plan: 1 / 0)
    before = children()
    with pytest.raises(SimulationError, match="Lava's processes did not start: division by zero"):
        lava_sim.run(int_chain(), inputs_for(int_chain()))
    assert children() == before


ENDLESS = """
import pickle, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits none
from mpbn_deploy.execute import lava
network, inputs = pickle.load(sys.stdin.buffer)
print("started", flush=True)
try:
    with lava.Session(network, probe=(), stock=sys.argv[1] == "stock") as session:
        while True:
            session.run(inputs)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def endless(folder, models="ours"):
    command = [sys.executable, "-c", ENDLESS, models]
    environment = {**os.environ, "TMPDIR": str(folder)}
    run = subprocess.Popen(
        command,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    network = int_chain()
    pickle.dump((network, inputs_for(network, samples=4)), run.stdin.buffer)
    run.stdin.flush()
    assert run.stdout.readline() == "started\n"
    return run


@pytest.mark.parametrize("seconds", [0.15, 0.4, None])
def test_an_interrupt_from_the_keyboard_ends_all_processes(short_folder, seconds):
    """It reaches the whole process group, as in a terminal: while Lava is imported, built, or runs (None)."""
    with endless(short_folder) as run:
        wait_for_lava(run.pid) if seconds is None else time.sleep(seconds)
        os.killpg(run.pid, signal.SIGINT)
        out = end_of(run)[0]
    # Python kills itself at its end if an interrupt ever left an `exec` of a string: dataclasses have one.
    assert out == "interrupted\n" and run.returncode in ((0,) if seconds is None else (0, -signal.SIGINT))
    assert list(short_folder.iterdir()) == []
    assert group_is_gone(run.pid)


@pytest.mark.parametrize(
    ("number", "models"),
    [
        (signal.SIGINT, "ours"),
        (signal.SIGTERM, "ours"),
        (signal.SIGKILL, "ours"),
        (signal.SIGKILL, "stock"),
    ],
)
@on_linux
def test_a_run_that_is_killed_leaves_no_process_and_no_memory(short_folder, number, models):
    """The signal reaches only the parent, and SIGKILL gives it no time to stop the others."""
    with endless(short_folder, models) as run:
        memory = _memory_in_use(run.pid)
        os.kill(run.pid, number)
        end_of(run)
    assert group_is_gone(run.pid)
    assert not any(path.exists() for path in memory)
    assert list(short_folder.iterdir()) == []


def _memory_in_use(group, seconds=60):
    """Return the shared memory of a process group, once at least six of its processes use some."""
    for _ in range(10 * seconds):
        members = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_member(path, group)]
        try:
            users = [member for member in members if shared_memory_of([member])]
            if len(users) >= 6:
                return shared_memory_of(users)
        except OSError:  # a process exited in the meantime
            continue
        finally:
            time.sleep(0.1)
    return pytest.fail(f"Lava did not start within {seconds} s")


def _is_member(path, group):
    try:
        return os.getpgid(int(path.name)) == group
    except ProcessLookupError:
        return False


def test_children_of_a_parent_that_lives_are_left_alone():
    """A session that is idle for several polling intervals still works."""
    from mpbn_deploy.execute.lava import compat

    network = int_chain()
    inputs = inputs_for(network)
    with lava_sim.Session(network) as session:
        time.sleep(3 * compat.POLL_SECONDS)
        np.testing.assert_array_equal(session.run(inputs).outputs, simulate(network, inputs).outputs)
