"""Each short example does what its first line says."""

import json
from pathlib import Path

import pytest
from networks import needs_lava

from mpbn_deploy.base import main
from mpbn_deploy.execute import EXECUTORS
from mpbn_deploy.fit.__main__ import COMMAND as FIT

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "golden" / "model.pt"


def test_a_nir_file(run_here, tmp_path):
    shown = run_here("nir_file.py", tmp_path).stdout
    assert "assumed: " in shown and "assumptions left: 0; bit-exact: True" in shown


def test_a_lava_dl_file(run_here, tmp_path):
    from networks import int_chain

    from mpbn_deploy.formats.netx import write_netx

    write_netx(int_chain(), tmp_path / "network.net")
    shown = run_here("lava_dl_file.py", tmp_path / "network.net").stdout
    assert "loihi1: fits False" in shown and "loihi2: fits True" in shown


def test_four_bits(run_here, tmp_path):
    shown = run_here("four_bits.py", MODEL, tmp_path).stdout
    assert "of 360 test samples" in shown and "agree in every integer: True" in shown


@needs_lava
def test_a_residual_network_with_probes(run_here):
    shown = run_here("residual_probes.py").stdout
    assert "different from the reference: 0 spikes" in shown and "fire: 0 spikes" not in shown


@pytest.mark.parametrize("size", [8, 28])
def test_a_network_for_the_commands(monkeypatch, capfd, size):
    monkeypatch.syspath_prepend(ROOT / "examples")
    given = ["--arch", "own_network:build", "--input-shape", "1", str(size), str(size), "--timesteps", "2"]
    assert main(FIT, [*given, "--target", "loihi2"]) == 0
    assert capfd.readouterr().out.startswith("yellow: loihi2: fits")


def test_a_chip(run_here, tmp_path):
    shown = run_here("own_chip.py", tmp_path).stdout
    assert "fits: True, cores: " in shown and "not checked: " in shown


def test_an_executor(run_here):
    try:
        shown = run_here("own_executor.py").stdout
    finally:
        EXECUTORS.pop("mine", None)
    assert "my simulator: " in shown and "different\n" in shown and shown.count(" 0 different") >= 2


@pytest.mark.cluster
def test_a_sweep(run_here):
    pytest.importorskip("distributed", reason="Dask is not installed (pip install distributed)")
    shown = run_here("sweep.py").stdout
    assert "loihi2 at 4 bits: 4 cores, fits" in shown and shown.count(" bits: ") == 4


def test_a_build_fails_when_a_network_no_longer_fits(run_here, tmp_path):
    fit = {"schema": "mpbn_deploy.fit/1", "cores": 4, "findings": []}
    verify = {
        "schema": "mpbn_deploy.verify/1",
        "bit_exact": True,
        "accuracy": {"float": 0.99, "integer": 0.985},
    }
    (tmp_path / "verify.json").write_text(json.dumps(verify))
    (tmp_path / "fit.json").write_text(json.dumps(fit))
    assert run_here("check_in_ci.py", tmp_path).returncode == 0
    assert "4 cores; at most 3" in run_here("check_in_ci.py", tmp_path, "--cores", 3).stdout
    assert "accuracy 98.50%" in run_here("check_in_ci.py", tmp_path, "--points", 0.1).stdout
    broken = {"rule": "weights_fit_format", "message": "too wide", "severity": "error"}
    (tmp_path / "fit.json").write_text(json.dumps({**fit, "findings": [broken]}))
    failed = run_here("check_in_ci.py", tmp_path)
    assert failed.returncode == 1 and "too wide" in failed.stdout


def test_networks_that_fit_small_chips(run_here, tmp_path):
    shown = run_here("small_chips.py", tmp_path).stdout
    assert "green: speck: fits" in shown and "xylo-a3: fits" in shown


def test_the_list_of_examples_is_complete():
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [file.name for file in (ROOT / "examples").glob("*.py") if f"({file.name})" not in listed] == []
