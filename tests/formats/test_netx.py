"""network.net: written and read back bit by bit; the networks inside lava-dl; the commands on a file."""

import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, strategies as st
from networks import (
    LEAKING,
    assert_same_trace,
    charged,
    enlivened,
    inputs_for,
    int_chain,
    int_loop,
    int_pooled,
    int_residual,
    int_windows,
    is_chain,
    needs_lava,
    residual_body,
    softened,
    widened,
)
from properties import examples

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import FormatError, SimulationError, one_line, same_records
from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions, lava as lava_sim
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fit import fit
from mpbn_deploy.formats.netx import read_netx, stock_reader_loads, stock_reader_obstacle, write_netx
from mpbn_deploy.formats.nir import read_nir, write_nir
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
    output_shape,
    with_relays,
)
from mpbn_deploy.nn import ModelCard

QUICK = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}


# ---- round trips ------------------------------------------------------------------------------


@pytest.mark.parametrize("per_neuron", [False, True])
@pytest.mark.parametrize("options", [{}, {"groups": 2}, LEAKING, {"decay_current": 0, "decay_voltage": 4096}])
def test_round_trip_of_chains(tmp_path, per_neuron, options):
    network = int_chain(5, per_neuron=per_neuron, **options)
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))
    assert stock_reader_loads(network)


def test_windows_are_connections_of_a_graph(tmp_path):
    network = int_windows()
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))
    with h5py.File(tmp_path / "a.net") as file:
        entries = file["mpbn_deploy/connection"]
        assert [entries[k]["silent"][()].tolist() for k in "126"] == [
            [[0, 1], [0, 4]], [[0, 1], [1, 1]], [[3, 0], [4, 0]]
        ]  # fmt: skip
        assert "silent" not in entries["0"] and "silent" not in entries["7"]


def test_a_chain_with_a_window_is_not_for_the_stock_reader(tmp_path):
    """Its convolutions would give currents to all neurons."""
    network = int_chain()
    first, *rest = network.connections
    border = replace(first, synapse=replace(first.synapse, silent=((1, 0), (0, 1))))
    network = replace(network, connections=(border, *rest))
    assert is_chain(network) and not stock_reader_loads(network)
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))


@pytest.mark.parametrize(("index", "reason"), [(0, None), (2, "output: all weights are zero")])
def test_lava_dl_cannot_scale_dense_layers_without_weights(index, reason):
    """Those of convolutions it does not scale."""
    connections = [*int_chain().connections]
    synapse = connections[index].synapse
    none = replace(synapse, weight=np.zeros_like(synapse.weight))
    connections[index] = replace(connections[index], synapse=none)
    network = replace(int_chain(), connections=tuple(connections))
    found = stock_reader_obstacle(network)
    assert stock_reader_loads(network) and (found and found.partition(",")[0]) == reason


def test_round_trip_of_relays(tmp_path):
    network = with_relays(int_pooled(delay=1))
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))
    assert stock_reader_obstacle(network) == (
        "first_pool: relays, which pass sums on as graded messages; netx has no such layer"
    )
    with h5py.File(tmp_path / "a.net", "r+") as file:
        neurons = next(
            n["neuron"] for n in file["layer"].values() if "neuron" in n and "messageRange" in n["neuron"]
        )
        assert neurons["messageRange"][()].tolist() == [0, 4]
        del neurons["messageRange"]
        neurons["messageRange"] = 4
    with pytest.raises(FormatError, match="a messageRange of one number"):
        read_netx(tmp_path / "a.net")


@pytest.mark.parametrize("delay", [0, 3])
def test_round_trip_of_graphs(tmp_path, delay):
    network = int_residual(5, delay=delay)
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))
    assert not stock_reader_loads(network)


@pytest.mark.parametrize(
    ("network", "type_", "loads"),
    [
        (int_loop(), "dense_rec", True),
        (int_loop(delays=(2,), loop=False), "dense", True),
        (int_loop(delays=(0, 1, 4), loop=False), "dense", True),
        (int_loop(delays=(4, 1), loop=False), "concat", False),  # reading gives the smallest delay first
        (int_loop(delays=(63,), loop=False), "concat", False),  # lava-dl's reader would clamp it
    ],
)
def test_loops_and_delays_are_layers_of_lava_dl_where_it_has_them(tmp_path, network, type_, loads):
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))
    assert stock_reader_loads(network) is loads
    with h5py.File(tmp_path / "a.net") as file:
        changed = file["layer/1" if type_ == "dense_rec" else "layer/2"]
        assert changed["type"][()].decode() == type_


@st.composite
def graphs(draw):
    """Any IntNetwork of a few small populations, with skips, loops, delays and exponents."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    shapes = [
        draw(st.sampled_from([(3,), (2, 3, 4), (4, 2, 2), (1, 1, 5)])) for _ in range(draw(st.integers(2, 4)))
    ]
    allowed = st.text(max_size=4).filter(lambda name: one_line(name) == name)
    names = draw(st.lists(allowed, min_size=len(shapes), max_size=len(shapes), unique=True))

    def parameters(shape, low, high):
        return generator.integers(
            low, high, size=shape if draw(st.booleans()) else (shape[0], *(1 for _ in shape[1:]))
        )

    def population(index):
        name, shape = names[index], shapes[index]
        if index == 0:
            return Population(
                name=name, shape=shape, neuron=Input(minimum=-3, maximum=draw(st.integers(-3, 9)))
            )
        bias = {"bias": parameters(shape, -9, 9), "bias_exponent": draw(st.sampled_from([6, 6, 2]))}
        if index == len(shapes) - 1 and draw(st.booleans()):
            rule = draw(st.sampled_from([{}, LEAKING]))
            return Population(name=name, shape=shape, neuron=Readout(**rule, **bias))
        rule = {"decay_current": draw(st.integers(0, 4096)), "decay_voltage": draw(st.integers(0, 4096))}
        return Population(
            name=name, shape=shape, neuron=Lif(threshold=parameters(shape, -9, 2**17), **rule, **bias)
        )

    def connection(source, target, delay):
        exponent = draw(st.sampled_from([0, 0, 0, 2, -3]))
        ends = {"source": names[source], "target": names[target], "delay": delay}
        before, after = shapes[source], shapes[target]
        if len(before) == len(after) == 3 and before[1:] == after[1:] and draw(st.booleans()):
            groups = draw(st.sampled_from([g for g in (1, 2) if before[0] % g == after[0] % g == 0]))
            weight = generator.integers(-9, 9, size=(after[0], before[0] // groups, 3, 1))
            synapse = Conv2d(weight=weight, padding=(1, 0), groups=groups, exponent=exponent)
            assert output_shape(synapse, before) == after
        else:
            weight = generator.integers(-9, 9, size=(np.prod(after), np.prod(before)))
            synapse = Dense(weight=weight, exponent=exponent)
        return Connection(synapse=synapse, **ends)

    last = len(shapes) - 1
    connections = [
        connection(draw(st.integers(0, t - 1)), t, draw(st.sampled_from([0, 0, 2])))
        for t in range(1, last + 1)
    ]
    for _ in range(draw(st.integers(0, 3))):
        connections.append(
            connection(draw(st.integers(0, last)), draw(st.integers(1, last)), draw(st.integers(1, 70)))
        )
    return IntNetwork(
        populations=tuple(population(index) for index in range(len(shapes))),
        connections=tuple(draw(st.permutations(connections))),
        timesteps=draw(st.integers(1, 9)),
        scales={name: generator.random(shape[0]) for name, shape in zip(names[1:], shapes[1:], strict=True)},
    )


@examples(80, **QUICK)
@given(network=graphs(), soft=st.booleans(), currents=st.booleans(), seed=st.integers(0, 10**6))
def test_every_graph_is_read_back_bit_by_bit(tmp_path, network, soft, currents, seed):
    network = softened(network, seed) if soft else network
    network = charged(network, seed) if currents else network
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))


@pytest.mark.parametrize("per_neuron", [False, True])
def test_soft_resets_are_an_extension_that_lava_dl_cannot_mistake_for_its_own(tmp_path, per_neuron):
    network = softened(int_chain(5, per_neuron=per_neuron), 5)
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))
    assert not stock_reader_loads(network)
    with h5py.File(tmp_path / "a.net") as file:
        assert file["layer/1/type"][()].decode() == "concat"  # which lava-dl's reader rejects
        assert file["layer/1/neuron/type"][()].decode() == "CUBA_SUBTRACT"


@pytest.mark.parametrize("network", [int_chain(), int_residual()])
def test_same_network_same_bytes(tmp_path, network):
    for name in ("a.net", "b.net"):
        write_netx(network, tmp_path / name)
    assert (tmp_path / "a.net").read_bytes() == (tmp_path / "b.net").read_bytes()


def test_bias_exponents_and_readouts_that_could_fire_are_not_for_the_stock_reader(tmp_path):
    network = int_chain()
    *front, last = network.populations
    exponent = replace(last, neuron=replace(last.neuron, bias_exponent=3))
    high = replace(last, neuron=replace(last.neuron, bias=np.full(3, 2**16)))
    for changed in (exponent, high):
        network = replace(network, populations=(*front, changed))
        assert not stock_reader_loads(network)
        write_netx(network, tmp_path / "a.net")
        assert same_records(network, read_netx(tmp_path / "a.net"))


# ---- files of lava-dl -------------------------------------------------------------------------


def recorded(name):
    """A file of the recorded networks inside the lava-dl wheel."""
    try:
        files = metadata.files("lava-dl") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [file.locate() for file in files if str(file).endswith(f"tests/lava/lib/dl/netx/{name}")]
    if not found or not found[0].exists():
        pytest.skip("lava-dl with its recorded networks is not installed")
    return found[0]


def test_pilotnet_fires_the_recorded_spikes_at_the_recorded_voltages():
    """From the recorded picture, in all layers that fire; made for tests of the Loihi chip.

    A population at depth d shows step k of a sample at step d + k of its record, samples take 17
    steps, and the record of 24 holds the same picture twice. Where a neuron fired, the chip's voltage
    register reads 128.
    """
    network = read_netx(recorded("gts/pilotnet_lif/network.net"), timesteps=17)
    assert network.input_range.minimum == -4 and network.input_range.maximum == 76
    assert isinstance(network.output.neuron, Readout)
    picture = np.load(recorded("gts/pilotnet_lif/image.npy")).T
    trace = emulate(network, picture[None])
    names = ["input", *(f"conv-{i}" for i in range(5)), *(f"fc-{i}" for i in range(3))]
    for depth, (population, name) in enumerate(zip(network.populations[1:], names, strict=False)):
        expected = np.load(recorded(f"gts/pilotnet_lif/{name}.npy")).T[depth:]
        spikes = np.tile(trace.spikes[population.name][0], (2, *(1 for _ in population.shape)))
        np.testing.assert_array_equal(spikes[: len(expected)], expected, err_msg=name)
        if name != "input":
            voltages = np.load(recorded(f"gts/pilotnet_lif/{name}-v.npy")).T[depth:]
            shown = np.tile(trace.voltages[population.name][0], (2, *(1 for _ in population.shape)))
            shown = np.where(spikes, 128, shown)[: len(voltages)]
            np.testing.assert_array_equal(shown, voltages, err_msg=name)


def test_tinynet_fires_the_recorded_spikes():
    network = read_netx(recorded("tiny.net"), timesteps=17)
    drive = np.load(recorded("gts/tinynet/input_bias.npy")).T.astype(int)
    expected = np.load(recorded("gts/tinynet/output.npy"))[0].transpose(3, 0, 1, 2)
    spikes = emulate(network, drive[None]).spikes["layer2"][0]
    assert expected.sum() == 92
    np.testing.assert_array_equal(spikes[: len(expected) - 1], expected[1:])


@needs_lava
def test_a_network_trained_by_slayer_fires_the_spikes_of_slayer(tmp_path):
    """Currents and a loop, with a decay for each neuron that slayer has trained."""
    lava_sim.load_netx()
    from lava.lib.dl import slayer

    torch.manual_seed(0)
    rule = {"threshold": 1.25, "current_decay": 0.25, "voltage_decay": 0.03, "tau_grad": 0.03,
            "scale_grad": 3, "requires_grad": True, "shared_param": False}  # fmt: skip
    blocks = slayer.block.cuba
    layers = [
        make({**rule}, before, after, delay_shift=False)
        for make, before, after in ((blocks.Dense, 16, 20), (blocks.Recurrent, 20, 12), (blocks.Dense, 12, 4))
    ]

    def fire(inputs):
        """Return the spikes of each layer, [samples, neurons, timesteps]; slayer's loops keep their state."""
        found = []
        for layer in layers:
            for state in ("current_state", "voltage_state"):
                setattr(layer.neuron, state, torch.zeros_like(getattr(layer.neuron, state)[:1].flatten()[:1]))
            inputs = layer(inputs)
            found.append(inputs)
        return found

    inputs, labels = (torch.rand(8, 16, 30) < 0.3).float(), torch.randint(0, 4, (8,))
    optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=0.01)
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(fire(inputs)[-1].sum(-1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with h5py.File(tmp_path / "theirs.net", "w") as file:
        for index, layer in enumerate(layers):
            layer.export_hdf5(file.create_group(f"layer/{index}"))
    network = read_netx(tmp_path / "theirs.net", timesteps=30)
    assert len(np.unique(network.layers[0].neuron.decay_current)) > 4
    with torch.no_grad():
        expected = fire(inputs)
    got = emulate(network, inputs.numpy().transpose(0, 2, 1).astype(int))
    for population, theirs in zip(network.layers, expected, strict=True):
        assert 0.001 < theirs.mean() < 0.5
        np.testing.assert_array_equal(theirs.numpy().transpose(0, 2, 1) > 0, got.spikes[population.name])


@needs_lava
def test_lava_dl_runs_decays_of_their_own(tmp_path):
    """As its `recurrent_example` has them: two dense layers with loops, four or five decays in each."""
    generator = np.random.default_rng(0)
    with h5py.File(tmp_path / "theirs.net", "w") as file:
        for index, inputs in enumerate((6, 5)):
            layer = {
                "type": b"dense_rec",
                "shape": [5],
                "weight": generator.integers(-8, 24, (5, inputs)),
                "weight_rec": generator.integers(-12, 8, (5, 5)),
                "neuron/type": b"CUBA",
                "neuron/iDecay": generator.integers(2030, 2064, 5),
                "neuron/vDecay": generator.integers(608, 621, 5),
                "neuron/vThMant": 60,
                "neuron/refDelay": 1,
                "neuron/gradedSpike": False,
            }
            for key, value in layer.items():
                file[f"layer/{index}/{key}"] = value
    network = read_netx(tmp_path / "theirs.net", timesteps=20)
    inputs = generator.integers(0, 2, (3, 20, 6))
    expected = simulate(network, inputs)
    assert all(0.05 < spikes.mean() < 0.95 for spikes in expected.spikes.values())
    assert_same_trace(expected, emulate(network, inputs))
    for name in ("lava", "lava-stock", "netx"):
        assert EXECUTORS[name].obstacle(network) is None
        got = EXECUTORS[name].run(network, inputs, ExecutionOptions())
        assert_same_trace(expected, got, voltages=name != "netx")


def test_ntidigits_fires_the_recorded_spikes_through_its_delays():
    """53 and 41 different axonal delays, currents that decay, groups that are averaged."""
    steps = 250
    network = read_netx(recorded("gts/ntidigits/ntidigits.net"), timesteps=steps)
    assert {c.delay for c in network.connections} >= {0, 1, 2, 62} and len(network.connections) == 96
    inputs = np.load(recorded("gts/ntidigits/input.npy")).T[:steps].astype(int)
    expected = np.load(recorded("gts/ntidigits/output.npy")).T
    trace = emulate(network, inputs.reshape(1, steps, 1, 1, 64))
    spikes = trace.spikes["layer4"][0]
    assert spikes.sum() > 500
    np.testing.assert_array_equal(
        spikes, expected[4 : steps + 4]
    )  # the record counts three layers and the input
    counts = spikes.sum(axis=0).reshape(11, 22).sum(axis=1)
    np.testing.assert_array_equal(trace.outputs[0], 64 * counts)
    assert (network.scales["layer5"] == 22 * steps).all()


def test_mnist_ends_in_a_layer_without_neurons():
    network = read_netx(recorded("mnist.net"))
    assert network.timesteps == 16 and isinstance(network.output.neuron, Readout)
    assert network.input.shape == (1, 1, 784)  # neurons that are driven one by one are a picture of one row


def test_a_last_layer_of_others_that_leaks_and_never_fires_is_a_readout(tmp_path):
    network = int_chain(**LEAKING)
    write_netx(network, tmp_path / "a.net")
    with h5py.File(tmp_path / "a.net", "a") as file:
        del file["mpbn_deploy"]
    read = read_netx(tmp_path / "a.net", timesteps=4, input_range=(0, 7))
    assert same_records(read.output.neuron, network.output.neuron)
    inputs = inputs_for(network)
    np.testing.assert_array_equal(simulate(read, inputs).outputs, simulate(network, inputs).outputs)


def test_files_of_others_need_time_steps_and_have_plain_names(netx_path):
    with h5py.File(netx_path, "a") as file:
        del file["mpbn_deploy"]
    with pytest.raises(FormatError, match="give timesteps"):
        read_netx(netx_path)
    network = read_netx(netx_path, timesteps=6, input_range=(0, 7))
    assert [p.name for p in network.populations] == ["input", "layer1", "layer3", "layer4"]
    assert network.timesteps == 6 and network.input_range.maximum == 7
    assert isinstance(network.output.neuron, Readout)  # it cannot do otherwise
    assert network.output.neuron.decay_voltage == 0
    assert same_records(network.connections[0].synapse, int_chain().connections[0].synapse)


def test_reads_what_lava_dl_writes(netx_path):
    """Strings as arrays of one, scalars as arrays, kernels with a time axis, one threshold for all."""
    with h5py.File(netx_path, "a") as file:
        layer = file["layer/1"]
        weight = layer["weight"][()]
        for key in ("type", "weight", "groups", "bias", "neuron/vThMant", "neuron/vDecay"):
            del layer[key]
        layer.create_dataset("type", (1,), "S10", [b"conv"])
        layer["weight"] = weight[..., None].astype(float)
        layer["groups"] = [1]
        layer["neuron/vThMant"] = 2**18 - 1
        layer["neuron/vDecay"] = np.full((4, 3, 3), 128)
    neuron = read_netx(netx_path).populations[1].neuron
    assert (neuron.threshold == 2**17).all()  # neither is ever reached
    assert (neuron.bias == 0).all() and neuron.decay_voltage == 128
    assert read_netx(netx_path).connections[0].synapse.weight.shape == (4, 2, 3, 2)


def others(tmp_path, **layers):
    """A file as lava-dl's slayer writes it, without an input layer."""
    path = tmp_path / "others.net"
    neuron = {"type": b"CUBA", "iDecay": 1024, "vDecay": 128, "vThMant": 10, "refDelay": 1}
    with h5py.File(path, "w") as file:
        for number, keys in layers.items():
            for key, value in keys.items():
                file[f"layer/{number[1:]}/{key}"] = value
            if keys["type"] not in (b"flatten", b"input"):
                for key, value in neuron.items():
                    file[f"layer/{number[1:]}/neuron/{key}"] = value
    return path


def test_networks_without_an_input_layer(tmp_path):
    dense = {"type": b"dense", "shape": [3], "weight": np.ones((3, 8))}
    network = read_netx(others(tmp_path, _0=dense), timesteps=2)
    assert network.input.shape == (8,) and network.populations[1].neuron.decay_current == 1024
    flatten = {"type": b"flatten", "shape": [8, 1, 1]}
    assert read_netx(others(tmp_path, _0=flatten, _1=dense), timesteps=2).input.shape == (8,)
    conv = {"type": b"conv", "shape": [1, 2, 2], "weight": np.ones((1, 1, 2, 2)), "stride": 1, "padding": 0,
            "dilation": 1, "groups": 1}  # fmt: skip
    path = others(tmp_path, _0=conv)
    with pytest.raises(FormatError, match=r"layer 0 is of type 'conv', .* give input_shape"):
        read_netx(path, timesteps=2)
    assert read_netx(path, timesteps=2, input_shape=(1, 3, 3)).input.shape == (1, 3, 3)


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (3, {3}),
        ([3], {3}),
        ([0, 1, 1], {0, 1}),  # per target
        ([0, 1, 2, 1], {0, 1, 2}),  # per source
        (np.arange(12).reshape(3, 4) % 2, {0, 1}),  # per synapse
    ],
)
def test_delays_become_connections(tmp_path, delay, expected):
    weight = np.arange(1, 13).reshape(3, 4)
    layer = {"type": b"dense", "shape": [3], "weight": weight, "delay": delay}
    connections = read_netx(others(tmp_path, _0=layer), timesteps=2).connections
    assert {c.delay for c in connections} == expected and len(connections) == len(expected)
    np.testing.assert_array_equal(sum(c.synapse.weight for c in connections), weight)
    whole = np.zeros((3, 4), int) + (np.reshape(delay, (3, 1)) if np.size(delay) == 3 else delay)
    for connection in connections:
        assert (whole[connection.synapse.weight != 0] == connection.delay).all()


DENSE = {"type": b"dense", "shape": [100], "weight": np.ones((100, 1))}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({**DENSE, "delay": np.arange(100)}, r"layer 0 has 100 different delays, 0\.\.99, of 100 synapses"),
        ({**DENSE, "delay": [-1]}, r"layer 0 has delays -1\.\.-1; allowed are 0"),
        ({**DENSE, "delay": np.ones(7)}, r"layer 0 has delay of shape \(7,\), .* weight, \(100, 1\)"),
        ({**DENSE, "type": b"dense_rec", "weight_rec": np.ones((100, 100)), "delay": 2},
         "layer 0 of type 'dense_rec' has delays; lava-dl's reader drops the exponent"),
        ({**DENSE, "type": b"dense_rec"}, "layer 0 has no numbers under the key 'weight_rec'"),
        ({**DENSE, "type": b"conv", "delay": 2}, "layer 0 of type 'conv' has delays; lava-dl's reader"),
        ({**DENSE, "type": b"pool"}, "layer 0 is of type 'pool'; supported are input, flatten"),
        ({**DENSE, "type": b"concat"}, "layer 0 is of type 'concat', which has no weights"),
        ({**DENSE, "weight": np.ones(7)}, r"layer 0 has weight of shape \(7,\); \[out, in\]"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_of_files_of_others(tmp_path, layer, message):
    with pytest.raises(FormatError, match=message):
        read_netx(others(tmp_path, _0=layer), timesteps=2, input_shape=(1,))


def test_averages_of_unequal_groups_and_in_the_middle(tmp_path):
    dense = {"type": b"dense", "shape": [3], "weight": np.ones((3, 8))}
    average = {"type": b"average", "shape": [2, 1, 1]}
    with pytest.raises(FormatError, match="layer 1 averages 3 neurons in 2 groups"):
        read_netx(others(tmp_path, _0=dense, _1=average), timesteps=2)
    with pytest.raises(FormatError, match="layer 0 is of type 'average'; only the last layer can be"):
        read_netx(others(tmp_path, _0=average, _1=dense), timesteps=2)
    with pytest.raises(FormatError, match="no layer with neurons"):
        read_netx(others(tmp_path, _0={"type": b"flatten", "shape": [3]}), timesteps=2)


# ---- Lava -------------------------------------------------------------------------------------


PILOTNET = "gts/pilotnet_lif"
PILOTNET_LAYERS = ("input", *(f"conv-{i}" for i in range(5)), *(f"fc-{i}" for i in range(3)))


@needs_lava
def test_pilotnet_fires_the_recorded_spikes_at_the_recorded_voltages_in_lava():
    """As above, in our process models: the record begins the same picture again after 17 steps."""
    network = read_netx(recorded(f"{PILOTNET}/network.net"), timesteps=17)
    picture = np.load(recorded(f"{PILOTNET}/image.npy")).T
    trace = lava_sim.run(network, np.stack([picture, picture]), lanes=1)
    for depth, (population, name) in enumerate(zip(network.populations[1:], PILOTNET_LAYERS, strict=False)):
        expected = np.load(recorded(f"{PILOTNET}/{name}.npy")).T[depth:]
        spikes = trace.spikes[population.name].reshape(-1, *population.shape)[: len(expected)]
        np.testing.assert_array_equal(spikes, expected, err_msg=name)
        if name != "input":
            voltages = np.load(recorded(f"{PILOTNET}/{name}-v.npy")).T[depth:]
            shown = trace.voltages[population.name].reshape(-1, *population.shape)[: len(expected)]
            np.testing.assert_array_equal(np.where(spikes, 128, shown), voltages, err_msg=name)


def currents_in_lava(network, connection, sent):
    """What a connection brings to its target in each step, given what its source sends.

    The target forgets its voltage in every step and never fires, so that its voltage is its current.
    """
    source, target = (
        next(p for p in network.populations if p.name == name)
        for name in (connection.source, connection.target)
    )
    ones = (target.shape[0], *(1 for _ in target.shape[1:]))
    silent = Lif(threshold=np.full(ones, 2**17), bias=np.zeros(ones, int))
    alone = IntNetwork(
        populations=(
            Population(name=source.name, shape=source.shape, neuron=Input(minimum=0, maximum=1)),
            Population(name=target.name, shape=target.shape, neuron=silent),
        ),
        connections=(connection,),
        timesteps=len(sent),
        scales={},
    )
    return lava_sim.run(alone, sent[None].astype(int)).voltages[target.name][0]


@needs_lava
@pytest.mark.parametrize("layer", range(1, len(PILOTNET_LAYERS)))
def test_pilotnet_has_the_recorded_currents_in_lava(layer):
    """Of each layer, from the recorded spikes of the one before it; they take a step."""
    network = read_netx(recorded(f"{PILOTNET}/network.net"), timesteps=17)
    before, name = PILOTNET_LAYERS[layer - 1 : layer + 1]
    sent = np.load(recorded(f"{PILOTNET}/{before}.npy")).T
    expected = np.load(recorded(f"{PILOTNET}/{name}-u.npy")).T
    got = currents_in_lava(network, network.connections[layer], sent)
    assert expected.any()
    np.testing.assert_array_equal(got[:-1], expected[1:])


@needs_lava
def test_the_record_of_pilotnets_last_layer_contradicts_itself():
    """Its first eight currents follow from the recorded spikes of the layer before it, the others do not.

    So it was taken in another run (it has 25 steps, the others 24), and is held against nothing.
    """
    network = read_netx(recorded(f"{PILOTNET}/network.net"), timesteps=17)
    sent = np.load(recorded(f"{PILOTNET}/fc-2.npy")).T
    expected = np.load(recorded(f"{PILOTNET}/fc-3-u.npy")).T
    got = currents_in_lava(network, network.connections[-1], sent)
    assert len(expected) == 25 and np.count_nonzero(got[:7]) == 2
    np.testing.assert_array_equal(got[:7], expected[1:8])
    assert (got[7], expected[8]) == (-1536, 0) and (got[7:23] != expected[8:24]).any()


@needs_lava
@pytest.mark.parametrize("stock", [False, True])
def test_tinynet_fires_the_recorded_spikes_in_lava(stock):
    """In all its layers; and the recorded currents of the second, in units of a weight."""
    network = read_netx(recorded("tiny.net"), timesteps=17)
    drive = np.load(recorded("gts/tinynet/input_bias.npy")).T.astype(int)
    trace = lava_sim.run(network, drive[None], stock=stock)
    for population, name in zip(network.populations[1:], ("input", "layer1", "output"), strict=True):
        expected = np.load(recorded(f"gts/tinynet/{name}.npy"))[0].transpose(3, 0, 1, 2)
        assert expected.any()
        spikes = trace.spikes[population.name][0, : len(expected) - 1]
        np.testing.assert_array_equal(spikes, expected[1:], err_msg=name)
    sent = np.load(recorded("gts/tinynet/input.npy"))[0].transpose(3, 0, 1, 2)
    expected = np.load(recorded("gts/tinynet/current.npy"))[0].transpose(3, 0, 1, 2)
    got = currents_in_lava(network, network.connections[1], sent)
    np.testing.assert_array_equal(got, 64 * expected)


@needs_lava
def test_ntidigits_fires_the_recorded_spikes_in_lava():
    steps = 250
    network = read_netx(recorded("gts/ntidigits/ntidigits.net"), timesteps=steps)
    inputs = np.load(recorded("gts/ntidigits/input.npy")).T[:steps].astype(int)
    expected = np.load(recorded("gts/ntidigits/output.npy")).T[4 : steps + 4]
    trace = lava_sim.run(network, inputs.reshape(1, steps, 1, 1, 64), probe=["layer4"])
    assert expected.sum() > 500
    np.testing.assert_array_equal(trace.spikes["layer4"][0], expected)


@needs_lava
def test_a_dense_layer_fires_the_recorded_spikes_in_lava():
    """2,000 steps of the layer of lava-dl's own test, whose neurons those parameters are; 500 in Lava."""
    weight, sent, expected, currents = (
        np.load(recorded(f"gts/dense/{name}.npy")).T for name in ("weight", "in", "out", "current")
    )
    network = IntNetwork(
        populations=(
            Population(name="input", shape=(200,), neuron=Input(minimum=0, maximum=1)),
            Population(
                name="dense",
                shape=(256,),
                neuron=Lif(threshold=np.full(256, 6), bias=np.zeros(256, int), decay_voltage=415),
            ),
        ),
        connections=(Connection(source="input", target="dense", synapse=Dense(weight=weight.T)),),
        timesteps=2000,
        scales={},
    )
    spikes = emulate(network, sent[None].astype(int)).spikes["dense"][0]
    np.testing.assert_array_equal(spikes[:-1], expected[1:])
    steps = 500
    first = replace(network, timesteps=steps)
    spikes = lava_sim.run(first, sent[None, :steps].astype(int)).spikes["dense"][0]
    np.testing.assert_array_equal(spikes, expected[1 : steps + 1])
    got = currents_in_lava(first, first.connections[0], sent[:steps])
    np.testing.assert_array_equal(got, 64 * currents[1 : steps + 1])


@needs_lava
@pytest.mark.parametrize("delays", [(0,), (0, 3)])
def test_the_stock_reader_runs_loops_and_delays(tmp_path, delays):
    network = int_loop(1, delays=delays, loop=delays == (0,))
    write_netx(network, tmp_path / "a.net")
    inputs = inputs_for(network, samples=2, steps=True)
    expected = simulate(network, inputs)
    assert expected.spikes["first"].any() and expected.spikes["last"].any()
    got = lava_sim.run_stock_netx(tmp_path / "a.net", network, inputs)
    assert_same_trace(expected, got, voltages=False)


@needs_lava
@pytest.mark.parametrize("name", ["mnist.net", "tiny.net"])
def test_the_stock_reader_fires_our_spikes_in_networks_of_lava_dl(name):
    """Also where the layers after the input are given the spikes of its neurons."""
    file = recorded(name)
    network = read_netx(file, timesteps=4)
    inputs = inputs_for(network, samples=2)
    expected = simulate(network, inputs)
    got = lava_sim.run_stock_netx(file, network, inputs)
    assert set(got.spikes) == {p.name for p in network.populations[2:]}
    for population, spikes in got.spikes.items():
        np.testing.assert_array_equal(spikes, expected.spikes[population])
    np.testing.assert_array_equal(got.outputs, expected.outputs)


@needs_lava
def test_the_stock_reader_stops_at_a_graph_and_loads_what_comes_before(netx_graph_path):
    network = int_residual(delay=2)
    with pytest.raises(SimulationError, match="concat is not implemented"):
        lava_sim.run_stock_netx(netx_graph_path, network, inputs_for(network))
    from mpbn_deploy.execute.lava import load_netx

    assert len(load_netx().Network(net_config=str(netx_graph_path), num_layers=3)) == 2


# ---- commands ---------------------------------------------------------------------------------


@pytest.fixture
def result(capfd):
    def run(command, *arguments):
        code = console_script([command, *map(str, arguments), "--json"])
        return code, json.loads(capfd.readouterr().out)

    return run


def test_commands_take_a_file(result, netx_graph_path):
    code, fitted = result("fit", netx_graph_path, "--target", "loihi2")
    assert code in (0, 1) and [layer["name"] for layer in fitted["layers"]] == ["first", "second", "last"]
    code, ran = result("run", netx_graph_path, "--backend", "emulator", "--data", "random", "--samples", 3)
    network = read_netx(netx_graph_path)
    inputs = np.random.default_rng(0).integers(-3, 4, size=(3, *network.input.shape))
    assert code == 0 and ran["predictions"] == emulate(network, inputs).predictions.tolist()


@needs_lava
def test_networks_of_others_that_overflow_are_verified_like_any(result, capfd):
    """Inputs far beyond those of lava-dl's tutorial."""
    options = ["--timesteps", "6", "--input-range", "-30000", "30000", "--samples", "1"]
    code, report = result("verify", recorded("mnist.net"), *options, "--budget", "60")
    assert code == 0 and report["bit_exact"] and report["executions_run"] == 4
    assert report["overflows"].keys() == {"layer0"} and 10 < report["overflows"]["layer0"]["neurons"] < 784
    assert not any(c["not_run"] for c in report["comparisons"])
    run = ["run", str(recorded("mnist.net")), "--backend", "emulator", *options]
    assert result(*run)[1]["overflows"] == report["overflows"]
    assert console_script(run) == 0
    found = report["overflows"]["layer0"]
    counted = f"layer0: {found['neurons']} neurons left 24 bits, in {found['steps']} steps of all samples"
    assert counted in capfd.readouterr().out


def test_networks_of_others_stay_so(tmp_path):
    network = widened(int_chain(), 1)
    write_netx(network, tmp_path / "a.net")
    write_nir(network, tmp_path / "a.nir")
    assert same_records(read_netx(tmp_path / "a.net"), network)
    assert same_records(read_nir(tmp_path / "a.nir"), network)
    assert read_netx(recorded("mnist.net")).foreign


@needs_lava
def test_verify_takes_a_file(result, netx_path, netx_graph_path):
    for file, executions in (
        (netx_path, ["emulator", "C", "Lava's own models", "lava-dl netx"]),
        (netx_graph_path, ["emulator", "C", "Lava's own models"]),
    ):
        code, report = result("verify", file, "--samples", 2, "--budget", 60)
        assert code == 0 and report["bit_exact"] and report["executions_run"] == len(executions)
        assert [comparison["execution"] for comparison in report["comparisons"]] == executions
        assert report["prediction_agreement"] is None


def test_commands_are_told_what_a_file_does_not_say(result, netx_path, capfd):
    with h5py.File(netx_path, "a") as file:
        del file["mpbn_deploy"]
    for arguments, message in (
        (["run", netx_path, "--backend", "emulator"], "give timesteps"),
        (["fit", netx_path, "--timesteps", "3"], "does not name a target chip"),
        (["fit", netx_path.parent, "--timesteps", "3"], "--timesteps is for .net files"),
        (["fit", netx_path.parent / "absent.net", "--target", "loihi2"], "no such file"),
    ):
        code, told = result(*arguments)
        assert code == 2 and message in told["error"]
    for options, message in (
        (["--input-range", 5, 2], "input range 5..2 is empty; give the lowest value first"),
        (
            ["--input-range", 0, 7, "--input-shape", 1, 6, 5],
            "layer 0 has shape [2, 6, 5]; input_shape (--input-shape) [1, 6, 5] differs. Omit it",
        ),
    ):
        code, told = result("fit", netx_path, "--target", "loihi2", "--timesteps", 3, *options)
        assert code == 2 and message in told["error"]
    same = ["--input-range", 0, 7, "--input-shape", 2, 6, 5]
    assert result("fit", netx_path, "--target", "loihi2", "--timesteps", 3, *same)[0] in (0, 1)
    rest = ["--timesteps", 3, "--input-range", -2, 7, "--samples", 2]
    code, ran = result("run", netx_path, "--backend", "emulator", *rest)
    assert code == 0 and ran["samples"] == 2


def test_a_residual_network_is_exported_as_a_graph(result, tmp_path):
    model = enlivened(residual_body(), shape=(2, 6, 6)).float()
    model.card = ModelCard(architecture="networks:residual_body", arguments={})
    save_model(tmp_path / "model.pt", model)
    options = ["--target", "loihi2", "--arch", "networks:residual_body", "--samples", 2]
    code, exported = result("export", tmp_path / "model.pt", *options)
    assert code == 0 and exported["fits"] and exported["bit_exact"]
    code, report = result("verify", tmp_path / "model.loihi2", "--samples", 2, "--data", "random")
    executions = [comparison["execution"] for comparison in report["comparisons"]]
    assert (
        code == 0
        and executions == ["emulator", "C", "Lava (our models)"]
        and report["spikes_mismatched"] == 0
    )
    network = read_netx(tmp_path / "model.loihi2" / "network.net")
    assert not is_chain(network) and len(network.connections) == 5


def test_random_spikes_come_and_go(result, tmp_path):
    network = int_loop()
    write_netx(network, tmp_path / "a.net")
    _, ran = result("run", tmp_path / "a.net", "--backend", "emulator", "--samples", 4)
    inputs = np.random.default_rng(0).integers(0, 2, size=(4, network.timesteps, 6))
    assert ran["predictions"] == emulate(network, inputs).predictions.tolist()


# ---- the documentation ------------------------------------------------------------------------


def test_the_example_of_the_documentation(tmp_path, monkeypatch, capsys):
    """docs/formats.md, "A graph in netx": the code runs, and prints what stands below it."""
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    section = text.split("### A graph in netx")[1]
    code, printed = section.split("```python\n")[1].split("```\n\nprints\n\n```\n")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/formats.md", "exec"), {})
    assert capsys.readouterr().out == printed.split("```")[0]
    assert fit(read_netx("graph.net"), load_profile("loihi2")).fits
