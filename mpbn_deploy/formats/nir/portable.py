"""The portable dialect: a threshold of one for all neurons, for snntorch, spikingjelly and others.

A hard-reset neuron fires the same spikes when its weights, bias and threshold are divided by the same
positive number (`ir.scale_channels`). Thresholds at or below zero are shifted first (`shifts`). Some readers
fire at v > threshold, others at v >= threshold. If voltages lie on a grid, as with integer weights, the
threshold is first moved midway between two grid points, so that both comparisons agree and rounding to
float32 changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...base import Array, FormatError
from ...ir import (
    NO_BORDER,
    Connection,
    Conv2d,
    Dense,
    FloatFiringNeuron,
    FloatPopulation,
    FoldedNetwork,
    Population,
    Synapse,
    compact,
    firing,
    has_current,
    neuron_subtrahend,
    real_weight,
    scale_channels,
    spiking,
    varies,
)
from .constants import can_have_constant, needs_constant
from .metadata import PORTABLE_THRESHOLD, is_average
from .shifts import can_shift, shift_thresholds

FINEST_UNIT = 20  # weights that are not multiples of 2**-20 have no grid
COARSEST_UNIT = 24
FINEST_LEAK = 12
LEAST_MARGIN = 2.0**-18  # relative to a threshold; the error of float32 is a few 2**-23


def check_one_set(network: FoldedNetwork) -> None:
    """Raise if numbers of neurons depend on the time step; the portable dialect has one set for all steps."""
    if names := [population.name for population in network.layers if varies(population.neuron)]:
        raise FormatError(
            "the portable dialect of NIR cannot express this network:\n"
            f"  - {', '.join(names)}: numbers that depend on the time step; nodes of NIR have one set for "
            "all steps\nUse the faithful dialect (--nir-dialect faithful), which can, or --static-steps."
        )


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
    if problems:
        listed = "\n  - ".join(problems)
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
