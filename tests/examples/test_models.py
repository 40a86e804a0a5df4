"""The networks in examples/models: each has its card, and the page says what the cards say."""

import hashlib
import json
from pathlib import Path

import pytest

from mpbn_deploy.base import OptionError
from mpbn_deploy.checkpoint import example_model, example_models, load_model

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "examples" / "models"
PATHS = sorted(MODELS.glob("*.pt"), key=lambda path: path.stem)
LARGEST = 6 * 10**6  # bytes, all together


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_network_is_what_its_card_says(path):
    card, network = json.loads(path.with_suffix(".json").read_text()), load_model(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == card["sha256"]
    assert (network.card.architecture, network.timesteps) == (card["architecture"], card["timesteps"])
    assert json.loads(json.dumps(network.card.training)) == card["training"]
    assert card["fits"] and card["float_accuracy"] - card["integer_accuracy"] < 0.01
    assert card["certificate"].keys() >= {"emulator", "Lava (our models)", "Lava's own models"}
    assert all(counts["compared"] and not counts["different"] for counts in card["certificate"].values())


def test_the_page_is_made_of_the_cards(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import model_cards

    cards = model_cards.read_cards()
    assert sorted(cards) == [path.stem for path in PATHS] and cards
    assert (MODELS / "README.md").read_text(encoding="utf-8") == model_cards.page(cards)


def test_the_package_finds_them():
    assert [*example_models().values()] == sorted(PATHS)
    with pytest.raises(OptionError, match=r"no example model 'digit'\. Did you mean 'digits'\?"):
        example_model("digit")


def test_the_networks_are_small():
    assert sum(path.stat().st_size for path in MODELS.iterdir()) <= LARGEST


def test_the_demo_takes_one(tmp_path, monkeypatch, capfd):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import demo

    assert demo.main(tmp_path, "digits-4bit", None) == 0
    assert "model.pt on Intel Loihi 2" in capfd.readouterr().out
