"""Executors behind one protocol: run, verify and doctor use every entry of the dict."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from networks import inputs_for, int_chain, int_residual, needs_lava

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import OptionError, SimulationError
from mpbn_deploy.data import Samples
from mpbn_deploy.execute import (
    EXECUTORS,
    ExecutionOptions,
    ListedExecutor,
    check_one_neuron,
    reference as reference_module,
)
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.run import run
from mpbn_deploy.verify import verify


@pytest.fixture
def toy(monkeypatch):
    """Add an executor: the file toy_executor.py and one entry of the dict."""
    executor = ListedExecutor(name="Toy", parts="samples", module="toy_executor", install="pip install toy")
    monkeypatch.setitem(EXECUTORS, "toy", executor)
    return executor


def command(capfd, *arguments):
    code = console_script([*map(str, arguments), "--json"])
    return code, json.loads(capfd.readouterr().out)


def test_a_new_executor_is_one_file_and_one_line(toy, netx_path, capfd):
    code, ran = command(capfd, "run", netx_path, "--samples", 3, "--backend", "toy")
    assert code == 0 and ran["backend"] == "toy"
    _, expected = command(capfd, "run", netx_path, "--samples", 3, "--backend", "reference")
    assert ran["predictions"] == expected["predictions"]
    code, found = command(capfd, "verify", netx_path, "--samples", 2)
    (row,) = [each for each in found["comparisons"] if each["execution"] == "Toy"]
    assert code == 0 and row["spikes_compared"] > 0 == row["spikes_mismatched"] and row["not_run"] is None
    _, checked = command(capfd, "doctor")
    (row,) = [each for each in checked["checks"] if each["name"] == "Toy"]
    assert row["works"] and row["found"] == "one neuron fired 2 spikes as expected"


def test_an_unsupported_network_is_rejected_by_run_and_skipped_by_verify(toy, capfd):
    network = int_residual(delay=2)
    inputs = inputs_for(network)
    samples = Samples(name="own", inputs=inputs, labels=None, test=None)
    with pytest.raises(OptionError, match=r"--backend toy cannot run this network: \w+: a delay\."):
        run(network, samples, "toy")
    with pytest.raises(OptionError, match=r"--backend netx cannot run this network: last: a graph with skip"):
        run(network, samples, "netx")
    report = verify(network, inputs)
    assert report.bit_exact and report.comparisons[-1].not_run.endswith(": a delay")


def test_an_executor_with_other_spikes_fails_its_check():
    def silent(network, inputs, options):
        return simulate(network, np.zeros_like(inputs))

    with pytest.raises(
        RuntimeError, match="Silence: spikes of a one-neuron network differ from the reference"
    ):
        check_one_neuron("Silence", silent)


def test_unknown_backends_are_named():
    network = int_chain()
    samples = Samples(name="own", inputs=inputs_for(network), labels=None, test=None)
    with pytest.raises(OptionError, match=r"no backend 'emulater'\. Did you mean 'emulator'\?"):
        run(network, samples, "emulater")


@needs_lava
@pytest.mark.parametrize(
    "backend", [key for key, e in EXECUTORS.items() if not (key == "reference" or e.requested or e.on_board)]
)
def test_every_backend_gives_the_predictions_of_the_reference(backend, monkeypatch):
    monkeypatch.setattr(reference_module, "CHUNK", 2)
    network = int_chain()
    samples = Samples(name="own", inputs=inputs_for(network, samples=3), labels=None, test=None)
    expected = simulate(network, samples.inputs).predictions.tolist()
    assert run(network, samples, "reference")["predictions"] == expected
    assert run(network, samples, backend)["predictions"] == expected


def test_the_reference_rejects_empty_inputs():
    with pytest.raises(SimulationError, match="no samples"):
        EXECUTORS["reference"].run(
            int_chain(), np.zeros((0, 2, 6, 5), int), ExecutionOptions(keep_trace=False)
        )


def test_executors_and_options_can_be_pickled_for_other_machines(tmp_path):
    (tmp_path / "network.net").write_bytes(b"content")
    options = ExecutionOptions(netx=tmp_path / "network.net").portable()
    assert pickle.loads(pickle.dumps(options)).netx == b"content"
    assert pickle.loads(pickle.dumps(EXECUTORS)) == EXECUTORS


def test_the_list_is_read_without_torch_and_lava():
    code = (
        "import sys; from mpbn_deploy.execute import EXECUTORS; "
        "print([m for m in ('torch', 'lava', 'numpy') if m in sys.modules], *EXECUTORS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = ["reference", "emulator", "lava", "lava-stock", "netx", "verilator", "uart"]
    assert done.stdout.split() == ["[]", *names]
