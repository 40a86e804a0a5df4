"""The reference simulator, on examples small enough to check by hand."""

import numpy as np
import pytest
from networks import assert_same_trace, inputs_for, int_chain, int_residual

from mpbn_deploy.base import NetworkError, SimulationError
from mpbn_deploy.execute.reference import close_calls, simulate
from mpbn_deploy.ir import (
    Connection,
    Dense,
    FloatLif,
    FoldedNetwork,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
    SoftLif,
    Truncation,
)


def one_neuron(neuron, weight=3, timesteps=3, exponent=0, delay=0):
    return IntNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=-9, maximum=9)),
            Population(name="n", shape=(1,), neuron=neuron),
        ),
        connections=(
            Connection(
                source="input",
                target="n",
                synapse=Dense(weight=np.array([[weight]]), exponent=exponent),
                delay=delay,
            ),
        ),
        timesteps=timesteps,
        scales={"n": np.ones(1)},
    )


def lif(threshold, bias=0, **options):
    return Lif(threshold=np.array([threshold]), bias=np.array([bias]), **options)


def test_leaks_toward_zero_integrates_and_fires_strictly_above():
    network = one_neuron(lif(4, bias=1, decay_voltage=3072))
    trace = simulate(network, np.array([[[1], [1], [1]]]))
    # 3*64+64 = 256 is not above 4*64; 256/4+256 = 320 is; after the reset 256 again.
    assert trace.spikes["n"].ravel().tolist() == [False, True, False]
    assert trace.voltages["n"].ravel().tolist() == [256, 0, 256]
    assert trace.outputs.ravel().tolist() == [1]


def test_a_soft_reset_subtracts_and_fires_again():
    neuron = SoftLif(
        threshold=np.array([4]), subtrahend=np.array([5]), bias=np.array([0]), decay_voltage=2048
    )
    trace = simulate(one_neuron(neuron, timesteps=4), np.array([[[5], [0], [0], [0]]]))
    # 15*64 = 960 fires, 640 remain; half of them fire again, none remain; zero does not
    assert trace.spikes["n"].ravel().tolist() == [True, True, False, False]
    assert trace.voltages["n"].ravel().tolist() == [640, 0, 0, 0]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"subtrahend": np.array([2**17 + 1])}, "subtrahends exceed 131072"),
        ({"subtrahend": np.array([1, 2])}, "subtrahend has shape"),
        ({"subtrahend": np.array([0.5])}, "subtrahend is float64; an integer type is needed"),
    ],
)
def test_wrong_subtrahends_are_rejected(numbers, message):
    with pytest.raises(NetworkError, match=message):
        one_neuron(SoftLif(threshold=np.array([1]), bias=np.array([0]), **numbers))


def test_decay_truncates_toward_zero():
    assert Truncation(amount=2048)(np.array([7, -7, 5])).tolist() == [3, -3, 2]
    assert Truncation(amount=4096)(np.array([7, -7])).tolist() == [0, 0]
    assert Truncation(amount=0)(np.array([7, -7])).tolist() == [7, -7]


def test_current_decays_and_bias_has_its_own_exponent():
    network = one_neuron(lif(1000, bias=5, bias_exponent=0, decay_current=2048, decay_voltage=0))
    trace = simulate(network, np.array([[[1], [0], [0]]]))
    # currents 192, 96, 48, each with a bias of 5
    assert trace.voltages["n"].ravel().tolist() == [197, 197 + 101, 197 + 101 + 53]


def test_exponents_scale_the_synapse():
    for exponent, expected in ((-6, 3), (0, 192), (2, 768)):
        trace = simulate(one_neuron(lif(1000), exponent=exponent, timesteps=1), np.array([[1]]))
        assert trace.voltages["n"].item() == expected


def test_delayed_spikes_arrive_later_and_none_from_the_sample_before():
    trace = simulate(one_neuron(lif(1000), delay=2), np.array([[[1], [2], [3]], [[4], [5], [6]]]))
    assert trace.voltages["n"][..., 0].tolist() == [[0, 0, 192], [0, 0, 768]]


def test_readout_integrates_and_never_fires():
    trace = simulate(one_neuron(Readout(bias=np.array([2]))), np.array([[[1], [9], [-9]]]))
    assert not trace.spikes["n"].any()
    assert trace.outputs.ravel().tolist() == [64 * (3 + 2 + 27 + 2 - 27 + 2)]


def test_a_readout_may_leak():
    """Weight 3, bias 2, the current halved and the voltage cut to three quarters in each step."""
    readout = Readout(bias=np.array([2]), decay_current=2048, decay_voltage=1024)
    trace = simulate(one_neuron(readout), np.array([[[1], [0], [-9]]]))
    currents = [192, 96, 48 - 27 * 64]
    voltages = [192 + 128]
    voltages.append(voltages[-1] * 3 // 4 + currents[1] + 128)
    voltages.append(voltages[-1] * 3 // 4 + currents[2] + 128)
    assert trace.voltages["n"].ravel().tolist() == voltages
    assert trace.outputs.ravel().tolist() == voltages[-1:] and not trace.spikes["n"].any()


def test_negative_thresholds_fire_without_input():
    assert simulate(one_neuron(lif(-1)), np.array([[0]])).spikes["n"].all()


def test_samples_do_not_influence_each_other():
    network = int_residual()
    inputs = inputs_for(network, samples=4)
    together = simulate(network, inputs)
    for sample in range(4):
        alone = simulate(network, inputs[sample : sample + 1])
        assert np.array_equal(alone.spikes["last"][0], together.spikes["last"][sample])


def test_a_picture_is_held_for_all_steps():
    network = int_chain()
    pictures = inputs_for(network)
    stepped = np.repeat(pictures[:, None], network.timesteps, axis=1)
    assert_same_trace(simulate(network, pictures), simulate(network, stepped))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((2, 5, 5), int), "the network takes"),
        (np.zeros((0, 2, 6, 5), int), "at least one sample"),
        (np.full((1, 2, 6, 5), 8), "0..7"),
        (np.full((1, 2, 6, 5), -1), "0..7"),
        (np.full((1, 2, 6, 5), 0.5), "fractions"),
        (np.full((1, 2, 6, 5), np.nan), "NaN"),
    ],
)
def test_rejects_wrong_inputs(inputs, message):
    with pytest.raises(SimulationError, match=message):
        simulate(int_chain(), inputs)


def test_raises_when_a_state_overflows():
    with pytest.raises(SimulationError, match="n: a current of magnitude"):
        simulate(one_neuron(lif(0), weight=2**15), np.array([[9]]))


def test_a_close_call_is_one_that_rounding_decides():
    """0.2 + 0.1 against 0.3; against 0.25 nothing is close."""
    neuron = FloatLif(threshold=np.array([0.3, 0.25]), bias=np.array([0.1, 0.1]), leak=0.5)
    network = FoldedNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=0, maximum=9)),
            Population(name="n", shape=(2,), neuron=neuron),
        ),
        connections=(Connection(source="input", target="n", synapse=Dense(weight=np.full((2, 1), 0.2))),),
        timesteps=2,
    )
    inputs = np.array([[[1], [1]], [[0], [1]], [[0], [0.75]]])
    close = close_calls(network, inputs, simulate(network, inputs))
    assert close["n"].tolist() == [
        [[True, False], [True, False]],  # both steps start from zero
        [[False, False], [False, False]],  # half of 0.1 is left
        [[False, False], [True, False]],  # and 0.05 + 0.15 + 0.1 is close again
    ]
