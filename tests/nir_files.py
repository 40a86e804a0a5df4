"""NIR graphs as other libraries write them, for tests of reading."""

from itertools import pairwise

import nir
import numpy as np

from mpbn_deploy.base import write_tree
from mpbn_deploy.formats.nir import DT


def eighths(seed, *shape, low=-8, high=13):
    return np.random.default_rng(seed).integers(low, high, size=shape) / 8


def lif(*shape, seed=0, leak=0.5, natural=True, **changes):
    """Return thresholds midway between multiples of 1/8, so that rounding changes no spike."""
    tau = DT / (1 - leak)
    r = tau / DT if natural else 1.0
    threshold = (eighths(seed, *shape, low=4, high=20) + 0.0101) * r * (1 - leak)
    fields = {"tau": tau, "r": r, "v_leak": 0.0, "v_reset": 0.0, "v_threshold": threshold, **changes}
    return nir.LIF(**{key: np.broadcast_to(value, shape).astype(float) for key, value in fields.items()})


def cuba(*shape, seed=0, leak=0.5, current_leak=0.25, **changes):
    threshold = eighths(seed, *shape, low=4, high=20) + 0.0101
    fields = {
        "tau_syn": DT / (1 - current_leak), "w_in": 1 / (1 - current_leak), "v_leak": 0.0, "v_reset": 0.0,
        "tau_mem": DT / (1 - leak), "r": 1 / (1 - leak), "v_threshold": threshold, **changes,
    }  # fmt: skip
    return nir.CubaLIF(**{key: np.broadcast_to(value, shape).astype(float) for key, value in fields.items()})


def li(*shape, leak=0.75, **changes):
    fields = {"tau": DT / (1 - leak), "r": 1.0, "v_leak": 0.0, **changes}
    return nir.LI(**{key: np.broadcast_to(value, shape).astype(float) for key, value in fields.items()})


def cuba_li(*shape, leak=0.75, current_leak=0.25, **changes):
    fields = {
        "tau_syn": DT / (1 - current_leak), "tau_mem": DT / (1 - leak), "r": 2.0, "v_leak": 0.0, "w_in": 1.0,
        **changes,
    }  # fmt: skip
    return nir.CubaLI(**{key: np.broadcast_to(value, shape).astype(float) for key, value in fields.items()})


def affine(outputs, inputs, seed=0):
    return nir.Affine(weight=eighths(seed, outputs, inputs), bias=eighths(seed + 1, outputs))


def conv(outputs, inputs, size=3, seed=0, **changes):
    fields = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1, **changes}
    weight = eighths(seed, outputs, inputs // fields["groups"], size, size)
    return nir.Conv2d(input_shape=None, weight=weight, bias=eighths(seed + 1, outputs), **fields)


def conv1d(outputs, inputs, size=3, seed=0, **changes):
    fields = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1, **changes}
    weight = eighths(seed, outputs, inputs // fields["groups"], size)
    return nir.Conv1d(input_shape=None, weight=weight, bias=eighths(seed + 1, outputs), **fields)


def mask(*shape, first=1, last=7):
    """Return one factor per channel in a window, and zeros around it."""
    scale = np.zeros(shape)
    scale[:, first:last, 2:] = np.arange(1, 1 + shape[0]).reshape(-1, 1, 1)
    return nir.Scale(scale=scale)


def pool(kind, kernel=2, stride=2, padding=0):
    return kind(
        kernel_size=np.array([kernel] * 2), stride=np.array([stride] * 2), padding=np.array([padding] * 2)
    )


def flatten(start_dim=0):
    return nir.Flatten({"input": None}, start_dim=start_dim)


def graph_of(shape, nodes, edges=None):
    """Return a graph: a chain of nodes, or nodes by name with edges."""
    if edges is None:
        nodes = {f"n{index}": node for index, node in enumerate(nodes)}
        names = ["input", *nodes, "output"]
        edges = list(pairwise(names))
    ends = {"input": nir.Input({"input": np.array(shape)}), "output": nir.Output({"output": np.array([1])})}
    return nir.NIRGraph({**nodes, **ends}, edges, type_check=False)


def written(tmp_path, graph):
    """Write a graph like nir.write, which cannot write open shapes though it reads them."""
    write_tree(tmp_path / "theirs.nir", {"version": nir.version, "node": tree_of(graph.to_dict())})
    return tmp_path / "theirs.nir"


def tree_of(values):
    if isinstance(values, dict):
        return {key: tree_of(value) for key, value in values.items() if value is not None}
    if isinstance(values, list):  # of edges
        return np.array(values, dtype="S99").reshape(-1, 2)
    return values


CHAINS = {
    "matrix": ((5,), [affine(4, 5), lif(4)]),
    "two matrices": ((5,), [affine(4, 5), nir.Linear(weight=eighths(3, 6, 4)), lif(6), affine(3, 6, 9)]),
    "unit of one": ((5,), [affine(4, 5), lif(4, natural=False)]),
    "no leak": (
        (5,),
        [affine(4, 5), nir.IF(r=np.full(4, 1 / DT), v_threshold=eighths(0, 4, low=5) + 0.01)],
    ),
    "threshold": ((5,), [affine(4, 5), nir.Threshold(threshold=eighths(0, 4) + 0.01), affine(2, 4)]),
    "resting bias": ((5,), [affine(4, 5), lif(4, v_leak=eighths(8, 4))]),
    "resistance per neuron": ((5,), [affine(4, 5), lif(4, r=np.array([1.0, 2.0, 3.0, 0.5]))]),
    "current": ((5,), [affine(4, 5), cuba(4), nir.Linear(weight=eighths(0, 3, 4)), cuba(3, v_leak=0.5)]),
    "current, weighted": (
        (5,),
        [nir.Linear(weight=eighths(0, 4, 5)), cuba(4, w_in=np.arange(1.0, 5), r=0.5)],
    ),
    "picture": ((2, 5, 6), [conv(4, 2), lif(4, 5, 6), conv(2, 4, stride=2, groups=2), lif(2, 3, 3)]),
    "same": (
        (2, 5, 6),
        [conv(4, 2, 4, padding="same"), lif(4, 5, 6), conv(2, 4, padding="valid"), lif(2, 3, 4)],
    ),
    "pools": (
        (2, 8, 8),
        [
            pool(nir.SumPool2d),
            conv(3, 2),
            lif(3, 4, 4),
            pool(nir.AvgPool2d),
            flatten(),
            affine(4, 12),
            lif(4),
        ],
    ),
    "pools after": (
        (2, 8, 8),
        [conv(3, 2), pool(nir.AvgPool2d, 3, 2, 1), lif(3, 4, 4), flatten(), affine(4, 48)],
    ),
    "two convolutions": ((2, 5, 5), [conv(3, 2), conv(2, 3, seed=5), lif(2, 5, 5)]),
    "a biased picture through a border": (
        (1, 4, 4),
        [conv(2, 1), conv(1, 2, 3, 7), lif(1, 4, 4), flatten()],
    ),
    "scaled channels": ((2, 4, 4), [conv(3, 2), nir.Scale(scale=eighths(0, 3, 1, 1)), lif(3, 4, 4)]),
    "scaled neurons": ((2, 4, 4), [nir.Scale(scale=eighths(0, 2, 4, 4)), conv(3, 2), lif(3, 4, 4)]),
    "scaled picture": ((2, 4, 4), [conv(3, 2), nir.Scale(scale=eighths(0, 3, 4, 4)), lif(3, 4, 4)]),
    "masked": ((2, 9, 9), [conv(3, 2), mask(3, 9, 9), lif(3, 9, 9)]),
    "masked twice": (
        (2, 9, 9),
        [conv(3, 2), mask(3, 9, 9), mask(3, 9, 9, first=3), conv(4, 3), mask(4, 9, 9), lif(4, 9, 9)],
    ),
    "masked away": (
        (2, 9, 9),
        [conv(3, 2), mask(3, 9, 9, last=4), mask(3, 9, 9, first=6), lif(3, 9, 9), mask(3, 9, 9, last=0)],
    ),
    "a border cut off twice": (
        (2, 9, 9),
        [conv(3, 2), conv(4, 3), mask(4, 9, 9, first=8, last=9), lif(4, 9, 9)],
    ),
    "scaled features": (
        (5,),
        [nir.Scale(scale=eighths(0, 5)), affine(4, 5), nir.Scale(scale=eighths(2, 4)), lif(4)],
    ),
    "scaled by one number": ((2, 4, 4), [nir.Scale(scale=np.array(0.5)), conv(3, 2), lif(3, 4, 4)]),
    "flattened neurons": ((2, 4, 4), [pool(nir.SumPool2d), flatten(), lif(8), affine(3, 8)]),
    "half flattened": ((2, 4, 4), [flatten(1), conv1d(3, 2), lif(3, 16)]),
    "a convolution, flattened halfway": ((2, 4, 4), [conv(2, 2), flatten(1), conv1d(3, 2), lif(3, 16)]),
    "line": (
        (2, 9),
        [conv1d(4, 2), lif(4, 9), conv1d(2, 4, 5, stride=2, dilation=2, groups=2, padding=3), lif(2, 4)],
    ),
    "line, same": ((2, 9), [conv1d(4, 2, 2, padding="same"), lif(4, 9), flatten(), affine(3, 36), lif(3)]),
    "spikes as they come": ((3,), [lif(3), affine(2, 3)]),
    "neurons upon neurons": ((2, 3, 3), [conv(2, 2), lif(2, 3, 3), lif(2, 3, 3, seed=3)]),
    "late": ((5,), [nir.Delay(delay=np.full(5, 2 * DT)), affine(4, 5), lif(4)]),
    "spikes, flattened at the end": ((2, 4, 4), [conv(2, 2), lif(2, 4, 4), flatten()]),
}


def recurrent(neuron=lif):
    nodes = {
        "f": affine(4, 3),
        "a": neuron(4),
        "w": nir.Linear(weight=eighths(5, 4, 4)),
        "g": affine(2, 4),
        "b": neuron(2),
    }
    edges = [("input", "f"), ("f", "a"), ("a", "w"), ("w", "a"), ("a", "g"), ("g", "b"), ("b", "output")]
    return nodes, edges


READOUTS = {
    "leaks": li(3),
    "forgets all": li(3, leak=0.0),
    "rests elsewhere": li(3, v_leak=np.array([0.5, -1.0, 0.0])),
    "a resistance each": li(3, r=np.array([1.0, -2.0, 0.5])),
    "current": cuba_li(3),
    "current, weighted, rests elsewhere": cuba_li(3, w_in=np.array([1.0, 2.0, 3.0]), v_leak=0.5),
}
