"""What NIR does not say, resets and the order of a CubaLIF's update: stated, recognized, or assumed."""

import json
import warnings
from dataclasses import asdict
from itertools import pairwise

import nir
import numpy as np
import pytest
from nir_euler import euler
from nir_files import (
    CHAINS,
    affine,
    conv,
    cuba,
    cuba_li,
    eighths,
    flatten,
    graph_of,
    lif,
    pool,
    recurrent,
    written,
)

from mpbn_deploy.base import FormatError, main
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export import export
from mpbn_deploy.export.__main__ import COMMAND
from mpbn_deploy.formats.folder import open_folder, seal
from mpbn_deploy.formats.nir import DT, open_nir, read_nir, write_nir
from mpbn_deploy.ir import FloatLif, FloatSoftLif
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY

BEFORE, AFTER = "subtract-before-leak", "subtract-after-leak"
T, SAMPLES = 12, 20

GRAPHS = {
    **{
        name: CHAINS[name]
        for name in ("matrix", "unit of one", "no leak", "resting bias", "current", "pools")
    },
    "resistance per neuron": CHAINS["resistance per neuron"],
    "loop": ((3,), *recurrent(lif)),
    "loop of currents": ((3,), *recurrent(cuba)),
    "readout of currents": ((5,), [affine(4, 5), cuba(4), affine(3, 4, 7), cuba_li(3)]),
}


def assert_fires_as(tmp_path, graph, reset, current):
    """Our reading fires as the equations of NIR with these conventions; return how often its spikes differ
    from a reset to zero and the new current."""
    path = written(tmp_path, graph)
    read = open_nir(path, timesteps=T, input_range=(0, 2), dt=DT, reset=reset, current=current)
    assert read.assumptions == ()
    network = read.folded
    steps = np.random.default_rng(1).integers(0, 3, size=(SAMPLES, T, *network.input.shape))
    shape = tuple(graph.nodes["input"].input_type["input"])
    used = BEFORE if reset == "subtract" else reset
    spikes, _ = euler(graph, steps.reshape(SAMPLES, T, *shape), DT, reset=used, current_used=current)
    got = simulate(network, steps)
    for name, found in spikes.items():
        np.testing.assert_array_equal(found.reshape(got.spikes[name].shape), got.spikes[name], name)
    usual, _ = euler(graph, steps.reshape(SAMPLES, T, *shape), DT)
    return sum(np.count_nonzero(usual[name] != found) for name, found in spikes.items())


@pytest.mark.parametrize("current", ["new", "previous"])
@pytest.mark.parametrize("reset", ["zero", "subtract", BEFORE, AFTER])
@pytest.mark.parametrize("name", GRAPHS)
def test_conventions_of_the_caller(tmp_path, name, reset, current):
    different = assert_fires_as(tmp_path, graph_of(*GRAPHS[name]), reset, current)
    if reset != "zero" or (current == "previous" and "current" in name):
        assert different > 0


# ---- stated by metadata -------------------------------------------------------------------------


def with_metadata(graph, **metadata):
    graph.metadata = metadata
    return graph


def test_conventions_of_the_metadata(tmp_path):
    graph = with_metadata(graph_of((5,), [affine(4, 5), cuba(4)]), reset="subtract", current="previous")
    read = open_nir(written(tmp_path, graph), timesteps=2, dt=DT)
    assert read.assumptions == () and isinstance(read.folded.populations[-1].neuron, FloatSoftLif)
    assert {c.delay for c in read.folded.connections if c.target == "n1"} == {1}
    for given, message in (
        ({"reset": "zero"}, "--nir-reset zero, but the metadata of the file says subtract; drop --nir-reset"),
        ({"current": "new"}, "--nir-current new, but the metadata of the file says previous"),
    ):
        with pytest.raises(FormatError, match=message):
            open_nir(tmp_path / "theirs.nir", timesteps=2, **given)
    damaged = with_metadata(graph_of((5,), [affine(4, 5), lif(4)]), reset="softly")
    with pytest.raises(
        FormatError, match="metadata 'reset' is 'softly'; subtract, zero, subtract-before-leak"
    ):
        open_nir(written(tmp_path, damaged), timesteps=2)


def test_files_of_ours_assume_nothing_and_cannot_be_overruled(tmp_path):
    read = open_nir(written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)])), timesteps=2, reset="subtract")
    write_nir(read.folded, tmp_path / "ours.nir")
    again = open_nir(tmp_path / "ours.nir")
    assert again.assumptions == () and isinstance(again.folded.populations[-1].neuron, FloatSoftLif)
    for option, value in (("reset", "zero"), ("current", "new")):
        with pytest.raises(
            FormatError, match=f"--nir-{option} {value}, but its metadata 'mpbn_deploy' states"
        ):
            open_nir(tmp_path / "ours.nir", **{option: value})


# ---- assumed ------------------------------------------------------------------------------------


def assumed(tmp_path, graph, **given):
    read = open_nir(written(tmp_path, graph), timesteps=2, **{"dt": DT, **given})
    return [assumption.what for assumption in read.assumptions]


def test_only_what_matters_is_assumed(tmp_path):
    zero, at_once = "resets to zero", "currents that act at once"
    cubas = graph_of((5,), [affine(4, 5), cuba(4)])
    assert assumed(tmp_path, cubas) == [zero, at_once]
    assert assumed(tmp_path, cubas, reset="subtract") == [at_once]
    assert assumed(tmp_path, cubas, current="new") == [zero]
    assert assumed(tmp_path, graph_of((5,), [affine(4, 5), lif(4)])) == [zero]
    assert assumed(tmp_path, graph_of((5,), [affine(4, 5), cuba_li(4)])) == [at_once]
    assert assumed(tmp_path, graph_of((5,), [affine(4, 5)])) == []
    assert assumed(tmp_path, graph_of((5,), [affine(4, 5), nir.Threshold(threshold=np.ones(4))])) == []


def test_time_steps_are_assumed_where_they_matter(tmp_path):
    given = {"dt": None, "reset": "zero", "current": "new"}
    steps = ["time steps of 0.0001 s"]
    for node in (lif(4), cuba(4), cuba_li(4), nir.IF(r=np.full(4, 1 / DT), v_threshold=np.ones(4))):
        assert assumed(tmp_path, graph_of((5,), [affine(4, 5), node]), **given) == steps
    counts = nir.IF(r=np.ones(4), v_threshold=np.ones(4))
    for graph in (
        graph_of((5,), [affine(4, 5), counts]),
        graph_of((5,), [affine(4, 5), as_snntorch(lif(4))]),
        with_metadata(graph_of((5,), [affine(4, 5), lif(4)]), dt=DT),
    ):
        assert assumed(tmp_path, graph, **given) == []


def test_read_nir_prints_what_it_assumes(tmp_path, capfd):
    read_nir(written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)])), timesteps=2, dt=DT)
    said = capfd.readouterr().err
    assert said.startswith("note: assuming resets to zero: the file does not say how spikes reset; NIR's")
    assert "give --nir-reset zero or subtract" in said


def test_a_reset_to_another_voltage_cannot_subtract(tmp_path):
    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4, v_reset=0.25, v_leak=0.25)]))
    with pytest.raises(FormatError, match=r"'n1' .* key 'v_reset': is not zero, so spikes reset to it"):
        open_nir(path, timesteps=2, reset="subtract")


@pytest.mark.parametrize("changes", [{"leak": 0.0}, {"v_threshold": -0.25}])
def test_a_subtraction_after_a_leak_that_no_membrane_makes(tmp_path, changes):
    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4, **changes)]))
    with pytest.raises(
        FormatError, match="cannot subtract after the leak with a leak of zero or a threshold"
    ):
        open_nir(path, timesteps=2, reset=AFTER)
    open_nir(path, timesteps=2, reset=BEFORE)


# ---- recognized writers -------------------------------------------------------------------------


def as_snntorch(node):
    """The numbers of snnTorch's writer: all from float32."""
    shape = node.v_threshold.shape
    beta = np.full(shape, 0.9, np.float32)
    tau = DT / (1 - beta)
    return nir.LIF(tau=tau, r=tau / DT, v_leak=np.zeros(shape), v_threshold=np.ones(shape, np.float32))


def public_graphs():
    """The graphs of the NIR repository's files, with their node names, kinds, shapes and constants."""
    ones = np.ones
    norse = nir.LIF(tau=ones(1) * 0.0025, r=ones(1), v_leak=np.zeros(1), v_threshold=ones(1) * 0.1)
    yield (
        "lif_norse",
        graph_of((1,), {"0": affine(1, 1), "1": norse}, chain("input", "0", "1", "output")),
        2,
        None,
    )
    names = ("0_LinearTorch", "1_LIFNeuronTorch")
    nodes = dict(zip(names, (nir.Linear(weight=ones((1, 1)) * 0.04), norse), strict=True))
    yield "lif_rockpool", graph_of((1,), nodes, chain("input", *names, "output")), 2, "Rockpool"
    hidden = [conv(16, 2, 5, stride=2), nir.IF(r=ones((16, 16, 16)), v_threshold=ones((16, 16, 16)))]
    last = [pool(nir.SumPool2d, 16), flatten(), affine(10, 16), nir.IF(r=ones(10), v_threshold=ones(10))]
    yield "cnn_sinabs", graph_of((2, 34, 34), [*hidden, *last]), 1, "sinabs"
    yield "braille", braille(), 2, "snnTorch"


def chain(*names):
    return list(pairwise(names))


def braille():
    """braille_noDelay_noBias_subtract.nir: a recurrent CubaLIF in float64, computed from float32."""

    def synaptic(size, alpha, beta):
        taus = [DT / (1 - np.full(size, x, np.float32).astype(float)) for x in (alpha, beta)]
        return nir.CubaLIF(
            tau_syn=taus[0], tau_mem=taus[1], r=taus[1] / DT, w_in=taus[0] / DT,
            v_leak=np.zeros(size), v_threshold=np.ones(size),
        )  # fmt: skip

    nodes = {
        "fc1": nir.Linear(weight=eighths(0, 40, 12)),
        "lif1.lif": synaptic(40, 0.75, 0.85),
        "lif1.w_rec": nir.Linear(weight=eighths(1, 40, 40)),
        "fc2": nir.Linear(weight=eighths(2, 7, 40)),
        "lif2": synaptic(7, 0.45, 0.7),
    }
    path = ["input", "fc1", "lif1.lif", "fc2", "lif2", "output"]
    return graph_of((12,), nodes, [*chain(*path), ("lif1.lif", "lif1.w_rec"), ("lif1.w_rec", "lif1.lif")])


PUBLIC = {name: found for name, *found in public_graphs()}


@pytest.mark.parametrize("name", PUBLIC)
def test_graphs_of_the_nir_repository(tmp_path, name):
    graph, assumptions, writer = PUBLIC[name]
    read = open_nir(written(tmp_path, graph), timesteps=4)
    soft = any(isinstance(p.neuron, FloatSoftLif) for p in read.folded.layers)
    assert soft == (writer is not None)
    assert len(read.assumptions) == assumptions
    assert (f"looks written by {writer}" in read.assumptions[0].why) == (writer is not None)
    # The broken files of that repository have edges to a node that is missing.
    graph.edges.append(("nobody", "output"))
    with pytest.raises(FormatError, match="edge to or from 'nobody', which is not a node"):
        open_nir(written(tmp_path, graph), timesteps=4)


def test_numbers_that_were_never_float32_are_nobodys(tmp_path):
    graph = graph_of((5,), [affine(4, 5), as_snntorch(lif(4))])
    assert assumed(tmp_path, graph) == ["resets by subtraction, one step later"]
    assert assumed(tmp_path, graph, reset="zero") == []
    graph.nodes["n1"].v_threshold = np.full(4, 0.1)
    assert assumed(tmp_path, graph) == ["resets to zero"]
    graph.nodes["n1"].v_threshold, graph.nodes["n1"].v_leak = np.ones(4), np.ones(4)
    assert assumed(tmp_path, graph) == ["resets to zero"]


@pytest.fixture
def snntorch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
        pytest.importorskip("snntorch.export_nir")
    return snntorch


def snntorch_file(snntorch, tmp_path, recurrent=False, **options):
    """A network of snnTorch, and the file that its own writer makes of it."""
    import torch
    from snntorch.export_nir import export_to_nir

    torch.manual_seed(0)
    full = torch.full  # one parameter per neuron, or snnTorch cannot type its own graph
    leaky = {"init_hidden": True, **options}
    hidden = snntorch.Leaky(beta=full((30,), 0.9), threshold=full((30,), 1.0), **leaky)
    if recurrent:
        hidden = snntorch.RSynaptic(alpha=0.75, beta=0.85, linear_features=30, **leaky)
    synaptic = {"alpha": full((4,), 0.5), "beta": full((4,), 0.8), "threshold": full((4,), 1.0), **leaky}
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 30), hidden, torch.nn.Linear(30, 4), snntorch.Synaptic(output=True, **synaptic)
    )
    for layer in (net[0], net[2]):
        layer.weight.data = torch.randint(-24, 28, layer.weight.shape) / 32
        layer.bias.data = torch.randint(-4, 5, layer.bias.shape) / 32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nir.write(tmp_path / "theirs.nir", export_to_nir(net, torch.zeros(6)))
    return net, tmp_path / "theirs.nir"


def snntorch_spikes(net, inputs):
    """Return the spikes of the two layers of neurons, [samples, timesteps, neurons]."""
    import torch
    from snntorch import utils

    sent = {1: [], 3: []}
    hooks = [
        net[index].register_forward_hook(
            lambda _m, _i, out, into=into: into.append(out[0] if isinstance(out, tuple) else out)
        )
        for index, into in sent.items()
    ]
    utils.reset(net)
    with torch.no_grad():
        for step in inputs.swapaxes(0, 1):
            net(torch.tensor(step, dtype=torch.float32))
    for hook in hooks:
        hook.remove()
    return [torch.stack(spikes, 1).bool().numpy() for spikes in sent.values()]


@pytest.mark.interop
@pytest.mark.parametrize(
    ("mechanism", "options", "recurrent"),
    [
        ("subtract", {}, False),
        ("subtract", {}, True),
        ("subtract", {"reset": "subtract"}, False),
        ("subtract", {"reset": "subtract"}, True),
        ("zero", {"reset": "zero"}, False),
    ],
)
def test_a_network_of_snntorch_through_its_own_writer(snntorch, tmp_path, mechanism, options, recurrent):
    """The default of snnTorch is recognized; every spike is the same.

    Its Synaptic loses the input after a spike if it resets to zero with reset_delay, which a note says.
    """
    delay = mechanism == "subtract"
    net, path = snntorch_file(snntorch, tmp_path, recurrent, reset_mechanism=mechanism, reset_delay=delay)
    read = open_nir(path, timesteps=20, **options)
    wanted = [] if options else ["resets by subtraction, one step later"]
    assert [a.what for a in read.assumptions] == [*wanted, "currents that act at once"]
    assert any("the input of the step after a spike" in note for note in read.notes) != delay
    inputs = np.random.default_rng(0).integers(0, 2, size=(40, 20, 6))
    theirs, ours = snntorch_spikes(net, inputs), simulate(read.folded, inputs).spikes
    names = [
        p.name for p in read.folded.layers if isinstance(p.neuron, FloatLif | FloatSoftLif) and p.size > 1
    ]
    for expected, name in zip(theirs, names, strict=True):
        assert 0.02 < expected.mean() < 0.98
        np.testing.assert_array_equal(expected, ours[name])
    wrong = "zero" if mechanism == "subtract" else "subtract"
    other = simulate(open_nir(path, timesteps=20, reset=wrong).folded, inputs).spikes
    assert np.count_nonzero(other[names[0]] != theirs[0]) > 0.005 * theirs[0].size


# ---- the whole pipeline -------------------------------------------------------------------------


def test_the_verdict_names_the_assumption_everywhere(tmp_path, capfd):
    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)]))
    arguments = [str(path), "--target", "loihi2", "--timesteps", "3", "--samples", "2", "--dt", "1e-4"]
    assert main(COMMAND, [*arguments, "--verbose"]) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert "assuming resets to zero; " in out and "assuming resets to zero exact" not in out
    assert "assuming resets to zero: the file does not say how spikes reset" in out
    folder = tmp_path / "theirs.loihi2"
    certificate = json.loads((folder / "verify.json").read_text())
    assert [each["what"] for each in certificate["assumptions"]] == ["resets to zero"]
    assert json.loads((folder / "manifest.json").read_text())["assumptions"] == certificate["assumptions"]
    report = (folder / "report.html").read_text()
    assert (
        ", assuming resets to zero</li>" in report and "The verdict holds assuming resets to zero: " in report
    )
    assert [asdict(each) for each in open_folder(folder).assumptions] == certificate["assumptions"]
    assert main(VERIFY, [str(folder), "--check"]) == 0
    assert "assuming resets to zero" in capfd.readouterr().out


def test_an_option_leaves_nothing_to_assume(tmp_path, capfd):
    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)]))
    arguments = [str(path), "--target", "loihi2", "--timesteps", "3", "--samples", "2", "--json"]
    assert main(COMMAND, [*arguments, "--nir-reset", "subtract", "--nir-current", "new", "--dt", "1e-4"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["assumptions"] == [] and data["bit_exact"]
    opened = open_folder(data["folder"])
    assert opened.manifest["options"]["nir_reset"] == "subtract" and opened.options.nir_current == "new"
    assert isinstance(opened.folded.populations[1].neuron, FloatSoftLif)
    assert "assuming" not in (opened.path / "report.html").read_text()


def test_previous_currents_run_in_every_executor(tmp_path):
    path = written(tmp_path, graph_of((3,), *recurrent(cuba)))
    result = export(path, "loihi2", timesteps=6, samples=3, dt=DT, nir_reset="zero", nir_current="previous")
    assert result.verified.bit_exact and result.verified.assumptions == ()


@pytest.mark.usefixtures("without_lava")
@pytest.mark.parametrize(
    ("key", "damaged", "message"),
    [
        ("assumptions", "none", "each assumption must say what and why"),
        ("assumptions", [{"what": "x"}], "each assumption must say what and why"),
        ("assumptions", [{"what": "x", "why": 3}], "each assumption must say what and why"),
        ("model", None, "it must name the model's file"),
        (
            "model",
            {"name": "../x.pt", "architecture": None},
            "it must name the model's file, without a folder",
        ),
        (
            "model",
            {"name": "x.pt", "architecture": 3},
            "the architecture of the model must be a string, or null",
        ),
    ],
)
def test_a_damaged_manifest(tmp_path, key, damaged, message):
    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)]))
    folder = export(path, "loihi2", timesteps=2, samples=1).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest[key] = damaged
    (folder / "manifest.json").write_text(json.dumps({**manifest, "sha256": seal(manifest)}))
    with pytest.raises(FormatError, match=f"damaged; {message}"):
        open_folder(folder)


# ---- shapes with a batch axis -------------------------------------------------------------------

BATCHED = {
    "a batch of one before a matrix": ((1, 5), [affine(4, 5), lif(4)], (5,)),
    "a batch of four before a matrix": ((4, 5), [affine(4, 5), lif(4)], (5,)),
    "pictures": ((1, 2, 5, 6), [conv(4, 2), lif(4, 5, 6)], (2, 5, 6)),
    "a batch, flattened": ((3, 2, 4), [flatten(), affine(4, 8), lif(4)], (2, 1, 4)),
}


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_axis_is_left_out_and_said(tmp_path, name):
    shape, nodes, expected = BATCHED[name]
    path = written(tmp_path, graph_of(shape, nodes))
    read = open_nir(path, timesteps=2)
    assert read.folded.input.shape == expected
    (note,) = read.notes
    assert f"has shape {list(shape)}; its first axis is taken for a batch axis and left out" in note
    given = open_nir(path, timesteps=2, input_shape=shape[1:])
    assert given.folded.input.shape == expected and given.notes == ()


@pytest.mark.parametrize(
    ("shape", "nodes"),
    [((1, 8, 8), [flatten(), affine(4, 64), lif(4)]), ((2, 9), CHAINS["line"][1]), ((3, 4), [lif(3, 4)])],
)
def test_other_axes_stay(tmp_path, shape, nodes):
    read = open_nir(written(tmp_path, graph_of(shape, nodes)), timesteps=2)
    assert read.notes == () and np.prod(read.folded.input.shape) == np.prod(shape)


def test_a_wrong_input_shape(tmp_path):
    path = written(tmp_path, graph_of((5,), [affine(4, 5), lif(4)]))
    with pytest.raises(FormatError, match=r"weight.* has shape \(4, 5\) on values of shape \(6,\)"):
        open_nir(path, timesteps=2, input_shape=(6,))
    with pytest.raises(FormatError, match=r"--input-shape \[1, 1, 1, 5\]; one to three sizes above zero"):
        open_nir(path, timesteps=2, input_shape=(1, 1, 1, 5))


@pytest.mark.usefixtures("without_lava")
def test_the_export_says_that_it_left_out_an_axis(tmp_path, capfd):
    path = written(tmp_path, graph_of((1, 5), [affine(4, 5), lif(4)]))
    arguments = [str(path), "--target", "loihi2", "--timesteps", "2", "--samples", "1"]
    assert main(COMMAND, [*arguments, "--verbose"]) == 0
    assert "its first axis is taken for a batch axis" in " ".join(capfd.readouterr().out.split())
    assert main(COMMAND, [*arguments, "--input-shape", "5", "--verbose"]) == 0
    assert "batch axis" not in capfd.readouterr().out
