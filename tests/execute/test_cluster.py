"""Samples distributed over Dask workers: the same results as in one process, even if workers die."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import (
    end_of,
    group_is_gone,
    heed_interrupts,
    inputs_for,
    int_chain,
    needs_lava,
    spiking_network,
    wait_for_lava,
)
from properties import examples
from shard_work import dying, failing, outputs_slowly, rejecting, slowly, summed, too_late

from mpbn_deploy.base import MissingPackageError, OptionError, SimulationError, commands as cli
from mpbn_deploy.data import Samples, Split
from mpbn_deploy.execute import cluster
from mpbn_deploy.execute.emulator import CHUNK
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import write_netx
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.run import run
from mpbn_deploy.run.__main__ import COMMAND as RUN
from mpbn_deploy.verify import verify
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Creating scratch directories is taking"),  # on a busy machine
]


@pytest.fixture(scope="module")
def dask():
    return pytest.importorskip("distributed", reason="distributed (Dask) is not installed")


@examples(200)
@given(samples=st.integers(1, 5000), workers=st.integers(1, 40), multiple=st.sampled_from([1, 7, CHUNK]))
def test_shards_hold_every_sample_once(samples, workers, multiple):
    shards = cluster.cut(samples, workers, multiple)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert [n for shard in shards for n in range(shard.start, shard.stop)] == list(range(samples))
    assert all(shard.start % multiple == 0 for shard in shards)
    assert len(shards) >= min(samples // multiple, workers)  # every worker gets a shard


def test_without_dask_the_error_says_how_to_install_it(monkeypatch, netx_path, capfd):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(MissingPackageError, match=r"pip install 'mpbn_deploy\[cluster\]'"),
        cluster.connected("local:2"),
    ):
        pass
    assert cli.main(RUN, [str(netx_path), "--cluster", "local:2"]) == 2
    assert "distributed (Dask) is not installed" in capfd.readouterr().err


def test_impossible_addresses_in_python(dask):
    with (
        pytest.raises(OptionError, match=r"cluster local:0: 0 is too small; at least 1\."),
        cluster.connected("local:0"),
    ):
        pass


def test_workers_that_cannot_start_give_one_message(dask, monkeypatch, netx_path, capfd):
    def fail(**options):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(dask, "LocalCluster", fail)
    assert cli.main(RUN, [str(netx_path), "--cluster", "local:2"]) == 2
    err = capfd.readouterr().err
    assert "error: --cluster local:2: cannot start workers (Nanny failed to start.)" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("local:0", "0 is too small; at least 1"),
        ("local:two", "'two' is not a whole number"),
        ("", "tcp://host"),
    ],
)
def test_impossible_addresses(netx_path, capfd, address, message):
    for command in (RUN, VERIFY):
        with pytest.raises(SystemExit) as left:
            cli.main(command, [str(netx_path), "--cluster", address])
        assert left.value.code == 2 and message in capfd.readouterr().err


# ---- with Dask --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers(dask):
    with cluster.connected("local:2") as found:
        yield found


def kill_soon(choose):
    """In a thread, kill the first process that `choose` returns; return the thread and the list of killed."""
    killed = []

    def kill():
        for _ in range(1200):
            if process := choose():
                killed.append(process)
                os.kill(process, signal.SIGKILL)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread, killed


def kill_in_the_middle_of_lava(workers):
    """Kill a worker that has started Lava processes."""
    import psutil

    processes = workers.client.run(os.getpid).values()
    return kill_soon(lambda: next((p for p in processes if psutil.Process(p).children()), None))


def numbered(network, samples):
    """Return inputs whose first value is the sample's number, modulo the input range."""
    inputs = inputs_for(network, samples=samples)
    inputs[:, 0, 0, 0] = np.arange(samples) % 8
    return inputs


def test_a_worker_that_is_killed_loses_nothing_and_nothing_is_counted_twice(workers, tmp_path):
    network = int_chain()
    inputs = numbered(network, 24)
    thread, killed = kill_soon(
        lambda: next((int(note.name.split("-")[0]) for note in tmp_path.iterdir()), None)
    )
    parts = workers.share_out(partial(outputs_slowly, tmp_path), network, inputs, "test")
    thread.join()
    assert len(killed) == 1
    starts = [start for start, _ in parts]
    assert starts == list(range(0, 24, 3))
    np.testing.assert_array_equal(np.concatenate([who for _, (_, who) in parts]), inputs[:, 0, 0, 0])
    expected = simulate(network, inputs).outputs
    np.testing.assert_array_equal(np.concatenate([outputs for _, (outputs, _) in parts]), expected)
    notes = [file.name.split("-")[0] for file in tmp_path.iterdir()]
    assert str(killed[0]) in notes and len(notes) > len(parts)  # a shard was begun twice


@needs_lava
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc")
def test_a_local_cluster_listens_on_this_machine_only(workers):
    """Not even its status pages can be opened from another one."""
    import psutil

    own = psutil.Process()
    listening = [
        connection.laddr.ip
        for process in (own, *own.children(recursive=True))
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 4  # scheduler and worker, each with pages
    assert set(listening) == {"127.0.0.1"}


def test_run_gives_the_predictions_of_one_process_though_a_worker_is_killed(workers):
    network = int_chain()
    inputs = inputs_for(network, samples=9)
    labels = simulate(network, inputs).predictions
    labels[5] += 1
    samples = Samples(name="own", inputs=inputs, labels=labels, test=None)
    alone = run(network, samples, "emulator")
    thread, killed = kill_in_the_middle_of_lava(workers)
    shared = run(network, samples, "lava", cluster=workers)
    thread.join()
    assert killed
    for key in ("predictions", "samples", "accuracy"):
        assert shared[key] == alone[key]
    assert shared["accuracy"] == 8 / 9


@needs_lava
def test_verify_reports_what_one_process_reports_though_a_worker_is_killed(workers, tmp_path):
    folded = fold(trace(spiking_network(gains="positive")))
    network = quantize(folded, load_profile("loihi2")).network
    write_netx(network, tmp_path / "network.net")
    inputs = inputs_for(network, samples=4)
    test = Split(
        inputs=inputs_for(network, samples=2 * CHUNK + 5, seed=1), labels=np.arange(2 * CHUNK + 5) % 3
    )
    samples = Samples(name="", inputs=inputs, labels=np.arange(4) % 3, test=test)
    given = {"folded": folded, "netx": tmp_path / "network.net", "budget": 60.0}
    alone = verify(network, samples, **given)
    thread, killed = kill_in_the_middle_of_lava(workers)
    shared = verify(network, samples, **given, cluster=workers)
    thread.join()
    assert killed
    assert alone.bit_exact and alone.executed == 4
    assert json.dumps(shared.to_json()) == json.dumps(alone.to_json())


@needs_lava
def test_witnesses_run_here_and_not_on_workers(workers):
    if find_spec("nengo_loihi") is None:
        pytest.skip("nengo-loihi is not installed")
    network = int_chain()
    report = verify(network, inputs_for(network, 4), budget=5.0, witness="nengo-loihi", cluster=workers)
    *_, last = report.comparisons
    assert report.passed and last.execution == "nengo-loihi" and last.extent == "populations, one by one"
    assert [c.execution for c in report.comparisons].count("nengo-loihi") == 1


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (failing, r"shard 6 of 8 \(samples 5 to 5\) failed 3 times; last error: ZeroDivisionError: of "),
        (too_late, r"shard \d of 8 \(.*\) failed 3 times; last error: TimeoutError: of its own"),
        (rejecting, r"shard \d of 8 \(.*\) failed 3 times; last error: inputs of another kind\."),
    ],
)  # fmt: skip
def test_a_shard_that_always_fails_is_named(workers, work, message):
    network = int_chain()
    inputs = numbered(network, 8)
    with pytest.raises(SimulationError, match=f"^--cluster local:2: {message}"):
        workers.share_out(work, network, inputs, "test")
    parts = workers.share_out(summed, network, inputs, "test")  # the cluster can be used again
    assert sum(part for _, part in parts) == inputs.sum()


def test_wrong_inputs_are_rejected_as_in_one_process(workers):
    network = int_chain()
    for inputs, message in (
        (np.zeros((0, 2, 6, 5), int), "no samples"),
        (np.zeros((3, 2, 6, 6), int), r"inputs of shape \(1, 2, 6, 6\)"),
        (np.full((3, 2, 6, 5), 8), "inputs from 8 to 8; the network takes 0..7"),
        (np.full((3, 2, 6, 5), 0.5), "inputs hold fractions"),
    ):
        for shared in (None, workers):
            with pytest.raises(SimulationError, match=message):
                run(
                    network,
                    Samples(name="own", inputs=inputs, labels=None, test=None),
                    "emulator",
                    cluster=shared,
                )


def test_another_version_on_a_worker_is_rejected():
    with pytest.raises(SimulationError, match=r"a worker has mpbn_deploy .*, its client 0\.0\.1"):
        cluster._compute(summed, None, 0, np.zeros(1), "0.0.1")


def test_a_shard_that_kills_its_workers_is_named(workers):
    """Keep this the last test of these workers: Dask does not restart one that dies while starting."""
    import dask

    network, once = int_chain(), dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with (
        once,
        pytest.raises(SimulationError, match=r"^--cluster local:2: shard \d of 2 .*: every worker that"),
    ):
        workers.share_out(dying, network, numbered(network, 2), "test")


# ---- external schedulers ----------------------------------------------------------------------


def test_a_scheduler_that_cannot_be_reached(dask, monkeypatch, netx_path, capfd):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1.0)
    address = "tcp://127.0.0.1:9"
    assert cli.main(RUN, [str(netx_path), "--cluster", address, "--json"]) == 2
    out, err = capfd.readouterr()
    assert f"--cluster {address}: no Dask scheduler answered within 1 s" in json.loads(out)["error"]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "address", ["nothing://somewhere", "nonsense", "local", "tcp://host", "tcp://host:99999"]
)
def test_malformed_addresses_are_rejected_at_once(netx_path, capfd, address):
    with pytest.raises(SystemExit) as ended:
        cli.main(RUN, [str(netx_path), "--cluster", address])
    assert ended.value.code == 2
    assert f"{address!r} is not an address; give tcp://host:8786, or local:2" in capfd.readouterr().err


def scheduler(dask, workers):
    return dask.LocalCluster(
        n_workers=workers, processes=False, threads_per_worker=1, dashboard_address=None, protocol="tcp",
        silence_logs=50,
    )  # fmt: skip


def test_a_scheduler_without_workers(dask, monkeypatch, netx_path, capfd):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1.0)
    with scheduler(dask, 0) as empty:
        assert cli.main(VERIFY, [str(netx_path), "--cluster", empty.scheduler_address]) == 2
    err = capfd.readouterr().err
    assert (
        "the scheduler has no worker, and none connected within 1 s. Start workers" in err
        and "Traceback" not in err
    )


@pytest.mark.parametrize(
    ("leave", "message"),
    [
        (lambda others: others.scale(0), "has no worker"),
        (lambda others: others.close(), "lost the connection to the scheduler"),
    ],
)
def test_a_cluster_that_goes_away_in_the_middle(dask, monkeypatch, leave, message):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.2)
    network = int_chain()
    with scheduler(dask, 1) as others, cluster.connected(others.scheduler_address) as found:
        leaving = threading.Timer(0.5, leave, [others])
        leaving.start()
        with pytest.raises(SimulationError, match=message):
            found.share_out(slowly, network, inputs_for(network, samples=40), "test")
        leaving.join()


# ---- the commands -----------------------------------------------------------------------------


def command(folder, *arguments):
    """Start a command in its own session, with temporary files in `folder`."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "default"}
    line = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.Popen(
        line,
        start_new_session=True,
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_the_command_prints_nothing_but_json_and_leaves_nothing(dask, export_folder, tmp_path, capfd):
    arguments = [export_folder, "--backend", "emulator", "--samples", "all", "--json"]
    with command(tmp_path, "mpbn_deploy.run", *arguments, "--cluster", "local:1") as shared:
        out, err = end_of(shared)
    assert shared.returncode == 0, err
    found = json.loads(out)
    assert found["samples"] == 360 and "cluster: 1 worker of local:1" in err
    assert list(tmp_path.iterdir()) == [] and group_is_gone(shared.pid)
    assert cli.main(RUN, list(map(str, arguments))) == 0
    expected = json.loads(capfd.readouterr().out)
    assert {**found, "samples_per_second": 0} == {**expected, "samples_per_second": 0}


@pytest.mark.slow
@needs_lava
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_no_workers(dask, netx_path, short_folder, number, code):
    """SIGINT from the keyboard reaches all processes, SIGTERM only one."""
    arguments = [netx_path, "--samples", 20000, "--stock", "--cluster", "local:1"]
    with command(short_folder, "mpbn_deploy.run", *arguments) as shared:
        while "cluster: 1 worker " not in shared.stderr.readline():
            assert shared.poll() is None
        wait_for_lava(shared.pid, in_workers=True)
        (os.killpg if number == signal.SIGINT else os.kill)(shared.pid, number)
        err = end_of(shared)[1]
    assert shared.returncode == code and "Traceback" not in err, err
    assert group_is_gone(shared.pid) and list(short_folder.iterdir()) == []


def test_python_is_told_of_addresses_and_inputs_that_are_none(dask):
    with pytest.raises(OptionError, match="cluster nonsense: not an address"), cluster.connected("nonsense"):
        pass
    with pytest.raises(SimulationError, match="no samples: inputs are empty"):
        cluster.Cluster(None, "local:1", 1).share_out(summed, None, np.zeros((0, 3)), "test")
