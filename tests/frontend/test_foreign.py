"""Networks of snnTorch and SpikingJelly neurons fire the same spikes when they are folded."""

from pathlib import Path

import numpy as np
import pytest
import torch
from networks import input_format
from torch import nn

from mpbn_deploy.base import CheckpointError, FrontendError, OptionError
from mpbn_deploy.checkpoint import load_model, save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.nir import read_folded
from mpbn_deploy.frontend import trace
from mpbn_deploy.nn import ModelCard, SpikingNetwork
from mpbn_deploy.train import Training, train

STEPS, SAMPLES = 6, 40


def body_of(make_neuron):
    """Two layers of somebody's neurons and a readout.

    Weights are multiples of 1/16, and so are all sums: float32 and float64 agree in every bit.
    """
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(2, 4, 3),
        make_neuron(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 5),
        make_neuron(),
    ]
    body = nn.Sequential(*layers, nn.Linear(5, 3)).eval()
    for layer in (body[0], body[4], body[6]):
        layer.weight.data = torch.randint(-8, 9, layer.weight.shape) / 16
        layer.bias.data = torch.randint(2, 10, layer.bias.shape) / 16
    return body


def assert_fires_alike(body, reset):
    """Their module, one time step after another, against the folded network."""
    folded = fold(trace(body, (2, 8, 8), STEPS))
    inputs = np.random.default_rng(0).integers(0, 2, (SAMPLES, STEPS, 2, 8, 8))
    spikes = {"1": [], "5": []}
    hooks = [
        body[int(name)].register_forward_hook(lambda _m, _i, out, name=name: spikes[name].append(out))
        for name in spikes
    ]
    reset(body)
    with torch.no_grad():
        logits = sum(body(torch.from_numpy(inputs[:, step]).float()) for step in range(STEPS)) / STEPS
    reset(body)
    for hook in hooks:
        hook.remove()
    got = simulate(folded, inputs)
    for name, sent in spikes.items():
        expected = torch.stack(sent, 1).bool().numpy()
        assert 0.02 < expected.mean() < 0.98
        np.testing.assert_array_equal(expected, got.spikes[name])
    np.testing.assert_allclose(logits.numpy(), got.outputs, rtol=1e-6, atol=1e-6)
    return folded


@pytest.fixture
def snntorch():
    return pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")


@pytest.fixture
def neuron():
    pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed (pip install spikingjelly)")
    from spikingjelly.activation_based import neuron

    return neuron


@pytest.mark.interop
@pytest.mark.parametrize("reset_delay", [True, False])
@pytest.mark.parametrize("threshold", [0.75, 1.5])
def test_snntorch_leaky(snntorch, threshold, reset_delay):
    from snntorch import utils

    def make():
        return snntorch.Leaky(
            beta=0.5, threshold=threshold, init_hidden=True, reset_mechanism="zero", reset_delay=reset_delay
        )

    assert_fires_alike(body_of(make), utils.reset)


@pytest.mark.interop
@pytest.mark.parametrize("mechanism", ["subtract", "none"])
@pytest.mark.parametrize("threshold", [0.5, 0.75])
@pytest.mark.parametrize("beta", [0.25, 0.5, 1.0])
def test_snntorch_leaky_that_subtracts_or_never_resets(snntorch, mechanism, threshold, beta):
    """subtract is its default: one step later and without the leak"""
    from snntorch import utils

    options = {"init_hidden": True, "reset_mechanism": mechanism}
    assert_fires_alike(
        body_of(lambda: snntorch.Leaky(beta=beta, threshold=threshold, **options)), utils.reset
    )


@pytest.mark.interop
@pytest.mark.parametrize("mechanism", ["zero", "subtract"])
def test_snntorch_thresholds_per_feature(snntorch, mechanism):
    from snntorch import utils

    thresholds = torch.tensor([0.5, 1.0, 1.5, 2.0, 0.75])
    options = {"init_hidden": True, "reset_mechanism": mechanism}
    body = body_of(lambda: snntorch.Leaky(beta=0.5, threshold=1.0, **options))
    body[5] = snntorch.Leaky(beta=0.5, threshold=thresholds, **options).double()
    assert_fires_alike(body, utils.reset)


@pytest.mark.interop
@pytest.mark.parametrize("mechanism", ["zero", "subtract", "none"])
@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5])
def test_snntorch_synaptic(snntorch, mechanism, alpha):
    """Biases of the layers enter the current and build up there."""
    from snntorch import utils

    def make():
        return snntorch.Synaptic(
            alpha=alpha,
            beta=0.5,
            threshold=1.5,
            init_hidden=True,
            reset_mechanism=mechanism,
            reset_delay=mechanism != "zero",
        )

    assert_fires_alike(body_of(make), utils.reset)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_mechanism": "zero"}, "loses, or gates, what arrives after a spike"),
        ({"reset_delay": False}, "Adaptive thresholds, and other states that change with spikes"),
    ],
)
def test_snntorch_synaptic_without_an_exact_translation(snntorch, options, message):
    usual = {"alpha": 0.5, "beta": 0.5, "init_hidden": True}
    body = nn.Sequential(nn.Linear(4, 2), snntorch.Synaptic(**{**usual, **options}))
    with pytest.raises(FrontendError, match=message):
        trace(body, (4,), 4)


def eighths(module, seed=0):
    """Give a module whole eighths as weights and biases, so that all sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    for values in module.parameters():
        lowest = -6 if values.dim() > 1 else 1  # of weights; biases are positive, so that neurons fire
        values.data = torch.randint(lowest, 7, values.shape, generator=generator) / 8
    return module


@pytest.mark.interop
@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [
        *(("RLeaky", m) for m in ("zero", "subtract", "none")),
        ("RSynaptic", "subtract"),
        ("RSynaptic", "none"),
    ],
)
def test_snntorch_recurrent(snntorch, kind, mechanism):
    """A convolution and a matrix, with biases, and then each neuron to itself."""
    from snntorch import utils

    options = {
        "beta": 0.5,
        "threshold": 1.0,
        "init_hidden": True,
        "reset_mechanism": mechanism,
        "reset_delay": mechanism != "zero",
        **({"alpha": 0.25} if kind == "RSynaptic" else {}),
    }
    make = getattr(snntorch, kind)
    own = {"all_to_all": False, "V": torch.tensor([0.5, -1.0, 0.25, 2.0, -0.5])}
    for last in ({"linear_features": 5}, own):
        body = body_of(lambda last=last: make(**last, **options))
        body[1] = make(conv2d_channels=4, kernel_size=3, **options)
        eighths(body[1].recurrent)
        if last is not own:
            eighths(body[5].recurrent)
        folded = assert_fires_alike(body, utils.reset)
        # One to one, a subtraction can hold what a spike sends back.
        delays = {c.label: c.delay for c in folded.connections if c.delay}
        assert delays in ({"1->1": 1, "5->5": 1}, *([{"1->1": 1}] if last is own else []))


@pytest.mark.interop
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_mechanism": "zero", "linear_features": 2}, "loses, or gates, what arrives after a spike"),
        ({"linear_features": 3}, r"forward fails .*\n.* shapes cannot be multiplied \(1x2 and 3x3\)"),
    ],
)
def test_snntorch_recurrent_without_an_exact_translation(snntorch, options, message):
    body = nn.Sequential(nn.Linear(4, 2), snntorch.RLeaky(beta=0.5, init_hidden=True, **options))
    with pytest.raises(FrontendError, match=message):
        trace(body, (4,), 4)


@pytest.mark.interop
@pytest.mark.parametrize("inside", ["a neuron", "layers and a neuron"])
def test_spikingjelly_recurrent_container(neuron, inside):
    from spikingjelly.activation_based import layer

    def make(features):
        fires = neuron.LIFNode(tau=2.0, decay_input=False, v_threshold=0.75, v_reset=0.0)
        if inside != "a neuron":
            fires = nn.Sequential(nn.Linear(features, 5), fires)
        return eighths(layer.LinearRecurrentContainer(fires, features, 5), seed=3)

    body = body_of(lambda: neuron.IFNode(v_threshold=1.5))
    body[5] = make(5)
    folded = assert_fires_alike(body, spikingjelly_reset)
    assert [c.label for c in folded.connections if c.delay] == ["5->5"]


@pytest.mark.interop
def test_spikingjelly_containers_of_other_things(neuron):
    from spikingjelly.activation_based import layer

    body = nn.Sequential(nn.Linear(4, 2), layer.LinearRecurrentContainer(nn.ReLU(), 2, 2))
    with pytest.raises(FrontendError, match=r"^layer \"1\.sub_module\".*: a rectifier"):
        trace(body, (4,), 2)


def spikingjelly_reset(body):
    from spikingjelly.activation_based import functional

    functional.reset_net(body)


@pytest.mark.interop
@pytest.mark.parametrize("v_reset", [0.0, None])
@pytest.mark.parametrize("decay_input", [True, False])
def test_spikingjelly_lif(neuron, decay_input, v_reset):
    """v_reset=None subtracts the threshold."""

    def make():
        return neuron.LIFNode(tau=2.0, decay_input=decay_input, v_threshold=0.75, v_reset=v_reset)

    assert_fires_alike(body_of(make), spikingjelly_reset)


@pytest.mark.interop
@pytest.mark.parametrize("v_reset", [0.0, None])
def test_spikingjelly_if_and_parametric(neuron, v_reset):
    assert_fires_alike(body_of(lambda: neuron.IFNode(v_threshold=1.5, v_reset=v_reset)), spikingjelly_reset)
    parametric = body_of(lambda: neuron.ParametricLIFNode(init_tau=2.0, v_threshold=0.75, v_reset=v_reset))
    assert_fires_alike(parametric, spikingjelly_reset)


@pytest.mark.interop
@pytest.mark.parametrize(
    "options",
    [
        {"reset_mechanism": "subtract", "reset_delay": False},
        {"reset_mechanism": "subtract", "beta": 0.0},
        {"reset_mechanism": "subtract", "threshold": -0.1},
        {"graded_spikes_factor": 2.0},
        {"threshold": -0.1, "reset_delay": False},
    ],
    ids=str,
)
def test_snntorch_neurons_come_in_exactly_or_are_rejected(snntorch, options):
    from snntorch import utils

    torch.manual_seed(0)
    usual = {"beta": 0.5, "init_hidden": True, "reset_mechanism": "zero"}
    body = nn.Sequential(nn.Linear(4, 5), snntorch.Leaky(**{**usual, **options}), nn.Linear(5, 3))
    try:
        folded = fold(trace(body, (4,), STEPS))
    except FrontendError as error:
        assert str(error).startswith(('layer "1"', "Sequential: "))
        return
    inputs = np.random.default_rng(0).integers(0, 4, (SAMPLES, STEPS, 4))
    utils.reset(body)
    with torch.no_grad():
        logits = sum(body(torch.from_numpy(inputs[:, step]).float()) for step in range(STEPS)) / STEPS
    np.testing.assert_allclose(logits.numpy(), simulate(folded, inputs).outputs, atol=1e-5)


@pytest.mark.interop
def test_a_checkpoint_of_neurons_that_look_at_numbers_while_they_are_made(snntorch, monkeypatch, tmp_path):
    """They cannot be built on the meta device; in memory they are, if the file asks for small numbers."""
    (tmp_path / "their_leaky.py").write_text(
        "import snntorch\n"
        "from torch import nn\n\n\n"
        "def build(width=8):\n"
        "    leaky = snntorch.Leaky(beta=0.5, init_hidden=True, reset_mechanism='zero')\n"
        "    return nn.Sequential(nn.Linear(4, width), leaky, nn.Linear(width, 3))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from their_leaky import build

    network = SpikingNetwork(build(), timesteps=3, input_format=input_format((4,)))
    for width in (8, 5000):
        network.card = ModelCard(architecture="their_leaky:build", arguments={"width": width})
        save_model(tmp_path / f"{width}.pt", network)
    loaded = load_model(tmp_path / "8.pt", arch="their_leaky:build")
    assert torch.equal(loaded.body[0].weight, network.body[0].weight)
    assert len(fold(trace(loaded)).populations) == 3
    message = r"5000\.pt: snntorch\.\S*Leaky, of the network 'their_leaky:build', reads tensor values in its"
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(tmp_path / "5000.pt", arch="their_leaky:build")
    assert "the file asks for arguments above 4096" in str(caught.value)


@pytest.mark.interop
@pytest.mark.parametrize("library", ["snnTorch", "SpikingJelly"])
def test_the_examples_of_the_documentation(library, request, tmp_path, monkeypatch):
    """docs/folding.md: the code runs, and the folded network says what theirs says."""
    request.getfixturevalue({"snnTorch": "snntorch", "SpikingJelly": "neuron"}[library])
    text = (Path(__file__).parents[2] / "docs" / "folding.md").read_text(encoding="utf-8")
    code = text.split(f"### {library}")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "docs/folding.md", "exec"), names)
    network, inputs = read_folded("model.nir"), names["inputs"].numpy()
    assert network.input_range.maximum == 1 and network.timesteps == len(inputs)
    got = simulate(network, inputs.swapaxes(0, 1))
    assert 0.02 < got.spikes["1"].mean() < 0.98
    np.testing.assert_allclose(names["logits"].numpy(), got.outputs, rtol=1e-4, atol=1e-4)


@pytest.mark.interop
def test_training_them_here_is_refused(neuron, monkeypatch, tmp_path):
    (tmp_path / "theirs.py").write_text(
        "from torch import nn\n"
        "from spikingjelly.activation_based import neuron\n\n\n"
        "def build(input_shape, classes, mpbn):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), neuron.LIFNode(), nn.Linear(8, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=r"body\.2: a neuron of another library"):
        train(load_dataset("digits"), "theirs:build", training=Training(epochs=1))
