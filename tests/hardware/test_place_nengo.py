"""Placement on Loihi 1 against nengo-loihi's own blocks: what each core needs, with equality.

Layers become nengo-loihi blocks with the weights of its own `conv2d_loihi_weights`, and its `split_model`
cuts them. It numbers neurons of a map row by row, column by column, channel by channel.
"""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from properties import examples

from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place, row_words
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, output_shape

if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
    pytest.skip("nengo-loihi 1.1.0 makes its blocks with NumPy 1 only", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of versions of nengo that it does not know
    pytest.importorskip("nengo_loihi", reason="nengo-loihi is not installed")
    import nengo
    from nengo_loihi.block import Axon, LoihiBlock, Synapse
    from nengo_loihi.builder import Model
    from nengo_loihi.builder.split_blocks import split_model
    from nengo_loihi.config import BlockShape
    from nengo_loihi.conv import channel_idxs, conv2d_loihi_weights, pixel_idxs
    from nengo_loihi.inputs import SpikeInput

pytestmark = pytest.mark.interop
LOIHI1 = load_profile("loihi1")


def chain(input_shape, *synapses):
    shapes = [input_shape]
    for synapse in synapses:
        shapes.append(output_shape(synapse, shapes[-1]))
    neurons = [Input(minimum=0, maximum=1)]
    for shape in shapes[1:]:
        one = (shape[0], *(1 for _ in shape[1:]))
        neurons.append(Lif(threshold=np.ones(one, int), bias=np.zeros(one, int)))
    populations = tuple(
        Population(name=str(number), shape=shape, neuron=neuron)
        for number, (shape, neuron) in enumerate(zip(shapes, neurons, strict=True))
    )
    connections = tuple(
        Connection(source=a.name, target=b.name, synapse=synapse)
        for (a, b), synapse in zip(pairwise(populations), synapses, strict=True)
    )
    return IntNetwork(populations=populations, connections=connections, timesteps=1, scales={})


def random_weights(seed, *shape):
    """Of eight bits, without a zero."""
    generator = np.random.default_rng(seed)
    return generator.integers(1, 128, shape) * generator.choice([-1, 1], shape)


def dense(seed, outputs, inputs):
    return Dense(weight=random_weights(seed, outputs, inputs))


def conv(seed, outputs, inputs, kernel, stride=1, padding=0):
    weight = random_weights(seed, outputs, inputs, *kernel)
    return Conv2d(weight=weight, stride=(stride, stride), padding=(padding, padding))


def last_channels(values, shape):
    """From our order of neurons, channels first, to theirs."""
    return np.moveaxis(values.reshape(shape), 0, -1).ravel() if len(shape) == 3 else values


def transform_of(synapse, source):
    """A convolution of nengo; it pads either not at all or until sizes divided by the stride are kept."""
    channels, height, width = source
    filters, _, *kernel = synapse.weight.shape
    shape = nengo.transforms.ChannelShape((height, width, channels), channels_last=True)
    transform = nengo.Convolution(
        filters,
        shape,
        strides=synapse.stride,
        kernel_size=tuple(kernel),
        padding="same" if any(synapse.padding) else "valid",
        init=np.transpose(synapse.weight, (2, 3, 1, 0)).astype(float),
    )
    expected = output_shape(synapse, source)
    assert transform.output_shape.shape == (*expected[1:], expected[0])
    return transform


def connect(synapse, source, before, after):
    """A synapse of ours between two blocks."""
    if isinstance(synapse, Dense):
        order = last_channels(np.arange(np.prod(source)), source)
        made = Synapse(len(order))
        made.set_weights(synapse.weight.T[order].astype(float))
        axon = Axon(len(order))
    else:
        transform = transform_of(synapse, source)
        made = Synapse(np.prod(transform.input_shape.spatial_shape))
        made.set_population_weights(*conv2d_loihi_weights(transform))
        axon = Axon(made.n_axons)
        axon.set_compartment_axon_map(
            pixel_idxs(transform.input_shape), atoms=channel_idxs(transform.input_shape)
        )
    axon.target = made
    after.add_synapse(made)
    before.add_axon(axon)


def nengo_blocks(network, placement=None):
    """Per population, nengo-loihi's blocks; cut to the tiles of a placement, or as it does by itself."""
    shapes = {p.name: p.shape for p in network.populations}
    blocks = {p.name: LoihiBlock(p.size) for p in network.populations[1:]}
    first = SpikeInput(network.input.size)
    for connection in network.connections:
        before = blocks.get(connection.source, first)
        connect(connection.synapse, shapes[connection.source], before, blocks[connection.target])
    model = Model()
    for block in blocks.values():
        model.add_block(block)
    for layer in placement.layers if placement else ():
        if layer.cores > 1:
            tile, shape = ((*sizes[1:], sizes[0]) for sizes in (layer.tile, layer.shape))
            model.block_shapes[blocks[layer.name]] = BlockShape(tile, shape)
    model.add_input(first)
    made = split_model(model)
    return {name: list(made[block]) for name, block in blocks.items()}


def needs(block):
    """Neurons, axons in, axons out, words of synapses."""
    bits = sum(synapse.bits() for synapse in block.synapses)
    assert bits % 64 == 0
    axons_in = sum(synapse.n_axons for synapse in block.synapses)
    return block.n_neurons, axons_in, sum(axon.axon_slots() for axon in block.axons), bits // 64


def our_needs(layer):
    """The same of our cores, in nengo-loihi's order of them."""
    names = ("neurons", "input_axons", "axon_map_entries", "synapse_words")
    found = [
        (tuple(axis.start for axis in (*tile[1:], tile[0])), tuple(use[name] for name in names))
        for tile, use in layer.uses()
    ]
    return [use for _, use in sorted(found)]


def assert_same_needs(network, **options):
    placement = place(network, LOIHI1, **options)
    blocks = nengo_blocks(network, placement)
    for layer in placement.layers:
        assert our_needs(layer) == [needs(block) for block in blocks[layer.name]], layer.name
    return placement


@pytest.mark.parametrize(
    "sizes", [(20, 12, 5), (784, 128, 10), (100, 1500, 30), (300, 700, 1100, 7), (600, 900, 300), (4000, 40)]
)
def test_dense_layers_are_cut_just_as_nengo_loihi_cuts_them(sizes):
    synapses = [dense(seed, b, a) for seed, (a, b) in enumerate(pairwise(sizes))]
    network = chain((sizes[0],), *synapses)
    placement, blocks = place(network, LOIHI1), nengo_blocks(network)
    for layer in placement.layers:
        assert layer.by_tool
        assert our_needs(layer) == [needs(block) for block in blocks[layer.name]]


@pytest.mark.parametrize(
    ("shape", "synapses"),
    [
        ((1, 8, 8), [(4, 1, (3, 3), 1, 0), (4, 4, (3, 3), 2, 0)]),
        ((2, 12, 12), [(8, 2, (3, 3), 1, 1), (8, 8, (1, 1), 2, 0)]),
        ((3, 16, 16), [(16, 3, (3, 3), 1, 1), (8, 16, (5, 5), 2, 0), (8, 8, (2, 2), 2, 0)]),
        ((2, 17, 13), [(6, 2, (3, 3), 2, 1), (20, 6, (3, 3), 1, 1)]),
        ((4, 20, 20), [(24, 4, (5, 5), 1, 2), (4, 24, (4, 4), 3, 0)]),
        ((1, 28, 28), [(10, 1, (5, 5), 1, 0), (20, 10, (3, 3), 3, 0)]),
        ((3, 9, 30), [(40, 3, (3, 3), 1, 1), (32, 40, (1, 1), 1, 0)]),
        ((32, 6, 6), [(64, 32, (3, 3), 1, 1), (64, 64, (3, 3), 1, 1)]),
    ],
)
@pytest.mark.parametrize("tiling", ["compiler", "best"])
def test_maps_need_on_each_core_what_nengo_loihi_says(shape, synapses, tiling):
    network = chain(shape, *(conv(seed, *values) for seed, values in enumerate(synapses)))
    size = network.output.size
    whole = chain(shape, *(c.synapse for c in network.connections), dense(9, 10, size))
    placement = assert_same_needs(whole, tiling=tiling)
    for layer in placement.layers:
        assert layer.lower_bound <= layer.cores


def test_maps_are_cut_in_as_many_parts_where_nengo_loihi_cuts_between_rows():
    """16 rows of 16 columns and 16 channels: four parts of 1024 neurons, four rows each."""
    network = chain((2, 16, 16), conv(0, 16, 2, (3, 3), 1, 1))
    layer = place(network, LOIHI1).layers[0]
    assert (layer.tile, layer.cores, layer.by_tool) == ((16, 4, 16), 4, True)
    assert our_needs(layer) == [needs(block) for block in nengo_blocks(network)["1"]]


def test_a_part_that_is_no_box_is_made_smaller():
    """9 x 10 x 30 neurons: nengo-loihi cuts 3 parts of 900, amid a pixel; we cut whole rows of 300."""
    network = chain((1, 10, 30), conv(0, 9, 1, (3, 3), 1, 1))
    assert [block.n_neurons for block in nengo_blocks(network)["1"]] == [900, 900, 900]
    layer = place(network, LOIHI1).layers[0]
    assert (layer.tile, layer.cores) == ((9, 3, 30), 4)


def test_where_a_part_overflows_we_cut_on():
    """64 kernels of 64 channels fill a core's synapses twice over for any tile of two pixels or more."""
    network = chain((64, 8, 8), conv(0, 64, 64, (3, 3), 1, 1))
    blocks = nengo_blocks(network)["1"]
    assert max(needs(block)[3] for block in blocks) > LOIHI1.value("core.synapse_words")
    layer = assert_same_needs(network).layers[0]
    assert not layer.by_tool
    assert layer.use["synapse_words"] <= LOIHI1.value("core.synapse_words")


def test_a_cut_layer_stores_equal_rows_once():
    weight = np.tile(random_weights(0, 2000, 3), (1, 200))
    network = chain((600,), Dense(weight=weight))
    layer = assert_same_needs(network).layers[0]
    assert layer.use["synapse_words"] == 3 * row_words(layer.tile[0], 8, LOIHI1)


@examples(25)
@given(st.data())
def test_any_layers_need_what_nengo_loihi_says(data):
    """Two convolutions and a dense layer of any sizes, in tiles of the compiler's choice."""
    whole = st.integers(1, 6)
    channels, middle, filters = (data.draw(whole) for _ in range(3))
    height, width = (data.draw(st.integers(6, 14)) for _ in range(2))
    first = conv(0, 4 * middle, channels, (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))))
    second = conv(1, filters, 4 * middle, (2, 3), stride=data.draw(st.integers(1, 2)))
    shape = output_shape(second, output_shape(first, (channels, height, width)))
    assert_same_needs(
        chain(
            (channels, height, width), first, second, dense(2, data.draw(st.integers(1, 40)), np.prod(shape))
        )
    )
