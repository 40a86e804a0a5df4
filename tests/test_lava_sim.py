"""Lava, the judge: its fixed-point simulator fires our spikes, in every structure we build."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import assert_same_trace, end_of, inputs_for, int_chain, int_loop, int_residual, needs_lava

from mpbn_deploy import lava_sim
from mpbn_deploy.errors import MissingPackageError, SimulationError
from mpbn_deploy.graph import Connection, Conv2d, Dense, Population
from mpbn_deploy.int_ir import Input, IntNetwork, Lif
from mpbn_deploy.lava_sim import compat
from mpbn_deploy.netx_io import stock_reader_loads, write_netx
from mpbn_deploy.simulate import simulate

pytestmark = needs_lava


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("groups", [1, 2])
def test_chains_stream_sample_after_sample(seed, groups):
    """Strides, padding and dilation differ by axis, so that a transposed kernel could not pass."""
    network = int_chain(seed, groups=groups)
    inputs = inputs_for(network, samples=5, steps=True)
    expected = simulate(network, inputs)
    assert expected.spikes["conv"].any() and expected.spikes["dense"].any()
    assert_same_trace(expected, lava_sim.run(network, inputs))


@pytest.mark.parametrize("timesteps", [1, 3])
def test_skips_wait_for_the_main_path(timesteps):
    """Also: exponents, a current that decays, signed graded inputs, a dense layer onto a picture."""
    network = int_residual(3, timesteps=timesteps)
    inputs = inputs_for(network, samples=4, steps=True)
    expected = simulate(network, inputs)
    assert 0 < expected.spikes["last"].mean() < 1
    assert_same_trace(expected, lava_sim.run(network, inputs))


def test_more_layers_than_time_steps():
    """Then several samples are in the pipeline at once."""
    network = int_chain(timesteps=2)
    inputs = inputs_for(network, samples=3)
    assert_same_trace(simulate(network, inputs), lava_sim.run(network, inputs))


@pytest.mark.parametrize("per_neuron", [False, True])
def test_the_stock_netx_reader_fires_the_same_spikes(tmp_path, per_neuron):
    network = int_chain(2, per_neuron=per_neuron)
    write_netx(network, tmp_path / "network.net")
    inputs = inputs_for(network, samples=4, steps=True)
    got = lava_sim.run_stock_netx(tmp_path / "network.net", network, inputs)
    expected = simulate(network, inputs)
    assert expected.spikes["dense"].any()
    assert_same_trace(expected, got, voltages=False)


@pytest.mark.parametrize(
    "network",
    [
        int_residual(1, delay=1),
        int_residual(1, delay=5),  # longer than a sample
        int_loop(1),
        int_loop(1, delays=(1, 3)),
    ],
)
def test_delays_and_loops_end_with_their_sample(network):
    inputs = inputs_for(network, samples=3, steps=True)
    expected = simulate(network, inputs)
    assert expected.spikes["last"].any() and expected.spikes["first"].any()
    assert_same_trace(expected, lava_sim.run(network, inputs))


def loop_of_two(delay):
    """int_loop with a way back from the last population to the first."""
    network = int_loop(1)
    back = Connection(source="last", target="first", synapse=Dense(weight=np.full((5, 4), 9)), delay=delay)
    return replace(network, connections=(*network.connections, back))


def test_a_loop_needs_a_step_of_delay_for_each_of_its_connections():
    network = loop_of_two(delay=2)
    inputs = inputs_for(network, samples=2, steps=True)
    assert_same_trace(simulate(network, inputs), lava_sim.run(network, inputs))
    with pytest.raises(SimulationError, match="closes a loop of more connections than its delays have steps"):
        lava_sim.run(loop_of_two(delay=1), inputs)


def test_dense_weights_wider_than_lavas_eight_bits():
    """Lava's Dense would clip them in silence; also -128 where no weight is positive."""
    network = int_chain()
    neuron = replace(network.populations[2].neuron, threshold=np.full(5, 2000), decay_voltage=4096)
    populations = (*network.populations[:2], replace(network.populations[2], neuron=neuron), network.output)
    conv, dense, last = network.connections
    for wide in (np.arange(-9000, 9000, 100).reshape(5, 36), 254 * np.eye(5, 36, dtype=int)):
        negative = np.full((3, 5), -128)
        changed = replace(
            network,
            populations=populations,
            connections=(
                conv,
                replace(dense, synapse=Dense(weight=wide)),
                replace(last, synapse=Dense(weight=negative)),
            ),
        )
        inputs = inputs_for(changed, samples=3, steps=True)
        assert_same_trace(simulate(changed, inputs), lava_sim.run(changed, inputs))


def test_wrong_inputs_are_refused_before_lava_starts():
    with pytest.raises(SimulationError, match="the network takes"):
        lava_sim.run(int_chain(), np.zeros((1, 3, 3), int))


def test_a_threshold_that_is_off_by_one_is_noticed():
    """The comparison can fail: one unit of the threshold of one neuron shows."""
    network = int_chain()
    neuron = network.populations[1].neuron
    # A neuron that forgets at once, and whose largest voltage is just above its threshold.
    plain = replace(neuron, decay_voltage=4096, bias=np.zeros_like(neuron.bias))
    inputs = inputs_for(network, samples=20)
    loud = replace(plain, threshold=np.full_like(neuron.threshold, 2**16))
    voltages = simulate(with_neuron(network, loud), inputs).voltages["conv"]
    highest = voltages.max(axis=(0, 1)) >> 6
    just_above = with_neuron(network, replace(plain, threshold=highest - 1))
    not_above = with_neuron(network, replace(plain, threshold=highest))
    assert simulate(just_above, inputs).spikes["conv"].any()
    assert lava_sim.run(just_above, inputs).spikes["conv"].any()
    assert not lava_sim.run(not_above, inputs).spikes["conv"].any()


def with_neuron(network, neuron):
    first, conv, *rest = network.populations
    return replace(network, populations=(first, replace(conv, neuron=neuron), *rest))


ENDLESS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits none
sys.path.insert(0, sys.argv[1])
from networks import inputs_for, int_chain
from mpbn_deploy import lava_sim
print("started", flush=True)
network = int_chain()
try:
    lava_sim.run(network, inputs_for(network, samples=100_000))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("seconds", [0.5, 1.5, 5])
def test_an_interrupt_from_the_keyboard_ends_all_processes(tmp_path, seconds):
    """It reaches the whole group of processes, as in a terminal: while Lava is imported, built, or runs."""
    command = [sys.executable, "-c", ENDLESS, str(Path(__file__).parent)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as run:
        assert run.stdout.readline() == "started\n"
        time.sleep(seconds)
        os.killpg(run.pid, signal.SIGINT)
        out = end_of(run)[0]
    assert out == "interrupted\n" and run.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert _group_ends(run.pid)


def _group_ends(group, seconds=30):
    """Whether all processes of a group are gone soon; the dead linger until the system takes note."""
    for _ in range(seconds):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(1)
    return False


def test_mends_are_gone_after_import():
    compat.load_netx()
    assert dataclasses.dataclass.__module__ == "dataclasses"
    stand_in = sys.modules.get("lava.lib.dl.slayer.object_detection")
    assert stand_in is None or stand_in.__file__  # a module without a file would be ours


def test_a_missing_lava_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(compat, "installed_version", lambda package: None)
    with pytest.raises(
        MissingPackageError, match=r"lava-nc is not installed; .* pip install .*lava-nc==0\.10\.0"
    ):
        compat.load_lava()


def test_convolutions_in_many_groups():
    """Lava counts groups in 8 bits with sign: 128 of them would wrap to -128."""
    channels = 130
    synapse = Conv2d(weight=np.arange(-65, 65).reshape(channels, 1, 1, 1), groups=channels)
    threshold, bias = np.full((channels, 1, 1), 40), np.zeros((channels, 1, 1), int)
    neuron = Lif(threshold=threshold, bias=bias, decay_voltage=1024)
    network = IntNetwork(
        populations=(
            Population(name="input", shape=(channels, 2, 1), neuron=Input(minimum=0, maximum=3)),
            Population(name="maps", shape=(channels, 2, 1), neuron=neuron),
        ),
        connections=(Connection(source="input", target="maps", synapse=synapse),),
        timesteps=2,
        scales={},
    )
    inputs = inputs_for(network)
    assert_same_trace(simulate(network, inputs), lava_sim.run(network, inputs))
    assert not stock_reader_loads(network)
