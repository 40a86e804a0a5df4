"""Ways of writing a spiking network: whatever forward executes comes in, or is rejected by its line.

The module runs beside the folded network, on inputs that change over time (or not, if forward repeats one).
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from mpbn_deploy.base import FrontendError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import InputFormat
from mpbn_deploy.nn import SpikingNetwork
from mpbn_deploy.verify.folding import check_fold

pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed (pip install spikingjelly)")
pytest.importorskip("norse", reason="norse is not installed (pip install norse)")
import norse.torch as norse
import snntorch as snn
from spikingjelly.activation_based import functional as jelly, layer, neuron

pytestmark = pytest.mark.interop
FEATURES, SIGNAL, PICTURE, T = (12,), (3, 16), (2, 8, 8), 6
HIDDEN = 10


class Net(nn.Module):
    """Two layers, and a function of the network and its input."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.fc1, self.fc2, self.way = nn.Linear(12, HIDDEN), nn.Linear(HIDDEN, 3), forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *given):
        return self.way(self, *given)


def spiked(x):
    return (x > 0.4).to(x.dtype)


# ---- neurons by hand ----------------------------------------------------------------------------


def hard(net, x):
    v, out = 0, []
    for step in x:
        v = 0.8 * v + net.fc1(step)
        s = spiked(v)
        v = v * (1 - s)
        out.append(net.fc2(s))
    return torch.stack(out)


def in_place(net, x):
    v = torch.zeros(x.shape[1], HIDDEN)
    out = torch.empty(len(x), x.shape[1], 3)
    for t in range(len(x)):
        v.mul_(0.8).add_(net.fc1(x[t]))
        fired = v > 0.4
        v[fired] = 0.0
        out[t] = net.fc2(fired.float())
    return out


def time_last(net, x):
    current = net.fc1(x.transpose(1, 2)).transpose(1, 2)
    out, v = torch.zeros_like(current), torch.zeros_like(current[..., 0])
    for t in range(x.shape[-1]):
        v = 0.5 * v * (1 - out[..., max(t - 1, 0)]) + current[..., t]
        out[..., t] = (v >= 0.3).to(x.dtype)
    return net.fc2(out.mean(-1))


def dictionary(net, x):
    state = {"v": torch.zeros(x.shape[1], HIDDEN), "sum": torch.zeros(x.shape[1], 3)}
    for step in x.unbind(0):
        state["v"] = torch.lerp(state["v"], net.fc1(step), 0.4)
        s = torch.heaviside(state["v"] - 0.3, torch.zeros(()))
        state["v"] -= 0.3 * s
        state["sum"] += net.fc2(s)
    return state["sum"] / len(x)


def channels(net, x):
    v, out = torch.zeros(x.shape[1], HIDDEN), []
    for step in x:
        v = net.decay.sigmoid() * v + net.fc1(step)
        s = torch.where(v > net.level, 1.0, 0.0)
        v = torch.where(s.bool(), torch.zeros_like(v), v)
        out.append(net.fc2(s))
    return sum(out) / len(out)


def functional_calls(net, x):
    v, out = x.new_zeros(x.shape[1], HIDDEN), []
    weight = net.fc1.weight / net.fc1.weight.norm(dim=1, keepdim=True)  # computed in forward
    for step in x:
        v = torch.addcmul(functional.linear(step, weight), v, torch.full_like(v, 0.7))
        s = torch.sign(functional.threshold(v, 0.5, 0)) if False else (v.sub(0.5) > 0).type_as(v)
        v = v.masked_fill(s.bool(), 0)
        out += [functional.linear(s, net.fc2.weight, net.fc2.bias)]
    return torch.stack(out, 0).sum(0)


def einsum(net, x):
    current = torch.einsum("tbi,hi->tbh", x, net.fc1.weight)
    v, out = 0, []
    for t in range(len(x)):
        v = 0.6 * v + current[t]
        s = spiked(v)
        v = v - 0.4 * s
        out.append(s)
    return torch.einsum("tbh,oh->bo", torch.stack(out), net.fc2.weight) / len(x)


def shared(net, x):
    """One layer of weights for two layers of neurons."""
    v, w, out = 0, 0, []
    for step in x:
        v = 0.6 * v + net.fc1(step)
        s = spiked(v)
        v = v - s
        w = 0.6 * w + net.fc3(net.fc3(s))
        z = spiked(w)
        w = w - z
        out.append(net.fc2(z))
    return torch.stack(out)


def burn_in(net, x):
    return hard(net, x)[2:].mean(0)


def weighed(net, x):
    return (hard(net, x) * torch.linspace(0.1, 1, len(x))[:, None, None]).sum(0)


def last_step(net, x):
    return hard(net, x)[-1]


def static(net, x):
    """The first layer is computed once."""
    current, v, out = net.fc1(x), 0, 0
    for _ in range(T):
        v = v + (current - v) / 2
        s = spiked(v)
        v = v * (1 - s)
        out = out + net.fc2(s)
    return out / T


def static_current(net, x):
    """A synaptic current of an input that never changes."""
    given, i, v, out = net.fc1(x), 0, 0, 0
    for _ in range(T):
        i = 0.5 * i + given
        v = 0.7 * v + 0.2 * i
        s = spiked(v)
        v = v - 0.4 * s
        out = out + net.fc2(s)
    return out / T


def expanded(net, x):
    x = net.fc1(x).unsqueeze(0).expand(T, -1, -1)
    v, out = torch.zeros_like(x[0]), []
    for step in x:
        v = 0.5 * v + step
        s = spiked(v)
        v = v * (1 - s)
        out.append(s)
    return net.fc2(torch.stack(out)).mean(0)


def encoded(net, x):
    """Pixels are compared with a constant, once."""
    return static(net, (x > 0.5).to(x.dtype))


def norm_by_hand(net, x):
    v, out = 0, []
    for step in x:
        v = 0.5 * v + net.fc1(step)
        s = spiked(net.norm(v))
        v = v - 0.3 * s
        out.append(net.fc2(s))
    return torch.stack(out)


def delayed_spikes(net, x):
    """Spikes are those of the membrane before what arrives: the second layer is a step behind the first."""
    v, out = torch.zeros(x.shape[0], HIDDEN), 0
    for _ in range(T + 1):
        s = spiked(v)
        v = 0.8 * v * (1 - s) + net.fc1(x)
        out = out + net.fc2(s)
    return out / T


def exclusive(net, x):
    """Products and other functions of spikes."""
    v, w, out = 0, 0, []
    for step in x:
        v, w = 0.9 * v + net.fc1(step), 0.5 * w + net.fc3(net.fc1(step))
        s, z = spiked(v), spiked(w)
        v, w = v * (1 - s), w * (1 - z)
        both = torch.logical_xor(s.bool(), z.bool()).float() + torch.maximum(s, z) * 0.5
        out.append(net.fc2(both) + net.fc2(s * z))
    return torch.stack(out)


def masks():
    return nn.Parameter(torch.linspace(-1, 1.5, HIDDEN)), nn.Parameter(torch.linspace(0.2, 0.7, HIDDEN))


class Normalized(nn.BatchNorm1d):
    """A norm with a factor, as tdBN's."""

    def forward(self, x):
        return 0.5 * super().forward(x)


def norm(kind=nn.BatchNorm1d):
    made = kind(HIDDEN)
    made.weight.data, made.bias.data = torch.linspace(0.5, 2, HIDDEN), torch.linspace(-0.2, 0.2, HIDDEN)
    made.running_mean, made.running_var = torch.linspace(-0.3, 0.3, HIDDEN), torch.linspace(0.5, 2, HIDDEN)
    return made


BY_HAND = {
    "a list and stack": lambda: Net(hard),
    "in place": lambda: Net(in_place),
    "time last": lambda: Net(time_last),
    "a dictionary": lambda: Net(dictionary),
    "decays and thresholds per neuron": lambda: Net(channels, decay=masks()[0], level=masks()[1]),
    "functional calls": lambda: Net(functional_calls),
    "einsum": lambda: Net(einsum),
    "shared weights": lambda: Net(shared, fc3=nn.Linear(HIDDEN, HIDDEN)),
    "burn-in": lambda: Net(burn_in),
    "weights over time": lambda: Net(weighed),
    "the last step": lambda: Net(last_step),
    "a static first layer": lambda: Net(static),
    "a static current": lambda: Net(static_current),
    "expand": lambda: Net(expanded),
    "pixels compared with a constant": lambda: Net(encoded),
    "MPBN by hand": lambda: Net(norm_by_hand, norm=norm()),
    "a norm with a factor": lambda: Net(norm_by_hand, norm=norm(Normalized)),
    "spikes before the update": lambda: Net(delayed_spikes),
    "functions of two spikes": lambda: Net(exclusive, fc3=nn.Linear(HIDDEN, HIDDEN)),
}

# ---- other libraries -----------------------------------------------------------------------------


def around_leaky(net, x):
    mem, out = net.lif.init_leaky(), []
    for step in x:
        spikes, mem = net.lif(
            net.fc1(step) + net.again(out[-1] if out else torch.zeros(x.shape[1], HIDDEN)), mem
        )
        out.append(spikes)
    return net.fc2(torch.stack(out))


def whole_sequence(net, x):
    return net.fc2(net.cell(net.fc1(x))[0])


def recurrent_cell(net, x):
    state, out = None, []
    for step in x:
        spikes, state = net.cell(net.fc1(step), state)
        out.append(net.fc2(spikes))
    return torch.stack(out)


def stepped(*parts):
    return nn.Sequential(nn.Linear(12, HIDDEN), *parts, nn.Linear(HIDDEN, 3))


def several(*parts):
    made = nn.Sequential(layer.Linear(12, HIDDEN), *parts)
    jelly.set_step_mode(made, "m")
    return made


def tutorial(net, x):
    """As in snnTorch's tutorials: a static input, spikes and membranes recorded."""
    mem1, mem2 = net.lif1.init_leaky(), net.lif2.init_leaky()
    spk2_rec, mem2_rec = [], []
    for _ in range(T):
        spk1, mem1 = net.lif1(net.fc1(x), mem1)
        spk2, mem2 = net.lif2(net.fc2(spk1), mem2)
        spk2_rec.append(spk2)
        mem2_rec.append(mem2)
    return torch.stack(spk2_rec, dim=0), torch.stack(mem2_rec, dim=0)


def synaptic(net, x):
    (syn, mem), out = net.lif.init_synaptic(), []
    for _ in range(T):
        spikes, syn, mem = net.lif(net.fc1(x), syn, mem)
        out.append(net.fc2(spikes))
    return torch.stack(out)


LIBRARIES = {
    "recurrence around Leaky": lambda: Net(
        around_leaky, lif=snn.Leaky(beta=0.7), again=nn.Linear(HIDDEN, HIDDEN)
    ),
    "a tutorial": lambda: Net(
        tutorial, lif1=snn.Leaky(beta=0.9, threshold=0.4), lif2=snn.Leaky(beta=0.8, threshold=0.2)
    ),
    "Synaptic of a static input": lambda: Net(synaptic, lif=snn.Synaptic(alpha=0.6, beta=0.8)),
    "norse LIF": lambda: Net(whole_sequence, cell=norse.LIF(norse.LIFParameters(v_th=torch.tensor(0.05)))),
    "norse LIFRecurrentCell": lambda: Net(
        recurrent_cell,
        cell=norse.LIFRecurrentCell(HIDDEN, HIDDEN, norse.LIFParameters(v_th=torch.tensor(0.05))),
    ),
    "IF": lambda: stepped(neuron.IFNode()),
    "LIF, soft": lambda: stepped(neuron.LIFNode(v_threshold=0.4, v_reset=None)),
    "ParametricLIF": lambda: several(neuron.ParametricLIFNode(v_threshold=0.4), layer.Linear(HIDDEN, 3)),
    "CUBALIF": lambda: stepped(neuron.CUBALIFNode(v_threshold=0.3)),
    "NonSpikingLIF": lambda: several(
        neuron.LIFNode(v_threshold=0.4), layer.Linear(HIDDEN, 3), neuron.NonSpikingLIFNode(tau=2.0)
    ),
}


# ---- layers ---------------------------------------------------------------------------------------


class Cat(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 2, 1)

    def forward(self, x):
        return torch.cat([self.one(x), self.other(x)], 1)


class ChannelShuffle(nn.Module):
    def forward(self, x):
        return x.view(len(x), 2, 2, *x.shape[2:]).transpose(1, 2).flatten(1, 2)


def pictures(*parts, size):
    return nn.Sequential(*parts, neuron.IFNode(v_threshold=0.3), nn.Flatten(), nn.Linear(size, 3))


LAYERS = {
    "cat": (lambda: pictures(Cat(), size=320), PICTURE),
    "ConvTranspose2d": (lambda: pictures(nn.ConvTranspose2d(2, 2, 3, stride=2), size=578), PICTURE),
    "Upsample": (lambda: pictures(nn.Upsample(scale_factor=2), nn.Conv2d(2, 2, 3), size=392), PICTURE),
    "ZeroPad2d": (lambda: pictures(nn.ZeroPad2d((0, 1, 2, 0)), nn.Conv2d(2, 2, 3), size=112), PICTURE),
    "PixelShuffle": (lambda: pictures(nn.Conv2d(2, 4, 3), nn.PixelShuffle(2), size=144), PICTURE),
    "ChannelShuffle": (lambda: pictures(nn.Conv2d(2, 4, 3), ChannelShuffle(), size=144), PICTURE),
    "Conv1d": (lambda: pictures(nn.Conv1d(3, 4, 3, stride=2), nn.BatchNorm1d(4), size=28), SIGNAL),
    "AvgPool1d": (lambda: pictures(nn.Conv1d(3, 4, 3), nn.AvgPool1d(2), size=28), SIGNAL),
}


def assert_comes_in(module, shape, timesteps=T):
    """Trace, fold, and run beside the module: no spike and no output may differ."""
    values = InputFormat(shape=shape, minimum=0, maximum=15, mean=np.zeros(1), deviation=np.full(1, 7.5))
    network = SpikingNetwork(module.eval(), timesteps=timesteps, input_format=values)
    folded = fold(trace(network))
    inputs = np.random.default_rng(0).integers(0, 16, (8, timesteps, *shape))
    found = check_fold(network, folded, inputs)
    assert found.agrees and found.spikes_compared and not found.samples_undecided
    fired = simulate(folded, inputs).spikes
    assert any(0.001 < each.mean() < 0.999 for each in fired.values())


@pytest.mark.parametrize("name", BY_HAND)
def test_neurons_by_hand_come_in(name):
    torch.manual_seed(0)
    assert_comes_in(BY_HAND[name](), FEATURES)


@pytest.mark.parametrize("timesteps", [1, 2, 8])
def test_any_number_of_steps_comes_in(timesteps):
    torch.manual_seed(0)
    assert_comes_in(Net(hard), FEATURES, timesteps)


@pytest.mark.parametrize("name", LIBRARIES)
def test_neurons_of_other_libraries_come_in(name):
    torch.manual_seed(0)
    assert_comes_in(LIBRARIES[name](), FEATURES)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_come_in(name):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    assert_comes_in(make(), shape)


# ---- rejections ------------------------------------------------------------------------------------


def attention(net, x):
    return net.fc2(net.fc1(x) * net.fc1(x).flip(-1))


def skips_a_step(net, x):
    out = hard(net, x)
    return out[::2].mean(0)


REJECTED = {
    "attention": (attention, r"^forward, test_front_door.py, line \d+: a product of two values that change"),
    "divides": (
        lambda net, x: net.fc2(net.fc1(x) / x.sum()),
        "a division by a value that depends on the input",
    ),
    "sorts": (lambda net, x: net.fc1(x).sort().values, r"line \d+: the operation 'sort'"),
    "crashes": (lambda net, x: undefined_name, "NameError"),  # noqa: F821
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_no_chip_computes_is_named_by_its_line(name):
    forward, message = REJECTED[name]
    with pytest.raises(FrontendError, match=message):
        trace(Net(forward), FEATURES, T)


def test_time_steps_are_tried_before_they_are_advised():
    with pytest.raises(FrontendError, match=rf"runs {T} time steps, but 4 are given. Give --timesteps {T}.$"):
        trace(Net(static), FEATURES, 4)
    trace(Net(static), FEATURES, T)
