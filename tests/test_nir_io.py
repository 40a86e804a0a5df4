"""network.nir: written by us and read by nir, written by others and read by us."""

import json
from dataclasses import replace

import h5py
import nir
import numpy as np
import pytest
from networks import inputs_for, spiking_network

from mpbn_deploy.errors import FormatError
from mpbn_deploy.float_ir import FloatLif
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.nir_io import DT, read_nir, to_nir, write_nir
from mpbn_deploy.records import same_records
from mpbn_deploy.simulate import simulate


def folded_network(seed=0, **options):
    return fold(trace(spiking_network(seed, **options)))


@pytest.fixture
def path(tmp_path):
    write_nir(folded_network(), tmp_path / "network.nir")
    return tmp_path / "network.nir"


def euler(graph, inputs, timesteps, dt):
    """NIR's own equations, step by step, from nothing but the file: what any reader should compute."""
    from mpbn_deploy.graph import Conv2d, apply_synapse

    def forward(node, value):
        match node:
            case nir.Affine():
                return value @ node.weight.T.astype(float) + node.bias
            case nir.Conv2d():
                synapse = Conv2d(
                    weight=node.weight, stride=tuple(node.stride), padding=tuple(node.padding),
                    dilation=tuple(node.dilation), groups=int(node.groups),
                )  # fmt: skip
                return apply_synapse(synapse, value) + node.bias[:, None, None]
            case nir.Flatten():
                return value.reshape(len(value), -1)
            case _:
                return value

    voltage, spikes, outputs = {}, {}, []
    after = dict(graph.edges)
    for _ in range(timesteps):
        name, value = "input", inputs.astype(float)
        while name != "output":
            name = after[name]
            node = graph.nodes[name]
            if isinstance(node, (nir.LIF, nir.IF)):
                v = voltage.get(name, np.zeros(value.shape))
                leaks = isinstance(node, nir.LIF)
                v = v + (
                    dt / node.tau * ((node.v_leak - v) + node.r * value) if leaks else dt * node.r * value
                )
                value = (v > node.v_threshold).astype(float)
                voltage[name] = np.where(value > 0, node.v_reset, v)
                spikes.setdefault(name, []).append(value > 0)
            else:
                value = forward(node, value)
        outputs.append(value)
    return {name: np.stack(steps, axis=1) for name, steps in spikes.items()}, np.mean(outputs, axis=0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mpbn": "element", "gains": "positive"},
        {"padding": 0},
        {"leak": 0.0},
        {"leak": 1.0, "padding": 0},
    ],
)
def test_nirs_own_equations_fire_our_spikes(tmp_path, options):
    folded = folded_network(**options)
    write_nir(folded, tmp_path / "a.nir")
    inputs = inputs_for(folded, samples=20)
    spikes, outputs = euler(nir.read(tmp_path / "a.nir"), inputs, folded.timesteps, DT)
    expected = simulate(folded, inputs)
    for name in spikes:
        different = np.count_nonzero(spikes[name] != expected.spikes[name])
        assert (
            different <= 1e-3 * spikes[name].size
        )  # float32 in the file: only decisions at the edge may move
    np.testing.assert_allclose(np.median(np.abs(outputs - expected.outputs)), 0, atol=1e-5)


def test_round_trip(path, tmp_path):
    """Once in float32, a network survives every further trip unchanged."""
    once = read_nir(path)
    write_nir(once, tmp_path / "again.nir")
    assert same_records(once, read_nir(tmp_path / "again.nir"))
    original = folded_network()
    for before, after in zip(original.populations[1:], once.populations[1:], strict=True):
        assert before.name == after.name and before.neuron.bias.shape == after.neuron.bias.shape
        np.testing.assert_allclose(before.neuron.bias, after.neuron.bias, rtol=1e-5, atol=1e-6)
        if isinstance(before.neuron, FloatLif):
            assert before.neuron.leak == after.neuron.leak
            np.testing.assert_allclose(before.neuron.threshold, after.neuron.threshold, rtol=1e-6)


def test_grouped_convolutions_can_be_read_by_nir_itself_and_come_back_in_groups(tmp_path):
    folded = folded_network(groups=2)
    write_nir(folded, tmp_path / "a.nir")
    graph = nir.read(tmp_path / "a.nir")  # with its own check of types
    assert graph.nodes["lif1_synapse"].weight.shape == (4, 2, 3, 3)
    once = read_nir(tmp_path / "a.nir")
    assert once.connections[0].synapse.groups == 2
    expected = folded.connections[0].synapse.weight.astype(np.float32)
    np.testing.assert_array_equal(once.connections[0].synapse.weight, expected)


def test_same_network_same_bytes(path, tmp_path):
    write_nir(folded_network(), tmp_path / "again.nir")
    assert path.read_bytes() == (tmp_path / "again.nir").read_bytes()


def lif(shape, tau=DT / 0.75, r=1.0, threshold=0.5, **changes):
    fields = {"tau": tau, "r": r, "v_leak": 0.0, "v_threshold": threshold, "v_reset": 0.0, **changes}
    return nir.LIF(**{key: np.full(shape, value) for key, value in fields.items()})


def foreign(tmp_path, *nodes, shape=(3,)):
    graph = nir.NIRGraph.from_list(nir.Input({"input": np.array(shape)}), *nodes, type_check=False)
    nir.write(tmp_path / "theirs.nir", graph)
    return tmp_path / "theirs.nir"


def test_files_of_others(tmp_path):
    """r scales the synapse, dt and tau give the leak, and an output behind neurons is their spikes."""
    path = foreign(tmp_path, nir.Linear(weight=np.eye(2, 3)), lif(2, tau=2e-3, r=4.0, threshold=3.0))
    with pytest.raises(FormatError, match="give timesteps"):
        read_nir(path)
    network = read_nir(path, timesteps=3, dt=1e-3, input_range=(0, 5))
    neuron = network.output.neuron
    assert neuron.leak == 0.5 and neuron.threshold.tolist() == [6.0, 6.0]
    assert network.connections[0].synapse.weight.max() == 4.0
    # v <- v/2 + 4x against 6: an input of 1 gives 4, 6, 7 and so a spike in the third step
    assert simulate(network, np.array([[1, 0, 0]])).spikes[network.output.name][0, :, 0].tolist() == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([nir.Linear(weight=np.ones((2, 3))), nir.CubaLIF(*[np.ones(2)] * 6)], "is a CubaLIF; known are"),
        ([nir.Linear(weight=np.ones((2, 3))), lif(2, v_reset=0.1)], "resets to other values than zero"),
        ([nir.Linear(weight=np.ones((2, 3))), lif(2, tau=-1.0)], "tau must be one positive number"),
        ([nir.Linear(weight=np.full((2, 3), np.nan)), lif(2)], "weight holds values that are no finite"),
        ([lif(3), nir.Linear(weight=np.ones((2, 3)))], "stands before a neuron"),
        (
            [nir.Linear(weight=np.ones((2, 3))), nir.Linear(weight=np.ones((2, 2))), lif(2)],
            "no input and no neuron",
        ),
        ([nir.Linear(weight=np.ones((2, 4))), lif(2)], "not consistent"),
    ],
)
def test_what_it_cannot_read_is_named(tmp_path, nodes, message):
    with pytest.raises(FormatError, match=message):
        read_nir(foreign(tmp_path, *nodes), timesteps=2)


def damaged(path, change):
    with h5py.File(path, "a") as file:
        change(file)
    return path


def set_edges(edges):
    def change(file):
        del file["node/edges"]
        file["node"].create_dataset("edges", data=np.array(edges, dtype="S20"))

    return change


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([("input", "nobody")], "which are no nodes"),
        ([("lif1", "lif2"), ("lif2", "lif1")], "a cycle"),
        ([("input", "lif1_synapse"), ("lif2", "lif1_synapse"), ("lif1_synapse", "lif1")], "has 2 inputs"),
    ],
)
def test_wrong_edges_are_named(path, edges, message):
    with pytest.raises(FormatError, match=message):
        read_nir(damaged(path, set_edges(edges)))


def test_damaged_files(path, tmp_path):
    whole = path.read_bytes()
    with pytest.raises(FormatError, match="no such file"):
        read_nir(tmp_path / "nothing.nir")

    def spoil(file):
        text = json.loads(file["node/metadata/mpbn_deploy"][()])
        del text["groups"]
        del file["node/metadata/mpbn_deploy"]
        file["node/metadata/mpbn_deploy"] = json.dumps(text)

    with pytest.raises(FormatError, match="metadata 'mpbn_deploy' is damaged"):
        read_nir(damaged(path, spoil))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="not a readable HDF5"):
        read_nir(path)
    nir.write(path, lif(2))
    with pytest.raises(FormatError, match="holds no NIRGraph"):
        read_nir(path)
    with h5py.File(path, "w") as file:
        file["node/type"] = "NIRGraph"
    with pytest.raises(FormatError, match="not a NIR graph"):
        read_nir(path)


def test_only_the_border_of_a_padded_layer_has_a_bias_of_its_own(path):
    leak = nir.read(path).nodes["lif1"].v_leak
    assert leak.shape == (4, 3, 4) and leak.any()
    assert not leak[:, 1, 2].any()  # the middle; with a stride of two, most others are at a border


def test_names_that_become_one_are_refused():
    folded = folded_network()
    first, second = replace(folded.populations[1], name="a.b"), replace(folded.populations[2], name="a_b")
    names = {"lif1": "a.b", "lif2": "a_b"}
    connections = tuple(
        replace(c, source=names.get(c.source, c.source), target=names.get(c.target, c.target))
        for c in folded.connections
    )
    populations = (folded.populations[0], first, second, folded.populations[3])
    with pytest.raises(FormatError, match=r"a\.b and a_b: one name in NIR"):
        to_nir(replace(folded, populations=populations, connections=connections))


def test_what_nir_cannot_say_is_refused(tmp_path):
    folded = folded_network(leak=1.0)
    with pytest.raises(FormatError, match="lif1: neurons that never leak have biases of their own"):
        to_nir(folded)
    delayed = replace(folded_network().connections[0], delay=1)
    network = replace(folded_network(), connections=(delayed, *folded_network().connections[1:]))
    with pytest.raises(FormatError, match="input->lif1: NIR files with delays"):
        write_nir(network, tmp_path / "a.nir")
    assert not list(tmp_path.iterdir())
