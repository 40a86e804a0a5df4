"""Compiled loops of training against the plain loop, torch's norms and torch's pools."""

import os
import subprocess
import sys

import pytest
import torch
from neurons import SHAPES, assert_is_the_plain_loop, make_lif
from torch import nn

from mpbn_deploy.api import Training, load_dataset, train
from mpbn_deploy.base import OptionError
from mpbn_deploy.nn import LIF, SpikePool, compiled, compiled_norms
from mpbn_deploy.nn.norm import norm_of
from mpbn_deploy.nn.scan import is_compiled, normalized_membranes

pytest.importorskip("numba")

LAST = torch.channels_last
NEURONS = {
    "as in the paper": {},
    "as in the fast recipe": {"surrogate": "wide", "reset_gradient": "detached"},
    "as in the paper's code, soft reset": {"surrogate": "tanh", "reset": "subtract"},
    "without MPBN": {"mpbn": "none", "reset": "subtract", "reset_gradient": "detached"},
}


@pytest.fixture(autouse=True)
def small_tensors(monkeypatch):
    """Let compiled loops take the small tensors of tests, in double precision."""
    monkeypatch.setattr(compiled, "SMALLEST", 1)
    monkeypatch.setattr(compiled, "PRECISIONS", (*compiled.PRECISIONS, torch.float64))


def by_torch(monkeypatch, function):
    """Call a function without compiled loops."""
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "SMALLEST", float("inf"))
        return function()


# ---- neurons ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timesteps", [1, 3])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("options", NEURONS.values(), ids=NEURONS)
def test_compiled_neurons_are_the_plain_loop(options, shape, training, timesteps):
    """Rows of 7 samples fill a part of a block of rows, and those of 7 images several."""
    torch.manual_seed(1)
    lif = make_lif(shape, **options).train(training)
    lif.timesteps = timesteps
    probe = torch.zeros(timesteps * 2, *shape, dtype=torch.float64, requires_grad=True)
    assert is_compiled(lif(probe.contiguous(memory_format=LAST) if len(shape) == 3 else probe).grad_fn)
    assert_is_the_plain_loop(lif, shape, LAST)


def test_borders_of_the_surrogates_belong_to_them_or_not():
    for surrogate, expected in (("rectangle", [0, 0, 1, 1, 0, 0]), ("wide", [0, 1, 1, 1, 1, 0])):
        lif = LIF(1, mpbn="none", surrogate=surrogate)
        lif.timesteps = 1
        x = torch.tensor([[-0.5], [-1e-38], [0.0], [1.0], [1.0000001], [1.5]], requires_grad=True)
        spikes = lif(x)
        spikes.sum().backward()
        assert is_compiled(spikes.grad_fn) and x.grad.ravel().tolist() == expected


@pytest.mark.parametrize("timesteps", [1, 2])
def test_half_precision_is_rounded_once(timesteps):
    """Spikes of bfloat16 inputs are those of the same numbers in float32; gradients are rounded."""
    torch.manual_seed(0)
    lif = LIF(8, surrogate="wide").train()
    lif.timesteps = timesteps
    x = torch.randn(timesteps * 4, 8, 6, 6, dtype=torch.bfloat16).contiguous(memory_format=LAST)
    weights = torch.randn(x.shape, dtype=torch.bfloat16)
    found = []
    for precision in (torch.bfloat16, torch.float32):
        inputs = x.to(precision).requires_grad_()
        spikes = lif(inputs)
        assert spikes.dtype == precision and is_compiled(spikes.grad_fn)
        parameters = [lif.mpbn.bn.weight, lif.mpbn.bn.bias]
        gradients = torch.autograd.grad((spikes * weights.to(precision)).float().sum(), [inputs, *parameters])
        found.append((spikes.float(), *gradients))
    (half_spikes, half_x, *half), (spikes, by_x, *whole) = found
    assert torch.equal(half_spikes, spikes) and 0 < spikes.mean() < 1
    torch.testing.assert_close(half_x.float(), by_x, rtol=2**-7, atol=2**-8 * float(by_x.abs().max()))
    for one, other in zip(half, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6 * float(other.abs().max()))


def test_threads_change_rounding_only():
    torch.manual_seed(0)
    lif = make_lif((5, 4, 4), surrogate="wide").train()
    x = torch.randn(3 * 40, 5, 4, 4, dtype=torch.float64).contiguous(memory_format=LAST).requires_grad_()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            found.append(torch.autograd.grad(lif(x).square().sum(), [x, lif.mpbn.bn.weight]))
    finally:
        torch.set_num_threads(before)
    one, two, again = found
    assert all(torch.equal(a, b) for a, b in zip(two, again, strict=True))
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


# ---- norms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_compiled_norms_are_those_of_torch(shape):
    torch.manual_seed(0)
    norm = (nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d)(shape[0]).double()
    nn.init.normal_(norm.weight)
    x = 100 + torch.randn(50, *shape, dtype=torch.float64)
    weights = torch.randn(50, *shape, dtype=torch.float64)
    x = (x.contiguous(memory_format=LAST) if len(shape) == 3 else x).requires_grad_()
    found = []
    for context in (compiled_norms(norm), torch.enable_grad()):
        norm.reset_running_stats()
        with context:
            y = norm(x)
        gradients = torch.autograd.grad((y * weights).sum(), [x, norm.weight, norm.bias])
        found.append((y, *gradients, *(buffer.clone() for buffer in norm.buffers())))
    assert "forward" not in vars(norm)
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-9, atol=1e-9)


def test_norms_that_are_left_to_torch():
    x = torch.randn(8, 3, requires_grad=True)
    for norm in (nn.BatchNorm1d(3, momentum=None), nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(3).eval()):
        with compiled_norms(norm):
            assert "Compiled" not in str(norm(x).grad_fn) and "_BatchNorm" not in str(norm(x).grad_fn)
    with (
        compiled_norms(nn.Sequential(nn.BatchNorm1d(3))) as _,
        pytest.raises(OptionError, match="single value"),
    ):
        compiled.batch_norm(nn.BatchNorm1d(3), x[:1])


def test_tensors_and_norms_that_are_left_to_torch():
    norm = norm_of(nn.BatchNorm1d(12), training=True)
    x = torch.randn(6, 3, 2, 2, requires_grad=True)
    assert compiled.serves(x.contiguous(memory_format=LAST), norm)
    assert not compiled.serves(x, norm), "channels are not next to each other"
    assert not compiled.serves(x.detach(), norm), "no gradient is wanted"
    assert not compiled.serves(x.half().contiguous(memory_format=LAST), norm)
    for other in (
        norm_of(nn.BatchNorm1d(12), training=True, synchronized=True),
        norm_of(nn.BatchNorm1d(12), training=True, element_shape=(3, 2, 2)),
        norm_of(nn.BatchNorm1d(12), training=True, observe=lambda _: None),
    ):
        assert not compiled.serves(x.contiguous(memory_format=LAST), other)


# ---- pools --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "size"), [(SpikePool(2), (6, 8)), (SpikePool(2), (5, 7)), (SpikePool(3, 2, 1), (6, 6))]
)
def test_compiled_pools_are_those_of_torch(monkeypatch, pool, size):
    """Also where they do not divide the picture, or overlap."""
    torch.manual_seed(0)
    lif = make_lif((4, *size)).train()  # gains of both signs, three time steps
    x = torch.randn(6, 4, *size, dtype=torch.float64).contiguous(memory_format=LAST).requires_grad_()

    def outcome():
        spikes = lif(x)
        pooled = pool(spikes)
        weights = torch.linspace(-1, 1, pooled.numel(), dtype=torch.float64).view(pooled.shape)
        return pooled, torch.autograd.grad((pooled * weights).sum(), spikes)[0], spikes

    pooled, by_spike, spikes = outcome()
    expected, expected_by_spike, _ = by_torch(monkeypatch, outcome)
    assert is_compiled(spikes.grad_fn) and normalized_membranes(spikes.grad_fn).shape == spikes.shape
    assert torch.equal(pooled, expected) and torch.equal(by_spike, expected_by_spike)


# ---- training, and installations ------------------------------------------------------------------


def test_training_by_compiled_loops_repeats_itself_and_learns(monkeypatch):
    digits = load_dataset("digits")
    settings = Training(epochs=2, batch=64, seed=0)

    def trained():
        return train(digits, "digits-cnn", timesteps=2, training=settings)

    first, second, torchs = trained(), trained(), by_torch(monkeypatch, trained)
    for ours, again in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(ours, again)
    accuracies = [network.card.training["test_accuracy"] for network in (first, torchs)]
    assert min(accuracies) > 0.9 and abs(accuracies[0] - accuracies[1]) < 0.05
    assert not torch.equal(first.body.conv1.weight, torchs.body.conv1.weight), "nothing was compiled"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "MissingPackageError: Numba is not installed"),
        ("broken", "ImportError: Numba needs NumPy 2.5 or less"),
        ("told not to compile", "OptionError: NUMBA_DISABLE_JIT is set: Numba does not compile"),
    ],
)
def test_without_numba_training_is_left_to_torch(kind, reason, tmp_path):
    """`broken` is what Numba does beside a NumPy that is newer than it knows."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": str(int(kind == "told not to compile"))}
    code = "from mpbn_deploy.nn import compiled; assert compiled.kernels() is None; compiled.check_compiled()"
    if kind == "missing":
        code = f"import sys; sys.modules['numba'] = None; {code}"
    elif kind == "broken":
        (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.5 or less')")
        environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(reason)
