"""The zoo: the paper's networks are the paper's, and every network takes what it says."""

from functools import partial

import pytest
import torch
from networks import input_format
from torch import fx, nn

from mpbn_deploy.base import OptionError
from mpbn_deploy.checkpoint import build_body
from mpbn_deploy.nn import (
    LIF,
    MPBN_KINDS,
    Levels,
    RepeatChannels,
    SpikePool,
    SpikingNetwork,
    SumChannels,
)
from mpbn_deploy.nn.norm import TimedLayer
from mpbn_deploy.nn.zoo import ARCHITECTURES, ResidualBlock

SHAPES = {
    "digits-cnn": (1, 8, 8),
    "digits-graded": (1, 8, 8),
    "digits-mlp": (1, 8, 8),
    "digits-rnn": (8,),
    "digits-transformer": (1, 8, 8),
    "signal-cnn": (6, 100),
    "xylo-mlp": (8,),
    "xylo-rnn": (8,),
    "mnist-cnn": (1, 28, 28),
    "dvs-cnn": (2, 48, 48),
    "resnet18": (3, 224, 224),
    "resnet34": (3, 224, 224),
}
CIFAR = (3, 32, 32)
LEAVES = (TimedLayer, SpikePool, RepeatChannels, SumChannels)

# Of the paper's code with as many classes (SpikeModel, channel-wise MPBN), where it has the network.
PARAMETERS = {
    ("digits-cnn", 10): 38_618,
    ("digits-graded", 10): 38_618,
    ("digits-mlp", 10): 5_002,
    ("digits-rnn", 10): 5_514,
    ("digits-transformer", 10): 23_578,
    ("signal-cnn", 10): 17_482,
    ("xylo-mlp", 10): 5_642,
    ("xylo-rnn", 10): 11_242,
    ("mnist-cnn", 10): 207_450,
    ("vgg16", 10): 14_736_714,
    ("vgg16", 100): 14_782_884,
    ("resnet19", 10): 12_578_186,
    ("resnet19", 100): 12_624_356,
    ("resnet20", 10): 11_256_010,
    ("resnet20", 100): 11_302_180,
    ("resnet20-128", 10): 17_300_874,
    ("resnet18", 1000): 11_697_320,
    ("resnet34", 1000): 21_812_904,
    ("resnet19-slim", 10): 199_610,
    ("resnet20-slim", 10): 708_154,
    ("vgg16-slim", 10): 926_298,
    ("dvs-cnn", 10): 590_570,
    ("cifar-cnn", 10): 437_610,
    ("cifar-cnn-lean", 10): 280_298,
    ("cifar-cnn-steep", 10): 992_618,
}


def meta_body(name, shape=None, classes=10, **neuron):
    """On the meta device, which knows shapes and computes nothing: whole networks in milliseconds."""
    with torch.device("meta"):
        return build_body(
            name, {"input_shape": shape or SHAPES.get(name, CIFAR), "classes": classes, **neuron}
        )


def neurons(body):
    return {name: module for name, module in body.named_modules() if isinstance(module, LIF)}


def run_on_meta(body, shape, timesteps=2, batch=3):
    """The shape of the logits; and of what every neuron layer gives, per sample."""
    given = {}
    for layer in body.modules():
        if isinstance(layer, TimedLayer):
            layer.timesteps = timesteps
    for name, neuron in neurons(body).items():

        def keep(module, _given, out, name=name):
            copies = len(module.signs) if isinstance(module, Levels) else 1
            given[name] = (out.shape[1] // copies, *out.shape[2:])

        neuron.register_forward_hook(keep)
    logits = body.eval()(torch.empty(timesteps * batch, *shape, device="meta"))
    return tuple(logits.shape), given


@pytest.mark.parametrize(("name", "classes"), PARAMETERS)
def test_parameter_counts(name, classes):
    count = sum(parameter.numel() for parameter in meta_body(name, classes=classes).parameters())
    assert count == PARAMETERS[name, classes]


def test_every_network_is_counted():
    assert {name for name, _ in PARAMETERS} == set(ARCHITECTURES)


@pytest.mark.parametrize("mpbn", MPBN_KINDS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_neurons_know_the_shape_of_their_samples(name, mpbn):
    shape = SHAPES.get(name, CIFAR)
    body = meta_body(name, shape, classes=7, mpbn=mpbn)
    logits, given = run_on_meta(body, shape)
    assert logits == (6, 7) and len(given) == len(neurons(body))
    for layer, neuron in neurons(body).items():
        assert (neuron.mpbn is None) == (mpbn == "none" or layer == "spikes")  # which are outputs
        assert neuron.mpbn is None or neuron.mpbn.shape == given[layer]


@pytest.mark.parametrize("shape", [(2, 48, 48), (1, 37, 45)])
@pytest.mark.parametrize(
    "name", sorted(set(ARCHITECTURES) - {"digits-mlp", "digits-rnn", "signal-cnn", "xylo-mlp", "xylo-rnn"})
)
def test_images_of_other_sizes(name, shape):
    body = meta_body(name, shape, mpbn="element")
    logits, given = run_on_meta(body, shape)
    assert logits == (6, 10)
    assert {layer: neuron.mpbn.shape for layer, neuron in neurons(body).items()} == given


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_torch_fx_traces_every_network(name):
    class Tracer(fx.Tracer):
        def is_leaf_module(self, module, path):
            return isinstance(module, LEAVES) or super().is_leaf_module(module, path)

    body = meta_body(name)
    nodes = list(Tracer().trace(body).nodes)
    called = [node.target for node in nodes if node.op == "call_module"]
    leaves = [path for path, module in body.named_modules() if type(module).__module__.startswith("torch.nn")]
    leaves += [path for path, module in body.named_modules() if isinstance(module, LEAVES)]
    layers = {p for p in leaves if not isinstance(body.get_submodule(p), nn.Sequential)}
    layers = {p for p in layers if ".mpbn" not in p and not p.endswith(".recurrent")}
    assert set(called) == layers | set(neurons(body)) and len(called) == len(set(called))
    additions = [node for node in nodes if node.op == "call_function"]
    expected = 8 if name == "digits-transformer" else 0  # two blocks of two additions and two products
    assert len(additions) == expected + sum(isinstance(module, ResidualBlock) for module in body.modules())


def test_layer_names():
    assert list(neurons(meta_body("resnet20"))) == [
        *("lif1", "lif2", "lif3"),
        *(f"layer{stage}.{block}.lif{n}" for stage in (1, 2, 3, 4) for block in (0, 1) for n in (1, 2)),
    ]
    assert list(dict(meta_body("resnet20").layer2[0].named_children())) == [
        *("conv1", "norm1", "lif1", "conv2", "norm2", "shortcut", "lif2"),
    ]
    assert list(dict(meta_body("vgg16-slim").named_children()))[-6:] == [
        *("norm13", "lif13", "pool5", "average", "flatten", "readout"),
    ]


@pytest.mark.parametrize(
    ("name", "channels", "sizes"),
    [
        ("resnet20", (64, 64, 128, 256, 512), (32, 16, 8, 4, 2)),
        ("resnet20-slim", (16, 16, 32, 64, 128), (32, 16, 8, 4, 2)),
        ("resnet19", (128, 128, 256, 512), (32, 32, 16, 8)),
        ("resnet19-slim", (16, 16, 32, 64), (32, 32, 16, 8)),
        ("resnet20-128", (128, 128, 256, 512), (32, 32, 16, 8)),
        ("resnet34", (64, 64, 128, 256, 512), (112, 56, 28, 14, 7)),
    ],
)
def test_widths_and_sizes_of_the_stages(name, channels, sizes):
    found = {layer.split(".")[0]: neuron.mpbn.shape for layer, neuron in neurons(meta_body(name)).items()}
    stages = [shape for layer, shape in found.items() if layer not in ("lif2", "lif3")]
    assert stages == [(c, s, s) for c, s in zip(channels, sizes, strict=True)]


def test_arguments_reach_every_neuron():
    body = meta_body(
        "resnet20-slim", mpbn="none", mpbn_gain="positive", leak=0.5, threshold=1.0, surrogate="tanh"
    )
    found = {(neuron.leak, neuron.threshold, neuron.surrogate) for neuron in neurons(body).values()}
    assert found == {(0.5, 1.0, "tanh")}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "vgg16",
            {"input_shape": (1, 28, 28)},
            r"'vgg16': input_shape \(1, 28, 28\) is too small.*reaches pool5",
        ),
        ("dvs-cnn", {"input_shape": (2, 48, 15)}, "only 6 x 1 reaches pool4, which needs 2 x 2"),
        ("resnet20", {"input_shape": (3, 1, 1)}, "is too small"),
        ("resnet18", {"input_shape": (64,)}, r"input_shape \(64,\); the network takes images"),
        ("mnist-cnn", {"input_shape": (1, 0, 28)}, "the network takes images"),
        ("signal-cnn", {"input_shape": (3, 32, 32)}, r"takes signals, \(channels, length\)"),
        ("resnet20-slim", {"mpbn": "chanel"}, "'resnet20-slim': LIF: no MPBN of kind 'chanel'. Did you mean"),
        ("vgg16-slim", {"tau": 0.5}, "unexpected keyword argument 'tau'"),
    ],
)
def test_what_cannot_be_built_is_named(name, arguments, message):
    with pytest.raises(OptionError, match=message), torch.device("meta"):
        build_body(name, {"input_shape": CIFAR, "classes": 10, **arguments})


def test_a_residual_block_adds_before_the_neuron():
    torch.manual_seed(0)
    network = SpikingNetwork(
        build_body("resnet20-slim", {"input_shape": (2, 9, 9), "classes": 3, "width": 2}),
        timesteps=2,
        input_format=input_format((2, 9, 9)),
    ).eval()
    block = network.body.layer2[0]
    spikes = (torch.rand(4, 2, 5, 5) < 0.5).float()
    branch = block.norm2(block.conv2(block.lif1(block.norm1(block.conv1(spikes)))))
    # An odd border is averaged over the neurons that are there.
    averages = torch.stack(
        [
            torch.stack(
                [spikes[..., y : y + 2, x : x + 2].mean((-1, -2)) for x in (0, 2, 4)],
                dim=-1,
            )
            for y in (0, 2, 4)
        ],
        dim=-2,
    )
    shortcut = block.shortcut.norm(block.shortcut.conv(averages))
    assert torch.equal(block(spikes), block.lif2(branch + shortcut))
    assert isinstance(network.body.layer2[1].shortcut, nn.Identity)


@pytest.mark.parametrize(("name", "readout"), [("resnet19-slim", 1 / 64), ("vgg16-slim", 0.01)])
def test_initial_weights_are_those_of_the_papers_code(name, readout):
    torch.manual_seed(0)
    body = build_body(name, {"input_shape": CIFAR, "classes": 100})
    for path, module in body.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 2000:
            expected = (2 / (module.kernel_size[0] ** 2 * module.out_channels)) ** 0.5
            assert module.weight.std().item() == pytest.approx(expected, rel=0.1), path
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            assert (module.weight == 1).all() and (module.bias == 0).all(), path
    assert body.readout.weight.std().item() == pytest.approx(readout, rel=0.1)
    assert all((m.bias == 0).all() for m in body.modules() if getattr(m, "bias", None) is not None)


@pytest.mark.parametrize(
    "name", ["mnist-cnn", "digits-transformer", "resnet19-slim", "resnet20-slim", "vgg16-slim", "dvs-cnn"]
)
def test_every_parameter_learns(name):
    """After one backward pass; except a bias of a convolution, which the batch norm behind it takes away."""
    torch.manual_seed(0)
    shape = SHAPES.get(name, CIFAR)
    body = build_body(name, {"input_shape": shape, "classes": 10})
    network = SpikingNetwork(body, timesteps=2, input_format=input_format(shape))
    network(torch.randint(0, 10, (4, *shape)).float())[:, 0].sum().backward()
    cancelled = {f"{path}.bias" for path, module in body.named_modules() if isinstance(module, nn.Conv2d)}
    learning = {path for path, value in body.named_parameters() if value.grad.abs().sum() > 0}
    assert set(dict(body.named_parameters())) - cancelled <= learning


def test_slim_networks_are_the_same_functions():
    for name in ("resnet19", "resnet20", "vgg16"):
        slim = ARCHITECTURES[f"{name}-slim"]
        assert isinstance(slim, partial) and slim.func is ARCHITECTURES[name]
