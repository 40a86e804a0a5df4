"""Neurons that forward computes by itself: recognized, they fire the same spikes; others are named."""

import numpy as np
import pytest
import torch
from networks import input_format
from torch import nn

from mpbn_deploy.base import FrontendError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.nn import SpikingNetwork
from mpbn_deploy.verify.folding import check_fold

BATCH = 1  # samples while a module is read
T, FEATURES, HIDDEN, OUTPUTS = 6, 12, 10, 4


class Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        return (v > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Loop(nn.Module):
    """The whole neuron in forward, as a first network in plain PyTorch; `sent` are its spikes."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, OUTPUTS)
        self.sent = []

    def forward(self, x):
        v, out = torch.zeros(len(x), HIDDEN), 0
        for _ in range(T):
            v = 0.75 * v + self.fc1(x)
            s = (v > 1.0).float()
            v = v * (1 - s)
            self.sent.append(s)
            out = out + self.fc2(s)
        return out / T


class Subtracts(Loop):
    """A membrane that approaches its input, >=, a subtraction, and a leaking readout."""

    def forward(self, x):
        v, out = torch.zeros_like(self.fc1(x)), 0
        for _ in range(T):
            v = v + (self.fc1(x) - v) / 2
            s = torch.ge(v, 1.0).to(v.dtype).type_as(v)
            v = v - s.detach()
            self.sent.append(s)
            out = 0.5 * out + self.fc2(s)
        return out


class Never(Loop):
    def forward(self, x):
        v, sent = 0, []
        for _ in range(T):
            v = v * 0.5 + self.fc1(x) + self.fc1(x / 2)
            sent.append(torch.heaviside(v - 1, torch.tensor(0.0, dtype=v.dtype)))
        self.sent = sent
        return self.fc2(torch.stack(sent)).mean(0)


class InPlace(Loop):
    def forward(self, x):
        v, sent = torch.zeros(len(x), HIDDEN, dtype=x.dtype), []
        for _ in range(T):
            v = v.clone().mul_(0.5).add_(self.fc1(x))
            s = v > 0.5
            self.sent.append(s)
            sent.append(self.fc2(s.float()))
            v = v.masked_fill(s, 0.0)
        return torch.stack(sent)


class Inverted(Loop):
    def forward(self, x):
        v, sent = 0, []
        for _ in range(T):
            v = v * 0.5 + self.fc1(x)
            s = v > 0.5
            self.sent.append(s)
            sent.append(self.fc2(s.float()))
            v = v * ~s
        return torch.stack(sent)


class LifSpike(nn.Module):
    """As in much published code: [B, T, ...], a surrogate gradient."""

    def __init__(self, threshold):
        super().__init__()
        self.threshold, self.sent = threshold, []

    def forward(self, x):
        v, spikes = 0, []
        for step in range(x.shape[1]):
            v = v * 0.5 + x[:, step, ...]
            s = Surrogate.apply(v - self.threshold)
            v = (1 - s) * v
            spikes.append(s)
        self.sent = spikes
        return torch.stack(spikes, dim=1)


class BatchFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (nn.Linear(*sizes) for sizes in ((12, 10), (10, 8), (8, 4)))
        self.lif1, self.lif2 = LifSpike(1.0), LifSpike(0.5)

    def forward(self, x):
        x = self.lif1(self.fc1(x.flatten(0, 1)).view(-1, T, HIDDEN))
        return self.fc3(self.lif2(self.fc2(x)))

    @property
    def sent(self):
        return self.lif2.sent


class StepLif(nn.Module):
    """Keeps its membrane; leak and threshold are learned."""

    def __init__(self):
        super().__init__()
        self.v, self.sent = None, []
        self.leak, self.threshold = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(0.75))

    def forward(self, x):
        if self.v is None:
            self.v = torch.zeros_like(x)
        self.v = self.leak * self.v + x
        s = (self.v > self.threshold).float()
        self.v = torch.where(s.bool(), torch.zeros_like(self.v), self.v)
        self.sent.append(s)
        return s


class Steps(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(12, 10), StepLif(), nn.Linear(10, 8), StepLif(), nn.Linear(8, 4))

    @property
    def sent(self):
        return self[3].sent


class PerChannel(Loop):
    """Leaks and thresholds of each neuron, and a reset to another value than it starts from."""

    def forward(self, x):
        leak, threshold = torch.linspace(0.25, 0.75, HIDDEN), torch.linspace(0.5, 1.5, HIDDEN)
        v, out = torch.zeros(len(x), HIDDEN), 0
        for _ in range(T):
            v = leak * v + self.fc1(x)
            s = (v > threshold).float()
            v = v * (1 - s) + 0.25 * s
            self.sent.append(s)
            out = out + self.fc2(s)
        return out / T


class Once(Loop):
    """The first layer computed once, and expanded over time; masked writes into a tensor of all steps."""

    def forward(self, x):
        x = self.fc1(x).unsqueeze(0).expand(T, -1, -1)
        v, spikes = torch.zeros_like(x[0]), torch.zeros_like(x)
        for step in range(T):
            v = 0.5 * v + x[step]
            s = torch.zeros_like(v)
            s[v > 1.0] = 1
            v = torch.where(s.bool(), torch.zeros_like(v), v)
            spikes[step] = s
            self.sent.append(s)
        return self.fc2(spikes).mean(0)


class OwnNorm(Loop):
    """MPBN by hand: a norm of a copy of the membrane is compared; gains of both signs."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.norm.weight.data = torch.linspace(-1, 1.25, HIDDEN)
        self.norm.running_mean = torch.linspace(-0.5, 0.5, HIDDEN)

    def forward(self, x):
        v, out = torch.zeros(len(x), HIDDEN), 0
        for _ in range(T):
            v = 0.5 * v + self.fc1(x)
            s = (self.norm(v) > 0.5).float()
            v = v * (1 - s)
            self.sent.append(s)
            out = out + self.fc2(s)
        return out / T


class OwnNormSubtracts(OwnNorm):
    def forward(self, x):
        v, out = torch.zeros(len(x), HIDDEN), 0
        for _ in range(T):
            v = 0.5 * v + self.fc1(x)
            s = Surrogate.apply(self.norm(v) - 0.5)
            v = v - s
            self.sent.append(s)
            out = out + self.fc2(s)
        return out / T


class Recurrent(Loop):
    """A recurrence by hand."""

    def __init__(self):
        super().__init__()
        self.again = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        v, s, out = torch.zeros(len(x), HIDDEN), torch.zeros(len(x), HIDDEN), 0
        for _ in range(T):
            v = 0.5 * v + self.fc1(x) + self.again(s)
            s = (v > 1.0).float()
            v = v - s
            self.sent.append(s)
            out = out + self.fc2(s)
        return out / T


NETWORKS = {  # the module, the name of the neurons compared, their leak, and whether a spike resets to zero
    "loop": (Loop, "fc1_spikes", 0.75, True),
    "subtracts": (Subtracts, "fc1_spikes", 0.5, False),
    "never resets": (Never, "fc1_spikes", 0.5, False),
    "in place": (InPlace, "fc1_spikes", 0.5, True),
    "inverted": (Inverted, "fc1_spikes", 0.5, True),
    "batch first": (BatchFirst, "lif2", 0.5, True),
    "step by step": (Steps, "3", 0.5, True),
    "once": (Once, "fc1_spikes", 0.5, True),
    "own norm": (OwnNorm, "fc1_spikes", 0.5, True),
    "own norm that subtracts": (OwnNormSubtracts, "fc1_spikes", 0.5, False),
    "recurrent": (Recurrent, "fc1_spikes", 0.5, False),
    "per channel": (PerChannel, "fc1_spikes", np.linspace(0.25, 0.75, HIDDEN, dtype=np.float32), True),
}


def on_a_grid(module):
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.weight.data = torch.randint(-8, 11, part.weight.shape) / 16
            part.bias.data = torch.randint(-2, 6, part.bias.shape) / 16
    return module.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_spikes_fire(name):
    make, path, leak, resets = NETWORKS[name]
    module = on_a_grid(make())
    network = SpikingNetwork(module, timesteps=T, input_format=input_format((FEATURES,)))
    trained = trace(network)
    assert not module.sent  # it is left as it was
    neurons = {
        operation.name: operation.kind
        for operation in trained.operations
        if type(operation.kind).__name__ == "Spike"
    }
    assert np.allclose(neurons[path].leak, leak, atol=1e-7) and (neurons[path].subtrahend is None) == resets
    inputs = np.random.default_rng(0).integers(0, 3, (30, FEATURES))
    folded = fold(trained)
    check = check_fold(network, folded, inputs)
    assert check.spikes_mismatched == 0 < check.spikes_compared
    given = network.normalize(torch.tensor(inputs, dtype=torch.float32))
    with torch.no_grad():
        if make is Steps:
            output = torch.stack([module(given) for _ in range(T)]).mean(0)
        else:
            output = module(given[:, None].expand(-1, T, -1) if make is BatchFirst else given)
    found = simulate(folded, inputs)
    theirs = torch.stack([each.bool() for each in module.sent], dim=1).numpy()
    assert theirs.any() and np.array_equal(found.spikes[path], theirs)
    if make in (InPlace, Inverted):
        output = output.mean(0)
    elif make is BatchFirst:
        output = output.mean(1)
    assert np.allclose(found.outputs, output.numpy(), atol=1e-5)


def test_another_number_of_time_steps_is_named_where_their_mean_is_returned():
    with pytest.raises(FrontendError, match=f"its forward runs {T} time steps, but {T + 1} are given"):
        trace(on_a_grid(Loop()), (FEATURES,), T + 1)


class ResetsElsewhere(Loop):
    def reset(self, v, s):
        return v * (1 - s) + 0.25 * s

    def update(self, v, x, step):
        return 0.75 * v + x

    def fires(self, v, step):
        return v > 1.0

    def forward(self, x):
        v, out = torch.zeros(len(x), HIDDEN), 0
        for step in range(T):
            v = self.update(v, self.fc1(x), step)
            s = self.fires(v, step).float()
            v = self.reset(v, s)
            out = out + self.fc2(s)
        return out


class Halves(ResetsElsewhere):
    def reset(self, v, s):
        return v - 0.5 * v * s


class KeepsWhenFired(ResetsElsewhere):
    """A slip: v * s instead of v * (1 - s)."""

    def reset(self, v, s):
        return v * s


class Tires(ResetsElsewhere):
    def reset(self, v, s):
        return v * (1 - s)

    def fires(self, v, step):
        return v > 1.0 + step


class Adapts(Tires):
    """Raises its threshold with every spike."""

    def __init__(self):
        super().__init__()
        self.raised = None

    def reset(self, v, s):
        self.raised = 0.5 * self.raised + s
        return super().reset(v, s)

    def threshold(self, v):
        self.raised = torch.zeros_like(v) if self.raised is None else self.raised
        return 1.0 + self.raised

    def fires(self, v, step):
        return v > self.threshold(v)


class AdaptsByDifference(Adapts):
    def fires(self, v, step):
        return Surrogate.apply(v - self.threshold(v))


class AdaptsInSteps(Adapts):
    """Computes one time step."""

    v = 0.0

    def forward(self, x):
        self.v = 0.75 * self.v + self.fc1(x)
        s = self.fires(self.v, 0).type_as(x)
        self.v = self.reset(self.v, s)
        return self.fc2(s)


class Grows(Tires):
    def update(self, v, x, step):
        return 1.5 * v + x

    def fires(self, v, step):
        return v > 1.0


class Weakens(Grows):
    def update(self, v, x, step):
        return v / (1 + step) + x


class Clamps(Grows):
    def update(self, v, x, step):
        return 0.5 * v.clamp(min=0) + x


class Squares(Grows):
    def fires(self, v, step):
        return v * v > 1


class Branches(Grows):
    """Sends something else for other numbers of samples, which one run does not show."""

    def update(self, v, x, step):
        return 0.5 * v + (x if len(x) == BATCH else -x)


HERE = r"^forward, test_handwritten.py, line \d+"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (KeepsWhenFired, f"{HERE}: a neuron that keeps its membrane only if it fires"),
        (Halves, rf"{HERE}: a neuron in which a spike leaves 0\.5 of the membrane"),
        (
            Tires,
            f"{HERE}: a neuron whose threshold is 2 in time step 1 and 6 in the last. Parameters that differ",
        ),
        (
            Adapts,
            f"{HERE}: a product of two values that change, as in attention or with an adaptive threshold",
        ),
        (AdaptsByDifference, f"{HERE}: .* adaptive threshold"),
        (AdaptsInSteps, f"{HERE}: .* adaptive threshold"),
        (Weakens, rf"{HERE}: a neuron whose leak is 0\.333333 in time step 2"),
        (Grows, rf"{HERE}: a neuron whose membrane is multiplied by 1\.5 in each step. 0 to 1 is supported"),
        (Clamps, rf"{HERE}: a clamp: the value is cut at a limit \(clamp\)"),
        (Squares, rf"{HERE}: a product of two values that change, .* \(mul\)"),
        (Branches, r"^fc1_spikes: \d+ of \d+ membranes of the module, called with .*, differ from those"),
    ],
)
def test_others_are_named(make, message):
    with pytest.raises(FrontendError, match=message):
        trace(on_a_grid(make()), (FEATURES,), T)
