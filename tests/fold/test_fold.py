"""Folding changes no spike: the folded network against PyTorch in float64."""

from collections import OrderedDict
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import event, given, strategies as st
from networks import (
    CURRENTS,
    LOOPS,
    RESETS,
    SHORTCUTS,
    SOFT,
    Residual,
    enlivened,
    graded_body,
    inputs_for,
    lively,
    spiking_network,
    with_zero_gains,
)
from properties import examples
from torch import nn

from mpbn_deploy.base import FoldError, FrontendError
from mpbn_deploy.execute.reference import close_calls, simulate
from mpbn_deploy.fold import as_trained, fold
from mpbn_deploy.fold.inputs import copies
from mpbn_deploy.fold.stage import folded_threshold
from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import (
    BatchNorm,
    Dense,
    FloatLif,
    FloatReadout,
    FoldedNetwork,
    Gate,
    Input,
    MaxPool,
    Population,
    constant_source,
    firing,
    scale_channels,
    scaled,
    state_intervals,
)
from mpbn_deploy.nn import LIF
from mpbn_deploy.nn.zoo import ARCHITECTURES
from mpbn_deploy.verify import trained_spikes


def count_differences(trained, folded, inputs, expected, got):
    """Spikes that differ, which only close calls may, and how many decisions were that close."""
    fired, close = (as_trained(trained, each) for each in (got.spikes, close_calls(folded, inputs, got)))
    close = {name: where > 0 for name, where in close.items()}
    different = 0
    for name, spikes in expected.items():
        differs = spikes != fired[name]
        np.testing.assert_array_equal(differs & ~close[name], False, err_msg=name)
        different += int(differs.sum())
    return different, sum(int(where.sum()) for where in close.values())


def assert_folds_exactly(network, samples=24, seed=0, least_lively=0.3, say=lambda text: None):
    """`say` is told how many decisions lay closer to their threshold than float64 can tell."""
    trained = trace(network)
    folded = fold(trained)
    inputs = inputs_for(folded, samples=samples, seed=seed, steps=bool(seed % 2))
    spikes, logits = trained_spikes(network, inputs)
    got = simulate(folded, inputs)
    pools = {each.name for each in trained.operations if isinstance(each.kind, (MaxPool, Gate))}
    made = {p.name for p in firing(folded) if p.name.endswith("_constant")}
    assert set(spikes) | pools | made == {p.name for p in firing(folded)}
    different, close = count_differences(trained, folded, inputs, spikes, got)
    say(f"close calls: {close}, decided otherwise: {different}")
    fired = replace(got, spikes=as_trained(trained, got.spikes))
    for name in spikes:
        assert lively(fired, name) > least_lively  # else equality would say little
    if different:  # and so do the outputs
        return folded
    np.testing.assert_allclose(logits, got.outputs, rtol=1e-9, atol=1e-9)
    return folded


@examples(30)
@given(
    seed=st.integers(0, 2**31),
    mpbn=st.sampled_from(["channel", "none"]),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    groups=st.sampled_from([1, 2]),
    leak=st.sampled_from([0.0, 0.25, 0.9, 1.0]),
    resets=st.sampled_from(RESETS),
    currents=st.sampled_from(CURRENTS),
    recurrent=st.sampled_from(LOOPS),
)
def test_spikes_stay_the_same(seed, mpbn, stride, padding, groups, leak, resets, currents, recurrent):
    options = {"stride": stride, "padding": padding, "groups": groups, "leak": leak, "resets": resets}
    network = spiking_network(seed, mpbn=mpbn, currents=currents, recurrent=recurrent, **options)
    assert_folds_exactly(network, seed=seed, say=event)


def test_mpbn_moves_the_threshold_of_a_soft_reset_and_signs_move_both_numbers():
    network = spiking_network(resets=SOFT)
    gain = network.body.lif1.mpbn.gain.detach().numpy()
    hard, soft = (fold(trace(each)).populations[1].neuron for each in (spiking_network(), network))
    assert gain.min() < 0 < gain.max()
    assert soft.subtrahend.shape == (4, 1, 1)
    np.testing.assert_array_equal(soft.subtrahend.ravel(), 0.5 * np.sign(gain))
    assert isinstance(hard, FloatLif) and not np.isin(0.5, np.abs(soft.threshold))


@pytest.mark.parametrize("offset", [-1.0, 2.0])
def test_a_channel_of_gain_zero_gets_no_constant_either(offset):
    network = spiking_network(currents=(0.5, 0.5))
    norm = network.body.lif1.mpbn.bn
    norm.weight.data[1], norm.bias.data[1] = 0.0, offset
    folded = assert_folds_exactly(network)
    entering = folded.entering("lif1")
    assert [c.source for c in entering] == ["input", "lif1_constant"]
    pixels = folded.layer("lif1").size // 4
    assert not entering[0].synapse.weight[1].any()
    assert not entering[1].synapse.weight[pixels : 2 * pixels].any()


@pytest.mark.parametrize("offset", [-1.0, 2.0])
def test_a_recurrent_channel_of_gain_zero_loses_its_loop(offset):
    network = spiking_network(recurrent=(True, True))
    norm = network.body.lif2.mpbn.bn
    norm.weight.data[1], norm.bias.data[1] = 0.0, offset
    folded = assert_folds_exactly(network)
    loop = next(c for c in folded.connections if c.label == "lif2->lif2")
    assert loop.delay == 1 and not loop.synapse.weight[1].any() and loop.synapse.weight[:, 1].any()


@pytest.mark.parametrize(("padding", "shape"), [(1, (1,)), (0, (1, 3, 5))])
def test_what_enters_a_current_becomes_spikes_of_neurons_that_always_fire(padding, shape):
    """The normalized input is padded with zeros, so neurons at the border of lif1 have other constants."""
    folded = fold(trace(spiking_network(currents=(0.5, 0.5), padding=padding, stride=1)))
    assert list(folded.shapes) == ["input", "lif1_constant", "lif1", "lif2_constant", "lif2", "output"]
    assert folded.shapes["lif1_constant"] == shape and folded.shapes["lif2_constant"] == (1,)
    spikes = simulate(folded, inputs_for(folded)).spikes
    assert spikes["lif1_constant"].all() and spikes["lif2_constant"].all()
    for name in ("lif1", "lif2"):
        assert not folded.layer(name).neuron.bias.any()


@pytest.mark.parametrize("source", [(2, 8, 5), (3, 4, 9), (7,)])
@pytest.mark.parametrize("target", [(4, 8, 5), (4, 5, 8), (6,)])
def test_a_source_of_constants_fits_between_any_shapes(source, target):
    """`Population`s of every shape get a silent connection from the input."""
    driver = Population(name="input", shape=source, neuron=Input(minimum=0, maximum=1))
    for constant in (np.ones(target), np.arange(np.prod(target), dtype=float).reshape(target)):
        made, connections = constant_source("one", "last", constant, driver)
        last = Population(name="last", shape=target, neuron=FloatReadout(bias=np.zeros(target)))
        network = FoldedNetwork(populations=(driver, made, last), connections=connections, timesteps=3)
        np.testing.assert_allclose(simulate(network, inputs_for(network)).outputs[0], constant)


@examples(10)
@given(seed=st.integers(0, 2**31), resets=st.sampled_from(RESETS))
def test_element_wise_gains_of_one_sign_need_no_second_copy(seed, resets):
    network = spiking_network(seed, mpbn="element", gains="positive", resets=resets)
    folded = assert_folds_exactly(network, seed=seed, say=event)
    assert folded.populations[1].neuron.threshold.shape == folded.populations[1].shape


@examples(60)
@given(
    seed=st.integers(0, 2**31),
    zeros=st.sampled_from([0.0, 0.2, 0.6]),
    resets=st.sampled_from(RESETS),
    currents=st.sampled_from(CURRENTS),
    recurrent=st.sampled_from(LOOPS),
    groups=st.sampled_from([1, 2]),
    leak=st.sampled_from([0.25, 1.0]),
)
def test_element_wise_gains_of_all_signs_fold(seed, zeros, leak, **options):
    """Neurons of a channel share a kernel, and may have gains above, below and equal to zero."""
    network = with_zero_gains(spiking_network(seed, mpbn="element", leak=leak, **options), zeros)
    folded = assert_folds_exactly(network, seed=seed, least_lively=0.1, say=event)
    assert all(np.isfinite(population.neuron.threshold).all() for population in firing(folded))


def test_only_channels_with_gains_of_both_signs_have_a_second_copy():
    network = spiking_network(mpbn="element", gains="positive")
    norm = network.body.lif1.mpbn.bn
    gain = norm.weight.data.view(4, -1)
    gain[1, 2] *= -1  # both signs
    gain[2] *= -1  # all negative
    gain[3, 1] = 0.0
    trained = trace(network)
    operation = next(each for each in trained.operations if each.name == "lif1")
    made = copies(operation.kind, operation.shape)
    assert made.origin.tolist() == [0, 1, 1, 2, 3] and made.sign.tolist() == [1, 1, -1, -1, 1]
    folded = assert_folds_exactly(network)
    assert folded.layer("lif1").shape == (5, *operation.shape[1:])
    spikes = simulate(folded, inputs_for(folded, samples=40)).spikes["lif1"]
    live = spikes.any(axis=(0, 1)).reshape(5, -1)
    assert live[2].tolist() == [False, False, True] + [False] * (gain.shape[1] - 3) and not live[1, 2]
    weight = folded.entering("lif1")[0].synapse.weight
    np.testing.assert_array_equal(weight[1], -weight[2])
    readers = folded.entering("lif2")[0].synapse.weight.reshape(6, 5, -1)
    np.testing.assert_array_equal(readers[:, 1], readers[:, 2])


def test_groups_stay_if_every_channel_has_two_copies():
    network = spiking_network(mpbn="element", groups=2)
    gain = network.body.lif1.mpbn.bn.weight.data.view(4, -1).abs_()
    gain[:, 0] *= -1
    assert fold(trace(network)).entering("lif1")[0].synapse.groups == 2
    gain[0, 0] *= -1
    assert fold(trace(network)).entering("lif1")[0].synapse.groups == 1


def test_two_copies_that_both_fire_are_a_difference():
    trained = trace(spiking_network(mpbn="element"))
    operation = next(each for each in trained.operations if each.name == "lif1")
    made = copies(operation.kind, operation.shape)
    assert not made.single
    spikes = np.ones((1, 2, *made.shape(operation.shape)), bool)
    summed = as_trained(trained, {"lif1": spikes})["lif1"]
    assert summed.shape == (1, 2, *operation.shape)
    np.testing.assert_array_equal(summed[0, 0, :, 0, 0], np.bincount(made.origin))


@pytest.mark.parametrize("resets", RESETS[:2])
@pytest.mark.parametrize("offset", [-1.0, 2.0])
def test_channels_of_gain_zero_fire_never_or_always_with_finite_positive_thresholds(offset, resets):
    network = spiking_network(resets=resets)
    norm = network.body.lif1.mpbn.bn
    norm.weight.data[1], norm.bias.data[1] = 0.0, offset
    folded = assert_folds_exactly(network)
    assert folded.populations[1].neuron.threshold[1] == 1
    spikes = simulate(folded, inputs_for(folded)).spikes["lif1"][:, :, 1]
    assert spikes.all() if offset > 0.5 else not spikes.any()


@pytest.mark.parametrize("resets", RESETS[:2])
@pytest.mark.parametrize("sign", [-1, 1])
def test_single_neurons_of_gain_zero_keep_their_kernel(sign, resets):
    """Also in a channel that is negated: there the constant must not flip."""
    network = spiking_network(mpbn="element", gains="positive", resets=resets)
    norm = network.body.lif1.mpbn.bn
    norm.weight.data *= sign
    norm.weight.data[3:5] = 0.0
    norm.bias.data[3:5] = torch.tensor([2.0, -1.0])
    folded = assert_folds_exactly(network)
    always, never = folded.populations[1].neuron.threshold.ravel()[3:5]
    lowest, highest = (edge.ravel()[3:5] for edge in state_intervals(folded, folded.layer("lif1"))[1])
    assert -np.inf < always < lowest[0] and highest[1] < never < np.inf


def test_threshold_is_equation_ten_with_epsilon():
    norm = BatchNorm(
        gain=np.array([2.0]),
        offset=np.array([0.1]),
        mean=np.array([3.0]),
        variance=np.array([4.0]),
        epsilon=5.0,
    )
    assert folded_threshold(0.5, norm, (1,)).item() == pytest.approx((0.5 - 0.1) * 3 / 2 + 3)


def test_padding_makes_the_bias_of_border_neurons_their_own():
    folded = fold(trace(spiking_network(padding=1)))
    assert folded.populations[1].neuron.bias.shape == folded.populations[1].shape
    unpadded = fold(trace(spiking_network(padding=0)))
    assert np.ptp(unpadded.populations[1].neuron.bias, axis=(1, 2)).max() < 1e-12


@examples(50)
@given(
    factor=st.floats(-100, 100).filter(lambda x: abs(x) > 1e-3),
    voltage=st.floats(-5, 5),
    threshold=st.floats(-5, 5),
)
def test_rescaling_keeps_or_flips_the_comparison(factor, voltage, threshold):
    factors = np.array([factor])
    synapse = scaled(Dense(weight=np.array([[voltage]])), factors)
    if abs(voltage - threshold) > 1e-9:
        fires = synapse.weight.item() > scale_channels(np.array([threshold]), factors).item()
        assert fires == (voltage > threshold if factor > 0 else voltage < threshold)


POOLS = {
    "none": nn.Identity(),
    "average": nn.AvgPool2d(2),
    "padded average": nn.AvgPool2d(3, 2, 1),
    "average of what is inside": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "average, rounded up": nn.AvgPool2d(2, ceil_mode=True),
    "adaptive": nn.AdaptiveAvgPool2d((3, 4)),
    "any": nn.MaxPool2d(2),
    "padded any": nn.MaxPool2d(3, 2, 1),
}


@examples(60)
@given(
    seed=st.integers(0, 2**31),
    pool=st.sampled_from(sorted(POOLS)),
    shortcut=st.sampled_from(sorted(SHORTCUTS)),
    stride=st.sampled_from([1, 2]),
    mpbn=st.sampled_from(["channel", "element", "none"]),
    groups=st.sampled_from([1, 2]),
)
def test_residual_networks_with_pooling_keep_their_spikes(seed, pool, shortcut, stride, mpbn, groups):
    torch.manual_seed(seed)
    shape = (2, 7, 8)
    body = Residual(shape, pool=POOLS[pool], shortcut=shortcut, stride=stride, mpbn=mpbn, groups=groups)
    network = enlivened(body, shape=shape)
    folded = assert_folds_exactly(network, samples=6, seed=seed, least_lively=0.1, say=event)
    names = [population.name for population in folded.populations]
    assert names == ["input", "lif1", *(["pool"] if "any" in pool else []), "lif2", "lif3", "output"]
    assert len({c.label for c in folded.connections}) == len(names)  # a chain, and the shortcut


SMALL_SHAPES = {
    "digits-transformer": (2, 6, 6),
    "mnist-cnn": (1, 12, 12),
    "signal-cnn": (3, 18),
    "dvs-cnn": (2, 24, 24),
    "resnet18": (3, 32, 32),
    "resnet34": (3, 32, 32),
    "resnet19": (3, 16, 16),
    "resnet20-128": (3, 16, 16),
}


@pytest.mark.parametrize("kernel", [3, 6])
def test_normalized_flattened_spikes_fold(kernel, record_property):
    """Each neuron of a picture then has a factor of its own, which no kernel holds."""
    torch.manual_seed(0)
    shape, size = (2, 7 - kernel, 7 - kernel), 2 * (7 - kernel) ** 2
    neurons = [LIF(shape), nn.Flatten(), nn.BatchNorm1d(size), LIF((size,))]
    body = nn.Sequential(nn.Conv2d(1, 2, kernel), *neurons, nn.Linear(size, 3))
    assert_keeps_spikes(body, (1, 6, 6), record_property)


# Those of Xylo count spikes; tests/export/test_xylo_export.py folds them.
@pytest.mark.parametrize("architecture", sorted(set(ARCHITECTURES) - {"xylo-mlp", "xylo-rnn"}))
def test_zoo_networks_keep_their_spikes(architecture, record_property):
    """Each at full width, the widest on small pictures; benchmarks/fold_zoo.py takes larger ones."""
    torch.manual_seed(0)
    shape = SMALL_SHAPES.get(architecture, (3, 32, 32))
    assert_keeps_spikes(ARCHITECTURES[architecture](shape, 10), shape, record_property)


def assert_keeps_spikes(body, shape, record_property):
    network = enlivened(body, shape=shape, timesteps=2, samples=4, passes=2)
    trained = trace(network)
    folded = fold(trained)
    inputs = inputs_for(folded, samples=1)
    spikes, logits = trained_spikes(network, inputs)
    got = simulate(folded, inputs)
    different, close = count_differences(trained, folded, inputs, spikes, got)
    record_property("close_calls", close)
    assert different == 0  # these networks are the same every time, and none of their calls is that close
    for name, expected in spikes.items():
        assert 0.02 < expected.mean() < 0.98, name
    np.testing.assert_allclose(logits, got.outputs, rtol=1e-9, atol=1e-9)
    return folded


@pytest.mark.parametrize(("architecture", "width"), [("resnet18", 16), ("resnet34", 8)])
def test_networks_for_imagenet_fold_at_its_size(architecture, width, record_property):
    """Their pool overlaps and the convolution behind it is padded: four windows have kernels of their own."""
    torch.manual_seed(0)
    shape = (3, 224, 224)
    body = ARCHITECTURES[architecture](shape, 10, width=width)
    folded = assert_keeps_spikes(body, shape, record_property)
    parts = [c.synapse for c in folded.connections if c.label == "lif1->layer1.0.lif1"]
    ends = ((0, 1), (55, 0))
    assert [part.silent for part in parts] == [(rows, columns) for rows in ends for columns in ends]


def fold_layers(*layers, shape=(2, 5, 7)):
    return enlivened(nn.Sequential(*layers), shape=shape)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(2, 3, 3), nn.Conv2d(3, 2, 3), LIF(2), nn.Flatten(), nn.Linear(6, 2)],
        [LIF(2), nn.Flatten(), nn.Linear(70, 2)],
        [nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(45, 4), LIF(4), nn.Linear(4, 2)],
        [nn.Conv2d(2, 3, 3), nn.Flatten(), nn.BatchNorm1d(45), LIF(45), nn.Linear(45, 2)],
        [nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3), LIF(3), nn.Flatten(), nn.BatchNorm1d(45), nn.Linear(45, 2)],
        [nn.Flatten(), nn.Linear(70, 5), LIF(5)],
    ],
    ids=["two convolutions", "a neuron on pixels", "a dense layer on currents", "a flattened picture fires",
         "norms on pixels and spikes", "spikes as outputs"],
)  # fmt: skip
def test_layers_without_a_neuron_between_them_become_one_synapse(layers):
    torch.manual_seed(1)
    for layer in layers:  # made when the file was read, by whatever state torch's generator had then
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.reset_parameters()
    assert_folds_exactly(fold_layers(*layers), samples=4)


@pytest.mark.parametrize(
    ("layers", "shape", "message"),
    [
        (
            [nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), LIF(2)],
            (2, 5, 7),
            '^layer "1": MaxPool2d is supported on spikes only',
        ),
        (
            [nn.MaxPool2d(2), nn.Conv2d(2, 2, 1), LIF(2)],
            (2, 5, 7),
            '^layer "0": MaxPool2d is supported on spikes only',
        ),
        (
            [nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False), LIF(8)],
            (8, 99, 99),
            r'^layer "0": pooling windows over \(8, 99, 99\) differ in their weights',
        ),
        (
            [nn.Conv2d(8, 8, 3), nn.Flatten(), LIF(8 * 97 * 97)],
            (8, 99, 99),
            '^layer "2": a matrix of 75272 x 78408 weights',
        ),
    ],
)
def test_refuses_what_it_cannot_fold(layers, shape, message):
    body = nn.Sequential(*layers)
    with pytest.raises(FoldError, match=message):
        fold(trace(body, shape, 2))


@pytest.mark.parametrize("mpbn", ["channel", "element"])
@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv1d(3, 4, 5, stride=2, padding=3, dilation=2), nn.MaxPool1d(3, 2, 1)],
        [nn.Conv1d(3, 6, 4, groups=3, bias=False), nn.AvgPool1d(3, 2, 1, count_include_pad=False)],
        [nn.Conv1d(3, 4, 3, padding="same"), nn.MaxPool1d(2, dilation=3)],
        [nn.Conv1d(3, 4, 1), nn.AdaptiveAvgPool1d(5)],
        [nn.Conv1d(3, 4, 3, padding=(2,)), nn.AvgPool1d((4,), stride=1, ceil_mode=True)],
    ],
)
def test_signals_are_pictures_one_pixel_high(layers, mpbn):
    """Convolutions and pools over (channels, length) give the spikes that torch gives."""
    torch.manual_seed(2)
    first, pool = deepcopy(layers)
    channels, length = first.out_channels, first(torch.zeros(1, 3, 23)).shape[2]
    neurons = [nn.BatchNorm1d(channels), LIF((channels, length), mpbn=mpbn), pool]
    length = pool(torch.zeros(1, channels, length)).shape[2]
    rest = [nn.Conv1d(channels, 5, 3), nn.BatchNorm1d(5), LIF((5, length - 2)), nn.Flatten()]
    body = nn.Sequential(first, *neurons, *rest, nn.Linear(5 * (length - 2), 3))
    network = enlivened(body, shape=(3, 23))
    folded = assert_folds_exactly(network, samples=9, least_lively=0.2)
    assert all(p.shape[1] == 1 for p in folded.populations[:-1])
    inputs = inputs_for(folded, samples=5)
    expected, got = (simulate(folded, each).outputs for each in (inputs, inputs[:, :, 0]))
    np.testing.assert_array_equal(expected, got)  # however high the samples say they are


@pytest.mark.parametrize("mpbn", ["none", "channel", "element"])
@pytest.mark.parametrize(
    ("levels", "signed", "leak"),
    [(4, False, 0.5), (1, True, 0.5), (2, True, 0.9), (3, False, 0.0), (1, False, 1.0)],
)
def test_whole_numbers_are_sums_of_spikes(levels, signed, leak, mpbn):
    """Integer and ternary spikes, whose levels are neurons that share what each of them subtracts."""
    torch.manual_seed(1)
    body = graded_body(mpbn, levels=levels, signed=signed, leak=leak)
    network = enlivened(body, shape=(2, 5, 6), timesteps=5)
    assert_folds_exactly(network, samples=9, least_lively=0.05)


class Products(nn.Module):
    """Two layers of spikes, and a function of both in front of the readout."""

    def __init__(self, function, mpbn="element"):
        super().__init__()
        self.function = function
        for name in ("x", "y"):
            layers = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), LIF((4, 5, 6), mpbn=mpbn)
            self.add_module(name, nn.Sequential(*layers))
        self.every, self.each = nn.AvgPool2d((5, 6), divisor_override=1), nn.Conv2d(4, 1, 1, bias=False)
        self.of_every, self.of_each = LIF((4, 1, 1), leak=0.5), LIF((1, 5, 6), mpbn="element")
        self.readout = nn.Sequential(nn.Flatten(), nn.Linear(120, 3))

    def forward(self, given):
        return self.readout(self.function(self, self.x(given), self.y(given)))


FUNCTIONS = {  # of spikes, in the words of the networks that use them
    "SEW AND": lambda net, x, y: x * y,
    "SEW IAND": lambda net, x, y: x * (1 - y),
    "neither": lambda net, x, y: (1 - x) * (1 - y),
    "or": lambda net, x, y: x + y + (x * y) * -1,
    "exclusive or": lambda net, x, y: x + y + torch.mul(x, y) * -2,
    "of a product": lambda net, x, y: (x * y) * (1 - net.of_every(net.every(x))),
    "Spike-Driven Transformer": lambda net, x, y: x * net.of_every(net.every(x * y)),
    "a sum of both and one": lambda net, x, y: (x + y) * y,
    "up to two": lambda net, x, y: x * (2 - y),
    "QKFormer": lambda net, x, y: y.mul(net.of_each(net.each(x))),
}


@pytest.mark.parametrize("mpbn", ["channel", "element"])  # element-wise gains of both signs: two copies
@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_of_spikes_are_neurons(name, mpbn):
    torch.manual_seed(1)
    network = enlivened(Products(FUNCTIONS[name], mpbn), shape=(2, 5, 6))
    folded = assert_folds_exactly(network, least_lively=0.1)
    inputs = inputs_for(folded, samples=9, steps=True)
    spikes, _ = trained_spikes(network, inputs)
    fired = as_trained(trace(network), simulate(folded, inputs).spikes)
    product = next(fired[each] for each in fired if "mul" in each)
    factors = {"SEW AND": (0, 0), "SEW IAND": (0, 1), "neither": (1, 1)}.get(name)
    if factors:
        x, y = (np.abs(flip - spikes[each]) for flip, each in zip(factors, ("x.2", "y.2"), strict=True))
        np.testing.assert_array_equal(product, x * y)


@pytest.mark.parametrize(
    "function",
    [
        lambda net, x, y: net.every(x) * y,
        lambda net, x, y: net.every(x) * net.every(y) * y,  # Spikformer: counts times counts
    ],
)
def test_products_of_sums_are_refused_by_name(function):
    torch.manual_seed(1)
    network = enlivened(Products(function), shape=(2, 5, 6), passes=0)
    with pytest.raises(FrontendError, match=r"product of (spike and operation|two values that change)"):
        trace(network)


def test_the_name_of_the_readout_is_taken():
    body = nn.Sequential(OrderedDict(dense=nn.Linear(4, 4), output=LIF(4), last=nn.Linear(4, 2)))
    with pytest.raises(FoldError, match="output: a LIF has the name reserved for the readout"):
        fold(trace(body, (4,), 2))
    body = nn.Sequential(OrderedDict(dense=nn.Linear(4, 4), input=LIF(4), last=nn.Linear(4, 2)))
    assert [p.name for p in fold(trace(body, (4,), 2)).populations] == ["input", "input@2", "output"]
