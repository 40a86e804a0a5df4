"""Populations as the emulator runs them: their products and neurons, prepared once in torch.

Products of spikes with weights are integers where torch supports it (`spike_products`). Everything else is
computed in floats: float32 is exact on integers while no partial sum, in any order of summation, reaches
2**24. For states, `bounds` proves this, and `largest_total` for the sums of currents that enter a population;
states without a proof are computed in float64 and watched, or in integers as `ir.overflow` defines if we did
not quantize the network. Each synapse is computed in float64 if its sums could be too large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd, inf, log2, nan
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
    has_current,
    largest_sum,
    largest_total,
    magnitude,
    output_shape,
    span,
    update_rule,
    value_range,
    wide_sums,
    window,
)
from .convolutions import convolve
from .narrow import may_narrow
from .spike_products import Product, as_floats, spike_product

BINARY_SPIKES = (0, 1)  # range of values
FLOATS: dict[type[np.floating[Any]], torch.dtype] = {np.float32: torch.float32, np.float64: torch.float64}

DecayInPlace = Callable[[Tensor], Tensor]


@record
class Current:
    """A prepared connection: computes its currents in units of the state, channels last in memory."""

    connection: Connection
    product: Product  # [any number, *source] -> [the same number, *target]


@record
class Charge:
    """state <- decay(state) + arriving, in place; the state is zero before the first step."""

    decay: DecayInPlace | None  # None if the state does not outlast its step
    kept: float = 0.0  # the factor of the decay
    exact_steps: int = 0  # steps after the first in which the factor gives an integer, without truncation

    def __call__(self, state: Tensor, arriving: Tensor, step: int) -> Tensor:
        if step == 0 or self.decay is None:
            return state.copy_(arriving)
        if step <= self.exact_steps:
            return torch.add(arriving, state, alpha=self.kept, out=state)
        return self.decay(state).add_(arriving)


FORGETS = Charge(decay=None)


@record
class Layer:
    """A prepared population."""

    name: str
    shape: Shape
    currents: tuple[Current, ...]
    state_type: torch.dtype
    bias: Tensor | None  # None if a current contains it
    threshold: Tensor | None
    graded: bool
    rule: Rule
    integers: bool  # whose sums do not depend on their order
    moduli: Mapping[Current, float]  # of sums that may wrap
    subtrahend: Tensor | None = None
    charge_current: Charge | None = None  # None if the current does not outlast its step
    charge_voltage: Charge = FORGETS
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
    carrier = None if watched or narrows else _bias_carrier(network, population, rule)
    currents = tuple(
        _current(network, connection, population, rule, sums.kind, connection is carrier)
        for connection in network.entering(population.name)
    )
    layer = Layer(
        name=population.name,
        shape=population.shape,
        currents=currents,
        state_type=sums.kind,
        bias=None if carrier else _tensor(rule.bias, sums.kind),
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
    if rule.per_step:
        lasts = has_current(population.neuron)
        rules = [rule.at(step) for step in range(network.timesteps)]
        steps = tuple(_with_numbers(layer, each, sums.kind, lasts, 0) for each in rules)
        return replace(steps[0], rule=rule, steps=steps)
    exact_steps = _exact_steps(rule, network.entering(population.name))
    return _with_numbers(
        layer, rule, sums.kind, _charge(rule.decay_current, 0).decay is not None, exact_steps
    )


def _with_numbers(layer: Layer, rule: Membrane, kind: torch.dtype, lasts: bool, exact_steps: int) -> Layer:
    """Return the layer with the numbers of a membrane; `lasts` says whether its current outlasts a step."""
    current, voltage = (_charge(decay, exact_steps) for decay in (rule.decay_current, rule.decay_voltage))
    return replace(
        layer,
        bias=None if layer.bias is None else _tensor(rule.bias, kind),
        threshold=None if rule.threshold is None else _tensor(rule.threshold, kind),
        subtrahend=None if rule.subtrahend is None else _tensor(rule.subtrahend, kind),
        charge_current=current if lasts else None,
        charge_voltage=voltage,
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


def _bias_carrier(network: AnyNetwork, population: AnyPopulation, rule: Rule) -> Connection | None:
    """Return the connection whose product can add the bias in every step, at no cost.

    It has no delay, sums with the bias are exact in any order, and no decay acts on the current. A
    convolution adds one bias per channel. None if there is no such connection.
    """
    if (
        not isinstance(network, IntNetwork)
        or not isinstance(rule, Membrane)
        or has_current(population.neuron)
        or rule.per_step
    ):
        return None
    entering = network.entering(population.name)
    finest = rule.unit * 2.0 ** min(connection.synapse.exponent for connection in entering)
    largest = finest * largest_total(_arrivals(network, population.name)) + magnitude(rule.bias)
    if exact_float(largest) is not np.float32:
        return None
    per_channel = rule.bias.size in (1, population.shape[0])
    carriers = (c for c in entering if not c.delay and _adds_bias(c.synapse, per_channel))
    return next(carriers, None)


def _adds_bias(synapse: Synapse, per_channel: bool) -> bool:
    if not synapse.weight.any():  # nothing reaches the population, perhaps
        return False
    return isinstance(synapse, Dense) or (per_channel and synapse.silent == NO_BORDER)


def _current(
    network: AnyNetwork,
    connection: Connection,
    population: AnyPopulation,
    rule: Rule,
    kind: torch.dtype,
    carries_bias: bool,
) -> Current:
    """Prepare a connection: as an integer product if possible, else in floats that hold every sum."""
    synapse, source, multiplied = connection.synapse, network.population(connection.source), kind
    bias = _per_output(rule.bias, population.shape, synapse) if carries_bias else None
    product = None
    if isinstance(network, IntNetwork):
        multiplied = FLOATS[exact_float(largest_sum(connection, source))]
        binary = source is not network.input and value_range(source.neuron) == BINARY_SPIKES
        # Integer products give float32, in units of a membrane's state.
        if binary and rule.unit == 2**STATE_EXPONENT and multiplied == torch.float32:
            product = spike_product(synapse, source.shape, bias)
    if product is None:
        product = _float_product(synapse, rule.unit, multiplied, bias)
    return Current(
        connection=connection,
        product=lambda values: _channels_last(product(values).to(kind).view(-1, *population.shape)),
    )


def _per_output(bias: Array, shape: Shape, synapse: Synapse) -> Tensor:
    """Return one bias for each output of a matrix, or for each channel of a convolution."""
    outputs = shape if isinstance(synapse, Dense) else (shape[0], 1, 1)
    return torch.tensor(np.broadcast_to(bias, outputs).reshape(-1), dtype=torch.float32)


def _float_product(synapse: Synapse, unit: int, kind: torch.dtype, bias: Tensor | None) -> Product:
    # Multiplying a float by a power of two is exact, so the scale goes into the weights.
    weight = torch.tensor(synapse.weight).to(kind) * (unit * 2.0**synapse.exponent)
    added = None if bias is None else bias.to(kind)

    def product(values: Tensor) -> Tensor:
        values = as_floats(values, kind)
        values = _channels_last(values) if kind == torch.float32 else values  # faster, in oneDNN
        return apply_weight(synapse, weight, values, added)

    return product


def _channels_last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values


def _exact_steps(rule: Membrane, entering: Sequence[Connection]) -> int:
    """Return for how many steps after the first one decays by powers of two leave integers.

    All that is added to a state is a multiple of 2**zeros, and each step divides it by at most 2**halvings.
    """
    keeps = [keep for keep in map(_kept, (rule.decay_current, rule.decay_voltage)) if keep]
    halvings = max((-log2(keep) for keep in keeps), default=0)
    if not halvings or any(halving % 1 for halving in map(log2, keeps)):
        return 0
    added = np.append(rule.bias, 0 if rule.subtrahend is None else rule.subtrahend)
    lowest = int(np.bitwise_or.reduce(added)) | rule.unit
    zeros = [log2(lowest & -lowest), *(log2(rule.unit) + c.synapse.exponent for c in entering)]
    return max(0, int(min(zeros) // halvings))


def _kept(decay: Decay) -> float:
    """Return the factor of a decay that truncates; nan if it does not, or is not one for all neurons."""
    return decay.kept if isinstance(decay, Truncation) and isinstance(decay.kept, float) else nan


def _charge(decay: Decay, exact_steps: int) -> Charge:
    return Charge(decay=_in_place(decay), kept=_kept(decay), exact_steps=exact_steps)


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


def apply_weight(synapse: Synapse, weight: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the product of a synapse whose weight is given, plus a bias per output or channel."""
    match synapse:
        case Dense():
            return functional.linear(values.flatten(1), weight, bias)
        case Conv2d(silent=silent) if silent != NO_BORDER:
            return _apply_window(synapse, weight, values)
        case Conv2d():
            return convolve(values, weight, bias, synapse)
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
    inner = convolve(read, weight, None, replace(synapse, padding=(0, 0), silent=NO_BORDER))
    return functional.pad(inner, (*synapse.silent[1], *synapse.silent[0]))
