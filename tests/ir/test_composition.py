"""Linear maps put together: the synapses give what the two give, in every number."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from properties import examples

from mpbn_deploy.base import NetworkError
from mpbn_deploy.ir import (
    NO_BORDER,
    Conv2d,
    Dense,
    add,
    apply_synapse,
    as_dense,
    diagonal_synapse,
    identity_synapse,
    matrix,
    output_shape,
    pool_synapse,
    regroup,
    through,
    window,
)
from mpbn_deploy.ir.composition import _adjoint, compose
from mpbn_deploy.ir.synapses import axes, constant_through

seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))
few = examples(200)


def whole_numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-3, 4, size=shape).astype(float)


@st.composite
def convolutions(draw, channels, outputs=None):
    groups = draw(st.sampled_from([g for g in (1, 2, 4) if channels % g == 0]))
    outputs = outputs or draw(st.sampled_from((2, 4)))
    assume(outputs % groups == 0)
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    return Conv2d(
        weight=whole_numbers(draw(seeds), outputs, channels // groups, *draw(pair)),
        stride=draw(pair),
        padding=draw(st.tuples(st.integers(0, 3), st.integers(0, 3))),
        dilation=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        groups=groups,
        exponent=draw(st.integers(-1, 1)),
    )


def between_sizes(size, wanted):
    """(kernel, stride, padding, dilation) of all that lead from one size to the other."""
    for kernel, stride, padding, dilation in product((1, 2, 3), (1, 2, 3), range(4), (1, 2)):
        room = size + 2 * padding - dilation * (kernel - 1) - 1
        if room >= 0 and room // stride + 1 == wanted:
            yield kernel, stride, padding, dilation


@st.composite
def convolutions_to(draw, source, target):
    """Convolutions between two shapes; to draw any and keep those that fit takes long."""
    sizes = zip(source[1:], target[1:], strict=True)
    axes = [draw(st.sampled_from(list(between_sizes(*pair)))) for pair in sizes]
    kernel, stride, padding, dilation = zip(*axes, strict=True)
    groups = draw(st.sampled_from((1, 2, 4)))
    return Conv2d(
        weight=whole_numbers(draw(seeds), target[0], source[0] // groups, *kernel),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        exponent=draw(st.integers(-1, 1)),
    )


@st.composite
def windowed(draw, synapse, source):
    """The same convolution, of which a border of the target gets nothing."""
    silent = []
    for size in shape_of(synapse, source)[1:]:
        near = draw(st.integers(0, size - 1))
        silent.append((near, draw(st.integers(0, size - 1 - near))))
    return replace(synapse, silent=tuple(silent))


def assert_equal_maps(expected, synapses, shape, seed):
    values = whole_numbers(seed, 2, *shape)
    found = sum(apply_synapse(synapse, values).reshape(2, -1) for synapse in synapses)
    np.testing.assert_array_equal(expected(values).reshape(2, -1), found)


def served(synapses, shape):
    """How many of the synapses act on each neuron of a target."""
    count = np.zeros(shape[1:], int)
    for synapse in synapses:
        count[window(synapse, shape)] += 1
    return count


def in_a_row(first, second):
    return lambda values: apply_synapse(second, apply_synapse(first, values))


def shape_of(synapse, source):
    shape = output_shape(synapse, source)
    assume(min(shape) > 0)
    return shape


@few
@given(st.data(), sizes, seeds)
def test_a_convolution_after_a_convolution(data, size, seed):
    source = (4, *size)
    first = data.draw(convolutions(4))
    second = data.draw(convolutions(len(first.weight)))
    expected = shape_of(second, shape_of(first, source))
    parts = compose(first, second, source)
    assert_equal_maps(in_a_row(first, second), parts, source, seed)
    if isinstance(parts[0], Conv2d):
        assert {output_shape(part, source) for part in parts} == {expected}
        assert (served(parts, expected) == 1).all()  # each neuron has one kernel
    if second.padding == (0, 0):
        assert len(parts) == 1 and isinstance(parts[0], Conv2d) and parts[0].silent == NO_BORDER


@examples(100)
@given(st.data(), sizes, seeds)
def test_convolutions_that_leave_a_border_out(data, size, seed):
    """Also three in a row, and a matrix behind them."""
    source = (4, *size)
    first = data.draw(windowed(data.draw(convolutions(4)), source))
    middle = output_shape(first, source)
    second = data.draw(windowed(data.draw(convolutions(len(first.weight))), middle))
    target = output_shape(second, middle)
    parts = compose(first, second, source)
    assert_equal_maps(in_a_row(first, second), parts, source, seed)
    assert_equal_maps(in_a_row(first, second), (matrix(parts, source),), source, seed)
    third = data.draw(convolutions(target[0]))
    shape_of(third, target)
    for last in (third, Dense(weight=whole_numbers(seed, 2, int(np.prod(target))))):
        assert_equal_maps(
            lambda values, last=last: apply_synapse(last, in_a_row(first, second)(values)),
            through(parts, last, source, between=target),
            source,
            seed,
        )


@few
@given(st.data(), sizes, seeds)
def test_a_matrix_after_a_convolution(data, size, seed):
    source = (4, *size)
    first = data.draw(convolutions(4))
    second = Dense(weight=whole_numbers(seed, 3, int(np.prod(shape_of(first, source)))), exponent=1)
    assert_equal_maps(in_a_row(first, second), compose(first, second, source), source, seed)


@few
@given(st.data(), sizes, seeds)
def test_a_convolution_or_matrix_after_a_matrix(data, size, seed):
    middle = (4, *size)
    first = Dense(weight=whole_numbers(seed, int(np.prod(middle)), 5))
    second = data.draw(convolutions(4))
    shape_of(second, middle)
    [one] = compose(first, second, (5,), between=middle)
    assert_equal_maps(
        lambda values: apply_synapse(second, apply_synapse(first, values).reshape(-1, *middle)),
        (one,),
        (5,),
        seed,
    )
    third = Dense(weight=whole_numbers(seed, 2, len(one.weight)))
    assert_equal_maps(in_a_row(one, third), compose(one, third, (5,)), (5,), seed)


@few
@given(st.data(), sizes, seeds)
def test_side_by_side(data, size, seed):
    source = (4, *size)
    first = data.draw(convolutions(4, 4))
    second = data.draw(convolutions_to(source, shape_of(first, source)))
    if data.draw(st.booleans()):
        second = data.draw(windowed(second, source))
    for one, other in ((first, second), (first, as_dense(second, source)), (as_dense(first, source), second)):
        together = add((one,), (other,), source)
        assert_equal_maps(
            lambda values: (
                apply_synapse(first, values).reshape(2, -1) + apply_synapse(second, values).reshape(2, -1)
            ),
            together,
            source,
            seed,
        )
    together = add((first,), (second,), source)
    one = len(together) == 1 and isinstance(together[0], Conv2d)
    assert one or first.stride != second.stride or first.silent != second.silent


@few
@given(st.data(), sizes, seeds)
def test_a_convolution_as_a_matrix(data, size, seed):
    source = (4, *size)
    synapse = data.draw(convolutions(4))
    shape_of(synapse, source)
    assert_equal_maps(
        lambda values: apply_synapse(synapse, values), (as_dense(synapse, source),), source, seed
    )


def test_a_skip_of_an_identity_lands_in_the_middle_of_the_kernel():
    kernel = Conv2d(weight=np.zeros((2, 2, 3, 3)), padding=(1, 1))
    [together] = add((kernel,), (identity_synapse((2, 5, 5)),), (2, 5, 5))
    assert together.padding == (1, 1) and together.weight.shape == (2, 2, 3, 3)
    np.testing.assert_array_equal(together.weight[:, :, 1, 1], np.eye(2))
    assert together.weight.sum() == 2


def test_pooling_then_a_padded_convolution_stays_a_convolution():
    pool = pool_synapse(2, (2, 2), (2, 2), weight=0.25)
    padded = Conv2d(weight=np.ones((3, 2, 3, 3)), padding=(1, 1))
    [one] = compose(pool, padded, (2, 8, 8))
    assert isinstance(one, Conv2d) and one.stride == (2, 2) and one.padding == (2, 2)
    # with nine rows the last is not pooled, but the one convolution would read it
    parts = compose(pool, padded, (2, 9, 8))
    assert [part.silent for part in parts] == [((0, 1), (0, 0)), ((3, 0), (0, 0))]
    # in a small picture a matrix has fewer weights
    assert isinstance(compose(pool, padded, (2, 5, 5))[0], Dense)


def test_an_overlapping_pool_before_a_padded_convolution_has_a_kernel_for_each_window():
    """The stem of ResNet18 on 224 x 224: beyond the pooled picture one would read the last row of pixels."""
    pool = pool_synapse(4, (3, 3), (2, 2), (1, 1), weight=1 / 9)
    padded = Conv2d(weight=whole_numbers(0, 4, 4, 3, 3), padding=(1, 1))
    parts = compose(pool, padded, (4, 112, 112))
    ends = ((0, 1), (55, 0))
    assert [part.silent for part in parts] == [(rows, columns) for rows in ends for columns in ends]
    assert {part.weight.shape for part in parts} == {(4, 4, 7, 7)}
    pixels = whole_numbers(1, 2, 4, 112, 112)
    found = sum(apply_synapse(part, pixels) for part in parts)
    np.testing.assert_allclose(found, in_a_row(pool, padded)(pixels), rtol=1e-12, atol=1e-12)
    # where the last window ends at the border, one kernel serves all
    assert len(compose(pool, padded, (4, 113, 113))) == 1


@pytest.mark.parametrize("size", [6, 7, 12])
def test_convolutions_in_a_row_that_both_keep_the_size(size):
    """Both borders are at fault: a window for each side and corner, and the inner one."""
    first = Conv2d(weight=whole_numbers(0, 8, 8, 5, 5), padding=(2, 2))
    second = Conv2d(weight=whole_numbers(1, 8, 8, 3, 3), padding=(1, 1))
    parts = compose(first, second, (8, size, size))
    assert_equal_maps(in_a_row(first, second), parts, (8, size, size), 2)
    assert (len(parts) == 9) == (size**4 > 9 * 7 * 7)


def test_a_kernel_of_single_pixels_keeps_its_dilation():
    dilated = Conv2d(weight=np.ones((2, 2, 3, 3)), dilation=(2, 2), groups=1)
    [one] = compose(dilated, identity_synapse((2, 4, 4)), (2, 8, 8))
    assert one.dilation == (2, 2) and one.weight.shape == (2, 2, 3, 3)


def test_pooling_keeps_channels_apart():
    [twice] = compose(pool_synapse(3, (2, 2), (2, 2)), pool_synapse(3, (2, 2), (2, 2)), (3, 8, 8))
    assert twice.groups == 3 and twice.weight.shape == (3, 1, 4, 4) and twice.stride == (4, 4)


@pytest.mark.parametrize(("values", "shape"), [(2, (2, 3, 4)), (24, (2, 3, 4)), (5, (5,))])
def test_scaling(values, shape):
    given_values = np.arange(1.0, values + 1).reshape(shape if values == np.prod(shape) else (-1, 1, 1))
    synapse = diagonal_synapse(given_values, shape)
    assert_equal_maps(lambda source: source * given_values, (synapse,), shape, 0)
    assert isinstance(synapse, Conv2d) == (values == 2)
    assert_equal_maps(lambda source: source, (identity_synapse(shape),), shape, 0)


def test_fewer_groups():
    weight = np.arange(8.0).reshape(4, 2, 1, 1)
    assert regroup(weight, 4, 4) is weight
    assert regroup(weight, 4, 2)[:, :, 0, 0].tolist() == [
        [0, 1, 0, 0],
        [0, 0, 2, 3],
        [4, 5, 0, 0],
        [0, 0, 6, 7],
    ]


def test_matrices_that_would_be_too_large_are_refused():
    kernel = Conv2d(weight=np.ones((8, 8, 3, 3)), padding=(1, 1))
    shape = (8, 64, 64)
    for refused in (
        lambda: as_dense(kernel, shape, limit=2**20),
        lambda: compose(kernel, kernel, shape, limit=2**13),
        lambda: add((kernel,), (replace(kernel, silent=((1, 0), (0, 0))),), shape, limit=2**10),
        lambda: compose(kernel, Dense(weight=np.ones((2, 8 * 64 * 64))), shape, limit=2**10),
        lambda: compose(Dense(weight=np.ones((8 * 64 * 64, 4))), kernel, (4,), between=shape, limit=2**10),
        lambda: identity_synapse((2**14,)),
        lambda: as_dense(
            Conv2d(weight=np.ones((1, 1, 2, 2)), stride=(9**9,) * 2, padding=(9**9,) * 2), (1, 1, 1)
        ),
    ):
        with pytest.raises(NetworkError, match="weights would be needed; allowed are"):
            refused()


@few
@given(
    seed=seeds,
    groups=st.integers(1, 5),
    inputs=st.integers(1, 3),
    outputs=st.sampled_from((1, 1, 2)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    size=sizes,
)
def test_rows_through_depthwise_kernels_equal_those_of_each_group_alone(
    seed, groups, inputs, outputs, kernel, stride, padding, dilation, size
):
    """In every bit: no sum has another order."""
    assume(all(s + 2 * p > d * (k - 1) for s, p, d, k in zip(size, padding, dilation, kernel, strict=True)))
    random = np.random.default_rng(seed)
    weight = random.normal(size=(groups * outputs, inputs, *kernel))
    synapse = Conv2d(weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    source = (groups * inputs, *size)
    target = output_shape(synapse, source)
    rows = random.normal(size=(3, *target))
    down, across = axes(synapse, source, target)
    alone = np.zeros((3, *source))
    for group in range(groups):
        given_rows = rows[:, group * outputs : (group + 1) * outputs]
        part = alone[:, group * inputs : (group + 1) * inputs]
        for a, b in np.ndindex(kernel):
            (y, row), (x, column) = down.through(a), across.through(b)
            taps = weight[group * outputs : (group + 1) * outputs, :, a, b]
            terms = np.tensordot(given_rows, taps, axes=((1,), (0,)))
            part[:, :, row, column] += np.moveaxis(terms[:, y, x], 3, 1)
    np.testing.assert_array_equal(_adjoint(synapse, rows, source), alone.reshape(3, -1))


def test_a_wide_global_average_takes_one_product_per_pixel_not_per_channel(monkeypatch):
    channels, side = 512, 4
    pool = pool_synapse(channels, (side, side), (1, 1), weight=1 / side**2)
    dense = Dense(weight=whole_numbers(0, 10, channels))

    def reject(*arguments, **options):
        raise AssertionError("a product of one channel alone")

    monkeypatch.setattr(np, "tensordot", reject)
    source = (channels, side, side)
    (whole,) = compose(pool, dense, source, between=(channels,))
    np.testing.assert_array_equal(whole.weight, np.repeat(dense.weight / side**2, side**2, axis=1))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("silent", [NO_BORDER, ((1, 0), (0, 2))])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_equal_windows_of_a_constant_stay_equal(groups, silent, padding):
    """BLAS rounds the same sum differently in different rows; pixels of one constant may not show that."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 4 // groups, 3, 3))
    synapse = Conv2d(weight=weight, groups=groups, padding=padding, silent=silent)
    constant = np.broadcast_to(rng.normal(size=(4, 1, 1)), (4, 11, 13)).copy()
    found = constant_through(synapse, constant)
    np.testing.assert_allclose(found, apply_synapse(synapse, constant[None])[0], rtol=1e-13, atol=1e-13)
    inside = found[:, 4:6, 4:6]
    assert (inside == inside[:, :1, :1]).all() and inside.any()
