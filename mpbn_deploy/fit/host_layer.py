"""Run the first layer, or the readout, on the host: in the same integers, so that the result is identical.

The host computes what the first layer sends, from graded inputs, and sends it to the chip: its spikes, for
chips that accept only these, or the changes of the input. The network on the chip begins with them as its
input. A readout never fires, so the host can sum the spikes that reach it; the network on the chip ends
before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base import OptionError, layer_name
from ..formats.options import Placing, Side
from ..ir import (
    AnyNeuron,
    Input,
    IntNetwork,
    Network,
    Population,
    neuron_kind,
    relay_names,
    sends,
    value_range,
)
from .activity import Activity


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
