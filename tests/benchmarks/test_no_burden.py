"""The comparison of networks with and without MPBN on the chip, on the smallest network."""

import sys
from pathlib import Path

import pytest

from mpbn_deploy.api import Training, save_model, train

pytestmark = pytest.mark.usefixtures("without_lava")
FOLDER = Path(__file__).parents[2] / "benchmarks"
STORED = ["weights", "biases", "thresholds", "neurons", "words of memory", "cores"]


@pytest.fixture
def no_burden(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import no_burden

    return no_burden


@pytest.fixture(scope="module")
def pair(digits, tmp_path_factory):
    """Checkpoints without and with MPBN."""
    folder = tmp_path_factory.mktemp("pair")
    paths = [folder / f"{kind}.pt" for kind in ("none", "channel")]
    for path in paths:
        save_model(path, train(digits, "digits-mlp", mpbn=path.stem, training=Training(epochs=1)))
    return paths


def run(no_burden, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["no_burden.py", *map(str, arguments)])
    return no_burden.main()


def rows(text):
    """{what: (without MPBN, with MPBN, comparison)} of the printed table."""
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines()[4:]]
    return {what: tuple(rest) for what, *rest in cells}


def test_mpbn_takes_no_memory_and_no_core(no_burden, monkeypatch, capsys):
    assert run(no_burden, monkeypatch, "--arch", "digits-mlp", "--epochs", 1, "--samples", 2) == 0
    found = rows(capsys.readouterr().out)
    assert [what for what, (*_, comparison) in found.items() if comparison == "equal"] == STORED
    assert found["weights"] == ("4,736", "4,736", "equal")  # 64 * 64 + 64 * 10
    assert found["thresholds"] == ("64", "64", "equal")
    assert all(first == second for what, (first, second, _) in found.items() if what in STORED)
    assert found["spikes per sample"][0] != found["spikes per sample"][1]  # other weights, other spikes


def test_checkpoints_by_path(no_burden, monkeypatch, capsys, pair):
    assert run(no_burden, monkeypatch, *pair, "--samples", 2) == 0
    assert rows(capsys.readouterr().out)["cores"] == ("2", "2", "equal")


def test_an_export_that_fails_its_verification_is_caught(no_burden, monkeypatch, capsys, pair):
    monkeypatch.setattr("mpbn_deploy.verify.VerifyReport.passed", False)
    assert run(no_burden, monkeypatch, *pair, "--samples", 2) == 1
    assert f"verification failed: {pair[0]}, {pair[1]}" in capsys.readouterr().err


def test_a_network_that_needs_more_is_caught(no_burden, monkeypatch, capsys, pair, model_path):
    monkeypatch.setattr(no_burden, "check_pair", lambda paths: None)  # it would reject another architecture
    assert run(no_burden, monkeypatch, pair[0], model_path, "--samples", 2) == 1
    found = rows(capsys.readouterr().out)
    assert [what for what, (*_, comparison) in found.items() if comparison == "DIFFERENT"] == STORED
    assert found["cores"] == ("2", "4", "DIFFERENT")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (lambda pair, other: [pair[0]], "1 checkpoints; give two, without and with MPBN, or none"),
        (lambda pair, other: [pair[1], pair[0]], "channel.pt: some neurons have MPBN; give a checkpoint"),
        (lambda pair, other: [pair[0], pair[0]], "none.pt: some neurons lack MPBN; give a checkpoint"),
        (lambda pair, other: [pair[0], other], "model.pt differ in architecture; the same network is needed"),
        (lambda pair, other: [pair[0], Path("nothing.pt")], "nothing.pt: no such file"),
    ],
)
def test_bad_input_is_explained(no_burden, monkeypatch, capsys, pair, model_path, chosen, message):
    with pytest.raises(SystemExit, match="2"):
        run(no_burden, monkeypatch, *chosen(pair, model_path))
    assert message in capsys.readouterr().err
