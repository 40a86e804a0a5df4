"""What forward does to a membrane between two calls of its neuron is rejected, however it does it."""

import pytest
import torch
from torch import nn

from mpbn_deploy.base import FrontendError
from mpbn_deploy.frontend import trace

T, FEATURES = 5, 12

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def libraries():
    for name in ("snntorch", "spikingjelly", "norse"):
        pytest.importorskip(name, reason=f"{name} is not installed (pip install {name})")


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


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_membrane_is_rejected(make, change):
    name = "l2" if make is Keeps else "lif2"
    with pytest.raises(
        FrontendError, match=rf"^{name} \((Leaky|LIFNode)\): forward changes its state before"
    ):
        trace(make(change), (FEATURES,), T)


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_a_membrane_that_is_passed_on_is_not(make, change):
    assert trace(make(change), (FEATURES,), T).timesteps == T


def test_what_no_function_of_torch_sees_is_found_by_value():
    with pytest.raises(
        FrontendError, match=r"^l2 \(LIFNode\): forward changes its state before time step 1;"
    ):
        trace(Keeps(by_numpy), (FEATURES,), T)


def test_currents_are_states_too():
    with pytest.raises(
        FrontendError, match=r"^lif2 \(Synaptic\): forward changes its state before time step 1"
    ):
        trace(Passes(CHANGES["scaled"], "Synaptic"), (FEATURES,), T)
    assert trace(Passes(HARMLESS["clone"], "Synaptic"), (FEATURES,), T)


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Resets(None), r"^l2 \(LIFNode\): forward changes its state before time step 1;"),
        (lambda: Swaps(None), r"^lif2 \(Leaky\): forward changes its state before time step 1;"),
        (
            lambda: Starts(None),
            r"^lif2 \(Leaky\): forward changes its state before time step 0; .* zero in the",
        ),
    ],
    ids=["reset", "of another step", "at the start"],
)
def test_a_state_that_the_neuron_did_not_leave_is_rejected(make, message):
    with pytest.raises(FrontendError, match=message):
        trace(make(), (FEATURES,), T)


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
    with pytest.raises(
        FrontendError, match=r"^cell \(LIFBoxCell\): forward changes its state before time step 1;"
    ):
        trace(Cells(CHANGES["clamp that never binds"]), (FEATURES,), T)
