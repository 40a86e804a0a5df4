"""Define what a design rule is: a check of a network against limits of a chip, and its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from ...base import Array, and_more, layer_name, record
from ...hardware import KEYS, UNBOUNDED, Allowed, HardwareProfile, Limit
from ...hardware.place import Placement
from ...ir import (
    FiringNeuron,
    IntegratingNeuron,
    IntNetwork,
    IntPopulation,
    Population,
    class_names,
    firing,
    integrating,
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
