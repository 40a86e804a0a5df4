"""Networks check themselves when they are made, and list all that is wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from networks import int_chain, int_residual, is_chain, spiking_network
from properties import examples
from torch.nn import functional

from mpbn_deploy.base import NetworkError, same_records
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
    apply_synapse,
    output_shape,
)


@examples(60)
@given(
    seed=st.integers(0, 2**31),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 2, 4]),
)
def test_a_convolution_is_torchs(seed, stride, padding, dilation, groups):
    generator = np.random.default_rng(seed)
    synapse = Conv2d(
        weight=generator.integers(-9, 9, size=(8, 4 // groups, 3, 2)),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        exponent=1,
    )
    values = generator.integers(0, 9, size=(2, 4, 6, 7))
    weight = torch.tensor(2.0 * synapse.weight)
    expected = functional.conv2d(
        torch.tensor(values).double(), weight, None, stride, padding, dilation, groups
    )
    np.testing.assert_array_equal(apply_synapse(synapse, values), expected.numpy())
    assert output_shape(synapse, (4, 6, 7)) == expected.shape[1:]


def test_a_silent_border_of_the_target_gets_nothing():
    generator = np.random.default_rng(0)
    whole = Conv2d(weight=generator.integers(-9, 9, size=(4, 2, 3, 2)), stride=(2, 1), padding=(1, 1))
    values = generator.integers(1, 9, size=(2, 2, 9, 5))
    expected = apply_synapse(whole, values)
    expected[:, :, :1] = expected[:, :, 3:] = expected[..., 4:] = 0
    part = replace(whole, silent=((1, 2), (0, 2)))
    np.testing.assert_array_equal(apply_synapse(part, values), expected)
    assert output_shape(part, (2, 9, 5)) == expected.shape[1:] == (4, 5, 6)


def test_a_residual_network_is_no_chain():
    assert is_chain(int_chain()) and not is_chain(int_residual())


def test_records_are_frozen_and_their_arrays_too():
    network = int_chain()
    with pytest.raises(AttributeError):
        network.timesteps = 2
    with pytest.raises(ValueError, match="read-only"):
        network.connections[0].synapse.weight[0] = 1


def test_same_records_compares_content():
    assert same_records(int_chain(1), int_chain(1))
    assert not same_records(int_chain(1), int_chain(2))
    assert not same_records(int_chain(1), int_chain(1).connections)
    assert not same_records((1,), (1, 2)) and not same_records({"a": 1}, {"b": 1})


def spoil(network, **changes):
    """A copy of the network with the named population's or connection's fields replaced."""
    return replace(network, **changes)


def with_population(network, index, **changes):
    populations = list(network.populations)
    populations[index] = replace(populations[index], **changes)
    return replace(network, populations=tuple(populations))


def with_connection(network, index, **changes):
    connections = list(network.connections)
    connections[index] = replace(connections[index], **changes)
    return replace(network, connections=tuple(connections))


def with_border(network, silent):
    return with_connection(network, 0, synapse=replace(network.connections[0].synapse, silent=silent))


def lif(threshold=0, bias=0, shape=(4, 1, 1), **options):
    return Lif(threshold=np.full(shape, threshold), bias=np.full(shape, bias), **options)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda n: spoil(n, timesteps=0), r"timesteps 0; allowed are 1\.\.10000"),
        (lambda n: spoil(n, populations=n.populations[1:]), "first population must be the input"),
        (lambda n: with_population(n, 1, neuron=Input(minimum=0, maximum=1)), "conv: a second input"),
        (lambda n: with_population(n, 0, neuron=Input(minimum=2, maximum=1)), "range 2..1 is empty"),
        (
            lambda n: with_population(n, 1, neuron=Readout(bias=np.zeros((4, 1, 1), int))),
            "not the last population",
        ),
        (lambda n: with_population(n, 1, name="dense"), "dense: 2 populations have this name"),
        (lambda n: with_population(n, 1, shape=(4, 3)), r"conv: shape \(4, 3\)"),
        (lambda n: with_population(n, 1, shape=(4, 3, 4)), "gives shape"),
        (lambda n: with_population(n, 1, neuron=lif(threshold=0.5)), "threshold is float64"),
        (lambda n: with_population(n, 1, neuron=lif(shape=(3, 1, 1))), r"conv: bias has shape \(3, 1, 1\)"),
        (lambda n: with_population(n, 1, neuron=lif(decay_voltage=4097)), "decay_voltage 4097"),
        (lambda n: with_population(n, 1, neuron=lif(bias_exponent=-1)), "bias exponent -1"),
        (lambda n: with_population(n, 1, neuron=lif(bias=2**20)), "biases exceed the largest voltage"),
        (lambda n: with_population(n, 1, neuron=lif(threshold=2**18)), "thresholds exceed 131072"),
        (lambda n: with_population(n, 1, neuron=lif(threshold=-(2**63))), "thresholds exceed 131072"),
        (
            lambda n: with_population(
                n,
                1,
                neuron=Lif(threshold=np.full((4, 1, 1), -(2**31), np.int32), bias=np.zeros((4, 1, 1), int)),
            ),
            "thresholds exceed 131072",
        ),
        (
            lambda n: with_population(n, 1, neuron=lif(bias=-(2**63), bias_exponent=0)),
            "biases exceed the largest voltage",
        ),
        (
            lambda n: with_population(n, 0, neuron=Input(minimum=0, maximum=10**400)),
            "input: values of 2.*53 and beyond are too large",
        ),
        (
            lambda n: with_connection(n, 1, synapse=Dense(weight=np.full((5, 36), 2**31 - 1), exponent=23)),
            "dense: sums of up to .* are too large to be exact",
        ),
        (
            lambda n: with_connection(n, 1, synapse=Dense(weight=np.full((5, 36), -(2**63)))),
            "conv->dense: weights exceed 32 bits",
        ),
        (lambda n: spoil(n, scales={"conv": np.zeros(4)}), "conv: scales must be 4 numbers above zero"),
        (lambda n: spoil(n, scales={"conv": np.ones(3)}), "conv: scales must be 4 numbers above zero"),
        (lambda n: with_connection(n, 0, source="nobody"), "no population named 'nobody'"),
        (lambda n: with_connection(n, 0, delay=-1), "delay -1"),
        (lambda n: with_connection(n, 0, delay=10**30), "delay beyond 10000 time steps"),
        (lambda n: with_connection(n, 1, target="conv"), "weight .* between"),
        (
            lambda n: with_connection(n, 1, source="input", target="input", delay=1),
            "input->input: enters the input",
        ),
        (lambda n: with_connection(n, 1, synapse=Dense(weight=np.zeros((5, 36)))), "weight is float64"),
        (
            lambda n: with_connection(n, 1, synapse=Dense(weight=np.zeros((5, 36), int), exponent=-7)),
            "exponent -7",
        ),
        (
            lambda n: with_connection(n, 1, synapse=Dense(weight=np.zeros((5, 36), int), exponent=24)),
            "exponent 24",
        ),
        (
            lambda n: with_connection(n, 2, synapse=Conv2d(weight=np.zeros((3, 5, 1, 1), int))),
            "convolution weights of shape .* channels in, height, width",
        ),
        (
            lambda n: with_connection(n, 0, synapse=Conv2d(weight=np.zeros((4, 3, 1, 1), int))),
            "in 1 groups on 2",
        ),
        (
            lambda n: with_connection(
                n, 0, synapse=Conv2d(weight=np.zeros((4, 2, 1, 1), int), stride=(0, 1))
            ),
            "stride and dilation",
        ),
        (
            lambda n: with_border(n, ((-1, 0), (0, 0))),
            r"silent border \(\(-1, 0\), \(0, 0\)\) of \(.*\); it must not be negative",
        ),
        (lambda n: with_border(n, ((0, 0), (1, 2))), "nor cover the whole target"),
        (lambda n: spoil(n, connections=n.connections[:2]), "output: nothing connects to it"),
        (
            lambda n: spoil(n, populations=(n.populations[0], *n.populations[2:0:-1], n.populations[3])),
            "listed after",
        ),
    ],
)
def test_an_integer_network_says_what_is_wrong(build, message):
    with pytest.raises(NetworkError, match=message):
        build(int_chain())


def test_a_cycle_needs_a_delay():
    network = int_residual()
    weight = np.ones((3, 3, 1, 1), int)

    def back(delay):
        edge = Connection(source="last", target="first", synapse=Conv2d(weight=weight), delay=delay)
        return replace(network, connections=(*network.connections, edge))

    with pytest.raises(NetworkError, match="a cycle without delay"):
        back(0)
    assert len(back(1).connections) == 6


def test_all_problems_are_listed_at_once():
    with pytest.raises(NetworkError) as caught:
        IntNetwork(
            populations=(
                Population(name="input", shape=(1,), neuron=Input(minimum=1, maximum=0)),
                Population(
                    name="n", shape=(2,), neuron=lif(threshold=0.5, bias=0.5, shape=(3,), decay_voltage=-1)
                ),
            ),
            connections=(Connection(source="input", target="n", synapse=Dense(weight=np.zeros((1, 1)))),),
            timesteps=0,
            scales={},
        )
    assert len(caught.value.problems) == 9


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("leak", 1.5, "leak 1.5; allowed are 0 to 1"),
        ("threshold", np.full((4, 1, 1), np.nan), "thresholds hold NaN"),
        ("bias", np.full((4, 1, 1), np.inf), "biases hold NaN or infinity"),
        ("bias", np.full((4, 1, 1), 1e300), r"biases of up to 1e\+300; allowed are those of float32"),
        ("threshold", np.zeros(3), "threshold has shape"),
    ],
)
def test_a_folded_network_says_what_is_wrong(field, value, message):
    folded = fold(trace(spiking_network()))
    neuron = replace(folded.populations[1].neuron, **{field: value})
    with pytest.raises(NetworkError, match=message):
        with_population(folded, 1, neuron=neuron)


def test_a_folded_network_checks_weights_and_structure():
    folded = fold(trace(spiking_network()))
    bad = replace(folded.connections[0].synapse, weight=np.full((4, 2, 3, 3), np.nan))
    with pytest.raises(NetworkError, match="weights hold NaN"):
        with_connection(folded, 0, synapse=bad)
    with pytest.raises(NetworkError, match="timesteps 0"):
        replace(folded, timesteps=0)
    with pytest.raises(NetworkError, match="first population must be the input"):
        replace(folded, populations=folded.populations[1:])
    with pytest.raises(NetworkError, match="a second input"):
        with_population(folded, 1, neuron=Input(minimum=0, maximum=1))
