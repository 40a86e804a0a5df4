"""How many spikes cores send to each other per sample, given where neurons sit and how often they fire.

A spike goes once to every core that has a synapse from its neuron; so a core of a layer gets, of each source,

    sum of events over the source neurons in the reach of its tile

where links.py says what the reach is, without ever unrolling a convolution. On crossbars whose neurons have
one target each, a spike takes as many packets to a core as an input takes axons there. The numbers are means
over samples, so they need not be whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base import Array, freeze_arrays, record
from ..hardware.place import Link, PlacedLayer, Placement, Tile, links, merge_indices
from ..ir import IntNetwork

if TYPE_CHECKING:
    from .activity import Activity


@record
class Traffic:
    """Per sample, `spikes` from core `source` to core `target`, for each pair with synapses between them.

    Cores are numbered over all layers in order. What the input sends comes from outside: `from_input` of each
    core. Pairs are sorted, and a core may be its own target.
    """

    cores: int
    source: Array
    target: Array
    spikes: Array
    from_input: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def total(self) -> float:
        """All spikes between cores, those to the same core included, without the input's."""
        return float(self.spikes.sum())


def traffic(network: IntNetwork, placement: Placement, activity: Activity) -> Traffic | None:
    """What each core sends to each other one; None where the cores are not known."""
    if placement.cores is None:
        return None
    events = {name: np.asarray(values, np.float64).reshape(-1) for name, values in activity.spikes.items()}
    core_of = _cores_of_neurons(placement)
    messages: list[tuple[Array, Array, Array]] = []  # source cores, the same target core for each, spikes
    from_input = np.zeros(placement.cores)
    for layer, parts in _numbered(placement):
        for entering in _by_source(network, layer.name, apart=placement.kind == "crossbar"):
            name = entering[0].source
            read = zip(*(link.sources(layer.tile) for link in entering), strict=True)
            for (core, _), neurons in zip(parts, map(merge_indices, read), strict=True):
                spikes = layer.packets_per_spike * events[name][neurons]
                if name == network.input.name:
                    from_input[core] += spikes.sum()
                else:
                    messages.append(_message(core_of[name][neurons], core, spikes))
    return _gathered(placement.cores, messages, from_input)


def parts_of_cores(placement: Placement) -> list[list[tuple[str, Tile]]]:
    """The parts of populations on each core, in the order in which cores are numbered."""
    cores: list[list[tuple[str, Tile]]] = [[] for _ in range(placement.cores or 0)]
    if cores:
        for layer, parts in _numbered(placement):
            for core, tile in parts:
                cores[core].append((layer.name, tile))
    return cores


def _numbered(placement: Placement) -> Iterator[tuple[PlacedLayer, list[tuple[int, Tile]]]]:
    """Each layer with its tiles and the numbers of their cores; a core for all has the number 0."""
    first = 0
    for layer in placement.layers:
        parts = list(enumerate(layer.tiles(), start=first))
        yield layer, parts
        first += 0 if placement.kind == "whole" else len(parts)


def _cores_of_neurons(placement: Placement) -> dict[str, Array]:
    """Per population, the number of each neuron's core."""
    found = {}
    for layer, parts in _numbered(placement):
        cores = np.empty(layer.shape, np.int64)
        for core, tile in parts:
            cores[tile] = core
        found[layer.name] = cores.reshape(-1)
    return found


def _by_source(network: IntNetwork, target: str, *, apart: bool) -> list[list[Link]]:
    """What enters a population, by source; where delays are kept apart, by source and delay."""
    groups: dict[tuple[str, int], list[Link]] = {}
    for link in links(network, target, by_delay=apart):
        groups.setdefault((link.source, link.delay), []).append(link)
    return list(groups.values())


def _message(cores: Array, target: int, spikes: Array) -> tuple[Array, Array, Array]:
    """Spikes of neurons on those cores, summed by core."""
    first = cores.min() if len(cores) else 0
    there = np.flatnonzero(np.bincount(cores - first))
    sums = np.bincount(cores - first, weights=spikes)[there]
    return first + there, np.full(len(there), target), sums


def _gathered(cores: int, messages: Sequence[tuple[Array, Array, Array]], from_input: Array) -> Traffic:
    """All messages, those between the same two cores as one."""
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
