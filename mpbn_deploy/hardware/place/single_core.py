"""Place the whole network on a single core (Xylo).

All populations between input and output share one pool of hidden neurons and one square weight matrix, in
which consecutive layers are off-diagonal blocks. The limits apply to sums over the network, which are
`totals`:

    inputs     neurons of the input
    hidden     neurons of all populations but input and output
    outputs    neurons of the last population
    synapses   nonzero weights between hidden neurons; kernels count once per position

On some of these chips inputs reach only the first hidden neurons, and the output reads only the last ones
(rockpool, devices/xylo/syns65302/xylo_samna.py, keeps the first and the last 128). Hidden neurons can be
listed in any order. Of n hidden neurons, let i read the input, o be read by the output, and b do both. The
condition is

    i <= input reach,   o <= output reach,   and, if b > 0,   n + b <= input reach + output reach

The design rules check the first two parts, this module the third: the b neurons lie in both ranges, with x
neurons before and y after them, x + b <= input reach, y + b <= output reach and x + b + y = n; such x and y
exist exactly if the condition holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...base import Array
from ...ir import IntNetwork, connection_fan_in, connection_fan_out, connection_synapses
from ..profile import HardwareProfile
from .records import PlacedLayer, Placement, Problem, Tiling, Use

# The profile key that limits each sum.
CAPACITIES = {
    "inputs": "network.inputs_maximum",
    "hidden": "network.hidden_maximum",
    "outputs": "network.outputs_maximum",
    "synapses": "network.synapses_maximum",
}


def place_whole(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Place all populations on one core; the use of a layer is its share of the totals."""
    layers = [
        PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use=_use(network, p.name))
        for p in network.layers
    ]
    totals = {name: sum(layer.use.get(name, 0) for layer in layers) for name in CAPACITIES}
    return Placement(
        kind="whole",
        layers=tuple(layers),
        totals={**totals, "inputs": network.input.size},
        problems=(*_unsupported_connections(network, profile), *_reach_conflict(network, profile)),
    )


def _use(network: IntNetwork, name: str) -> Use:
    """Count the neurons of a population, and the synapses into it from hidden neurons."""
    neurons = network.layer(name).size
    if name == network.output.name:
        return {"outputs": neurons}
    entering = network.entering(name)
    weights = sum(connection_synapses(network, c) for c in entering if c.source != network.input.name)
    return {"hidden": neurons, "synapses": weights}


# ---- problems -----------------------------------------------------------------------------------


def _unsupported_connections(network: IntNetwork, profile: HardwareProfile) -> Iterator[Problem]:
    """Find connections from input to output, and connections that leave the output."""
    first, last = network.input.name, network.output.name
    for connection in network.connections:
        if connection.source == last or (connection.source, connection.target) == (first, last):
            message = (
                f"not supported: {profile.name} connects inputs to hidden neurons, hidden neurons to each "
                "other, and hidden neurons to outputs. Insert a layer between."
            )
            yield Problem(where=connection.label, message=message)


def _reach_conflict(network: IntNetwork, profile: HardwareProfile) -> Iterator[Problem]:
    """Check that neurons that read the input and are read by the output can be in both ranges."""
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
            f"{last.value} ({last.source}), which allows {first.value + last.value - count} hidden neurons"
        )
        advice = "Let different neurons read the input and feed the output."
        yield Problem(where=network.output.name, message=f"{found}; {allowed}. {advice}")


def reading_input(network: IntNetwork) -> dict[str, Array]:
    """Return, for each hidden population, which neurons have a synapse from the input."""
    entering = [c for c in network.connections if c.source == network.input.name]
    return _hidden_marks(network, ((c.target, connection_fan_in(network, c) > 0) for c in entering))


def read_by_output(network: IntNetwork) -> dict[str, Array]:
    """Return, for each hidden population, which neurons have a synapse to the output."""
    leaving = [c for c in network.connections if c.target == network.output.name]
    return _hidden_marks(network, ((c.source, connection_fan_out(network, c) > 0) for c in leaving))


def _hidden_marks(network: IntNetwork, marks: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Combine masks of neurons, given by population, over the hidden populations."""
    hidden = {population.name: np.zeros(population.shape, bool) for population in network.populations[1:-1]}
    for name, marked in marks:
        if name in hidden:
            hidden[name] |= marked
    return hidden
