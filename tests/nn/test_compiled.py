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
from mpbn_deploy.nn.norm import SURROGATES, norm_of
from mpbn_deploy.nn.scan import is_compiled, normalized_membranes

pytest.importorskip("numba")
pytestmark = pytest.mark.slow  # compiles

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
    monkeypatch.setattr(compiled, "MIN_NUMBERS", 1)
    monkeypatch.setattr(compiled, "PRECISIONS", (*compiled.PRECISIONS, torch.float64))


def by_torch(monkeypatch, function):
    """Call a function without compiled loops."""
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "MIN_NUMBERS", float("inf"))
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


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_borders_of_the_surrogates_and_far_beyond(monkeypatch, surrogate):
    """Where torch has a slope of zero, so have the loops, also where their polynomial is not finite."""
    lif = LIF(1, mpbn="none", surrogate=surrogate)
    lif.timesteps = 1
    values = [-1e6, -20.0, -0.5, -0.49, -1e-38, 0.0, 0.3, 1.0, 1.0000001, 1.49, 1.5, 12.0, 1e6]

    def gradient():
        x = torch.tensor(values, requires_grad=True)
        (lif(x[:, None]) * torch.tensor(2.0)).sum().backward()
        return x.grad

    found, expected = gradient(), by_torch(monkeypatch, gradient)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(found == 0, expected == 0) and 1 < expected.count_nonzero() < len(values)


def test_every_surrogate_has_an_interval():
    assert set(compiled.INTERVALS) == set(SURROGATES.values())


@pytest.mark.parametrize("timesteps", [1, 2])
def test_half_precision_rounds_gradients_only(timesteps):
    """Spikes of bfloat16 inputs are those of the same numbers in float32."""
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
        for threads in (1, 2, 2, 200):  # no more than there are processors
            torch.set_num_threads(threads)
            found.append(torch.autograd.grad(lif(x).square().sum(), [x, lif.mpbn.bn.weight]))
    finally:
        torch.set_num_threads(before)
    one, two, again, many = found
    assert all(torch.equal(a, b) for a, b in zip(two, again, strict=True))
    for others in (two, many):
        for a, b in zip(one, others, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_more_threads_than_rows(monkeypatch):
    """Four samples of 128 channels are one row; a thread without rows adds nothing."""
    torch.manual_seed(0)
    lif = make_lif((128,)).train()
    x = torch.randn(12, 128, dtype=torch.float64, requires_grad=True)

    def gradients():
        return torch.autograd.grad(lif(x).square().sum(), [x, lif.mpbn.bn.weight])

    for ours, torchs in zip(gradients(), by_torch(monkeypatch, gradients), strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-10, atol=1e-10)


def test_a_graph_can_be_used_twice_unless_its_inputs_change():
    lif = make_lif((4,)).train()
    lif.timesteps = 1
    start = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    x = start * 1.0
    loss = lif(x).square().sum()
    first, second = (torch.autograd.grad(loss, start, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second) and first.any()
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


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


def test_norms_in_half_precision_are_those_of_torch():
    torch.manual_seed(0)
    norm, found = nn.BatchNorm2d(8), []
    x = torch.randn(9, 8, 5, 5, dtype=torch.bfloat16).contiguous(memory_format=LAST).requires_grad_()
    for context in (compiled_norms(norm), torch.enable_grad()):
        norm.reset_running_stats()
        with context:
            y = norm(x)
        gradients = torch.autograd.grad(y.float().pow(3).sum(), [x, norm.weight, norm.bias])
        found.append((y.detach(), *gradients, norm.running_mean.clone(), norm.running_var.clone()))
    for ours, torchs in zip(*found, strict=True):
        assert ours.dtype == torchs.dtype
        scale = float(torchs.float().abs().max())
        torch.testing.assert_close(ours.float(), torchs.float(), rtol=2**-7, atol=2**-7 * scale)


class Halved(nn.BatchNorm1d):
    """A norm with a forward of its own."""

    def forward(self, x):
        return super().forward(x) / 2


def test_norms_that_are_left_to_torch():
    x = torch.randn(8, 3, requires_grad=True)
    for norm in (
        nn.BatchNorm1d(3, momentum=None),
        nn.BatchNorm1d(3, affine=False),
        nn.BatchNorm1d(3).eval(),
        nn.BatchNorm1d(3).bfloat16(),
        Halved(3),
    ):
        given = x.to(next(norm.buffers()).dtype)
        with compiled_norms(norm):
            found = norm(given)
        assert "_BatchNormBackward" not in str(found.grad_fn)
        if isinstance(norm, Halved):
            assert 0.4 < found.std() < 0.6


def test_inputs_that_a_norm_rejects():
    """By torch's own messages"""
    norm = nn.Sequential(nn.BatchNorm2d(4))
    with compiled_norms(norm), compiled_norms(norm):  # the second changes nothing
        for shape, error, message in (
            ((6, 3, 2, 2), RuntimeError, "should contain 3 elements not 4"),
            ((6, 4), ValueError, "expected 4D input"),
        ):
            x = torch.zeros(shape, requires_grad=True)
            with pytest.raises(error, match=message):
                norm(x.contiguous(memory_format=LAST) if len(shape) == 4 else x)
        single = torch.zeros(1, 4, 1, 1, requires_grad=True).contiguous(memory_format=LAST)
        with pytest.raises(OptionError, match="single value"):
            norm(single)
    assert "forward" not in vars(norm[0])


def test_tensors_and_norms_that_are_left_to_torch():
    module = nn.BatchNorm1d(3)
    norm, gain = norm_of(module, training=True), module.weight
    x = torch.randn(6, 3, 2, 2, requires_grad=True)
    last = x.contiguous(memory_format=LAST)
    assert compiled.serves(last, gain, norm) and compiled.serves(last.bfloat16(), gain, norm)
    assert not compiled.serves(x, gain, norm), "channels are not neighbors"
    assert not compiled.serves(last.detach(), gain, norm), "no gradient is wanted"
    assert not compiled.serves(last.half(), gain, norm)
    assert not compiled.serves(last, gain.double(), norm) and not compiled.serves(last, gain.bfloat16(), norm)
    for other in (
        norm_of(nn.BatchNorm1d(3), training=True, synchronized=True),
        norm_of(nn.BatchNorm1d(12), training=True, element_shape=(3, 2, 2)),
        norm_of(nn.BatchNorm1d(3), training=True, observe=lambda _: None),
    ):
        assert not compiled.serves(last, gain, other)


# ---- pools --------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("pool", "size"), [(SpikePool(2), (6, 8)), (SpikePool((2, 2)), (5, 7)), (SpikePool(3, 2, 1), (6, 6))]
)
def test_compiled_pools_are_those_of_torch(monkeypatch, pool, size, precision):
    """Also where they do not divide the picture, or overlap."""
    torch.manual_seed(0)
    lif = make_lif((4, *size)).train()  # gains of both signs, three time steps
    lif = lif if precision == torch.float64 else lif.float()
    x = torch.randn(6, 4, *size).to(precision).contiguous(memory_format=LAST).requires_grad_()

    def outcome():
        spikes = lif(x)
        pooled = pool(spikes)
        weights = torch.linspace(-1, 1, pooled.numel()).view(pooled.shape).bfloat16().to(pooled.dtype)
        gradient = torch.autograd.grad((pooled * weights).sum(), spikes)[0]
        return pooled.double(), gradient.double(), spikes

    pooled, by_spike, spikes = outcome()
    expected, expected_by_spike, _ = by_torch(monkeypatch, outcome)
    assert is_compiled(spikes.grad_fn) and normalized_membranes(spikes.grad_fn).shape == spikes.shape
    assert torch.equal(pooled, expected)
    if pool.kernel_size == 3 and precision == torch.bfloat16:  # sums over windows are rounded
        torch.testing.assert_close(by_spike, expected_by_spike, rtol=2**-7, atol=2**-7)
    else:
        assert torch.equal(by_spike, expected_by_spike)


def test_a_pool_of_a_single_pixel_is_rejected_by_torch():
    lif = LIF(4).train()
    lif.timesteps = 1
    spikes = lif(torch.randn(6, 4, 1, 1, requires_grad=True).contiguous(memory_format=LAST))
    assert is_compiled(spikes.grad_fn)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        SpikePool(2)(spikes)


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
    code = "from mpbn_deploy.nn import compiled as c; assert c.load_kernels() is None; c.check_compiled()"
    if kind == "missing":
        code = f"import sys; sys.modules['numba'] = None; {code}"
    elif kind == "broken":
        (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.5 or less')")
        environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(reason)


USE = """
import os, torch
from mpbn_deploy.nn import LIF, compiled
compiled.MIN_NUMBERS = 1

def use():
    lif = LIF(4, mpbn="none")
    lif.timesteps = 1
    spikes = lif(torch.randn(6, 4, requires_grad=True))
    spikes.sum().backward()
    return "Compiled" in str(spikes.grad_fn), torch.get_num_threads()

"""


def output_of(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", USE + code], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_numba_leaves_the_number_of_threads_to_torch():
    assert output_of("print(*use(), *use())", OMP_NUM_THREADS="1") == ["True", "1"] * 2
    assert output_of("torch.set_num_threads(1); print(*use())", OMP_NUM_THREADS="2") == ["True", "1"]


def test_forks_are_left_to_torch():
    """The threads of a process are not those of its fork, and Numba would end it."""
    code = """
print(*use(), flush=True)
if not os.fork():
    print(*use(), flush=True)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert output_of(code, OMP_NUM_THREADS="1") == ["True", "1", "False", "1"]


def test_compiled_code_that_cannot_be_stored(tmp_path):
    """Neither beside the package nor in the user's folder: compiling works, each time anew."""
    code = "from mpbn_deploy.nn import compiled as c; c.check_compiled(); print(c.load_kernels().CACHE)"
    environment = {
        **os.environ, "HOME": "/proc/none", "NUMBA_CACHE_LOCATOR_CLASSES": "UserWideCacheLocator",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_loops_that_compute_something_else_are_found(monkeypatch):
    from mpbn_deploy.nn import kernels

    monkeypatch.setattr(kernels, "normalize", lambda x, norm, y, threads: y.fill(0))
    with pytest.raises(RuntimeError, match="a compiled norm is not the norm"):
        compiled.check_compiled()


def test_compiling_is_said_once_and_its_result_kept(tmp_path):
    code = "from mpbn_deploy.nn.compiled import check_compiled as check; check(), check()"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stderr
        for _ in range(2)
    ]
    assert said[0].count("compiling loops for training with Numba") == 1 and "kept on disk" in said[0]
    assert said[1] == ""
