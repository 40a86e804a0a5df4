"""Modules in every style of snnTorch, SpikingJelly and norse: folded, they fire the same spikes."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from networks import input_format
from torch import nn
from torch.nn import functional

from mpbn_deploy.base import FrontendError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.nn import SpikingNetwork
from mpbn_deploy.verify.folding import check_fold

BATCH = 1  # samples while a module is read
T, SAMPLES, FEATURES = 6, 30, 12
PICTURE = (2, 8, 8)

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def libraries():
    for name in ("snntorch", "spikingjelly", "norse"):
        pytest.importorskip(name, reason=f"{name} is not installed (pip install {name})")


def on_a_grid(module):
    """Weights are multiples of 1/16, so that float32 sums exactly."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            part.weight.data = torch.randint(-8, 11, part.weight.shape) / 16
            part.bias.data = torch.randint(-2, 6, part.bias.shape) / 16
    return module.eval()


# ---- snnTorch -----------------------------------------------------------------------------------


class Tutorial(nn.Module):
    """snnTorch's tutorial 5: a loop over steps with explicit membranes, on a constant input."""

    def __init__(self, **options):
        import snntorch as snn

        super().__init__()
        options = {"beta": 0.5, **options}
        self.fc1 = nn.Linear(FEATURES, 10)
        self.lif1 = snn.Leaky(**options)
        self.fc2 = nn.Linear(10, 4)
        self.lif2 = snn.Leaky(**options)

    def forward(self, x):
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spk2_rec, mem2_rec = [], []
        for _ in range(T):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spk2_rec.append(spk2)
            mem2_rec.append(mem2)
        return torch.stack(spk2_rec, dim=0), torch.stack(mem2_rec, dim=0)


class TimeFirst(Tutorial):
    def forward(self, x):
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spk2_rec = []
        for step in range(x.size(0)):
            spk1, mem1 = self.lif1(self.fc1(x[step]), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spk2_rec.append(spk2)
        return torch.stack(spk2_rec)


class BatchFirst(Tutorial):
    def forward(self, x):
        mem1, mem2, total = self.lif1.init_leaky(), self.lif2.init_leaky(), 0
        for step in range(x.shape[1]):
            spk1, mem1 = self.lif1(self.fc1(x[:, step, :].float()), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            total = total + spk2
        return total / x.shape[1]


class Scales(Tutorial):
    """Arithmetic with constants, on the inputs and between layers; in place, too."""

    def forward(self, x):
        spikes = []
        for given in x * 2 - 1:
            spk1, _ = self.lif1(self.fc1((given - 0.5) / 4).mul_(2))
            spikes.append(0.5 * self.lif2(1 - self.fc2(spk1))[0])
        return torch.stack(spikes)


class ScalesConstant(Tutorial):
    def forward(self, x):
        x -= 0.5
        return super().forward(x.div_(4) + torch.linspace(0, 1, 5)[-1])


class BatchFirstAtOnce(Tutorial):
    """Layers compute all steps at once, as one batch; only neurons loop."""

    def forward(self, x):
        x = (x / 2 - 0.25).flatten(0, 1)
        x = self.fc1(x).unflatten(0, (-1, T))
        x = torch.stack([self.lif1(x[:, step])[0] for step in range(T)], dim=1)
        x = self.fc2(x)
        return torch.stack([self.lif2(step)[0] for step in x.unbind(1)], dim=1).mean(1)


class Iterated(Tutorial):
    def forward(self, x):
        spikes = []
        for given in x:
            spikes.append(self.lif2(self.fc2(self.lif1(self.fc1(given))[0]))[0])
        return sum(spikes)


class Readout(Tutorial):
    """A matrix on the mean of the spikes."""

    def forward(self, x):
        mem1, spikes = self.lif1.init_leaky(), []
        for given in x.unbind(0):
            spk1, mem1 = self.lif1(self.fc1(given), mem1)
            spikes.append(spk1)
        return self.fc2(torch.stack(spikes).mean(0))


class Regression(nn.Module):
    """NeuroBench's SNN2: the output is a membrane that never resets, and states are attributes."""

    def __init__(self):
        import snntorch as snn

        super().__init__()
        self.fc1, self.fc_out = nn.Linear(FEATURES, 10), nn.Linear(10, 2)
        self.lif1 = snn.Leaky(beta=0.5, reset_mechanism="zero")
        self.lif_out = snn.Leaky(beta=0.75, reset_mechanism="none")
        self.mem1, self.mem2 = None, None

    def single_forward(self, x):
        spk1, self.mem1 = self.lif1(self.fc1(x.squeeze()), self.mem1)
        _, self.mem2 = self.lif_out(self.fc_out(spk1), self.mem2)
        return self.mem2.clone()

    def forward(self, x):
        return torch.stack([self.single_forward(x[step, ...]) for step in range(x.shape[0])])


class LastMembrane(Regression):
    """Returns the membrane after the last step only, which a neuron keeps as an attribute."""

    def forward(self, x):
        for step in x:
            self.lif_out(self.fc_out(self.lif1(self.fc1(step))[0]))
        return self.lif_out.mem


class Convolutions(nn.Module):
    """As in tutorial 6: pooling by functions, and flattening by view; a residual addition."""

    def __init__(self):
        import snntorch as snn

        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.lif1, self.lif2, self.lif3 = (snn.Leaky(beta=0.5, threshold=level) for level in (1.0, 2.0, 6.0))
        self.fc = nn.Linear(64, 3)

    def forward(self, x):
        mem1, mem2, mem3 = (lif.init_leaky() for lif in (self.lif1, self.lif2, self.lif3))
        sent = []
        for step in range(T):
            spk1, mem1 = self.lif1(self.conv1(x[step]), mem1)
            spk1 = functional.max_pool2d(spk1, 2)
            spk2, mem2 = self.lif2(self.conv2(spk1) + spk1, mem2)
            spk2 = functional.dropout(spk2, 0.3, self.training)
            spk3, mem3 = self.lif3(self.fc(spk2.view(x.shape[1], -1)), mem3)
            sent.append(spk3)
        return torch.stack(sent), mem3


def hidden(output=True):
    """Neurons that keep their states, the last with output=True: one step per call."""
    import snntorch as snn

    leaky = {"beta": 0.5, "init_hidden": True}
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        snn.Leaky(**leaky),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 5),
        snn.Leaky(output=output, **leaky),
    )


# ---- SpikingJelly -------------------------------------------------------------------------------


class StepByStep(nn.Module):
    """step_mode "s", the loop inside."""

    def __init__(self):
        from spikingjelly.activation_based import layer, neuron

        super().__init__()
        lif = {"tau": 2.0, "v_threshold": 0.75}
        self.net = nn.Sequential(
            layer.Conv2d(2, 4, 3),
            neuron.LIFNode(**lif),
            layer.Flatten(),
            layer.Linear(144, 5),
            neuron.LIFNode(**lif),
        )

    def forward(self, x):
        total = 0.0
        for _ in range(T):
            total += self.net(x)
        return total / T


class AllSteps(StepByStep):
    """step_mode "m", with a repeated picture."""

    def __init__(self):
        from spikingjelly.activation_based import functional as theirs

        super().__init__()
        theirs.set_step_mode(self, "m")

    def forward(self, x):
        return self.net(x.unsqueeze(0).repeat(T, 1, 1, 1, 1)).mean(0)


class Containers(nn.Module):
    """step_mode "m", with containers that merge time and batch."""

    def __init__(self):
        from spikingjelly.activation_based import functional as theirs, layer, neuron

        super().__init__()
        self.conv = layer.SeqToANNContainer(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4))
        self.first, self.last = neuron.IFNode(v_threshold=1.5), neuron.LIFNode(tau=2.0)
        self.fc = layer.SeqToANNContainer(nn.Flatten(), nn.Linear(144, 5))
        theirs.set_step_mode(self, "m")

    def forward(self, x):
        return self.last(self.fc(self.first(self.conv(x))))


def single():
    """step_mode "s", the loop outside."""
    from spikingjelly.activation_based import neuron

    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        neuron.LIFNode(),
        nn.Flatten(),
        nn.Linear(144, 5),
        neuron.IFNode(),
    )


# ---- norse --------------------------------------------------------------------------------------


def sequential_state():
    import norse.torch as norse

    fast = norse.LIFBoxParameters(tau_mem_inv=torch.tensor(500.0), v_th=torch.tensor(0.5))
    return norse.SequentialState(
        nn.Linear(FEATURES, 10), norse.LIFBoxCell(fast), nn.Linear(10, 4), norse.IAFCell()
    )


def sequential_currents():
    import norse.torch as norse

    numbers = {
        "tau_mem_inv": torch.tensor(250.0),
        "tau_syn_inv": torch.tensor(500.0),
        "v_th": torch.tensor(0.5),
    }
    cells = [norse.LIFCell(norse.LIFParameters(**numbers)) for _ in range(2)]
    return norse.SequentialState(nn.Linear(FEATURES, 10), cells[0], nn.Linear(10, 4), cells[1])


class NorseLoop(nn.Module):
    def __init__(self):
        import norse.torch as norse
        from norse.torch.functional.reset import reset_subtract

        super().__init__()
        numbers = {"tau_mem_inv": torch.tensor(250.0), "v_th": torch.tensor(0.25)}
        self.fc1, self.fc2 = nn.Linear(FEATURES, 10), nn.Linear(10, 4)
        self.lif1 = norse.LIFBoxCell(norse.LIFBoxParameters(reset_method=reset_subtract, **numbers))
        self.lif2 = norse.LIFBoxCell(norse.LIFBoxParameters(**numbers))

    def forward(self, x):
        first = second = None
        sent = []
        for step in x:
            z, first = self.lif1(self.fc1(step), first)
            z, second = self.lif2(self.fc2(z), second)
            sent.append(z)
        return torch.stack(sent)


MODULES = {  # how the module is made, its input shape, and the axes of its input
    "snntorch, loop": (Tutorial, (FEATURES,), "B"),
    "snntorch, loop that resets to zero": (lambda: Tutorial(reset_mechanism="zero"), (FEATURES,), "B"),
    "snntorch, learned": (lambda: Tutorial(learn_beta=True, learn_threshold=True), (FEATURES,), "B"),
    "snntorch, hidden states in a loop": (lambda: Iterated(init_hidden=False), (FEATURES,), "TB"),
    "snntorch, time first": (TimeFirst, (FEATURES,), "TB"),
    "snntorch, batch first": (BatchFirst, (FEATURES,), "BT"),
    "snntorch, batch first, layers at once": (BatchFirstAtOnce, (FEATURES,), "BT"),
    "snntorch, arithmetic": (Scales, (FEATURES,), "TB"),
    "snntorch, arithmetic on a constant input": (ScalesConstant, (FEATURES,), "B"),
    "snntorch, readout": (Readout, (FEATURES,), "TB"),
    "snntorch, convolutions": (Convolutions, PICTURE, "TB"),
    "snntorch, sequential": (hidden, PICTURE, "step"),
    "snntorch, sequential without output": (lambda: hidden(output=False), PICTURE, "step"),
    "spikingjelly, s": (single, PICTURE, "step"),
    "spikingjelly, s in a loop": (StepByStep, PICTURE, "B"),
    "spikingjelly, m": (AllSteps, PICTURE, "B"),
    "spikingjelly, containers": (Containers, PICTURE, "TB"),
    "norse, sequential": (sequential_state, (FEATURES,), "step"),
    "norse, currents": (sequential_currents, (FEATURES,), "step"),
    "norse, loop": (NorseLoop, (FEATURES,), "TB"),
}


NEURONS = [
    "Leaky",
    "Synaptic",
    "RLeaky",
    "RSynaptic",
    "LIFNode",
    "IFNode",
    "LIFCell",
    "LIFBoxCell",
    "IAFCell",
]


def reset(module):
    from snntorch import utils
    from spikingjelly.activation_based.functional import reset_net

    utils.reset(module)
    reset_net(module)


def their_spikes(module, steps, axes):
    """Run a module in its own way on [T, samples, *shape]; return the spikes of its neurons by path."""
    sent = {}
    hooks = [
        part.register_forward_hook(
            lambda _m, _i, out, path=path: sent.setdefault(path, []).append(
                out[0] if isinstance(out, tuple) else out
            )
        )
        for path, part in module.named_modules()
        if type(part).__name__ in NEURONS
    ]
    reset(module)
    steps = steps.clone()  # forward may write into it
    with torch.no_grad():
        if axes == "step":
            state = ()
            for step in steps:
                output = module(step, *state)
                state = (output[1],) if "norse" in type(module).__module__ else ()
        else:
            module({"B": steps[0], "TB": steps, "BT": steps.transpose(0, 1)}[axes])
    for hook in hooks:
        hook.remove()
    whole = {path: spikes[0] if len(spikes) == 1 else torch.stack(spikes) for path, spikes in sent.items()}
    return {path: spikes.transpose(0, 1).bool().numpy() for path, spikes in whole.items()}


@pytest.mark.parametrize("name", MODULES)
def test_every_style_fires_the_same_spikes(name):
    make, shape, axes = MODULES[name]
    module = on_a_grid(make())
    network = fold(trace(module, shape, T))
    values = np.random.default_rng(1).integers(0, 3, (SAMPLES, T, *shape))
    if axes == "B":
        values = np.repeat(values[:, :1], T, axis=1)
    theirs = their_spikes(module, torch.from_numpy(values.swapaxes(0, 1)).float(), axes)
    ours = simulate(network, values)
    assert {path for path in theirs if theirs[path].any()} <= set(ours.spikes)
    for path, spikes in theirs.items():
        if path in ours.spikes:
            assert 0.01 < spikes.mean() < 0.99, path
            np.testing.assert_array_equal(spikes, ours.spikes[path], path)


@pytest.mark.parametrize("make", [Regression, LastMembrane])
def test_a_membrane_that_never_resets_is_a_readout(make):
    module = on_a_grid(make())
    network = fold(trace(module, (FEATURES,), T))
    assert network.output.neuron.leak == 0.75
    values = np.random.default_rng(1).integers(0, 3, (SAMPLES, T, FEATURES))
    reset(module)
    with torch.no_grad():
        theirs = module(torch.from_numpy(values.swapaxes(0, 1)).float())
    ours = simulate(network, values)
    assert 0.01 < ours.spikes["lif1"].mean() < 0.99
    np.testing.assert_allclose(theirs.reshape(-1, SAMPLES, 2)[-1], ours.outputs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["snntorch, readout", "snntorch, batch first", "spikingjelly, m"])
def test_outputs_are_means_over_time(name):
    make, shape, axes = MODULES[name]
    module = on_a_grid(make())
    values = np.random.default_rng(1).integers(0, 3, (SAMPLES, *shape))
    steps = torch.from_numpy(values).float().expand(T, *values.shape)
    reset(module)
    with torch.no_grad():
        theirs = module({"B": steps[0], "TB": steps, "BT": steps.transpose(0, 1)}[axes])
    np.testing.assert_allclose(theirs, simulate(fold(trace(module, shape, T)), values).outputs, atol=1e-5)


def test_a_module_is_left_as_it_was():
    module = on_a_grid(hidden()).train()
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    trace(module, PICTURE, T)
    assert module.training and module[0].weight.dtype == torch.float32
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())
    assert not module[1]._forward_hooks and not module[1]._forward_pre_hooks


def test_the_range_and_normalization_of_a_spiking_network_count():
    network = SpikingNetwork(on_a_grid(hidden()), timesteps=T, input_format=input_format(PICTURE))
    trained = trace(network)
    assert trained.timesteps == T and trained.input is network.input_format
    assert [operation.name for operation in trained.operations] == ["0", "1", "2", "flatten", "4", "5"]


def test_one_beta_for_each_neuron_if_they_are_equal():
    import snntorch as snn

    body = nn.Sequential(nn.Linear(4, 3), snn.Leaky(beta=torch.full((3,), 0.5), init_hidden=True))
    assert trace(body, (4,), 3).operations[-1].kind.leak == 0.5


@pytest.mark.parametrize("mechanism", ["subtract", "zero"])
@pytest.mark.parametrize("kind", ["Leaky", "Synaptic"])
def test_betas_and_alphas_per_neuron(kind, mechanism):
    import snntorch as snn

    options = {"init_hidden": True, "reset_mechanism": mechanism, "reset_delay": mechanism == "subtract"}
    options |= {"alpha": torch.arange(10) / 16} if kind == "Synaptic" else {}
    hidden = getattr(snn, kind)(beta=(1 + torch.arange(10)) / 16, **options)
    module = on_a_grid(nn.Sequential(nn.Linear(FEATURES, 10), hidden, nn.Linear(10, 3)))
    network = fold(trace(module, (FEATURES,), T))
    np.testing.assert_array_equal(network.layers[-2].neuron.leak, (1 + np.arange(10)) / 16)
    values = np.random.default_rng(1).integers(0, 3, (SAMPLES, T, FEATURES))
    theirs = their_spikes(module, torch.from_numpy(values.swapaxes(0, 1)).float(), "step")["1"]
    assert 0.01 < theirs.mean() < 0.99
    np.testing.assert_array_equal(theirs, simulate(network, values).spikes["1"])


@pytest.mark.parametrize("kind", ["Synaptic", "RLeaky", "RSynaptic"])
def test_explicit_states_of_other_neurons_in_a_loop(kind):
    """Synaptic returns its current too, and recurrent neurons take their own spikes."""
    import snntorch as snn

    options = {"beta": 0.5, **({} if kind == "RLeaky" else {"alpha": 0.25})}
    options |= {} if kind == "Synaptic" else {"linear_features": 10}

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(FEATURES, 10), nn.Linear(10, 3)
            self.lif1 = getattr(snn, kind)(**options)

        def forward(self, x):
            given = getattr(self.lif1, f"init_{kind.lower()}")()
            sent = []
            for step in x:
                given = self.lif1(self.fc1(step), *given)
                sent.append(self.fc2(given[0]))
                given = given[1:] if kind == "Synaptic" else given
            return torch.stack(sent)

    module = on_a_grid(Loop())
    network = fold(trace(module, (FEATURES,), T))
    values = np.random.default_rng(1).integers(0, 3, (SAMPLES, T, FEATURES))
    theirs = their_spikes(module, torch.from_numpy(values.swapaxes(0, 1)).float(), "TB")["lif1"]
    assert 0.01 < theirs.mean() < 0.99
    np.testing.assert_array_equal(theirs, simulate(network, values).spikes["lif1"])


# ---- what is rejected ---------------------------------------------------------------------------


class Feedback(Tutorial):
    def forward(self, x):
        spk1, sent = torch.zeros(1), []
        for step in x:
            spk1, _ = self.lif1(self.fc1(step) + spk1)
            sent.append(self.fc2(spk1))
        return torch.stack(sent)


class Membranes(Tutorial):
    def forward(self, x):
        return torch.stack([self.lif1(self.fc1(step))[1] for step in x])


class MeanMembrane(Regression):
    def forward(self, x):
        return super().forward(x).mean(0)


class SendsMembrane(Regression):
    def forward(self, x):
        return torch.stack([self.fc_out(self.lif1(self.fc1(step))[1]) for step in x])


class Current(Tutorial):
    """Its output is changed for other numbers of samples than are recorded."""

    def forward(self, x):
        sent = torch.stack([self.fc2(self.lif1(self.fc1(step))[0]) for step in x])
        return sent if x.shape[1] == BATCH else (sent * 2).detach()


class LastStep(Tutorial):
    def forward(self, x):
        for step in x:
            spikes, _ = self.lif1(self.fc1(step))
        return spikes


class Branches(Tutorial):
    def forward(self, x):
        sent = []
        for step in x:
            given = self.fc1(step)
            sent.append(self.lif1(given if step.sum() < 1e4 else given.detach() + 0)[0])
        return torch.stack(sent)


class Careless(Tutorial):
    """Forgets the membrane in every step."""

    def forward(self, x):
        return torch.stack([self.lif1(self.fc1(step), torch.zeros(len(step), 10).to(step))[0] for step in x])


class Adapts(Tutorial):
    """Raises the threshold where many neurons fire."""

    def forward(self, x):
        spikes = []
        for given in x:
            spikes.append(self.lif1(self.fc1(given))[0])
            self.lif1.threshold = self.lif1.threshold + spikes[-1].mean()
        return torch.stack(spikes)


class Depends(Tutorial):
    def forward(self, x):
        return torch.stack(
            [self.lif1(self.fc1(step) * 1.0 if x.max() < 2 else self.fc1(-step))[0] for step in x]
        )


class Encodes(Tutorial):
    def forward(self, x):
        return torch.stack([self.lif1(self.fc1(torch.bernoulli(x)))[0] for _ in range(T)])


class ScalesItself(BatchFirst):
    def forward(self, x):
        return super().forward(x / x.max())


class Alternates(Tutorial):
    def forward(self, x):
        layers = [self.fc1, nn.Sequential(self.fc1, nn.Identity())]
        given = [layers[step % 2](x[step]) for step in range(len(x))]
        given = [each if step % 2 else each + each for step, each in enumerate(given)]
        return torch.stack([self.lif1(each)[0] for each in given])


class Shares(Tutorial):
    def forward(self, x):
        return torch.stack([self.lif1(self.lif1(self.fc1(step))[0])[0] for step in x])


class Gated(Tutorial):
    """Stacks products of spikes and membranes; the products are not supported, the stack is."""

    def forward(self, x):
        mem, products = self.lif1.init_leaky(), []
        for step in x:
            spikes, mem = self.lif1(self.fc1(step), mem)
            products.append(spikes * mem)
        return torch.stack(products)


class Empty(Tutorial):
    def forward(self, x):
        return torch.zeros(3)


class Takes(Tutorial):
    def forward(self, x, mem1, mem2):
        return self.lif1(self.fc1(x), mem1)


REJECTED = {
    "membranes": (Membranes, T, r"^lif1, .*: its membrane is the output, but it resets"),
    "sends membranes": (SendsMembrane, T, r"^lif1, .*: its membrane is sent on; only spikes can be sent"),
    "other outputs": (Current, T, "its outputs, called with .*, differ from those of the network read"),
    "time steps": (
        Tutorial,
        T + 1,
        f"its forward runs {T} time steps, but {T + 1} are given. Give --timesteps {T}",
    ),
    "adapts": (Adapts, T, "^Adapts: .* Adaptive thresholds, .* are not supported"),
    "branch": (Depends, T, r"^forward, test_styles.py, line \d+: takes a number out of its data \(if"),
    "encodes": (
        Encodes,
        T,
        r"^forward, test_styles.py, line \d+: draws random numbers \(bernoulli\), .*--data",
    ),
    "scales by itself": (ScalesItself, T, r"^forward, test_styles.py, line \d+: a maximum of values"),
    "shares": (Shares, T, "^lif1, .*: a neuron with 2 thresholds on one membrane"),
    "alternates": (Alternates, T, "^lif1, .*: a neuron that receives something else in time step 2"),
    "gated": (Gated, T, "receives a product of operation and spike, as a gate; synapses add"),
    "empty": (Empty, T, "forward returns nothing that was computed from its input"),
    "arguments": (
        Takes,
        T,
        r"forward fails for inputs of every kind that was tried, with B = 1 and T = 6:\n",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_be_followed_is_named(name):
    make, timesteps, message = REJECTED[name]
    with pytest.raises(FrontendError, match=message):
        trace(on_a_grid(make()), (FEATURES,), timesteps)


def test_multi_step_neurons_never_take_a_batch_for_time():
    """Flatten and Linear accept [B, 1, 3, 4] as [T, B, 3, 4] too, and would make another network of it."""
    from spikingjelly.activation_based import functional as theirs, layer, neuron

    module = nn.Sequential(layer.Flatten(), layer.Linear(12, 5), neuron.LIFNode(v_threshold=0.3))
    theirs.set_step_mode(module, "m")
    traced = trace(module, (1, 3, 4), T)  # compares spikes itself
    assert traced.operations[-1].shape == (5,)

    class Repeats(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = module

        def forward(self, x):
            return self.body(x.unsqueeze(0).repeat(T, 1, 1, 1, 1)).mean(0)

    with pytest.raises(FrontendError, match=f"runs {T} time steps, but {T + 1} are given"):
        trace(Repeats(), (1, 3, 4), T + 1)


def test_samples_that_the_first_layer_takes_flat():
    with pytest.raises(
        FrontendError, match=f"first Linear takes {FEATURES} features: give --input-shape {FEATURES}"
    ):
        trace(Tutorial(), (1, FEATURES // 4, 4), T)


def test_a_mean_of_membranes_weighs_the_time_steps():
    weights = trace(on_a_grid(MeanMembrane()), (FEATURES,), T).operations[-1].kind.gain[:, 0]
    assert np.all(np.diff(weights) < 0)


def test_a_readout_has_one_leak():
    import snntorch as snn

    class Leaks(Regression):
        def __init__(self):
            super().__init__()
            self.lif_out = snn.Leaky(beta=torch.tensor([0.25, 0.5]), reset_mechanism="none")

    with pytest.raises(FrontendError, match="weighs time steps differently for different outputs"):
        trace(on_a_grid(Leaks()), (FEATURES,), T)


def test_a_module_with_a_graph_of_gradients_inside_cannot_be_copied():
    module = Tutorial()
    module.kept = module.fc1.weight * 2
    with pytest.raises(FrontendError, match=r"^Tutorial: cannot be copied \(Only Tensors created explicitly"):
        trace(module, (FEATURES,), T)


def test_networks_of_a_library_are_made_of_layers():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = single()

        def forward(self, x):
            return self.layers(x)

    Network.__module__ = "spikingjelly.activation_based.model.own"
    operations = trace(on_a_grid(Network()), PICTURE, T).operations
    assert [each.name for each in operations if each.name != "flatten"] == [
        f"layers.{n}" for n in (0, 1, 2, 4, 5)
    ]


def test_a_module_that_repeats_its_input_is_compared_on_the_first_step_of_changing_samples():
    network = SpikingNetwork(on_a_grid(Tutorial()), timesteps=T, input_format=input_format((FEATURES,)))
    folded = fold(trace(network))
    values = np.random.default_rng(0).integers(0, 3, (5, T, FEATURES))
    changing = check_fold(network, folded, values)
    check = check_fold(network, folded, values[:, 0])
    assert (check.spikes_compared, check.spikes_mismatched) == (5 * T * 14, 0)
    assert (check.outputs_compared, check.outputs_mismatched) == (5 * 4, 0) and check.agrees
    assert asdict(changing) == {**asdict(check), "constant_inputs": True}
    assert "repeats one input, and got the first time step of each sample" in str(changing)
    first = SpikingNetwork(on_a_grid(TimeFirst()), timesteps=T, input_format=input_format((FEATURES,)))
    check = check_fold(first, fold(trace(first)), values)
    assert (check.spikes_compared, check.spikes_mismatched) == (5 * T * 14, 0)


class Watches(nn.Module):
    """Takes another path for spikes that no random input makes, so that running both shows no difference."""

    def __init__(self, look):
        super().__init__()
        self.net, self.look = hidden(), look

    def forward(self, x):
        spikes, _ = self.net(x)
        return 0 * spikes if self.look(spikes) else spikes


DECISIONS = {
    "if": lambda spikes: spikes.sum() > 1e9,
    "item": lambda spikes: spikes.sum().item() > 1e9,
    r"int\(\) or float\(\)": lambda spikes: float(spikes.sum()) > 1e9,
    "tolist": lambda spikes: 3.0 in spikes.flatten().tolist(),
    "item|if": lambda spikes: 3.0 in spikes,
    "equal": lambda spikes: torch.equal(spikes, spikes + 1),
    "allclose": lambda spikes: torch.allclose(spikes, spikes + 1),
    "numpy": lambda spikes: spikes.numpy().sum() > 1e9,
    "nonzero": lambda spikes: spikes.nonzero().numel() > 1e9,
    "unique": lambda spikes: len(spikes.unique()) > 2,
    "masked_select": lambda spikes: spikes.masked_select(spikes > 2).numel(),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_by_data_is_rejected_whatever_inputs_would_show(name):
    with pytest.raises(
        FrontendError,
        match=rf"^forward, .*, line \d+: takes a number out of its data \(.*{name}.*\), so",
    ):
        trace(on_a_grid(Watches(DECISIONS[name])), PICTURE, T)


def test_a_decision_by_shapes_and_types_is_none_by_data():
    look = lambda spikes: len(spikes) == 0 or spikes.size(1) == 0 or not spikes.is_floating_point()  # noqa: E731
    assert trace(on_a_grid(Watches(look)), PICTURE, T).timesteps == T


def test_a_neuron_that_no_chip_has_is_named_by_its_path():
    import norse.torch as norse
    import snntorch as snn
    from spikingjelly.activation_based import neuron

    for made in (
        snn.Alpha(alpha=0.9, beta=0.5, init_hidden=True),
        neuron.QIFNode(),
        neuron.IzhikevichNode(),
    ):
        body = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Identity(), made))
        with pytest.raises(FrontendError, match=r'^layer "1\.1", .*, line \d+: '):
            trace(body, (4,), T)
    with pytest.raises(FrontendError, match="in some time steps, its output does not depend on its input"):
        trace(norse.SequentialState(nn.Linear(4, 3), norse.LSNNCell()), (4,), T)


def outputs_of(module, values, style):
    """Run a module in float64 in its own way; return the mean of its outputs over time."""
    reset(module)
    steps = torch.tensor(values, dtype=torch.float64).transpose(0, 1)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            if style == "TB":
                found = module.double()(steps)
                found = found[0] if isinstance(found, tuple) else found
            else:
                state, sent = (), []
                for step in steps:
                    output = module.double()(step, *state)
                    state = (output[1],) if isinstance(output, tuple) and style == "state" else ()
                    sent.append(output[0] if isinstance(output, tuple) else output)
                found = torch.stack(sent)
    finally:
        torch.set_default_dtype(torch.float32)
    return found.mean(0).numpy()


def norse_cell(**numbers):
    import norse.torch as norse

    parameters = norse.LIFBoxParameters(**{name: torch.tensor(value) for name, value in numbers.items()})
    return norse.SequentialState(nn.Linear(FEATURES, 3), norse.LIFBoxCell(parameters))


def spikingjelly_step(make, **options):
    from spikingjelly.activation_based import neuron

    return nn.Sequential(nn.Linear(FEATURES, 10), getattr(neuron, make)(**options), nn.Linear(10, 3))


def voting():
    from spikingjelly.activation_based import layer, neuron

    return nn.Sequential(nn.Linear(FEATURES, 20), neuron.LIFNode(v_threshold=0.5), layer.VotingLayer(5))


def td_batch_norm():
    from spikingjelly.activation_based import functional as theirs, layer, neuron

    body = nn.Sequential(
        layer.Conv2d(2, 3, 3), layer.ThresholdDependentBatchNorm2d(alpha=1.0, v_th=1.0, num_features=3),
        neuron.IFNode(), layer.Flatten(), layer.Linear(108, 3),
    )  # fmt: skip
    theirs.set_step_mode(body, "m")
    return body


OTHERS = {  # networks of other libraries that nothing here names
    "norse, rest": (lambda: norse_cell(v_leak=0.5, tau_mem_inv=250.0, v_th=0.25), (FEATURES,), "state"),
    "norse, taus": (lambda: norse_cell(tau_mem_inv=[100.0, 200.0, 300.0], v_th=0.25), (FEATURES,), "state"),
    "v_reset": (lambda: spikingjelly_step("IFNode", v_reset=0.1), (FEATURES,), "step"),
    "SimpleLIF": (
        lambda: spikingjelly_step("SimpleLIFNode", tau=2.0, decay_input=False),
        (FEATURES,),
        "step",
    ),
    "OTTT": (lambda: spikingjelly_step("OTTTLIFNode", tau=2.0), (FEATURES,), "step"),
    "SLTT": (lambda: spikingjelly_step("SLTTLIFNode", tau=2.0, v_threshold=0.25), (FEATURES,), "step"),
    "voting": (voting, (FEATURES,), "step"),
    "tdBN": (td_batch_norm, PICTURE, "TB"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_neurons_that_nothing_names_come_in(name):
    make, shape, style = OTHERS[name]
    torch.manual_seed(0)
    module = make().eval()
    values = np.random.default_rng(1).integers(0, 3, (SAMPLES, T, *shape))
    found = simulate(fold(trace(module, shape, T)), values)
    assert any(0.01 < spikes.mean() < 0.99 for spikes in found.spikes.values())
    np.testing.assert_allclose(found.outputs, outputs_of(module, values, style), atol=1e-9)


def test_a_leak_below_zero_is_rejected():
    with pytest.raises(FrontendError, match="whose membrane is multiplied by -1 in each step"):
        trace(norse_cell(tau_mem_inv=2000.0), (FEATURES,), T)
