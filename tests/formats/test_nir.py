"""network.nir, written: what NIR's own equations make of it, and what comes back."""

import json
from dataclasses import replace

import h5py
import nir
import nir_graphs
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from networks import (
    CURRENTS,
    LEAKING,
    LOOPS,
    RESETS,
    SOFT,
    charged,
    enlivened,
    inputs_for,
    int_chain,
    int_loop,
    int_pooled,
    int_residual,
    int_windows,
    softened,
    spiking_network,
)
from nir_euler import euler
from properties import examples
from torch import nn

from mpbn_deploy.base import FormatError, OptionError, same_records
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.nir import DT, in_dialect, linear, read_folded, read_nir, to_nir, write_nir
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import (
    Conv2d,
    Dense,
    FloatLif,
    FloatReadout,
    as_steps,
    neuron_subtrahend,
    with_relays,
    without_relays,
)
from mpbn_deploy.nn import LIF
from mpbn_deploy.nn.zoo import ARCHITECTURES
from mpbn_deploy.quantize import quantize


def folded_network(seed=0, **options):
    return fold(trace(spiking_network(seed, **options)))


@pytest.fixture
def path(tmp_path):
    write_nir(folded_network(), tmp_path / "network.nir")
    return tmp_path / "network.nir"


def spikes_of(network):
    return [p.name for p in network.populations if isinstance(p.neuron, FloatLif)]


def assert_fires_our_spikes(network, graph, seed=0):
    inputs = inputs_for(network, samples=8, seed=seed, steps=True)
    spikes, outputs = euler(graph, inputs, DT)
    expected = simulate(network, inputs)
    for name in spikes_of(network):
        np.testing.assert_array_equal(spikes[name], expected.spikes[name], err_msg=name)
    if isinstance(network.output.neuron, FloatReadout):
        leaks = network.output.neuron.leak < 1
        read = outputs[:, -1] if leaks else outputs.mean(axis=1)
        np.testing.assert_allclose(read, expected.outputs, atol=1e-5)
    assert any(0 < expected.spikes[name].mean() < 1 for name in spikes_of(network))


@pytest.mark.parametrize("kind", nir_graphs.ALL)
@pytest.mark.parametrize(
    "options", [{}, {"leak": 0.0}, {"leak": 1.0}, {"current_leak": 0.25, "on_grid": False}]
)
def test_nirs_own_equations_fire_our_spikes(kind, options):
    network = kind(**options)
    assert_fires_our_spikes(network, to_nir(network))


@pytest.mark.parametrize("kind", nir_graphs.PORTABLE)
@pytest.mark.parametrize("options", [{}, {"on_grid": False}, {"current_leak": 0.25, "biased": False}])
def test_so_they_do_with_a_common_threshold(kind, options, tmp_path):
    network = kind(**options)
    write_nir(network, tmp_path / "a.nir", dialect="portable")
    graph = nir.read(tmp_path / "a.nir")  # with nir's own check of shapes
    assert_fires_our_spikes(network, graph)
    neurons = [node for node in graph.nodes.values() if isinstance(node, (nir.LIF, nir.CubaLIF))]
    for node in neurons:
        assert len(np.unique(node.v_threshold)) == 1 and not node.v_leak.any()


@examples(40)
@given(
    st.sampled_from(nir_graphs.PORTABLE),
    st.integers(0, 10**6),
    st.sampled_from((0.0, 0.25, 0.75)),
    st.sampled_from((4, -30)),
)
def test_a_common_threshold_also_for_readers_that_fire_when_it_is_met(kind, seed, leak, lowest):
    """Voltages in units of float32, spikes at v >= threshold, as spikingjelly has it."""
    network = kind(seed, leak=leak, lowest=lowest)
    graph = to_nir(network, dialect="portable")
    for node in graph.nodes.values():
        if isinstance(node, nir.LIF):
            node.v_threshold = np.nextafter(node.v_threshold, np.float32(0))
    inputs = inputs_for(network, samples=4, seed=seed, steps=True)
    spikes, _ = euler(graph, inputs, DT)
    expected = simulate(network, inputs)
    for name in spikes_of(network):
        np.testing.assert_array_equal(spikes[name], expected.spikes[name], err_msg=name)


@pytest.mark.parametrize("options", [{}, {"mpbn": "element", "gains": "positive"}, {"padding": 0}])
def test_trained_networks(tmp_path, options):
    """float32 in the file: only decisions at the edge may move."""
    folded = folded_network(**options)
    write_nir(folded, tmp_path / "a.nir")
    inputs = inputs_for(folded, samples=20)
    steps = as_steps(inputs, folded.input.shape, folded.timesteps)
    spikes, _ = euler(nir.read(tmp_path / "a.nir"), steps, DT)
    expected = simulate(folded, inputs)
    for name in spikes_of(folded):
        assert np.count_nonzero(spikes[name] != expected.spikes[name]) <= 1e-3 * spikes[name].size


# ---- round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", nir_graphs.ALL)
@pytest.mark.parametrize("leak", [0.0, 0.5, 1.0])
def test_what_is_written_comes_back(kind, leak, tmp_path):
    network = kind(leak=leak)
    write_nir(network, tmp_path / "a.nir")
    assert same_records(network, read_nir(tmp_path / "a.nir"))


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [("faithful", kind) for kind in nir_graphs.ALL] + [("portable", kind) for kind in nir_graphs.PORTABLE],
)
def test_once_in_float32_a_network_survives_every_further_trip(dialect, kind, tmp_path):
    bias = {} if dialect == "portable" else {"current_leak": 0.3}
    for options in ({"on_grid": False, "leak": 0.3}, bias):
        write_nir(kind(**options), tmp_path / "a.nir", dialect=dialect)
        once = read_nir(tmp_path / "a.nir")
        write_nir(once, tmp_path / "b.nir", dialect=dialect)
        assert same_records(once, read_nir(tmp_path / "b.nir"))


def test_a_portable_network_reads_back_with_thresholds_of_one(tmp_path):
    network = nir_graphs.identity_skip()
    write_nir(network, tmp_path / "a.nir", dialect="portable")
    portable = read_folded(tmp_path / "a.nir")
    assert all((p.neuron.threshold == 1).all() for p in portable.populations[1:-1])
    inputs = inputs_for(network, samples=9)
    expected, got = simulate(network, inputs), simulate(portable, inputs)
    for name in spikes_of(network):
        np.testing.assert_array_equal(expected.spikes[name], got.spikes[name])


@pytest.mark.parametrize(
    "network",
    [
        int_chain(),
        int_chain(groups=2),
        int_residual(),
        int_residual(seed=1, delay=2),
        int_chain(per_neuron=False),
        int_windows(),
        int_chain(**LEAKING),
        int_chain(decay_voltage=4096),
        softened(int_chain(1), 1),
        softened(int_residual(3, delay=2), 3),
        softened(int_chain(per_neuron=False), 2),
        charged(int_chain(1), 1),
        charged(softened(int_residual(3, delay=2), 3), 4),
        charged(int_chain(per_neuron=False), 2),
        charged(int_loop(1), 2),
    ],
)
def test_integer_networks_come_back_bit_by_bit(network, tmp_path):
    scales = {name: values * 1.1 for name, values in network.scales.items()}
    network = replace(network, scales=scales)
    write_nir(network, tmp_path / "a.nir")
    assert same_records(network, read_nir(tmp_path / "a.nir"))
    with pytest.raises(FormatError, match="an integer network, already quantized"):
        read_folded(tmp_path / "a.nir")


def test_relays_are_composed_in_nir(tmp_path):
    """Scales that belong to no population of the file are left out, too."""
    relayed = with_relays(int_pooled())
    network = replace(relayed, scales={**relayed.scales, "gone": np.array([254.0])})
    write_nir(network, tmp_path / "a.nir")
    assert same_records(without_relays(relayed), read_nir(tmp_path / "a.nir"))


def test_round_trip_of_a_trained_network(path, tmp_path):
    once, original = read_nir(path), folded_network()
    for before, after in zip(original.populations[1:], once.populations[1:], strict=True):
        assert before.name == after.name and before.neuron.bias.shape == after.neuron.bias.shape
        np.testing.assert_allclose(before.neuron.bias, after.neuron.bias, rtol=1e-5, atol=1e-6)
        if isinstance(before.neuron, FloatLif):
            assert before.neuron.leak == after.neuron.leak
            np.testing.assert_allclose(before.neuron.threshold, after.neuron.threshold, rtol=1e-6)


@pytest.mark.parametrize("recurrent", LOOPS)
@pytest.mark.parametrize("currents", CURRENTS)
def test_currents_and_recurrent_layers_come_back(currents, recurrent, tmp_path):
    folded = folded_network(1, currents=currents, recurrent=recurrent, leak=0.5)
    write_nir(folded, tmp_path / "a.nir")
    once = read_nir(tmp_path / "a.nir")
    assert once.shapes == folded.shapes
    assert [(c.label, c.delay) for c in once.connections] == [(c.label, c.delay) for c in folded.connections]
    for before, after in zip(folded.layers, once.layers, strict=True):
        assert before.neuron.current_leak == after.neuron.current_leak
        np.testing.assert_allclose(before.neuron.bias, after.neuron.bias, rtol=1e-5, atol=1e-6)
    for before, after in zip(folded.connections, once.connections, strict=True):
        np.testing.assert_allclose(before.synapse.weight, after.synapse.weight, rtol=1e-6, atol=1e-7)
    write_nir(once, tmp_path / "b.nir")
    assert same_records(once, read_nir(tmp_path / "b.nir"))


@pytest.mark.parametrize("leak", [0.25, 1.0])
@pytest.mark.parametrize("resets", RESETS[1:])
def test_soft_resets_are_in_our_metadata_and_come_back(resets, leak, tmp_path):
    """NIR's nodes do not say how a neuron resets; a version of their own keeps older readers away."""
    folded = folded_network(1, resets=resets, leak=leak)
    write_nir(folded, tmp_path / "a.nir")
    once = read_nir(tmp_path / "a.nir")
    for before, after in zip(folded.layers, once.layers, strict=True):
        assert type(before.neuron) is type(after.neuron)
        expected, found = neuron_subtrahend(before.neuron), neuron_subtrahend(after.neuron)
        assert (expected is None) == (found is None)
        assert expected is None or np.array_equal(expected, found)
    write_nir(once, tmp_path / "b.nir")
    assert same_records(once, read_nir(tmp_path / "b.nir"))
    with h5py.File(tmp_path / "a.nir") as file:
        stored = json.loads(file["node/metadata/mpbn_deploy"][()])
    assert stored["version"] == 3 and len(stored["subtrahends"]) == resets.count("subtract")
    with pytest.raises(FormatError, match=r"lif\d: a soft reset; most readers reset to zero"):
        write_nir(folded, tmp_path / "c.nir", dialect="portable")


@pytest.mark.parametrize(
    ("subtrahends", "message"),
    [
        ({"lif1": [1.0, 2.0]}, "lif1: subtrahend has shape"),
        ({"lif1": "much"}, "'mpbn_deploy' is damaged"),
        ({"lif1": [[[1.0]], [[1.0, 2.0]]]}, "'mpbn_deploy' is damaged"),
        ({"lif2": [float("nan")] * 6}, "lif2: subtrahends hold NaN"),
        (5, "'mpbn_deploy' is damaged"),
    ],
)
def test_damaged_subtrahends(subtrahends, message, tmp_path):
    write_nir(folded_network(resets=SOFT), tmp_path / "a.nir")
    with pytest.raises(FormatError, match=message):
        read_nir(with_metadata(tmp_path / "a.nir", lambda told: told.update(subtrahends=subtrahends)))


def test_same_network_same_bytes(path, tmp_path):
    write_nir(folded_network(), tmp_path / "again.nir")
    assert path.read_bytes() == (tmp_path / "again.nir").read_bytes()


# ---- how it is written ----------------------------------------------------------------------------


def test_kernels_are_as_nir_can_type_them_and_come_back_as_they_were(tmp_path):
    network = nir_graphs.grouped()
    narrow = Conv2d(weight=np.ones((4, 2, 1, 3)), groups=2, padding=(0, 1), dilation=(1, 2), stride=(1, 1))
    first = replace(network.connections[0], synapse=narrow)
    shape = (4, 6, 4)
    populations = list(network.populations)
    populations[1] = replace(populations[1], shape=shape)
    populations[2] = replace(populations[2], shape=(4, 3, 2))
    network = replace(network, populations=tuple(populations), connections=(first, network.connections[1]))
    write_nir(network, tmp_path / "a.nir")
    node = nir.read(tmp_path / "a.nir").nodes["a_synapse"]
    assert node.weight.shape == (4, 4, 3, 3) and tuple(node.padding) == (1, 1) and node.groups == 1
    assert same_records(network, read_nir(tmp_path / "a.nir"))


def test_the_main_path_is_listed_before_skips():
    edges = to_nir(nir_graphs.identity_skip()).edges
    into = [source for source, target in edges if target == "c"]
    before = {target: source for source, target in edges}
    assert [before[synapse] for synapse in into] == ["b", "a"]
    skip = to_nir(nir_graphs.identity_skip()).nodes[into[1]]
    np.testing.assert_array_equal(skip.weight[:, :, 0, 0], np.eye(3))


def test_delays_that_close_no_loop_are_delay_nodes():
    delays = {
        n: node for n, node in to_nir(nir_graphs.long_loop()).nodes.items() if isinstance(node, nir.Delay)
    }
    assert len(delays) == 1 and np.allclose(next(iter(delays.values())).delay, 2 * DT)
    assert not any(isinstance(node, nir.Delay) for node in to_nir(nir_graphs.recurrent()).nodes.values())


def test_a_delay_of_one_step_without_a_loop_is_said_too(tmp_path):
    network = nir_graphs.dense_skip()
    late = [replace(c, delay=1) if c.label == "input->b" else c for c in network.connections]
    network = replace(network, connections=tuple(late))
    assert_fires_our_spikes(network, to_nir(network))
    write_nir(network, tmp_path / "a.nir")
    assert same_records(network, read_nir(tmp_path / "a.nir"))


def test_a_loop_that_is_entered_twice_says_its_delay(tmp_path):
    """input -> a, input -> b, a -> b, b -> a: which of the last two is late, only a Delay node tells."""
    b = nir_graphs.Builder(0, (3,))
    for name in ("a", "b"):
        b.lif(name, (3,))
        b.connect("input", name, b.dense(3, 3))
    b.connect("a", "b", b.dense(3, 3))
    b.connect("b", "a", b.dense(3, 3), delay=1)
    network = b.network()
    assert any(isinstance(node, nir.Delay) for node in to_nir(network).nodes.values())
    write_nir(network, tmp_path / "a.nir")
    assert same_records(network, read_nir(tmp_path / "a.nir"))
    # two connections between the same populations, one of them late
    b.connect("input", "a", b.dense(3, 3), delay=1)
    write_nir(b.network(), tmp_path / "a.nir")
    assert same_records(b.network(), read_nir(tmp_path / "a.nir"))


def test_biases_of_single_neurons_come_from_one_that_always_fires(path):
    """As zero padding of normalized input makes them, at the border."""
    graph = nir.read(path)
    assert graph.nodes["lif1_constant"].v_threshold.shape == (1, 1, 1)
    assert not any(node.v_leak.any() for node in graph.nodes.values() if isinstance(node, nir.LIF))
    assert [p.name for p in read_nir(path).populations] == ["input", "lif1", "lif2", "output"]


# ---- what cannot be written -----------------------------------------------------------------------


def test_names_that_become_one_are_refused():
    folded = folded_network()
    first, second = replace(folded.populations[1], name="a.b"), replace(folded.populations[2], name="a_b")
    names = {"lif1": "a.b", "lif2": "a_b"}
    connections = tuple(
        replace(c, source=names.get(c.source, c.source), target=names.get(c.target, c.target))
        for c in folded.connections
    )
    populations = (folded.populations[0], first, second, folded.populations[3])
    with pytest.raises(FormatError, match=r"a\.b and a_b: both are named a_b in NIR"):
        to_nir(replace(folded, populations=populations, connections=connections))


def test_the_portable_dialect_of_a_portable_network_is_the_network():
    body = nn.Sequential(nn.Conv2d(1, 2, 3), LIF(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    folded = fold(trace(enlivened(body, shape=(1, 6, 6), gains="positive")))
    once = in_dialect(folded, "portable")
    assert same_records(in_dialect(once, "portable"), once)


def test_dialects_that_do_not_exist_are_refused():
    with pytest.raises(OptionError, match=r"no dialect of NIR named 'portabel'. Did you mean 'portable'"):
        to_nir(nir_graphs.dense_chain(), dialect="portabel")
    with pytest.raises(OptionError, match="an integer network is written in the faithful dialect"):
        to_nir(int_chain(), dialect="portable")


def test_windows_are_masks_behind_their_convolutions(tmp_path):
    """Each neuron's bias comes with the convolution of its window; nir types all of it."""
    network = nir_graphs.windows()
    write_nir(network, tmp_path / "a.nir")
    graph = nir.read(tmp_path / "a.nir")
    masks = [node.scale for node in graph.nodes.values() if isinstance(node, nir.Scale)]
    assert len(masks) == 4 and (np.sum(masks, axis=0) == 1).all()
    assert not any(name.endswith("_constant") for name in graph.nodes if name.startswith("b"))
    assert_fires_our_spikes(network, graph)


def test_signals_are_written_with_conv1d(tmp_path):
    torch.manual_seed(0)
    body = ARCHITECTURES["signal-cnn"]((3, 18), 4, width=8, mpbn="element")
    folded = fold(trace(enlivened(body, shape=(3, 18))))
    integers = quantize(folded, load_profile("loihi2")).network
    write_nir(folded, tmp_path / "a.nir")
    nodes = nir.read(tmp_path / "a.nir").nodes  # nir types all of it
    assert tuple(nodes["input"].input_type["input"]) == (3, 18)
    assert any(isinstance(node, nir.Conv1d) for node in nodes.values())
    assert not any(isinstance(node, nir.Conv2d) for node in nodes.values())
    once = read_folded(tmp_path / "a.nir")
    write_nir(once, tmp_path / "b.nir")
    assert same_records(read_folded(tmp_path / "b.nir"), once)
    inputs = inputs_for(folded, samples=9)
    for name, spikes in simulate(folded, inputs).spikes.items():
        np.testing.assert_array_equal(simulate(once, inputs).spikes[name], spikes)
    write_nir(integers, tmp_path / "c.nir")
    assert same_records(read_nir(tmp_path / "c.nir"), integers)


def test_what_is_not_portable_is_listed():
    with pytest.raises(FormatError) as caught:
        to_nir(nir_graphs.own_thresholds(), dialect="portable")
    assert "a: neurons that share a kernel differ in threshold" in str(caught.value)
    assert "b: " not in str(caught.value) and "--nir-dialect faithful" in str(caught.value)
    for network, message in (
        (nir_graphs.long_loop(), "input->b: a delay of 2 steps"),
        (nir_graphs.matrix_onto_picture(), "a: a matrix onto a picture"),
        (nir_graphs.dense_chain(current_leak=0.5), "a: biases of a neuron whose current leaks"),
        (
            nir_graphs.dense_chain(current_leak=0.5, biased=False, lowest=-30),
            r"a: thresholds down to -[0-9.]+, \d of 6 not above zero; only neurons that reset to zero",
        ),
        (
            nir_graphs.windows(),
            "b: several kernels, each for a part of the picture; readers do not support masks",
        ),
        (nir_graphs.leaking_readout(), "output: a readout that leaks; readers do not support LI"),
    ):
        with pytest.raises(FormatError, match=message):
            to_nir(network, dialect="portable")


def test_thresholds_of_single_neurons_are_portable_only_behind_a_matrix():
    network = nir_graphs.own_biases()
    population = network.populations[1]
    own = np.linspace(1, 2, population.size).reshape(population.shape)
    populations = list(network.populations)
    populations[1] = replace(population, neuron=replace(population.neuron, threshold=own))
    with pytest.raises(FormatError, match="neurons that share a kernel differ in threshold"):
        to_nir(replace(network, populations=tuple(populations)), dialect="portable")


def own_biases_without_a_picture():
    """A picture behind a matrix, and another behind it whose neurons have biases of their own."""
    b = nir_graphs.Builder(0, (4,))
    b.lif("a", (2, 3, 3))
    b.connect("input", "a", b.dense(18, 4))
    b.lif("b", (2, 3, 3), own_bias=True)
    b.connect("a", "b", b.conv(2, 2, padding=(1, 1)))
    return b


@pytest.mark.parametrize("leak", [0.5, 1.0])
def test_without_a_picture_at_the_input_biases_of_single_neurons_are_where_they_rest(leak, tmp_path):
    network = own_biases_without_a_picture().network()
    populations = [
        replace(p, neuron=replace(p.neuron, leak=leak)) if p.name != "input" else p
        for p in network.populations
    ]
    network = replace(network, populations=tuple(populations))
    assert to_nir(network).nodes["b"].v_leak.any()
    assert_fires_our_spikes(network, to_nir(network))
    write_nir(network, tmp_path / "a.nir")
    assert same_records(network, read_nir(tmp_path / "a.nir"))
    with pytest.raises(FormatError, match="biases differ within a channel, and the input is not a picture"):
        to_nir(network, dialect="portable")


def test_of_a_picture_too_large_for_that_neuron_they_are_there_too(tmp_path, monkeypatch):
    network = nir_graphs.own_biases()
    monkeypatch.setattr(linear, "MOST_TERMS", 10 * network.populations[1].size)  # enough for its kernels
    graph = to_nir(network)
    assert graph.nodes["a"].v_leak.any() and "a_constant" not in graph.nodes
    assert_fires_our_spikes(network, graph)
    write_nir(network, tmp_path / "a.nir")
    assert same_records(network, read_nir(tmp_path / "a.nir"))
    with pytest.raises(FormatError, match="biases differ within a channel, and the picture is too large"):
        to_nir(network, dialect="portable")


def test_what_nir_cannot_say_is_refused(tmp_path):
    b = own_biases_without_a_picture()
    b.populations[-1] = replace(b.populations[-1], neuron=FloatReadout(bias=b.populations[-1].neuron.bias))
    with pytest.raises(FormatError, match="b: biases of the output differ within a channel"):
        to_nir(b.network())
    with pytest.raises(FormatError, match="a: a neuron with a leaking current and no leak of its voltage"):
        to_nir(nir_graphs.dense_chain(leak=1.0, current_leak=0.5))
    wide = replace(int_chain().connections[2], synapse=Dense(weight=np.full((3, 5), 2**24 + 1)))
    network = replace(int_chain(), connections=(*int_chain().connections[:2], wide))
    with pytest.raises(FormatError, match="dense->output: integer weights of more than 24 bits"):
        write_nir(network, tmp_path / "a.nir")
    assert not list(tmp_path.iterdir())


# ---- damaged metadata -----------------------------------------------------------------------------


def with_metadata(path, change):
    with h5py.File(path, "a") as file:
        told = json.loads(file["node/metadata/mpbn_deploy"][()])
        change(told)
        del file["node/metadata/mpbn_deploy"]
        file["node/metadata/mpbn_deploy"] = json.dumps(told)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.pop("kernels"), "'mpbn_deploy' is damaged"),
        (lambda told: told.update(dt=-1), "'mpbn_deploy' is damaged"),
        (lambda told: told.update(version=1), "has version 1; versions 2 to 5 are allowed"),
        (
            lambda told: told.update(constants=["nobody"]),
            "node 'nobody': the metadata lists it as a neuron",
        ),
        (
            lambda told: told.update(constants=["lif1"]),
            "node 'lif1': the metadata lists it as a neuron",
        ),
        (lambda told: told["leaks"].update(lif1=[2, 0]), "lif1: leak 2"),
        (lambda told: told.update(timesteps=0), "time steps 0"),
        (lambda told: told.update(timesteps=10**9), "timesteps 1000000000; allowed are"),
        (lambda told: told["populations"].reverse(), "first population must be the input"),
    ],
)
def test_damaged_metadata(path, change, message):
    with pytest.raises(FormatError, match=message):
        read_nir(with_metadata(path, change))


@pytest.mark.parametrize("kernel", [[3, 3, 3], [0, 3, 3], [1, 5, 5], [2, 3, 3], [1, 1, 1]])
def test_metadata_that_contradicts_a_kernel_is_not_believed(path, kernel):
    expected = read_nir(path)
    found = read_nir(
        with_metadata(path, lambda told: told["kernels"].update({"input->lif1 after 0": kernel}))
    )
    assert same_records(expected, found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told["integers"].pop("scales"), "of an integer network is damaged"),
        (
            lambda told: told["integers"]["scales"].update(conv=[1, 2]),
            "lacks a scale above zero for each channel of 'conv'",
        ),
        (lambda told: told["integers"]["scales"].update(nobody=[1]), "lacks a scale above zero .* 'nobody'"),
        (
            lambda told: told["integers"]["exponents"].update({"input->conv after 0": 5}),
            "not 32-bit integers",
        ),
        (
            lambda told: told["integers"]["populations"]["conv"].update(decay_voltage=9999),
            "decay_voltage 9999",
        ),
    ],
)
def test_damaged_metadata_of_integers(tmp_path, change, message):
    write_nir(int_chain(), tmp_path / "a.nir")
    with pytest.raises(FormatError, match=message):
        read_nir(with_metadata(tmp_path / "a.nir", change))
