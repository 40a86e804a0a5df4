"""Run the first layer on the host, for chips that accept only binary spikes.

The host computes the spikes of the first layer from graded inputs, in the same integers as the chip would,
and sends them to the chip. The network on the chip begins with these spikes as its input. The result is
identical.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ..base import OptionError
from ..ir import Input, IntNetwork, value_range
from .activity import Activity

FirstLayer = Literal["chip", "host"]
PLAIN_SPIKES = Input(minimum=0, maximum=1)


def without_first_layer(network: IntNetwork) -> IntNetwork:
    """Return the network whose input is the spikes of the only population that reads the input."""
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
        found = f"the input is read by {', '.join(p.name for p in reached) or 'no population'}"
        found += f", which also reads {', '.join(others)}" if others else ""
        raise OptionError(
            f"--first-layer host: {found}; this needs one spiking population that reads only the input, and "
            "another population after it. Use --first-layer chip."
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


def activity_without_input(network: IntNetwork, activity: Activity) -> Activity:
    """Return the activity without the input."""
    spikes = {name: counts for name, counts in activity.spikes.items() if name != network.input.name}
    return replace(activity, spikes=spikes)
