"""verify.json is reproduced, or the statements that are not are listed."""

import json

import numpy as np
import pytest
import torch
from networks import spiking_network

from mpbn_deploy.base import FormatError, main
from mpbn_deploy.export import export
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.folder import MANIFEST_FILE, VERIFY_FILE, seal, sha256
from mpbn_deploy.formats.nir import write_nir
from mpbn_deploy.frontend import trace
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY
from mpbn_deploy.verify.comparison import check_certificate, read_certificate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An export of a small network, on random inputs."""
    where = tmp_path_factory.mktemp("certificate")
    torch.manual_seed(0)
    write_nir(fold(trace(spiking_network(1, timesteps=2))), where / "net.nir")
    export(where / "net.nir", "loihi2", where / "out", samples=3)
    return where / "out"


def recorded_in(folder):
    return read_certificate(folder / VERIFY_FILE)


def test_a_certificate_is_found_again(folder, capsys):
    assert main(VERIFY, [str(folder), "--check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 3
    assert found["certificate"]["broken"] == [] and found["certificate"]["held"] >= 4


def test_a_certificate_that_says_otherwise_is_broken(folder, tmp_path, capsys):
    """Also one whose hashes were made to fit."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    recorded = recorded_in(copy)
    recorded["comparisons"][0]["spikes_compared"] += 1
    recorded["populations"][0]["state_bound"] -= 1
    (copy / VERIFY_FILE).write_text(json.dumps(recorded))
    assert main(VERIFY, [str(copy), "--check"]) == 2  # the hash is another
    assert "changed since it was exported" in capsys.readouterr().err
    manifest = json.loads((copy / MANIFEST_FILE).read_text())
    manifest["files"][VERIFY_FILE] = sha256(copy / VERIFY_FILE)
    (copy / MANIFEST_FILE).write_text(json.dumps({**manifest, "sha256": seal(manifest)}))
    assert main(VERIFY, [str(copy), "--check"]) == 1
    text = capsys.readouterr().out
    assert (
        text.startswith("red: the certificate does not hold; ")
        and "spikes_compared" in text
        and "state_bound" in text
    )


def test_what_cannot_be_found_again_is_named(folder):
    recorded = recorded_in(folder)
    found = json.loads(json.dumps(recorded))
    recorded["comparisons"].append(
        {"execution": "PyTorch, as trained", "not_run": None, "spikes_compared": 5}
    )
    result = check_certificate(recorded, found)
    assert result.holds
    assert result.not_checked == (
        "the comparison with PyTorch, as trained, which was not run: the folder lacks what it needs",
    )


@pytest.mark.parametrize("change", [1e-12, 1e-3])
def test_averages_may_differ_by_rounding_only(folder, change):
    recorded = recorded_in(folder)
    found = json.loads(json.dumps(recorded))
    found["populations"][0]["spike_agreement"] = recorded["populations"][0]["spike_agreement"] * (1 - change)
    assert check_certificate(recorded, found).holds == (change < 1e-6)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"samples": 0, "comparisons": []}', '{"samples": 1}'])
def test_what_is_no_certificate_is_refused(text, tmp_path):
    file = tmp_path / VERIFY_FILE
    file.write_text(text)
    with pytest.raises(FormatError, match=r"verify\.json"):
        read_certificate(file)


def test_impossible_options(folder, capsys):
    assert main(VERIFY, [str(folder), "--check", "--data", "digits"]) == 2
    assert "the certificate covers samples of random" in capsys.readouterr().err
    assert main(VERIFY, [str(folder / "network.net"), "--check"]) == 2
    assert "--check needs the certificate in an export folder" in capsys.readouterr().err
    assert np.isfinite(recorded_in(folder)["samples"])
