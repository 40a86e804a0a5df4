"""Networks whose inputs are normalized, or rounded to fewer bits, after folding."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import assert_same_trace, int_chain, int_residual, lively
from properties import examples

from mpbn_deploy.base import FoldError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import coarsen_inputs, normalize_inputs, offset_inputs
from mpbn_deploy.ir import Input, real_network


def real(network, **changes):
    """Return a network of real numbers with a wide range of inputs, and changed neurons."""
    folded = real_network(network)
    populations = tuple(
        p.with_neuron(replace(p.neuron, **changes)) if changes and p.name == "conv" else p
        for p in folded.layers
    )
    wide = folded.input.with_neuron(Input(minimum=0, maximum=255))
    return replace(folded, populations=(wide, *populations))


@pytest.mark.parametrize(
    "folded",
    [real(int_chain()), real(int_residual()), real(int_chain(), current_leak=0.5)],
    ids=["chain", "residual", "currents"],
)
def test_a_normalized_network_computes_the_same_from_raw_inputs(folded):
    """(x - mean) / deviation with powers of two, so that float64 is exact."""
    given_inputs = np.random.default_rng(0).integers(0, 8, size=(4, *folded.input.shape))
    raw = 4 * given_inputs + 8
    expected, got = simulate(folded, given_inputs), simulate(normalize_inputs(folded, 8.0, 4.0), raw)
    names = [p.name for p in folded.layers]
    assert any(lively(expected, name) for name in names[:-1])
    assert all((got.spikes[name] == expected.spikes[name]).all() for name in names)
    np.testing.assert_allclose(got.outputs, expected.outputs, rtol=1e-12)


def test_rounded_inputs_mean_their_multiples():
    folded = real(int_chain())
    raw = np.random.default_rng(0).integers(0, 256, size=(4, *folded.input.shape))
    coarse = coarsen_inputs(folded, 4)
    taken = coarse.input_range
    assert (taken.minimum, taken.maximum, taken.divisor) == (0, 15, 17)
    rounded = taken.presented(raw.astype(np.uint8))
    assert rounded.dtype == np.uint8 and np.abs(17 * rounded.astype(int) - raw).max() <= 8
    assert_same_trace(simulate(folded, 17 * rounded.astype(int)), simulate(coarse, rounded), voltages=False)


def test_inputs_less_an_offset_give_the_same_spikes():
    folded = real(int_chain())
    raw = np.random.default_rng(0).integers(0, 8, size=(4, *folded.input.shape)).astype(np.uint8)
    shifted = offset_inputs(folded, 4)
    taken, given_range = shifted.input_range, folded.input_range
    assert (taken.minimum, taken.maximum) == (given_range.minimum - 4, given_range.maximum - 4)
    presented = taken.presented(raw)
    assert (presented == raw.astype(int) - 4).all() and presented.min() < 0
    assert_same_trace(simulate(folded, raw), simulate(shifted, presented), voltages=False)


@given(
    values=st.lists(st.integers(0, 255), min_size=1), offset=st.integers(-300, 300), bits=st.integers(1, 9)
)
@examples(60)
def test_presented_values_are_in_range(values, offset, bits):
    taken = Input(minimum=0, maximum=255).shifted(offset).coarser(bits)
    presented = taken.presented(np.array(values, np.uint8)).astype(int)
    assert taken.minimum <= presented.min() and presented.max() <= taken.maximum
    assert np.abs(taken.divisor * presented + taken.offset - values).max() <= taken.divisor / 2


@given(ends=st.tuples(*[st.integers(-1000, 1000)] * 2), bits=st.integers(1, 12))
@examples(60)
def test_coarse_values_fit_their_bits(ends, bits):
    given_range = Input(minimum=min(ends), maximum=max(ends))
    taken = given_range.coarser(bits)
    assert taken.presented(np.array([0])) == 0
    signed = given_range.minimum < 0
    lowest, highest = -(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1
    if bits > signed:
        assert lowest <= taken.minimum and taken.maximum <= highest
    finer = taken.divisor - 1
    assert not finer or max(ends) > finer * highest or min(ends) < finer * lowest


def test_signed_bytes_need_no_coarser_steps():
    bytes_minus_128 = Input(minimum=0, maximum=255).shifted(128)
    taken = bytes_minus_128.coarser(8)
    assert (taken.minimum, taken.maximum, taken.divisor) == (-128, 127, 1)
    assert bytes_minus_128.coarser(4).divisor == 19  # 127 / 7, rounded up


def test_a_mean_that_arrives_late_is_rejected():
    folded = real(int_residual())
    late = tuple(replace(c, delay=2) if c.source == folded.input.name else c for c in folded.connections)
    with pytest.raises(FoldError, match="inputs arrive 2 steps late"):
        normalize_inputs(replace(folded, connections=late), 1.0, 2.0)
