"""The design rules of a chip, each a function named as the sentence that must hold.

A rule yields (where, message) for each thing that breaks it. All rules always run, and one whose
limits the profile does not know says "not checked" instead of passing. All numbers are the profile's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Literal

import numpy as np

from .bounds import bounds
from .hardware import KEYS, HardwareProfile, Limit
from .int_ir import IntNetwork, IntPopulation, Lif, Readout
from .place import RESOURCES, ROW_KEYS, ROW_RESOURCES, PlacedLayer, Placement, trailing_zeros, weight_bits
from .records import Array, record

Severity = Literal["error", "not checked"]
WHOLE_NETWORK = "network"
MESSAGE_IS_A_PLAIN_SPIKE = 1  # bits


@record
class Finding:
    """A rule that does not hold somewhere, or that could not be checked."""

    rule: str
    where: str
    message: str
    severity: Severity


@record
class Design:
    """What a rule looks at."""

    network: IntNetwork
    profile: HardwareProfile
    placement: Placement

    def known(self, key: str) -> Limit:
        """A limit that the rule needs, and which `needs` has therefore found to be there."""
        limit = self.profile.limit(key)
        assert limit is not None, key
        return limit

    def neurons(self) -> Iterator[tuple[IntPopulation, Lif | Readout]]:
        """Every population but the input, with its neuron."""
        for population in self.network.populations:
            if isinstance(population.neuron, Lif | Readout):
                yield population, population.neuron


Check = Callable[[Design], Iterator[tuple[str, str]]]
Rule = Callable[[Design], list[Finding]]


def needs(*keys: str) -> Callable[[Check], Rule]:
    """A rule from a check: without one of its limits it is not checked, and says so."""

    def decorate(check: Check) -> Rule:
        @wraps(check)
        def rule(design: Design) -> list[Finding]:
            name, profile = check.__name__, design.profile
            unknown = [key for key in keys if profile.limit(key) is None]
            if unknown:
                return [_not_checked(name, _words(name), key, profile) for key in unknown]
            return [
                Finding(rule=name, where=where, message=f"{where}: {message}", severity="error")
                for where, message in check(design)
            ]

        return rule

    return decorate


@needs("formats.weight_bits", "formats.weight_exponent_minimum", "formats.weight_exponent_maximum")
def weights_fit_format(design: Design) -> Iterator[tuple[str, str]]:
    """A weight is mantissa * 2**exponent; what common factors of two it has may sit in either."""
    bits = design.known("formats.weight_bits")
    low = design.known("formats.weight_exponent_minimum")
    high = design.known("formats.weight_exponent_maximum")
    for connection in design.network.connections:
        weight = connection.synapse.weight
        needed = weight_bits(weight)
        exponent = connection.synapse.exponent + trailing_zeros(weight)
        if needed > bits.value:
            found = f"weights {weight.min()}..{weight.max()} need {needed} bits"
            yield (
                connection.label,
                f"{found}; {_holds(design, bits.value, bits)} bits. Quantize to fewer bits.",
            )
        elif weight.any() and not low.value <= exponent <= high.value + bits.value - needed:
            allowed = _holds(design, f"{low.value}..{high.value}", high)
            yield connection.label, f"weight exponent {exponent}; {allowed}. Quantize with another scale."


@needs("formats.threshold_minimum", "formats.threshold_maximum")
def thresholds_fit_format(design: Design) -> Iterator[tuple[str, str]]:
    """minimum <= threshold <= maximum"""
    low, high = design.known("formats.threshold_minimum"), design.known("formats.threshold_maximum")
    for population, neuron in design.neurons():
        if isinstance(neuron, Lif) and (found := _outside(neuron.threshold, low.value, high.value)):
            source = low if neuron.threshold.min() < low.value else high
            allowed = _holds(design, f"{low.value}..{high.value}", source)
            advice = (
                f"Export for this target (--target {design.profile.name}), which moves them into biases, or "
                "choose one that holds them, such as loihi2."
            )
            yield population.name, f"threshold {found}; {allowed}. {advice}"


@needs("formats.bias_mantissa_bits", "formats.bias_exponent_maximum")
def biases_fit_format(design: Design) -> Iterator[tuple[str, str]]:
    """-2**(bits-1) <= bias < 2**(bits-1), and 0 <= bias exponent <= maximum"""
    bits, exponent = design.known("formats.bias_mantissa_bits"), design.known("formats.bias_exponent_maximum")
    half = 2 ** (bits.value - 1)
    for population, neuron in design.neurons():
        if found := _outside(neuron.bias, -half, half - 1):
            allowed = _holds(design, f"{-half}..{half - 1}", bits)
            yield population.name, f"bias {found}; {allowed}. Quantize with a smaller scale."
        if not 0 <= neuron.bias_exponent <= exponent.value:
            allowed = _holds(design, f"0..{exponent.value}", exponent)
            yield (
                population.name,
                f"bias exponent {neuron.bias_exponent}; {allowed}. Quantize with another scale.",
            )


@needs("formats.decay_bits", "formats.decay_current_offset", "formats.decay_voltage_offset")
def decays_fit_format(design: Design) -> Iterator[tuple[str, str]]:
    """decay = register + offset, with 0 <= register < 2**bits"""
    bits = design.known("formats.decay_bits")
    for population, neuron in design.neurons():
        for name, decay in _decays(neuron).items():
            offset = design.known(f"formats.{name}_offset").value
            low, high = offset, offset + 2**bits.value - 1
            if not low <= decay <= high:
                allowed = _holds(design, f"{low}..{high}", bits)
                yield population.name, f"{name} {decay}; {allowed}. Choose a leak within this range."


@needs("formats.state_bits")
def states_stay_in_width(design: Design) -> Iterator[tuple[str, str]]:
    """No input can drive a current or voltage beyond 2**(bits-1) - 1, as `bounds` proves."""
    bits = design.known("formats.state_bits")
    largest = 2 ** (bits.value - 1) - 1
    for name, bound in bounds(design.network).items():
        if bound.magnitude > largest:
            found = f"a state can reach {bound.magnitude}"
            yield (
                name,
                f"{found}; {_holds(design, f'-{largest}..{largest}', bits)}. Quantize to a smaller scale.",
            )


@needs("formats.message_bits")
def input_values_fit_message(design: Design) -> Iterator[tuple[str, str]]:
    """A message of one bit is a spike or none; a longer one is a number with a sign."""
    bits, values = design.known("formats.message_bits"), design.network.input_range
    half = 2 ** (bits.value - 1)
    low, high = (0, 1) if bits.value == MESSAGE_IS_A_PLAIN_SPIKE else (-half, half - 1)
    if values.minimum < low or values.maximum > high:
        found = f"values {values.minimum}..{values.maximum}"
        allowed = f"a message to {design.profile.name} holds {low}..{high} ({bits.source})"
        yield design.network.input.name, f"{found}; {allowed}. Encode the input in that range, as spikes."


@needs("formats.delay_maximum")
def delays_fit_format(design: Design) -> Iterator[tuple[str, str]]:
    """delay <= maximum"""
    most = design.known("formats.delay_maximum")
    for connection in design.network.connections:
        if connection.delay > most.value:
            allowed = _holds(design, f"0..{most.value}", most)
            yield connection.label, f"delay {connection.delay} steps; {allowed}. Shorten the skipped path."


def layers_fit_on_cores(design: Design) -> list[Finding]:
    """The fullest core of every layer keeps each limit of a core."""
    return [finding for resource in RESOURCES for finding in _resource_findings(design, resource)]


@needs("core.thresholds")
def distinct_thresholds_fit_core(design: Design) -> Iterator[tuple[str, str]]:
    """On each core, neurons have at most so many different thresholds."""
    most = design.known("core.thresholds")
    placed = {layer.name: layer for layer in design.placement.layers}
    for population, neuron in design.neurons():
        if isinstance(neuron, Lif) and (count := _distinct(neuron, placed[population.name])) > most.value:
            found = f"{count} distinct thresholds on one core"
            advice = (
                f"Export for this target (--target {design.profile.name}), which chooses so few, with "
                "--thresholds shared for one per population, or change the target."
            )
            yield population.name, f"{found}; {_holds(design, most.value, most)}. {advice}"


@needs("chip.cores")
def cores_fit_on_chip(design: Design) -> Iterator[tuple[str, str]]:
    """All layers together keep within the cores of one chip."""
    cores, used = design.known("chip.cores"), design.placement.cores
    if used > cores.value:
        chips = -(-used // cores.value)
        boards = [name for name, size in design.profile.systems.items() if size >= chips]
        where = f"{chips} chips would hold it" + (f" (boards: {', '.join(boards)})" if boards else "")
        found = f"{used} cores; one chip of {design.profile.name} has {cores.value} ({cores.source})"
        yield WHOLE_NETWORK, f"{found}. Use fewer or narrower layers; {where}."


RULES: tuple[Rule, ...] = (
    weights_fit_format,
    thresholds_fit_format,
    biases_fit_format,
    decays_fit_format,
    states_stay_in_width,
    input_values_fit_message,
    delays_fit_format,
    layers_fit_on_cores,
    distinct_thresholds_fit_core,
    cores_fit_on_chip,
)


def _decays(neuron: Lif | Readout) -> dict[str, int]:
    """The decays by name."""
    return {"decay_current": neuron.decay_current, "decay_voltage": neuron.decay_voltage}


def _resource_findings(design: Design, resource: str) -> Iterator[Finding]:
    """Each layer whose fullest core needs more of a resource than a core has."""
    rule, key, profile = layers_fit_on_cores.__name__, f"core.{resource}", design.profile
    needed = (key, *ROW_KEYS) if resource in ROW_RESOURCES else (key,)
    if unknown := [key for key in needed if profile.limit(key) is None]:
        yield _not_checked(rule, _words(resource), unknown[0], profile)
        return
    limit = design.known(key)
    for layer in design.placement.layers:
        if (used := layer.use[resource]) > limit.value:
            found = f"{used} {_words(resource)} on one core"
            advice = "No cut of this layer helps; give it fewer inputs or smaller kernels."
            message = f"{layer.name}: {found}; {_holds(design, limit.value, limit)}. {advice}"
            yield Finding(rule=rule, where=layer.name, message=message, severity="error")


def _not_checked(rule: str, what: str, key: str, profile: HardwareProfile) -> Finding:
    message = f"not checked: {what}; {profile.name} does not know {key} ({KEYS[key]})."
    return Finding(rule=rule, where=WHOLE_NETWORK, message=message, severity="not checked")


def _holds(design: Design, what: object, limit: Limit) -> str:
    return f"{design.profile.name} holds {what} ({limit.source})"


def _outside(values: Array, low: int, high: int) -> str | None:
    """'-12 in 3 of 64 values' of those outside low..high, naming the farthest; None if all are inside."""
    values = values.astype(np.int64)  # so that a distance cannot overflow
    wrong = values[(values < low) | (values > high)]
    if not wrong.size:
        return None
    distance = np.maximum(low - wrong, wrong - high)
    return f"{wrong[distance.argmax()]} in {wrong.size} of {values.size} values"


def _distinct(neuron: Lif, layer: PlacedLayer) -> int:
    """The most thresholds that differ on any core of a layer."""
    thresholds = np.broadcast_to(neuron.threshold, layer.shape)
    return max(len(np.unique(thresholds[tile])) for tile in layer.tiles())


def _words(resource: str) -> str:
    return resource.replace("_", " ")
