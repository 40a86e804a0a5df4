"""Pieces of populations for simulators of others, and how much of a network they run in a given time."""

from dataclasses import replace

import numpy as np
import pytest
from networks import inputs_for, int_chain, int_loop, int_residual, int_windows

from mpbn_deploy.execute.outside import cut_pieces, share
from mpbn_deploy.execute.outside.witnesses import Costs, binary_digits
from mpbn_deploy.execute.reference import gather, simulate
from mpbn_deploy.ir import as_steps

FREE = Costs(piece=0.0, synapse=0.0, step=0.0, arrival=0.0)


def recorded(network, samples=3):
    inputs = inputs_for(network, samples, steps=True)
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    return {network.input.name: steps, **simulate(network, inputs).spikes}


@pytest.mark.parametrize("size", [1, 7, 1024])
@pytest.mark.parametrize(
    "network",
    [int_chain(), int_chain(groups=2), int_residual(delay=1), int_windows(), int_loop(delays=(0, 2))],
)
def test_pieces_receive_the_currents_of_their_population(network, size):
    sent = recorded(network)
    for population in network.layers:
        currents = np.stack(
            [
                64 * gather(network.entering(population.name), population, sent, step)
                for step in range(network.timesteps)
            ],
            axis=1,
        ).reshape(3, network.timesteps, -1)
        found = list(cut_pieces(network, population.name, sent, size))
        assert sorted(np.concatenate([piece.neurons for piece in found])) == list(range(population.size))
        for piece in found:
            weights = np.zeros((piece.axons, len(piece.neurons)), int)
            np.add.at(weights, (piece.axon, piece.neuron), piece.weight)
            np.testing.assert_array_equal(piece.spikes @ weights, currents[..., piece.neurons])
            assert piece.spikes.dtype == bool and piece.spikes.any(axis=(0, 1)).all()
            assert (np.diff(piece.axon) >= 0).all() and len(piece.neurons) <= size


@pytest.mark.parametrize("values", [[0, 1, 5, 255], [-3, 0, 2], [0, 0], [-8, -1]])
def test_graded_values_are_sums_of_zeros_and_ones(values):
    digits = binary_digits(np.array(values))
    assert sum((factor * ones for factor, ones in digits), np.zeros(len(values), int)).tolist() == values
    assert all(ones.dtype == bool and ones.any() for _, ones in digits)


# ---- what fits a budget -----------------------------------------------------------------------


def shared(network, costs, seconds, names=("first", "second", "last")):
    found = share(network, names, recorded(network, samples=16), costs, seconds)
    return found.samples, found.populations


def test_what_costs_nothing_runs_on_all_samples():
    assert shared(int_residual(), FREE, 1.0) == (16, ("first", "second", "last"))
    assert shared(int_residual(), replace(FREE, piece=100.0), None) == (16, ("first", "second", "last"))


def test_fewer_seconds_give_fewer_samples():
    """3 pieces of 3 steps per sample"""
    costs = replace(FREE, step=1.0)
    assert [shared(int_residual(), costs, seconds)[0] for seconds in (9.0, 18.5, 10**6)] == [1, 2, 16]


@pytest.mark.parametrize("field", ["synapse", "arrival"])
def test_what_fits_nowhere_leaves_the_cheapest_populations(field):
    costs = replace(FREE, **{field: 1.0})
    found = [shared(int_residual(), costs, float(seconds)) for seconds in range(0, 6000, 50)]
    counts = [len(names) for _, names in found]
    assert counts == sorted(counts) and set(counts) == {0, 1, 2, 3}
    assert [samples for samples, names in found if not names] == [0] * counts.count(0)
    assert all(samples == 1 for samples, names in found if 1 <= len(names) < 3)
