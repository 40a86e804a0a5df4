"""Sums of linear maps of what populations send: added, and led through linear nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from ...base import Array, NetworkError, record
from ...ir import (
    Border,
    Conv2d,
    Dense,
    Shape,
    Synapse,
    Synapses,
    add,
    apply_synapse,
    as_dense,
    compact,
    diagonal_synapse,
    identity_synapse,
    matrix,
    output_shape,
    scale_channels,
    through,
)
from .file import Node
from .linear import Linear, picture

Arrival = tuple[str, int]  # from which population, after how many steps
Result = TypeVar("Result")


@record
class Value:
    """What a node gives: the sum of linear maps of what populations send, plus a constant.

    A map is a sum of synapses. None stands for the identity among maps, and for zero among constants.
    """

    shape: Shape  # as the file has it; constants have that of its `picture`
    maps: Mapping[Arrival, Synapses | None]
    constant: Array | None = None


@record
class Algebra:
    """Knows the shape of every population; complaints name the node at which they arise."""

    shapes: Mapping[str, Shape]

    def sum(self, node: Node, one: Value, other: Value) -> Value:
        """What two edges to the same node add up to."""
        if prod(one.shape) != prod(other.shape):
            node.refuse(f"edges to it bring shapes {one.shape} and {other.shape}, which do not add up")
        maps = dict(one.maps)
        for arrival, synapse in other.maps.items():
            maps[arrival] = self._add(node, arrival, maps[arrival], synapse) if arrival in maps else synapse
        constants = [v.constant.reshape(picture(one.shape)) for v in (one, other) if v.constant is not None]
        constant = np.sum(constants, axis=0) if constants else None
        return Value(shape=one.shape, maps=maps, constant=constant)

    def through(self, node: Node, step: Linear, value: Value) -> Value:
        """What a linear node makes of a value."""
        if step.delay and value.constant is not None:
            node.refuse(
                "delays a bias, which would be absent in the first steps; put the bias behind the delay"
            )
        maps: dict[Arrival, Synapses | None] = {}
        for (source, delay), first in value.maps.items():
            synapse = self._after(node, source, first, step)
            arrival = (source, delay + step.delay)
            maps[arrival] = self._add(node, arrival, maps[arrival], synapse) if arrival in maps else synapse
        return Value(shape=step.shape, maps=maps, constant=_constant_through(step, value))

    def onto(self, node: Node, synapses: Synapses | None, source: str, target: Shape) -> Synapses:
        """A map as the synapses onto a population of a shape."""
        shape = self.shapes[source]
        if synapses is None:
            return (_named(node, identity_synapse, shape),) if shape == target else self._eye(node, source)
        if _shape_after(synapses, shape) in (None, target):
            return synapses
        return (_named(node, matrix, synapses, shape),)

    def _after(self, node: Node, source: str, first: Synapses | None, step: Linear) -> Synapses | None:
        shape, between = self.shapes[source], picture(step.source)
        result = first
        if step.synapse is not None:
            if first is None and (isinstance(step.synapse, Dense) or shape == between):
                result = (step.synapse,)
            else:
                first = self._eye(node, source) if first is None else first
                result = _named(node, through, first, step.synapse, shape, between=between)
        return result if step.factor is None else self._scaled(node, source, result, step.factor)

    def _scaled(self, node: Node, source: str, synapses: Synapses | None, factor: Array) -> Synapses:
        """factor * synapse, one factor per neuron"""
        shape = self.shapes[source]
        if synapses is None:
            fitting = factor if factor.shape == shape else factor.reshape(shape)
            return (_named(node, diagonal_synapse, compact(fitting), shape),)
        if factor.shape == _shape_after(synapses, shape) and (parts := _windowed(synapses, factor)):
            return parts
        whole = _named(node, matrix, synapses, shape)
        return (replace(whole, weight=whole.weight * factor.reshape(-1, 1)),)

    def _add(self, node: Node, arrival: Arrival, one: Synapses | None, other: Synapses | None) -> Synapses:
        shape = self.shapes[arrival[0]]
        first, second = (
            (_named(node, identity_synapse, shape),) if synapses is None else synapses
            for synapses in (one, other)
        )
        if _shape_after(first, shape) != _shape_after(second, shape):
            first, second = ((_named(node, matrix, synapses, shape),) for synapses in (first, second))
        return _named(node, add, first, second, shape)

    def _eye(self, node: Node, source: str) -> Synapses:
        identity = _named(node, identity_synapse, self.shapes[source])
        return (_named(node, as_dense, identity, self.shapes[source]),)


def _shape_after(synapses: Synapses, source: Shape) -> Shape | None:
    """None for a matrix, which may stand for any shape."""
    first = synapses[0]
    return output_shape(first, source) if isinstance(first, Conv2d) else None


def _windowed(synapses: Synapses, factor: Array) -> Synapses | None:
    """factor * convolutions, where it is one number per channel inside of a window, and zero around it."""
    rows, columns = (np.flatnonzero(factor.any(axis=axes)) for axes in ((0, 2), (0, 1)))
    if not rows.size:
        return None
    high, wide = (slice(int(axis[0]), int(axis[-1]) + 1) for axis in (rows, columns))
    channels = compact(factor[:, high, wide])
    if channels.size != len(factor):
        return None
    border = ((high.start, factor.shape[1] - high.stop), (wide.start, factor.shape[2] - wide.stop))
    parts = [_within(synapse, channels.ravel(), border, factor.shape) for synapse in synapses]
    return tuple(part for part in parts if part) or None


def _within(synapse: Synapse, channels: Array, border: Border, target: Shape) -> Synapse | None:
    """channels * synapse without a border of the target; None where that leaves nothing"""
    assert isinstance(synapse, Conv2d)
    (top, bottom), (left, right) = (
        (max(a), max(b))
        for a, b in (zip(*ends, strict=True) for ends in zip(border, synapse.silent, strict=True))
    )
    if top + bottom >= target[1] or left + right >= target[2]:
        return None
    weight = scale_channels(synapse.weight, channels)
    return replace(synapse, weight=weight, silent=((top, bottom), (left, right)))


def _constant_through(step: Linear, value: Value) -> Array | None:
    total = value.constant
    if total is not None:
        total = total.reshape(picture(step.source))
        if step.synapse is not None:
            total = apply_synapse(step.synapse, total[None])[0]
        total = total.reshape(picture(step.shape))
        if step.factor is not None:
            total = total * step.factor
    if step.bias is None or not step.bias.any():
        return total
    bias = np.broadcast_to(step.bias, picture(step.shape))
    return bias if total is None else total + bias


def _named(node: Node, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
    """Errors of the algebra of synapses know no names."""
    try:
        return function(*arguments, **options)
    except NetworkError as error:
        node.refuse(error.problems[0])
