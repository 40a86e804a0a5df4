"""Sums of linear maps of what populations send: added, and led through linear nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from ..compose import add, as_dense, compose, diagonal_synapse, identity_synapse
from ..errors import NetworkError
from ..graph import Conv2d, Dense, Shape, Synapse, apply_synapse, compact, output_shape, scale_channels
from ..records import Array, record
from .file import Node
from .linear import Linear, picture

Arrival = tuple[str, int]  # from which population, after how many steps
Result = TypeVar("Result")


@record
class Value:
    """What a node gives: the sum of linear maps of what populations send, plus a constant.

    None stands for the identity among maps, and for zero among constants.
    """

    shape: Shape  # as the file has it; constants have that of its `picture`
    maps: Mapping[Arrival, Synapse | None]
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
        maps: dict[Arrival, Synapse | None] = {}
        for (source, delay), first in value.maps.items():
            synapse = self._after(node, source, first, step)
            arrival = (source, delay + step.delay)
            maps[arrival] = self._add(node, arrival, maps[arrival], synapse) if arrival in maps else synapse
        return Value(shape=step.shape, maps=maps, constant=_constant_through(step, value))

    def onto(self, node: Node, synapse: Synapse | None, source: str, target: Shape) -> Synapse:
        """A map as the synapse onto a population of a shape."""
        shape = self.shapes[source]
        if synapse is None:
            return _named(node, identity_synapse, shape) if shape == target else self._eye(node, source)
        if isinstance(synapse, Dense) or output_shape(synapse, shape) == target:
            return synapse
        return _named(node, as_dense, synapse, shape)

    def _after(self, node: Node, source: str, first: Synapse | None, step: Linear) -> Synapse | None:
        shape, between = self.shapes[source], picture(step.source)
        result = first
        if step.synapse is not None:
            if first is None and (isinstance(step.synapse, Dense) or shape == between):
                result = step.synapse
            else:
                first = self._eye(node, source) if first is None else first
                result = _named(node, compose, first, step.synapse, shape, between=between)
        return result if step.factor is None else self._scaled(node, source, result, step.factor)

    def _scaled(self, node: Node, source: str, synapse: Synapse | None, factor: Array) -> Synapse:
        """factor * synapse, one factor per neuron"""
        shape = self.shapes[source]
        if synapse is None:
            fitting = factor if factor.shape == shape else factor.reshape(shape)
            return _named(node, diagonal_synapse, compact(fitting), shape)
        if isinstance(synapse, Conv2d):
            channels = compact(factor)
            if channels.size == len(synapse.weight):
                return replace(synapse, weight=scale_channels(synapse.weight, channels.ravel()))
            synapse = _named(node, as_dense, synapse, shape)
        return replace(synapse, weight=synapse.weight * factor.reshape(-1, 1))

    def _add(self, node: Node, arrival: Arrival, one: Synapse | None, other: Synapse | None) -> Synapse:
        shape = self.shapes[arrival[0]]
        first, second = (_named(node, identity_synapse, shape) if s is None else s for s in (one, other))
        if _shape_after(first, shape) != _shape_after(second, shape):
            first, second = (_named(node, as_dense, s, shape) for s in (first, second))
        return _named(node, add, first, second, shape)

    def _eye(self, node: Node, source: str) -> Dense:
        return _named(
            node, as_dense, _named(node, identity_synapse, self.shapes[source]), self.shapes[source]
        )


def _shape_after(synapse: Synapse, source: Shape) -> Shape | None:
    """None for a matrix, which may stand for any shape."""
    return output_shape(synapse, source) if isinstance(synapse, Conv2d) else None


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
