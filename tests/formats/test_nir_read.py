"""NIR files that others wrote: NIR's own equations and our network fire the same spikes."""

import h5py
import nir
import numpy as np
import pytest
from hypothesis import given, strategies as st
from nir_euler import euler
from nir_files import (
    CHAINS,
    READOUTS,
    affine,
    conv,
    cuba,
    cuba_li,
    eighths,
    flatten,
    graph_of,
    li,
    lif,
    pool,
    recurrent,
    written,
)
from properties import examples

from mpbn_deploy.base import FormatError, same_records
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.nir import DT, closing_edges, read_folded, write_nir
from mpbn_deploy.ir import Conv2d, Dense, FloatLif, FloatReadout

T = 4


def assert_same(tmp_path, graph, *, maximum=1, **options):
    """Our network of a file fires as NIR's equations do; returns it."""
    network = read_folded(written(tmp_path, graph), timesteps=T, input_range=(0, maximum), **options)
    steps = np.random.default_rng(1).integers(0, maximum + 1, size=(6, T, *network.input.shape))
    shape = tuple(graph.nodes["input"].input_type["input"])
    spikes, outputs = euler(graph, steps.reshape(6, T, *shape), options.get("dt", DT))
    expected = simulate(network, steps)
    for name, found in spikes.items():
        np.testing.assert_array_equal(found.reshape(expected.spikes[name].shape), expected.spikes[name], name)
    if isinstance(network.output.neuron, FloatReadout) and network.output.neuron.leak == 1:
        np.testing.assert_allclose(
            outputs.mean(axis=1), expected.outputs.reshape(outputs[:, 0].shape), atol=1e-9
        )
    return network


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", CHAINS)
def test_chains(tmp_path, name):
    assert_same(tmp_path, graph_of(*CHAINS[name]), maximum=2)


def test_pooling_and_convolution_become_one_convolution(tmp_path):
    network = assert_same(tmp_path, graph_of(*CHAINS["pools"]))
    first, second = network.connections
    assert isinstance(first.synapse, Conv2d) and first.synapse.weight.shape == (3, 2, 6, 6)
    assert isinstance(second.synapse, Dense) and second.synapse.weight.shape == (4, 48)


def test_unflattened_pictures_before_a_matrix(tmp_path):
    """Writers that count a batch axis flatten from axis one on, which here leaves the channels."""
    nodes = [conv(2, 1), lif(2, 3, 3), flatten(1), affine(4, 18), lif(4)]
    read = read_folded(written(tmp_path, graph_of((1, 3, 3), nodes)), timesteps=T)
    flat = read_folded(
        written(tmp_path, graph_of((1, 3, 3), [*nodes[:2], flatten(), *nodes[3:]])), timesteps=T
    )
    np.testing.assert_array_equal(read.connections[1].synapse.weight, flat.connections[1].synapse.weight)


# ---- graphs -------------------------------------------------------------------------------------


def test_a_residual_block(tmp_path):
    nodes = {"c1": conv(3, 2), "a": lif(3, 4, 5), "c2": conv(3, 3, seed=4), "b": lif(3, 4, 5, seed=2)}
    edges = [("input", "c1"), ("c1", "a"), ("a", "c2"), ("c2", "b"), ("a", "b"), ("b", "output")]
    network = assert_same(tmp_path, graph_of((2, 4, 5), nodes, edges))
    assert len(network.connections) == 2  # the skip lies inside of the kernel
    nodes["c3"] = conv(3, 2, 1, padding=0)
    network = assert_same(tmp_path, graph_of((2, 4, 5), nodes, [*edges, ("input", "c3"), ("c3", "b")]))
    assert [c.label for c in network.connections] == ["input->a", "a->b", "input->b"]


def test_sums_before_linear_nodes_and_before_the_output(tmp_path):
    nodes = {
        "f1": affine(4, 3),
        "a": lif(4),
        "f2": affine(4, 3, 5),
        "g": affine(2, 4, 6),
        "h": affine(2, 3, 7),
    }
    edges = [("input", "f1"), ("f1", "a"), ("a", "g"), ("input", "f2"), ("f2", "g"), ("g", "output")]
    edges += [("input", "h"), ("h", "output")]
    network = assert_same(tmp_path, graph_of((3,), nodes, edges))
    assert [c.label for c in network.connections] == ["input->a", "a->output", "input->output"]


def test_a_matrix_beside_a_flattened_convolution(tmp_path):
    nodes = {"c": conv(1, 1), "f": flatten(), "g": flatten(), "w": affine(16, 16, 3), "a": lif(16)}
    edges = [("input", "c"), ("c", "f"), ("f", "a"), ("input", "g"), ("g", "w"), ("w", "a"), ("a", "output")]
    network = assert_same(tmp_path, graph_of((1, 4, 4), nodes, edges))
    assert [c.label for c in network.connections] == ["input->a"]


def test_time_constants_of_their_own(tmp_path):
    """Leaks 0, 1/4, 1/2 and 3/4 of neurons, or of channels, of one node."""
    leaks = np.array([0.0, 0.25, 0.5, 0.75])
    tau = DT / (1 - leaks)
    dense = [affine(4, 5), lif(4, tau=tau, r=tau / DT), affine(4, 4, seed=3)]
    network = assert_same(tmp_path, graph_of((5,), [*dense, cuba(4, tau_syn=tau, w_in=tau / DT)]))
    np.testing.assert_allclose(network.layers[0].neuron.leak, leaks, atol=1e-12)
    np.testing.assert_allclose(network.layers[-1].neuron.current_leak, leaks, atol=1e-12)
    pictures = np.broadcast_to(tau[:, None, None], (4, 5, 5))
    network = assert_same(
        tmp_path, graph_of((2, 5, 5), [conv(4, 2), lif(4, 5, 5, tau=pictures, r=pictures / DT)])
    )
    np.testing.assert_allclose(network.layers[0].neuron.leak, leaks[:, None, None], atol=1e-12)
    write_nir(network, tmp_path / "again.nir")
    again = read_folded(tmp_path / "again.nir")
    assert np.array_equal(again.layers[0].neuron.leak, network.layers[0].neuron.leak)


@pytest.mark.parametrize("neuron", [lif, cuba])
def test_recurrent_edges_take_a_step(tmp_path, neuron):
    network = assert_same(tmp_path, graph_of((3,), *recurrent(neuron)))
    assert {c.label: c.delay for c in network.connections if c.delay} == {"a->a": 1}


def test_a_bias_before_a_current_that_leaks_comes_from_a_neuron_that_always_fires(tmp_path):
    network = assert_same(tmp_path, graph_of((3,), *recurrent(cuba)))
    assert [p.name for p in network.populations] == ["input", "a_constant", "b_constant", "a", "b"]
    nodes, edges = recurrent(cuba)
    taken = [
        ("a_constant" if end == "g" else end, "a_constant" if other == "g" else other) for end, other in edges
    ]
    nodes["a_constant"] = nodes.pop("g")
    network = assert_same(tmp_path, graph_of((3,), nodes, taken))
    assert "a_constant_" in [p.name for p in network.populations]


def test_a_loop_with_a_delay_node_takes_that_many_steps(tmp_path):
    nodes, edges = recurrent()
    nodes["d"] = nir.Delay(delay=np.full(4, 2 * DT))
    edges = [edge for edge in edges if edge != ("a", "w")] + [("a", "d"), ("d", "w")]
    network = assert_same(tmp_path, graph_of((3,), nodes, edges))
    assert {c.label: c.delay for c in network.connections if c.delay} == {"a->a": 2}


def test_graphs_inside_of_graphs(tmp_path):
    """As snntorch writes a recurrent layer."""
    nodes, edges = recurrent()
    inner = nir.NIRGraph(
        {
            "input": nir.Input({"input": np.array([4])}),
            "lif": nodes["a"],
            "w": nodes["w"],
            "output": nir.Output({"output": np.array([4])}),
        },
        [("input", "lif"), ("lif", "w"), ("w", "lif"), ("lif", "output")],
        type_check=False,
    )
    outer = graph_of(
        (3,),
        {"f": nodes["f"], "a": inner, "g": nodes["g"], "b": nodes["b"]},
        [("input", "f"), ("f", "a"), ("a", "g"), ("g", "b"), ("b", "output")],
    )
    opened = read_folded(written(tmp_path, outer), timesteps=T)
    flat = read_folded(written(tmp_path, graph_of((3,), nodes, edges)), timesteps=T)
    inputs = np.random.default_rng(0).integers(0, 2, size=(6, T, 3))
    got, expected = simulate(opened, inputs), simulate(flat, inputs)
    np.testing.assert_array_equal(got.spikes["a.lif"], expected.spikes["a"])
    np.testing.assert_array_equal(got.outputs, expected.outputs)


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), max_size=14))
def test_without_the_edges_that_close_loops_spikes_flow_in_one_direction(pairs):
    """On random graphs: what is left is free of loops, or the loop was refused."""
    from graphlib import TopologicalSorter

    from mpbn_deploy.formats.nir import AmbiguousLoopError

    edges = {(str(a), str(b)) for a, b in pairs} | {("0", str(n)) for n in (1,)}
    try:
        closing = closing_edges("0", edges)
    except AmbiguousLoopError as error:
        assert error.loop
        return
    left = {target: [a for a, b in edges - closing if b == target] for _, target in edges}
    assert list(TopologicalSorter(left).static_order())
    assert closing <= edges


# ---- what a file does not say -------------------------------------------------------------------


def test_dt_and_units(tmp_path):
    """v <- v/2 + dt/tau r x against 3: in units of dt/tau r = 2 that is v/2 + x against 1.5."""
    nodes = [nir.Linear(weight=np.eye(2, 3)), lif(2, tau=2e-3, r=4.0, v_threshold=3.0)]
    path = written(tmp_path, graph_of((3,), nodes))
    with pytest.raises(FormatError, match="time steps unknown; give --timesteps above zero"):
        read_folded(path)
    with pytest.raises(FormatError, match="dt 0; seconds above zero"):
        read_folded(path, timesteps=T, dt=0)
    neuron = read_folded(path, timesteps=3, dt=1e-3).output.neuron
    assert neuron.leak == 0.5 and neuron.threshold.tolist() == [1.5, 1.5]
    assert read_folded(path, timesteps=3).output.neuron.leak == 0.95


def test_dt_of_the_metadata(tmp_path):
    graph = graph_of((3,), [affine(2, 3), lif(2, tau=2e-3)])
    graph.metadata = {"dt": 1e-3}
    assert read_folded(written(tmp_path, graph), timesteps=3).output.neuron.leak == 0.5
    assert read_folded(written(tmp_path, graph), timesteps=3, dt=2e-3).output.neuron.leak == 0
    graph.metadata = {"dt": "soon"}
    with pytest.raises(FormatError, match="metadata 'dt' is not a positive number"):
        read_folded(written(tmp_path, graph), timesteps=3)


def test_integrators_of_resistance_one_count_per_step(tmp_path):
    """As sinabs writes them. Where dt is given, it counts."""
    nodes = [affine(2, 3), nir.IF(r=np.ones(2), v_threshold=np.ones(2))]
    path = written(tmp_path, graph_of((3,), nodes))
    assert read_folded(path, timesteps=3).output.neuron.threshold.tolist() == [1, 1]
    assert read_folded(path, timesteps=3, dt=0.5).output.neuron.threshold.tolist() == [2, 2]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_value_for_all_neurons(tmp_path, shape):
    """As snntorch and norse write them."""
    nodes = [conv(2, 1), lif(*shape), flatten(), affine(3, 18), lif(*shape)]
    network = read_folded(written(tmp_path, graph_of((1, 3, 3), nodes)), timesteps=T)
    assert [p.shape for p in network.populations] == [(1, 3, 3), (2, 3, 3), (3,)]


def test_neurons_that_reset_to_where_they_rest_start_there(tmp_path):
    """The same network, with all voltages shifted by -65."""
    nodes = [affine(4, 5), lif(4)]
    shifted = lif(4, v_leak=-65.0, v_reset=-65.0, v_threshold=nodes[1].v_threshold - 65)
    inputs = np.random.default_rng(0).integers(0, 2, size=(6, T, 5))
    traces = [
        simulate(read_folded(written(tmp_path, graph_of((5,), [nodes[0], node])), timesteps=T), inputs)
        for node in (nodes[1], shifted)
    ]
    np.testing.assert_array_equal(traces[0].outputs, traces[1].outputs)
    assert traces[0].outputs.any()


def test_an_integrator_at_the_end_is_a_readout(tmp_path):
    nodes = [affine(4, 5), lif(4), affine(3, 4), nir.I(r=np.full(3, 0.25 / DT))]
    network = read_folded(written(tmp_path, graph_of((5,), nodes)), timesteps=T)
    inputs = np.random.default_rng(0).integers(0, 2, size=(6, T, 5))
    _, outputs = euler(graph_of((5,), nodes[:3]), inputs, DT)
    np.testing.assert_allclose(simulate(network, inputs).outputs, 0.25 * outputs.sum(axis=1), atol=1e-9)


@pytest.mark.parametrize("name", READOUTS)
def test_the_output_of_a_leaking_integrator_is_its_last_voltage(tmp_path, name):
    nodes = [affine(4, 5), lif(4), affine(3, 4, 7), READOUTS[name]]
    network = assert_same(tmp_path, graph_of((5,), nodes))
    assert isinstance(network.output.neuron, FloatReadout) and network.output.neuron.leak < 1
    inputs = np.random.default_rng(0).integers(0, 2, size=(6, T, 5))
    _, outputs = euler(graph_of((5,), nodes), inputs, DT)
    np.testing.assert_allclose(simulate(network, inputs).outputs, outputs[:, -1], atol=1e-9)
    assert np.ptp(outputs[:, -1]) > 0


def test_a_leaking_integrator_behind_a_kernel(tmp_path):
    """With a resistance per neuron, which no kernel shares."""
    for resistance in (2.0, eighths(3, 2, 3, 3)):
        nodes = [conv(2, 1), lif(2, 3, 3), conv(2, 2, seed=3), li(2, 3, 3, r=resistance)]
        network = read_folded(written(tmp_path, graph_of((1, 3, 3), nodes)), timesteps=T)
        inputs = np.random.default_rng(0).integers(0, 2, size=(6, T, 1, 3, 3))
        _, outputs = euler(graph_of((1, 3, 3), nodes), inputs, DT)
        np.testing.assert_allclose(simulate(network, inputs).outputs, outputs[:, -1], atol=1e-9)


def test_a_readout_is_no_neuron_that_fires(tmp_path):
    network = read_folded(written(tmp_path, graph_of((5,), [affine(4, 5)])), timesteps=T)
    assert isinstance(network.output.neuron, FloatReadout)
    network = read_folded(written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)])), timesteps=T)
    assert isinstance(network.output.neuron, FloatLif) and network.output.name == "n1"


# ---- what cannot be read ------------------------------------------------------------------------


def changed(node, **changes):
    for key, value in changes.items():
        setattr(node, key, value)
    return node


OF_NODES = {
    r"node 'n0' \(Conv2d\), key 'weight': has shape": ((3,), [conv(2, 1), lif(2)]),
    r"node 'n0' \(Affine\), key 'weight': has shape \(4, 6\) on": ((5,), [affine(4, 6), lif(4)]),
    "key 'bias': holds 2 values": ((5,), [changed(affine(4, 5), bias=np.ones(2)), lif(4)]),
    "key 'v_leak': holds 3 values": ((5,), [affine(4, 5), changed(lif(4), v_leak=np.ones(3))]),
    "key 'v_reset': is neither zero nor the resting voltage": ((5,), [affine(4, 5), lif(4, v_reset=0.5)]),
    r"node 'n1' \(LIF\), key 'tau': holds 2 values": (
        (5,),
        [affine(6, 5), changed(lif(6), tau=np.array([1.0, 2.0]))],
    ),
    "key 'tau_mem': is 5e-05 with a dt of 0.0001": (
        (5,),
        [affine(2, 5), cuba_li(2, tau_mem=np.array([5e-5, 2.0]))],
    ),
    "key 'tau': is 5e-05 with a dt of 0.0001, so the leak": ((5,), [affine(4, 5), lif(4, tau=5e-5)]),
    "key 'tau': is -1; a time constant must be above zero": ((5,), [affine(4, 5), lif(4, tau=-1)]),
    r"key 'r': r \(times w_in\) must be above zero": ((5,), [affine(4, 5), lif(4, r=0)]),
    "key 'weight': has 20 of 20 values that are NaN or infinite": (
        (5,),
        [nir.Linear(weight=np.full((4, 5), np.nan)), lif(4)],
    ),
    r"pools values of shape": ((16,), [pool(nir.SumPool2d), lif(4)]),
    r"key 'kernel_size': is \[100000, 100000\]": ((1, 4, 4), [pool(nir.SumPool2d, 10**5), lif(4)]),
    "key 'scale': holds 3 values": ((5,), [nir.Scale(scale=np.ones(3)), lif(5)]),
    "key 'delay': is not the same whole number": ((5,), [nir.Delay(delay=np.full(5, DT / 2)), lif(5)]),
    "delays a bias": ((5,), [affine(4, 5), nir.Delay(delay=np.full(4, DT)), lif(4)]),
    "key 'v_threshold': has shape": ((5,), [lif(1, 1, 1, 5)]),
    r"edges to it bring values of shape \(4,\); it has \(7,\)": ((5,), [affine(4, 5), lif(7)]),
    "key 'tau': is 5e-05 with a dt of 0.0001": ((5,), [affine(4, 5), li(4, tau=5e-5)]),
    "integrators are supported only as the one node": ((5,), [nir.I(r=np.ones(5)), affine(4, 5), lif(4)]),
    r"key 'shape': is \[4, 0\]": ((4, 0), [affine(4, 5), lif(4)]),
    r"key 'shape': is \[1, 1, 2, 3, 4\]": ((1, 1, 2, 3, 4), [affine(4, 5), lif(4)]),
    r"key 'shape': gives shape \[1000000000\]; at most": ((10**9,), [affine(4, 5), lif(4)]),
    r"a matrix of \d+ x \d+ weights would be needed": (
        (8, 64, 64),
        [conv(4, 8), nir.Scale(np.arange(4.0 * 64 * 64).reshape(4, 64, 64)), lif(4, 64, 64)],
    ),
}
OF_CONVOLUTIONS = {
    "key 'groups': holds 2 numbers": {"groups": np.ones(2)},
    "key 'stride': holds 3 numbers": {"stride": np.ones(3)},
    r"key 'stride': is \[0, 0\]": {"stride": 0},
    r"key 'stride': holds \[0.5\] of float64; a few whole": {"stride": 0.5},
    r"key 'stride': holds \[1000000000000.0\]": {"stride": 10**12},
    r"key 'padding': is \[-1, -1\]": {"padding": -1},
    "key 'padding': is 'reflect'": {"padding": "reflect"},
    "key 'padding': is 'same' with an even": {
        "padding": "same",
        "dilation": 3,
        "weight": np.ones((2, 1, 2, 2)),
    },
    r"key 'padding': takes \d+ products of \d+ inputs; allowed are": {"padding": 10**6},
    r"key 'weight': has shape \(2, 2, 3, 3\) in 1 groups on 1": {"weight": np.ones((2, 2, 3, 3))},
    "key 'bias': holds 3 values for 2": {"bias": np.ones(3)},
    "is larger than its picture": {"weight": np.ones((2, 1, 7, 7)), "padding": 0},
}
REFUSED = OF_NODES | {
    message: ((1, 4, 4), [changed(conv(2, 1), **changes), lif(2, 4, 4)])
    for message, changes in OF_CONVOLUTIONS.items()
}


def test_a_mask_is_the_window_of_a_convolution(tmp_path):
    network = read_folded(written(tmp_path, graph_of(*CHAINS["masked"])), timesteps=T)
    synapse = network.connections[0].synapse
    assert isinstance(synapse, Conv2d) and synapse.silent == ((1, 2), (2, 0))


@pytest.mark.parametrize("message", REFUSED)
def test_what_it_cannot_read_is_named(tmp_path, message):
    with pytest.raises(FormatError, match=message):
        read_folded(written(tmp_path, graph_of(*REFUSED[message])), timesteps=2)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([("input", "nobody")], "edge to or from 'nobody', which is not a node"),
        (
            [("input", "f"), ("f", "a"), ("a", "input"), ("a", "output")],
            "is the input, but an edge leads to it",
        ),
        ([("input", "f"), ("f", "output")], "node 'a': nothing leads to it"),
        (
            [("input", "f"), ("f", "a"), ("a", "w"), ("w", "g"), ("g", "w"), ("g", "output")],
            "a loop without a neuron in it: (w -> g -> w|g -> w -> g)",
        ),
        ([("input", "x"), ("input", "f"), ("x", "a"), ("f", "a"), ("a", "output")], "do not add up"),
        ([("input", "x"), ("input", "a"), ("x", "w"), ("a", "w"), ("w", "output")], "do not add up|weight"),
        (
            [
                ("input", "f"),
                ("f", "a"),
                ("a", "w"),
                ("w", "b"),
                ("b", "g"),
                ("g", "a"),
                ("f", "b"),
                ("b", "output"),
            ],
            "a loop of a, b is not entered at exactly one node, so it is ambiguous which of its edges takes "
            "a time step; add a Delay node to the loop",
        ),
        ([], "node 'a': nothing leads to it"),
    ],
)
def test_wrong_edges_are_named(tmp_path, edges, message):
    nodes = {
        "f": affine(3, 3),
        "a": lif(3),
        "w": affine(3, 3),
        "g": affine(3, 3),
        "b": lif(3),
        "x": affine(2, 3),
    }
    used = {name for edge in edges for name in edge} | {"a"}
    nodes = {name: node for name, node in nodes.items() if name in used}
    with pytest.raises(FormatError, match=message):
        read_folded(written(tmp_path, graph_of((3,), nodes, edges)), timesteps=2)


def spoiled(path, change):
    with h5py.File(path, "a") as file:
        change(file)
    return path


def put(key, value):
    def change(file):
        if key in file:
            del file[key]
        if value is not None:
            file[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("node/nodes/n1/tau", None), "node 'n1' .LIF., key 'tau': is missing"),
        (put("node/nodes/n1/tau", "slow"), "node 'n1' .LIF., key 'tau': holds"),
        (put("node/nodes/n1/type", None), "node 'n1': key 'type' is missing"),
        (
            put("node/nodes/n1/type", "CubaLIFF"),
            "node 'n1' has type 'CubaLIFF', which is not supported. Did you mean 'CubaLIF'",
        ),
        (put("node/nodes/n1", 3), "node 'n1': key 'type' is missing"),
        (put("node/nodes", None), "the graph has no nodes"),
        (put("node/type", "LIF"), "holds no NIRGraph"),
        (put("node", None), "holds no NIRGraph"),
        (put("node/edges", np.ones(3)), "key 'edges' holds no pairs of names"),
        (put("node/edges", np.ones((3, 2))), "key 'edges' holds no pairs of names"),
        (put("node/metadata", 3), "key 'metadata' is not a group"),
        (put("node/metadata", None), "give --timesteps"),
        (put("node/nodes/output/type", "Input"), "2 nodes of type Input; one is needed"),
        (put("node/nodes/n1/type", "NIRGraph"), "graph 'n1' has no nodes"),
    ],
)
def test_damaged_files(tmp_path, change, message):
    path = spoiled(written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)])), change)
    with pytest.raises(FormatError, match=message):
        read_folded(path, timesteps=None if "timesteps" in message else 2)


def test_files_that_are_none(tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        read_folded(tmp_path / "nothing.nir")
    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)]))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(FormatError, match="not a readable HDF5"):
        read_folded(path)


def nested(depth):
    ends = {"input": nir.Input({"input": np.array([3])}), "output": nir.Output({"output": np.array([3])})}
    graph = nir.NIRGraph({**ends, "a": lif(3)}, [("input", "a"), ("a", "output")], type_check=False)
    for _ in range(depth):
        graph = nir.NIRGraph({**ends, "a": graph}, [("input", "a"), ("a", "output")], type_check=False)
    return graph


def test_graphs_inside_of_graphs_have_bounds(tmp_path):
    assert len(read_folded(written(tmp_path, nested(5)), timesteps=2).populations) == 2
    with pytest.raises(FormatError, match="is nested in more than 16 graphs"):
        read_folded(written(tmp_path, nested(20)), timesteps=2)
    path = spoiled(written(tmp_path, nested(1)), put("node/nodes/a/nodes/output", None))
    spoiled(path, put("node/nodes/a/edges", np.array([["input", "a"]], dtype="S9")))
    with pytest.raises(FormatError, match="graph 'a' is nested and must have one Input and one Output"):
        read_folded(path, timesteps=2)
    both = graph_of((3,), {"a": nested(0), "a.a": lif(3)}, [("input", "a"), ("a", "a.a"), ("a.a", "output")])
    with pytest.raises(FormatError, match=r"node 'a\.a': the name occurs twice"):
        read_folded(written(tmp_path, both), timesteps=2)


def test_sizes_have_bounds(tmp_path, monkeypatch):
    from mpbn_deploy.formats.nir import file, read

    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4), affine(3, 4), lif(3)]))
    monkeypatch.setattr(read, "MOST_VALUES", 10)
    with pytest.raises(FormatError, match="more than 10 values in total"):
        read_folded(path, timesteps=2)
    monkeypatch.setattr(file, "MOST_NODES", 3)
    with pytest.raises(FormatError, match="more than 3 nodes"):
        read_folded(path, timesteps=2)


def test_edges_may_name_nodes_inside_of_graphs(tmp_path):
    """A subgraph of two inputs and two outputs is the same network as its nodes without it."""
    inner = {f"in{n}": nir.Input({"input": np.array([3])}) for n in (1, 2)}
    inner |= {f"out{n}": nir.Output({"output": np.array([3])}) for n in (1, 2)}
    paths = [("in1", "l"), ("in2", "l"), ("l", "out1"), ("in2", "out2")]
    nodes = {"a": affine(3, 4), "b": affine(3, 4), "c": affine(2, 3), "d": affine(2, 3), "m": lif(2)}
    edges = [("input", "a"), ("input", "b"), ("c", "m"), ("d", "m"), ("m", "output")]
    sub = nir.NIRGraph({**inner, "l": lif(3)}, paths, type_check=False)
    joins = [("a", "sub.in1"), ("b", "sub.in2"), ("sub.out1", "c"), ("sub.out2", "d")]
    whole = graph_of((4,), {**nodes, "sub": sub}, [*edges, *joins])
    flat = [("a", "sub.l"), ("b", "sub.l"), ("sub.l", "c"), ("b", "d")]
    plain = graph_of((4,), {**nodes, "sub.l": lif(3)}, [*edges, *flat])
    found, expected = (read_folded(written(tmp_path, each), timesteps=2) for each in (whole, plain))
    assert same_records(found, expected)
    vague = graph_of((4,), {**nodes, "sub": sub}, [*edges, ("a", "sub"), *joins[1:]])
    with pytest.raises(FormatError, match=r"graph 'sub' .* meets 2 nodes of type Input. Name one: sub.NODE"):
        read_folded(written(tmp_path, vague), timesteps=2)
