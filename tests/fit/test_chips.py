"""Spikes between cores against a count by matrices, and cores on several chips."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import int_chain, int_loop, int_residual, int_windows
from properties import examples

from mpbn_deploy.base import ProfileError
from mpbn_deploy.fit import measure
from mpbn_deploy.fit.activity import Activity, Traffic, chip_messages, parts_of_cores, traffic
from mpbn_deploy.fit.chips import CORE_ORDER, METIS, _repaired, assign_chips, core_graph, crossings, hops
from mpbn_deploy.hardware import HardwareProfile, Limit, load_profile
from mpbn_deploy.hardware.place import PlacedLayer, Placement, place
from mpbn_deploy.ir import as_dense


def chip(placement="unknown", **limits):
    return HardwareProfile(
        name="chip",
        title="chip",
        description="chip",
        placement=placement,
        limits={
            key.replace("__", "."): Limit(value=value, source="test", basis="derived")
            for key, value in limits.items()
        },
    )


def cut_into(network, extent):
    """All populations in tiles of at most that extent along each axis."""
    layers = [
        PlacedLayer(name=p.name, shape=p.shape, tile=tuple(min(size, extent) for size in p.shape), use={})
        for p in network.populations[1:]
    ]
    return Placement(layers=tuple(layers))


def activity_of(network, seed=0):
    """Whole numbers of spikes, so that sums are exact."""
    generator = np.random.default_rng(seed)
    spikes = {p.name: generator.integers(0, 5, p.shape).astype(float) for p in network.populations}
    return Activity(samples=1, timesteps=network.timesteps, spikes=spikes)


def matrix(network, source, target):
    """[target neurons, source neurons]: whether there is a synapse, by unrolling every connection."""
    shape = next(p.shape for p in network.populations if p.name == source)
    joined = [c for c in network.connections if (c.source, c.target) == (source, target)]
    return np.any([as_dense(c.synapse, shape).weight != 0 for c in joined], axis=0) if joined else None


def by_matrices(network, placement, activity):
    """({(source core, target core): spikes}, [spikes from the input to each core])"""
    tiles = [(layer.name, tile) for layer in placement.layers for tile in layer.tiles()]
    masks = []
    for name, tile in tiles:
        mask = np.zeros(next(p.shape for p in network.populations if p.name == name), bool)
        mask[tile] = True
        masks.append(mask.reshape(-1))
    pairs, outside = {}, np.zeros(len(tiles))
    for target, (name, _) in enumerate(tiles):
        entering = {p.name: matrix(network, p.name, name) for p in network.populations}
        reads = {n: m[masks[target]].any(axis=0) for n, m in entering.items() if m is not None}
        if network.input.name in reads:
            outside[target] = activity.spikes[network.input.name].reshape(-1)[reads[network.input.name]].sum()
        for source, (sender, _) in enumerate(tiles):
            if sender in reads and (sending := reads[sender] & masks[source]).any():
                pairs[source, target] = activity.spikes[sender].reshape(-1)[sending].sum()
    return pairs, outside


def as_pairs(found):
    ends = zip(found.source.tolist(), found.target.tolist(), strict=True)
    return dict(zip(ends, found.spikes.tolist(), strict=True))


def without_zeros(network):
    """Kernels of convolutions without a zero, for scattered zeros are not seen."""
    connections = [
        replace(c, synapse=replace(c.synapse, weight=np.where(c.synapse.weight, c.synapse.weight, 1)))
        if c.synapse.weight.ndim == 4
        else c
        for c in network.connections
    ]
    return replace(network, connections=tuple(connections))


NETWORKS = {
    "chain": int_chain(seed=1),
    "groups": int_chain(seed=2, groups=2),
    "residual": int_residual(seed=3),
    "windows": int_windows(seed=6),
    "loop": int_loop(seed=4),
    "delays": int_loop(seed=5, delays=(0, 2)),
}


@pytest.mark.parametrize("extent", [1, 2, 3, 9])
@pytest.mark.parametrize("name", NETWORKS)
def test_spikes_between_cores_are_those_of_the_unrolled_network(name, extent):
    network = without_zeros(NETWORKS[name])
    placement, activity = cut_into(network, extent), activity_of(network)
    found = traffic(network, placement, activity)
    pairs, outside = by_matrices(network, placement, activity)
    assert as_pairs(found) == pairs
    assert found.from_input.tolist() == outside.tolist()
    assert found.cores == placement.cores == len(outside)
    assert found.total == sum(pairs.values())
    assert list(as_pairs(found)) == sorted(pairs)


@pytest.mark.parametrize("name", NETWORKS)
def test_parts_of_cores_are_all_neurons_once(name):
    network = NETWORKS[name]
    parts = parts_of_cores(cut_into(network, 2))
    assert [len(core) for core in parts] == [1] * cut_into(network, 2).cores
    seen = {p.name: np.zeros(p.shape, int) for p in network.populations[1:]}
    for ((population, tile),) in parts:
        seen[population][tile] += 1
    assert all((counts == 1).all() for counts in seen.values())
    assert [[name for name, _ in core] for core in parts_of_cores(place(network, chip("whole")))] == [
        list(seen)
    ]
    assert parts_of_cores(place(network, chip("unknown"))) == []


def test_scattered_zeros_can_only_add_spikes():
    network, activity = NETWORKS["chain"], activity_of(NETWORKS["chain"])
    placement = cut_into(network, 1)
    found = as_pairs(traffic(network, placement, activity))
    assert all(found[pair] >= spikes for pair, spikes in by_matrices(network, placement, activity)[0].items())


def test_one_core_for_all_sends_to_itself_alone():
    network, activity = NETWORKS["loop"], activity_of(NETWORKS["loop"])
    found = traffic(network, place(network, chip("whole")), activity)
    assert as_pairs(found) == {(0, 0): 2 * activity.spikes["first"].sum()}  # to itself, and to the last
    assert found.from_input.tolist() == [activity.spikes["input"].sum()]


def test_without_cores_there_is_no_traffic():
    network = NETWORKS["loop"]
    assert traffic(network, place(network, chip("unknown")), activity_of(network)) is None


def test_a_spike_takes_a_packet_for_each_axon_where_neurons_have_one_target():
    network, activity = NETWORKS["delays"], activity_of(NETWORKS["delays"])
    plain, copied = (
        place(network, chip("crossbar", core__axon_types=4, **more))
        for more in ({}, {"core__targets_per_neuron": 1})
    )
    assert [layer.cores for layer in plain.layers] == [layer.cores for layer in copied.layers] == [1, 1]
    once, often = as_pairs(traffic(network, plain, activity)), as_pairs(traffic(network, copied, activity))
    first, last = (layer.packets_per_spike for layer in copied.layers)
    assert min(first, last) > 1
    assert often == {(0, 0): first * once[0, 0], (0, 1): last * once[0, 1]}
    # with two delays a neuron sends to axons of their own, as far as it has synapses of each
    sums = [np.sum(activity.spikes["first"][c.synapse.weight.any(axis=0)])
            for c in network.connections if c.target == "last"]  # fmt: skip
    assert once[0, 1] == sum(sums)


def test_measured_activity_gives_traffic():
    network = NETWORKS["chain"]
    inputs = np.random.default_rng(0).integers(0, 8, (3, *network.input.shape))
    activity = measure(network, inputs)
    found = traffic(network, cut_into(network, 9), activity)
    assert as_pairs(found) == pytest.approx(
        {(0, 1): activity.spikes["conv"].sum(), (1, 2): activity.spikes["dense"].sum()}
    )


# ---- chips ------------------------------------------------------------------------------------


def edges(cores, *pairs):
    """Traffic of (source, target, spikes)."""
    source, target, spikes = np.array(sorted(pairs), float).reshape(-1, 3).T
    return Traffic(
        cores=cores,
        source=source.astype(int),
        target=target.astype(int),
        spikes=spikes,
        from_input=np.zeros(cores),
    )


def two_clusters():
    """Even and odd cores, each among themselves; and one weak edge."""
    strong = [(a, b, 10) for a in range(8) for b in range(8) if a != b and a % 2 == b % 2]
    return edges(8, *strong, (2, 5, 1))


def test_two_clusters_are_cut_at_the_weak_edge():
    found = assign_chips(two_clusters(), 8, chip(chip__cores=4))
    assert len(set(found.chip[0::2])) == len(set(found.chip[1::2])) == 1
    assert found.crossings == 1
    assert found.share == pytest.approx(1 / (24 * 10 + 1))
    assert sorted(found.slot[found.chip == 0]) == sorted(found.slot[found.chip == 1]) == [0, 1, 2, 3]


def test_without_metis_the_cut_in_core_order_is_improved(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    found = assign_chips(two_clusters(), 8, chip(chip__cores=4))
    assert (found.crossings, found.method) == (1, CORE_ORDER)


def test_large_partitions_are_cut_by_metis_and_only_repaired(monkeypatch):
    pytest.importorskip("pymetis")
    monkeypatch.setattr("mpbn_deploy.fit.chips.LARGEST", 15)  # 8 cores on 2 chips are 16
    found = assign_chips(two_clusters(), 8, chip(chip__cores=4))
    assert (found.method, found.crossings) == (METIS, 1)


def test_the_repair_of_large_partitions_fills_no_chip_too_much():
    traffic = two_clusters()
    for start in ([0] * 8, [0] * 7 + [1], [1] * 5 + [0] * 3):
        repaired = _repaired(core_graph(traffic, 8), np.array(start), 4)
        assert np.bincount(repaired).tolist() == [4, 4]


def test_simple_partitions_fill_chips_and_greedy_finds_clusters(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from chip_cut import simple_partitions

    cuts = simple_partitions(two_clusters(), 8, 4)
    assert all(np.bincount(chip).tolist() == [4, 4] for chip in cuts.values())
    assert {name: crossings(two_clusters(), chip) for name, chip in cuts.items()}["greedy"] == 1


@pytest.mark.parametrize("network", [int_chain(), int_residual()], ids=["chain", "residual"])
def test_a_spike_crosses_once_to_each_chip(network):
    """Against matrices: a chip receives a spike if any neuron on any of its cores has a synapse from it."""
    placement, activity = cut_into(network, 2), activity_of(network)
    tiles = [(layer.name, tile) for layer in placement.layers for tile in layer.tiles()]
    chip = np.arange(len(tiles)) % 3
    home = {layer.name: np.zeros(layer.shape, int) for layer in placement.layers}
    for number, (name, tile) in zip(chip, tiles, strict=True):
        home[name][tile] = number
    expected = np.zeros((3, 3))
    for source in home:
        for target in range(3):
            read = np.zeros(home[source].size, bool)
            for name, neurons in home.items():
                if (synapses := matrix(network, source, name)) is not None:
                    read |= synapses[neurons.reshape(-1) == target].any(axis=0)
            events = activity.spikes[source].reshape(-1) * read
            expected[:, target] += np.bincount(home[source].reshape(-1), weights=events, minlength=3)
    messages = chip_messages(network, placement, activity, chip, 3)
    assert np.array_equal(messages, expected)
    sent = traffic(network, placement, activity)
    found = assign_chips(sent, sent.cores, load_profile("loihi2")).with_messages(messages)
    assert found.crossings == expected.sum() - np.trace(expected) <= crossings(sent, chip)


def test_metis_finds_what_single_moves_do_not(monkeypatch):
    """Neighbours on a grid whose cores are numbered at random; four squares are cut at 2 * 16 edges."""
    pytest.importorskip("pymetis")
    side = 16
    number = np.random.default_rng(0).permutation(side * side).reshape(side, side)
    across = [(number[y, x], number[y, x + 1], 1) for y in range(side) for x in range(side - 1)]
    down = [(number[y, x], number[y + 1, x], 1) for y in range(side - 1) for x in range(side)]
    grid, profile = edges(side * side, *across, *down), chip(chip__cores=side * side // 4)
    found = assign_chips(grid, side * side, profile)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    moved = assign_chips(grid, side * side, profile)
    assert (found.method, moved.method) == (METIS, CORE_ORDER)
    assert 2 * side <= found.crossings < 0.6 * moved.crossings


@st.composite
def traffics(draw):
    cores = draw(st.integers(1, 24))
    core = st.integers(0, cores - 1)
    pairs = draw(st.dictionaries(st.tuples(core, core), st.integers(0, 50), max_size=80))
    return edges(cores, *((a, b, spikes) for (a, b), spikes in pairs.items()))


@given(found=traffics(), capacity=st.integers(1, 24), metis=st.booleans())
@examples(200)
def test_no_chip_is_too_full_and_the_cut_is_never_worse_than_core_order(found, capacity, metis):
    with pytest.MonkeyPatch.context() as patch:
        if not metis:
            patch.setitem(sys.modules, "pymetis", None)
        placed = assign_chips(found, found.cores, chip(chip__cores=capacity))
        again = assign_chips(found, found.cores, chip(chip__cores=capacity))
    assert placed.chips == -(-found.cores // capacity)
    assert np.bincount(placed.chip, minlength=placed.chips).max() <= capacity
    assert len(placed.chip) == found.cores
    assert len(set(zip(placed.chip.tolist(), placed.slot.tolist(), strict=True))) == found.cores
    assert placed.slot.max() < capacity
    assert (
        placed.crossings
        == crossings(found, placed.chip)
        <= crossings(found, np.arange(found.cores) // capacity)
    )
    assert 0 <= placed.share <= 1
    assert np.array_equal(placed.chip, again.chip)


def test_silent_cores_are_assigned():
    found = assign_chips(edges(19), 19, chip(chip__cores=1))
    assert (found.chips, found.crossings, found.share) == (19, 0, 0)
    assert sorted(found.chip.tolist()) == list(range(19))


def test_one_chip_has_no_crossings():
    found = assign_chips(two_clusters(), 8, chip(chip__cores=8))
    assert (found.chips, found.crossings, found.share, found.method) == (1, 0, 0, CORE_ORDER)
    assert found.chip.tolist() == [0] * 8


@pytest.mark.parametrize(
    ("per_chip", "board", "boards"), [(8, "one", 1), (4, "two", 1), (3, "four", 1), (1, "four", 2)]
)
def test_the_smallest_board_that_holds_the_chips(per_chip, board, boards):
    found = assign_chips(
        two_clusters(), 8, chip(chip__cores=per_chip, systems__four=4, systems__one=1, systems__two=2)
    )
    assert (found.board, found.boards) == (board, boards)


def test_without_boards_or_cores_of_a_chip():
    found = assign_chips(two_clusters(), 8, chip(chip__cores=8))
    assert (found.board, found.boards) == (None, 0)
    with pytest.raises(ProfileError, match=r"chip: the profile lacks chip\.cores"):
        assign_chips(two_clusters(), 8, chip())


# ---- hops -------------------------------------------------------------------------------------


def test_hops_go_along_rows_and_columns():
    """Two cores at each router, three routers in a row: cores 0, 1 | 2, 3 | 4, 5 and below 6, 7 | ..."""
    profile = chip(chip__cores=12, chip__grid_columns=3, chip__grid_rows=2, chip__cores_per_router=2)
    found = edges(8, (0, 1, 100), (0, 2, 10), (5, 6, 1), (7, 7, 1000))
    placed = assign_chips(found, 8, profile)
    assert placed.slot.tolist() == list(range(8))
    assert hops(found, placed, profile) == 10 * 1 + 1 * (2 + 1)


def test_what_crosses_chips_makes_no_hops():
    profile = chip(chip__cores=2, chip__grid_columns=2, chip__grid_rows=1, chip__cores_per_router=1)
    found = edges(4, (0, 1, 5), (2, 3, 7), (0, 3, 1))
    placed = assign_chips(found, 4, profile)
    assert (placed.crossings, hops(found, placed, profile)) == (1, 12)


@pytest.mark.parametrize("key", ["chip__grid_columns", "chip__grid_rows", "chip__cores_per_router"])
def test_without_a_grid_hops_are_not_known(key):
    limits = {"chip__cores": 8, "chip__grid_columns": 2, "chip__grid_rows": 2, "chip__cores_per_router": 2}
    profile = chip(**{name: value for name, value in limits.items() if name != key})
    assert hops(two_clusters(), assign_chips(two_clusters(), 8, chip(**limits)), profile) is None


def test_loihi_2_knows_its_grid():
    profile, network = load_profile("loihi2"), NETWORKS["residual"]
    found = traffic(network, cut_into(network, 3), activity_of(network))
    placed = assign_chips(found, found.cores, profile)
    assert (placed.chips, placed.board, placed.crossings) == (1, "oheo_gulch", 0)
    assert hops(found, placed, profile) is not None
