"""What you train with, and training itself."""

import itertools
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import end_of, heed_interrupts, input_format
from torch import nn

import mpbn_deploy.train.loop
from mpbn_deploy.base import CheckpointError, OptionError, main
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.data import DataSet, Split, load_dataset
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.train import Epoch, Training, accuracy, evaluate, train
from mpbn_deploy.train.__main__ import COMMAND as TRAIN
from mpbn_deploy.train.files import TrainingFiles, TrainingState
from mpbn_deploy.train.loop import batches
from mpbn_deploy.train.optimizer import ProcessGroup, make_optimizer, model_to_train, select_device


def tiny_network():
    return SpikingNetwork(nn.Linear(4, 2), timesteps=2, input_format=input_format((4,)))


def train_digits(**options):
    return train(load_dataset("digits"), "digits-mlp", training=Training(**options))


def train_arch(architecture):
    return train(load_dataset("digits"), architecture, training=Training(epochs=1))


def train_frames(**options):
    """On recordings of two frames each."""
    inputs = np.random.default_rng(0).integers(0, 9, (64, 2, 1, 4, 4), dtype=np.uint8)
    split = Split(inputs=inputs, labels=np.arange(64) % 3)
    dataset = DataSet(
        name="frames", train=split, test=split, input_format=input_format((1, 4, 4)),
        class_names=("a", "b", "c"), frames=2, augmentation="roll-flip",
    )  # fmt: skip
    return train(dataset, "digits-mlp", training=Training(epochs=1), **options)


def test_recordings_have_as_many_time_steps_as_frames():
    assert train_frames().timesteps == 2


def test_a_network_that_cannot_be_exported_is_trained_with_a_note(capfd):
    train_arch("networks:with_relu")
    assert 'not exported: layer "2": a rectifier (relu)' in capfd.readouterr().err


def test_raw_integers_are_inputs_too():
    network = tiny_network()
    pixels = torch.randint(0, 10, (3, 4))
    assert torch.equal(network(pixels), network(pixels.float()))
    assert torch.equal(network(pixels.to(torch.uint8)), network(pixels.float()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LIF(3, mpbn="layer"), "no MPBN of kind 'layer'"),
        (lambda: LIF(3, surrogate="rectangel"), "Did you mean 'rectangle'"),
        (lambda: LIF(3, leak=1.5), "leak 1.5"),
        (
            lambda: LIF(3)(torch.zeros(2, 3)),
            "LIF: the number of time steps is not set; wrap the body in a SpikingNetwork, which sets it",
        ),
        (lambda: SpikingNetwork(nn.Identity(), timesteps=0, input_format=input_format()), "timesteps 0"),
        (lambda: load_dataset("digit"), "Did you mean 'digits'"),
        (lambda: tiny_network()(torch.zeros(2, 5, 4)), "the network takes"),
        (lambda: train_digits(batch=2000), "batch 2000; digits has 1437 training samples"),
        (lambda: train_digits(learning_rate=float("nan")), "--learning-rate nan"),
        (lambda: train_digits(learning_rate=-1.0), "--learning-rate -1.0"),
        (lambda: train_digits(learning_rate=1e30), "the loss is not finite"),
        (lambda: train_arch("networks:no_parameters"), "no parameters to train"),
        (
            lambda: train_arch("networks:five_outputs"),
            r"outputs \(2, 5\) for 2 samples; digits needs \(2, 10\)",
        ),
        (lambda: train_arch("networks:wrong_size"), "cannot take samples of digits"),
        (lambda: load_dataset("digits", Path("folder")), "drop --data-dir"),
        (lambda: train_digits(weight_decay=-1.0), "--weight-decay -1.0"),
        (lambda: train_frames(timesteps=3), "3 time steps; a sample of frames has 2 frames"),
        (lambda: select_device("cuda:77"), "device 'cuda:77' cannot be used"),
        (lambda: select_device("abacus"), "device 'abacus' cannot be used"),
        (lambda: select_device("meta"), "device 'meta' cannot be used"),
        (lambda: train_digits(batch=1), "batch 1; batch norm needs 2 samples"),
        (
            lambda: train_arch("paper:res20m"),
            "only reads checkpoints of the paper's code; train with --arch resnet20",
        ),
    ],
)
def test_impossible_options_are_named(make, message):
    with pytest.raises(OptionError, match=message):
        make()


def test_digits_are_whole_and_always_split_alike(digits):
    assert digits.train.inputs.shape == (1437, 1, 8, 8) and len(digits.test) == 360
    assert digits.train.inputs.min() == 0 and digits.train.inputs.max() == 16
    assert set(digits.test.labels) == set(range(10))
    again = load_dataset("digits")
    assert np.array_equal(again.test.inputs, digits.test.inputs)


def test_training_learns_and_repeats_itself_bit_by_bit(digits):
    first, second = (train(digits, "digits-mlp", training=Training(epochs=2, seed=3)) for _ in range(2))
    assert first.card.training["test_accuracy"] > 0.8
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
    other = train(digits, "digits-mlp", training=Training(epochs=1, seed=4))
    assert not torch.equal(other.body.dense1.weight, first.body.dense1.weight)


def test_element_wise_networks_with_positive_gains_fold(digits):
    network = train(digits, "digits-cnn", Training(epochs=1), mpbn="element", mpbn_gain="positive")
    assert network.card.arguments["mpbn_gain"] == "positive"
    folded = fold(trace(network))
    assert folded.populations[1].neuron.threshold.shape == (16, 8, 8)


# ---- the steps of a training --------------------------------------------------------------------


def test_the_learning_rate_falls_in_a_cosine_step_by_step(digits, monkeypatch):
    rates = []
    step = torch.optim.SGD.step

    def watched(self, *arguments):
        assert torch.are_deterministic_algorithms_enabled()
        rates.append({group["lr"] for group in self.param_groups})
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    train(digits, "digits-mlp", training=Training(epochs=2, batch=256, learning_rate=0.2))
    assert not torch.are_deterministic_algorithms_enabled()
    steps = 2 * (len(digits.train) // 256)
    expected = [0.1 * (1 + np.cos(np.pi * k / steps)) for k in range(steps)]
    np.testing.assert_allclose([rate for (rate,) in rates], expected, rtol=1e-12)


def test_weights_decay_and_norms_and_biases_do_not(digits):
    network = train(digits, "digits-cnn", training=Training(epochs=1, batch=512))
    decaying, others = make_optimizer(network, Training(weight_decay=0.3)).param_groups
    assert decaying["weight_decay"] == 0.3 and others["weight_decay"] == 0.0
    assert decaying["momentum"] == others["momentum"] == 0.9
    assert all(parameter.dim() > 1 for parameter in decaying["params"])
    assert all(parameter.dim() == 1 for parameter in others["params"])
    assert len(decaying["params"]) == 4 and len(others["params"]) == 3 * 4 + 1


def epoch_of(dataset, **options):
    chosen = {"seed": 3, "epoch": 1, "augmentation": "none", "share": lambda indices: indices, **options}
    return [torch.cat(parts) for parts in zip(*batches(dataset, 100, **chosen), strict=True)]


def test_every_epoch_has_an_order_of_its_own(digits):
    (first, labels), (second, _) = epoch_of(digits), epoch_of(digits, epoch=2)
    assert len(first) == 1400 and not torch.equal(first, second)
    assert torch.equal(first, epoch_of(digits)[0])
    by_bytes = {
        row.tobytes(): label for row, label in zip(digits.train.inputs, digits.train.labels, strict=True)
    }
    assert [by_bytes[row.numpy().tobytes()] for row in first] == labels.tolist()


def test_augmentation_can_be_left_out_and_does_not_depend_on_shares(digits):
    changed, labels = epoch_of(digits, augmentation="crop-flip")
    plain, same_labels = epoch_of(digits)
    assert torch.equal(labels, same_labels) and not torch.equal(changed, plain)
    halves = [
        epoch_of(digits, augmentation="crop-flip", share=ProcessGroup(rank=rank, count=2).share)[0]
        for rank in (0, 1)
    ]
    together = torch.cat([torch.cat(pair) for pair in zip(*(h.split(50) for h in halves), strict=True)])
    assert torch.equal(together, changed)


def test_evaluation_is_the_mean_loss_and_the_share_of_right_answers(digits):
    network = train(digits, "digits-mlp", training=Training(epochs=1))
    logits = network.eval()(torch.from_numpy(digits.test.inputs.copy())).detach().double()
    labels = torch.from_numpy(digits.test.labels.copy())
    loss, right = evaluate(network, digits.test)
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-9)
    assert right == (logits.argmax(1) == labels).double().mean().item()


def test_the_best_network_is_kept_and_not_the_last(digits, tmp_path):
    network = train(digits, "digits-mlp", training=Training(epochs=1), out=tmp_path / "model.pt")
    line = {**read_log(tmp_path / "model.pt")[0], "test_accuracy": 0.0}
    optimizer = make_optimizer(network, Training())
    history = [Epoch(**{**line, "epoch": n, "test_accuracy": a}) for n, a in ((1, 0.5), (2, 0.9), (3, 0.7))]
    files = TrainingFiles(model=tmp_path / "kept.pt", settings={})
    for count in (1, 2, 3):
        network.card = replace(network.card, training={"epoch": count})
        files.save_epoch(TrainingState(network=network, optimizer=optimizer, history=history[:count]))
    assert load_model(tmp_path / "kept.best.pt").card.training["epoch"] == 2
    assert load_model(tmp_path / "kept.pt").card.training["epoch"] == 3


def test_resuming_after_the_last_epoch_finishes(digits, tmp_path, monkeypatch):
    """Interrupted while the curves are drawn: nothing is left to train."""
    path = tmp_path / "model.pt"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingFiles, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train_into(path, digits, epochs=1)
    assert train_into(path, digits, epochs=1, resume=True).card.training["epoch"] == 1
    assert not path.with_suffix(".resume.pt").exists() and path.with_suffix(".curves.png").exists()


# ---- files beside model.pt, interruption and resumption ---------------------------------------


def train_into(path, digits, epochs=4, *, average=0.0, **options):
    training = Training(epochs=epochs, seed=5, average=average)
    return train(digits, "networks:with_dropout", training=training, out=path, **options)


def read_log(path):
    return [json.loads(line) for line in path.with_suffix(".log.jsonl").read_text().splitlines()]


def without_seconds(log):
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in log]


@pytest.fixture
def interrupted(digits, tmp_path, monkeypatch):
    """A training of four epochs that Ctrl-C ended inside the third."""
    return interrupt(digits, tmp_path / "broken.pt", monkeypatch)


def interrupt(digits, path, monkeypatch, **options):
    ordinary = mpbn_deploy.train.loop.augment
    batches_left = itertools.count(2 * (1437 // 32) + 10, -1)

    def counted(*arguments):
        if next(batches_left) == 0:
            raise KeyboardInterrupt
        return ordinary(*arguments)

    monkeypatch.setattr(mpbn_deploy.train.loop, "augment", counted)
    with pytest.raises(KeyboardInterrupt):
        train_into(path, digits, **options)
    monkeypatch.undo()
    return path


def test_resuming_gives_the_network_of_an_unbroken_training(digits, tmp_path, interrupted):
    assert len(read_log(interrupted)) == 2 and interrupted.with_suffix(".resume.pt").exists()
    whole = train_into(tmp_path / "whole.pt", digits)
    resumed = train_into(interrupted, digits, resume=True)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name
    assert without_seconds(read_log(interrupted)) == without_seconds(read_log(tmp_path / "whole.pt"))
    assert (tmp_path / "whole.pt").read_bytes() == interrupted.read_bytes()


def test_resuming_gives_the_averages_and_the_pupil_of_an_unbroken_training(digits, tmp_path, monkeypatch):
    parts = {"average": 0.75, "teacher": train_arch("digits-cnn")}
    path = interrupt(digits, tmp_path / "broken.pt", monkeypatch, **parts)
    resumed = train_into(path, digits, resume=True, **parts)
    train_into(tmp_path / "whole.pt", digits, **parts)
    assert (tmp_path / "whole.pt").read_bytes() == path.read_bytes()
    assert resumed.card.training["distillation"] == 0.5
    interrupt(digits, path, monkeypatch, **parts)
    with pytest.raises(CheckpointError, match=r"teacher digits-cnn \w{12} \(now digits-mlp \w{12}\)"):
        train_into(path, digits, resume=True, average=0.75, teacher=train_arch("digits-mlp"))


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_files_of_a_training(digits, tmp_path, suffix):
    path = tmp_path / f"model.{suffix}"
    network = train(digits, "digits-mlp", training=Training(epochs=3), out=path)
    log = read_log(path)
    assert [line["epoch"] for line in log] == [1, 2, 3]
    assert log[0]["learning_rate"] == 0.1 > log[1]["learning_rate"] > log[2]["learning_rate"] > 0
    assert (
        log[-1]["test_accuracy"] == network.card.training["test_accuracy"] == accuracy(network, digits.test)
    )
    best = load_model(tmp_path / f"model.best.{suffix}")
    assert best.card.training["test_accuracy"] == max(line["test_accuracy"] for line in log)
    assert accuracy(best, digits.test) == best.card.training["test_accuracy"]
    assert (tmp_path / "model.curves.png").read_bytes().startswith(b"\x89PNG")
    assert {file.name.split(".", 1)[1] for file in tmp_path.iterdir()} == {
        suffix, f"best.{suffix}", "log.jsonl", "curves.png",
    }  # fmt: skip


def test_resuming_with_other_options_names_them(digits, interrupted):
    with pytest.raises(CheckpointError, match=r"belongs to a training with epochs 4 \(now 9\)"):
        train_into(interrupted, digits, epochs=9, resume=True)


def test_nothing_to_resume(digits, tmp_path):
    with pytest.raises(CheckpointError, match="nothing to resume"):
        train_into(tmp_path / "model.pt", digits, resume=True)


def test_the_state_of_an_interrupted_training_is_no_network(interrupted):
    with pytest.raises(CheckpointError, match="the state of an interrupted training"):
        load_model(interrupted.with_suffix(".resume.pt"))


def test_damaged_states_are_refused(digits, interrupted):
    path = interrupted.with_suffix(".resume.pt")
    content = torch.load(path, weights_only=True)
    spoiled = {
        index: {"momentum_buffer": entry["momentum_buffer"] * float("nan")}
        for index, entry in content["optimizer"]["state"].items()
    }
    for damage, message in (
        ({"format": "other"}, "not a file to resume training from"),
        ({"network": {}}, "damaged, so training cannot resume"),
        ({"history": [{"epoch": 1}]}, "damaged, so training cannot resume"),
        ({"settings": 3}, "damaged, so training cannot resume"),
        ({"history": content["history"][1:]}, "epochs are missing"),
        ({"history": []}, "epochs are missing"),
        ({"optimizer": {"state": {}}}, "damaged, so training cannot resume"),
        ({"optimizer": {"state": spoiled}}, "momentum_buffer of the wrong shape, or not finite"),
    ):
        torch.save({**content, **damage}, path)
        with pytest.raises(CheckpointError, match=message):
            train_into(interrupted, digits, resume=True)
    path.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="damaged"):
        train_into(interrupted, digits, resume=True)


def test_ctrl_c_loses_at_most_an_epoch_and_says_how_to_go_on(tmp_path):
    model = tmp_path / "model.pt"
    command = [sys.executable, "-m", "mpbn_deploy.train", "--arch", "digits-mlp", "--epochs", "10000"]
    with subprocess.Popen(
        [*command, "--out", str(model)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=heed_interrupts,
    ) as process:  # fmt: skip
        while not model.with_suffix(".resume.pt").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, message = end_of(process)
    assert process.returncode == 130
    assert "The same command with --resume continues" in message and "Traceback" not in message
    assert message.count("interrupted") == 1
    assert load_model(model).card.training["epoch"] >= 1


# ---- several processes ------------------------------------------------------------------------

IN_FLOAT64 = """
import sys, torch
torch.set_default_dtype(torch.float64)
from mpbn_deploy.base import main
from mpbn_deploy.train.__main__ import COMMAND
sys.exit(main(COMMAND))
"""


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one(digits, float64, tmp_path, capfd):
    """In float64, so that the order of sums does not show: the same batches, the same statistics."""
    few = {"inputs": digits.train.inputs[:200], "labels": digits.train.labels[:200]}
    np.savez(tmp_path / "few.npz", **few)
    options = ["--arch", "networks:both_kinds", "--epochs", "2", "--batch", "64", "--timesteps", "2"]
    options += ["--data", str(tmp_path / "few.npz"), "--out"]
    assert main(TRAIN, [*options, str(tmp_path / "one.pt")]) == 0
    outputs = [capfd.readouterr().out]
    script = tmp_path / "float64.py"
    script.write_text(IN_FLOAT64)
    python = [sys.executable, "-W", "error::FutureWarning"]
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    result = subprocess.run(
        [*python, *together, str(script), *options, str(tmp_path / "two.pt")],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    outputs.append(result.stdout)
    assert [text.count("test accuracy") for text in outputs] == [1, 1]
    one, two = read_log(tmp_path / "one.pt"), read_log(tmp_path / "two.pt")
    for key in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
        assert [e[key] for e in one] == pytest.approx([e[key] for e in two], rel=1e-9), key
    first, second = (
        torch.load(tmp_path / name, weights_only=True)["state_dict"] for name in ("one.pt", "two.pt")
    )
    torch.testing.assert_close(first, second, rtol=1e-7, atol=1e-9)


def test_a_batch_must_be_shared_out_equally(digits):
    with pytest.raises(OptionError, match="batch 33 over 2 processes"):
        train(digits, "digits-mlp", training=Training(batch=33), processes=ProcessGroup(rank=0, count=2))


def test_a_norm_that_cannot_be_shared_out_is_named():
    body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False))
    network = SpikingNetwork(body, timesteps=1, input_format=input_format((4,)))
    with (
        pytest.raises(OptionError, match=r"body\.1: training on several processes supports only batch norms"),
        model_to_train(network, ProcessGroup(rank=0, count=2)),
    ):
        pass


def test_options_without_effect_and_networks_without_a_card_are_refused(digits, capfd):
    assert main(TRAIN, ["--mpbn", "none", "--mpbn-gain", "positive"]) == 2
    assert "--mpbn-gain positive has no effect with --mpbn none" in capfd.readouterr().err
    with pytest.raises(OptionError, match="the initial network has no ModelCard"):
        body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        bare = SpikingNetwork(body, timesteps=2, input_format=digits.input_format)
        train(digits, "digits-mlp", training=Training(epochs=1), init=bare)


def test_integers_of_another_kind_are_named_shortly_when_training_resumes(tmp_path):
    files = TrainingFiles(model=tmp_path / "model.pt", settings={"structure": "{long}", "seed": 1})
    with pytest.raises(CheckpointError) as found:
        files._check_settings(tmp_path / "model.resume.pt", {"structure": "{longer}", "seed": 0})
    assert "with seed 0 (now 1), other formats or inputs of integers. Resume" in str(found.value)
