"""Pooling as relays, and composed: every other population receives the same integers in every step."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import assert_same_trace, inputs_for, int_chain, int_pooled
from properties import examples

from mpbn_deploy.base import NetworkError
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    Relay,
    bounds,
    can_split,
    find_poolings,
    relay_names,
    split_sum,
    value_range,
    with_relays,
    without_relays,
)


def assert_same_decisions(composed, network, inputs):
    """Assert that all populations but relays do the same in both networks."""
    expected, got = simulate(composed, inputs), simulate(network, inputs)
    for name in expected.spikes:
        np.testing.assert_array_equal(expected.spikes[name], got.spikes[name], err_msg=name)
        np.testing.assert_array_equal(expected.voltages[name], got.voltages[name], err_msg=name)
    np.testing.assert_array_equal(expected.outputs, got.outputs)


@given(
    seed=st.integers(0, 2**32 - 1),
    delay=st.integers(0, 2),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    size=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
@examples(15, deadline=None)
def test_relays_and_composed_pooling_decide_alike(seed, delay, window, size):
    """Rewriting back gives the very network, and the emulator every message of the reference."""
    composed = int_pooled(seed, delay=delay, window=window, size=size)
    network = with_relays(composed)
    inputs = inputs_for(composed, samples=2, steps=True)
    assert_same_decisions(composed, network, inputs)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))
    assert_same_decisions(without_relays(network), network, inputs)
    assert not relay_names(without_relays(network))


def test_relays_stand_for_sums_over_windows_and_share_them():
    """Two synapses read the same sums of the first population; the readout those of a whole picture."""
    network = with_relays(int_pooled(delay=1))
    assert relay_names(network) == ["first_pool", "third_pool"]
    assert [p.shape for p in network.layers if p.name.endswith("_pool")] == [(3, 4, 4), (4, 1, 1)]
    assert [c.label for c in network.connections] == [
        "input->first",
        "first->first_pool",
        "first_pool->second",
        "second->third",
        "first_pool->third",
        "third->third_pool",
        "third_pool->output",
    ]
    assert value_range(network.layer("first_pool").neuron) == (0, 4)
    assert value_range(network.layer("third_pool").neuron) == (0, 16)
    assert bounds(network)["third_pool"].current == (0, 16)
    trace = simulate(network, inputs_for(network))
    spikes = trace.spikes["first"].reshape(*trace.spikes["first"].shape[:3], 4, 2, 4, 2)
    np.testing.assert_array_equal(trace.spikes["first_pool"], spikes.sum(axis=(4, 6)))
    assert 1 < trace.spikes["first_pool"].max() <= 4
    assert not trace.voltages["first_pool"].any()


def test_synapses_without_pooling_stay_as_they_are():
    """Kernels of different weights, and windows that only sum, as those of a max pool of spikes."""
    assert find_poolings(int_chain()) == []
    network = int_pooled()
    counting = Conv2d(weight=np.ones((3, 1, 2, 2), int), stride=(2, 2), groups=3)
    assert len(find_poolings(network)) == 2
    assert find_poolings(one_hop(network, counting, (3, 4, 4))) == []


def test_sums_that_no_message_holds_are_not_relayed():
    network = int_pooled()
    wide = Input(minimum=0, maximum=2**20)
    picture = replace(network.populations[0], shape=(3, 8, 8)).with_neuron(wide)
    network = replace(
        network,
        populations=(picture, *network.populations[1:]),
        connections=tuple(
            replace(c, synapse=network.connections[1].synapse, target="second", source="input")
            if c.target == "second"
            else replace(c, synapse=Conv2d(weight=np.ones((3, 3, 1, 1), int)))
            if c.target == "first"
            else c
            for c in network.connections
        ),
    )
    assert [pooling.source for pooling in find_poolings(network)] == ["input", "first", "third"]
    wider = picture.with_neuron(Input(minimum=-(2**21), maximum=2**21))
    network = replace(network, populations=(wider, *network.populations[1:]))
    assert [pooling.source for pooling in find_poolings(network)] == ["first", "third"]
    assert not can_split(network, network.connections[1], 3)


def one_hop(network, synapse, shape):
    """Return the first population of a network, and one that reads it."""
    second = replace(network.populations[2], shape=shape)
    bias = np.zeros((shape[0], 1, 1), int)
    second = second.with_neuron(replace(second.neuron, threshold=bias, bias=bias))
    return IntNetwork(
        populations=(*network.populations[:2], second),
        connections=(
            network.connections[0],
            Connection(source="first", target="second", synapse=synapse),
        ),
        timesteps=2,
        scales={},
    )


def spoiled(change):
    """Return a function that makes a network whose first relay differs."""
    network = with_relays(int_pooled())

    def made():
        populations = tuple(
            p.with_neuron(change(p.neuron)) if p.name == "first_pool" else p for p in network.populations
        )
        return replace(network, populations=populations)

    return made


def test_ranges_of_messages_are_checked():
    with pytest.raises(NetworkError, match=r"first_pool: messages of 0\.\.4, but the relay declares 0\.\.3"):
        spoiled(lambda relay: Relay(minimum=0, maximum=3))()
    with pytest.raises(NetworkError, match="allowed are ranges of 24 bits with zero"):
        spoiled(lambda relay: Relay(minimum=1, maximum=4))()


def test_relays_need_whole_numbers_and_a_target():
    network = with_relays(int_pooled())
    halves = [
        replace(c, synapse=replace(c.synapse, exponent=-1)) if c.target == "first_pool" else c
        for c in network.connections
    ]
    with pytest.raises(NetworkError, match="a relay sends whole numbers"):
        replace(network, connections=tuple(halves))
    last = network.output.with_neuron(Relay(minimum=-(2**20), maximum=2**20))
    with pytest.raises(NetworkError, match="output: a relay as the last population"):
        replace(network, populations=(*network.populations[:-1], last))


def test_relays_that_hear_themselves_cannot_be_composed():
    network = with_relays(int_pooled())
    loop = Connection(
        source="first_pool", target="first_pool", synapse=Dense(weight=np.zeros((48, 48), int)), delay=1
    )
    network = replace(network, connections=(*network.connections, loop))
    with pytest.raises(NetworkError, match="first_pool: a relay that receives its own messages"):
        without_relays(network)


@given(seed=st.integers(0, 2**32 - 1), groups=st.sampled_from([2, 4]), place=st.integers(0, 4))
@examples(10, deadline=None)
def test_sums_in_parts_decide_alike(seed, groups, place):
    """Of convolutions and of a matrix, with exponents, delays, padding and graded inputs."""
    network = int_pooled(seed, delay=1)
    connection = network.connections[place]
    if not can_split(network, connection, groups):
        assert network.shapes[connection.source][0] % groups
        return
    parts = split_sum(network, connection, groups)
    inputs = inputs_for(network, samples=2, steps=True)
    assert relay_names(parts) == [f"{connection.target}_parts"]
    assert_same_decisions(network, parts, inputs)
    assert_same_trace(simulate(parts, inputs), emulate(parts, inputs))
    assert_same_decisions(network, without_relays(parts), inputs)
