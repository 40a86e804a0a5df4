"""lava-dl netx files (network.net): IntNetwork <-> HDF5.

    layer/<i>/type                 input, conv, flatten, dense, dense_rec
    layer/<i>/shape                [channels, height, width] or [features]
    layer/<i>/weight               conv [out, in / groups, y, x], dense [out, in]
    layer/<i>/weight_rec           dense_rec [out, out], one step later
    layer/<i>/delay                dense: for all synapses, or [out, in]
    layer/<i>/bias                 per channel [channels], or per neuron [x, y, channel]
    layer/<i>/{stride, padding, dilation, groups}
    layer/<i>/neuron/{type, iDecay, vDecay, vThMant, ...}

Thresholds (`vThMant`) have the shapes of a bias; the stock reader takes them so, and fires each
neuron at its own. netx knows nothing of time steps, input ranges and readouts: those stand in a
group `mpbn_deploy` beside `layer`, which other readers do not see.

Graphs are our extension. A population that no such layer can say (several connections, delays of
convolutions, exponents) is a layer of type `concat`, which lava-dl's description of the format
plans for skip and recurrent connections, and at which its reader stops:

    layer/<i>/{type: concat, shape, layers, bias, biasExponent, neuron}
    mpbn_deploy/connection/<k>/{source, target, delay, exponent, type, weight, stride, ...}

A convolution that leaves a border of its target out has a key `silent`, [[top, bottom], [left, right]].
`layers`, `source` and `target` are numbers of layers. All connections of the network are listed,
in order; one without `type` and `weight` is the one that the layer of its target holds.

    node.py          one node of a file, read key by key
    neurons.py       the neurons of a layer
    connections.py   what a layer, or a graph's list, says of connections
    read.py          files -> IntNetwork
    write.py         IntNetwork -> files
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .read import read_netx as read_netx
    from .write import (
        stock_reader_loads as stock_reader_loads,
        stock_reader_obstacle as stock_reader_obstacle,
        write_netx as write_netx,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
