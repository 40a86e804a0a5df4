"""Choose the form in which a network is deployed: the fewest cores that fit.

Integers are the same in every form. An option that is "auto" becomes

    pooling       relays, where they save cores; otherwise part of the kernels (`quantize/pooling.py`)
    tiling        the best that a search finds, if it takes fewer cores than the compiler's
    first layer   the host, only if the network does not fit the chip otherwise, and spiking neurons remain
    and readout   on the chip

and the report has a `Choice` for each, with the reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import OptionError, changed, layer_name, typed
from ..data import Samples
from ..formats.folder import ExportFolder, NetworkFile
from ..formats.options import DataChoice, Placing, Pooling, PoolingChoice, Side
from ..hardware import HardwareProfile
from ..hardware.place import place, tiles_remembered
from ..ir import (
    AnyNeuron,
    Input,
    IntNetwork,
    IntPopulation,
    Network,
    Population,
    find_poolings,
    neuron_kind,
    relay_names,
    sends,
    value_range,
    with_relays,
    without_relays,
)
from ..quantize import messages_fit
from .activity import Activity
from .stage import Choice, FitReport, blocking_severities, by_rule, fit, unmet_rules, with_costs

if TYPE_CHECKING:
    from .measurement import UntrainedNetwork


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


# A request of the command `fit`: a network, a chip, and the options of placement.


PREDICTIONS_REFERENCE = "given integer network"  # what `predictions_changed` of `fit` counts against


class Question(Pooling, Placing, DataChoice):
    """A network and a chip, as named on the command line, with the options of placement."""

    opened: ExportFolder | NetworkFile
    target: str
    profile: HardwareProfile
    form: IntNetwork | None = None  # the network with pooling as the target asks for it; None: as given
    samples: Samples | None = None
    strict: bool = False
    untrained: UntrainedNetwork | None = None
    file_options: Sequence[str] = ()  # options that describe a .net file

    @property
    def network(self) -> IntNetwork:
        return self.opened.network if self.form is None else self.form

    def ask(self, network: IntNetwork, activity: Activity | None = None) -> FitReport:
        """Check a network against the chip."""
        report = fit_on_chip(
            network,
            self.profile,
            activity,
            Placing.from_arguments(self),
            pooling="composed" if self.form is None else self.pooling,
            strict=self.strict,
        )
        return report if self.untrained is None else replace(report, assumption=self.untrained.assumption)

    @property
    def path(self) -> Path:
        """The folder or file of the network."""
        return self.opened.path if isinstance(self.opened, ExportFolder) else self.opened.netx

    def command(self, folder: Path | None = None, *more: str) -> str:
        """Return the shell command that makes the same request, for the network in `folder` if given."""
        network = [str(self.path if folder is None else folder)]
        if self.untrained is not None:
            network = list(self.untrained.typed)
        strict = ["--strict"] if self.strict else []
        options = [
            *self.file_options,
            *typed(self, Placing, Pooling),
            *strict,
            *typed(self, DataChoice),
            *more,
        ]
        return shlex.join(["python", "-m", "mpbn_deploy.fit", *network, "--target", self.target, *options])

    def training_command(self, *more: str) -> str:
        """Return the shell command that trains the network, or exports it once it is trained."""
        assert self.untrained is not None
        return self.untrained.training_command(self.target, [*typed(self, Placing, Pooling), *more])

    @property
    def run_command(self) -> str:
        """The shell command that runs the network on the data named here, or else on those of its export."""
        recorded = self.opened.data_words if isinstance(self.opened, ExportFolder) else []
        data = typed(self, DataChoice) or recorded
        return shlex.join(["python", "-m", "mpbn_deploy.run", str(self.path), *self.file_options, *data])


# Run the first layer, or the readout, on the host: in the same integers, so that the result is identical.
#
# The host computes what the first layer sends, from graded inputs, and sends it to the chip: its spikes, for
# chips that accept only these, or the changes of the input. The network on the chip begins with them as its
# input. A readout never fires, so the host can sum the spikes that reach it; the network on the chip ends
# before it.


def check_sides(network: Network[AnyNeuron], options: Placing) -> None:
    """Raise OptionError if the host cannot compute the first layer, or the readout, of this network."""
    first = _first_layer(network) if options.first_layer == "host" else None
    if options.readout == "host":
        _check_readout([population for population in network.layers if population.name != first])


def _first_layer(network: Network[AnyNeuron]) -> str:
    """Return the only population that reads the input."""
    source = network.input.name
    names = {c.target for c in network.connections if c.source == source}
    reached = [p for p in network.layers if p.name in names]
    first = reached[0] if len(reached) == 1 else None
    others = [
        c.source for c in network.connections if first and c.target == first.name and c.source != source
    ]
    if first is None or others or not sends(first.neuron) or first is network.output:
        found = f"the input is read by {', '.join(layer_name(p.name) for p in reached) or 'no population'}"
        found += f", which also reads {', '.join(map(layer_name, others))}" if others else ""
        raise OptionError(
            f"--first-layer host: {found}; this needs one population that reads only the input and sends "
            "to another. Use --first-layer chip."
        )
    return first.name


def _check_readout(layers: Sequence[Population[AnyNeuron]]) -> None:
    output = layers[-1]
    sending = [population for population in layers if sends(population.neuron)]
    if sends(output.neuron) or all(neuron_kind(population.neuron) == "relay" for population in sending):
        raise OptionError(
            f"--readout host: {layer_name(output.name)} is not a readout behind a population that fires. "
            "Use --readout chip."
        )


def without_first_layer(network: IntNetwork) -> IntNetwork:
    """Return the network whose input is the spikes of the only population that reads the input."""
    first = network.layer(_first_layer(network))
    smallest, largest = value_range(first.neuron)
    return IntNetwork(
        populations=(
            first.with_neuron(Input(minimum=smallest, maximum=largest)),
            *(p for p in network.layers if p is not first),
        ),
        connections=tuple(c for c in network.connections if c.source != network.input.name),
        timesteps=network.timesteps,
        scales={name: scales for name, scales in network.scales.items() if name != first.name},
        foreign=network.foreign,
    )


def without_readout(network: IntNetwork) -> IntNetwork:
    """Return the network without its readout, and without relays that only the readout reads."""
    _check_readout(network.layers)
    gone = {network.output.name}
    for name in reversed(relay_names(network)):
        if {c.target for c in network.connections if c.source == name} <= gone:
            gone.add(name)
    return replace(
        network,
        populations=tuple(p for p in network.populations if p.name not in gone),
        connections=tuple(c for c in network.connections if not gone & {c.source, c.target}),
        scales={name: scales for name, scales in network.scales.items() if name not in gone},
    )


def on_chip(network: IntNetwork, first_layer: Side, readout: Side) -> IntNetwork:
    """Return the part of a network that stays on the chip."""
    network = without_first_layer(network) if first_layer == "host" else network
    return without_readout(network) if readout == "host" else network


def activity_on_chip(network: IntNetwork, activity: Activity) -> Activity:
    """Return the activity of the populations of a network, a part of the one that was measured."""
    return replace(activity, spikes={name: activity.spikes[name] for name in network.shapes})
