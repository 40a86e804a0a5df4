"""network.net: written by us and read back bit by bit; wrong files end in one message."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import int_chain, int_residual

from mpbn_deploy.errors import FormatError
from mpbn_deploy.netx_io import read_netx, write_netx
from mpbn_deploy.records import same_records


@pytest.fixture
def path(tmp_path):
    write_netx(int_chain(), tmp_path / "network.net")
    return tmp_path / "network.net"


@pytest.mark.parametrize("per_neuron", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_round_trip(tmp_path, per_neuron, groups):
    network = int_chain(5, per_neuron=per_neuron, groups=groups)
    write_netx(network, tmp_path / "a.net")
    assert same_records(network, read_netx(tmp_path / "a.net"))


def test_same_network_same_bytes(path, tmp_path):
    write_netx(int_chain(), tmp_path / "again.net")
    assert path.read_bytes() == (tmp_path / "again.net").read_bytes()


def test_files_of_others_need_time_steps_and_have_plain_names(path):
    with h5py.File(path, "a") as file:
        del file["mpbn_deploy"]
    with pytest.raises(FormatError, match="give timesteps"):
        read_netx(path)
    network = read_netx(path, timesteps=6, input_range=(0, 7))
    assert [p.name for p in network.populations] == ["input", "layer1", "layer3", "layer4"]
    assert network.timesteps == 6 and network.input_range.maximum == 7


def test_reads_what_lava_dl_writes(path):
    """Strings as arrays of one, scalars as arrays of one, kernels with a time axis, one threshold for all."""
    with h5py.File(path, "a") as file:
        layer = file["layer/1"]
        weight = layer["weight"][()]
        for key in ("type", "weight", "groups"):
            del layer[key]
        layer.create_dataset("type", (1,), "S10", [b"conv"])
        layer["weight"] = weight[..., None].astype(float)
        layer["groups"] = [1]
        del layer["neuron/vThMant"]
        layer["neuron/vThMant"] = 25
        del layer["bias"]
    network = read_netx(path)
    assert (network.populations[1].neuron.threshold == 25).all()
    assert (network.populations[1].neuron.bias == 0).all()
    assert network.connections[0].synapse.weight.shape == (4, 2, 3, 2)


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
        (drop("layer/1/type"), "layer 1 has no word under the key 'type'"),
        (drop("layer/1/neuron"), "layer 1 has no group 'neuron'"),
        (put("layer/0/type", "dense"), "layer 0 is not of type 'input'"),
        (put("layer/1/type", "convT"), "layer 1 is of type 'convT'; input, conv, flatten and dense"),
        (put("layer/1/neuron/type", "SDNN"), "layer 1 has neurons of type 'SDNN'"),
        (put("layer/1/shape", [4, 10**9, 10**9]), "layer 1 has shape"),
        (put("layer/1/shape", [4, 3, 4]), r"layer 1 has bias of shape \(3, 3, 4\)"),
        (put("layer/0/shape", [2, 6, 6]), "not consistent"),
        (put("layer/1/stride", [1, 1, 1]), "layer 1 has stride"),
        (put("layer/1/groups", [1, 1]), "layer 1 has 2 values of groups"),
        (put("layer/1/weight", np.full((4, 2, 3, 2), 0.5)), "no 32-bit integers"),
        (put("layer/1/weight", np.full((4, 2, 3, 2), np.nan)), "no 32-bit integers"),
        (put("layer/1/weight", np.full((4, 2, 3, 2), 2.0**40)), "no 32-bit integers"),
        (put("layer/1/bias", [1, 2, 3]), r"layer 1 has bias of shape \(3,\)"),
        (put("layer/3/weight", np.zeros((5, 7), int)), "not consistent"),
        (put("layer/1/neuron/refDelay", 3), "layer 1 has neurons with a refractory delay"),
        (put("layer/3/delay", [1, 2]), "layer 3 has synaptic delays"),
        (put("mpbn_deploy/scales/1", [1.0, 2.0]), "scales of conv are not 4 numbers"),
        (put("mpbn_deploy/scales/1", "text"), "scales of conv are not 4 numbers"),
        (put("mpbn_deploy/scales", 1.0), "group mpbn_deploy is damaged"),
        (put("mpbn_deploy", 1.0), "group mpbn_deploy is damaged"),
        (told(version=99), "version 99"),
        (told(timesteps=0), "time steps 0"),
        (told(populations=["a"]), "1 names for 4 populations"),
        (put("mpbn_deploy/json", "{"), "group mpbn_deploy is damaged"),
        (drop("mpbn_deploy/json"), "group mpbn_deploy is damaged"),
    ],
)
def test_wrong_files_are_named(path, change, message):
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(FormatError, match=message) as caught:
        read_netx(path)
    assert str(path) in str(caught.value)


def test_links_virtual_and_absurd_data_are_refused(path):
    with h5py.File(path, "a") as file:
        file["layer/1/soft"] = h5py.SoftLink("/layer/2")
    with pytest.raises(FormatError, match="is a link"):
        read_netx(path)
    with h5py.File(path, "a") as file:
        del file["layer/1/soft"]
        file.create_dataset("layer/1/huge", shape=(10**9,), dtype="i1", chunks=(2**20,), compression="gzip")
    with pytest.raises(FormatError, match="huge is too large"):
        read_netx(path)
    with h5py.File(path, "a") as file:
        del file["layer/1/huge"]
        file.create_dataset("layer/1/long", shape=(100,), dtype="S20000000", chunks=(1,), compression="gzip")
    with pytest.raises(FormatError, match="long is too large"):
        read_netx(path)
    with h5py.File(path, "a") as file:
        del file["layer/1/long"]
        layout = h5py.VirtualLayout(shape=(3,), dtype="i4")
        layout[:] = h5py.VirtualSource("elsewhere.h5", "data", shape=(3,))
        file.create_virtual_dataset("layer/1/virtual", layout)
    with pytest.raises(FormatError, match="in another file"):
        read_netx(path)


def test_too_many_entries_are_refused(path, monkeypatch):
    monkeypatch.setattr("mpbn_deploy.hdf5.MOST_ENTRIES", 3)
    with pytest.raises(FormatError, match="entries; not read further"):
        read_netx(path)


def test_no_file_and_truncated_files(path, tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        read_netx(tmp_path / "nothing.net")
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="not a readable HDF5 file"):
            read_netx(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_files_end_in_a_message_or_a_network(tmp_path, data):
    good = tmp_path / "good.net"
    if not good.exists():
        write_netx(int_chain(), good)
    content = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    bad = tmp_path / "bad.net"
    bad.write_bytes(bytes(content))
    try:
        assert read_netx(bad).populations
    except FormatError as error:
        assert str(bad) in str(error)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (int_residual(), "not a chain"),
        (int_residual(), r"second->last: weight exponent 1"),
    ],
)
def test_what_netx_cannot_say_is_refused(tmp_path, network, message):
    with pytest.raises(FormatError, match=message):
        write_netx(network, tmp_path / "a.net")
    assert not list(tmp_path.iterdir())


def test_bias_exponents_and_readouts_that_could_fire_are_refused(tmp_path):
    network = int_chain()
    *front, last = network.populations
    exponent = replace(last, neuron=replace(last.neuron, bias_exponent=3))
    with pytest.raises(FormatError, match="output: bias exponent 3"):
        write_netx(replace(network, populations=(*front, exponent)), tmp_path / "a.net")
    high = replace(last, neuron=replace(last.neuron, bias=np.full(3, 2**16)))
    with pytest.raises(FormatError, match="output: voltages up to"):
        write_netx(replace(network, populations=(*front, high)), tmp_path / "a.net")
