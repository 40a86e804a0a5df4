"""Count the spikes per sample between cores, from a placement and the activity of the network.

A spike is sent once to every core that has a synapse from its neuron, so from each source a core receives

    sum of events over the source neurons in the receptive field of its tile

The receptive field comes from hardware/place/linkage.py, without unrolling convolutions. On crossbars whose
neurons have one target each, a spike takes as many packets to a core as an input has axons there. Counts are
means over samples, so they need not be integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base import Array, array_record
from ..hardware.place import Link, PlacedLayer, Placement, Tile, links, merge_indices
from ..ir import IntNetwork

if TYPE_CHECKING:
    from .activity import Activity


@array_record
class Traffic:
    """Spikes per sample from core `source` to core `target`, for each pair with synapses between them.

    Cores are numbered in layer order. Pairs are sorted, and a core may be its own target. Events of the input
    come from outside and are counted in `from_input`, by core.
    """

    cores: int
    source: Array
    target: Array
    spikes: Array
    from_input: Array

    @property
    def total(self) -> float:
        """Return all spikes sent by cores, including those to the same core, without the input."""
        return float(self.spikes.sum())


def traffic(network: IntNetwork, placement: Placement, activity: Activity) -> Traffic | None:
    """Return the spikes between all cores; None if core allocation is undocumented."""
    if placement.cores is None:
        return None
    events = {name: np.asarray(values, np.float64).reshape(-1) for name, values in activity.spikes.items()}
    core_of = _cores_of_neurons(placement)
    messages: list[tuple[Array, Array, Array]] = []  # source cores, target core, spikes
    from_input = np.zeros(placement.cores)
    for layer, parts in _numbered(placement):
        for entering in _links_by_source(network, layer.name, by_delay=placement.kind == "crossbar"):
            name = entering[0].source
            read = zip(*(link.sources(layer.tile) for link in entering), strict=True)
            for (core, _), neurons in zip(parts, map(merge_indices, read), strict=True):
                spikes = layer.packets_per_spike * events[name][neurons]
                if name == network.input.name:
                    from_input[core] += spikes.sum()
                else:
                    messages.append(_sum_by_core(core_of[name][neurons], core, spikes))
    return _merge(placement.cores, messages, from_input)


def chip_messages(
    network: IntNetwork, placement: Placement, activity: Activity, chip: Array, chips: int
) -> Array:
    """Return the messages per sample from chip to chip, [chips, chips]: a spike once per receiving chip.

    The diagonal has the spikes that stay on their chip. Events of the input come from outside.
    """
    core_of, messages = _cores_of_neurons(placement), np.zeros((chips, chips))
    reached: dict[tuple[str, int], Array] = {}  # for each source and chip, whether it reads each neuron
    packets: dict[str, int] = {}
    for layer, parts in _numbered(placement):
        for entering in _links_by_source(network, layer.name, by_delay=placement.kind == "crossbar"):
            name = entering[0].source
            if name == network.input.name:
                continue
            packets[name] = max(packets.get(name, 1), layer.packets_per_spike)
            read = zip(*(link.sources(layer.tile) for link in entering), strict=True)
            for (core, _), neurons in zip(parts, map(merge_indices, read), strict=True):
                key = name, int(chip[core])
                if key not in reached:
                    reached[key] = np.zeros(len(core_of[name]), np.bool_)
                reached[key][neurons] = True
    for (name, target), read_there in reached.items():
        some = np.flatnonzero(read_there)
        events = packets[name] * np.asarray(activity.spikes[name], np.float64).reshape(-1)[some]
        messages[:, target] += np.bincount(chip[core_of[name][some]], weights=events, minlength=chips)
    return messages


def parts_of_cores(placement: Placement) -> list[list[tuple[str, Tile]]]:
    """Return the parts of populations on each core, in core order."""
    cores: list[list[tuple[str, Tile]]] = [[] for _ in range(placement.cores or 0)]
    if cores:
        for layer, parts in _numbered(placement):
            for core, tile in parts:
                cores[core].append((layer.name, tile))
    return cores


def _numbered(placement: Placement) -> Iterator[tuple[PlacedLayer, list[tuple[int, Tile]]]]:
    """Yield each layer with its core numbers and tiles; a single core for all layers has number 0."""
    first = 0
    for layer in placement.layers:
        parts = list(enumerate(layer.tiles(), start=first))
        yield layer, parts
        first += 0 if placement.on_one_core else len(parts)


def _cores_of_neurons(placement: Placement) -> dict[str, Array]:
    """Return the core number of every neuron, by population."""
    found = {}
    for layer, parts in _numbered(placement):
        cores = np.empty(layer.shape, np.int64)
        for core, tile in parts:
            cores[tile] = core
        found[layer.name] = cores.reshape(-1)
    return found


def _links_by_source(network: IntNetwork, target: str, *, by_delay: bool) -> list[list[Link]]:
    """Group the links into a population by source, or by source and delay if `by_delay`."""
    groups: dict[tuple[str, int], list[Link]] = {}
    for link in links(network, target, by_delay=by_delay):
        groups.setdefault((link.source, link.delay), []).append(link)
    return list(groups.values())


def _sum_by_core(cores: Array, target: int, spikes: Array) -> tuple[Array, Array, Array]:
    """Sum the spikes of neurons by their core; return source cores, target core and sums."""
    first = cores.min() if len(cores) else 0
    there = np.flatnonzero(np.bincount(cores - first))
    sums = np.bincount(cores - first, weights=spikes)[there]
    return first + there, np.full(len(there), target), sums


def _merge(cores: int, messages: Sequence[tuple[Array, Array, Array]], from_input: Array) -> Traffic:
    """Add up the messages between the same two cores."""
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    source, target, spikes = (np.concatenate(column) for column in zip(nothing, *messages, strict=True))
    pairs, place = np.unique(source * cores + target, return_inverse=True)
    return Traffic(
        cores=cores,
        source=pairs // cores,
        target=pairs % cores,
        spikes=np.bincount(place, weights=spikes, minlength=len(pairs)),
        from_input=from_input,
    )
