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

from __future__ import annotations

from pathlib import Path

from ..errors import FormatError
from ..float_ir import FoldedNetwork
from ..int_ir import IntNetwork
from .metadata import DT as DT
from .metadata import FAITHFUL as FAITHFUL
from .read import read_network
from .write import DIALECTS as DIALECTS
from .write import in_dialect as in_dialect
from .write import to_nir as to_nir
from .write import write_nir as write_nir


def read_nir(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    dt: float | None = None,
) -> FoldedNetwork | IntNetwork:
    """Read a network. Files of other writers do not say time steps, input range or dt: give them.

    Their input is taken as plain spikes (0 or 1) unless `input_range` says otherwise, and dt as
    1e-4 seconds, with which most of them write.
    """
    return read_network(Path(path), timesteps=timesteps, input_range=input_range, dt=dt)


def read_folded(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    dt: float | None = None,
) -> FoldedNetwork:
    """The same, of a network of real numbers."""
    network = read_nir(path, timesteps=timesteps, input_range=input_range, dt=dt)
    if isinstance(network, IntNetwork):
        raise FormatError(f"{path}: holds an integer network, which is quantized already.")
    return network
