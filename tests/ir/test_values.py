"""Sums of linear maps: as synapses they give what the steps one after the other give."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from properties import examples

from mpbn_deploy.base import NetworkError
from mpbn_deploy.ir import Affine, Algebra, Conv2d, Dense, apply_synapse

SHAPES = {"a": (2, 4, 5), "b": (2, 4, 5)}
ALGEBRA = Algebra(shapes=SHAPES)


def whole_numbers(generator, *shape):
    return generator.integers(-3, 4, size=shape).astype(float)


def step_on(kind, shape, generator):
    """An affine step of a kind, on values of a shape."""
    if kind == "flatten" or (len(shape) == 1 and kind in ("kernel", "mask")):
        return Affine(source=shape, shape=(int(np.prod(shape)),))
    if kind == "kernel":
        synapse = Conv2d(weight=whole_numbers(generator, 2, 1, 3, 3), padding=(1, 1), groups=2)
        bias = whole_numbers(generator, 2, 1, 1)
        return Affine(source=shape, shape=shape, synapse=synapse, bias=bias)
    if kind == "matrix":
        weight = whole_numbers(generator, 4, int(np.prod(shape)))
        return Affine(
            source=shape, shape=(4,), synapse=Dense(weight=weight), bias=whole_numbers(generator, 4)
        )
    ones = (1,) * (len(shape) - 1)
    factor = (
        whole_numbers(generator, *shape) if kind == "neurons" else whole_numbers(generator, shape[0], *ones)
    )
    if kind == "mask":
        factor = factor * np.pad(np.ones((shape[1] - 1, shape[2])), ((1, 0), (0, 0)))
    return Affine(source=shape, shape=shape, factor=factor)


def applied(step, values):
    values = values.reshape(1, *step.source)
    if step.synapse is not None:
        values = apply_synapse(step.synapse, values)
    values = values.reshape(1, *step.shape) * (1 if step.factor is None else step.factor)
    return values + (0 if step.bias is None else step.bias)


def result(value, sent):
    total = np.zeros(value.shape) if value.constant is None else value.constant.copy()
    for (name, _), synapses in ALGEBRA.onto(value, value.shape).items():
        for synapse in synapses:
            total = total + apply_synapse(synapse, sent[name][None])[0].reshape(value.shape)
    return total


KINDS = st.lists(
    st.sampled_from(["flatten", "kernel", "matrix", "channels", "neurons", "mask"]), min_size=0, max_size=3
)


@examples(150)
@given(before=KINDS, beside=KINDS, after=KINDS, other=st.sampled_from("ab"), seed=st.integers(0, 2**32 - 1))
def test_steps_and_sums_are_those_of_the_synapses(before, beside, after, other, seed):
    generator = np.random.default_rng(seed)
    sent = {name: whole_numbers(generator, *shape) for name, shape in SHAPES.items()}
    (first, expected), (second, added) = ((ALGEBRA.sent(name), sent[name]) for name in ("a", other))
    for kind in before:
        step = step_on(kind, first.shape, generator)
        first, expected = ALGEBRA.through(step, first), applied(step, expected)
    for kind in beside:
        step = step_on(kind, second.shape, generator)
        second, added = ALGEBRA.through(step, second), applied(step, added)
    if np.prod(first.shape) == np.prod(second.shape):
        first, expected = (
            ALGEBRA.sum(first, second),
            expected.reshape(first.shape) + added.reshape(first.shape),
        )
    for kind in after:
        step = step_on(kind, first.shape, generator)
        first, expected = ALGEBRA.through(step, first), applied(step, expected)
    np.testing.assert_array_equal(result(first, sent), expected.reshape(first.shape))


def test_a_value_knows_whether_it_is_what_a_population_sent():
    sent, shape = ALGEBRA.sent("a"), SHAPES["a"]
    late = ALGEBRA.through(Affine(source=shape, shape=shape, delay=2), sent)
    assert (sent.as_sent(), late.as_sent()) == (("a", 0), ("a", 2))
    assert ALGEBRA.through(Affine(source=shape, shape=(40,)), sent).as_sent() == ("a", 0)
    assert ALGEBRA.sum(sent, sent).as_sent() is None
    assert ALGEBRA.sum(sent, ALGEBRA.sent("b")).as_sent() is None
    biased = ALGEBRA.through(Affine(source=shape, shape=shape, bias=np.ones(shape)), sent)
    assert biased.as_sent() is None


def test_a_constant_cannot_come_late():
    shape = SHAPES["a"]
    biased = ALGEBRA.through(Affine(source=shape, shape=shape, bias=np.ones(shape)), ALGEBRA.sent("a"))
    with pytest.raises(NetworkError, match="delays a bias"):
        ALGEBRA.through(Affine(source=shape, shape=shape, delay=1), biased)


def test_a_channel_without_gain_keeps_its_kernel():
    kernel = Conv2d(weight=np.ones((2, 2, 3, 3)), padding=(1, 1))
    shape = SHAPES["a"]
    value = ALGEBRA.through(Affine(source=shape, shape=shape, synapse=kernel), ALGEBRA.sent("a"))
    value = ALGEBRA.through(Affine(source=shape, shape=shape, factor=np.zeros((2, 1, 1))), value)
    ((synapse,),) = ALGEBRA.onto(value, shape).values()
    assert isinstance(synapse, Conv2d) and not synapse.weight.any()
