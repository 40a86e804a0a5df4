"""lava-dl netx files (network.net): IntNetwork <-> HDF5.

    layer/<i>/type                 input, conv, flatten, dense, dense_rec
    layer/<i>/shape                [channels, height, width] or [features]
    layer/<i>/weight               conv [out, in / groups, y, x], dense [out, in]
    layer/<i>/weight_rec           dense_rec [out, out], one step later
    layer/<i>/delay                dense: for all synapses, or [out, in]
    layer/<i>/bias                 per channel [channels], or per neuron [x, y, channel]
    layer/<i>/{stride, padding, dilation, groups}
    layer/<i>/neuron/{type, iDecay, vDecay, vThMant, ...}

Thresholds (`vThMant`) have the shapes of a bias; lava-dl's reader accepts them and gives each neuron its own
threshold. netx has no keys for time steps, input ranges and readouts: they are in a group `mpbn_deploy`
beside `layer`, which other readers ignore.

Graphs are our extension. A population that these layers cannot express (several connections, delays of
convolutions, exponents) is a layer of type `concat`, which lava-dl's description of the format reserves for
skip and recurrent connections, and which its reader does not support:

    layer/<i>/{type: concat, shape, layers, bias, biasExponent, neuron}
    mpbn_deploy/connection/<k>/{source, target, delay, exponent, type, weight, stride, ...}

A convolution with a silent border has a key `silent`, [[top, bottom], [left, right]]. `layers`, `source` and
`target` are indices of layers. All connections of the network are listed, in order; the weights of a
connection without `type` and `weight` are in the layer of its target.

    read             file -> IntNetwork
    write            IntNetwork -> file
    node             one node of a file, with checked access to its keys; the neurons of a layer
    connections      the connections of a chain's layers, and of a graph's list
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .read import read_netx as read_netx
    from .write import (
        MOST_STOCK_GROUPS as MOST_STOCK_GROUPS,
        stock_reader_loads as stock_reader_loads,
        stock_reader_obstacle as stock_reader_obstacle,
        write_netx as write_netx,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
