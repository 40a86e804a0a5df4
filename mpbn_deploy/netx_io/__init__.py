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

from __future__ import annotations

from pathlib import Path

from ..errors import FormatError, NetworkError
from ..graph import Shape
from ..hdf5 import read_tree
from ..int_ir import IntNetwork
from .read import Given, read_network
from .write import stock_reader_loads, stock_reader_obstacle, write_netx

__all__ = ["read_netx", "stock_reader_loads", "stock_reader_obstacle", "write_netx"]


def read_netx(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    input_shape: Shape | None = None,
) -> IntNetwork:
    """Read a chain as lava-dl writes it, or a graph of ours.

    Files of other writers may not say their time steps, the range of their input or, where they
    start with a convolution, its shape: give them. Their input is taken as plain spikes (0 or 1)
    unless `input_range` says otherwise; where their input layer has neurons, as what drives those.
    """
    given = Given(timesteps=timesteps, input_range=input_range, input_shape=input_shape)
    try:
        return read_network(Path(path), read_tree(Path(path)), given)
    except NetworkError as error:
        raise FormatError(f"{path}: {error}") from error
