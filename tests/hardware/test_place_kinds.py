"""Placement on crossbars, on cores of one layer each, on one core for all; and the reach of a tile."""

from dataclasses import replace
from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import int_loop
from properties import examples

from mpbn_deploy.base import ProfileError
from mpbn_deploy.hardware import Allowed, HardwareProfile, Limit, load_profile, profile_names
from mpbn_deploy.hardware.place import (
    WeightRange,
    axons_for_types,
    block_sums,
    capacity,
    competing_layers,
    fewest_axons,
    links,
    match_cores,
    place,
    tiles_of,
)
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
    as_dense,
    count_synapses,
    output_shape,
    synapses_into,
)


def chip(placement, lists=None, **limits):
    """A profile; core__neurons=256 says core.neurons."""
    return HardwareProfile(
        name="chip",
        title="chip",
        description="chip",
        placement=placement,
        limits={
            key.replace("__", "."): Limit(value=value, source=f"book p. {value}", basis="derived")
            for key, value in limits.items()
        },
        lists={
            f"core.{key}": Allowed(values=tuple(values), source="book", basis="derived")
            for key, values in (lists or {}).items()
        },
    )


TRUENORTH = {
    "core__input_axons": 256, "core__neurons": 256, "core__axon_types": 4,
    "core__axon_weight_bits": 9, "core__targets_per_neuron": 1,
}  # fmt: skip


def crossbar(**limits):
    return chip("crossbar", **limits)


def population(name, shape, bias=0, readout=False):
    per_channel = (shape[0], *(1 for _ in shape[1:]))
    biases = np.full(per_channel, bias)
    neuron = Readout(bias=biases) if readout else Lif(threshold=np.ones(per_channel, int), bias=biases)
    return Population(name=name, shape=shape, neuron=neuron)


def network(input_shape, layers, connections):
    """Layers {name: shape} behind "in", and connections (source, target, synapse[, delay])."""
    populations = [Population(name="in", shape=input_shape, neuron=Input(minimum=0, maximum=1))]
    populations += [population(name, shape) for name, shape in layers.items()]
    joined = [
        Connection(source=source, target=target, synapse=synapse, delay=delay[0] if delay else 0)
        for source, target, synapse, *delay in connections
    ]
    return IntNetwork(populations=tuple(populations), connections=tuple(joined), timesteps=1, scales={})


def chain(input_shape, *synapses):
    """Layers a, b, ... one after another."""
    shapes, names = [input_shape], ["in"]
    for name, synapse in zip("abcdefghijkl", synapses, strict=False):
        shapes.append(output_shape(synapse, shapes[-1]))
        names.append(name)
    layers = dict(zip(names[1:], shapes[1:], strict=True))
    return network(input_shape, layers, list(zip(names, names[1:], synapses, strict=False)))


def dense(outputs, inputs, low=-1, high=1):
    """Weights without a zero, from low to high."""
    weight = np.full((outputs, inputs), high)
    weight[:, 0] = low
    return Dense(weight=weight)


def conv(outputs, inputs, kernel=3, low=-1, high=1, **options):
    weight = np.full((outputs, inputs, kernel, kernel), high)
    weight[:, :, 0, 0] = low
    return Conv2d(weight=weight, **options)


# ---- reach ------------------------------------------------------------------------------------


@st.composite
def convolutions(draw, zeros=False):
    """A source shape and a convolution on it, of any geometry."""
    groups = draw(st.integers(1, 2))
    inputs, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3))
    pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, stride, dilation = draw(pairs), draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    sizes = [draw(st.integers(max(1, r - 2 * p), 8)) for r, p in zip(reach, padding, strict=True)]
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    weight = generator.integers(1, 5, (outputs, inputs // groups, *kernel))
    if zeros:
        weight *= generator.random(weight.shape) < 0.3
    synapse = Conv2d(weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    source = (inputs, *sizes)
    return source, replace(synapse, silent=draw(borders(output_shape(synapse, source))))


def borders(target):
    ends = [st.tuples(*2 * [st.integers(0, (size - 1) // 2)]) for size in target[1:]]
    return st.tuples(*ends)


def tiles(shape):
    return st.tuples(*(st.integers(1, size) for size in shape))


def brute_force(found, target, tile):
    """For each tile of a network's only layer, the source neurons with a weight into it, by matrices."""
    shapes = {p.name: p.shape for p in found.populations}
    matrices = [as_dense(c.synapse, shapes[c.source]).weight for c in found.connections]
    joined = np.any([matrix != 0 for matrix in matrices], axis=0).reshape(*target, -1)
    return [
        set(np.flatnonzero(joined[part].reshape(-1, joined.shape[-1]).any(axis=0)))
        for part in tiles_of(target, tile)
    ]


@given(data=st.data(), pair=convolutions())
@examples(150)
def test_the_reach_of_a_tile_is_exact(data, pair):
    source, synapse = pair
    target = output_shape(synapse, source)
    tile = data.draw(tiles(target))
    found = network(source, {"a": target}, [("in", "a", synapse)])
    (link,) = links(found, "a")
    expected = brute_force(found, target, tile)
    sources = list(link.sources(tile))
    assert [set(indices) for indices in sources] == expected
    assert [len(indices) for indices in sources] == [len(neurons) for neurons in expected]
    assert link.counts(tile).reshape(-1).tolist() == [len(neurons) for neurons in expected]
    reading = synapses_into(synapse, source, target) > 0
    assert np.array_equal(reading.reshape(-1), as_dense(synapse, source).weight.any(axis=1))


@given(data=st.data(), pair=convolutions(zeros=True))
@examples(100)
def test_zero_weights_never_hide_a_synapse_and_are_not_counted_as_one(data, pair):
    source, synapse = pair
    target = output_shape(synapse, source)
    tile = data.draw(tiles(target))
    found = network(source, {"a": target}, [("in", "a", synapse)])
    (link,) = links(found, "a")
    for sources, expected in zip(link.sources(tile), brute_force(found, target, tile), strict=True):
        assert expected <= set(sources)
    matrix = as_dense(synapse, source).weight
    assert count_synapses(synapse, source, target) == np.count_nonzero(matrix)
    (flat,) = links(
        network(source, {"a": (prod(target),)}, [("in", "a", Dense(weight=matrix.astype(int)))]), "a"
    )
    (sources,) = flat.sources((prod(target),))
    assert np.array_equal(sources, np.flatnonzero(matrix.any(axis=0)))
    assert count_synapses(Dense(weight=matrix.astype(int)), source, (prod(target),)) == np.count_nonzero(
        matrix
    )


def test_empty_rows_of_taps_and_pairs_of_channels_are_left_out():
    weight = np.zeros((2, 2, 3, 3), int)
    weight[0, 0, 1, 1] = weight[1, 1, 1, 2] = 1
    found = network((2, 4, 4), {"a": (2, 2, 2)}, [("in", "a", Conv2d(weight=weight))])
    (link,) = links(found, "a")
    # channel 0 reads channel 0 alone, in row 1; its column of taps is one of two that channels have together
    assert next(link.sources((1, 1, 1))).tolist() == [5, 6]


@given(data=st.data(), first=convolutions())
@examples(100)
def test_windows_and_other_convolutions_of_one_source_are_taken_together(data, first):
    source, synapse = first
    target = output_shape(synapse, source)
    parts = [replace(synapse, silent=data.draw(borders(target))) for _ in range(data.draw(st.integers(1, 5)))]
    found = network(source, {"a": target}, [("in", "a", part) for part in (synapse, *parts)])
    (link,) = links(found, "a")
    tile = data.draw(tiles(target))
    expected = brute_force(found, target, tile)
    assert [set(sources) for sources in link.sources(tile)] == expected
    assert link.counts(tile).reshape(-1).tolist() == [len(neurons) for neurons in expected]


def test_nine_windows_are_counted_in_no_time():
    ends, target = [(0, 10), (2, 2), (10, 0)], (2, 12, 12)
    windows = [conv(2, 2, silent=silent) for silent in product(ends, ends)]
    found = network((2, 14, 14), {"a": target}, [("in", "a", window) for window in windows])
    (link,) = links(found, "a")
    for tile in (target, (2, 5, 7), (1, 1, 1)):
        assert link.counts(tile).reshape(-1).tolist() == [len(s) for s in brute_force(found, target, tile)]


def test_delays_are_told_apart_only_where_asked():
    found = network((2,), {"a": (2,)}, [("in", "a", dense(2, 2)), ("in", "a", dense(2, 2), 1)])
    assert [link.delay for link in links(found, "a")] == [0]
    assert [link.delay for link in links(found, "a", by_delay=True)] == [0, 1]


@given(shape=st.tuples(st.integers(1, 4), st.integers(1, 7), st.integers(1, 7)), data=st.data())
@examples(50)
def test_sums_over_tiles(shape, data):
    tile, values = data.draw(tiles(shape)), np.arange(prod(shape)).reshape(shape)
    assert block_sums(values, tile).reshape(-1).tolist() == [
        values[part].sum() for part in tiles_of(shape, tile)
    ]


# ---- axons ------------------------------------------------------------------------------------


def signed(low, high):
    return WeightRange(low=low, high=high, signed_levels=max(high, -low - 1) + 1, unsigned_levels=1)


@pytest.mark.parametrize(
    ("bits", "axons"), [(2, 2), (3, 3), (4, 4), (5, 6), (6, 8), (7, 10), (8, 14), (9, 18)]
)
def test_axons_for_weights_of_so_many_bits(bits, axons):
    assert axons_for_types(signed(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), types=4) == axons


@pytest.mark.parametrize(
    ("low", "high"), [(-1, 1), (-2, 1), (-3, 5), (-8, 7), (-7, 7), (-128, 127), (-100, 100)]
)
def test_so_many_axons_give_every_weight_exactly_and_fewer_do_not(low, high):
    axons = axons_for_types(signed(low, high), types=4)
    assert any(set(range(low, high + 1)) <= sums(counts, low) for counts in splits(axons - 1))
    assert not any(prod(r + 1 for r in counts) > max(high, -low - 1) for counts in splits(axons - 2))


def splits(total):
    return [(a, b, total - a - b) for a in range(total + 1) for b in range(total + 1 - a)]


def sums(counts, low):
    """All that a neuron can get: its values are 1, (r1+1), (r1+1)(r2+1), and `low` once."""
    values = np.cumprod([1, *(r + 1 for r in counts[:2])])
    digits = {
        sum(m * v for m, v in zip(chosen, values, strict=True)) for chosen in product(*map(_upto, counts))
    }
    return digits | {low + digit for digit in digits}


def _upto(count):
    return range(count + 1)


def test_weights_of_one_sign_use_all_kinds():
    plain = WeightRange(low=0, high=15, signed_levels=1, unsigned_levels=16)
    assert axons_for_types(plain, types=4) == 4  # 1, 2, 4, 8
    assert axons_for_types(replace(plain, low=-1, signed_levels=2), types=4) == 4  # 1, 2, 4, and 8 or -1
    assert fewest_axons(1, 4) == 0


# ---- crossbars --------------------------------------------------------------------------------


def test_a_dense_layer_takes_one_core_for_each_256_outputs():
    """128 inputs with ternary weights fill 256 axons; the readers of "a" are none."""
    (layer,) = place(chain((128,), dense(600, 128)), crossbar(**TRUENORTH)).layers
    assert (layer.tile, layer.cores, layer.packets_per_spike) == ((200,), 3, 2)
    assert (layer.lower_bound, layer.by_tool) == (3, False)
    assert layer.use == {"input_axons": 256, "neurons": 200, "copies": 0}


def test_one_input_too_many_does_not_fit_exactly():
    placement = place(chain((129,), dense(256, 129)), crossbar(**TRUENORTH))
    (problem,) = placement.problems
    assert problem.where == "a"
    assert problem.message == (
        "does not fit exactly: a neuron needs 258 axons (129 inputs, 2 axons each for weights -1..1); "
        "a core of chip has 256 (book p. 256), and partial sums cannot leave a core. "
        "Even 2-bit weights would need 258, unless many are zero; "
        "use at most 128 inputs per neuron: smaller kernels, groups or fewer channels."
    )
    assert placement.layers[0].use["input_axons"] == 258
    assert placement.cores == 1


@pytest.mark.parametrize(("inputs", "bits"), [(19, 7), (30, 6), (64, 4), (85, 3), (128, 2)])
def test_the_remedy_names_the_bits_that_fit_and_they_do(inputs, bits):
    (problem,) = place(chain((inputs,), dense(4, inputs, -128, 127)), crossbar(**TRUENORTH)).problems
    assert problem.message.endswith(f" Weights of {bits} bits would fit.")
    fewer = dense(4, inputs, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert place(chain((inputs,), fewer), crossbar(**TRUENORTH)).problems == ()


def test_convolutions_are_unrolled_into_tiles_that_fit():
    """4 x 4 pixels of two channels read 6 x 6 pixels of one: 36 of 40 axons."""
    profile = crossbar(core__input_axons=40, core__neurons=32)
    (layer,) = place(chain((1, 10, 10), conv(2, 1)), profile).layers
    assert (layer.shape, layer.tile, layer.cores) == ((2, 8, 8), (2, 4, 4), 4)
    assert layer.use == {"input_axons": 36, "neurons": 32}
    assert layer.packets_per_spike == 1


@given(pair=convolutions(), axons=st.integers(4, 60), neurons=st.integers(1, 30))
@examples(60)
def test_no_tiling_of_equal_parts_has_fewer_cores(pair, axons, neurons):
    source, synapse = pair
    target = output_shape(synapse, source)
    found = network(source, {"a": target}, [("in", "a", synapse)])
    placement = place(found, crossbar(core__input_axons=axons, core__neurons=neurons))
    (layer,) = placement.layers
    fitting = [
        prod(-(-size // extent) for size, extent in zip(target, tile, strict=True))
        for tile in product(*({-(-size // parts) for parts in range(1, size + 1)} for size in target))
        if prod(tile) <= neurons and max(map(len, brute_force(found, target, tile))) <= axons
    ]
    assert bool(fitting) == (not placement.problems)
    if fitting:
        assert layer.cores == min(fitting)
        assert layer.use["input_axons"] == max(map(len, brute_force(found, target, layer.tile)))


def test_a_core_of_unknown_size_holds_everything():
    (layer,) = place(chain((1, 10, 10), conv(2, 1)), crossbar()).layers
    assert (layer.cores, layer.use) == (1, {"input_axons": 100, "neurons": 128})


def test_rows_of_one_sign_are_doubled_only_for_both():
    profile = crossbar(core__input_axons=256, core__axons_per_signed_input=2)
    both, one = (place(chain((128,), dense(4, 128, low, 63)), profile).layers[0] for low in (-63, 1))
    assert (both.use["input_axons"], one.use["input_axons"]) == (256, 128)
    (problem,) = place(chain((129,), dense(4, 129, -63, 63)), profile).problems
    assert "258 axons (129 inputs, 2 axons each for weights -63..63)" in problem.message
    assert problem.message.endswith(
        "Use at most 128 inputs per neuron: smaller kernels, groups or fewer channels."
    )


def test_an_input_after_another_delay_is_another_input():
    late = network((8,), {"a": (4,)}, [("in", "a", dense(4, 8)), ("in", "a", dense(4, 8), 1)])
    assert place(late, crossbar()).layers[0].use["input_axons"] == 16


def test_common_factors_of_a_neuron_cost_no_axons():
    weight = np.array([[5, -5, 0], [7, 0, 7]])
    (layer,) = place(chain((3,), Dense(weight=weight)), crossbar(core__axon_types=4)).layers
    assert layer.use["input_axons"] == 3 * 2
    (layer,) = place(chain((3,), Dense(weight=np.abs(weight))), crossbar(core__axon_types=4)).layers
    assert layer.use["input_axons"] == 3


def test_connections_with_different_exponents_share_the_values_of_a_neuron():
    synapses = [Dense(weight=np.array([[1]])), Dense(weight=np.array([[1]]), exponent=3)]
    found = network((1,), {"a": (1,), "b": (1,)}, [("in", "a", synapses[0]), ("in", "b", synapses[0]),
                                                   ("a", "b", synapses[1])])  # fmt: skip
    a, b = place(found, crossbar(core__axon_types=4)).layers
    assert (a.use["input_axons"], b.use["input_axons"]) == (
        1,
        2 * 4,
    )  # 0..8 needs 3 * 2 * 2 * 1 levels, or more


def test_values_that_do_not_hold_the_weights_are_a_problem():
    (problem,) = place(chain((2,), dense(2, 2, -301, 301)), crossbar(**TRUENORTH)).problems
    assert problem.message == (
        "weights -301..301 need 10 bits; axon values of chip have 9 (book p. 9). Quantize to fewer bits."
    )
    one = crossbar(**{**TRUENORTH, "core__axon_types": 1})
    (problem,) = place(chain((2,), dense(2, 2)), one).problems
    assert "has a single axon value (book p. 1), so one sign only" in problem.message


def test_neurons_with_one_target_are_copied_for_every_axon_that_reads_them():
    """Ten neurons, each read with two axons by all of three cores: six neurons for each."""
    profile = crossbar(**{**TRUENORTH, "core__neurons": 20})
    first, second = place(chain((4,), dense(10, 4), dense(60, 10)), profile).layers
    assert (second.cores, second.use) == (3, {"input_axons": 20, "neurons": 20, "copies": 0})
    assert (first.tile, first.cores) == ((3,), 4)
    assert first.use == {"input_axons": 8, "neurons": 18, "copies": 15}
    free = crossbar(core__neurons=20, core__axon_types=4)
    assert [layer.cores for layer in place(chain((4,), dense(10, 4), dense(60, 10)), free).layers] == [1, 3]
    two = crossbar(**{**TRUENORTH, "core__neurons": 20, "core__targets_per_neuron": 2})
    assert place(chain((4,), dense(10, 4), dense(60, 10)), two).layers[0].use["copies"] == 10


def test_copies_count_only_where_a_neuron_is_read():
    """A 3 x 3 convolution on two cores side by side: the two columns between them are read by both."""
    profile = crossbar(core__neurons=30, core__input_axons=45, core__targets_per_neuron=1)
    first, second = place(chain((1, 5, 8), conv(1, 1, kernel=1), conv(2, 1, padding=(1, 1))), profile).layers
    assert (second.shape, second.tile) == ((2, 5, 8), (2, 5, 3))
    assert second.use["input_axons"] == 25
    # columns 2, 3, 5 and 6 of five rows are read twice
    assert first.cores == 2
    assert first.use == {"input_axons": 20, "neurons": 30, "copies": 10}


def test_more_copies_than_a_core_has_neurons_are_a_problem():
    profile = crossbar(**{**TRUENORTH, "core__neurons": 5})
    placement = place(chain((4,), dense(3, 4), dense(15, 3)), profile)
    (problem,) = placement.problems
    assert problem.where == "a"
    assert problem.message.startswith(
        "a neuron needs 6 copies to reach all axons that read it; a neuron of chip reaches 1 (book p. 1), "
        "and a core has 5 neurons (book p. 5). "
    )


def test_a_layer_that_does_not_fit_asks_for_no_copies():
    placement = place(chain((4,), dense(200, 4), dense(10, 200)), crossbar(**TRUENORTH))
    assert [problem.where for problem in placement.problems] == ["b"]
    assert placement.layers[0].use["copies"] == 0


def test_feedback_is_placed_until_copies_settle():
    found = int_loop()
    profile = crossbar(core__neurons=64, core__targets_per_neuron=1)
    placement = place(found, profile)
    assert placement.problems == ()
    placed = {layer.name: layer for layer in placement.layers}
    reached = {name: np.zeros(prod(layer.shape), int) for name, layer in placed.items()}
    for layer in placement.layers:
        for link in links(found, layer.name, by_delay=True):
            for neurons in link.sources(layer.tile):
                if link.source in reached:
                    reached[link.source][neurons] += 1
    for name, layer in placed.items():
        needs = np.maximum(reached[name], 1).reshape(layer.shape)
        assert layer.use["neurons"] == block_sums(needs, layer.tile).max() <= 64
        assert layer.use["copies"] == block_sums(needs - 1, layer.tile).max()
    assert any(layer.use["copies"] for layer in placement.layers)


def test_copies_that_do_not_settle_are_a_problem(monkeypatch):
    monkeypatch.setattr("mpbn_deploy.hardware.place.crossbar.MAX_PASSES", 1)
    (problem,) = place(int_loop(), crossbar(**TRUENORTH)).problems
    assert problem.where == "network"
    assert problem.message.startswith("no placement found in 1 attempts: with feedback, ")


# ---- cores of one layer each ------------------------------------------------------------------

SPECK = load_profile("speck")


def test_words_of_the_example_in_the_documentation_of_sinabs():
    """docs/speck/overview.md: 16 -> 32 channels, 3x3, maps of 64 x 64: 8 Ki and 128 Ki, which is too much."""
    placement = place(chain((16, 64, 64), conv(32, 16, padding=(1, 1))), SPECK)
    (layer,) = placement.layers
    assert layer.use == {"kernel_words": 8 * 1024, "neuron_words": 128 * 1024, "bias_words": 0}
    assert layer.core is None
    (problem,) = placement.problems
    assert (problem.where, problem.message) == (
        "a",
        "131072 neuron words; cores of speck have at most 65536 "
        "(sinabs backend/dynapcnn/chips/dynapcnn.py:313-323). "
        "Use fewer channels, smaller kernels or smaller maps.",
    )


def test_words_are_rounded_up_to_powers_of_two():
    found = chain((3, 10, 9), conv(5, 3), dense(7, 5 * 8 * 7), dense(3, 7))
    first, second, third = place(found, SPECK).layers
    assert first.use == {"kernel_words": 3 * 16 * 8, "neuron_words": 5 * 8 * 8, "bias_words": 0}
    assert second.use == {"kernel_words": 5 * 64 * 8, "neuron_words": 7, "bias_words": 0}  # a kernel of 8 x 7
    assert third.use == {"kernel_words": 7 * 1 * 4, "neuron_words": 3, "bias_words": 0}  # a kernel of 1 x 1
    assert (first.cores, first.tile) == (1, first.shape)


def with_bias(found, name, bias):
    changed = [
        replace(p, neuron=replace(p.neuron, bias=bias)) if p.name == name else p for p in found.populations
    ]
    return replace(found, populations=tuple(changed))


def test_biases_take_words_where_there_are_any_and_are_one_for_each_channel():
    found = chain((1, 4, 4), conv(2, 1))
    channel = place(with_bias(found, "a", np.array([0, 3]).reshape(2, 1, 1)), SPECK)
    assert (channel.layers[0].use["bias_words"], channel.problems) == (2, ())
    (problem,) = place(with_bias(found, "a", np.arange(8).reshape(2, 2, 2)), SPECK).problems
    assert problem.message.startswith("biases differ within a channel; a core has one bias per channel. ")


def test_a_core_has_one_convolution_which_several_sources_may_use():
    layers = {"a": (2, 4, 4), "b": (2, 4, 4), "c": (2, 4, 4)}
    ways = [("in", "a", conv(2, 1, 1)), ("a", "b", conv(2, 2, 1)), ("b", "c", conv(2, 2, 1))]
    same = place(network((1, 4, 4), layers, [*ways, ("a", "c", conv(2, 2, 1))]), SPECK)
    assert same.problems == ()
    other = place(network((1, 4, 4), layers, [*ways, ("a", "c", conv(2, 2, 1, low=2))]), SPECK)
    assert other.layers[2].use["kernel_words"] == 2 * same.layers[2].use["kernel_words"]
    (problem,) = other.problems
    assert (problem.where, problem.message) == (
        "c",
        "2 different incoming synapses (b->c, a->c); a core has one convolution. Use a single synapse.",
    )


def test_layers_get_cores_that_hold_them():
    """32 Ki words of kernels fit cores 3 to 6 alone, 64 Ki of neurons cores 0 to 2 alone."""
    found = chain((1, 32, 32), conv(64, 1, padding=(1, 1)), conv(64, 64, 4, stride=(4, 4)), conv(64, 64))
    layers = place(found, SPECK).layers
    assert [layer.use["kernel_words"] // 1024 for layer in layers] == [1, 64, 64]
    assert [layer.use["neuron_words"] // 1024 for layer in layers] == [64, 4, 4]
    assert (layers[0].core in (0, 1, 2), {layers[1].core, layers[2].core}) == (True, {5, 6})


def test_no_core_has_enough_of_all_memories():
    profile = chip("layers", {"kernel_words": [64, 16], "neuron_words": [4, 64]})
    (problem,) = place(chain((1, 4, 4), conv(2, 1)), profile).problems
    assert problem.message.startswith(
        "32 kernel words, 8 neuron words; cores of chip have at most 64 (book), 64 (book), "
        "but no core has enough of all. "
    )


def test_layers_that_compete_for_too_few_cores_are_named():
    profile = chip("layers", {"kernel_words": [64, 8, 64, 8]})
    found = chain((1, 8, 8), conv(2, 1), *(conv(2, 2) for _ in range(2)), conv(2, 2, 1))
    placement = place(found, profile)
    assert [layer.use["kernel_words"] for layer in placement.layers] == [32, 64, 64, 4]
    (problem,) = placement.problems
    assert problem.where == "c"
    assert problem.message == (
        "no core left: 3 layers (a, b, c) compete for cores 0, 2 of chip. Use fewer or smaller layers."
    )
    assert [layer.core is None for layer in placement.layers] == [False, False, True, False]


def test_a_tenth_layer_finds_no_core():
    placement = place(chain((1, 12, 12), conv(2, 1, 1), *(conv(2, 2, 1) for _ in range(9))), SPECK)
    (problem,) = placement.problems
    assert (
        "10 layers (a, b, c, d, e, f, g, h, i, j) compete for cores 0, 1, 2, 3, 4, 5, 6, 7, 8"
        in problem.message
    )
    assert sorted(layer.core for layer in placement.layers if layer.core is not None) == list(range(9))


@given(holding=st.lists(st.lists(st.integers(0, 4), unique=True), max_size=6))
@examples(200)
def test_a_matching_is_as_large_as_can_be_and_rivals_prove_it(holding):
    chosen = match_cores(holding)
    assert all(core in holding[layer] for layer, core in chosen.items())
    assert len(set(chosen.values())) == len(chosen)
    for layer in range(len(holding)):
        if layer not in chosen:
            layers, cores = competing_layers(layer, holding, chosen)
            assert layer in layers
            assert {core for rival in layers for core in holding[rival]} == set(cores)
            assert len(cores) == len(layers) - 1


def test_memories_that_are_not_known_hold_everything():
    placement = place(chain((1, 40, 40), conv(64, 1)), chip("layers"))
    assert (placement.problems, placement.layers[0].core) == ((), 0)
    assert place(chain((1, 4, 4), conv(2, 1), conv(2, 2, 1)), chip("layers", chip__cores=1)).problems


def test_lists_of_cores_must_agree():
    with pytest.raises(
        ProfileError, match=r"core.kernel_words has 2, core.bias_words has 1 entries; each list needs one"
    ):
        place(chain((1, 4, 4), conv(2, 1)), chip("layers", {"kernel_words": [9, 9], "bias_words": [9]}))


# ---- one core for all -------------------------------------------------------------------------


def test_the_whole_network_shares_one_core():
    weight = np.array([[1, 0, 2], [0, 0, 3]])
    found = chain((4,), dense(3, 4), Dense(weight=weight), dense(5, 2))
    placement = place(found, chip("whole"))
    assert (placement.cores, placement.lower_bound, placement.problems) == (1, 1, ())
    assert placement.totals == {"inputs": 4, "hidden": 5, "outputs": 5, "synapses": 3}
    assert [layer.use for layer in placement.layers] == [
        {"hidden": 3, "synapses": 0},
        {"hidden": 2, "synapses": 3},
        {"outputs": 5},
    ]


def test_synapses_of_convolutions_and_of_loops_count():
    found = chain((1, 4, 4), conv(2, 1, 1), conv(1, 2, padding=(1, 1)), dense(2, 16))
    assert place(found, chip("whole")).totals["synapses"] == 2 * (4 * 3 - 2) ** 2  # rows 3 + 4 + 3 of taps
    loop = int_loop()
    again = next(c.synapse.weight for c in loop.connections if c.delay)
    assert place(loop, chip("whole")).totals["synapses"] == np.count_nonzero(again)


@pytest.mark.parametrize(("middle", "fits"), [(5, True), (6, False)])
def test_neurons_that_read_the_input_and_are_read_lie_near_both_ends(middle, fits):
    """3 read the input and are read, among 3 + middle: 6 + middle <= 6 + 5 holds up to 5."""
    found = network(
        (2,),
        {"a": (3,), "b": (middle,), "out": (1,)},
        [("in", "a", dense(3, 2)), ("a", "b", dense(middle, 3)), ("a", "out", dense(1, 3)),
         ("b", "a", dense(3, middle), 1)],
    )  # fmt: skip
    placement = place(found, chip("whole", network__input_reach=6, network__output_reach=5))
    assert (placement.problems == ()) == fits
    if not fits:
        assert placement.problems[0].where == "out"
        assert placement.problems[0].message == (
            "3 of 9 hidden neurons (a) read the input and are read by the output; on chip they must be among "
            "the first 6 (book p. 6) and the last 5 (book p. 5), which allows 8 hidden neurons. "
            "Let different neurons read the input and feed the output."
        )


@given(
    sizes=st.tuples(*4 * [st.integers(0, 3)]), first=st.integers(0, 6), last=st.integers(0, 6)
)  # fmt: skip
@examples(200)
def test_the_condition_for_both_ends_is_that_some_order_exists(sizes, first, last):
    """Of neurons that do both, only the first, only the last, or neither, by looking at all orders."""
    both, reading, read, neither = sizes
    kinds = ["both"] * both + ["reading"] * reading + ["read"] * read + ["neither"] * neither
    stated = (
        both + reading <= first and both + read <= last and (both == 0 or len(kinds) + both <= first + last)
    )
    assert stated == some_order(both, reading, read, neither, first, last)


def some_order(both, reading, read, neither, first, last):
    count = both + reading + read + neither
    places = range(count)
    near, far = [p for p in places if p < first], [p for p in places if p >= count - last]
    common = [p for p in near if p in far]
    return any(
        len([p for p in near if p not in taken]) >= reading
        and len([p for p in far if p not in taken]) >= read
        and len([p for p in places if p not in taken and (p in near or p in far)]) >= reading + read
        for taken in combinations(common, both)
    )


def test_inputs_do_not_reach_outputs_and_outputs_do_not_return():
    straight = place(chain((2,), dense(3, 2)), chip("whole"))
    assert [problem.where for problem in straight.problems] == ["in->a"]
    ways = [("in", "a", dense(2, 2)), ("a", "out", dense(1, 2)), ("out", "a", dense(2, 1), 1)]
    back = place(network((2,), {"a": (2,), "out": (1,)}, ways), chip("whole"))
    assert [problem.where for problem in back.problems] == ["out->a"]


# ---- how much there is ------------------------------------------------------------------------


def test_a_layer_is_compared_with_its_own_core():
    found = chain((1, 32, 32), conv(64, 1, padding=(1, 1)), conv(64, 64, 4, stride=(4, 4)))
    first, second = place(found, SPECK).layers
    assert capacity("neuron_words", first, SPECK) == 64 * 1024
    assert capacity("kernel_words", second, SPECK) == 64 * 1024
    assert capacity("neuron_words", second, SPECK) == 16 * 1024
    assert capacity("kernel_words", replace(first, core=None), SPECK) == 64 * 1024
    assert capacity("kernel_words", first, chip("layers")) is None


def test_capacities_of_a_network_and_of_a_crossbar():
    layer = place(chain((2,), dense(3, 2)), crossbar(**TRUENORTH)).layers[0]
    profile = chip("whole", network__hidden_maximum=992, core__neurons=7)
    assert [capacity(name, layer, profile) for name in ("hidden", "outputs", "neurons")] == [992, None, 7]
    assert capacity("input_axons", layer, crossbar(**TRUENORTH)) == 256
    assert capacity("copies", layer, crossbar(**TRUENORTH)) is None  # they are among the neurons


# ---- cores that are not known, and chips that are ----------------------------------------------


def test_where_cores_are_not_known_nothing_is_said_of_them():
    placement = place(chain((2,), dense(3, 2), dense(1, 3)), chip("unknown"))
    assert (placement.cores, placement.lower_bound, placement.problems) == (None, None, ())
    assert [(layer.name, layer.tile, layer.use) for layer in placement.layers] == [
        ("a", (3,), {}),
        ("b", (1,), {}),
    ]


@pytest.mark.parametrize("name", profile_names())
def test_every_chip_of_ours_places_a_small_network(name):
    profile = load_profile(name)
    found = chain((1, 6, 6), conv(2, 1), dense(10, 32))
    placement = place(found, profile)
    assert placement.problems == ()
    assert [layer.name for layer in placement.layers] == ["a", "b"]
    known = {"unknown": None, "whole": 1, "program": 1, "fabric": 1}
    assert placement.cores == known.get(profile.placement, 2)
