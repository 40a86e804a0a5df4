"""NIR files (network.nir), both ways: FoldedNetwork or IntNetwork <-> NIR graph.

NIR's LIF is an equation in continuous time, tau * dv/dt = (v_leak - v) + r * I. One Euler step of
length dt is ours,

    v <- leak * v + I + bias         with  leak = 1 - dt / tau

if v is counted in units of dt / tau * r. A NIR file says nothing of dt, time steps, the range of
the input, the comparison or the readout: our files say so in the graph's metadata, for files of
others it must be told.

    file.py       HDF5 -> nodes and edges, bounded and checked
    read.py       nodes and edges -> FoldedNetwork: linear nodes are composed, loops delayed
    neurons.py    NIR's neurons -> ours
    metadata.py   what NIR has no words for; integer networks as real ones
    portable.py   one threshold for all, for readers that know no other
    write.py      FoldedNetwork -> file (the only file that imports nir)
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .loops import AmbiguousLoopError as AmbiguousLoopError, closing_edges as closing_edges
    from .metadata import DIALECTS as DIALECTS, DT as DT, FAITHFUL as FAITHFUL
    from .read import read_folded as read_folded, read_nir as read_nir
    from .write import in_dialect as in_dialect, to_nir as to_nir, write_nir as write_nir
else:
    __getattr__, __dir__ = door(__name__, __file__)
