"""NIR files of ours in the libraries that read them: they fire our spikes there, in every neuron.

Run with the extra `interop`; each library that is absent is skipped. Its limits, as found:
snntorch takes no recurrent graphs (nirtorch 2.6 has no place for its subgraphs) and no IF;
spikingjelly takes no LIF that forgets all in one step; norse' own loader joins no skips, so its
neurons are wired by nirtorch here; but for spikingjelly, Flatten(0) wants samples without a batch axis.
"""

import importlib
import logging
import warnings
from pathlib import Path

import nir
import nir_graphs
import numpy as np
import pytest
import torch
from networks import inputs_for

from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.nir import DT, read_folded, write_nir
from mpbn_deploy.ir import FloatLif, firing

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


def library(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"{name} is not installed; pip install 'mpbn_deploy[interop]' ({error})")


def in_snntorch(graph):
    return library("snntorch.import_nir").import_from_nir(graph)


def in_spikingjelly(graph):
    return library("spikingjelly.activation_based.nir_exchange").import_from_nir(graph, dt=DT)


def in_norse(graph):
    """norse' neurons, wired by nirtorch."""
    norse = library("norse.torch.utils.import_nir")
    nirtorch = library("nirtorch")

    def convert(node):
        return norse._import_norse_module(node, ignore_warnings=True, dt=DT)

    kinds = (nir.Affine, nir.Conv2d, nir.Flatten, nir.LIF, nir.IF, nir.CubaLIF)
    return nirtorch.nir_to_torch(graph, dict.fromkeys(kinds, convert))


def in_nirtorch(graph):
    """A neuron of a few lines; nirtorch brings the rest, but for Affine, whose bias its own map loses."""
    nirtorch = library("nirtorch")
    return nirtorch.nir_to_torch(graph, {nir.LIF: Euler, nir.IF: Euler, nir.Affine: linear})


class Euler(torch.nn.Module):
    def __init__(self, node):
        super().__init__()
        leaks = isinstance(node, nir.LIF)
        self.rate = torch.tensor(DT / node.tau if leaks else 0 * node.r).float()
        self.gain = torch.tensor(node.r * (DT / node.tau if leaks else DT)).float()
        self.threshold = torch.tensor(node.v_threshold).float()

    def forward(self, value, state=None):
        before = torch.zeros_like(value) if state is None else state
        voltage = before - self.rate * before + self.gain * value
        spikes = (voltage > self.threshold).float()
        return spikes, voltage * (1 - spikes)


def linear(node):
    module = torch.nn.Linear(node.weight.shape[1], node.weight.shape[0])
    module.weight.data, module.bias.data = torch.tensor(node.weight), torch.tensor(node.bias)
    return module


def spikes_in(module, names, steps):
    """Spikes of all neurons [timesteps, ...], for inputs [timesteps, ...]."""
    found = {name: [] for name in names}

    def watch(name):
        def keep(_, given, sent):
            found[name].append((sent[0] if isinstance(sent, tuple) else sent).numpy() > 0)

        return keep

    modules = dict(module.named_modules())
    handles = [modules[name].register_forward_hook(watch(name)) for name in names]
    state = None
    with torch.no_grad():
        for step in steps:
            _, state = module(torch.tensor(step, dtype=torch.float32), state)
    for handle in handles:
        handle.remove()
    return {name: np.stack(steps) for name, steps in found.items()}


def assert_fires_our_spikes(importer, network, path, dialect):
    expected, found = spikes_of_both(importer, network, path, dialect)
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def spikes_of_both(importer, network, path, dialect):
    """Spikes of every neuron in our simulator, and in the library that read our file."""
    write_nir(network, path, dialect=dialect)
    module = importer(nir.read(path))
    inputs = inputs_for(network, samples=4, steps=True)
    expected = simulate(network, inputs)
    names = [p.name for p in network.populations if isinstance(p.neuron, FloatLif)]
    if importer is in_spikingjelly:
        spikes = spikes_in(module, names, inputs.swapaxes(0, 1))
        found = {name: values.swapaxes(0, 1) for name, values in spikes.items()}
    else:
        samples = []
        for sample in inputs:
            if importer is in_snntorch:
                library("snntorch.utils").reset(module)
            samples.append(spikes_in(module, names, sample))
        found = {name: np.stack([sample[name] for sample in samples]) for name in names}
    return {name: expected.spikes[name] for name in names}, found


@pytest.fixture(autouse=True)
def quiet(capsys):
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", nir_graphs.PORTABLE)
@pytest.mark.parametrize("importer", [in_snntorch, in_spikingjelly, in_norse, in_nirtorch])
def test_portable_files(importer, kind, tmp_path):
    if importer is in_snntorch and kind in (nir_graphs.recurrent, nir_graphs.recurrent_picture):
        pytest.skip("snntorch 1.0.0 makes a subgraph of a loop, which nirtorch 2.6 cannot hold")
    for seed, options in ((0, {}), (1, {"leak": 0.25}), (2, {"leak": 0.3, "on_grid": False})):
        assert_fires_our_spikes(importer, kind(seed, **options), tmp_path / "a.nir", "portable")


@pytest.mark.parametrize("kind", nir_graphs.PORTABLE)
@pytest.mark.parametrize("importer", [in_spikingjelly, in_norse, in_nirtorch])
def test_portable_files_of_neurons_that_fire_without_input(importer, kind, tmp_path):
    for seed, options in ((1, {"leak": 0.25}), (2, {"leak": 0.3, "on_grid": False})):
        network = kind(seed, lowest=-30, **options)
        assert any((p.neuron.threshold <= 0).any() for p in firing(network))
        assert_fires_our_spikes(importer, network, tmp_path / "a.nir", "portable")


@pytest.mark.parametrize("kind", [*nir_graphs.PORTABLE, nir_graphs.own_thresholds])
@pytest.mark.parametrize("importer", [in_norse, in_nirtorch])
def test_faithful_files(importer, kind, tmp_path):
    for seed, options in ((0, {}), (2, {"leak": 0.3, "on_grid": False})):
        assert_fires_our_spikes(importer, kind(seed, **options), tmp_path / "a.nir", "faithful")


@pytest.mark.parametrize("importer", [in_snntorch, in_spikingjelly, in_norse])
def test_currents_that_leak(importer, tmp_path):
    for kind in (nir_graphs.dense_chain, nir_graphs.identity_skip):
        network = kind(current_leak=0.5, biased=False)
        assert_fires_our_spikes(importer, network, tmp_path / "a.nir", "portable")


@pytest.mark.parametrize("importer", [in_spikingjelly, in_norse, in_nirtorch])
def test_integrators(importer, tmp_path):
    assert_fires_our_spikes(importer, nir_graphs.conv_chain(leak=1.0), tmp_path / "a.nir", "portable")


SECTIONS = {
    "snnTorch (portable;": "snntorch",
    "SpikingJelly (portable;": "spikingjelly.activation_based",
    "norse (faithful or portable;": "norse",
    "nirtorch (faithful or portable)": "nirtorch",
}


@pytest.mark.parametrize(
    ("section", "dialect"),
    [
        (section, dialect)
        for section in SECTIONS
        for dialect in ("portable", "faithful")
        if dialect in section
    ],
)
def test_the_examples_of_the_documentation(section, dialect, tmp_path, monkeypatch):
    """docs/formats.md, "In other libraries": each gives the outputs of our simulator."""
    library(SECTIONS[section])
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    shared, *_ = parts = text.split("### In other libraries")[1].split("```python\n")
    codes = [parts[1], text.split(section)[1].split("```python\n")[1]]
    assert "They share" in shared
    monkeypatch.chdir(tmp_path)
    network = nir_graphs.identity_skip()
    write_nir(network, "network.nir", dialect=dialect)
    names = {}
    for code in codes:
        exec(compile(code.split("```")[0], "docs/formats.md", "exec"), names)
    expected = simulate(network, names["inputs"].numpy()[None])
    assert expected.spikes["c"].any()
    np.testing.assert_allclose(names["outputs"].numpy(), expected.outputs[0], atol=1e-5)


# ---- and the other way round ----------------------------------------------------------------------


def test_what_snntorch_writes(tmp_path):
    snn, export = library("snntorch"), library("snntorch.export_nir")
    torch.manual_seed(0)
    options = {"init_hidden": True, "reset_mechanism": "zero", "reset_delay": False}
    ones = torch.ones
    net = torch.nn.Sequential(  # one parameter per neuron, or snntorch cannot type its own graph
        torch.nn.Linear(6, 20),
        snn.Leaky(beta=0.9 * ones(20), threshold=ones(20), **options),
        torch.nn.Linear(20, 4),
        snn.Synaptic(alpha=0.5 * ones(4), beta=0.8 * ones(4), threshold=ones(4), output=True, **options),
    )
    for layer in (net[0], net[2]):
        layer.weight.data *= 3
    nir.write(tmp_path / "theirs.nir", export.export_to_nir(net, torch.zeros(6)))
    network = read_folded(tmp_path / "theirs.nir", timesteps=10, reset="zero")
    inputs = np.random.default_rng(0).integers(0, 2, size=(5, 10, 6))
    library("snntorch.utils").reset(net)
    with torch.no_grad():
        theirs = [net(torch.tensor(step, dtype=torch.float32))[0].numpy() for step in inputs.swapaxes(0, 1)]
    counts = simulate(network, inputs).outputs
    np.testing.assert_array_equal(np.sum(theirs, axis=0), counts)
    assert counts.any()


def test_what_spikingjelly_writes(tmp_path):
    exchange = library("spikingjelly.activation_based.nir_exchange")
    layer, neuron, functional = (
        library(f"spikingjelly.activation_based.{name}") for name in ("layer", "neuron", "functional")
    )
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        layer.Conv2d(2, 4, 3, padding=1),
        neuron.LIFNode(tau=2.0, decay_input=True),
        layer.AvgPool2d(2),
        layer.Flatten(),
        layer.Linear(36, 5),
        neuron.IFNode(),
    )
    net[0].weight.data *= 6
    net[4].weight.data *= 4
    graph = exchange.export_to_nir(net, torch.zeros(1, 2, 6, 6))
    nir.write(tmp_path / "theirs.nir", graph)
    network = read_folded(tmp_path / "theirs.nir", timesteps=8)
    inputs = np.random.default_rng(0).integers(0, 2, size=(5, 8, 2, 6, 6))
    functional.reset_net(net)
    with torch.no_grad():
        theirs = [net(torch.tensor(step, dtype=torch.float32)).numpy() for step in inputs.swapaxes(0, 1)]
    counts = simulate(network, inputs).outputs
    np.testing.assert_array_equal(np.sum(theirs, axis=0), counts)
    assert counts.any()


def test_what_norse_writes(tmp_path):
    """It ends in a leaking readout. norse writes tau as dt / tau_mem_inv, so its dt of 1e-3 is 1e-6 here."""
    norse, export = library("norse.torch"), library("norse.torch.utils.export_nir")
    lif, li = (library(f"norse.torch.module.{name}") for name in ("lif_box", "leaky_integrator_box"))
    torch.manual_seed(0)
    rates, zeros = (lambda size: torch.full((size,), 100.0)), torch.zeros  # nir.write takes no single numbers
    fires = lif.LIFBoxParameters(
        tau_mem_inv=rates(20), v_leak=zeros(20), v_reset=zeros(20), v_th=torch.ones(20)
    )
    reads = li.LIBoxParameters(tau_mem_inv=rates(4), v_leak=zeros(4))
    net = norse.SequentialState(
        torch.nn.Linear(6, 20), lif.LIFBoxCell(fires), torch.nn.Linear(20, 4), li.LIBoxCell(reads)
    )
    for layer in (net[0], net[2]):
        layer.weight.data *= 30
    nir.write(tmp_path / "theirs.nir", export.to_nir(net, torch.zeros(6)))
    network = read_folded(tmp_path / "theirs.nir", timesteps=10, dt=1e-6)
    inputs = np.random.default_rng(0).integers(0, 2, size=(5, 10, 6))
    state = None
    with torch.no_grad():
        for step in inputs.swapaxes(0, 1):
            voltages, state = net(torch.tensor(step, dtype=torch.float32), state)
    got = simulate(network, inputs)
    assert 0 < got.spikes["1"].mean() < 1 and network.output.neuron.leak == pytest.approx(0.9)
    np.testing.assert_allclose(voltages.numpy(), got.outputs, atol=1e-5)
