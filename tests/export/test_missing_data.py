"""A model is exported where the data that it was trained on is not."""

from dataclasses import replace

import pytest

from mpbn_deploy.base import MissingDataError, main
from mpbn_deploy.checkpoint import load_model, save_model
from mpbn_deploy.export import export
from mpbn_deploy.export.__main__ import COMMAND as EXPORT

pytestmark = pytest.mark.usefixtures("without_lava")


@pytest.fixture
def foreign(model_path, tmp_path):
    """Return a model whose card says that it was trained on CIFAR-10."""
    network = load_model(model_path)
    network.card = replace(network.card, training={**network.card.training, "data": "cifar10"})
    save_model(tmp_path / "foreign.pt", network)
    return tmp_path / "foreign.pt"


def test_random_inputs_are_taken_and_announced(foreign, capfd):
    result = export(foreign, "loihi2", samples=1)
    assert result.good and result.verified.accuracy is None
    err = capfd.readouterr().err
    assert "the model was trained on cifar10, which is not on this machine, so inputs are random" in err
    assert err.count("inputs are random") == 1
    assert "random" in (result.folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("asked", ["data", "data_dir"])
def test_data_that_was_asked_for_must_be_there(foreign, tmp_path, asked):
    with pytest.raises(MissingDataError, match=r"^cifar10: data_batch_1"):
        export(foreign, "loihi2", samples=1, **{asked: "cifar10" if asked == "data" else tmp_path})
    assert not (tmp_path / "foreign.loihi2").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--data=none.npz", "error: none.npz: no such file or folder."),
        ("--data=junk.npz", "error: junk.npz: not a readable .npz file"),
        ("--calibration=none.npz", "error: calibration: none.npz: no such file or folder."),
    ],
)
def test_data_that_cannot_be_read_are_reported_before_anything_is_computed(
    capsys, monkeypatch, tmp_path, option, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("model.pt", "junk.npz"):
        (tmp_path / name).write_text("not reached")
    assert main(EXPORT, ["model.pt", "--target", "loihi2", option]) == 2
    assert capsys.readouterr().err.startswith(message)
