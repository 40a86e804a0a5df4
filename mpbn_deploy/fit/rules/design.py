"""What a design rule is: a check of a network against the limits of a chip, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from typing_extensions import assert_never

from ...base import Array, record
from ...hardware import KEYS, Allowed, HardwareProfile, Limit
from ...hardware.place import Placement
from ...ir import IntNetwork, IntPopulation, Lif, Population, Readout

Severity = Literal["error", "warning", "not checked"]
WHOLE_NETWORK = "network"


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
    chips: int = 1  # that there are

    def known(self, key: str) -> Limit:
        """A limit that the rule needs, and which `needs` has therefore found to be there."""
        limit = self.profile.limit(key)
        assert limit is not None, key
        return limit

    def known_list(self, key: str) -> Allowed:
        """The same for a key that has several numbers."""
        allowed = self.profile.allowed(key)
        assert allowed is not None, key
        return allowed

    def holds(self, what: object, limit: Limit | Allowed) -> str:
        """'loihi1 holds 1..131071 (its source)'"""
        return f"{self.profile.name} holds {what} ({limit.source})"

    def neurons(self) -> Iterator[tuple[IntPopulation, Lif | Readout]]:
        """Every population but the input, with its neuron, of the kinds that the rules can judge."""
        for population in self.network.layers:
            yield population, population.neuron

    def firing(self) -> Iterator[Population[Lif]]:
        """Every population with a threshold, and a reset to zero, for rules to judge."""
        for population in self.network.layers:
            match neuron := population.neuron:
                case Lif():
                    yield population.with_neuron(neuron)
                case Readout():
                    pass
                case _:
                    assert_never(neuron)

    @property
    def export_target(self) -> str:
        """For whom to export what this chip is to hold: itself, or nobody in particular."""
        return self.typed if self.profile.exportable else "unbounded"

    @property
    def typed(self) -> str:
        """The chip as a command line names it."""
        return self.profile.typed or self.profile.name


Found = Iterator[tuple[str, str]]  # where, and what is wrong there
Check = Callable[[Design], Found]
Rule = Callable[[Design], list[Finding]]
Condition = Callable[[Design], bool]


def always(design: Design) -> bool:
    return True


def says(key: str, value: int) -> Condition:
    """Where the profile says just this; a flag that it lacks says nothing."""
    return lambda design: design.profile.says(key, value)


@record
class Part:
    """A check, and when it is made.

    Without one of its `keys` it is not made, and its rule says so; but where only some chips have such
    limits, its `kin`, only if the profile states one of them.
    """

    name: str
    check: Check
    keys: tuple[str, ...]
    kin: tuple[str, ...]
    applies: Condition
    severity: Severity

    def asked(self, design: Design) -> bool:
        return self.applies(design) and (not self.kin or any(map(design.profile.knows, self.kin)))

    def unknown(self, design: Design) -> list[str]:
        return [key for key in self.keys if not design.profile.knows(key)]


def needs(
    *keys: str, kin: tuple[str, ...] = (), applies: Condition = always, severity: Severity = "error"
) -> Callable[[Check], Part]:
    """Makes a check part of a rule."""

    def decorate(check: Check) -> Part:
        return Part(name=check.__name__, check=check, keys=keys, kin=kin, applies=applies, severity=severity)

    return decorate


def rule(*parts: Part, name: str = "") -> Rule:
    """A rule holds when all its parts do; what it cannot check of them, it says in one line."""
    name = name or parts[0].name

    def judge(design: Design) -> list[Finding]:
        asked = [part for part in parts if part.asked(design)]
        known = [part for part in asked if not part.unknown(design)]
        unknown = {key: part.name for part in asked for key in part.unknown(design)}
        found = [_finding(name, part, *place) for part in known for place in part.check(design)]
        if not unknown:
            return found
        what = name if len(unknown) > 1 else next(iter(unknown.values()))
        some_of_it = ", in part" if known and len(unknown) > 1 else ""
        return [not_checked(name, words(what) + some_of_it, list(unknown), design.profile), *found]

    judge.__name__ = name
    return judge


def _finding(name: str, part: Part, where: str, message: str) -> Finding:
    return Finding(rule=name, where=where, message=f"{where}: {message}", severity=part.severity)


def not_checked(name: str, what: str, keys: Sequence[str], profile: HardwareProfile) -> Finding:
    absent = ", ".join(keys) if len(keys) > 1 else f"{keys[0]} ({KEYS[keys[0]]})"
    message = f"not checked: {what}; {profile.name} does not know {absent}."
    return Finding(rule=name, where=WHOLE_NETWORK, message=message, severity="not checked")


def words(name: str) -> str:
    return name.replace("_", " ").strip()


def outside(values: Array, low: float, high: float) -> str | None:
    """'-12 in 3 of 64 values' of those outside low..high, naming the farthest; None if all are inside."""
    values = values.astype(np.int64)  # so that a distance cannot overflow
    wrong = values[(values < low) | (values > high)]
    if not wrong.size:
        return None
    distance = np.maximum(low - wrong, wrong - high)
    return f"{wrong[distance.argmax()]} in {wrong.size} of {values.size} values"


def some(names: Sequence[str]) -> str:
    """'conv1, conv2 and 9 more'"""
    shown = ", ".join(names[:2])
    return shown if len(names) <= 2 else f"{shown} and {len(names) - 2} more"
