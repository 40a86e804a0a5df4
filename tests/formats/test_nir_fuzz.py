"""NIR files that were changed at random: a network, or one FormatError, and nothing else."""

import json
import tempfile
from pathlib import Path

import nir_graphs
import numpy as np
import pytest
import test_nir_read
from hypothesis import HealthCheck, given, strategies as st
from networks import int_residual
from properties import examples

from mpbn_deploy.base import FormatError, read_tree, write_tree
from mpbn_deploy.formats.nir import read_nir, write_nir
from mpbn_deploy.ir import FoldedNetwork, IntNetwork

CHAINS = ("pools", "line", "current", "scaled picture", "half flattened", "late")


def original_trees(folder):
    """Files of ours in every dialect, and such as others write."""
    path = folder / "a.nir"
    for kind in (nir_graphs.conv_chain, nir_graphs.long_loop, nir_graphs.own_biases):
        write_nir(kind(), path)
        yield read_tree(path)
    write_nir(nir_graphs.identity_skip(), path, dialect="portable")
    yield read_tree(path)
    write_nir(int_residual(), path)
    yield read_tree(path)
    for name in CHAINS:
        yield read_tree(test_nir_read.written(folder, test_nir_read.graph_of(*test_nir_read.CHAINS[name])))
    yield read_tree(test_nir_read.written(folder, test_nir_read.nested(2)))


with tempfile.TemporaryDirectory() as temporary:
    TREES = list(original_trees(Path(temporary)))

numbers = st.sampled_from([0, 1, -1, 2, 3, 7, 0.5, 1e-9, 1e30, -1e30, np.nan, np.inf, 2**31, 10**9, 10**18])
arrays = st.builds(
    lambda value, shape: np.full(shape, value),
    numbers,
    st.sampled_from([(), (1,), (2,), (3,), (5,), (0,), (2, 2), (1, 1, 1), (3, 4, 5), (1, 1, 1, 1), (2, 0)]),
)
words = st.sampled_from(
    ["", "LIF", "Conv2d", "Affine", "NIRGraph", "Input", "Output", "Delay", "Flatten", "same"]
)
values = st.one_of(
    arrays, numbers, words, st.just({}), st.just({"type": "LIF"}), st.just(np.array([["a", "b"]], "S1"))
)


def places(tree, path=()):
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def changed(tree, path, change):
    """The tree with one of its entries removed (None), replaced, or computed from what it was."""
    key, *rest = path
    copy = dict(tree)
    if rest:
        copy[key] = changed(tree[key], rest, change)
    elif change is None:
        del copy[key]
    else:
        copy[key] = change(tree[key]) if callable(change) else change
    return copy


def perturbed(generator):
    """A change to an array: another order, another shape, or one other value."""

    def change(value):
        if not isinstance(value, np.ndarray) or not value.size:
            return value
        copy, kind = value.copy(), generator.integers(4)
        if kind == 0:
            return copy.reshape(-1)
        if kind == 1:
            return copy[: len(copy) // 2] if copy.ndim else copy
        if kind == 2:
            return copy[None]
        copy.flat[generator.integers(copy.size)] = copy.flat[generator.integers(copy.size)]
        return copy[::-1] if copy.ndim else copy

    return change


def read_it(path):
    try:
        network = read_nir(path, timesteps=2)
    except FormatError as error:
        assert str(path) in str(error)
        return None
    assert isinstance(network, (FoldedNetwork, IntNetwork))
    return network


@examples(80, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_changed_entries(data):
    tree = data.draw(st.sampled_from(TREES))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(sorted(places(tree))))
        seeds = st.integers(0, 2**32).map(lambda seed: perturbed(np.random.default_rng(seed)))
        tree = changed(tree, path, data.draw(st.one_of(st.none(), values, seeds)))
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder) / "a.nir", tree)
        read_it(Path(folder) / "a.nir")


@examples(40)
@given(st.data())
def test_changed_metadata(data):
    tree = data.draw(st.sampled_from(TREES[:5]))
    told = json.loads(tree["node"]["metadata"]["mpbn_deploy"])
    path = data.draw(st.sampled_from(sorted(places(told))))
    json_values = st.sampled_from([None, 0, -1, 10**30, 0.5, "x", [], [1], {}, [[1, 2]], True, float("nan")])
    told = changed(told, path, data.draw(st.one_of(st.none(), json_values)))
    tree = changed(tree, ("node", "metadata", "mpbn_deploy"), json.dumps(told))
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder) / "a.nir", tree)
        read_it(Path(folder) / "a.nir")


@examples(40)
@given(st.sampled_from(TREES), st.floats(0, 1), st.binary(min_size=1, max_size=8))
def test_truncated_and_overwritten_bytes(tree, where, noise):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.nir"
        write_tree(path, tree)
        whole = path.read_bytes()
        start = int(where * (len(whole) - 1))
        path.write_bytes(whole[:start])
        assert read_it(path) is None
        path.write_bytes(whole[:start] + noise + whole[start + len(noise) :])
        read_it(path)


def test_every_original_can_be_read(tmp_path):
    for tree in TREES:
        write_tree(tmp_path / "a.nir", tree)
        assert read_it(tmp_path / "a.nir") is not None


@pytest.mark.parametrize("key", ["weight", "bias"])
def test_values_that_the_file_does_not_hold_fill_no_memory(tmp_path, key):
    """A data set of 10**9 values that were never written takes no room in a file."""
    import h5py

    write_nir(nir_graphs.dense_chain(), tmp_path / "a.nir")
    with h5py.File(tmp_path / "a.nir", "a") as file:
        del file[f"node/nodes/a_synapse/{key}"]
        file.create_dataset(f"node/nodes/a_synapse/{key}", shape=(10**9,), dtype="f4", chunks=(10**6,))
    with pytest.raises(FormatError, match=rf"{key} (is too large|claims)"):
        read_nir(tmp_path / "a.nir")
