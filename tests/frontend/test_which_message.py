"""What any reader of modules must do: name the line, take no subclass for its parent, not crash."""

import numpy as np
import pytest
import torch
from torch import nn

from mpbn_deploy.base import FrontendError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.nn import LIF


class Layers(nn.Module):
    def __init__(self, neuron=None):
        super().__init__()
        self.first, self.last, self.neuron = nn.Linear(4, 3), nn.Linear(3, 2), neuron


class DependsOnData(Layers):
    def forward(self, x):
        if x.sum() > 0:
            x = -x
        return self.last(torch.sigmoid(self.first(x)))


class Activation(Layers):
    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class SomeSteps(Layers):
    """Runs seven time steps and returns the sum of five."""

    def forward(self, x):
        membrane, counted = self.neuron.init_leaky(), 0
        for step in range(7):
            spikes, membrane = self.neuron(self.first(x), membrane)
            if step >= 2:
                counted = counted + self.last(spikes)
        return counted


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (DependsOnData, r"test_which_message.py, line \d+: takes a number out of its data"),
        (Activation, r"test_which_message.py, line \d+: a rectifier \(relu\)"),
    ],
)
def test_the_line_that_no_chip_computes_is_named(module, said):
    with pytest.raises(FrontendError, match=said) as caught:
        trace(module(), (4,), 3)
    assert "torch.fx" not in str(caught.value)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("timesteps", "said"),
    [
        (4, "its forward runs 7 time steps, but 4 are given"),
        (5, "its forward runs 7 time steps, but 5 are given"),
    ],
)
def test_steps_that_are_not_returned_are_no_crash(timesteps, said):
    snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
    module = SomeSteps(snntorch.Leaky(beta=0.5, reset_mechanism="zero"))
    with pytest.raises(FrontendError, match=said):
        trace(module, (4,), timesteps)
    weights = trace(module, (4,), 7).operations[-1].kind.gain[:, 0]
    assert [bool(weight) for weight in weights] == [False] * 2 + [True] * 5


@pytest.mark.interop
@pytest.mark.parametrize("factor", [torch.ones(3), torch.tensor([1.0, 2.0, 1.0])])
def test_graded_spikes_are_factors_of_the_synapses_that_follow(factor):
    snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
    neuron = snntorch.Leaky(beta=0.5, reset_mechanism="zero", init_hidden=True, graded_spikes_factor=factor)
    module = nn.Sequential(nn.Linear(4, 3), neuron, nn.Linear(3, 2)).double()
    folded = fold(trace(module, (4,), 2))
    values = np.random.default_rng(0).integers(0, 6, (20, 4))
    neuron.reset_mem()
    with torch.no_grad():
        found = sum(module(torch.tensor(values, dtype=torch.float64)) for _ in range(2)) / 2
    counted = simulate(folded, values)
    assert counted.outputs.std() > 0
    np.testing.assert_allclose(counted.outputs, found.numpy(), atol=1e-6)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("name", "said"),
    [("ILIFNode", r"quantize.py, line \d+: a clamp"), ("LIAFNode", r"neuron.py, line \d+: a rectifier")],
)
def test_subclasses_of_known_neurons_are_not_their_parents(name, said):
    pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed (pip install spikingjelly)")
    from spikingjelly.activation_based import neuron

    if not hasattr(neuron, name):
        pytest.skip(f"this SpikingJelly has no {name}")
    made = getattr(neuron, name)(*((torch.relu, False) if name == "LIAFNode" else ()))
    with pytest.raises(FrontendError, match=rf'^layer "1.*{said}'):
        trace(nn.Sequential(nn.Linear(4, 3), made, nn.Linear(3, 2)), (4,), 2)

    class Tuned(neuron.LIFNode):
        def __init__(self):
            super().__init__(tau=4.0, decay_input=False)

    assert len(trace(nn.Sequential(nn.Linear(4, 3), Tuned(), nn.Linear(3, 2)), (4,), 2).operations) == 3


class Mixes(Layers):
    """Mixes steps, or samples, of the [T * B, ...] that a neuron of ours receives."""

    def __init__(self, mix):
        super().__init__(LIF(3))
        self.mix = mix

    def forward(self, x):
        return self.last(self.neuron(self.mix(self.first(x))))


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        (lambda x: x + x.roll(1, 0) / 2, "is read in another"),
        (lambda x: x - x.mean(0), "is read in another"),
        (lambda x: x.flip(0), "is read in another"),
        (lambda x: (x.view(3, -1, 3) - x.view(3, -1, 3).mean(1, True) / 2).flatten(0, 1), "differ from"),
    ],
    ids=["the step before", "all steps", "backwards", "the batch"],
)
def test_steps_and_samples_that_are_mixed_before_our_neurons_are_rejected(mix, said):
    torch.manual_seed(0)
    with pytest.raises(FrontendError, match=said):
        trace(Mixes(mix), (4,), 3)
