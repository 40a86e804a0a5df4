"""What a torch module means, and how unknown things are named."""

import numpy as np
import pytest
import torch
from networks import conv_body, input_format, spiking_network
from torch import nn
from torch.nn import functional

from mpbn_deploy.base import FrontendError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import Convolution, Flatten, Linear, Spike
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.verify.folding import check_fold


def network_of(*layers, shape=(2, 5, 7)):
    return SpikingNetwork(nn.Sequential(*layers), timesteps=2, input_format=input_format(shape))


def test_steps_bear_the_names_of_the_modules():
    trained = trace(spiking_network())
    assert [operation.name for operation in trained.operations] == [
        "conv1", "norm1", "lif1", "flatten", "dense2", "norm2", "lif2", "readout",
    ]  # fmt: skip
    assert trained.timesteps == 3
    assert isinstance(trained.operations[0].kind, Convolution)
    assert trained.operations[2].shape == (4, 3, 4)


def test_follows_nested_modules_and_functions_and_drops_what_does_nothing():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3)
            self.drop = nn.Dropout(0.5)
            self.lif = LIF(3)

        def forward(self, x):
            return self.lif(self.drop(self.conv(x)))

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()
            self.head = nn.Linear(45, 2)

        def forward(self, x):
            return self.head(torch.flatten(self.block(x), 1))

    trained = trace(SpikingNetwork(Body(), timesteps=2, input_format=input_format()))
    assert [operation.name for operation in trained.operations] == [
        "block.conv",
        "block.lif",
        "flatten",
        "head",
    ]
    assert isinstance(trained.operations[2].kind, Flatten)


def test_a_module_called_twice_gets_two_names():
    linear, lif = nn.Linear(4, 4), LIF(4)
    trained = trace(network_of(linear, lif, linear, lif, nn.Linear(4, 2), shape=(4,)))
    assert [operation.name for operation in trained.operations] == ["0", "1", "0@2", "1@2", "4"]


def test_a_plain_module_needs_shape_and_steps():
    trained = trace(conv_body(), (2, 5, 7), 3)
    assert trained.input.maximum == 255 and trained.timesteps == 3
    with pytest.raises(FrontendError, match="input_shape and timesteps"):
        trace(conv_body())
    with pytest.raises(FrontendError, match="was built for"):
        trace(spiking_network(), (1, 2, 3))


def test_own_converters_win():
    class MyNeuron(nn.Module):
        def forward(self, x):
            return (x > 1).to(x.dtype) if x.sum() > 0 else x  # cannot be traced

    layers = (nn.Linear(4, 4), MyNeuron(), nn.Linear(4, 2))
    rule = Spike(leak=0.5, threshold=1.0, norm=None)
    trained = trace(network_of(*layers, shape=(4,)), converters={MyNeuron: lambda module: rule})
    assert trained.operations[1].kind is rule
    doubled = trace(
        network_of(nn.Linear(4, 2), shape=(4,)),
        converters={nn.Linear: lambda m: Linear(weight=2 * np.ones((2, 4)), bias=np.zeros(2))},
    )
    assert doubled.operations[0].kind.weight.max() == 2


def test_a_subclass_that_computes_something_else_is_not_taken_for_its_parent():
    class Standardized(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)

    class Renamed(nn.Linear):
        pass

    layer = Standardized(4, 2)
    (operation,) = trace(network_of(layer, shape=(4,))).operations
    expected = (layer.weight.double() - layer.weight.double().mean()).detach().numpy()
    np.testing.assert_allclose(operation.kind.weight, expected, atol=1e-12)
    assert len(trace(network_of(Renamed(4, 2), shape=(4,))).operations) == 1


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Adds(nn.Module):
    def forward(self, x):
        return x + x.relu()


class AddsUnlike(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)

    def forward(self, x):
        return self.conv(x) + x


class AddsAPicture(nn.Module):
    def forward(self, x):
        return x + torch.arange(7.0)


class AddsMore(nn.Module):
    def forward(self, x):
        return x.add(1, alpha=2)


class Divides(nn.Module):
    def forward(self, x):
        return 1 / x


class DividesByNothing(nn.Module):
    def forward(self, x):
        return x / 0


class PoolsOddly(nn.Module):
    def forward(self, x):
        return functional.max_pool2d(x, 2, 2, 0, 1, True)


class Functions(nn.Module):
    """Everything that forward may call without a module."""

    def __init__(self):
        super().__init__()
        self.conv, self.readout = nn.Conv2d(2, 2, 1), nn.Linear(4, 3)
        self.lif = LIF(2)

    def forward(self, x):
        x = self.lif(torch.add(self.conv(x), x))
        pooled = functional.max_pool2d(x, 2, padding=1)
        x = functional.avg_pool2d(x, (2, 2), ceil_mode=True)
        x += pooled
        x = functional.adaptive_avg_pool2d(x, (1, 2)).add(functional.adaptive_avg_pool2d(x, (1, 2)))
        return self.readout(x.flatten(start_dim=1))


def test_functions_are_read_as_the_modules_they_are():
    trained = trace(network_of(Functions()))
    kinds = [type(operation.kind).__name__ for operation in trained.operations]
    assert kinds[:7] == ["Convolution", "Add", "Spike", "MaxPool", "AveragePool", "Add", "AdaptivePool"]
    assert sorted({*kinds[7:]}) == ["Add", "Flatten", "Linear"]
    assert set(trained.operations[1].sources) == {"0.conv", "input"}
    assert trained.operations[3].shape == trained.operations[4].shape == (2, 3, 4)


class Normalizes(nn.Module):
    """Arithmetic with numbers and buffers, as people normalize pixels and scale currents."""

    def __init__(self):
        super().__init__()
        self.conv, self.lif, self.readout = nn.Conv2d(2, 3, 3), LIF(3), nn.Linear(45, 4)
        self.register_buffer("mean", torch.tensor([0.25, 0.5]))
        self.register_buffer("deviation", torch.tensor([0.5, 2.0]).reshape(2, 1, 1))

    def forward(self, x):
        x = (x / 16 - self.mean.view(1, 2, 1, 1)) / self.deviation
        x = 1 - torch.mul(self.conv(x), -2)
        return -self.readout(self.lif(x.sub(0.75)).flatten(1) * 0.5)


def test_arithmetic_with_constants_is_read_as_norms():
    torch.manual_seed(0)
    network = network_of(Normalizes()).eval()
    trained = trace(network)
    assert [type(operation.kind).__name__ for operation in trained.operations].count("BatchNorm") >= 3
    inputs = np.random.default_rng(0).integers(0, 10, (6, 2, 5, 7))
    check = check_fold(network, fold(trained), inputs)
    assert check.spikes_mismatched == 0 < check.spikes_compared
    assert check.largest_output_difference < 1e-5


HERE = r"test_frontend.py, line \d+"


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Conv2d(2, 2, 3), nn.ReLU()], r'^layer "1": a rectifier \(relu\). .* take it out where a neuron'),
        (
            [nn.Conv2d(2, 2, 3), nn.LogSoftmax(1)],
            r'^layer "1": a softmax, .* take it out of forward, and apply it to the outputs on the host',
        ),
        (
            [nn.Conv2d(2, 2, 3), nn.LayerNorm(5)],
            r'^layer "1": a norm by the statistics of the sample \(native_layer_norm\)',
        ),
        ([nn.Linear(3, 2)], r"forward fails .*\n.* shapes cannot be multiplied"),
        ([nn.Conv2d(3, 2, 3)], r"forward fails .*\n.* to have 3 channels, but got 2 channels"),
        ([nn.Conv2d(2, 2, 9)], "Kernel size can't be greater than actual input size"),
        (
            [nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2, track_running_stats=False)],
            r'^layer "1": a norm by the statistics of its own batch; train with track_running_stats=True',
        ),
        ([nn.Conv2d(2, 2, 3), nn.BatchNorm2d(4)], "running_mean should contain 2 elements not 4"),
        ([nn.Conv2d(2, 2, 3), LIF(7)], "its channel-wise MPBN was built for"),
        ([nn.Flatten(2)], "^Sequential: forward returns its input"),
        ([nn.Identity()], "^Sequential: forward returns its input"),
        ([nn.Conv2d(2, 2, 3), nn.MaxPool2d(2, ceil_mode=True)], r'^layer "1": ceil_mode=True, whose windows'),
        ([nn.AvgPool2d(9)], "Output size is too small"),
        ([AddsUnlike()], r"The size of tensor a \(3\) must match the size of tensor b"),
        ([Divides()], rf"^layer \"0\", {HERE}: the operation 'reciprocal'"),
        ([DividesByNothing()], rf'^layer "0", {HERE}: a division by zero'),
        ([PoolsOddly()], rf'^layer "0", {HERE}: ceil_mode=True'),
        ([Branches()], rf'^layer "0", {HERE}: takes a number out of its data'),
        ([Adds()], rf'^layer "0", {HERE}: a rectifier \(relu\). .* put a neuron such as'),
        ([nn.Conv2d(2, 2, 3), nn.Sequential(nn.Identity(), Adds())], rf'^layer "1\.1", {HERE}: a rectifier'),
    ],
)
def test_names_what_it_does_not_know(layers, message):
    with pytest.raises(FrontendError, match=message):
        trace(network_of(*layers))


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (
            lambda self, x: self.layer.weight,
            "^Body: forward returns nothing that was computed from its input",
        ),
        (lambda self, x: {}["layer"], r"^Body: forward fails .*\n.*KeyError: 'layer'"),
    ],
)
def test_names_a_module_whose_forward_cannot_be_followed(forward, message):
    body = type("Body", (nn.Module,), {"forward": forward})()
    body.layer, body.neuron = nn.Linear(2, 2), LIF(2)
    with pytest.raises(FrontendError, match=message):
        trace(body, (2,), 1)


def test_two_inputs_are_refused():
    class Doubles(nn.Module):
        def __init__(self):
            super().__init__()
            self.join = nn.Bilinear(4, 4, 2)

        def forward(self, x):
            return self.join(x, x.flatten(1))

    converters = {nn.Bilinear: lambda module: Flatten()}
    with pytest.raises(FrontendError, match="takes 2 values"):
        trace(SpikingNetwork(Doubles(), timesteps=1, input_format=input_format((4,))), converters=converters)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(70, 2)

    def forward(self, x):
        return self.layer(input=x.flatten(1))


@pytest.mark.parametrize(
    "layer",
    [
        Named(),
        AddsAPicture(),
        AddsMore(),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
        nn.ConvTranspose2d(2, 3, 3, stride=2),
        nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(2, 2, 3)),
        nn.Sequential(nn.Conv2d(2, 4, 1), nn.PixelShuffle(2)),
        nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2, 2, 3)),
        nn.Sequential(nn.Conv2d(2, 4, 1), nn.ChannelShuffle(2), nn.Conv2d(4, 2, 3)),
    ],
    ids=lambda layer: type(layer[-1] if isinstance(layer, nn.Sequential) else layer).__name__,
)
def test_other_linear_operations_come_in_as_they_are(layer):
    torch.manual_seed(0)
    body = nn.Sequential(layer, nn.Flatten())
    inputs = np.random.default_rng(0).integers(0, 10, (3, 2, 5, 7))
    folded = fold(trace(body, (2, 5, 7), 2))
    with torch.no_grad():
        expected = body.double()(torch.tensor(inputs, dtype=torch.float64))
    np.testing.assert_allclose(simulate(folded, inputs).outputs.reshape(3, -1), expected, atol=1e-9)


@pytest.mark.parametrize(("padding", "zeros"), [("same", (2, 3)), ("valid", (0, 0)), (1, (1, 1))])
def test_padding_by_name(padding, zeros):
    module = nn.Conv2d(2, 3, (3, 7), padding=padding, dilation=(2, 1))
    (operation,) = trace(module, (2, 9, 9), 2).operations
    assert operation.kind.synapse.padding == zeros
    assert operation.shape == tuple(module(torch.zeros(1, 2, 9, 9)).shape[1:])
