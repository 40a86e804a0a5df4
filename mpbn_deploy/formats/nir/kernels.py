"""Kernels in the form that nir can type-check, ungrouped and square, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...base import Array
from ...ir import Connection, Conv2d, regroup
from .metadata import Metadata, key_text


def typeable(synapse: Conv2d) -> Conv2d:
    """Return the same convolution in one group, with its kernel padded with zeros to a square.

    A kernel with one even and one odd side cannot be padded evenly and keeps its sides.
    """
    weight = regroup(synapse.weight, synapse.groups, 1)
    sides = weight.shape[2:]
    if (sides[0] - sides[1]) % 2:
        return replace(synapse, weight=weight, groups=1)
    more = [(max(sides) - side) // 2 for side in sides]
    weight = np.pad(weight, ((0, 0), (0, 0), (more[0], more[0]), (more[1], more[1])))
    pads = [p + d * m for p, d, m in zip(synapse.padding, synapse.dilation, more, strict=True)]
    return replace(synapse, weight=weight, groups=1, padding=(pads[0], pads[1]))


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
    again = typeable(restored)
    if again.padding != synapse.padding or not np.array_equal(again.weight, synapse.weight):
        return connection
    return replace(connection, synapse=restored)


def _in_groups(whole: Array, groups: int) -> Array:
    """Return the kernels on the diagonal of groups, without the rest."""
    rows, columns = np.split(whole, groups), whole.shape[1] // groups
    return np.concatenate([row[:, g * columns : (g + 1) * columns] for g, row in enumerate(rows)])
