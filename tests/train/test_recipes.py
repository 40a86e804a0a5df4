"""Recipes and their parts: schedules, validation, single steps, precision, recalibration, soundness."""

import argparse
import itertools
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from networks import input_format
from torch import nn

from mpbn_deploy.base import OptionError
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.data import (
    POLICY_DRAWS,
    DataSet,
    Split,
    as_spike_counts,
    autoaugmented,
    center_crop,
    hold_out,
    load_dataset,
)
from mpbn_deploy.data.autoaugment import CHANGES, POLICY
from mpbn_deploy.nn import LIF, MPBN, ModelCard, SpikingNetwork, XyloLIF
from mpbn_deploy.quantize import QUANTIZED
from mpbn_deploy.train import RECIPES, Training, accuracy, train
from mpbn_deploy.train.__main__ import COMMAND
from mpbn_deploy.train.command import execute
from mpbn_deploy.train.loop import KINDS as AUGMENTATIONS, LARGEST, GradientNorms, _loss, check_health
from mpbn_deploy.train.optimizer import SINGLE_PROCESS, MeanWeights, fastest_precision, make_optimizer
from mpbn_deploy.train.recalibration import recalibrate, recalibrate_as_asked


def parse(*words):
    parser = argparse.ArgumentParser()
    COMMAND.add_arguments(parser)
    return parser.parse_args(words)


def run(tmp_path, *words):
    return execute(parse(*words, "--out", str(tmp_path / "model.pt"))).data


def read_log(path):
    return [json.loads(line) for line in path.with_suffix(".log.jsonl").read_text().splitlines()]


# ---- recipes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_sets_options_that_exist_and_were_not_given(recipe):
    assert set(RECIPES[recipe]) <= set(vars(parse()))


@pytest.mark.parametrize("wrong", [("--arch", "digits-cmn"), ("--learning-rate", "nan")])
def test_a_recipe_that_is_rejected_is_not_printed(tmp_path, capfd, wrong):
    with pytest.raises(OptionError, match=r"no architecture named 'digits-cmn'|--learning-rate nan"):
        run(tmp_path, *wrong)
    assert "recipe" not in capfd.readouterr().err


def test_a_recipe_is_printed_in_full_and_given_options_go_before_it(tmp_path, capfd):
    given = ["--recipe", "fast", "--arch", "digits-mlp", "--epochs", "1", "--augmentation", "none"]
    found = run(tmp_path, *given, "--precision", "float32", "--batch", "64")
    printed = capfd.readouterr().err
    assert (found["schedule"], found["label_smoothing"], found["timesteps"]) == ("one-cycle", 0.1, 2)
    assert (found["batch"], found["epochs"], found["architecture"]) == (64, 1, "digits-mlp")
    assert (found["optimizer"], found["reset_gradient"]) == ("muon", "detached") and "width" not in found
    for part in ("recipe fast", "batch 64", "label-smoothing 0.1", "nesterov True", "learning-rate 0.2"):
        assert part in printed


def test_the_paper_recipe_is_that_of_its_code():
    recipe = RECIPES["paper"]
    assert (recipe["epochs"], recipe["batch"], recipe["weight_decay"]) == (400, 128, 1e-4)
    assert recipe["surrogate"] == "tanh" and Training().learning_rate == 0.1
    assert Training().schedule == "cosine"


def test_parts_of_the_network_reach_its_neurons(tmp_path):
    found = run(
        tmp_path, "--arch", "digits-mlp", "--epochs", "1", "--leak", "0.5", "--threshold", "0.75",
        "--mpbn-epsilon", "0.01",
    )  # fmt: skip
    neuron = load_model(tmp_path / "model.pt").body.lif1
    assert (neuron.leak, neuron.threshold, neuron.mpbn.bn.eps) == (0.5, 0.75, 0.01)
    assert found["leak"] == 0.5


def test_a_width_that_a_network_does_not_have_is_refused(tmp_path):
    with pytest.raises(OptionError, match="'digits-mlp' has no width to choose; drop --width"):
        run(tmp_path, "--arch", "digits-mlp", "--width", "4")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"optimizer": "lion"}, "optimizer 'lion'. Known: adam, muon, sgd"),
        ({"schedule": "linear"}, "schedule 'linear'. Known: cosine, one-cycle"),
        ({"warmup": 1.0}, "warmup 1.0; a fraction between 0 and 1"),
        ({"momentum": 1.0}, "momentum 1.0; a number from 0 to below 1"),
        ({"nesterov": True, "momentum": 0.0}, "needs a momentum above 0"),
        ({"label_smoothing": 1.0}, "--label-smoothing 1.0; a fraction from 0 to below 1"),
        ({"norm_rate": -1.0}, "--norm-rate -1.0; zero or a positive number"),
        ({"epochs": 0}, "epochs 0; 1 or more"),
        ({"single_step": float("nan")}, "--single-step nan"),
        ({"clip_gradient": 0.0}, "--clip-gradient 0.0; a positive number"),
        ({"single_step": 1.0}, "--single-step 1.0; a fraction from 0 to below 1"),
        ({"freeze_mpbn": 1.0}, "--freeze-mpbn 1.0; a fraction from 0 to below 1"),
        ({"precision": "half"}, "precision 'half'. Known: auto, bfloat16, float32"),
        ({"precision": "auto"}, "precision auto is the command's; float32 or bfloat16 is needed"),
        ({"recalibration": "yes"}, "recalibration 'yes'. Known: auto, off, on"),
        ({"validation": 1.0}, "validation 1.0; a fraction of the training split"),
        ({"validation": 1e-4}, "validation 0.0001; that is none of the 1437 training samples of digits"),
        (
            {"batch": 32, "validation": 0.99},
            "batch 32; digits has 14 training samples, without those for validation. Give a smaller --batch",
        ),
        ({"average": 1.0}, "--average 1.0; a fraction from 0 to below 1"),
        ({"average": 0.5, "recalibration": "off"}, "--average with --recalibration off"),
        ({"distillation": 0.0}, "--distillation 0.0; a fraction above 0, up to 1"),
        ({"distillation": 0.5}, "--distillation has an effect only with --teacher"),
        ({"augmentation": "crop"}, "augmentation 'crop'. Did you mean 'crop-flip'"),
    ],
)
def test_impossible_parts_are_named(digits, parts, message):
    with pytest.raises(OptionError, match=message):
        train(digits, "digits-mlp", training=Training(**{"epochs": 1, **parts}))


@pytest.mark.parametrize("kind", [kind for kind in AUGMENTATIONS if kind != "none"])
def test_only_pictures_can_be_augmented(kind):
    rows = load_dataset("digits-rows")
    message = rf"augmentation {kind}; samples of digits-rows have the shape \(8,\), without height and width"
    with pytest.raises(OptionError, match=message):
        train(rows, "digits-rnn", training=Training(epochs=1, augmentation=kind))


# ---- schedule, gradients ------------------------------------------------------------------------


def test_one_cycle_rises_then_falls_to_zero(digits, monkeypatch):
    rates = []
    step = torch.optim.SGD.step

    def watched(self, *arguments):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    settings = Training(epochs=4, batch=256, learning_rate=0.2, schedule="one-cycle", warmup=0.25)
    train(digits, "digits-mlp", training=settings)
    count = len(digits.train) // 256
    expected = [
        0.2 * min(step / count, (4 - step / count) / 3) for step in range(4 * count)
    ]  # one epoch up, three down
    assert rates == pytest.approx(expected)


def test_gradients_are_clipped_to_the_norm(digits, monkeypatch, tmp_path):
    norms = []
    step = torch.optim.SGD.step

    def watched(self, *arguments):
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(float(torch.cat([g.flatten() for g in gradients]).norm()))
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    train(digits, "digits-mlp", training=Training(epochs=1, clip_gradient=0.01))
    assert max(norms) == pytest.approx(0.01, rel=1e-3)
    norms.clear()
    train(digits, "digits-mlp", training=Training(epochs=1), out=tmp_path / "model.pt")
    (epoch,) = read_log(tmp_path / "model.pt")
    assert max(norms) > 0.1 and epoch["largest_gradient"] == pytest.approx(max(norms))
    assert epoch["median_gradient"] == pytest.approx(np.median(norms))


def test_norms_and_biases_have_a_rate_of_their_own(digits, monkeypatch):
    rates = set()
    step = torch.optim.SGD.step

    def watched(self, *arguments):
        weights, others = (group["lr"] for group in self.param_groups)
        rates.add(others / weights)
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    train(digits, "digits-mlp", training=Training(epochs=1, batch=256, norm_rate=4.0))
    assert rates == {4.0}


def test_nesterov_reaches_the_optimizer(digits):
    network = train(digits, "digits-mlp", training=Training(epochs=1))
    assert make_optimizer(network, Training(nesterov=True)).param_groups[0]["nesterov"]


# ---- validation, time steps, precision ----------------------------------------------------------


def test_held_out_samples_are_a_fixed_part_of_the_training_split(digits):
    rest, held = hold_out(digits, 0.1)
    assert len(held) == 144 and len(rest.train) == 1437 - 144 and rest.test is digits.test
    rows = [row.tobytes() for part in (rest.train, held) for row in part.inputs[:]]
    assert sorted(rows) == sorted(row.tobytes() for row in digits.train.inputs)
    again = hold_out(digits, 0.1)[1]
    assert np.array_equal(again.inputs[:], held.inputs[:]) and held.inputs.shape == (144, 1, 8, 8)
    assert hold_out(digits, 0.0) == (digits, None)


def test_the_test_split_is_used_once_if_there_is_a_validation_split(digits, tmp_path):
    settings = Training(epochs=3, validation=0.2)
    network = train(digits, "digits-mlp", training=settings, out=tmp_path / "model.pt")
    log = read_log(tmp_path / "model.pt")
    assert [line["test_accuracy"] is None for line in log] == [True, True, False]
    assert all(0 < line["validation_accuracy"] <= 1 for line in log)
    best = load_model(tmp_path / "model.best.pt").card.training
    assert best["validation_accuracy"] == max(line["validation_accuracy"] for line in log)
    assert network.card.training["test_accuracy"] is not None


def test_the_first_epochs_run_one_time_step(digits, tmp_path, monkeypatch):
    seen = []
    forward = SpikingNetwork.forward

    def watched(self, inputs):
        seen.append((self.training, self.timesteps))
        return forward(self, inputs)

    monkeypatch.setattr(SpikingNetwork, "forward", watched)
    settings = Training(epochs=4, batch=512, single_step=0.5)
    network = train(digits, "digits-mlp", timesteps=3, training=settings, out=tmp_path / "model.pt")
    trained = [timesteps for training, timesteps in seen if training]
    assert trained == [1] * 4 + [3] * 4 and network.timesteps == 3
    assert load_model(tmp_path / "model.pt").timesteps == 3


def test_frozen_statistics_of_mpbn_no_longer_move(digits, tmp_path, monkeypatch):
    """In the last half of the epochs only the gains and offsets of MPBN are trained, as for inference."""
    seen = []
    normalize = MPBN.norm

    def watched(self, sample):
        if torch.is_grad_enabled():
            seen.append((self.training, self.bn.running_mean.clone(), self.bn.weight.clone()))
        return normalize(self, sample)

    monkeypatch.setattr(MPBN, "norm", watched)
    settings = Training(epochs=2, batch=512, freeze_mpbn=0.5, recalibration="off")
    network = train(digits, "digits-mlp", timesteps=2, training=settings, out=tmp_path / "model.pt")
    assert [training for training, _, _ in seen] == [True, True, False, False]
    last = network.body.lif1.mpbn.bn
    assert all(torch.equal(mean, last.running_mean) for _, mean, _ in seen[2:])
    assert not torch.equal(seen[2][2], last.weight)


def test_frozen_statistics_of_xylo_no_longer_move(monkeypatch):
    rows, seen = as_spike_counts(load_dataset("digits-rows"), 15, None), []
    forward = XyloLIF.forward

    def watched(self, x):
        if torch.is_grad_enabled() and self.mpbn is not None:
            seen.append(self.mpbn.bn.running_mean.clone())
        return forward(self, x)

    monkeypatch.setattr(XyloLIF, "forward", watched)
    settings = Training(epochs=2, batch=512, freeze_mpbn=0.5, recalibration="off", learning_rate=0.001)
    network = train(rows, "xylo-rnn", settings, width=8)
    moved = [not torch.equal(a, b) for a, b in pairwise([*seen, network.body.lif1.mpbn.bn.running_mean])]
    assert moved == [True, True, False, False]


def test_options_that_are_typed_reach_networks_with_other_defaults(tmp_path):
    """0.5 is the threshold of other neurons; those of Xylo have one."""
    words = ["--data", "digits-rows", "--neuron", "xylo", "--epochs", "1", "--width", "8"]
    made = run(tmp_path, *words, "--threshold", "0.5", "--leak", "0.25")
    network = load_model(tmp_path / "model.pt").body
    assert (network.lif1.threshold, network.lif1.leak) == (0.5, 0.25)
    assert (made["threshold"], made["freeze_mpbn"]) == (0.5, 0.5)
    assert run(tmp_path, *words, "--mpbn", "none")["freeze_mpbn"] == 0.0
    with pytest.raises(OptionError, match="Xylo has reset subtract only"):
        run(tmp_path, *words, "--reset", "zero")


def test_recordings_need_all_their_frames(digits):
    frames = replace(digits, frames=2)
    with pytest.raises(OptionError, match="has 2 frames, so every epoch needs all time steps"):
        train(frames, "digits-mlp", training=Training(epochs=2, single_step=0.5))


def test_training_goes_on_with_other_time_steps(tmp_path):
    run(tmp_path, "--arch", "digits-mlp", "--epochs", "1", "--timesteps", "1")
    first = tmp_path / "model.pt"
    first.rename(tmp_path / "first.pt")
    found = run(tmp_path, "--init", str(tmp_path / "first.pt"), "--epochs", "1", "--timesteps", "3")
    assert found["timesteps"] == 3 and load_model(first).timesteps == 3


def test_bfloat16_trains_single_precision_weights(digits):
    settings = Training(epochs=2, precision="bfloat16", seed=3)
    network = train(digits, "digits-cnn", timesteps=2, training=settings)
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert network.card.training["test_accuracy"] > 0.85


def test_precision_is_chosen_by_trial():
    assert fastest_precision(torch.device("cpu")) in ("float32", "bfloat16")


def test_integers_are_trained_in_single_precision(tmp_path):
    run(tmp_path, "--arch", "digits-mlp", "--epochs", "1")
    words = ["--init", str(tmp_path / "model.pt"), "--quantize", "loihi2", "--epochs", "1"]
    (tmp_path / "q").mkdir()
    with pytest.raises(OptionError, match=r"--precision bfloat16: .* is trained as integers"):
        run(tmp_path / "q", *words, "--precision", "bfloat16")
    for option in ("--weight-decay", "--norm-rate"):
        with pytest.raises(OptionError, match=f"{option} has no effect on .*; drop {option}"):
            run(tmp_path / "q", *words, option, "0.1")
    for recipe in ("fast", "paper"):
        plain = ("--recipe", recipe, "--augmentation", "none", "--single-step", "0")
        found = run(tmp_path / "q", *words, *plain)
        assert found["architecture"] == QUANTIZED and found["precision"] == "float32"
        assert (found["learning_rate"], found["weight_decay"]) == (0.02, 0.0)  # in batches of 128


def test_integers_are_trained_further_at_their_own_rate(tmp_path):
    run(tmp_path, "--arch", "digits-mlp", "--epochs", "1")
    for folder, init, target in (("q", "model.pt", ["--quantize", "loihi2"]), ("r", "q/model.pt", [])):
        (tmp_path / folder).mkdir()
        found = run(tmp_path / folder, "--init", str(tmp_path / init), *target, "--epochs", "1")
        assert (found["learning_rate"], found["weight_decay"]) == (0.005, 0.0)


# ---- soundness ----------------------------------------------------------------------------------


def test_element_wise_networks_stay_finite(digits):
    """With epsilon 1e-5, as channel-wise norms have it, this training ended with a variance of 7e23."""
    network = train(digits, "digits-cnn", mpbn="element", timesteps=8, training=Training(epochs=2))
    state = network.state_dict()
    assert network.body.lif1.mpbn.bn.eps == 0.1 == network.card.arguments["mpbn_epsilon"]
    assert max(float(state[name].abs().max()) for name in state if "running_var" in name) < 1e3
    assert max(float(state[name].abs().max()) for name in state if name.endswith("weight")) < 1e2
    assert network.card.training["test_accuracy"] > 0.9


GRADIENTS = GradientNorms(median=2.0, largest=1.8e6)


def runaway(name, value):
    body = nn.Sequential(nn.Linear(4, 3), LIF(3), nn.Linear(3, 2))
    network = SpikingNetwork(body, timesteps=2, input_format=input_format((4,)))
    with torch.no_grad():
        network.body.state_dict()[name][1] = value
    return network


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("1.mpbn.bn.running_var", float("inf"), r"1\.mpbn\.bn\.running_var: not finite after this epoch"),
        ("0.bias", float("nan"), r"0\.bias: not finite"),
        ("1.mpbn.bn.weight", -2e6, r"1\.mpbn\.bn\.weight: the largest magnitude is 2e\+06"),
        (
            "0.bias",
            1e7,
            "a lower --learning-rate, a larger --mpbn-epsilon or --reset-gradient detached, or with --clip",
        ),
        (
            "1.mpbn.bn.running_var",
            1e13,
            r"with --clip-gradient 20: of this epoch's gradients, the largest has a norm of 1\.8e\+06, and "
            r"half have less than 2\.",
        ),
    ],
)
def test_runaway_networks_are_named(name, value, message):
    with pytest.raises(OptionError, match=message):
        check_health(runaway(name, value), GRADIENTS)


def test_a_limit_that_would_not_act_is_not_advised():
    assert GradientNorms(median=2.0, largest=3.4).remedy == ""


def test_large_but_sound_networks_pass():
    check_health(runaway("1.mpbn.bn.running_var", 0.9 * LARGEST**2), GRADIENTS)


def test_a_training_that_runs_away_stops_with_a_message(digits):
    wild = Training(epochs=1, learning_rate=1e9)
    with pytest.raises(OptionError, match="learning-rate"):
        train(digits, "digits-mlp", mpbn="none", training=wild)


# ---- recalibration ------------------------------------------------------------------------------


def normalized_network(timesteps, mpbn="channel"):
    torch.manual_seed(1)
    body = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), LIF((3, 6, 6), mpbn=mpbn), nn.Flatten(), nn.Linear(108, 5),
        nn.BatchNorm1d(5), LIF(5, mpbn=mpbn), nn.Linear(5, 2),
    )  # fmt: skip
    return SpikingNetwork(body, timesteps=timesteps, input_format=input_format((1, 8, 8)))


def moments(x, per_element=False):
    rows = (x.flatten(1) if per_element else x.movedim(1, -1).flatten(0, -2)).double()
    return rows.mean(0), rows.var(0)


def assert_statistics(norm, expected):
    torch.testing.assert_close(norm.running_mean.double(), expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var.double(), expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mpbn", ["channel", "element"])
def test_recalibrated_statistics_are_those_of_the_layers_inputs(mpbn):
    """One time step: what a norm is given is written out here layer by layer."""
    network = normalized_network(1, mpbn)
    samples = torch.randint(0, 9, (700, 1, 8, 8))
    recalibrate(network, samples)
    conv, norm, lif, _, dense, second_norm, second_lif, _ = network.body
    with torch.no_grad():
        current = conv(network.normalize(samples.float()))
        assert_statistics(norm, moments(current))
        membrane = norm(current)
        assert_statistics(lif.mpbn.bn, moments(membrane, per_element=mpbn == "element"))
        hidden = dense(lif(membrane).flatten(1))
        assert_statistics(second_norm, moments(hidden))
        assert_statistics(second_lif.mpbn.bn, moments(second_norm(hidden)))


def test_membranes_of_all_time_steps_count():
    """Two steps by hand, with the neuron's final statistics: they reproduce themselves closely."""
    network = normalized_network(2)
    samples = torch.randint(0, 9, (700, 1, 8, 8))
    recalibrate(network, samples)
    conv, norm, lif = network.body[:3]
    with torch.no_grad():
        current = norm(conv(network.normalize(samples.float())))
        fires = lif.mpbn.bn(current.movedim(1, -1).reshape(-1, 3)).view(700, 6, 6, 3).movedim(-1, 1) > 0.5
        second = current + 0.25 * current * ~fires
    mean, variance = moments(torch.cat([current, second]))
    assert lif.mpbn.bn.running_mean.tolist() == pytest.approx(mean.tolist(), abs=0.02)
    assert lif.mpbn.bn.running_var.tolist() == pytest.approx(variance.tolist(), rel=0.05)


@pytest.mark.parametrize("after", [0.9, 0.92], ids=["equal", "better by chance"])
def test_statistics_that_do_not_help_are_put_back(after, digits, monkeypatch):
    network = train(digits, "digits-mlp", training=Training(epochs=1, recalibration="off"))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    scores = iter([(0.0, 0.9), (0.0, after)])  # on 718 samples: a standard error is 1.1 points
    monkeypatch.setattr("mpbn_deploy.train.recalibration.evaluate", lambda *_: next(scores))
    assert not recalibrate_as_asked(network, digits, None, Training(), SINGLE_PROCESS)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_statistics_that_help_clearly_are_kept(digits, monkeypatch):
    network = train(digits, "digits-mlp", training=Training(epochs=1, recalibration="off"))
    before = network.body.lif1.mpbn.bn.running_mean.clone()
    scores = iter([(0.0, 0.9), (0.0, 0.93)])
    monkeypatch.setattr("mpbn_deploy.train.recalibration.evaluate", lambda *_: next(scores))
    assert recalibrate_as_asked(network, digits, None, Training(), SINGLE_PROCESS)
    assert not torch.equal(network.body.lif1.mpbn.bn.running_mean, before)


@pytest.mark.parametrize(("after", "kept"), [(0.91, True), (0.9, False)])
def test_weights_are_averaged_over_the_last_steps_and_kept_if_they_are_better(
    after, kept, digits, monkeypatch
):
    steps = []
    ordinary = MeanWeights.add

    def add(mean, network):
        steps.append([parameter.detach().clone() for parameter in network.parameters()])
        ordinary(mean, network)

    scores = itertools.chain([(0.0, 0.9), (0.0, after)], itertools.repeat((0.0, 0.9)))
    monkeypatch.setattr(MeanWeights, "add", add)
    monkeypatch.setattr("mpbn_deploy.train.recalibration.evaluate", lambda *_: next(scores))
    network = train(digits, "digits-mlp", training=Training(epochs=5, average=0.3, batch=512))
    assert len(steps) == 2 * (1437 // 512)  # two of five epochs are the first whole ones above 0.3
    assert network.card.training["averaged"] is kept
    for number, parameter in enumerate(network.parameters()):
        expected = torch.stack([step[number] for step in steps]).mean(0) if kept else steps[-1][number]
        assert torch.allclose(parameter, expected, rtol=1e-5, atol=1e-7)


def test_a_teacher_is_learned_from(digits):
    """With nothing but the teacher's outputs, whose labels are all turned by one, a network learns these."""
    turned = replace(digits, train=replace(digits.train, labels=(digits.train.labels + 1) % 10))
    teacher = train(turned, "digits-mlp", training=Training(epochs=4))
    pupil = train(digits, "digits-mlp", training=Training(epochs=4, distillation=1.0), teacher=teacher)
    assert accuracy(pupil, digits.test) < 0.1
    assert accuracy(pupil, replace(digits.test, labels=(digits.test.labels + 1) % 10)) > 0.9


@pytest.mark.parametrize(
    ("shape", "classes", "message"),
    [
        ((1, 7, 7), 10, r"it takes samples of shape \(1, 7, 7\); those of digits have the shape \(1, 8, 8\)"),
        ((1, 8, 8), 9, "it has 9 outputs; digits has 10 classes"),
    ],
)
def test_a_teacher_of_other_data_is_refused(digits, shape, classes, message):
    body = nn.Sequential(nn.Flatten(), nn.Linear(np.prod(shape), classes))
    teacher = SpikingNetwork(body, timesteps=1, input_format=input_format(shape))
    with pytest.raises(OptionError, match=message):
        train(digits, "digits-mlp", training=Training(epochs=1), teacher=teacher)


def test_a_teacher_on_the_command_line_may_be_of_ones_own_code(tmp_path):
    words = ("--arch", "networks:with_relu", "--timesteps", "1", "--epochs", "1")
    teacher = execute(parse(*words, "--out", str(tmp_path / "teacher.pt"))).data["model"]
    own = ("--teacher", teacher, "--teacher-arch", "networks:with_relu", "--distillation", "0.9")
    assert run(tmp_path, "--arch", "digits-mlp", "--epochs", "1", *own)["distillation"] == 0.9


def test_the_loss_of_a_pupil_is_that_of_hinton():
    logits, taught, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 4.0]]), torch.tensor([0])
    ours, theirs = torch.softmax(logits / 2, 1), torch.softmax(taught / 2, 1)
    by_teacher = 4 * (theirs * (theirs / ours).log()).sum()
    by_labels = -torch.log_softmax(logits, 1)[0, 0]
    found = _loss(logits, labels, taught, Training(distillation=0.25))
    assert found.item() == pytest.approx((0.75 * by_labels + 0.25 * by_teacher).item(), rel=1e-6)
    assert _loss(logits, labels, None, Training()).item() == pytest.approx(by_labels.item())


def test_statistics_of_data_sorted_by_class_are_those_of_all_classes():
    """The first half of the samples is dark, as in a folder per class; so are no statistics."""
    bright = np.repeat([0, 8], 3000)
    split = Split(inputs=np.broadcast_to(bright[:, None, None, None], (6000, 1, 8, 8)), labels=bright // 8)
    dataset = DataSet(
        name="sorted",
        train=split,
        test=split,
        input_format=input_format((1, 8, 8)),
        class_names=("dark", "bright"),
    )
    network = normalized_network(1)
    judged = []

    def evaluate(network, split, processes):
        judged.append(np.mean(split.labels))
        return 0.0, len(judged) / 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mpbn_deploy.train.recalibration.evaluate", evaluate)
        assert recalibrate_as_asked(network, dataset, None, Training(), SINGLE_PROCESS)
    conv, norm = network.body[:2]
    with torch.no_grad():
        dark, bright = conv(network.normalize(torch.tensor([0.0, 8.0]).view(2, 1, 1, 1).expand(2, 1, 8, 8)))
    balanced = (norm.running_mean - dark[:, 0, 0]) / (bright - dark)[:, 0, 0]
    assert balanced.tolist() == pytest.approx([0.5] * 3, abs=0.05)  # 0 for the first samples
    assert judged == pytest.approx([0.5] * 2, abs=0.05)


def test_augmentation_is_chosen_once(capsys):
    with pytest.raises(SystemExit):
        parse("--augmentation", "flip", "--no-augmentation")
    assert "--no-augmentation: not allowed with argument --augmentation" in capsys.readouterr().err


def test_recalibration_needs_norms(digits):
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), LIF(8, mpbn="none"), nn.Linear(8, 10))
    network = SpikingNetwork(
        plain, timesteps=1, input_format=digits.input_format, card=ModelCard(architecture="x")
    )
    with pytest.raises(OptionError, match="--recalibration on: the network has no norms"):
        train(digits, "x", init=network, training=Training(recalibration="on"))


def test_statistics_are_those_of_augmented_samples():
    """Bright pictures have one mean; crops of them, with black borders, a lower one."""
    bright = np.full((200, 1, 8, 8), 8, np.uint8)
    split = Split(inputs=bright, labels=np.zeros(200, np.int64))
    dataset = DataSet(
        name="bright", train=split, test=split, input_format=input_format((1, 8, 8)), class_names=("bright",)
    )
    seen = {}
    for kind in ("none", "crop-flip"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "mpbn_deploy.train.recalibration.recalibrate",
                lambda _network, samples, _progress, kind=kind: seen.update({kind: samples.double().mean()}),
            )
            training = Training(augmentation=kind, recalibration="on")
            assert recalibrate_as_asked(normalized_network(1), dataset, None, training, SINGLE_PROCESS)
    assert seen["none"] == 8 and 4 < seen["crop-flip"] < 6  # 5.8 x 5.8 pixels of 8 x 8 are bright


def test_recalibration_on_changes_the_network_and_its_card(digits):
    settings = {"epochs": 1, "seed": 2}
    off, on = (
        train(digits, "digits-mlp", training=Training(**settings, recalibration=choice))
        for choice in ("off", "on")
    )
    assert (off.card.training["recalibrated"], on.card.training["recalibrated"]) == (False, True)
    assert not torch.equal(off.body.norm1.running_mean, on.body.norm1.running_mean)
    assert torch.equal(off.body.dense1.weight, on.body.dense1.weight)


# ---- AutoAugment --------------------------------------------------------------------------------


def picture():
    return np.random.default_rng(0).integers(0, 256, (3, 32, 32), dtype=np.uint8)


def draws_of(pair, *rest):
    return np.array([(pair + 0.5) / len(POLICY), *rest])


def test_every_change_of_the_policy_exists_and_changes_pictures():
    assert len(POLICY) == 25 and len(draws_of(0, 0, 0, 0, 0)) == POLICY_DRAWS
    assert {name for pair in POLICY for _, name, _ in pair} <= set(CHANGES)
    for pair in range(len(POLICY)):
        changed = autoaugmented(picture(), draws_of(pair, 0.0, 0.0, 1.0, 0.0))
        assert changed.shape == (3, 32, 32) and changed.dtype == np.uint8


def test_changes_are_those_they_are_named_after():
    given = picture()
    inverted = autoaugmented(given, draws_of(0, 0.05, 0.0, 0.9, 0.0))
    assert np.array_equal(inverted, 255 - given)
    shifted = autoaugmented(given, draws_of(21, 0.0, 1.0, 0.9, 0.0))  # by 14.5 rows, upward
    assert np.array_equal(shifted[:, :17], given[:, 15:]) or np.array_equal(shifted[:, :18], given[:, 14:])
    assert (shifted[:, -14:] == 128).all()
    assert np.array_equal(autoaugmented(given, draws_of(0, 0.5, 0.0, 0.5, 0.0)), given)  # neither is drawn


def test_augmentations_have_the_names_of_the_option():
    assert tuple(AUGMENTATIONS) == Training.declared["augmentation"].choices


def test_autoaugment_needs_color_pictures(digits):
    settings = Training(epochs=1, augmentation="crop-flip-autoaugment-cutout")
    with pytest.raises(OptionError, match=r"AutoAugment changes color pictures.*\(1, 8, 8\)"):
        train(digits, "digits-mlp", training=settings)


# ---- samples larger than the input, resuming, integers --------------------------------------------


def larger(digits):
    """Training pictures with a border, as ImageNet's: crops have the size that the network takes."""
    inputs = np.pad(digits.train.inputs[:256], ((0, 0), (0, 0), (1, 1), (1, 1)))
    return replace(digits, train=replace(digits.train, inputs=inputs, labels=digits.train.labels[:256]))


@pytest.mark.parametrize(
    "parts", [{"augmentation": "crop-flip"}, {"augmentation": "none", "validation": 0.2}]
)
def test_training_pictures_may_be_larger_than_the_input(digits, parts):
    network = train(larger(digits), "digits-mlp", training=Training(epochs=1, **parts))
    assert network.card.training["test_accuracy"] > 0.2


def test_the_center_is_cropped():
    image = np.arange(2 * 6 * 5).reshape(2, 1, 6, 5)
    assert np.array_equal(center_crop(image, (1, 4, 3)), image[:, :, 1:5, 1:4])
    assert center_crop(image, (1, 6, 5)) is image and center_crop(image, (60,)) is image


def test_a_run_without_momentum_resumes(digits, tmp_path, monkeypatch):
    path, settings = tmp_path / "model.pt", Training(epochs=2, momentum=0.0)
    with monkeypatch.context() as patch:
        patch.setattr("mpbn_deploy.train.stage.recalibrate_as_asked", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(digits, "digits-mlp", training=settings, out=path)
    resumed = train(digits, "digits-mlp", training=settings, out=path, resume=True)
    assert resumed.card.training["epoch"] == 2


def interrupt(*_):
    raise KeyboardInterrupt


def test_automatic_precision_is_that_of_the_run_to_resume(tmp_path, monkeypatch):
    words = ["--arch", "digits-mlp", "--epochs", "2", "--precision", "auto"]
    monkeypatch.setattr("mpbn_deploy.train.command.fastest_precision", lambda device: "bfloat16")
    with monkeypatch.context() as patch:
        patch.setattr("mpbn_deploy.train.stage.recalibrate_as_asked", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, *words)
    monkeypatch.setattr("mpbn_deploy.train.command.fastest_precision", lambda device: "float32")
    assert run(tmp_path, *words, "--resume")["precision"] == "bfloat16"


def test_the_best_network_has_all_time_steps(digits, tmp_path):
    settings = Training(epochs=3, single_step=0.7, learning_rate=0.3)
    train(digits, "digits-mlp", timesteps=3, training=settings, out=tmp_path / "model.pt")
    assert [line["timesteps"] for line in read_log(tmp_path / "model.pt")] == [1, 1, 3]
    assert load_model(tmp_path / "model.best.pt").timesteps == 3


def factory_with_options(input_shape, classes, **neuron):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), LIF(16, **neuron), nn.Linear(16, classes))


def factory_with_kind(input_shape, classes, mpbn):
    return factory_with_options(input_shape, classes, mpbn=mpbn)


def factory_of_its_own(input_shape, classes, **neuron):
    first, second = LIF(16), LIF(16, leak=0.5)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), first, nn.Linear(16, 16), second, nn.Linear(16, classes)
    )


def test_a_recipe_leaves_the_neurons_of_a_factory_of_ones_own_as_they_are(tmp_path):
    words = ("--recipe", "fast", "--arch", "test_recipes:factory_with_kind", "--epochs", "1")
    found = run(tmp_path, *words, "--augmentation", "none", "--batch", "64", "--precision", "float32")
    assert (found["surrogate"], found["reset_gradient"]) == ("rectangle", "whole")
    assert (found["optimizer"], found["timesteps"]) == ("muon", 2)


def test_options_that_a_factory_does_not_use_are_refused(digits, capsys):
    for mpbn, neuron, message in (
        ("none", {}, "--mpbn none has no effect: .*factory_of_its_own builds neurons with channel"),
        ("channel", {"leak": 0.9}, r"--leak 0\.9 has no effect: .* builds neurons with 0\.25 and 0\.5"),
    ):
        with pytest.raises(OptionError, match=message):
            train(digits, "test_recipes:factory_of_its_own", Training(epochs=1), mpbn=mpbn, **neuron)
    capsys.readouterr()
    train(digits, "test_recipes:factory_of_its_own", training=Training(epochs=1))
    assert "factory_of_its_own builds neurons with --leak 0.25 and 0.5, not 0.25\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arch", "epsilon"),
    [("test_recipes:factory_with_kind", 1e-5), ("test_recipes:factory_with_options", 0.1)],
)
def test_a_factory_of_ones_own_gets_the_epsilon_of_the_kind_if_it_takes_one(tmp_path, arch, epsilon, capsys):
    words = ["--data", "digits", "--arch", arch, "--mpbn", "element", "--epochs", "1"]
    card = run(tmp_path, *words)
    assert f"mpbn-epsilon {epsilon}" in capsys.readouterr().err
    assert card["mpbn_epsilon"] == epsilon


def test_half_precision_ends_at_the_neurons():
    lif = LIF(3, mpbn="none")
    lif.timesteps = 2
    x = torch.tensor([[0.50390625, 0.5, 0.2]] * 2).bfloat16()
    spikes = lif(x)
    assert spikes.dtype == torch.float32 and spikes[0].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--init", "model.pt", "--weight-bits", "4"], "--weight-bits has an effect only with --quantize"),
        (["--mpbn", "none", "--mpbn-epsilon", "0.1"], "--mpbn-epsilon has no effect with --mpbn none"),
        (["--mpbn", "none", "--freeze-mpbn", "0.5"], "--freeze-mpbn has no effect with --mpbn none"),
        (["--init", "a.pt", "--quantize", "loihi2", "--optimizer", "muon"], "integers are trained with sgd"),
        (["--single-step", "0.5", "--timesteps", "1"], "--single-step has no effect with --timesteps 1"),
        (["--init", "a.pt", "--quantize", "loihi2", "--weight-bits", "auto"], "one number for all layers"),
        (["--teacher-arch", "a:b"], "--teacher-arch has an effect only with --teacher"),
        (["--warmup", "0.1"], "--warmup has no effect with --schedule cosine"),
        (["--recipe", "fast", "--schedule", "cosine", "--warmup", "0.1"], "--warmup has no effect"),
        (["--init", "{out}"], "model.pt would replace the network of --init; choose another --out"),
    ],
)
def test_impossible_combinations_are_refused(tmp_path, words, message):
    with pytest.raises(OptionError, match=message):
        run(tmp_path, *(word.format(out=tmp_path / "model.pt") for word in words))
