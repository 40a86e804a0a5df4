"""A model is exported where the data that it was trained on is not."""

from dataclasses import replace

import pytest

from mpbn_deploy.base import MissingDataError
from mpbn_deploy.checkpoint import load_model, save_model
from mpbn_deploy.export import export

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
