"""The first layer on the host: chips that take plain spikes only are sent those of the first population.

The host turns graded inputs into the spikes of the first layer, in the same integers as the chip would; what
is left for the chip begins with these spikes as its input. Nothing changes but where the first layer runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ..base import OptionError
from ..ir import Input, IntNetwork, value_range
from .activity import Activity

FirstLayer = Literal["chip", "host"]  # where it runs
PLAIN_SPIKES = Input(minimum=0, maximum=1)


def behind_first_layer(network: IntNetwork) -> IntNetwork:
    """The network whose input are the spikes of the one population that the input reaches."""
    source = network.input.name
    names = {c.target for c in network.connections if c.source == source}
    reached = [p for p in network.layers if p.name in names]
    first = reached[0] if len(reached) == 1 else None
    others = [
        c.source for c in network.connections if first and c.target == first.name and c.source != source
    ]
    if (
        first is None
        or others
        or value_range(first.neuron) != value_range(PLAIN_SPIKES)
        or first is network.output
    ):
        found = f"the input reaches {', '.join(p.name for p in reached) or 'nothing'}"
        found += f", and so do {', '.join(others)}" if others else ""
        raise OptionError(
            f"first layer on the host: {found}; one spiking population is needed, and one behind it."
        )
    return IntNetwork(
        populations=(
            first.with_neuron(PLAIN_SPIKES),
            *(p for p in network.layers if p is not first),
        ),
        connections=tuple(c for c in network.connections if c.source != source),
        timesteps=network.timesteps,
        scales={name: scales for name, scales in network.scales.items() if name != first.name},
    )


def activity_behind(network: IntNetwork, activity: Activity) -> Activity:
    """The same activity without the input's."""
    spikes = {name: counts for name, counts in activity.spikes.items() if name != network.input.name}
    return replace(activity, spikes=spikes)
