"""Muon: which weights it moves, where to, and how far."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from networks import input_format
from properties import examples
from torch import nn

import mpbn_deploy.train.loop
from mpbn_deploy.base import OptionError
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.nn import LIF, RecurrentLIF, SpikingNetwork
from mpbn_deploy.train import Training, quantized_twin, train
from mpbn_deploy.train.optimizer import Muon, make_optimizer, orthogonalized


@examples(40)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_singular_vectors_stay_and_singular_values_come_near_one(rows, columns, seed):
    count = min(rows, columns)
    random = np.random.default_rng(seed)
    left, _ = np.linalg.qr(random.normal(size=(rows, count)))
    right, _ = np.linalg.qr(random.normal(size=(columns, count)))
    values = random.uniform(0.5, 1.0, count)
    found = orthogonalized(torch.from_numpy(left * values @ right.T)).numpy()
    inner = left.T @ found @ right
    np.testing.assert_allclose(found, left @ inner @ right.T, atol=1e-9)
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-9)
    assert (np.diag(inner) > 0.4).all() and (np.diag(inner) < 1.6).all()


def test_the_gram_matrix_gives_the_iteration_as_it_is_written():
    matrix = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = matrix / matrix.norm()
    for _ in range(3):
        gram = x @ x.T
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
    torch.testing.assert_close(orthogonalized(matrix), x)
    torch.testing.assert_close(orthogonalized(matrix.T), x.T)


def stepped(nesterov=False, momentum=0.0, gradients=1):
    """A weight before and after steps, and the direction that the last one should take."""
    random = torch.Generator().manual_seed(1)
    weight = nn.Parameter(torch.randn(4, 3, 2, 2, dtype=torch.float64, generator=random))
    optimizer = Muon(
        [{"params": [weight], "orthogonal": True}], lr=0.05, momentum=momentum, nesterov=nesterov
    )
    buffer = torch.zeros_like(weight)
    for _ in range(gradients):
        before = weight.detach().clone()
        weight.grad = torch.randn(weight.shape, dtype=torch.float64, generator=random)
        buffer = momentum * buffer + weight.grad
        wanted = weight.grad + momentum * buffer if nesterov else buffer
        optimizer.step()
    return before, weight.detach(), orthogonalized(wanted.flatten(1)).view_as(weight)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_a_weight_turns_by_the_rate_and_keeps_its_norm(options):
    before, after, direction = stepped(**options, gradients=3)
    moved = before / before.norm() - 0.05 * direction / direction.norm()
    torch.testing.assert_close(after, before.norm() * moved / moved.norm())


def test_a_gradient_of_zero_moves_nothing():
    weight = nn.Parameter(torch.ones(2, 3))
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.1)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert torch.equal(weight, torch.ones(2, 3))


def groups_of(body, optimizer="muon"):
    """The names of parameters that Muon moves, and of those that decay, in a body for inputs of 4 numbers."""
    network = SpikingNetwork(body, timesteps=2, input_format=input_format((4,)))
    made = make_optimizer(network, Training(optimizer=optimizer)).param_groups
    names = {id(parameter): name for name, parameter in body.named_parameters()}

    def listed(chosen):
        return {names[id(p)] for group in made if chosen(group) for p in group["params"]}

    assert sum(len(group["params"]) for group in made) == len(names)
    return listed(lambda group: group["orthogonal"]), listed(lambda group: group["weight_decay"])


def two_layers(first=None, **neuron):
    """Registers its readout first, as a class with `self.readout = ...` on top does."""

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.readout = nn.Linear(4, 4)
            self.dense = nn.Linear(4, 4, bias=False) if first is None else first
            self.lif = LIF(4, **neuron)

        def forward(self, x):
            return self.readout(self.lif(self.dense(x)))

    return Body()


def test_muon_moves_weights_with_a_norm_behind_them_and_sgd_the_rest():
    assert groups_of(two_layers()) == ({"dense.weight"}, {"readout.weight"})
    assert groups_of(two_layers(), "sgd") == (set(), {"dense.weight", "readout.weight"})
    with_norm = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), LIF(4, mpbn="none"), nn.Linear(4, 2))
    assert groups_of(with_norm) == ({"0.weight"}, {"3.weight"})


def test_a_recurrent_weight_is_left_to_sgd():
    body = nn.Sequential(nn.Linear(4, 4), RecurrentLIF(4), nn.Linear(4, 2))
    assert groups_of(body) == ({"0.weight"}, {"1.recurrent.weight", "2.weight"})


def test_shared_weights_are_moved_once():
    body = nn.Sequential(nn.Linear(4, 4), LIF(4), nn.Linear(4, 4), LIF(4), nn.Linear(4, 2))
    body[2].weight = body[0].weight
    assert groups_of(body)[0] == {"0.weight"}
    assert groups_of(body, "sgd")[1] == {"0.weight", "4.weight"}


def test_muon_needs_norms_and_a_direction():
    with pytest.raises(OptionError, match=r"--optimizer muon: no layer .* Train with --optimizer sgd"):
        groups_of(two_layers(mpbn="none"))
    zeros = nn.Linear(4, 4, bias=False)
    nn.init.zeros_(zeros.weight)
    body = nn.Sequential(zeros, LIF(4), nn.Linear(4, 4), LIF(4), nn.Linear(4, 2))
    assert groups_of(body) == ({"2.weight"}, {"0.weight", "4.weight"})


def test_a_gradient_that_is_not_finite_shows_in_the_weight():
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.full_like(weight, float("nan"))
    Muon([{"params": [weight], "orthogonal": True}], lr=0.1).step()
    assert weight.isnan().all()


def test_a_closure_computes_the_gradients_of_the_step():
    weight = nn.Parameter(torch.eye(2))
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.1)

    def closure():
        loss = weight[0, 1] * 3
        loss.backward()
        return loss

    assert optimizer.step(closure) == 0 and weight[0, 1] < 0


@pytest.mark.parametrize(("optimizer", "rate"), [("muon", 0.1), ("adam", 0.005)])
def test_training_learns_and_resumes_bit_exactly(optimizer, rate, digits, tmp_path, monkeypatch):
    training = Training(optimizer=optimizer, learning_rate=rate, epochs=2, batch=64)
    whole = train(digits, "digits-cnn", training=training)
    assert whole.card.training["optimizer"] == optimizer and whole.card.training["test_accuracy"] > 0.9

    calls = itertools.count(1)

    def interrupt_after_two(network, gradients):
        if next(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(mpbn_deploy.train.loop, "check_health", interrupt_after_two)
    with pytest.raises(KeyboardInterrupt):
        train(digits, "digits-cnn", training=training, out=tmp_path / "model.pt")
    resumed = train(digits, "digits-cnn", training=training, out=tmp_path / "model.pt", resume=True)
    for found, expected in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_integers_are_not_trained_with_muon(digits):
    network = train(digits, "digits-mlp", training=Training(epochs=1))
    twin = quantized_twin(network, load_profile("loihi2"), None, digits)
    with pytest.raises(OptionError, match="integers are trained with sgd"):
        make_optimizer(twin, Training(optimizer="muon"))
