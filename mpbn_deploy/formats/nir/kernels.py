"""Kernels in the form that nir can type-check, ungrouped and square, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...base import Array
from ...ir import Connection, Conv2d, FoldedNetwork, regroup
from .metadata import Metadata, key_text


def is_signal(network: FoldedNetwork) -> bool:
    """Whether all pictures of a network are one pixel high, and no kernel looks up or down."""
    synapses = [c.synapse for c in network.connections if isinstance(c.synapse, Conv2d)]
    flat = all(
        (s.weight.shape[2], s.stride[0], s.padding[0], s.dilation[0], s.silent[0]) == (1, 1, 0, 1, (0, 0))
        for s in synapses
    )
    return flat and bool(synapses) and all(len(p.shape) == 1 or p.shape[1] == 1 for p in network.populations)


def typeable(synapse: Conv2d) -> Conv2d:
    """Return the same convolution in one group, with its kernel padded with zeros to a square.

    A kernel with one even and one odd side cannot be padded evenly and keeps its sides.
    """
    synapse = _in_one_group(synapse)
    weight, sides = synapse.weight, synapse.weight.shape[2:]
    if (sides[0] - sides[1]) % 2:
        return synapse
    more = [(max(sides) - side) // 2 for side in sides]
    weight = np.pad(weight, ((0, 0), (0, 0), (more[0], more[0]), (more[1], more[1])))
    pads = [p + d * m for p, d, m in zip(synapse.padding, synapse.dilation, more, strict=True)]
    return replace(synapse, weight=weight, padding=(pads[0], pads[1]))


def _in_one_group(synapse: Conv2d) -> Conv2d:
    return replace(synapse, weight=regroup(synapse.weight, synapse.groups, 1), groups=1)


def as_written(connection: Connection, metadata: Metadata) -> Connection:
    """Restore the convolution that `typeable` was given, if our metadata has its groups and sides."""
    synapse = connection.synapse
    if not isinstance(synapse, Conv2d) or synapse.groups > 1 or key_text(connection) not in metadata.kernels:
        return connection
    groups, *sides = metadata.kernels[key_text(connection)]
    less = [(found - side) // 2 for found, side in zip(synapse.weight.shape[2:], sides, strict=True)]
    pads = [p - d * m for p, d, m in zip(synapse.padding, synapse.dilation, less, strict=True)]
    if (
        groups < 1
        or min(*less, *pads) < 0
        or len(synapse.weight) % groups
        or synapse.weight.shape[1] % groups
    ):
        return connection
    inner = synapse.weight[:, :, less[0] : less[0] + sides[0], less[1] : less[1] + sides[1]]
    restored = replace(synapse, weight=_in_groups(inner, groups), groups=groups, padding=(pads[0], pads[1]))
    forms = typeable(restored), _in_one_group(restored)  # kernels of signals are not made square
    same = (f.padding == synapse.padding and np.array_equal(f.weight, synapse.weight) for f in forms)
    return replace(connection, synapse=restored) if any(same) else connection


def _in_groups(whole: Array, groups: int) -> Array:
    """Return the kernels on the diagonal of groups, without the rest."""
    rows, columns = np.split(whole, groups), whole.shape[1] // groups
    return np.concatenate([row[:, g * columns : (g + 1) * columns] for g, row in enumerate(rows)])
