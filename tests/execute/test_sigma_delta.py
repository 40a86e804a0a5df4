"""Sigma-delta neurons against Python's integers, every executor, and what lava-dl recorded of them."""

from dataclasses import replace
from importlib import metadata

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import assert_same_trace, inputs_for, int_chain, int_sigma_delta, is_chain, needs_lava
from properties import examples

from mpbn_deploy.base import NetworkError, SimulationError, same_records
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions, lava as lava_sim
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.netx import read_netx, stock_reader_obstacle, write_netx
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Delta,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Sigma,
    SigmaDelta,
    bounds,
    real_network,
)

# ---- the definition ----------------------------------------------------------------------------


def lava_neuron(kind, arriving, threshold, bias, exponents, state):
    """Message and state of one neuron, in Lava's own variables (lava/proc/sdn/models.py), as Python ints."""
    sigma, act, residue = state
    message_exponent, state_exponent = exponents
    unit = 1 << (message_exponent + state_exponent)
    sigma = arriving * unit if kind is Delta else sigma + arriving
    new = sigma if kind is Delta else max(0, sigma + bias * unit)
    if kind is Sigma:
        return 0, (sigma, 0, 0)
    delta = new - act + residue
    sent = delta if abs(delta) >= threshold * unit else 0
    return sent >> state_exponent, (sigma, new, delta - sent)


def oracle(network, sample):
    """Messages and sums [timesteps, neurons] of dense layers, in unbounded integers."""
    names = [population.name for population in network.layers]
    sent = {network.input.name: sample.tolist(), **{name: [] for name in names}}
    sums = {name: [] for name in names}
    states = {p.name: [(0, 0, 0)] * p.size for p in network.layers}
    for step in range(network.timesteps):
        for population in network.layers:
            name, neuron = population.name, population.neuron
            found = []
            for index in range(population.size):
                arriving = sum(
                    weight * value
                    for c in network.entering(name)
                    if step >= c.delay
                    for weight, value in zip(
                        c.synapse.weight[index].tolist(), sent[c.source][step - c.delay], strict=True
                    )
                )
                sends = type(neuron) is not Sigma
                threshold = int(neuron.threshold[index]) if sends else 0
                bias = int(neuron.bias[index]) if type(neuron) is SigmaDelta else 0
                exponents = (neuron.message_exponent, neuron.state_exponent) if sends else (0, 0)
                state = states[name][index]
                found.append(lava_neuron(type(neuron), arriving, threshold, bias, exponents, state))
            sent[name].append([message for message, _ in found])
            states[name] = [state for _, state in found]
            sums[name].append([state[0] for _, state in found])
    return sent, sums


def dense_network(seed, *, timesteps=6, delay=0):
    generator = np.random.default_rng(seed)
    exponents = {
        "message_exponent": int(generator.integers(0, 6)),
        "state_exponent": int(generator.integers(3, 7)),
    }

    def neuron(kind, size, **more):
        return kind(threshold=generator.integers(0, 6, size), **exponents, **more)

    def weights(*shape):
        return Dense(weight=generator.integers(-12, 13, shape))

    return IntNetwork(
        populations=(
            Population(name="input", shape=(4,), neuron=Input(minimum=-50, maximum=50)),
            Population(name="changes", shape=(4,), neuron=neuron(Delta, 4)),
            Population(
                name="hidden", shape=(5,), neuron=neuron(SigmaDelta, 5, bias=generator.integers(-30, 30, 5))
            ),
            Population(
                name="again", shape=(3,), neuron=neuron(SigmaDelta, 3, bias=generator.integers(-30, 30, 3))
            ),
            Population(name="sums", shape=(2,), neuron=Sigma()),
        ),
        connections=(
            Connection(source="input", target="changes", synapse=Dense(weight=np.eye(4, dtype=int))),
            Connection(source="changes", target="hidden", synapse=weights(5, 4), delay=delay),
            Connection(source="hidden", target="again", synapse=weights(3, 5)),
            Connection(source="changes", target="again", synapse=weights(3, 4), delay=delay),
            Connection(source="again", target="sums", synapse=weights(2, 3), delay=1),
        ),
        timesteps=timesteps,
        scales={},
    )


@given(seed=st.integers(0, 2**32 - 1), delay=st.integers(0, 2))
@examples(25, deadline=None)
def test_two_states_give_what_lava_computes_with_four(seed, delay):
    """What was sent last is Lava's activation less its residue; the oracle keeps Lava's own variables."""
    network = dense_network(seed, delay=delay)
    inputs = inputs_for(network, samples=1, seed=seed, steps=True)
    sent, sums = oracle(network, inputs[0])
    for run in (simulate, emulate):
        trace = run(network, inputs)
        for name in sums:
            np.testing.assert_array_equal(trace.spikes[name][0], sent[name], err_msg=name)
            np.testing.assert_array_equal(trace.voltages[name][0], sums[name], err_msg=name)
        np.testing.assert_array_equal(trace.outputs[0], sums["sums"][-1])


@given(seed=st.integers(0, 2**32 - 1), delay=st.integers(0, 2), mixed=st.booleans(), plain=st.booleans())
@examples(25, deadline=None)
def test_the_emulator_equals_the_reference_also_beside_other_kinds_and_bounds_hold(seed, delay, mixed, plain):
    network = int_sigma_delta(seed, delay=delay, mixed=mixed, plain=plain)
    inputs = inputs_for(network, samples=2, seed=seed, steps=True)
    expected = simulate(network, inputs)
    assert_same_trace(expected, emulate(network, inputs))
    for name, bound in bounds(network).items():
        low, high = bound.voltage
        assert low <= expected.voltages[name].min() and expected.voltages[name].max() <= high, name


def test_bounds_of_sums_do_not_grow_with_the_number_of_messages():
    """Changes telescope: only one unit of rounding per message is added, and no unit without a division."""
    short, long = (bounds(int_sigma_delta(timesteps=steps)) for steps in (4, 400))
    assert long["maps"].magnitude < 3 * short["maps"].magnitude


def without_sigma(network):
    return replace(network, populations=network.populations[:-1], connections=network.connections[:-1])


def test_without_a_sigma_at_the_end_the_output_is_the_sum_of_all_messages():
    network = without_sigma(int_sigma_delta())
    trace = simulate(network, inputs_for(network, steps=True))
    np.testing.assert_array_equal(trace.outputs, trace.spikes["features"].sum(axis=1))
    assert trace.outputs.any()


def test_sums_that_overflow_24_bits_stop_every_execution():
    network = int_sigma_delta()
    large = replace(network.connections[1].synapse, weight=np.full((3, 2, 3, 3), 40_000))
    connections = (network.connections[0], replace(network.connections[1], synapse=large))
    network = replace(network, connections=(*connections, *network.connections[2:]))
    inputs = np.full((1, *network.input.shape), 60)
    for run in (simulate, emulate):
        with pytest.raises(SimulationError, match=r"maps.*overflows the 24-bit state.*smaller range"):
            run(network, inputs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": np.full(7, -1)}, "features: negative thresholds"),
        ({"threshold": np.zeros(6, int)}, r"features: threshold has shape \(6,\)"),
        ({"bias": np.full(7, 2048)}, "features: bias beyond 2047"),
        ({"message_exponent": 20}, r"features: exponents \(20, 6\) of messages and state"),
    ],
)
def test_numbers_that_the_state_does_not_hold_are_rejected(change, message):
    network = int_sigma_delta()
    features = network.populations[3]
    changed = features.with_neuron(replace(features.neuron, **change))
    with pytest.raises(NetworkError, match=message):
        replace(network, populations=(*network.populations[:3], changed, network.populations[4]))


def test_messages_and_sums_are_whole_numbers():
    network = int_sigma_delta()
    last = replace(network.connections[-1], synapse=replace(network.connections[-1].synapse, exponent=-1))
    with pytest.raises(NetworkError, match="sums: a sum of messages is a whole number"):
        replace(network, connections=(*network.connections[:-1], last))


def test_there_is_no_version_in_real_numbers():
    with pytest.raises(
        NetworkError, match="changes: sigma-delta neurons, of which there is no version in real"
    ):
        real_network(int_sigma_delta())


# ---- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "stock"),
    [({}, True), ({"plain": False}, False), ({"mixed": True}, False), ({"delay": 0}, False)],
)
def test_files_hold_every_network_and_lava_dl_reads_its_own_kind(tmp_path, options, stock):
    network = int_sigma_delta(5, **options)
    write_netx(network, tmp_path / "network.net")
    assert same_records(read_netx(tmp_path / "network.net"), network)
    obstacle = stock_reader_obstacle(network)
    assert obstacle is None if stock else "sigma-delta" in obstacle or "skip" in obstacle


# ---- Lava --------------------------------------------------------------------------------------


@needs_lava
@pytest.mark.parametrize("options", [{}, {"mixed": True, "delay": 0, "plain": False}])
def test_lava_gives_the_same_integers_with_our_models_and_its_own(options):
    """Three samples in a row: Lava's own neurons are reset between them."""
    network = int_sigma_delta(7, **options)
    inputs = inputs_for(network, samples=3, steps=True)
    expected = simulate(network, inputs)
    assert all(np.count_nonzero(values) for name, values in expected.spikes.items() if name != "sums")
    for how in ({"lanes": 2}, {"stock": True}):
        assert_same_trace(expected, lava_sim.run(network, inputs, **how))


@needs_lava
def test_lava_gives_the_outputs_of_a_network_without_a_sigma_and_without_a_trace():
    network = without_sigma(int_sigma_delta())
    inputs = inputs_for(network, steps=True)
    got = EXECUTORS["lava"].run(network, inputs, ExecutionOptions(keep_trace=False))
    np.testing.assert_array_equal(got.outputs, simulate(network, inputs).outputs)


@needs_lava
def test_lava_dl_reads_and_runs_the_file_that_we_write():
    network = int_sigma_delta(3)
    inputs = inputs_for(network, samples=2, steps=True)
    expected = simulate(network, inputs)
    got = EXECUTORS["netx"].run(network, inputs, ExecutionOptions())
    for name in ("changes", "maps", "features"):
        np.testing.assert_array_equal(got.spikes[name], expected.spikes[name], err_msg=name)
    np.testing.assert_array_equal(got.voltages["sums"], expected.voltages["sums"])
    np.testing.assert_array_equal(got.outputs, expected.outputs)


# ---- what lava-dl recorded ---------------------------------------------------------------------


def recorded(name):
    """A file of the recorded networks inside the lava-dl wheel."""
    try:
        files = metadata.files("lava-dl") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [file.locate() for file in files if str(file).endswith(f"tests/lava/lib/dl/netx/gts/{name}")]
    if not found or not found[0].exists():
        pytest.skip("lava-dl with its recorded networks is not installed")
    return found[0]


@pytest.mark.parametrize("run", [simulate, emulate])
def test_pilotnet_gives_the_recorded_outputs_in_every_step(run):
    """Nine steps, while the biases and then the picture pass through nine layers."""
    network = read_netx(recorded("pilotnet_sdnn/network.net"), timesteps=9)
    picture = np.load(recorded("pilotnet_sdnn/input.npy"))[..., 0].T[None]
    trace = run(network, picture)
    outputs = np.load(recorded("pilotnet_sdnn/output.npy"))
    np.testing.assert_array_equal(trace.voltages["layer9"][0].T, outputs)
    assert np.unique(outputs).size > 5
    np.testing.assert_array_equal(trace.outputs[0], outputs[:, -1])


@pytest.mark.parametrize(
    ("name", "layers"),
    [("network", {"layer1": "sigma1", "layer2": "sigma2"}), ("square_network", None)],
)
def test_pilotnet_sums_what_was_recorded_on_the_chip_in_every_step(name, layers):
    """`act0` holds the messages of the input layer, which arrive one step later, as between all layers."""
    network = read_netx(recorded(f"pilotnet_sdnn/{name}.net"), timesteps=20)
    layers = layers or {f"layer{k}": f"sigma{k}_square" for k in (1, 2, 3, 4)}
    messages = np.load(recorded("pilotnet_sdnn/act0.npy")).astype(int)[: network.input.shape[2]]
    source = Input(minimum=-(2**17), maximum=2**17)
    network = replace(
        network,
        populations=(network.populations[1].with_neuron(source), *network.populations[2:]),
        connections=network.connections[1:],
        scales={},
    )
    trace = simulate(network, messages.T[None])
    for layer, file in layers.items():
        sums = np.load(recorded(f"pilotnet_sdnn/{file}.npy"))
        assert sums.any()
        np.testing.assert_array_equal(trace.voltages[layer][0], sums.T, err_msg=layer)


def test_the_encoder_sends_the_recorded_changes():
    """lava-dl's test_blocks.py: a picture times a sine of 15 steps, a threshold of 20."""
    picture = np.load(recorded("tinynet_sdnn/input_bias.npy"))
    steps = (picture[..., None] * np.sin(2 * np.pi * np.arange(15) / 15)).astype(int).T
    network = IntNetwork(
        populations=(
            Population(name="input", shape=(3, 16, 16), neuron=Input(minimum=-60, maximum=60)),
            Population(name="changes", shape=(3, 16, 16), neuron=Delta(threshold=np.full((3, 1, 1), 20))),
        ),
        connections=(
            Connection(
                source="input",
                target="changes",
                synapse=Conv2d(weight=np.ones((3, 1, 1, 1), int), groups=3),
            ),
        ),
        timesteps=15,
        scales={},
    )
    expected = np.load(recorded("tinynet_sdnn/input.npy"))
    np.testing.assert_array_equal(simulate(network, steps[None]).spikes["changes"][0], expected.T)
    assert np.count_nonzero(expected) > 1000


def test_other_neurons_of_a_file_are_not_touched(tmp_path):
    """A chain of LIF neurons is still read without delays."""
    write_netx(int_chain(), tmp_path / "network.net")
    network = read_netx(tmp_path / "network.net")
    assert is_chain(network) and all(isinstance(p.neuron, Lif) for p in network.layers[:-1])
