"""Muon: which weights it moves, where to, and how far."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from properties import examples
from torch import nn

import mpbn_deploy.train.loop
from mpbn_deploy.base import OptionError
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.train import Training, quantized_twin, train
from mpbn_deploy.train.optimizer import MUON_RATE, Muon, make_optimizer, orthogonalized


def layers_of(network):
    return [module for module in network.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]


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


def test_muon_moves_hidden_weights_and_sgd_the_rest(digits):
    network = train(digits, "digits-cnn", training=Training(epochs=1, batch=512))
    hidden, readout, others = make_optimizer(network, Training(optimizer="muon")).param_groups
    *first, last = (layer.weight for layer in layers_of(network))
    assert [id(weight) for weight in hidden["params"]] == [id(weight) for weight in first]
    assert (hidden["relative_rate"], hidden["weight_decay"]) == (MUON_RATE, 0.0)
    assert len(readout["params"]) == 1 and readout["params"][0] is last
    assert readout["weight_decay"] == Training().weight_decay
    assert not (readout["orthogonal"] or others["orthogonal"])


def test_training_with_muon_learns_and_resumes_bit_exactly(digits, tmp_path, monkeypatch):
    training = Training(optimizer="muon", epochs=2, batch=64)
    whole = train(digits, "digits-cnn", training=training)
    assert whole.card.training["optimizer"] == "muon" and whole.card.training["test_accuracy"] > 0.9

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
