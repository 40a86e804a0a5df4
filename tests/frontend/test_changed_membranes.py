"""What forward does to a membrane between two steps is expressed exactly, or rejected."""

import numpy as np
import pytest
import torch
from torch import nn

from mpbn_deploy.base import FrontendError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace

T, FEATURES = 5, 12

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def libraries():
    for name in ("snntorch", "spikingjelly", "norse"):
        pytest.importorskip(name, reason=f"{name} is not installed (pip install {name})")


def reset(module):
    from snntorch import utils
    from spikingjelly.activation_based.functional import reset_net

    utils.reset(module)
    reset_net(module)


def in_place(change):
    def changed(mem):
        change(mem)
        return mem

    return changed


def zeroed_row(mem):
    mem[0] = 0
    return mem


def by_numpy(mem):
    mem.numpy()[...] *= 0.5
    return mem


CHANGES = {
    "clamp": lambda mem: mem.clamp(-0.2, 2.0),
    "clamp that never binds": lambda mem: mem.clamp(-1e9, 1e9),
    "scaled": lambda mem: mem * 0.5,
    "scaled in place": in_place(lambda mem: mem.mul_(0.5)),
    "scaled after detach": in_place(lambda mem: mem.detach().mul_(0.5)),
    "clamped through data": in_place(lambda mem: mem.data.clamp_(-1e9, 1e9)),
    "a copy, scaled in place": lambda mem: mem.clone().mul_(0.5),
    "written into": zeroed_row,
    "forgotten": torch.zeros_like,
    "rectified": torch.relu,
}
HARMLESS = {
    "as it is": lambda mem: mem,
    "detach": lambda mem: mem.detach(),
    "clone": lambda mem: mem.clone(),
    "float": lambda mem: mem.float(),
    "copies, in turn": lambda mem: mem.detach().clone().contiguous(),
    "read": in_place(lambda mem: mem.clamp(0, 1).sum()),
}


class Passes(nn.Module):
    """A loop of snnTorch that passes membranes on, after a change."""

    def __init__(self, change, neuron="Leaky"):
        import snntorch as snn

        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(FEATURES, 10), nn.Linear(10, 4)
        options = {} if neuron == "Leaky" else {"alpha": 0.5, "reset_delay": False, "reset_mechanism": "zero"}
        self.lif1, self.lif2 = snn.Leaky(beta=0.5), getattr(snn, neuron)(beta=0.75, **options)
        self.change = change

    def forward(self, x):
        mem1, states, sent = self.lif1.init_leaky(), self.lif2.reset_mem(), []
        states = states if isinstance(states, tuple) else (states,)
        for _ in range(T):
            spk, mem1 = self.lif1(self.fc1(x), mem1)
            spk, *states = self.lif2(self.fc2(spk), *states)
            sent.append(spk)
            states = [self.change(states[0]), *states[1:]]
        return torch.stack(sent)


class Keeps(nn.Module):
    """One step of SpikingJelly, whose neurons keep their membranes."""

    def __init__(self, change):
        from spikingjelly.activation_based import neuron

        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.l1 = nn.Linear(FEATURES, 10), neuron.IFNode()
        self.fc2, self.l2 = nn.Linear(10, 4), neuron.LIFNode()
        self.change = change

    def forward(self, x):
        sent = self.l2(self.fc2(self.l1(self.fc1(x))))
        self.l2.v = self.change(self.l2.v)
        return sent


class Hidden(Passes):
    """One step of snnTorch, with membranes inside of the neurons."""

    def forward(self, x):
        self.lif1.init_hidden = self.lif2.init_hidden = True
        sent = self.lif2(self.fc2(self.lif1(self.fc1(x))))
        self.lif2.mem = self.change(self.lif2.mem)
        return sent


MODULES = {"snntorch": Passes, "snntorch, hidden": Hidden, "spikingjelly": Keeps}


def comes_in_as_it_is(module, shape=(FEATURES,)):
    """Whether a module comes in; if it does, its outputs are those of the network, for each sample."""
    try:
        folded = fold(trace(module, shape, T))
    except FrontendError:
        return False
    values = np.random.default_rng(0).integers(0, 6, (20, *shape))
    reset(module)
    with torch.no_grad():
        given = torch.tensor(values, dtype=torch.float32)
        by_step = isinstance(module, Keeps | Hidden)
        found = torch.stack([module(given) for _ in range(T)]) if by_step else module(given)
    np.testing.assert_allclose(found.mean(0).numpy(), simulate(folded, values).outputs, atol=1e-6)
    return True


EXACT = {  # changes that a neuron expresses, by how its library computes it
    "snntorch": {"forgotten"},
    "snntorch, hidden": {"forgotten"},
    "spikingjelly": {name for name in CHANGES if "scaled" in name} | {"forgotten"},
}


@pytest.mark.parametrize("library", MODULES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_membrane_is_expressed_exactly_or_rejected(library, change):
    assert comes_in_as_it_is(MODULES[library](CHANGES[change])) == (change in EXACT[library])


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_a_membrane_that_is_passed_on_is_not(make, change):
    assert trace(make(change), (FEATURES,), T).timesteps == T


def test_what_numpy_does_is_rejected():
    with pytest.raises(
        FrontendError, match=r"test_changed_membranes.py, line \d+: takes a number .* \(numpy\)"
    ):
        trace(Keeps(by_numpy), (FEATURES,), T)


def test_currents_are_states_too():
    assert not comes_in_as_it_is(Passes(CHANGES["clamp that never binds"], "Synaptic"))
    comes_in_as_it_is(Passes(CHANGES["scaled"], "Synaptic"))
    assert comes_in_as_it_is(Passes(HARMLESS["clone"], "Synaptic"))


class Resets(Keeps):
    def forward(self, x):
        self.l2.reset()
        return self.l2(self.fc2(self.l1(self.fc1(x))))


class Swaps(Passes):
    """Gives a neuron the membrane of two steps before."""

    def forward(self, x):
        mem1, mem2, sent = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        before = mem2
        for _ in range(T):
            spk, mem1 = self.lif1(self.fc1(x), mem1)
            spk, left = self.lif2(self.fc2(spk), before)
            before, mem2 = mem2, left
            sent.append(spk)
        return torch.stack(sent)


class Starts(Passes):
    def forward(self, x):
        mem, sent = torch.full((len(x), 4), 0.125).to(x), []
        for _ in range(T):
            spk, mem = self.lif2(self.fc2(self.fc1(x)), mem)
            sent.append(spk)
        return torch.stack(sent)


@pytest.mark.parametrize(("make", "exact"), [(Resets, True), (Swaps, False), (Starts, True)])
def test_a_state_that_the_neuron_did_not_leave(make, exact):
    assert comes_in_as_it_is(make(None)) == exact


class Cells(nn.Module):
    """norse's cells, which return a tuple of states."""

    def __init__(self, change):
        import norse.torch as norse

        super().__init__()
        torch.manual_seed(0)
        self.fc, self.cell, self.change = nn.Linear(FEATURES, 4), norse.LIFBoxCell(), change

    def forward(self, x):
        state, sent = None, []
        for _ in range(T):
            spikes, state = self.cell(self.fc(x), state)
            state = state._replace(v=self.change(state.v))
            sent.append(spikes)
        return torch.stack(sent)


def test_states_of_norse_are_watched():
    assert trace(Cells(HARMLESS["detach"]), (FEATURES,), T)
    with pytest.raises(FrontendError, match=r"^forward, test_changed_membranes.py, line \d+: a clamp"):
        trace(Cells(CHANGES["clamp that never binds"]), (FEATURES,), T)
