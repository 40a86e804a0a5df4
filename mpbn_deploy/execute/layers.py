"""Populations as the emulator runs them: their products and neurons, prepared once in torch.

Products of spikes with weights are integers where torch supports it (`spike_products`). Everything else is
computed in floats: float32 is exact on integers while no partial sum, in any order of summation, reaches
2**24. For states, `bounds` proves this, and `largest_total` for the sums of currents that enter a population;
states without a proof are computed in float64 and watched, or in integers as `ir.overflow` defines if we did
not quantize the network. Each synapse is computed in float64 if its sums could be too large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import gcd, inf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import assert_never

from ..base import Array, record
from ..ir import (
    DECAY_ONE,
    NO_BORDER,
    STATE_EXPONENT,
    AnyNetwork,
    AnyPopulation,
    Connection,
    Conv2d,
    Decay,
    Dense,
    IntNetwork,
    Leak,
    Membrane,
    Modulator,
    Rule,
    Shape,
    Synapse,
    Truncation,
    bounds,
    exact_float,
    largest_sum,
    largest_total,
    output_shape,
    span,
    update_rule,
    value_range,
    wide_sums,
    window,
)
from .products import Product, as_floats, convolve, spike_product
from .reference import may_narrow

BINARY_SPIKES = (0, 1)  # range of values
FLOATS: dict[type[np.floating[Any]], torch.dtype] = {np.float32: torch.float32, np.float64: torch.float64}

DecayInPlace = Callable[[Tensor], Tensor]


@record
class Current:
    """A prepared connection: computes its currents in units of the state, channels last in memory."""

    connection: Connection
    product: Product  # [any number, *source] -> [the same number, *target]


@record
class Layer:
    """A prepared population."""

    name: str
    shape: Shape
    currents: tuple[Current, ...]
    state_type: torch.dtype
    bias: Tensor
    threshold: Tensor | None
    graded: bool
    rule: Rule
    integers: bool  # whose sums do not depend on their order
    moduli: Mapping[Current, float]  # of sums that may wrap
    subtrahend: Tensor | None = None
    keeps_current: bool = False  # whether the current outlasts its step
    decay_current: DecayInPlace | None = None  # None if it forgets everything
    decay_voltage: DecayInPlace | None = None
    divisor: int = 1
    narrows: bool = False  # whether states may leave their width, and continue as in Lava
    watched: bool = False  # whether the largest states are recorded, which may exceed the limit
    limit: float = inf  # of their magnitude
    steps: tuple[Layer, ...] = ()  # the layer in each time step, if its numbers depend on the step

    def at(self, step: int) -> Layer:
        """Return the layer with the numbers of one time step."""
        return self.steps[step] if self.steps else self

    @property
    def sources(self) -> set[str]:
        return {current.connection.source for current in self.currents}

    @property
    def is_reached(self) -> bool:
        """Whether anything that is sent to the population changes it."""
        return any(current.connection.synapse.weight.any() for current in self.currents)


def prepared(
    network: AnyNetwork,
    population: AnyPopulation,
    real_type: torch.dtype = torch.float64,
    watched: bool = False,
) -> Layer:
    """Prepare a population: real numbers are computed in `real_type`, integers in a float that is exact.

    States without a proof are watched; with `watched`, all are.
    """
    rule = update_rule(population.neuron, network.timesteps)
    sums = _sums(network, population, rule, real_type)
    narrows = not watched and not sums.proved and may_narrow(network, rule)
    watched = watched or not (sums.proved or narrows)
    currents = tuple(
        _current(network, connection, population, rule, sums.kind)
        for connection in network.entering(population.name)
    )
    layer = Layer(
        name=population.name,
        shape=population.shape,
        currents=currents,
        state_type=sums.kind,
        bias=_tensor(rule.bias, sums.kind),
        threshold=None if rule.threshold is None else _tensor(rule.threshold, sums.kind),
        graded=rule.graded,
        rule=rule,
        integers=isinstance(network, IntNetwork),
        moduli={c: rule.unit * sums.moduli[c.connection] for c in currents if c.connection in sums.moduli},
        narrows=narrows,
        watched=watched,
        limit=rule.limit,
    )
    if isinstance(rule, Modulator):
        return layer
    keeps = bool(np.any(rule.decay_current.kept))
    if rule.per_step:
        rules = [rule.at(step) for step in range(network.timesteps)]
        steps = tuple(_with_numbers(layer, each, sums.kind, keeps) for each in rules)
        return replace(steps[0], rule=rule, steps=steps)
    return _with_numbers(layer, rule, sums.kind, keeps)


def _with_numbers(layer: Layer, rule: Membrane, kind: torch.dtype, keeps_current: bool) -> Layer:
    """Return the layer with the numbers of a membrane."""
    return replace(
        layer,
        bias=_tensor(rule.bias, kind),
        threshold=None if rule.threshold is None else _tensor(rule.threshold, kind),
        subtrahend=None if rule.subtrahend is None else _tensor(rule.subtrahend, kind),
        keeps_current=keeps_current,
        decay_current=_in_place(rule.decay_current),
        decay_voltage=_in_place(rule.decay_voltage),
        divisor=rule.divisor,
    )


def _tensor(values: Array, kind: torch.dtype) -> Tensor:
    """Return numbers of neurons, with channels last in memory as states have them."""
    tensor = torch.tensor(values, dtype=kind)
    return _channels_last(tensor[None])[0] if tensor.dim() == 3 else tensor


@record
class _Sums:
    """How the states of a population are computed: the type of floats, and whether they are proved to fit."""

    kind: torch.dtype
    moduli: Mapping[Connection, float]  # of sums that may wrap
    proved: bool = True


def _sums(network: AnyNetwork, population: AnyPopulation, rule: Rule, real_type: torch.dtype) -> _Sums:
    if not isinstance(network, IntNetwork):
        return _Sums(kind=real_type, moduli={})
    name = population.name
    moduli = {} if isinstance(rule, Modulator) else wide_sums(network, name)
    proved = bounds(network, (name,))[name].fits and not moduli
    if isinstance(rule, Modulator) or not proved:
        return _Sums(kind=torch.float64, proved=proved, moduli=moduli)
    return _Sums(kind=FLOATS[exact_float(largest_total(_arrivals(network, name)))], moduli=moduli)


def _arrivals(network: AnyNetwork, name: str) -> list[tuple[Connection, Any]]:
    return [(connection, network.population(connection.source)) for connection in network.entering(name)]


def _current(
    network: AnyNetwork,
    connection: Connection,
    population: AnyPopulation,
    rule: Rule,
    kind: torch.dtype,
) -> Current:
    """Prepare a connection: as an integer product if possible, else in floats that hold every sum."""
    synapse, source, multiplied = connection.synapse, network.population(connection.source), kind
    product = None
    if isinstance(network, IntNetwork):
        multiplied = FLOATS[exact_float(largest_sum(connection, source))]
        binary = source is not network.input and value_range(source.neuron) == BINARY_SPIKES
        # Integer products give float32, in units of a membrane's state.
        if binary and rule.unit == 2**STATE_EXPONENT and multiplied == torch.float32:
            product = spike_product(synapse, source.shape)
    if product is None:
        product = _float_product(synapse, rule.unit, multiplied)
    return Current(
        connection=connection,
        product=lambda values: _channels_last(product(values).to(kind).view(-1, *population.shape)),
    )


def _float_product(synapse: Synapse, unit: int, kind: torch.dtype) -> Product:
    # Multiplying a float by a power of two is exact, so the scale goes into the weights.
    weight = torch.tensor(synapse.weight).to(kind) * (unit * 2.0**synapse.exponent)

    def product(values: Tensor) -> Tensor:
        values = as_floats(values, kind)
        values = _channels_last(values) if kind == torch.float32 else values  # faster, in oneDNN
        return apply_weight(synapse, weight, values)

    return product


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values


def _in_place(decay: Decay) -> DecayInPlace | None:
    match decay:
        case Truncation(amount=amount):
            return truncated_decay(amount)
        case Leak(kept=kept):
            factor = torch.tensor(kept) if isinstance(kept, np.ndarray) else kept
            return (lambda state: state.mul_(factor)) if np.any(kept) else None
        case _:
            assert_never(decay)


def truncated_decay(decay: int | Array) -> DecayInPlace | None:
    """state <- trunc(state * (4096 - decay) / 4096), in place, on integers stored as floats

    torch.div rounds several times faster than torch.trunc.
    """
    if isinstance(decay, np.ndarray):
        each = torch.tensor(DECAY_ONE - decay, dtype=torch.float64)
        return lambda state: state.copy_(_truncated(state.double() * each))
    keep = DECAY_ONE - decay
    if keep == 0:
        return None
    if keep == DECAY_ONE:
        return lambda state: state
    if keep == gcd(keep, DECAY_ONE):  # a power of two: the product is exact
        return lambda state: torch.div(state, DECAY_ONE // keep, rounding_mode="trunc", out=state)
    return lambda state: state.copy_(_truncated(state.double() * keep))


def _truncated(product: Tensor) -> Tensor:
    """trunc(product / 4096), where float64 holds the product"""
    return torch.div(product, DECAY_ONE, rounding_mode="trunc", out=product)


def apply_weight(synapse: Synapse, weight: Tensor, values: Tensor) -> Tensor:
    """Return the product of a synapse whose weight is given."""
    match synapse:
        case Dense():
            return functional.linear(values.flatten(1), weight)
        case Conv2d(silent=silent) if silent != NO_BORDER:
            return _apply_window(synapse, weight, values)
        case Conv2d():
            return convolve(values, weight, synapse)
        case _:
            assert_never(synapse)


def _apply_window(synapse: Conv2d, weight: Tensor, values: Tensor) -> Tensor:
    """Convolve only the receptive fields of the window, and pad the result with zeros."""
    pad_y, pad_x = synapse.padding
    padded = functional.pad(values, (pad_x, pad_x, pad_y, pad_y))
    target = output_shape(synapse, tuple(values.shape[1:]))
    rows, columns = (
        slice(stride * inside.start, stride * (inside.stop - 1) + reach)
        for inside, stride, reach in zip(window(synapse, target), synapse.stride, span(synapse), strict=True)
    )
    read = padded[:, :, rows, columns]
    inner = convolve(read, weight, replace(synapse, padding=(0, 0), silent=NO_BORDER))
    return functional.pad(inner, (*synapse.silent[1], *synapse.silent[0]))
