"""Rules for number formats: weights, thresholds, biases, decays, states, messages and delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...hardware import Limit
from ...hardware.place import trailing_zeros, weight_bits
from ...ir import (
    DECAY_ONE,
    STATE_LIMIT,
    Bound,
    Connection,
    IntNetwork,
    bounds,
    is_graded,
    relay_names,
    value_range,
    without_relays,
)
from .design import (
    WHOLE_NETWORK,
    Design,
    Rule,
    Violations,
    counts_spikes,
    decays,
    has_sigma_deltas,
    is_digital,
    keeps_states,
    needs,
    outside,
    rule,
    sigma_deltas,
)

MESSAGE_IS_A_PLAIN_SPIKE = 1  # bits
INPUT_KEYS = ("network.input_minimum", "network.input_maximum")


def has_weights_of_its_own(design: Design) -> bool:
    """Return whether synapses store weights; for on-off synapses, the placement checks the weights."""
    return not design.profile.knows("core.axon_types")


def decays_by_register(design: Design) -> bool:
    profile = design.profile
    other = profile.says("formats.leak", 0) or profile.knows("formats.decay_shift_maximum")
    return keeps_states(design) and not other


def takes_messages(design: Design) -> bool:
    return not any(map(design.profile.knows, INPUT_KEYS))


def has_relays(design: Design) -> bool:
    return bool(relay_names(design.network))


@needs("formats.weight_bits", applies=has_weights_of_its_own)
def weights_fit_format(design: Design) -> Violations:
    """mantissa bits <= maximum, where weight = mantissa * 2**exponent; common factors go to the exponent"""
    for connection in design.network.connections:
        bits, weight = _bits(design, connection), connection.synapse.weight
        if (needed := weight_bits(weight)) > bits.value:
            found = f"weights {weight.min()}..{weight.max()} need {needed} bits"
            advice = f"Export with --target {design.export_target} --weight-bits {bits.value}."
            yield connection.label, f"{found}; {design.limit_text(f'{bits.value} bits', bits)}. {advice}"


@needs("formats.weight_exponent_minimum", applies=has_weights_of_its_own)
def weight_exponents_are_large_enough(design: Design) -> Violations:
    """minimum <= exponent, with common factors of two in the exponent"""
    low = design.limit("formats.weight_exponent_minimum")
    for connection in design.network.connections:
        if connection.synapse.weight.any() and (exponent := _exponent(connection)) < low.value:
            yield connection.label, _exponent_message(design, exponent, f"at least {low.value}", low)


@needs("formats.weight_exponent_maximum", applies=has_weights_of_its_own)
def weight_exponents_fit_format(design: Design) -> Violations:
    """exponent <= maximum + unused bits of the mantissa"""
    high = design.limit("formats.weight_exponent_maximum")
    for connection in design.network.connections:
        weight = connection.synapse.weight
        needed = weight_bits(weight)
        width = _bits(design, connection).value if design.profile.knows("formats.weight_bits") else needed
        room = max(width - needed, 0)  # too many bits are reported by weights_fit_format
        if weight.any() and (exponent := _exponent(connection)) > high.value + room:
            yield connection.label, _exponent_message(design, exponent, f"at most {high.value + room}", high)


@needs("formats.threshold_minimum", applies=is_digital)
def thresholds_are_large_enough(design: Design) -> Violations:
    """minimum <= threshold"""
    return _thresholds_outside(design, design.limit("formats.threshold_minimum"), lower=True)


@needs("formats.threshold_maximum", applies=is_digital)
def thresholds_are_small_enough(design: Design) -> Violations:
    """threshold <= maximum"""
    return _thresholds_outside(design, design.limit("formats.threshold_maximum"), lower=False)


@needs("formats.bias_mantissa_bits", applies=is_digital)
def biases_fit_format(design: Design) -> Violations:
    """-2**(bits-1) <= bias < 2**(bits-1)"""
    bits = design.limit("formats.bias_mantissa_bits")
    half = 2 ** (bits.value - 1)
    for population, neuron in design.neurons():
        if found := outside(neuron.bias, -half, half - 1):
            allowed = design.limit_text(f"{-half}..{half - 1}", bits)
            yield population.name, f"bias {found}; {allowed}. {_other_scale(design)}"


@needs("formats.bias_exponent_maximum", applies=is_digital)
def bias_exponents_fit_format(design: Design) -> Violations:
    """minimum <= bias exponent <= maximum"""
    most, least = (design.profile.limit(f"formats.bias_exponent_{end}") for end in ("maximum", "minimum"))
    assert most is not None
    low, high = 0 if least is None else least.value, most.value
    for population, neuron in design.neurons():
        if not low <= neuron.bias_exponent <= high:
            found = f"bias exponent {neuron.bias_exponent}; {design.limit_text(f'{low}..{high}', most)}"
            yield population.name, f"{found}. {_other_scale(design)}"


@needs(
    "formats.decay_bits",
    "formats.decay_current_offset",
    "formats.decay_voltage_offset",
    applies=decays_by_register,
)
def decays_fit_format(design: Design) -> Violations:
    """decay = register + offset, with 0 <= register < 2**bits"""
    bits = design.limit("formats.decay_bits")
    for population, neuron in design.neurons():
        for name, decay in decays(neuron):
            offset = design.limit(f"formats.{name}_offset").value
            low, high = offset, offset + 2**bits.value - 1
            if not low <= decay <= high:
                allowed = design.limit_text(f"{low}..{high}", bits)
                yield population.name, f"{name} {decay}; {allowed}. Choose a leak within this range."


@needs("formats.decay_shift_maximum", related=("formats.decay_shift_maximum",), applies=keeps_states)
def decays_are_shifts(design: Design) -> Violations:
    """decay = 4096 / 2**k, with 0 <= k <= maximum"""
    most = design.limit("formats.decay_shift_maximum")
    shares = [DECAY_ONE >> shift for shift in range(most.value + 1) if DECAY_ONE >> shift]
    for population, neuron in design.neurons():
        for name, decay in decays(neuron):
            if decay not in shares:
                found = f"{name} {decay} of {DECAY_ONE}"
                allowed = design.limit_text(f"{DECAY_ONE} / 2**k with k = 0..{most.value}", most)
                advice = "Train with such a leak; for example, LIF(leak=0.5) has a decay of 2048."
                yield population.name, f"{found}; {allowed}. {advice}"


def overflow_is_measured(design: Design) -> bool:
    """Whether states have the width we quantize for: only --overflow measured goes beyond it."""
    profile = design.profile
    known = profile.exportable and profile.knows("formats.state_bits") and not design.network.foreign
    return known and 2 ** (design.limit("formats.state_bits").value - 1) > STATE_LIMIT


def overflow_is_to_be_proved(design: Design) -> bool:
    return keeps_states(design) and not overflow_is_measured(design)


@needs("formats.state_bits", applies=overflow_is_to_be_proved)
def states_stay_in_width(design: Design) -> Violations:
    """|current|, |voltage| <= 2**(bits-1) - 1 for all inputs, as proved by `bounds`"""
    bits = design.limit("formats.state_bits")
    largest = 2 ** (bits.value - 1) - 1
    if design.network.foreign:
        advice = (
            "Its states wrap and clip there; verify counts where. Give the --input-range that it really gets."
        )
    elif design.profile.exportable:
        advice = f"Export with --target {design.profile.target}, which chooses smaller scales."
    else:
        advice = "Use fewer inputs per neuron or fewer --timesteps, or a target with wider states."
    for name, reach in _states_beyond(design, largest):
        found = f"a state can reach {reach}"
        yield name, f"{found}; {design.limit_text(f'-{largest}..{largest}', bits)}. {advice}"


@needs("formats.state_bits", applies=overflow_is_measured, severity="warning")
def measured_states_stay_in_width(design: Design) -> Violations:
    """|current|, |voltage| <= 2**(bits-1) - 1 for all inputs, as proved by `bounds`

    A warning: --overflow measured asks for integers that are proved on samples only.
    """
    bits = design.limit("formats.state_bits")
    largest = 2 ** (bits.value - 1) - 1
    for name, reach in _states_beyond(design, largest):
        allowed = design.limit_text(f"-{largest}..{largest}", bits)
        advice = "Samples leave a margin (--overflow measured); verify and run stop at any that does not."
        yield name, f"some input might make a state reach {reach}; {allowed}. {advice}"


def _states_beyond(design: Design, largest: int) -> Iterator[tuple[str, int]]:
    """Yield the populations whose states are not proved to stay within +-largest, and what they can reach."""
    apart = set(sigma_deltas(design))
    names = [population.name for population in design.network.layers if population.name not in apart]
    for name, bound in _tight_bounds(design.network, names).items():
        if bound.magnitude > largest:
            yield name, bound.magnitude


def _tight_bounds(network: IntNetwork, names: Sequence[str]) -> dict[str, Bound]:
    """Return the bound of each population, with relays composed away.

    Every other neuron receives the same integers without them, and its interval is tighter: that of a relay's
    messages holds for all its neurons at once.
    """
    plain, relays = without_relays(network), set(relay_names(network))
    others = [name for name in names if name not in relays]
    return {**bounds(network, relays & set(names)), **bounds(plain, others)}


def keeps_sums(design: Design) -> bool:
    return keeps_states(design) and has_sigma_deltas(design)


@needs("formats.state_bits", applies=keeps_sums, severity="warning")
def sums_of_changes_stay_in_width(design: Design) -> Violations:
    """|sigma|, |activation| <= 2**(bits-1) - 1 for all inputs, as proved by `bounds`

    A warning: intervals widen from layer to layer, and executions stop if a sum of theirs does overflow.
    """
    bits = design.limit("formats.state_bits")
    largest = 2 ** (bits.value - 1) - 1
    found = bounds(design.network, sigma_deltas(design)) if has_sigma_deltas(design) else {}
    unproved = {name: bound.magnitude for name, bound in found.items() if bound.magnitude > largest}
    if unproved:
        name = max(unproved, key=lambda each: unproved[each])
        message = f"sums of {len(unproved)} sigma-delta layers are not proved to fit; that of {name} stays "
        message += f"below {unproved[name] + 1}; {design.limit_text(f'-{largest}..{largest}', bits)}. "
        advice = "A narrower --input-range tightens this bound, and verify checks every sample."
        yield WHOLE_NETWORK, message + advice


@needs("formats.message_bits", applies=takes_messages)
def input_values_fit_message(design: Design) -> Violations:
    """low <= input <= high: 0..1 for messages of one bit, signed integers for wider ones"""
    bits = design.limit("formats.message_bits")
    low, high = _message_range(bits)
    return _inputs_outside(design, low, high, bits)


@needs("formats.message_bits", applies=has_relays)
def messages_of_relays_fit(design: Design) -> Violations:
    """low <= message <= high, as for the input"""
    bits = design.limit("formats.message_bits")
    low, high = _message_range(bits)
    for name in relay_names(design.network):
        least, most = value_range(design.network.layer(name).neuron)
        if least < low or most > high:
            found = f"a relay sends graded messages of {least}..{most}"
            advice = "Export with --pooling composed, or choose another target, such as loihi2."
            yield name, f"{found}; {design.limit_text(f'{low}..{high}', bits)}. {advice}"


@needs("formats.message_bits", applies=has_sigma_deltas)
def messages_of_changes_fit(design: Design) -> Violations:
    """low <= message <= high, as for the input"""
    bits = design.limit("formats.message_bits")
    low, high = _message_range(bits)
    for name in sigma_deltas(design):
        neuron = design.network.layer(name).neuron
        least, most = value_range(neuron)
        if is_graded(neuron) and (least < low or most > high):
            found = f"sigma-delta neurons send graded messages of {least}..{most}"
            advice = "Choose a target with graded messages, such as loihi2."
            yield name, f"{found}; {design.limit_text(f'{low}..{high}', bits)}. {advice}"


def _message_range(bits: Limit) -> tuple[int, int]:
    """0..1 for messages of one bit, signed integers for wider ones"""
    half = 2 ** (bits.value - 1)
    return (0, 1) if bits.value == MESSAGE_IS_A_PLAIN_SPIKE else (-half, half - 1)


@needs(*INPUT_KEYS, related=INPUT_KEYS)
def input_values_fit_network(design: Design) -> Violations:
    """minimum <= input <= maximum"""
    low, high = map(design.limit, INPUT_KEYS)
    return _inputs_outside(design, low.value, high.value, high)


def delays_are_free(design: Design) -> bool:
    return not counts_spikes(design)  # whose spikes take the steps of the chip


@needs("formats.delay_maximum", applies=delays_are_free)
def delays_fit_format(design: Design) -> Violations:
    """delay <= maximum"""
    most = design.limit("formats.delay_maximum")
    for connection in design.network.connections:
        if connection.delay > most.value:
            allowed = design.limit_text(f"0..{most.value}", most)
            yield (
                connection.label,
                f"delay {connection.delay} steps; {allowed}. Shorten the path that this connection skips.",
            )


FORMAT_RULES: tuple[Rule, ...] = (
    rule(weights_fit_format, weight_exponents_are_large_enough, weight_exponents_fit_format),
    rule(thresholds_are_large_enough, thresholds_are_small_enough, name="thresholds_fit_format"),
    rule(biases_fit_format, bias_exponents_fit_format),
    rule(decays_fit_format),
    rule(decays_are_shifts),
    rule(states_stay_in_width, measured_states_stay_in_width),
    rule(sums_of_changes_stay_in_width),
    rule(input_values_fit_message, input_values_fit_network),
    rule(messages_of_relays_fit),
    rule(messages_of_changes_fit),
    rule(delays_fit_format),
)


def _bits(design: Design, connection: Connection) -> Limit:
    """Return the weight bits of a connection; connections from the input may be wider."""
    wider = design.profile.limit("formats.input_weight_bits")
    if wider is not None and connection.source == design.network.input.name:
        return wider
    return design.limit("formats.weight_bits")


def _exponent(connection: Connection) -> int:
    return connection.synapse.exponent + trailing_zeros(connection.synapse.weight)


def _exponent_message(design: Design, exponent: int, allowed: str, limit: Limit) -> str:
    return f"weight exponent {exponent}; {design.limit_text(allowed, limit)}. {_other_scale(design)}"


def _other_scale(design: Design) -> str:
    """Advise to quantize for this chip, which observes its formats, if that is possible."""
    if design.profile.exportable:
        return f"Export with --target {design.profile.target}, which chooses another scale."
    return (
        f"Exports for {design.profile.name} use --target {design.export_target}, which does not observe this "
        "limit; choose another target, such as loihi2."
    )


def _thresholds_outside(design: Design, limit: Limit, *, lower: bool) -> Violations:
    """Yield thresholds beyond one end of their range; messages name both ends if they are known."""
    ends = [design.profile.limit(f"formats.threshold_{end}") for end in ("minimum", "maximum")]
    shown = "..".join("" if end is None else str(end.value) for end in ends)
    low, high = (limit.value, float("inf")) if lower else (float("-inf"), limit.value)
    for population in design.spiking():
        if found := outside(population.neuron.threshold, low, high):
            yield (
                population.name,
                f"threshold {found}; {design.limit_text(shown, limit)}. {_threshold_advice(design, lower)}",
            )


def _threshold_advice(design: Design, lower: bool) -> str:
    if design.profile.exportable:
        return (
            f"Export for this target (--target {design.profile.target}), which moves them into biases, or "
            "choose one that holds them, such as loihi2."
        )
    if lower:
        return (
            f"If it has MPBN, train with --mpbn-gain positive; or export with "
            f"--target {design.export_target} --thresholds shared, which keeps them positive."
        )
    return "Choose a target that holds them, such as loihi2."


def _inputs_outside(design: Design, low: int, high: int, limit: Limit) -> Violations:
    values = design.network.input_range
    if values.minimum < low or values.maximum > high:
        found = f"values {values.minimum}..{values.maximum}"
        allowed = f"a message to {design.profile.name} holds {low}..{high} ({limit.source})"
        advice = (
            "Encode the input in this range, for example as spikes, or compute the first layer on the host: "
            "fit --first-layer host."
        )
        yield design.network.input.name, f"{found}; {allowed}. {advice}"
