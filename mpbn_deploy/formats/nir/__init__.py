"""NIR files (network.nir), both ways: FoldedNetwork or IntNetwork <-> NIR graph.

NIR's LIF is an equation in continuous time, tau * dv/dt = (v_leak - v) + r * I. One Euler step of
length dt is ours,

    v <- leak * v + I + bias         with  leak = 1 - dt / tau

with v in units of dt / tau * r. NIR does not define dt, time steps, the range of the input, the comparison,
the reset or the readout: our files have them in the graph's metadata, for other files the caller gives them.

    file         HDF5 -> nodes and edges, bounded and checked; the edges that close loops
    read         nodes and edges -> FoldedNetwork: composes linear nodes, delays loops
    linear       NIR's linear nodes -> affine maps; biases of single neurons, as spikes of an extra neuron
    neurons      NIR's neurons -> ours; resets and the order of a CubaLIF's update: stated, or assumed
    metadata     properties for which NIR has no keys; integer networks as real ones; kernels in nir's form
    portable     one threshold for all neurons, for readers that support no other; above zero
    write        FoldedNetwork or IntNetwork -> file (the only module that imports nir)
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .file import AmbiguousLoopError as AmbiguousLoopError, closing_edges as closing_edges
    from .metadata import DT as DT
    from .neurons import Assumption as Assumption
    from .read import (
        NirNetwork as NirNetwork,
        open_nir as open_nir,
        read_folded as read_folded,
        read_nir as read_nir,
    )
    from .write import in_dialect as in_dialect, to_nir as to_nir, write_nir as write_nir
else:
    __getattr__, __dir__ = door(__name__, __file__)
