"""What you train with, and training itself."""

from pathlib import Path

import numpy as np
import pytest
import torch
from networks import input_format
from torch import nn

from mpbn_deploy.data import load_dataset
from mpbn_deploy.errors import OptionError
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.train import Training, train


def run_lif(lif, steps):
    """Feed one neuron, step by step."""
    lif.timesteps = len(steps)
    with torch.no_grad():
        return lif(torch.tensor(steps).view(-1, 1)).ravel().tolist()


def test_the_neuron_is_that_of_the_paper():
    """leak 0.25, threshold 0.5, strictly above, reset to zero"""
    assert run_lif(LIF(1, mpbn="none"), [0.5, 0.375, 0.375]) == [0, 0, 0]
    assert run_lif(LIF(1, mpbn="none"), [0.5, 0.376, 0.5]) == [0, 1, 0]


def test_mpbn_normalizes_a_copy_of_the_membrane():
    lif = LIF(1).eval()
    norm = lif.mpbn.bn
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0 - norm.eps)
    norm.weight.data.fill_(2.0)
    norm.bias.data.fill_(-0.5)
    # fires when 2 * (v - 1) / 2 - 0.5 > 0.5, that is v > 2; the membrane itself goes on un-normalized
    assert run_lif(lif, [2.0, 1.5, 1.5]) == [0, 0, 0]
    assert run_lif(lif, [2.0, 1.6, 2.0]) == [0, 1, 0]


@pytest.mark.parametrize(
    ("shape", "kind", "count"), [((3, 2, 2), "channel", 3), ((3, 2, 2), "element", 12), (5, "element", 5)]
)
def test_mpbn_has_parameters_per_channel_or_per_neuron(shape, kind, count):
    lif = LIF(shape, mpbn=kind)
    assert lif.mpbn.bn.num_features == count
    lif.timesteps = 2
    sizes = (shape,) if isinstance(shape, int) else shape
    assert lif(torch.randn(8, *sizes)).shape == (8, *sizes)


def test_statistics_are_those_of_one_time_step():
    lif = LIF(2, leak=0.0)
    lif.timesteps = 2
    x = torch.randn(2, 16, 2)
    spikes = lif.train()(x.flatten(0, 1)).view(2, 16, 2)
    for step in range(2):
        normalized = (x[step] - x[step].mean(0)) / torch.sqrt(x[step].var(0, unbiased=False) + 1e-5)
        assert torch.equal(spikes[step], (normalized > 0.5).float())


def test_logits_are_the_mean_over_time_of_normalized_inputs():
    body = nn.Sequential(nn.Flatten(), nn.Linear(70, 3))
    given = input_format()
    network = SpikingNetwork(body, timesteps=4, input_format=given).double()
    frames = torch.randint(0, 10, (2, 4, 2, 5, 7)).double()
    mean, deviation = (torch.tensor(v).view(2, 1, 1) for v in (given.mean, given.deviation))
    expected = torch.stack([body.double()((frames[:, t] - mean) / deviation) for t in range(4)]).mean(0)
    assert torch.allclose(network(frames), expected)
    still = frames[:, :1].expand(-1, 4, -1, -1, -1)
    assert torch.allclose(network(frames[:, 0]), network(still))


def tiny_network():
    return SpikingNetwork(nn.Linear(4, 2), timesteps=2, input_format=input_format((4,)))


def train_digits(**options):
    return train(load_dataset("digits"), "digits-mlp", training=Training(**options))


def train_arch(architecture):
    return train(load_dataset("digits"), architecture, training=Training(epochs=1))


def test_a_network_that_cannot_be_exported_is_trained_with_a_note(capfd):
    train_arch("networks:with_relu")
    assert "not exported: 2: layer of class ReLU is not known" in capfd.readouterr().err


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
        (lambda: LIF(3)(torch.zeros(2, 3)), "how many time steps"),
        (lambda: SpikingNetwork(nn.Identity(), timesteps=0, input_format=input_format()), "timesteps 0"),
        (lambda: load_dataset("digit"), "Did you mean 'digits'"),
        (lambda: tiny_network()(torch.zeros(2, 5, 4)), "the network takes"),
        (lambda: train_digits(batch=2000), "batch 2000; digits has 1437 samples"),
        (lambda: train_digits(learning_rate=float("nan")), "learning rate nan"),
        (lambda: train_digits(learning_rate=-1.0), "learning rate -1.0"),
        (lambda: train_digits(learning_rate=1e30), "the loss is no longer a number"),
        (lambda: train_arch("networks:no_parameters"), "no parameters to train"),
        (
            lambda: train_arch("networks:five_outputs"),
            r"outputs \(2, 5\) for 2 samples; digits needs \(2, 10\)",
        ),
        (lambda: train_arch("networks:wrong_size"), "cannot take samples of digits"),
        (lambda: load_dataset("digits", Path("folder")), "take no --data-dir"),
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
