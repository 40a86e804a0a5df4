"""Placement against what Intel's Loihi 2 compiler printed, and small cases worked by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from networks import int_loop

from mpbn_deploy.graph import Connection, Conv2d, Dense, Population, output_shape
from mpbn_deploy.hardware import HardwareProfile, Limit, load_profile
from mpbn_deploy.int_ir import Input, IntNetwork, Lif
from mpbn_deploy.place import place, row_words, signed_bits, trailing_zeros, weight_bits

LOIHI1, LOIHI2 = load_profile("loihi1"), load_profile("loihi2")
ROWS = {"word_bits": 64, "row_header_bits": 10, "index_bits": 12, "shared_index_bits": 0}


def chip(**core):
    limits = {
        f"core.{key}": Limit(value=value, source="test", basis="derived") for key, value in core.items()
    }
    return HardwareProfile(name="chip", title="chip", description="chip", limits=limits)


def population(name, shape):
    per_channel = (shape[0], *(1 for _ in shape[1:]))
    neuron = Lif(threshold=np.ones(per_channel, int), bias=np.zeros(per_channel, int))
    return Population(name=name, shape=shape, neuron=neuron)


def chain(input_shape, *synapses):
    """A network of layers 1, 2, ... behind an input."""
    populations = [Population(name="0", shape=input_shape, neuron=Input(minimum=0, maximum=1))]
    for number, synapse in enumerate(synapses, start=1):
        populations.append(population(str(number), output_shape(synapse, populations[-1].shape)))
    connections = [
        Connection(source=a.name, target=b.name, synapse=synapse)
        for (a, b), synapse in zip(pairwise(populations), synapses, strict=True)
    ]
    return IntNetwork(populations=tuple(populations), connections=tuple(connections), timesteps=1, scales={})


def weights(*shape, bits=8):
    """Weights without a zero that need just so many bits."""
    filled = np.full(shape, -(2 ** (bits - 1)))
    filled.flat[1::2] = 2 ** (bits - 1) - 1
    return filled


def dense(outputs, inputs, bits=8):
    return Dense(weight=weights(outputs, inputs, bits=bits))


def conv(outputs, inputs, bits, kernel=3, **options):
    return Conv2d(weight=weights(outputs, inputs, kernel, kernel, bits=bits), **options)


def percents(layer, *resources):
    return [f"{100 * layer.use[name] / LOIHI2.value(f'core.{name}'):.2f}" for name in resources]


def test_mnist_perceptron_as_the_compiler_printed_it():
    placement = place(chain((784,), dense(128, 784), dense(64, 128), dense(10, 64)), LOIHI2)
    columns = ("input_axons", "neuron_groups", "neurons", "synapse_words", "axon_map_entries", "total_words")
    assert [[*percents(layer, *columns), layer.cores] for layer in placement.layers] == [
        ["4.90", "12.50", "1.22", "78.40", "0.31", "67.14", 3],
        ["0.80", "12.50", "1.56", "16.80", "0.40", "14.72", 1],
        ["0.40", "12.50", "0.24", "1.60", "0.06", "1.71", 1],
    ]
    assert placement.cores == 5


def test_pilotnet_as_the_compiler_printed_it():
    """lava-dl netx/pilotnet_snn/benchmark.ipynb, weight bits from the ranges in its network.net.

    Not reproduced, as the docstring of `place` says: the words of layers 2 and 3 (864 and 1620),
    and the 12 cores of the older compiler for layer 6.
    """
    half = {"stride": (2, 2)}
    convolutions = [
        conv(24, 3, 5, **half), conv(36, 24, 4, **half), conv(48, 36, 4, **half),
        conv(64, 48, 4, stride=(2, 1), padding=(1, 0)), conv(64, 64, 4),
    ]  # fmt: skip
    layers = [dense(100, 2560, 3), dense(50, 100, 4), dense(10, 50, 5), dense(1, 10, 6)]
    network = chain((3, 66, 200), *convolutions, *layers)
    placed = place(network, LOIHI2).layers
    assert [layer.shape for layer in placed[:5]] == [
        (24, 32, 99), (36, 15, 49), (48, 7, 24), (64, 4, 22), (64, 2, 20)
    ]  # fmt: skip
    assert [layer.tile for layer in placed[:5]] == [
        (24, 32, 4), (36, 15, 4), (48, 7, 8), (64, 4, 8), (64, 2, 16)
    ]  # fmt: skip
    assert [layer.cores for layer in placed[:5]] == [25, 13, 3, 3, 2]
    assert [placed[index].use["synapse_words"] for index in (0, 3, 4, 6, 7, 8)] == [
        81,
        2160,
        2880,
        1300,
        150,
        10,
    ]
    assert [layer.cores for layer in placed[6:]] == [1, 1, 1]
    assert (placed[5].use["input_axons"], placed[5].cores) == (2560, 5)
    # Before the compiler cut layer 6 it complained of 61440 words on one core.
    assert 2560 * row_words(100, 3 + 12, LOIHI2) == 61440


def test_yolo_as_the_compiler_printed_it():
    """lava-dl netx/yolo_kp/run.ipynb; weight bits are those that its row lengths imply."""
    half, same = {"stride": (2, 2), "padding": (1, 1)}, {"padding": (1, 1)}
    network = chain(
        (3, 448, 448),
        conv(16, 3, 5, **half), conv(32, 16, 6, **half), conv(64, 32, 5, **half), conv(128, 64, 5, **half),
        conv(256, 128, 5, **same), conv(256, 256, 4, **half), conv(512, 256, 5, **same),
        conv(256, 512, 5, kernel=1), conv(512, 256, 5, **same), conv(48, 512, 7, kernel=1),
    )  # fmt: skip
    placed = place(network, LOIHI2).layers
    columns = ("input_axons", "neurons", "synapse_words", "axon_map_entries")
    assert [layer.cores for layer in placed] == [224, 112, 56, 28, 56, 16, 32, 14, 32, 4]
    assert {tuple(percents(layer, *columns[:2])) for layer in placed[:-1]} == {("0.01", "87.52")}
    assert percents(placed[-1], *columns) == ["0.01", "65.64", "19.20", "16.80"]
    assert [percents(layer, "synapse_words")[0] for layer in placed] == [
        "0.34", "3.60", "10.80", "39.60", "79.20", "72.00", "86.40", "67.20", "86.40", "19.20"
    ]  # fmt: skip
    assert [layer.use["axon_map_entries"] for layer in placed] == [224, 112, 56, 28, 28, 56, 56, 14, 56, 2688]


def test_loihi1_rows_need_a_header_every_64_weights():
    """nengo-loihi: 784 -> 128 takes 903168 bits, a dense fan-out of 128 takes 1152."""
    layer = place(chain((784,), dense(128, 784)), LOIHI1).layers[0]
    assert layer.use["synapse_words"] * 64 == 903168
    assert [row_words(n, 8, LOIHI1) * 64 for n in (64, 128, 256, 1024)] == [576, 1152, 2304, 9216]


def test_loihi1_convolutions_take_an_axon_per_pixel_in_reach():
    layer = place(chain((2, 6, 5), conv(3, 2, 8)), LOIHI1).layers[0]
    assert (layer.shape, layer.cores, layer.use["input_axons"]) == ((3, 4, 3), 1, 30)
    layer = place(chain((2, 6, 5), conv(3, 2, 8)), chip(neurons=12)).layers[0]
    assert (layer.tile, layer.use["input_axons"]) == ((3, 4, 1), 6 * 3)


@pytest.mark.parametrize(
    ("values", "bits", "zeros"),
    [([-128, 127], 8, 0), ([-8, 8], 2, 3), ([-8, 6], 3, 1), ([0, 0], 1, 0), ([3, 5], 4, 0), ([-1, -1], 1, 0)],
)
def test_weight_bits_leave_common_factors_of_two_out(values, bits, zeros):
    weight = np.array(values, dtype=np.int16)
    assert (weight_bits(weight), trailing_zeros(weight)) == (bits, zeros)


def test_signed_bits_are_the_least_that_hold_a_range():
    for low in range(-9, 1):
        for high in range(9):
            bits = signed_bits(low, high)
            assert -(2 ** (bits - 1)) <= low and high < 2 ** (bits - 1)
            assert bits == 1 or not (-(2 ** (bits - 2)) <= low and high < 2 ** (bits - 2))


def test_zero_weights_are_dropped_where_the_profile_says_so():
    weight = weights(8, 3)
    weight[:, 1] = 0  # no axon, no row
    weight[1:, 2] = 0  # one weight of eight
    network = chain((3,), Dense(weight=weight))
    kept = place(network, chip(**ROWS, zero_weights_stored=1)).layers[0].use
    dropped = place(network, chip(**ROWS, zero_weights_stored=0)).layers[0].use
    assert kept["input_axons"] == dropped["input_axons"] == 2
    assert kept["synapse_words"] == 3 + 3  # ceil((8 * 20 + 10) / 64)
    assert dropped["synapse_words"] == 3 + 1


def test_connections_into_one_population_add_up():
    shape = (2, 4, 4)
    populations = (
        Population(name="input", shape=shape, neuron=Input(minimum=0, maximum=1)),
        population("sum", shape),
    )
    synapses = (conv(2, 2, 8, padding=(1, 1)), dense(32, 32))
    network = IntNetwork(
        populations=populations,
        connections=tuple(Connection(source="input", target="sum", synapse=s) for s in synapses),
        timesteps=1,
        scales={},
    )
    layer = place(network, LOIHI2).layers[0]
    assert layer.use["input_axons"] == 1 + 32
    assert layer.use["synapse_words"] == 18 * 1 + 32 * 11
    assert layer.use["total_words"] == 33 + 1 + 32 + 370 + 32


def test_a_core_holds_only_the_kernels_of_windows_that_it_has_neurons_of():
    shape = (2, 4, 4)
    populations = (
        Population(name="input", shape=shape, neuron=Input(minimum=0, maximum=1)),
        population("sum", shape),
    )
    above, below = (conv(2, 2, 8, padding=(1, 1), silent=(rows, (0, 0))) for rows in ((0, 1), (3, 0)))
    connections = tuple(Connection(source="input", target="sum", synapse=s) for s in (above, below))
    network = IntNetwork(populations=populations, connections=connections, timesteps=1, scales={})
    rows = 2 * 9  # of one word each
    sizes = {**ROWS, "zero_weights_stored": 1}
    whole = place(network, chip(**sizes)).layers[0]
    assert (whole.tile, whole.use["synapse_words"]) == ((2, 4, 4), 2 * rows)
    halves = place(network, chip(**sizes, synapse_words=rows)).layers[0]
    assert halves.tile == (2, 1, 1) and halves.use["synapse_words"] == rows
    # without shared axons a core has one for each pixel that its neurons read
    assert whole.use["input_axons"] == 4 * 4 + 3 * 4


def test_a_position_of_a_kernel_without_weights_has_no_row():
    synapse = conv(2, 2, 8)
    weight = synapse.weight.copy()
    weight[:, :, 2] = 0
    network = chain((2, 4, 4), replace(synapse, weight=weight))
    assert place(network, LOIHI2).layers[0].use["synapse_words"] == 2 * 6


def test_a_group_of_a_convolution_stores_only_its_own_kernels():
    network = chain((4, 3, 3), Conv2d(weight=weights(4, 1, 3, 3), groups=4))
    assert place(network, LOIHI2).layers[0].use["synapse_words"] == 4 * 9


def test_channels_are_halved_only_when_kernels_overflow():
    network = chain((2, 4, 4), conv(8, 2, 8))
    sizes = {**ROWS, "zero_weights_stored": 1}  # 18 rows: 2 words each for 8 channels, 1 for 4
    assert place(network, chip(**sizes, synapse_words=36)).layers[0].tile == (8, 2, 2)
    layer = place(network, chip(**sizes, synapse_words=35)).layers[0]
    assert (layer.tile, layer.cores, layer.use["synapse_words"]) == ((4, 2, 2), 2, 18)


def test_height_is_halved_only_when_one_column_is_too_much():
    network = chain((1, 6, 6), conv(1, 1, 8, kernel=1))
    tiles = {limit: place(network, chip(neurons=limit)).layers[0].tile for limit in (48, 47, 6, 5, 2, 1)}
    assert tiles == {48: (1, 6, 6), 47: (1, 6, 4), 6: (1, 6, 1), 5: (1, 3, 1), 2: (1, 2, 1), 1: (1, 1, 1)}


def test_tiles_cover_every_neuron_once():
    layer = place(chain((1, 6, 6), conv(3, 1, 8, kernel=1)), chip(neurons=20)).layers[0]
    covered = np.zeros(layer.shape, int)
    for tile in layer.tiles():
        covered[tile] += 1
    assert (covered == 1).all()
    assert sum(1 for _ in layer.tiles()) == layer.cores


def test_a_dense_layer_leaves_room_unless_it_cannot():
    network = chain((10,), dense(4, 10))  # rows of 1 word for 1 or 2 neurons, 2 words for 3 or 4
    sizes = {**ROWS, "zero_weights_stored": 1, "dense_fill_percent": 80}
    assert [place(network, chip(**sizes, synapse_words=n)).layers[0].tile for n in (25, 24, 12, 10)] == [
        (4,), (2,), (2,), (2,)
    ]  # fmt: skip


def test_a_layer_that_cannot_be_placed_shows_its_excess():
    for network in (chain((10,), dense(4, 10)), chain((2, 4, 4), conv(8, 2, 8, kernel=4))):
        layer = place(network, chip(input_axons=5)).layers[0]
        assert set(layer.tile) == {1}
        assert layer.use["input_axons"] > 5


def test_without_memory_limits_only_what_is_known_counts():
    layer = place(chain((10,), dense(4, 10)), chip(neurons=3)).layers[0]
    assert (layer.tile, layer.cores) == ((3,), 2)
    assert "synapse_words" not in layer.use and "total_words" not in layer.use
    assert place(chain((10,), dense(4, 10)), chip()).cores == 1


def test_synapses_that_differ_in_their_delay_share_rows():
    """A layer with several delays needs what the same layer without them needs."""
    split, whole = int_loop(delays=(0, 1, 2), loop=False), int_loop(loop=False)
    for left, right in zip(place(split, LOIHI2).layers, place(whole, LOIHI2).layers, strict=True):
        assert (left.cores, left.use) == (right.cores, right.use)
