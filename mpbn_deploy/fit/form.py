"""Choose the form in which a network is deployed: the fewest cores that fit.

Integers are the same in every form. An option that is "auto" becomes

    pooling       relays, where they save cores; otherwise part of the kernels (`quantize/pooling.py`)
    tiling        the best that a search finds, if it takes fewer cores than the compiler's
    first layer   the host, only if the network does not fit the chip otherwise, and spiking neurons remain
    and readout   on the chip

and the report has a `Choice` for each, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from ..base import OptionError, changed
from ..formats.options import Placing, PoolingChoice, Side
from ..hardware import HardwareProfile
from ..hardware.place import place, tiles_remembered
from ..ir import (
    IntNetwork,
    IntPopulation,
    find_poolings,
    neuron_kind,
    relay_names,
    sends,
    with_relays,
    without_relays,
)
from ..quantize import messages_fit
from .activity import Activity
from .host_layer import activity_on_chip, on_chip
from .stage import Choice, FitReport, blocking_severities, by_rule, fit, unmet_rules, with_costs


def fit_on_chip(
    network: IntNetwork,
    profile: HardwareProfile,
    activity: Activity | None,
    options: Placing | None = None,
    *,
    pooling: PoolingChoice = "composed",
    strict: bool = False,
    **changes: Any,
) -> FitReport:
    """Check the part of a network that stays on the chip; keywords are fields of `Placing`.

    The network has the form of pooling that it shall have; with `pooling="auto"`, the report says why.
    """
    asked = changed(options, Placing, changes)
    check = partial(fit, profile=profile, chips=asked.chips, tiling=asked.tiling, strict=strict)
    with tiles_remembered():
        first, report = _fitting(network, check, asked.first_layer, asked.readout)
        if activity is not None:
            part = on_chip(network, report.first_layer, report.readout)
            report = with_costs(report, part, profile, activity_on_chip(part, activity))
        choices = (
            *(_pooling_choice(network, profile, report) if pooling == "auto" else ()),
            *(_tiling_choice(network, profile, report) if asked.tiling == "auto" else ()),
            *_side_choices(network, first, report, asked),
        )
    return replace(report, choices=choices)


def _fitting(
    network: IntNetwork, check: partial[FitReport], first_layer: Side, readout: Side
) -> tuple[FitReport, FitReport]:
    """Return the reports with all on the chip that may be, and with the least on the host that fits.

    If nothing fits, the second is the first.
    """
    first = None
    for sides in product(
        *(("chip", "host") if side == "auto" else (side,) for side in (first_layer, readout))
    ):
        try:
            part = on_chip(network, *sides)
        except OptionError:  # no layer that the host can take over
            if first is None:  # as it was asked for
                raise
            continue
        if first is not None and not any(map(_spikes, part.layers)):
            continue  # a chip that only sums up does not run a spiking network
        report = replace(check(part), first_layer=sides[0], readout=sides[1])
        first = first or report
        if report.fits is not False:
            return first, report
    assert first is not None
    return first, first


def _spikes(population: IntPopulation) -> bool:
    return sends(population.neuron) and neuron_kind(population.neuron) != "relay"


# ---- reasons ----------------------------------------------------------------------------------


def _pooling_choice(network: IntNetwork, profile: HardwareProfile, report: FitReport) -> Iterator[Choice]:
    """Yield why there are relays or none; nothing if there is no pooling, or cores are not documented."""
    relays = len(relay_names(network))
    if report.cores is None or not (relays or find_poolings(network)):
        return
    if relays:
        others = _cores(without_relays(network), profile, report)
        yield Choice(
            option="pooling",
            chosen=f"{relays} relay population{'s' if relays > 1 else ''}",
            why=f"{report.cores:,} cores; {others:,} without relays",
        )
    elif messages_fit(with_relays(network), profile):
        yield Choice(option="pooling", chosen="composed", why="relays save no cores")
    else:
        yield Choice(option="pooling", chosen="composed", why="messages of this chip cannot hold sums")


def _cores(network: IntNetwork, profile: HardwareProfile, report: FitReport) -> int:
    """Return the cores of another network in the form of a report."""
    part = on_chip(network, report.first_layer, report.readout)
    return place(part, profile, tiling="auto").cores or 0


def _tiling_choice(network: IntNetwork, profile: HardwareProfile, report: FitReport) -> Iterator[Choice]:
    """Yield why the tiling is the compiler's or the best; nothing if the chip has no alternatives."""
    if profile.placement != "words":
        return
    if report.tiling == "compiler":
        yield Choice(option="tiling", chosen="compiler", why="a search saves no cores")
        return
    usual = place(on_chip(network, report.first_layer, report.readout), profile)
    yield Choice(
        option="tiling",
        chosen=report.tiling,
        why=f"{report.cores:,} cores; the compiler takes {usual.cores:,}",
    )


def _side_choices(
    network: IntNetwork, first: FitReport, report: FitReport, given: Placing
) -> Iterator[Choice]:
    """Yield why the first layer and the readout run where they do; nothing for those that cannot move."""
    places: tuple[tuple[str, Side, Side, tuple[Side, Side]], ...] = (
        ("first layer", given.first_layer, report.first_layer, ("host", "chip")),
        ("readout", given.readout, report.readout, ("chip", "host")),
    )
    for option, asked, side, moved in places:
        try:
            rest = on_chip(network, *moved)
        except OptionError:  # no layer that the host can take over
            continue
        if side == "host":
            why = f"otherwise {unmet_rules(by_rule(first, blocking_severities(first)))}"
        elif report.fits is not False:
            why = "the network fits"
        elif any(map(_spikes, rest.layers)):
            why = "on the host, it does not make the network fit"
        else:
            why = "on the host, it would leave no spiking neurons to the chip"
        if asked == "auto":
            yield Choice(option=option, chosen=side, why=why)


def resolved_pooling(network: IntNetwork) -> PoolingChoice:
    """Return the option that gives this form of pooling again; "auto" if only a search finds it."""
    names = relay_names(network)
    if not names:
        return "composed"
    return "relay" if names == relay_names(with_relays(without_relays(network))) else "auto"
