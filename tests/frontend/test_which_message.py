"""What any reader of modules must do: name the line, take no subclass for its parent, not crash."""

import pytest
import torch
from torch import nn

from mpbn_deploy.base import FrontendError
from mpbn_deploy.frontend import trace


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
        (Activation, "operation 'relu'"),
    ],
)
def test_the_reader_that_got_further_speaks(module, said):
    with pytest.raises(FrontendError, match=said) as caught:
        trace(module(), (4,), 3)
    assert "torch.fx" not in str(caught.value)


@pytest.mark.interop
@pytest.mark.parametrize("timesteps", [4, 5, 7])
def test_steps_that_are_not_returned_are_no_crash(timesteps):
    snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
    module = SomeSteps(snntorch.Leaky(beta=0.5, reset_mechanism="zero"))
    with pytest.raises(FrontendError, match="its neurons run 7 time steps, of which it returns 5"):
        trace(module, (4,), timesteps)


@pytest.mark.interop
@pytest.mark.parametrize("factor", [torch.ones(3), torch.tensor([1.0, 2.0, 1.0])])
def test_graded_spikes_may_be_a_tensor(factor):
    snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
    neuron = snntorch.Leaky(beta=0.5, reset_mechanism="zero", init_hidden=True, graded_spikes_factor=factor)
    module = nn.Sequential(nn.Linear(4, 3), neuron, nn.Linear(3, 2))
    if (factor == 1).all():
        assert len(trace(module, (4,), 2).operations) == 3
        return
    with pytest.raises(FrontendError, match="graded spikes; only graded_spikes_factor=1 is supported"):
        trace(module, (4,), 2)


@pytest.mark.interop
@pytest.mark.parametrize("name", ["ILIFNode", "LIAFNode"])
def test_subclasses_of_known_neurons_are_not_their_parents(name):
    pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed (pip install spikingjelly)")
    from spikingjelly.activation_based import neuron

    if not hasattr(neuron, name):
        pytest.skip(f"this SpikingJelly has no {name}")
    made = getattr(neuron, name)(*((torch.relu, False) if name == "LIAFNode" else ()))
    with pytest.raises(FrontendError, match=f"spikingjelly's {name} is not supported"):
        trace(nn.Sequential(nn.Linear(4, 3), made, nn.Linear(3, 2)), (4,), 2)

    class Tuned(neuron.LIFNode):
        def __init__(self):
            super().__init__(tau=4.0, decay_input=False)

    assert len(trace(nn.Sequential(nn.Linear(4, 3), Tuned(), nn.Linear(3, 2)), (4,), 2).operations) == 3
