"""The portable dialect: a threshold of one for all neurons, for snntorch, spikingjelly and others.

A hard-reset neuron fires the same spikes when its weights, bias and threshold are divided by the same
positive number (`ir.scale_channels`). Thresholds at or below zero are shifted first (`shifts`). Some readers
fire at v > threshold, others at v >= threshold. If voltages lie on a grid, as with integer weights, the
threshold is first moved midway between two grid points, so that both comparisons agree and rounding to
float32 changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ...base import Array, FormatError
from ...ir import (
    NO_BORDER,
    Connection,
    Conv2d,
    Dense,
    FloatFiringNeuron,
    FloatLif,
    FloatPopulation,
    FoldedNetwork,
    Population,
    Synapse,
    compact,
    firing,
    has_current,
    neuron_subtrahend,
    per_channel,
    real_weight,
    scale_channels,
    spiking,
    varies,
    with_values,
)
from .linear import can_have_constant, main_first, needs_constant
from .metadata import PORTABLE_THRESHOLD, is_average

FINEST_UNIT = 20  # weights that are not multiples of 2**-20 have no grid
COARSEST_UNIT = 24
FINEST_LEAK = 12
LEAST_MARGIN = 2.0**-18  # relative to a threshold; the error of float32 is a few 2**-23


def portable(network: FoldedNetwork, explicit_delays: set[Connection]) -> FoldedNetwork:
    """Return a network that fires the same spikes, with every threshold one."""
    shifted = _shift(network)
    check_portable(shifted, explicit_delays)
    return _divide(shifted)


def _shift(network: FoldedNetwork) -> FoldedNetwork:
    """Return the network with thresholds above zero, wherever a shift expresses them."""
    for population in firing(network):
        threshold = middle_thresholds(network, population)
        if not np.any(threshold <= 0) or not np.isfinite(threshold).all() or not can_shift(population.neuron):
            continue
        if len(population.shape) == 1 or not _differ_within_channels(threshold):
            network = shift_thresholds(network, population, threshold)
    return network


def check_portable(network: FoldedNetwork, explicit_delays: set[Connection]) -> None:
    """Raise, with a list of all obstacles, if the portable dialect cannot express a network."""
    problems = [
        f"{c.label}: a delay of {c.delay} steps, for which readers have no node" for c in explicit_delays
    ]
    for population in network.layers:
        problems += _problems(network, population)
    _reject(problems)


def check_same_in_all_steps(network: FoldedNetwork) -> None:
    """Raise if numbers of a neuron depend on the time step; `portable` sees those of the first step only."""
    _reject(
        f"{population.name}: numbers that depend on the time step; nodes of NIR have one set for all steps"
        for population in network.layers
        if varies(population.neuron)
    )


def _reject(problems: Iterable[str]) -> None:
    if listed := "\n  - ".join(problems):
        raise FormatError(
            f"the portable dialect of NIR cannot express this network:\n  - {listed}\n"
            "Use the faithful dialect (--nir-dialect faithful), which can."
        )


def _problems(network: FoldedNetwork, population: FloatPopulation) -> list[str]:
    name, shape = population.name, population.shape
    entering = [c.synapse for c in network.entering(name)]
    problems = []
    if len(shape) == 3 and any(isinstance(synapse, Dense) for synapse in entering):
        problems.append(f"{name}: a matrix onto a picture; NIR has no node that reshapes its result")
    if any(isinstance(synapse, Conv2d) and synapse.silent != NO_BORDER for synapse in entering):
        problems.append(
            f"{name}: several kernels, each for a part of the picture; readers do not support masks (Scale)"
        )
    if (lif := spiking(population)) is not None:
        shared = any(isinstance(synapse, Conv2d) for synapse in entering)
        problems += _threshold_problems(name, middle_thresholds(network, lif), shared)
        if neuron_subtrahend(lif.neuron) is not None:
            problems.append(f"{name}: a soft reset; most readers reset to zero, and no node says otherwise")
        if has_current(lif.neuron) and lif.neuron.bias.any():
            problems.append(f"{name}: biases of a neuron whose current leaks; readers do not support them")
    elif not is_average(population.neuron):
        problems.append(f"{name}: a readout that leaks; readers do not support LI")
    if needs_constant(network, population) and not can_have_constant(network, population):
        why = "the picture is too large" if len(network.input.shape) == 3 else "the input is not a picture"
        problems.append(f"{name}: biases differ within a channel, and {why}")
    return problems


def _threshold_problems(name: str, threshold: Array, shared: bool) -> list[str]:
    if shared and _differ_within_channels(threshold):
        return [
            f"{name}: neurons that share a kernel differ in threshold, so it cannot be divided by them. "
            "Train with --mpbn channel, which gives one threshold per kernel"
        ]
    if wrong := int(np.sum(threshold <= 0)):
        found = f"thresholds down to {float(threshold.min()):g}, {wrong} of {threshold.size} not above zero"
        return [f"{name}: {found}; only neurons that reset to zero, without a leaking current, can have them"]
    return []


def _differ_within_channels(threshold: Array) -> bool:
    return compact(threshold).size != len(threshold)


def _divide(network: FoldedNetwork) -> FoldedNetwork:
    """Divide weights, bias and threshold of each channel (after a matrix, each neuron) by the threshold."""
    factors: dict[str, Array] = {}
    divided: dict[str, FloatPopulation] = {}
    for population in firing(network):
        factor = 1 / middle_thresholds(network, population)  # a neuron that never fires gets no input
        factors[population.name] = factor
        channels = (population.shape[0], *(1 for _ in population.shape[1:]))
        threshold = np.full(channels, PORTABLE_THRESHOLD)
        bias = compact(population.neuron.bias * factor)
        neuron = replace(population.neuron, threshold=threshold, bias=bias)
        divided[population.name] = population.with_neuron(neuron)
    populations = [divided.get(p.name, p) for p in network.populations]
    connections = [
        replace(c, synapse=_divided(c.synapse, factors[c.target])) if c.target in factors else c
        for c in network.connections
    ]
    return replace(network, populations=tuple(populations), connections=tuple(connections))


def _divided(synapse: Synapse, factor: Array) -> Synapse:
    rows = factor.ravel() if isinstance(synapse, Dense) else factor.reshape(len(factor), -1)[:, 0]
    return replace(synapse, weight=scale_channels(synapse.weight, rows))


# ---- thresholds between voltages ------------------------------------------------------------------


def middle_thresholds(network: FoldedNetwork, population: Population[FloatFiringNeuron]) -> Array:
    """Return the thresholds of all neurons, midway between two grid points if voltages have a grid."""
    neuron = population.neuron
    threshold = np.broadcast_to(neuron.threshold, population.shape)
    grid = voltage_grid(network, population)
    finite = np.where(np.isfinite(threshold), threshold, 0.0)
    if grid is None or grid / 2 < LEAST_MARGIN * np.abs(finite).max():
        return threshold
    return np.where(np.isfinite(threshold), (np.floor(finite / grid) + 0.5) * grid, threshold)


def voltage_grid(network: FoldedNetwork, population: Population[FloatFiringNeuron]) -> float | None:
    """grid = unit of the weights * unit of the leak ** (steps - 1), of which all voltages are multiples"""
    neuron = population.neuron
    weights = [real_weight(c.synapse) for c in network.entering(population.name)]
    unit = _unit([*weights, neuron.bias], COARSEST_UNIT, FINEST_UNIT)
    leaks = [_unit([np.array(leak)], 0, FINEST_LEAK) for leak in (neuron.leak, neuron.current_leak)]
    if unit is None or None in leaks:
        return None
    grid = unit
    for leak in leaks:
        grid *= float(leak or 1.0) ** (network.timesteps - 1)
    return grid


def _unit(values: list[Array], coarsest: int, finest: int) -> float | None:
    """Return the largest power of two of which all values are multiples, from 2**coarsest to 2**-finest.

    None if there is none.
    """
    for exponent in range(-coarsest, finest + 1):
        scaled = [value * 2.0**exponent for value in values]
        if all(np.array_equal(np.rint(value), value) for value in scaled):
            return 2.0**-exponent
    return None


# Thresholds at or below zero, for the portable dialect: the same spikes with positive thresholds.
#
# Let a neuron with leak b and reset to zero fire at v > threshold. In terms of w = v + shift it fires at
# w > threshold + shift, which is positive for a large shift, and
#
#     w <- b w + (1 - b) shift + input,    w <- shift where it fires,    w = shift before the first step.
#
# A neuron that resets to zero, and starts there, lacks b * shift in its first step and after each of its
# spikes. A loop carries that back with its own spikes; in the first step it comes from a neuron that fires
# only then:
#
#     bias + (1 - b) shift,    b shift from itself, one step later,    b shift in the first step.
#
# docs/mathematics.md proves that no neuron without a loop fires the same spikes.


START = "_start"  # appended to the name of a population: the neurons that fire in the first step only
SLOW_LEAK = 63 / 64  # of those neurons
START_BIAS = 2.0  # against a threshold of one


def can_shift(neuron: FloatFiringNeuron) -> bool:
    """Whether a shift expresses the neuron: it resets to zero, and its bias reaches the voltage at once."""
    return neuron_subtrahend(neuron) is None and not has_current(neuron)


def shift_thresholds(
    network: FoldedNetwork, population: Population[FloatFiringNeuron], threshold: Array
) -> FoldedNetwork:
    """Return a network that fires the same spikes, with thresholds of a population above zero."""
    neuron, shape = population.neuron, population.shape
    shift = _shifts(threshold, [real_weight(c.synapse) for c in network.entering(population.name)], shape)
    later = neuron.leak * shift if network.timesteps > 1 else np.zeros(shape)
    bias = compact(neuron.bias + shift - later)
    shifted = population.with_neuron(with_values(neuron, bias, compact(neuron.threshold + shift)))
    populations = [shifted if p is population else p for p in network.populations]
    connections = list(network.connections)
    if later.any():
        started, added = _restored(network, population, later)
        populations.insert(network.order[population.name], started)
        connections += added
    return replace(network, populations=tuple(populations), connections=tuple(connections))


def _shifts(threshold: Array, weights: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return powers of two above weights and -2 * threshold, zero for neurons that need no shift.

    Powers of two keep voltages on a grid.
    """
    rows = [weight.reshape(shape[0], -1) for weight in weights]
    heaviest = np.max([np.abs(row).max(axis=1) for row in rows], axis=0)
    least = np.maximum(per_channel(heaviest, shape), -2 * threshold)
    power = 2.0 ** np.ceil(np.log2(np.where(least > 0, least, 1.0)))
    return np.where(threshold <= 0, power, 0.0)


def _restored(
    network: FoldedNetwork, population: Population[FloatFiringNeuron], later: Array
) -> tuple[Population[FloatLif], list[Connection]]:
    """Return what gives back `later` after each spike, and in the first step."""
    name, start, main = population.name, f"{population.name}{START}", main_first(network, population.name)[0]
    shape = (1, *population.shape[1:])
    ones = np.ones((1, *(1 for _ in shape[1:])))
    once = FloatLif(threshold=ones, bias=START_BIAS * ones, leak=SLOW_LEAK)
    # After its spike, the voltage must not return to the threshold within the time steps.
    silence = 2 * START_BIAS / (1 - SLOW_LEAK) / SLOW_LEAK**network.timesteps
    return Population(name=start, shape=shape, neuron=once), [
        Connection(source=main.source, target=start, synapse=_silent(main.synapse)),
        Connection(source=start, target=start, synapse=_diagonal(-silence * ones), delay=1),
        Connection(source=start, target=name, synapse=_from_one_channel(later)),
        Connection(source=name, target=name, synapse=_diagonal(later), delay=1),
    ]


def _silent(synapse: Synapse) -> Synapse:
    """Return a synapse of weight zero onto one channel of the same size: every population has an input."""
    match synapse:
        case Dense():
            return Dense(weight=np.zeros((1, synapse.weight.shape[1])))
        case Conv2d(groups=groups):
            _, inputs, *kernel = synapse.weight.shape
            return replace(synapse, weight=np.zeros((1, groups * inputs, *kernel)), groups=1)
        case _:
            assert_never(synapse)


def _from_one_channel(values: Array) -> Synapse:
    """Return the synapse that sends `values` for every spike; a picture has one value per channel."""
    if values.ndim == 1:
        return Dense(weight=values[:, None])
    return Conv2d(weight=values[:, :1, :1, None])


def _diagonal(values: Array) -> Synapse:
    """Return the synapse of each neuron onto itself; a picture has one value per channel."""
    if values.ndim == 1:
        return Dense(weight=np.diag(values))
    return Conv2d(weight=np.diag(values[:, 0, 0])[:, :, None, None])
