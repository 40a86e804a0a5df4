"""Chips whose one core holds the whole network (Xylo).

All populations between the input and the output share one pool of hidden neurons and one square matrix of
weights among them: a network of several layers sits in its blocks beside the diagonal. So it is the sums that
count, and `totals` are theirs:

    inputs     neurons of the input
    hidden     neurons of all populations but input and output
    outputs    neurons of the last population
    synapses   weights between hidden neurons that are not zero; a kernel's at each place where it is used

On some of these chips inputs reach only the first hidden neurons, and the output reads only the last ones
(rockpool, devices/xylo/syns65302/xylo_samna.py, keeps the first and the last 128). Hidden neurons may be
listed in any order, so what matters is how many of the n there are read the input (i), are read by the output
(o), or both (b):

    i <= input reach,   o <= output reach,   and, where b > 0,   n + b <= input reach + output reach

The design rules have the first two. The third is found here: neurons that do both lie in both ranges, with x
others before them and y behind, x + b <= input reach, y + b <= output reach, x + b + y = n, and such x and y
exist just then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...base import Array
from ...ir import IntNetwork, connection_fan_in, connection_fan_out, connection_synapses, incoming
from ..profile import HardwareProfile
from .records import PlacedLayer, Placement, Problem, Tiling, Use

# Where a profile says how much there may be of each of the sums.
CAPACITIES = {
    "inputs": "network.inputs_maximum",
    "hidden": "network.hidden_maximum",
    "outputs": "network.outputs_maximum",
    "synapses": "network.synapses_maximum",
}


def place_whole(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """All populations on one core; each layer's use is its part in the sums."""
    layers = [
        PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use=_use(network, p.name))
        for p in network.layers
    ]
    totals = {name: sum(layer.use.get(name, 0) for layer in layers) for name in CAPACITIES}
    return Placement(
        kind="whole",
        layers=tuple(layers),
        totals={**totals, "inputs": network.input.size},
        problems=(*_wrong_ways(network, profile), *_too_far_apart(network, profile)),
    )


def _use(network: IntNetwork, name: str) -> Use:
    """Neurons of a population, and the weights into it from hidden ones."""
    sizes = {population.name: population.size for population in network.populations}
    if name == network.output.name:
        return {"outputs": sizes[name]}
    entering = incoming(network.connections, name)
    weights = sum(connection_synapses(network, c) for c in entering if c.source != network.input.name)
    return {"hidden": sizes[name], "synapses": weights}


# ---- what cannot be ---------------------------------------------------------------------------


def _wrong_ways(network: IntNetwork, profile: HardwareProfile) -> Iterator[Problem]:
    """Inputs enter hidden neurons, and outputs have no way back."""
    first, last = network.input.name, network.output.name
    for connection in network.connections:
        if connection.source == last or (connection.source, connection.target) == (first, last):
            message = (
                f"{profile.name} connects inputs to hidden neurons, these among each other, and these to "
                "outputs; nothing else. Put a layer between."
            )
            yield Problem(where=connection.label, message=message)


def _too_far_apart(network: IntNetwork, profile: HardwareProfile) -> Iterator[Problem]:
    """Neurons that read the input and are read by the output cannot be near both ends of a large network."""
    first, last = profile.limit("network.input_reach"), profile.limit("network.output_reach")
    if first is None or last is None:
        return
    reading, read = reading_input(network), read_by_output(network)
    both = {name: int(np.count_nonzero(reading[name] & read[name])) for name in reading}
    count, hidden = sum(both.values()), sum(neurons.size for neurons in reading.values())
    if count and hidden + count > first.value + last.value:
        names = ", ".join(name for name, found in both.items() if found)
        found = f"{count} of {hidden} hidden neurons ({names}) read the input and are read by the output"
        allowed = (
            f"on {profile.name} they must be among the first {first.value} ({first.source}) and the last "
            f"{last.value} ({last.source}), which allows {first.value + last.value - count} in all"
        )
        advice = "Let other neurons read the input than those that the output reads."
        yield Problem(where=network.output.name, message=f"{found}; {allowed}. {advice}")


def reading_input(network: IntNetwork) -> dict[str, Array]:
    """Per hidden population, whether each neuron has a synapse from the input."""
    entering = [c for c in network.connections if c.source == network.input.name]
    return _hidden(network, ((c.target, connection_fan_in(network, c) > 0) for c in entering))


def read_by_output(network: IntNetwork) -> dict[str, Array]:
    """Per hidden population, whether each neuron has a synapse to the output."""
    leaving = [c for c in network.connections if c.target == network.output.name]
    return _hidden(network, ((c.source, connection_fan_out(network, c) > 0) for c in leaving))


def _hidden(network: IntNetwork, marks: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Per population between input and output, the neurons with a mark, of those given by population."""
    hidden = {population.name: np.zeros(population.shape, bool) for population in network.populations[1:-1]}
    for name, marked in marks:
        if name in hidden:
            hidden[name] |= marked
    return hidden
