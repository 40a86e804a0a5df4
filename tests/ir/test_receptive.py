"""Receptive fields and counts of synapses are those of the unrolled matrix."""

from math import prod

import numpy as np
from hypothesis import assume, given, strategies as st
from properties import examples

from mpbn_deploy.ir import (
    Conv2d,
    Dense,
    apply_synapse,
    as_dense,
    axes,
    by_group,
    count_synapses,
    groups_of,
    output_shape,
    projective_fields,
    source_channels,
    synapses_into,
    synapses_out_of,
    unit_weights,
)

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))
seeds = st.integers(0, 2**32 - 1)
few = examples(150)


@st.composite
def convolutions(draw, zeros=False):
    """A source shape, and a convolution with a silent border on it."""
    groups, inputs, outputs = draw(st.tuples(*3 * [st.integers(1, 2)]))
    source = (groups * inputs, *draw(st.tuples(st.integers(1, 7), st.integers(1, 7))))
    shape = (groups * outputs, inputs, *draw(PAIR))
    weight = np.random.default_rng(draw(seeds)).integers(0 if zeros else 1, 3, size=shape)
    padding = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    plain = {"stride": draw(PAIR), "padding": padding, "dilation": draw(PAIR)}
    target = output_shape(Conv2d(weight=weight, groups=groups, **plain), source)
    assume(min(target) > 0)
    near = [draw(st.integers(0, size - 1)) for size in target[1:]]
    silent = tuple(
        (first, draw(st.integers(0, size - 1 - first))) for first, size in zip(near, target[1:], strict=True)
    )
    return source, target, Conv2d(weight=weight, groups=groups, silent=silent, **plain)


def unrolled(synapse, source, target):
    """[*target, *source], by the definition: what each source neuron alone makes of the target"""
    alone = np.eye(prod(source)).reshape(-1, *source)
    return np.moveaxis(apply_synapse(synapse, alone), 0, -1).reshape(*target, *source)


@few
@given(convolutions())
def test_relations_are_those_of_the_unrolled_kernel(found):
    source, target, synapse = found
    there = unrolled(synapse, source, target) != 0
    rows, columns = (axis.relation() for axis in axes(synapse, source, target))
    channels = np.zeros((target[0], source[0]), bool)
    channels[np.arange(target[0])[:, None], source_channels(synapse.weight, synapse.groups)] = True
    np.testing.assert_array_equal(np.einsum("oi,yr,xc->oyxirc", channels, rows, columns), there)
    np.testing.assert_array_equal(as_dense(synapse, source).weight != 0, there.reshape(prod(target), -1))


@few
@given(found=convolutions(), data=st.data())
def test_all_views_of_an_axis_agree(found, data):
    source, target, synapse = found
    for axis in axes(synapse, source, target):
        first = data.draw(st.integers(0, axis.target))
        part = axis.within(slice(first, data.draw(st.integers(first, axis.target))))
        triples = set(zip(*(values.tolist() for values in part.pairs()), strict=True))
        by_tap = {
            (y, tap, row)
            for tap in range(part.taps)
            for y, row in zip(*(range(*s.indices(10**6)) for s in part.through(tap)), strict=True)
        }
        assert triples == by_tap
        assert part.uses().tolist() == [sum(tap == t for _, t, _ in triples) for tap in range(part.taps)]
        fields = projective_fields(part)
        for number, row in enumerate(fields.source.tolist()):
            reading = sorted((y, tap) for y, tap, read in triples if read == row)
            assert (fields.first[number], fields.tap[number]) == reading[0]
            assert fields.last[number] == reading[-1][0] and fields.count[number] == len(reading)
        assert set(fields.source.tolist()) == {row for _, _, row in triples}


@few
@given(convolutions(zeros=True))
def test_synapses_are_counted_as_in_the_unrolled_matrix(found):
    source, target, synapse = found
    there = unrolled(synapse, source, target).reshape(prod(target), -1) != 0
    for one, shape in ((synapse, target), (Dense(weight=there.astype(int)), (prod(target),))):
        assert count_synapses(one, source, shape) == np.count_nonzero(there)
        assert synapses_into(one, source, shape).ravel().tolist() == there.sum(axis=1).tolist()
        assert synapses_out_of(one, source, shape).ravel().tolist() == there.sum(axis=0).tolist()
    assert count_synapses(Dense(weight=there), source, (prod(target),), products=True) == there.size


def test_products_are_counted_at_every_place_whatever_they_read():
    synapse = Conv2d(weight=np.zeros((4, 1, 3, 3)), padding=(1, 1), groups=2, silent=((1, 0), (0, 2)))
    assert count_synapses(synapse, (2, 5, 6), (4, 5, 6), products=True) == 4 * 9 * (4 * 4)
    assert count_synapses(synapse, (2, 5, 6), (4, 5, 6)) == 0


def test_stored_zeros_are_those_of_rows_that_are_not_empty():
    weight = np.array([[0, 3], [0, 0], [0, 0], [-1, 0]])
    assert unit_weights(Dense(weight=weight)).weight.tolist() == (weight != 0).astype(int).tolist()
    assert unit_weights(Dense(weight=weight), zeros=True).weight.tolist() == 4 * [[1, 1]]
    grouped = Conv2d(weight=weight[:, :, None, None], groups=2)
    assert unit_weights(grouped, zeros=True).weight[..., 0, 0].tolist() == [[0, 1], [0, 1], [1, 0], [1, 0]]


def test_channels_are_shared_out_among_groups():
    assert groups_of(slice(3, 9), 4) == range(3)
    assert by_group(slice(3, 9), 4) == [slice(3, 4), slice(4, 8), slice(8, 9)]
    assert by_group(slice(0, 4), 4) == [slice(0, 4)]
