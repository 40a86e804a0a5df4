"""network.net that is damaged, hostile or absurd: one message that names file, node and key."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, strategies as st
from networks import inputs_for, int_chain, int_loop, int_residual
from properties import examples

from mpbn_deploy.base import FormatError, SimulationError
from mpbn_deploy.base.hdf5 import read_here
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.formats.netx import read_netx, write_netx
from mpbn_deploy.ir import Connection, Dense

QUICK = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}


def drop(key):
    def change(file):
        del file[key]

    return change


def put(key, value):
    def change(file):
        if key in file:
            del file[key]
        file[key] = value

    return change


def told(**changes):
    def change(file):
        text = {**json.loads(file["mpbn_deploy/json"][()]), **changes}
        put("mpbn_deploy/json", json.dumps(text))(file)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("layer"), "no group 'layer'"),
        (drop("layer/1"), "1 missing"),
        (drop("layer/1/weight"), "layer 1 has no numbers under the key 'weight'"),
        (drop("layer/1/type"), "layer 1 has no string under the key 'type'"),
        (drop("layer/1/neuron"), "layer 1 has no group 'neuron'"),
        (put("layer/1/type", "input"), "layer 1 is of type 'input'; only the first"),
        (put("layer/1/type", "convT"), "layer 1 is of type 'convT'; supported are input, flatten"),
        (put("layer/1/neuron/type", "SDNN"), "layer 3 has other neurons than its sigma-delta network"),
        (
            put("layer/1/neuron/type", "RF_PHASE"),
            r"layer 1 has neurons of type 'RF_PHASE' \(resonate-and-fire\)",
        ),
        (
            put("layer/1/neuron/type", "new"),
            "layer 1 has neurons of type 'new'; CUBA, LOIHI and SDNN are supported",
        ),
        (put("layer/1/neuron/iDecay", [1, 2]), r"layer 1 has iDecay of shape \(2,\); \(4,\) or"),
        (put("layer/1/neuron/iDecay", [1, 2, 3, 4097]), "conv: decay_current 4097; allowed are 0..4096"),
        (put("layer/1/neuron/vDecay", [1, 2, 3, -1]), "conv: decay_voltage -1; allowed are 0..4096"),
        (put("layer/1/neuron/wgtExp", 2), "layer 1 has wgtExp 2"),
        (put("layer/1/shape", [4, 10**9, 10**9]), "layer 1 has shape"),
        (put("layer/1/shape", [4, 5000, 5000]), "layer 1 has shape"),
        (put("layer/1/shape", np.ones(10**6)), "layer 1 has 1000000 values of shape; at most 3"),
        (put("layer/1/shape", [4, 3, 4]), r"layer 1 has vThMant of shape \(3, 3, 4\)"),
        (put("layer/0/shape", [2, 6, 6]), "not consistent"),
        (put("layer/1/stride", [1, 1, 1]), "layer 1 has 3 values of stride"),
        (put("layer/1/groups", [1, 2]), "layer 1 has 2 different values of groups"),
        (put("layer/1/weight", np.full((4, 2, 3, 2), 0.5)), "values of weight that are not 32-bit integers"),
        (
            put("layer/1/weight", np.full((4, 2, 3, 2), np.nan)),
            "values of weight that are not 32-bit integers",
        ),
        (
            put("layer/1/weight", np.full((4, 2, 3, 2), 2.0**40)),
            "values of weight that are not 32-bit integers",
        ),
        (put("layer/1/bias", [1, 2, 3]), r"layer 1 has bias of shape \(3,\)"),
        (put("layer/3/weight", np.zeros((5, 7), int)), "not consistent"),
        (put("layer/1/neuron/refDelay", 3), "layer 1 has neurons with a refractory delay"),
        (
            put("layer/4/neuron/vThMant", 3),
            "layer 4 can fire, but the file declares it a readout",
        ),
        (put("mpbn_deploy/scales/1", [1.0, 2.0]), "scales of conv are not 4 numbers"),
        (put("mpbn_deploy/scales/1", np.full(4, np.nan)), "scales of conv are not 4 numbers"),
        (put("mpbn_deploy/scales/1", "text"), "scales of conv are not 4 numbers"),
        (put("mpbn_deploy/scales", 1.0), "group mpbn_deploy is damaged"),
        (put("mpbn_deploy", 1.0), "group mpbn_deploy is damaged"),
        (told(version=99), "version 99"),
        (told(version=2), "group mpbn_deploy/connection is missing"),
        (told(timesteps=0), "time steps 0"),
        (told(timesteps=1.5), "1.5 is not a whole number"),
        (told(timesteps=float("inf")), "inf is not a whole number"),
        (told(input_range=[0, 10**30]), "input range"),
        (told(populations=["a"]), "1 names for 4 populations"),
        (put("mpbn_deploy/json", "{"), "group mpbn_deploy is damaged"),
        (put("mpbn_deploy/json", "[" * 100_000), "group mpbn_deploy is damaged"),
        (drop("mpbn_deploy/json"), "group mpbn_deploy is damaged"),
    ],
)
def test_wrong_files_are_named(netx_path, change, message):
    with h5py.File(netx_path, "a") as file:
        change(file)
    with pytest.raises(FormatError, match=message) as caught:
        read_netx(netx_path)
    assert str(netx_path) in str(caught.value)


def held_twice(file):
    """Give the connection of layer 1 its own weights in the list."""
    for key in ("type", "weight", "stride", "padding", "dilation", "groups"):
        file.copy(f"layer/1/{key}", f"mpbn_deploy/connection/0/{key}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("mpbn_deploy/connection"), "group mpbn_deploy/connection is missing"),
        (drop("mpbn_deploy/connection/0"), r"connections 0\.\.3 expected; 0 missing"),
        (drop("mpbn_deploy/connection/1/source"), "connection 1 has no numbers under the key 'source'"),
        (drop("mpbn_deploy/connection/3/delay"), "connection 3 has no numbers under the key 'delay'"),
        (drop("mpbn_deploy/connection/3/weight"), "layer 3 is of type 'concat', which has no weights"),
        (drop("mpbn_deploy/connection/3/stride"), "connection 3 has no numbers under the key 'stride'"),
        (put("mpbn_deploy/connection/3/source", 9), "connection 3 names layer 9, which has no population"),
        (put("mpbn_deploy/connection/0/target", 0), "connection 0 has no string under the key 'type'"),
        (put("mpbn_deploy/connection/3/type", "pool"), "connection 3 is of type 'pool'"),
        (put("mpbn_deploy/connection/3/exponent", -9), "first->last: weight exponent -9"),
        (put("mpbn_deploy/connection/3/exponent", np.nan), "connection 3 has values of exponent that are no"),
        (put("mpbn_deploy/connection/3/delay", -1), "first->last: delay -1"),
        (put("mpbn_deploy/connection/3/silent", [1, 2]), r"connection 3 has silent \[1, 2\]; \[\[top,"),
        (put("mpbn_deploy/connection/3/silent", [[0, 9], [0, 0]]), "first->last: silent border"),
        (
            put("layer/3/layers", [0, 1]),
            r"layer 3 has layers \['first', 'input'\]; its connections come from",
        ),
        (put("layer/3/biasExponent", 99), "last: bias exponent 99"),
        (
            put("mpbn_deploy/connection/0/exponent", 2),
            "connection 0 has exponent 2; layer 1, which has its weights, has 0. Make them equal",
        ),
        (put("mpbn_deploy/connection/1/delay", 3), "connection 1 has delay 3; layer 2, which has"),
        (
            put("mpbn_deploy/connection/1/target", 1),
            "connection 1 has no weights, and connection 0 already uses those of layer 1",
        ),
        (held_twice, "layer 1 has weights, but every connection to it in the list has its own"),
        (drop("layer/3/layers"), "layer 3 has no numbers under the key 'layers'"),
    ],
)
def test_wrong_graphs_are_named(netx_graph_path, change, message):
    with h5py.File(netx_graph_path, "a") as file:
        change(file)
    with pytest.raises(FormatError, match=message) as caught:
        read_netx(netx_graph_path)
    assert str(netx_graph_path) in str(caught.value)


def test_loops_of_a_graph_stand_in_its_list(tmp_path):
    write_netx(int_loop(delays=(4, 1), loop=False), tmp_path / "a.net")
    with h5py.File(tmp_path / "a.net", "a") as file:
        put("layer/1/type", "dense_rec")(file)
        put("layer/1/weight_rec", np.ones((5, 5), int))(file)
    message = "layer 1 is of type 'dense_rec' in a graph, where loops belong in the list of connections"
    with pytest.raises(FormatError, match=message):
        read_netx(tmp_path / "a.net")


def test_a_cycle_without_delay_is_named(tmp_path):
    network = int_loop(delays=(4, 1))
    back = Connection(source="last", target="first", synapse=Dense(weight=np.ones((5, 4), int)), delay=1)
    path = tmp_path / "a.net"
    write_netx(replace(network, connections=(*network.connections, back)), path)
    with h5py.File(path, "a") as file:
        for index in range(5):
            put(f"mpbn_deploy/connection/{index}/delay", 0)(file)
    with pytest.raises(FormatError, match=r"a cycle without delay: .*first"):
        read_netx(path)


def test_links_virtual_and_absurd_data_are_refused(netx_path):
    with h5py.File(netx_path, "a") as file:
        file["layer/1/soft"] = h5py.SoftLink("/layer/2")
    with pytest.raises(FormatError, match="is a link"):
        read_netx(netx_path)
    with h5py.File(netx_path, "a") as file:
        del file["layer/1/soft"]
        file.create_dataset("layer/1/huge", shape=(10**9,), dtype="i1", chunks=(2**20,), compression="gzip")
    with pytest.raises(FormatError, match="huge is too large"):
        read_netx(netx_path)
    with h5py.File(netx_path, "a") as file:
        del file["layer/1/huge"]
        file.create_dataset("layer/1/long", shape=(100,), dtype="S20000000", chunks=(1,), compression="gzip")
    with pytest.raises(FormatError, match="long is too large"):
        read_netx(netx_path)
    with h5py.File(netx_path, "a") as file:
        del file["layer/1/long"]
        del file["layer/1/shape"]
        file.create_dataset("layer/1/shape", shape=(10**8,), dtype="i8")
    with pytest.raises(FormatError, match="shape claims 800000000 bytes, but the file holds 0"):
        read_netx(netx_path)
    with h5py.File(netx_path, "a") as file:
        del file["layer/1/shape"]
        layout = h5py.VirtualLayout(shape=(3,), dtype="i4")
        layout[:] = h5py.VirtualSource("elsewhere.h5", "data", shape=(3,))
        file.create_virtual_dataset("layer/1/virtual", layout)
    with pytest.raises(FormatError, match="in another file"):
        read_netx(netx_path)


def test_too_many_entries_are_refused(netx_path, monkeypatch):
    monkeypatch.setattr("mpbn_deploy.base.hdf5.MAX_ENTRIES", 3)
    with pytest.raises(FormatError, match="entries, which is the limit"):
        read_here(netx_path, str(netx_path))


def test_no_file_and_truncated_files(netx_path, netx_graph_path, tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        read_netx(tmp_path / "nothing.net")
    for file in (netx_path, netx_graph_path):
        whole = file.read_bytes()
        for length in (0, 10, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:length])
            with pytest.raises(FormatError, match="not a readable HDF5 file"):
                read_netx(file)


# ---- any file ---------------------------------------------------------------------------------


def read_or_refuse(path):
    """A network that runs, unless its states could overflow; or one message that names the file."""
    try:
        network = read_netx(path, input_shape=(1, 3, 3))
    except FormatError as error:
        assert str(path) in str(error)
        return
    if sum(p.size for p in network.populations) * network.timesteps < 10_000:
        try:
            assert len(emulate(network, inputs_for(network, samples=1)).outputs) == 1
        except SimulationError as error:
            assert "overflows the 24-bit state" in str(error)


@examples(60, **QUICK)
@given(data=st.data(), network=st.sampled_from([int_chain(), int_residual(delay=1), int_loop()]))
def test_mutated_bytes_end_in_a_message_or_a_network(tmp_path, data, network):
    path = tmp_path / "bad.net"
    write_netx(network, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.sampled_from([None, None, len(content) // 2]))]))
    read_or_refuse(path)


WORDS = ["", "dense", "conv", "dense_rec", "average", "concat", "input", "flatten", "RF_PHASE", "\u00e4"]
NUMBERS = [np.nan, np.inf, -1, 0, 1, 2, 7, 2**31, -(2**31), 2**63 - 1, 1e300, True]
SIZES = [np.array([10**9, 10**9, 10**9]), np.array([2**24]), np.array([1, 1, 1]), np.arange(5)]
ARRAYS = [
    np.zeros((0,)),
    np.ones((3, 4)),
    np.full((2, 2), np.nan),
    np.ones((2, 1, 1, 1, 1)),
    np.ones(3, "c8"),
]
OTHERS = [np.array([b"dense", b"conv"]), h5py.Empty("f8"), {}, {"type": "CUBA"}]
ODD_VALUES = st.one_of(*map(st.sampled_from, (WORDS, NUMBERS, SIZES, ARRAYS, OTHERS)))


@examples(200, **QUICK)
@given(data=st.data(), name=st.sampled_from(["chain", "graph", "loop", "others"]))
def test_mutated_keys_end_in_a_message_or_a_network(tmp_path, data, name):
    """Keys that are missing, or hold another type, shape or size than they should."""
    path = _copy_of(tmp_path, name)
    with h5py.File(path, "a") as file:
        for _ in range(data.draw(st.integers(1, 3))):
            keys: list[str] = []
            file.visit(keys.append)
            key = data.draw(st.sampled_from(sorted(keys)))
            del file[key]
            value = data.draw(st.none() | ODD_VALUES)
            if isinstance(value, dict):
                group = file.create_group(key)
                for inner, word in value.items():
                    group[inner] = word
            elif value is not None:
                file[key] = value
            if not list(file):
                break
    read_or_refuse(path)


def _copy_of(tmp_path, name):
    """One of four files, written once and copied for each example."""
    original = tmp_path / f"{name}.good"
    if not original.exists():
        networks = {
            "chain": int_chain(),
            "graph": int_residual(delay=1),
            "loop": int_loop(),
            "others": int_chain(),
        }
        write_netx(networks[name], original)
        if name == "others":
            with h5py.File(original, "a") as file:
                del file["mpbn_deploy"]
                file["simulation/tSample"] = 4
                file["layer/3/delay"] = np.arange(5)
                for key, value in (("type", "CUBA"), ("vDecay", 7), ("vThMant", 9)):
                    file[f"layer/0/neuron/{key}"] = value
    return shutil.copy(original, tmp_path / "bad.net")
