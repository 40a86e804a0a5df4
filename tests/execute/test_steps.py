"""Numbers per time step: every executor and every file against the definition, and against plain integers."""

import json

import numpy as np
import pytest
from networks import (
    assert_same_trace,
    charged,
    inputs_for,
    int_chain,
    int_loop,
    int_pooled,
    int_residual,
    softened,
    stepped,
)

from mpbn_deploy.base import FormatError, NetworkError, same_records
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.executors import EXECUTORS
from mpbn_deploy.execute.reference import ExecutionOptions, simulate
from mpbn_deploy.formats.c.plan import SMALL, plan_program
from mpbn_deploy.formats.netx import read_netx, stock_reader_obstacle, write_netx
from mpbn_deploy.formats.nir import read_nir, write_nir
from mpbn_deploy.formats.verilog import obstacle
from mpbn_deploy.ir import (
    Population,
    apply_synapse,
    at_step,
    bounds,
    firing,
    in_steps,
    map_steps,
    real_network,
    varies,
)

NETWORKS = {
    "chain": lambda seed: stepped(int_chain(seed), seed),
    "soft": lambda seed: stepped(softened(int_chain(seed), seed), seed),
    "currents": lambda seed: stepped(charged(int_residual(seed), seed), seed),
    "residual": lambda seed: stepped(softened(int_residual(seed, delay=1), seed), seed),
    "loop": lambda seed: stepped(int_loop(seed), seed),
    "relays": lambda seed: int_pooled(seed),
}


def numbers(neuron, step, shape):
    """The numbers of one time step as plain integers: threshold, subtrahend, bias, kept fractions."""
    now = at_step(neuron, step)
    names = ("threshold", "subtrahend", "bias", "decay_current", "decay_voltage")
    found = {name: getattr(now, name) for name in names if hasattr(now, name)}
    return {name: np.broadcast_to(values, shape).astype(object) for name, values in found.items()}


def truncated(state, decay):
    product = state * (4096 - decay)
    return np.where(product < 0, -(-product // 4096), product // 4096)


def oracle(network, inputs):
    """Spikes [timesteps, *shape] of each population for one sample, in Python's unbounded integers."""
    sent = {network.input.name: [inputs] * network.timesteps, **{p.name: [] for p in network.layers}}
    state = {p.name: (np.zeros(p.shape, object), np.zeros(p.shape, object)) for p in network.layers}
    for step in range(network.timesteps):
        for population in network.layers:
            name, shape = population.name, population.shape
            total = np.zeros(shape, object)
            for c in network.entering(name):
                if step >= c.delay:
                    values = np.asarray(sent[c.source][step - c.delay], np.int64)[None]
                    exact = np.rint(apply_synapse(c.synapse, values)[0] * 64).astype(np.int64)
                    total = total + exact.reshape(shape).astype(object)
            now = numbers(population.neuron, step, shape)
            current = truncated(state[name][0], now["decay_current"]) + total
            shift = 2**population.neuron.bias_exponent
            voltage = truncated(state[name][1], now["decay_voltage"]) + current + now["bias"] * shift
            fired = voltage > now["threshold"] * 64 if "threshold" in now else np.zeros(shape, bool)
            reset = voltage - now["subtrahend"] * 64 if "subtrahend" in now else 0
            state[name] = current, np.where(fired, reset, voltage)
            sent[name].append(fired)
    return {p.name: np.array(sent[p.name], bool) for p in network.layers}


@pytest.mark.parametrize("kind", ["chain", "soft", "currents", "residual", "loop"])
@pytest.mark.parametrize("seed", range(3))
def test_executors_equal_the_reference_and_unbounded_integers(kind, seed):
    network = NETWORKS[kind](seed)
    assert any(varies(p.neuron) for p in network.layers)
    inputs = inputs_for(network, samples=3, seed=seed)
    trace = simulate(network, inputs)
    wanted = oracle(network, inputs[1])
    for name, spikes in wanted.items():
        np.testing.assert_array_equal(trace.spikes[name][1], spikes, err_msg=name)
    assert any(0 < spikes.mean() < 1 for spikes in wanted.values())
    assert_same_trace(trace, emulate(network, inputs))
    assert_same_trace(trace, EXECUTORS["c"].run(network, inputs, ExecutionOptions(keep_trace=True)))


@pytest.mark.parametrize("kind", ["chain", "soft", "currents"])
def test_our_models_in_lava_equal_the_reference(kind):
    network = NETWORKS[kind](7)
    inputs = inputs_for(network, samples=3)
    options = ExecutionOptions(keep_trace=True)
    assert_same_trace(simulate(network, inputs), EXECUTORS["lava"].run(network, inputs, options))


@pytest.mark.parametrize("kind", ["chain", "soft", "currents", "residual", "loop"])
@pytest.mark.parametrize("seed", range(3))
def test_files_are_read_back_equal(kind, seed, tmp_path):
    network = NETWORKS[kind](seed)
    write_netx(network, tmp_path / "network.net")
    assert same_records(read_netx(tmp_path / "network.net"), network)
    assert stock_reader_obstacle(network) is not None
    write_nir(network, tmp_path / "network.nir")
    assert same_records(read_nir(tmp_path / "network.nir").populations, network.populations)


def test_a_portable_file_and_others_cores_reject_them_by_name():
    network = stepped(int_chain())
    with pytest.raises(FormatError, match="numbers that depend on the time step"):
        write_nir(real_network(network), "unused.nir", dialect="portable")
    assert "depend on the time step" in obstacle(network)
    assert "depend on the time step" in EXECUTORS["lava-stock"].obstacle(network)


def test_steps_that_agree_are_one_set_of_numbers():
    neuron = int_chain().layers[0].neuron
    assert in_steps([neuron, neuron]) is neuron
    varied = stepped(int_chain()).layers[0].neuron
    assert same_records(map_steps(varied, lambda each: each), varied)
    assert at_step(neuron, 3) is neuron


@pytest.mark.parametrize("seed", range(4))
def test_bounds_contain_the_states_of_every_step(seed):
    network = NETWORKS["soft"](seed)
    trace, found = simulate(network, inputs_for(network, samples=8, seed=seed)), bounds(network)
    for population in network.layers:
        low, high = found[population.name].voltage
        assert low <= trace.voltages[population.name].min() <= trace.voltages[population.name].max() <= high


def test_wrong_shapes_and_decays_are_rejected():
    network = stepped(int_chain())
    first = network.layers[0]
    wrong = {
        "time steps": {"bias": first.neuron.bias[:2]},
        "decay_voltage -40000": {"decay_voltage": -40000},
    }
    for message, numbers_ in wrong.items():
        neuron = type(first.neuron)(
            **{**{n: getattr(first.neuron, n) for n in type(first.neuron).__slots__}, **numbers_}
        )
        layers = [Population(name=first.name, shape=first.shape, neuron=neuron), *network.layers[1:]]
        with pytest.raises(NetworkError, match=message):
            type(network)(
                populations=(network.input, *layers),
                connections=network.connections,
                timesteps=network.timesteps,
                scales={},
            )


def test_a_program_stores_one_row_per_step():
    network = stepped(int_chain(per_neuron=False))
    layer = plan_program(network, SMALL).layers[0]
    assert layer.parameters["threshold"].pixel == "t"
    assert len(list(firing(network))) == 2


def test_damaged_steps_of_a_file_are_named(tmp_path):
    import h5py

    write_netx(stepped(int_chain()), tmp_path / "network.net")
    with h5py.File(tmp_path / "network.net", "a") as file:
        extra = json.loads(file["mpbn_deploy/json"][()])
        layer = next(name for name in file["layer"] if "steps" in file[f"layer/{name}"])
        del file[f"layer/{layer}/steps/1"]
        assert extra["timesteps"] == 4
    with pytest.raises(FormatError, match="step"):
        read_netx(tmp_path / "network.net")
