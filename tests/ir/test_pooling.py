"""Pooling as a synapse computes what torch computes."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st
from properties import examples
from torch import nn

from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import Conv2d, any_synapse, apply_synapse, average_synapse

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 9))


def operation_of(module, shape):
    """What the front end makes of a pooling layer, and the shape it says it gives."""
    operation = trace(nn.Sequential(module), shape, 1).operations[0]
    return operation.kind, operation.shape


def assert_averages(module, shape):
    operation, pooled = operation_of(module, shape)
    synapse = average_synapse("pool", operation, shape)
    picture = torch.randint(-8, 9, (2, *shape)).double()
    expected = module(picture).numpy()
    assert pooled == expected.shape[1:]
    found = apply_synapse(synapse, picture.numpy()).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    return synapse


@examples(150)
@given(
    size=SIZES,
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    ceil_mode=st.booleans(),
    count_include_pad=st.booleans(),
    divisor=st.sampled_from([None, 1, 5]),
)
def test_averages_are_those_of_torch(size, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
    assume(all(2 * p <= k for p, k in zip(padding, kernel, strict=True)))
    assume(all(s + 2 * p >= k for s, p, k in zip(size, padding, kernel, strict=True)))
    module = nn.AvgPool2d(kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    assert_averages(module, (2, *size))


@examples(50)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    wanted=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_adaptive_averages_are_those_of_torch(size, wanted):
    assert_averages(nn.AdaptiveAvgPool2d(wanted), (2, *size))


def test_adaptive_averages_may_keep_a_size():
    assert_averages(nn.AdaptiveAvgPool2d((None, 2)), (2, 5, 4))


@pytest.mark.parametrize(
    "module",
    [nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(4)],
    ids=repr,
)
def test_even_windows_are_a_kernel(module):
    """No matrix where a convolution does: 8 x 8 pictures are pooled evenly by all of these."""
    assert isinstance(assert_averages(module, (3, 8, 8)), Conv2d)


@examples(50)
@given(
    size=st.tuples(st.integers(4, 9), st.integers(4, 9)),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
)
def test_the_largest_of_spikes_is_whether_any_fires(size, kernel, stride, padding, dilation):
    assume(2 * padding <= kernel and dilation * (kernel - 1) + 1 <= min(size))
    module = nn.MaxPool2d(kernel, stride, padding, dilation)
    operation, pooled = operation_of(module, (2, *size))
    spikes = (torch.rand(3, 2, *size) < 0.2).double()
    expected = module(spikes).numpy()
    assert pooled == expected.shape[1:]
    np.testing.assert_array_equal(
        apply_synapse(any_synapse(operation, 2), spikes.numpy()) > 0.5, expected > 0
    )
