"""The neuron's fast scan against the plain loop of the paper, in float64: spikes, gradients, statistics."""

import pytest
import torch
from networks import input_format
from neurons import SHAPES, assert_is_the_plain_loop, make_lif, outcome, prepared
from torch import nn

from mpbn_deploy.base import OptionError
from mpbn_deploy.nn import LIF, GradedLIF, RecurrentLIF, SpikePool, SpikingNetwork
from mpbn_deploy.nn.neuron import LEAST_GAIN
from mpbn_deploy.nn.scan import normalized_membranes, scan_node


def run_lif(lif, steps):
    """Feed one neuron, step by step."""
    lif.timesteps = len(steps)
    with torch.no_grad():
        return lif(torch.tensor(steps).view(-1, 1)).ravel().tolist()


def test_the_neuron_is_that_of_the_paper():
    """leak 0.25, threshold 0.5, strictly above, reset to zero"""
    assert run_lif(LIF(1, mpbn="none"), [0.5, 0.375, 0.375]) == [0, 0, 0]
    assert run_lif(LIF(1, mpbn="none"), [0.5, 0.376, 0.5]) == [0, 1, 0]


def test_a_current_outlasts_its_time_step():
    """Currents 0.5, 0.25, 0.625; membranes 0.5, 0.375, 0.71875 > 0.5"""
    lif = LIF(1, mpbn="none", current_leak=0.5)
    assert run_lif(lif, [0.5, 0.0, 0.5]) == [0, 0, 1]
    assert "current_leak=0.5" in repr(lif) and "current_leak" not in repr(LIF(1))
    with pytest.raises(OptionError, match=r"LIF: current leak 1.5; allowed are 0 \(no memory\) to 1"):
        LIF(1, current_leak=1.5)


def test_a_soft_reset_subtracts_the_threshold():
    """1.5 fires and leaves 1; a quarter of it, with 0.5, fires and leaves 0.25"""
    assert run_lif(LIF(1, mpbn="none", reset="subtract"), [1.5, 0.5, 0.43]) == [1, 1, 0]
    assert run_lif(LIF(1, mpbn="none", reset="subtract"), [1.5, 0.5, 0.44]) == [1, 1, 1]
    assert "reset='subtract'" in repr(LIF(1, reset="subtract"))


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


# ---- the scan against the plain loop ------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("surrogate", ["rectangle", "tanh", "wide"])
@pytest.mark.parametrize("reset", ["zero", "subtract"])
@pytest.mark.parametrize("kind", ["channel", "element", "none"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_scan_is_the_plain_loop(shape, kind, reset, surrogate, layout, training):
    torch.manual_seed(1)
    lif = make_lif(shape, mpbn=kind, surrogate=surrogate, reset=reset).train(training)
    assert_is_the_plain_loop(lif, shape, layout)


@pytest.mark.parametrize("reset", ["zero", "subtract"])
@pytest.mark.parametrize("kind", ["channel", "element", "none"])
def test_gradients_may_leave_out_the_reset(kind, reset):
    torch.manual_seed(1)
    options = {"mpbn": kind, "reset": reset, "reset_gradient": "detached"}
    for shape, layout in ((SHAPES["dense"], None), (SHAPES["image"], torch.channels_last)):
        assert_is_the_plain_loop(make_lif(shape, **options).train(), shape, layout)
    recurrent = prepared(RecurrentLIF(SHAPES["dense"], current_leak=0.6, **options)).train()
    torch.nn.init.normal_(recurrent.recurrent.weight, 0, 0.4)
    assert_is_the_plain_loop(recurrent, SHAPES["dense"], None)


@pytest.mark.parametrize("current_leak", [0.3, 1.0])
@pytest.mark.parametrize("reset", ["zero", "subtract"])
@pytest.mark.parametrize("kind", ["channel", "element", "none"])
def test_the_scan_of_currents_is_the_plain_loop(kind, reset, current_leak):
    torch.manual_seed(1)
    for shape, layout in ((SHAPES["dense"], None), (SHAPES["image"], torch.channels_last)):
        assert_is_the_plain_loop(
            make_lif(shape, mpbn=kind, reset=reset, current_leak=current_leak).train(), shape, layout
        )


@pytest.mark.parametrize("current_leak", [0.0, 0.6])
@pytest.mark.parametrize("reset", ["zero", "subtract"])
@pytest.mark.parametrize("kind", ["channel", "element", "none"])
def test_the_scan_of_a_recurrent_layer_is_the_plain_loop(kind, reset, current_leak):
    """Also the gradient by the recurrent weights, of a matrix and of kernels."""
    torch.manual_seed(1)
    options = {"mpbn": kind, "reset": reset, "current_leak": current_leak}
    for shape, layout, kernel in (
        (SHAPES["dense"], None, None),
        (SHAPES["image"], torch.channels_last, 3),
        (SHAPES["image"], torch.contiguous_format, 1),
    ):
        lif = prepared(RecurrentLIF(shape, kernel=kernel, **options)).train()
        torch.nn.init.normal_(lif.recurrent.weight, 0, 0.4)
        assert_is_the_plain_loop(lif, shape, layout)


def test_a_recurrent_layer_of_one_time_step_is_none():
    lif = RecurrentLIF(3, mpbn="none")
    lif.timesteps = 1
    x = torch.randn(5, 3, requires_grad=True)
    lif(x).sum().backward()
    assert not lif.recurrent.weight.grad.any()


@pytest.mark.parametrize(("shape", "kernel"), [((2, 4, 4), None), ((2, 4, 4), 2), (5, 3), ((2, 3), None)])
def test_shapes_that_a_recurrent_layer_cannot_have(shape, kernel):
    with pytest.raises(OptionError, match=r"RecurrentLIF: shape .* features without a kernel, or"):
        RecurrentLIF(shape, kernel=kernel)


def test_borders_of_the_surrogate_belong_to_it():
    lif = LIF(1, mpbn="none")
    lif.timesteps = 1
    x = torch.tensor([[-1e-38], [0.0], [1.0], [1.0000001]], requires_grad=True)
    lif(x).sum().backward()
    assert x.grad.ravel().tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("kind", ["channel", "element"])
def test_positive_gains_stay_positive_and_keep_learning(kind):
    lif = make_lif((2, 2, 2), mpbn=kind, mpbn_gain="positive")
    weight = lif.mpbn.bn.weight
    weight.data[0], weight.data[1] = -3.0, 0.0001
    lif.mpbn.bn.bias.data[1] = 0.25  # inside the surrogate
    assert lif.mpbn.gain[0] == 3.0
    assert lif.mpbn.gain[1] == LEAST_GAIN
    lif(torch.randn(21, 2, 2, 2, dtype=torch.float64)).sum().backward()
    assert weight.grad[1] != 0
    assert "positive" in repr(lif)


def test_positive_gains_change_nothing_while_weights_are_positive():
    torch.manual_seed(0)
    free, positive = LIF(4), LIF(4, mpbn_gain="positive")
    x = torch.randn(30, 4)
    for lif in (free, positive):
        lif.timesteps = 3
        lif(x).square().sum().backward()
    assert torch.equal(free(x), positive(x))
    assert torch.equal(free.mpbn.bn.weight.grad, positive.mpbn.bn.weight.grad)


def test_without_gradients_spikes_are_the_same():
    torch.manual_seed(0)
    lif = make_lif((3, 4, 5)).eval()
    x = torch.randn(9, 3, 4, 5, dtype=torch.float64)
    with torch.no_grad():
        quick = lif(x)
    assert torch.equal(quick, lif(x.requires_grad_()))


def test_inputs_with_holes_in_memory():
    torch.manual_seed(0)
    lif = make_lif((3, 4, 5))
    x = torch.randn(9, 3, 4, 10, dtype=torch.float64)[..., ::2]
    weights = torch.randn(9, 3, 4, 5, dtype=torch.float64)
    spikes, rest = outcome(lif, lif, x, weights)
    expected_spikes, expected_rest = outcome(lif, lif, x.contiguous(), weights)
    assert not x.is_contiguous() and torch.equal(spikes, expected_spikes)
    for found, expected in zip(rest, expected_rest, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["channel", "element"])
def test_a_sample_of_another_shape_is_refused(kind):
    lif = LIF((3, 4, 4), mpbn=kind)
    lif.timesteps = 1
    with pytest.raises(OptionError, match=rf"\(2, 4, 4\); its {kind}-wise MPBN was built for \(3, 4, 4\)"):
        lif(torch.zeros(2, 2, 4, 4))


@pytest.mark.parametrize("option", ["mpbn", "mpbn_gain", "surrogate", "reset"])
def test_unknown_words_are_refused(option):
    with pytest.raises(OptionError, match=r"no .* 'wrong'"):
        LIF(1, **{option: "wrong"})


def test_a_network_trains_alike_in_both_layouts():
    """channels_last is a matter of speed only"""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(2, 4, 3), LIF(4), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 3))
    network = SpikingNetwork(body, timesteps=2, input_format=input_format((2, 8, 8))).double()
    images = torch.randint(0, 255, (5, 2, 8, 8))
    layouts = []
    body[0].register_forward_hook(lambda _m, _i, out: layouts.append(out.is_contiguous()))
    plain = body(network.normalize(images.double()).repeat(2, 1, 1, 1)).view(2, 5, 3).mean(0)
    quick = network.to(memory_format=torch.channels_last).train()(images)
    assert layouts == [True, False]
    torch.testing.assert_close(quick, plain, rtol=1e-12, atol=1e-12)


def test_all_neurons_follow_the_time_steps_of_their_network():
    body = nn.Sequential(nn.Linear(4, 2), LIF(2))
    network = SpikingNetwork(body, timesteps=2, input_format=input_format((4,)))
    network.timesteps = 5
    assert network.body[1].timesteps == 5
    with pytest.raises(OptionError, match="timesteps 0"):
        network.timesteps = 0


@pytest.mark.parametrize("kind", ["channel", "element"])
def test_a_single_value_cannot_be_normalized(kind):
    lif = LIF(3, mpbn=kind)
    lif.timesteps = 1
    with pytest.raises(OptionError, match="cannot train on a single value"):
        lif(torch.zeros(1, 3))
    lif.timesteps = 2
    with pytest.raises(OptionError, match="a batch of 3; it must be a multiple of the 2 time steps"):
        lif(torch.zeros(3, 3))
    lif.mpbn.bn.momentum = None
    with pytest.raises(OptionError, match="needs running statistics and a momentum"):
        lif(torch.zeros(4, 3))


@pytest.mark.parametrize("kind", ["channel", "element", "none"])
def test_neurons_work_under_autocast(kind):
    body = nn.Sequential(nn.Linear(4, 3), LIF(3, mpbn=kind), nn.Linear(3, 2))
    network = SpikingNetwork(body, timesteps=2, input_format=input_format((4,)))
    with torch.autocast("cpu", torch.bfloat16):
        network(torch.randint(0, 9, (6, 4))).float().sum().backward()
    assert body[0].weight.grad.isfinite().all()


def test_moments_do_not_move_between_forward_and_backward():
    """Evaluation, then training of the same neuron, then backward of the first."""
    torch.manual_seed(0)
    lif = make_lif((3, 4, 5)).eval()
    x = torch.randn(9, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    spikes = lif(x)
    (expected,) = torch.autograd.grad(spikes.sum(), x, retain_graph=True)
    lif.train()(torch.randn(9, 3, 4, 5, dtype=torch.float64))
    (found,) = torch.autograd.grad(spikes.sum(), x)
    assert torch.equal(found, expected)


def test_batches_are_counted_as_torch_counts_them():
    lif = make_lif((3, 4, 5))
    lif(torch.randn(9, 3, 4, 5, dtype=torch.float64))
    assert lif.mpbn.bn.num_batches_tracked == 3


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mpbn_epsilon": 0.0}, r"MPBN epsilon 0\.0; a positive number is needed"),
        ({"threshold": float("inf")}, "threshold inf; a finite number is needed"),
    ],
)
def test_neurons_of_impossible_numbers(options, message):
    with pytest.raises(OptionError, match=message):
        LIF(3, **options)


# ---- integer and ternary spikes -----------------------------------------------------------------


@pytest.mark.parametrize("mpbn", ["none", "channel", "element"])
@pytest.mark.parametrize(("levels", "signed", "leak"), [(4, False, 0.5), (1, True, 0.9), (2, True, 0.0)])
def test_a_graded_neuron_sends_its_rounded_membrane(levels, signed, leak, mpbn):
    """Against its equation with torch.round, straight-through; spikes, gradients and statistics."""
    torch.manual_seed(0)
    layer = GradedLIF((3, 4), levels=levels, signed=signed, leak=leak, mpbn=mpbn, threshold=0.7).double()
    layer.levels.timesteps = 3
    x, weights = torch.randn(2, 3 * 5, 3, 4, dtype=torch.float64)
    given = x.clone().requires_grad_()
    messages = layer(given)
    assert set(messages.unique().tolist()) <= set(range(-levels * signed, levels + 1))
    assert len(messages.unique()) > 1 + signed
    statistics = [buffer.clone() for buffer in layer.buffers()]
    found = torch.autograd.grad((messages * weights).sum(), [given, *layer.parameters()])
    norm = None if layer.levels.mpbn is None else layer.levels.mpbn.bn
    if norm is not None:
        norm.reset_running_stats()
    other, membrane, sent = x.clone().requires_grad_(), torch.zeros(5, 3, 4, dtype=torch.float64), []
    for arriving in other.chunk(3):
        membrane = leak * membrane + arriving
        judged = membrane
        if norm is not None:
            judged = norm(membrane.flatten(1) if mpbn == "element" else membrane).view_as(membrane)
        sent.append(_straight(judged / 0.7, levels, signed))
        membrane = membrane - 0.7 * sent[-1]
    expected = torch.cat(sent)
    assert torch.equal(expected, messages)
    for ours, theirs in zip(statistics, layer.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    parameters = [other, *layer.parameters()]
    for ours, theirs in zip(found, torch.autograd.grad((expected * weights).sum(), parameters), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def _straight(ratio, levels, signed):
    """The rounded ratio; its slope is one between the first and the last message."""
    rounded = ratio.round().clamp(-levels * signed, levels)
    within = (ratio > -levels * signed) & (ratio < levels)
    return rounded.detach() + (ratio - ratio.detach()) * within


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset": "zero", "leak": 0.5}, "a level that fires cannot clear the membranes of the others"),
        ({"levels": 0}, "0 levels; a positive threshold"),
        ({"threshold": -1.0}, "threshold -1.0.*a positive threshold"),
        ({"current_leak": 0.5}, "no current leak"),
    ],
)
def test_graded_neurons_that_cannot_be_stacked_are_refused(options, message):
    with pytest.raises(OptionError, match=f"GradedLIF: .*{message}"):
        GradedLIF(3, **options)


# ---- max pooling of spikes ----------------------------------------------------------------------


@pytest.mark.parametrize("timesteps", [1, 3])
@pytest.mark.parametrize("mpbn", ["none", "channel", "element"])
@pytest.mark.parametrize("geometry", [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}])
def test_gradients_of_pooled_spikes_go_to_the_highest_membranes(timesteps, mpbn, geometry):
    torch.manual_seed(0)
    layer = LIF((4, 6, 6), mpbn=mpbn, surrogate="wide")
    layer.timesteps = timesteps
    spikes = layer(torch.randn(5 * timesteps, 4, 6, 6, requires_grad=True))
    spikes.retain_grad()
    membranes = normalized_membranes(scan_node(spikes)).detach().requires_grad_()
    assert torch.equal((membranes > layer.threshold).float(), spikes)
    pooled = SpikePool(**geometry)(spikes)
    assert torch.equal(pooled, nn.functional.max_pool2d(spikes, **geometry))
    gradient = torch.randn_like(pooled)
    pooled.backward(gradient)
    nn.functional.max_pool2d(membranes, **geometry).backward(gradient)
    assert torch.equal(spikes.grad, membranes.grad)
    assert mpbn != "channel" or layer.mpbn.bn.weight.grad.any()


def test_a_pool_of_anything_else_is_that_of_torch():
    values = torch.randn(2, 3, 4, 4, requires_grad=True)
    SpikePool(2)(values).sum().backward()
    expected = values.detach().clone().requires_grad_()
    nn.MaxPool2d(2)(expected).sum().backward()
    assert torch.equal(values.grad, expected.grad)
    layer = LIF(3)
    layer.timesteps = 1
    with torch.no_grad():
        spikes = layer(values)
        assert torch.equal(SpikePool(2)(spikes), nn.MaxPool2d(2)(spikes))


@pytest.mark.filterwarnings("ignore")  # of what torch.compile does
def test_networks_with_spike_pools_can_be_compiled_by_torch():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), LIF(4), SpikePool(2), nn.Flatten(), nn.Linear(16, 2))
    network = SpikingNetwork(body, timesteps=2, input_format=input_format((1, 6, 6)))
    inputs, gradients = torch.randn(3, 1, 6, 6), []
    for each in (network, torch.compile(network, backend="eager")):
        network.zero_grad()
        each(inputs).square().sum().backward()
        gradients.append([parameter.grad for parameter in network.parameters()])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*gradients, strict=True))
    assert gradients[0][0].any()
