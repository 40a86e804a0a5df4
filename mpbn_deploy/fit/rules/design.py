"""Define what a design rule is: a check of a network against limits of a chip, and its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from ...base import Array, and_more, layer_name, record
from ...formats.xylo import form_problems
from ...hardware import KEYS, UNBOUNDED, Allowed, HardwareProfile, Limit
from ...hardware.place import Placement
from ...ir import (
    DECAY_ONE,
    FiringNeuron,
    IntegratingNeuron,
    IntNetwork,
    IntPopulation,
    Population,
    class_names,
    counting,
    firing,
    has_current,
    integrating,
    modulating,
    neuron_subtrahend,
    varies,
)

Severity = Literal["error", "not known", "warning", "not checked"]
WHOLE_NETWORK = "network"


@record
class Finding:
    """A violation of a rule, or a rule that could not be checked.

    error        the network does not fit
    not known    whether the chip does this is not public; the message says what would settle it
    warning      the network can be placed, but the chip will not execute it bit for bit
    not checked  a number that the check needs is missing from the profile
    """

    rule: str
    where: str
    message: str
    severity: Severity


@record
class Design:
    """The input of a rule: a network and its placement on a number of chips."""

    network: IntNetwork
    profile: HardwareProfile
    placement: Placement
    chips: int = 1

    def limit(self, key: str) -> Limit:
        """Return a limit that `needs` has found in the profile."""
        limit = self.profile.limit(key)
        assert limit is not None, key
        return limit

    def allowed_values(self, key: str) -> Allowed:
        """Return the allowed values of a key that `needs` has found in the profile."""
        allowed = self.profile.allowed(key)
        assert allowed is not None, key
        return allowed

    def limit_text(self, what: object, limit: Limit | Allowed) -> str:
        """Return 'loihi1 holds 1..131071 (its source)'."""
        return f"{self.profile.name} holds {what} ({limit.source})"

    def maximum_text(self, limit: Limit) -> str:
        """Return 'loihi1 holds at most 62 (its source)'."""
        return self.limit_text(f"at most {limit.value}", limit)

    def neurons(self) -> Iterator[tuple[IntPopulation, IntegratingNeuron]]:
        """Yield every population whose neurons have a membrane: all but the input and relays."""
        for population in self.network.layers:
            if (neuron := integrating(population.neuron)) is not None:
                yield population, neuron

    def spiking(self) -> Iterator[Population[FiringNeuron]]:
        """Yield every population whose neurons have a threshold and a reset."""
        return firing(self.network)

    def title(self, where: str) -> str:
        """Return the name of a layer or connection with its class: 'layer "2" (LIF)'."""
        return layer_name(where, class_names(self.network).get(where, ""))

    @property
    def export_target(self) -> str:
        """Return the target to export for: this chip, or "unbounded" if its number formats are unknown."""
        return self.profile.target if self.profile.exportable else UNBOUNDED


Violations = Iterator[tuple[str, str]]  # where, and the message
CheckFunction = Callable[[Design], Violations]
Rule = Callable[[Design], list[Finding]]
Condition = Callable[[Design], bool]


def always(design: Design) -> bool:
    return True


def says(key: str, value: int) -> Condition:
    """Return a condition: the profile has the key with this value."""
    return lambda design: design.profile.says(key, value)


@record
class RuleCheck:
    """A check of a rule, and the conditions under which it runs.

    If one of its `keys` is missing from the profile, the check is skipped and reported as not checked. For
    limits that only some chips have, this is reported only if the profile has one of the `related` keys.
    """

    name: str
    check: CheckFunction
    keys: tuple[str, ...]
    related: tuple[str, ...]
    applies: Condition
    severity: Severity

    def applies_to(self, design: Design) -> bool:
        return self.applies(design) and (not self.related or any(map(design.profile.knows, self.related)))

    def missing(self, design: Design) -> list[str]:
        return [key for key in self.keys if not design.profile.knows(key)]


def needs(
    *keys: str, related: tuple[str, ...] = (), applies: Condition = always, severity: Severity = "error"
) -> Callable[[CheckFunction], RuleCheck]:
    """Turn a function into a RuleCheck that needs these keys of the profile."""

    def decorate(check: CheckFunction) -> RuleCheck:
        return RuleCheck(
            name=check.__name__, check=check, keys=keys, related=related, applies=applies, severity=severity
        )

    return decorate


def rule(*checks: RuleCheck, name: str = "") -> Rule:
    """Combine checks to a rule; all checks that were skipped are reported in one finding."""
    name = name or checks[0].name

    def judge(design: Design) -> list[Finding]:
        applicable = [check for check in checks if check.applies_to(design)]
        possible = [check for check in applicable if not check.missing(design)]
        missing = {key: check.name for check in applicable for key in check.missing(design)}
        found = [
            violation(design, name, where, message, check.severity)
            for check in possible
            for where, message in check.check(design)
        ]
        if not missing:
            return found
        what = name if len(missing) > 1 else next(iter(missing.values()))
        partly = " (in part)" if possible and len(missing) > 1 else ""
        return [not_checked(name, readable(what) + partly, list(missing), design.profile), *found]

    judge.__name__ = name
    return judge


def violation(design: Design, rule_name: str, where: str, message: str, severity: Severity) -> Finding:
    """Return a finding whose message begins with the layer."""
    return Finding(
        rule=rule_name, where=where, message=f"{design.title(where)}: {message}", severity=severity
    )


def not_checked(name: str, what: str, keys: Sequence[str], profile: HardwareProfile) -> Finding:
    missing = ", ".join(keys) if len(keys) > 1 else f"{keys[0]} ({KEYS[keys[0]]})"
    message = f"not checked: whether {what}, because the {profile.name} profile does not state {missing}."
    return Finding(rule=name, where=WHOLE_NETWORK, message=message, severity="not checked")


def readable(name: str) -> str:
    return name.replace("_", " ").strip()


def outside(values: Array, low: float, high: float) -> str | None:
    """Return '-12 in 3 of 64 values', the value farthest outside low..high; None if all are inside."""
    values = values.astype(np.int64)  # distances must not overflow
    wrong = values[(values < low) | (values > high)]
    if not wrong.size:
        return None
    distance = np.maximum(low - wrong, wrong - high)
    return f"{wrong[distance.argmax()]} in {wrong.size} of {values.size} values"


def list_some(names: Sequence[str]) -> str:
    """Return 'conv1, conv2 and 9 more'."""
    return and_more([layer_name(name) for name in names[:2]], len(names))


# Rules for neuron models: what a chip does not support, and what it computes differently.


def is_digital(design: Design) -> bool:
    return not design.profile.says("formats.digital", 0)


def counts_spikes(design: Design) -> bool:
    """Return whether the neurons are Xylo's own, which the network computes bit by bit."""
    return any(counting(population.neuron) is not None for population in design.network.layers)


def decays_in_units(design: Design) -> bool:
    return keeps_states(design) and not counts_spikes(design)


@needs(applies=counts_spikes)
def network_has_the_form_of_the_chip(design: Design) -> Violations:
    """inputs -> hidden neurons -> outputs, each spike one step later, one weight shift per matrix"""
    if not design.profile.knows("formats.decay_shift_maximum"):
        yield WHOLE_NETWORK, f"neurons of Xylo, which {design.profile.name} does not have. Choose xylo-a2."
        return
    for problem in form_problems(design.network):
        yield WHOLE_NETWORK, f"{problem}."


def keeps_states(design: Design) -> bool:
    """Return whether currents and voltages are integers that persist between time steps."""
    return is_digital(design) and not design.profile.says("formats.membrane", 0)


def decays(neuron: IntegratingNeuron) -> Iterator[tuple[str, int]]:
    """Yield the decays with their names, those that neurons share once."""
    for name, decay in (("decay_current", neuron.decay_current), ("decay_voltage", neuron.decay_voltage)):
        yield from ((name, int(value)) for value in np.unique(decay))


@needs(applies=says("formats.membrane", 0))
def membranes_are_supported(design: Design) -> Violations:
    """timesteps = 1 if the chip has no membrane, because no state persists"""
    kept = [p.name for p, neuron in design.neurons() if min(decay for _, decay in decays(neuron)) < DECAY_ONE]
    kept += sigma_deltas(design)
    if kept and design.network.timesteps > 1:
        found = f"states of {list_some(kept)} persist over {design.network.timesteps} time steps"
        allowed = f"{design.profile.name} has no membrane ({design.limit('formats.membrane').source})"
        advice = "Train with --timesteps 1, or choose another target, such as loihi2."
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


@needs(applies=says("formats.leak", 0))
def leaks_are_supported(design: Design) -> Violations:
    """decay_voltage = 0 if the chip has no leak, unless there is only one time step"""
    leaking = [p.name for p, neuron in design.neurons() if np.any(neuron.decay_voltage)]
    if leaking and design.network.timesteps > 1:
        found = f"voltages of {list_some(leaking)} leak"
        allowed = f"{design.profile.name} has no exponential leak ({design.limit('formats.leak').source})"
        advice = "Train with LIF(leak=1), which does not leak, or choose another target, such as loihi2."
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


@needs(applies=says("formats.current", 0))
def synaptic_currents_are_supported(design: Design) -> Violations:
    """decay_current = 4096 if the chip has no synaptic currents, unless there is only one time step"""
    lasting = [p.name for p, neuron in design.neurons() if has_current(neuron)]
    if lasting and design.network.timesteps > 1:
        found = f"synaptic currents of {list_some(lasting)} persist between time steps"
        allowed = f"{design.profile.name} has no synaptic currents ({design.limit('formats.current').source})"
        yield WHOLE_NETWORK, f"{found}; {allowed}. Use neurons without synaptic currents."


def sigma_deltas(design: Design) -> list[str]:
    """Return the populations that sum changes, or send them."""
    return [p.name for p in design.network.layers if modulating(p.neuron) is not None]


def has_sigma_deltas(design: Design) -> bool:
    return bool(sigma_deltas(design))


@needs("formats.sigma_delta", applies=has_sigma_deltas)
def sigma_delta_neurons_are_supported(design: Design) -> Violations:
    """No population has sigma-delta neurons if the chip has none."""
    limit = design.limit("formats.sigma_delta")
    if limit.value == 0:
        found = f"sigma-delta neurons in {list_some(sigma_deltas(design))}"
        allowed = f"{design.profile.name} has none ({limit.source})"
        yield WHOLE_NETWORK, f"{found}; {allowed}. Choose a target that has them, such as loihi2."


def varying(design: Design) -> list[str]:
    """Return the populations whose numbers depend on the time step."""
    return [p.name for p in design.network.layers if varies(p.neuron)]


def has_varying(design: Design) -> bool:
    return bool(varying(design))


def has_unknown_steps(design: Design) -> bool:
    """Return whether numbers depend on the step, on a chip whose neurons are programs that are not public."""
    return has_varying(design) and design.profile.says("formats.neuron_programs", 1)


def has_known_steps(design: Design) -> bool:
    return has_varying(design) and not has_unknown_steps(design)


@needs(applies=has_unknown_steps, severity="not known")
def parameters_may_change_in_time(design: Design) -> Violations:
    """It is public whether the numbers of programmable neurons can differ from time step to time step."""
    found = f"numbers of {list_some(varying(design))} depend on the time step (a norm per time step)"
    allowed = "its neurons are programs, and how one is written for this is not public"
    yield WHOLE_NETWORK, f"{found}; {design.profile.name}: {allowed}. --static-steps avoids it."


@needs("formats.step_parameters", applies=has_known_steps)
def parameters_are_constant_in_time(design: Design) -> Violations:
    """Thresholds, biases, decays and subtrahends are the same in all time steps if the chip has one set."""
    limit = design.limit("formats.step_parameters")
    if limit.value == 0:
        found = f"numbers of {list_some(varying(design))} depend on the time step (a norm per time step)"
        allowed = f"{design.profile.name} has one set for all steps ({limit.source})"
        advice = (
            "Export with --static-steps, which takes their means and reports what that costs, train with "
            "--norm tdbn or batch, or choose another target, such as c or spinnaker2."
        )
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


def soft_resets(design: Design) -> list[str]:
    """Return the populations whose spikes subtract from the voltage."""
    return [p.name for p in design.spiking() if neuron_subtrahend(p.neuron) is not None]


def has_soft_resets(design: Design) -> bool:
    return bool(soft_resets(design))


@needs(applies=says("formats.reset_to_zero", 0))
def reset_to_zero_is_supported(design: Design) -> Violations:
    """No population resets to zero if the chip cannot."""
    soft = soft_resets(design)
    hard = [population.name for population in design.spiking() if population.name not in soft]
    if hard:
        found = f"spikes of {list_some(hard)} reset the voltage to zero"
        allowed = f"{design.profile.name} cannot ({design.limit('formats.reset_to_zero').source})"
        advice = "Train with --reset subtract, or choose another target, such as loihi2."
        yield WHOLE_NETWORK, f"{found}; {allowed}. {advice}"


@needs("formats.soft_reset", applies=has_soft_resets)
def soft_resets_are_supported(design: Design) -> Violations:
    """No population has a soft reset if the chip has none."""
    limit = design.limit("formats.soft_reset")
    if limit.value == 0:
        found = f"spikes of {list_some(soft_resets(design))} subtract from the voltage"
        allowed = f"{design.profile.name} has no soft reset ({limit.source})"
        yield WHOLE_NETWORK, f"{found}; {allowed}. Train with --reset zero, or choose another target."


@needs("formats.subtrahend", applies=has_soft_resets)
def subtrahends_are_thresholds(design: Design) -> Violations:
    """|subtrahend - threshold| <= 1 if the chip subtracts the threshold; 1, because it may fire at v >= t"""
    limit = design.limit("formats.subtrahend")
    for population in design.spiking() if limit.value == 0 else ():
        subtrahend, threshold = neuron_subtrahend(population.neuron), population.neuron.threshold
        if subtrahend is None:
            continue
        apart = np.abs(subtrahend - threshold)
        apart = apart.max(axis=0) if varies(population.neuron) else apart
        other = np.broadcast_to(apart, population.shape) > 1
        if other.any():
            found = f"{int(other.sum())} of {other.size} neurons subtract another number than their threshold"
            allowed = f"{design.profile.name} subtracts the threshold ({limit.source})"
            advice = (
                "If it has MPBN, which moves the threshold only, train with --mpbn none. A reset that acts "
                "one step later, as snnTorch's does, subtracts threshold / leak: reset in the step of the "
                "spike, or to zero (reset_mechanism='zero'), and train again."
            )
            yield population.name, f"{found}; {allowed}. {advice}"


@needs(applies=says("formats.time_steps", 0), severity="warning")
def time_steps_are_supported(design: Design) -> Violations:
    """Warn if the chip is event-driven, without common time steps."""
    source = design.limit("formats.time_steps").source
    found = f"{design.network.timesteps} time steps; {design.profile.name} is event-driven ({source})"
    yield WHOLE_NETWORK, f"{found}. Events act on arrival, so spikes may differ."


@needs(applies=says("formats.digital", 0), severity="warning")
def states_are_integers(design: Design) -> Violations:
    """Warn if states are analog, and therefore inexact."""
    source = design.limit("formats.digital").source
    found = f"integer states; states of {design.profile.name} are analog ({source})"
    yield WHOLE_NETWORK, f"{found}. Spikes will differ; train with the chip in the loop."


@needs(
    "formats.decay_shift_maximum",
    related=("formats.decay_shift_maximum",),
    applies=decays_in_units,
    severity="warning",
)
def decay_rounding_matches(design: Design) -> Violations:
    """Warn if the chip decays by shifts, which round unlike trunc(state * (4096 - decay) / 4096)."""
    source = design.limit("formats.decay_shift_maximum").source
    found = f"decays in units of 1/4096; {design.profile.name} decays by bit shifts ({source})"
    yield WHOLE_NETWORK, f"{found}. The last bits of states will differ."


NEURON_RULES: tuple[Rule, ...] = (
    rule(membranes_are_supported),
    rule(leaks_are_supported),
    rule(synaptic_currents_are_supported),
    rule(reset_to_zero_is_supported),
    rule(sigma_delta_neurons_are_supported),
    rule(soft_resets_are_supported),
    rule(parameters_are_constant_in_time, parameters_may_change_in_time),
    rule(subtrahends_are_thresholds),
    rule(time_steps_are_supported),
    rule(states_are_integers),
    rule(decay_rounding_matches),
    rule(network_has_the_form_of_the_chip),
)
