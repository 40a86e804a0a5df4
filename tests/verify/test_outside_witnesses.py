"""Simulators of others as witnesses: they agree, and what is spoiled in them shows."""

import io
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from networks import inputs_for, int_chain, int_loop, int_residual, int_windows, softened
from rich.console import Console

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import MissingPackageError, SimulationError, main
from mpbn_deploy.execute.outside import WITNESSES, WitnessFailedError, nengo_loihi, sana_fe, xylosim
from mpbn_deploy.execute.outside.witnesses import Costs
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.formats.netx import write_netx
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, Readout, SoftLif
from mpbn_deploy.verify import lava_models, verify
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY
from mpbn_deploy.verify.command import verify_text
from mpbn_deploy.verify.lava_models import compare_with_witness

pytestmark = pytest.mark.interop
NENGO, XYLOSIM = WITNESSES["nengo-loihi"], WITNESSES["xylosim"]


def installed(witness):
    try:
        return bool(witness.version())
    except MissingPackageError:
        return False


def with_skips(names):
    return [
        pytest.param(
            WITNESSES[name],
            id=name,
            marks=pytest.mark.skipif(not installed(WITNESSES[name]), reason=f"{name} is not installed"),
        )
        for name in names
    ]


any_witness = pytest.mark.parametrize("witness", with_skips(["nengo-loihi", "sana-fe"]))  # of Loihi
needs_nengo = pytest.mark.skipif(not installed(NENGO), reason="nengo-loihi is not installed")
needs_xylosim = pytest.mark.skipif(not installed(XYLOSIM), reason="xylosim is not installed")


def compared(witness, network, budget=60.0, samples=3, **options):
    inputs = inputs_for(network, samples, steps=True)
    return compare_with_witness(witness, network, inputs, None, budget, shown=False, **options)


def with_neuron(network, name, **numbers):
    """Return the network with other numbers in the neuron of one population."""
    populations = tuple(
        p.with_neuron(replace(p.neuron, **numbers)) if p.name == name else p for p in network.populations
    )
    return replace(network, populations=populations)


def without_current(network):
    """Return the network with currents that last one step only."""
    for population in network.layers:
        network = with_neuron(network, population.name, decay_current=4096)
    return network


def wide_network():
    """input (2, 24, 24) -> convolution (4, 24, 24) -> readout (3,)"""
    generator = np.random.default_rng(0)
    shape = (4, 24, 24)
    wide = Lif(threshold=generator.integers(0, 300, size=shape), bias=generator.integers(-9, 9, size=shape))
    populations = (
        Population(name="input", shape=(2, 24, 24), neuron=Input(minimum=0, maximum=7)),
        Population(name="wide", shape=shape, neuron=wide),
        Population(name="last", shape=(3,), neuron=Readout(bias=np.zeros(3, int))),
    )
    kernel = Conv2d(weight=generator.integers(-40, 41, size=(4, 2, 3, 3)), padding=(1, 1))
    dense = Dense(weight=generator.integers(-9, 10, size=(3, 2304)))
    return IntNetwork(
        populations=populations,
        connections=(
            Connection(source="input", target="wide", synapse=kernel),
            Connection(source="wide", target="last", synapse=dense),
        ),
        timesteps=2,
        scales={},
    )


# ---- what they say ----------------------------------------------------------------------------


@any_witness
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "build",
    [
        int_chain,
        lambda seed: int_chain(seed, per_neuron=False, groups=2),
        lambda seed: int_residual(seed, delay=1),
        lambda seed: int_loop(seed, delays=(0, 1, 3)),
        int_windows,
    ],
)
def test_random_networks_equal_the_reference(witness, build, seed):
    """Graded and negative inputs, negative thresholds, delays, loops, windows, exponents, readouts."""
    network = without_current(build(seed))
    found = compared(witness, network)
    values = 3 * network.timesteps * sum(population.size for population in network.layers)
    assert found.exact and found.spikes_compared == found.voltages_compared == values
    assert found.outputs_compared == 3 * network.output.size
    assert found.extent == "populations, one by one"


@any_witness
def test_a_population_of_several_pieces(witness):
    """Four channels of 24 x 24 are 2304 neurons: two whole pieces and a part of one."""
    network = wide_network()
    reference = simulate(network, inputs_for(network, 2))
    assert 0.1 < reference.spikes["wide"].mean() < 0.9
    found = compared(witness, network, samples=2)
    assert found.exact and found.spikes_compared == 2 * network.timesteps * (2304 + 3)


@needs_xylosim
@pytest.mark.parametrize("change", [lambda network: network, softened])
@pytest.mark.parametrize("build", [int_chain, int_residual, int_windows])
def test_xylosim_has_neurons_that_forget_their_voltage(build, change):
    """Whatever the reset, and with thresholds of both signs."""
    network = change(without_current(build()))
    for population in network.layers:
        network = with_neuron(network, population.name, decay_voltage=4096)
    found = compared(XYLOSIM, network)
    assert found.exact and found.spikes_compared == found.voltages_compared > 90


@needs_xylosim
def test_what_xylosim_cannot_express():
    leaky = int_chain(per_neuron=False)
    with pytest.raises(SimulationError, match="a voltage that outlives its time step"):
        compared(XYLOSIM, leaky)
    assert xylosim.obstacle(int_residual().output.neuron) == "a current that outlives its time step"
    for number, why in (
        (300, "weights of more than 8 bits"),
        (100, "sums or thresholds of more than 16 bits"),
    ):
        with pytest.raises(SimulationError, match=why):
            compared(XYLOSIM, forgetful(number, sources=200))


def forgetful(weight, sources):
    """Return a network of one neuron without memory; odd weights, so that Xylo's unit is one of ours."""
    neuron = Lif(threshold=np.array([9]), bias=np.array([1]), decay_voltage=4096)
    return IntNetwork(
        populations=(
            Population(name="input", shape=(sources,), neuron=Input(minimum=0, maximum=1)),
            Population(name="neuron", shape=(1,), neuron=neuron),
        ),
        connections=(
            Connection(
                source="input", target="neuron", synapse=Dense(weight=np.full((1, sources), weight + 1))
            ),
        ),
        timesteps=2,
        scales={},
    )


@needs_nengo
def test_nengo_loihi_has_a_decaying_current():
    network = int_residual()
    assert network.output.neuron.decay_current == 2000
    assert compared(NENGO, network).exact


@pytest.fixture
def spoiled():
    """Let nengo-loihi add one unit to each voltage."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nengo_loihi.emulator.interface import CompartmentState
    sound = CompartmentState.update

    def update(state, rng):
        state.voltage += 1
        sound(state, rng)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompartmentState, "update", update)
        yield


@needs_nengo
def test_a_spoiled_nengo_loihi_turns_a_residual_network_red(spoiled):
    network = with_neuron(int_residual(), "first", decay_voltage=0)
    report = verify(network, inputs_for(network), budget=10.0, witness="nengo-loihi")
    *others, last = report.comparisons
    assert not report.passed and report.verdict == "not bit-exact"
    assert others and all(comparison.exact for comparison in others) and last.execution == "nengo-loihi"
    assert last.voltages_mismatched and last.first_mismatch is not None


@needs_nengo
def test_what_is_wrong_in_one_population_shows_there():
    network = int_residual()
    inputs = inputs_for(network)
    reference = simulate(network, inputs)
    wrong = replace(reference, spikes={**reference.spikes, "last": ~reference.spikes["last"]})
    found = compare_with_witness(NENGO, network, inputs, wrong, 60.0, shown=False)
    assert found.first_mismatch.population == "last"
    assert found.spikes_mismatched == reference.spikes["last"].size and not found.voltages_mismatched


# ---- obstacles --------------------------------------------------------------------------------


@needs_nengo
def test_obstacles_are_named_and_the_rest_is_compared():
    network = softened(int_residual(), share=0.0)  # in the first population only
    network = with_neuron(network, "last", decay_current=0)
    found = compared(NENGO, network)
    assert found.exact and found.spikes_compared == 3 * network.timesteps * 60
    assert found.outputs_compared == 0
    assert (
        found.extent == "1 of 3 populations, one by one; first: soft reset; last: a current that never decays"
    )


@needs_nengo
@pytest.mark.usefixtures("without_lava")
def test_a_network_of_obstacles_is_not_run():
    report = verify(softened(int_residual(), share=1.0), inputs_for(int_residual()), witness="nengo-loihi")
    assert report.passed and report.comparisons[-1].not_run == "first, second, last: soft reset"


@needs_nengo
@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ([2**15, 0], "overflow in q0, of which nengo-loihi keeps fewer bits"),
        ([2**26, -(2**26)], "weights of a neuron whose sum is beyond 31 bits"),
    ],
)
def test_sums_beyond_the_bits_of_nengo_loihi(weights, why):
    """Our 24 bits hold these sums."""
    network = int_loop(loop=False)
    first = network.connections[0]
    heavy = np.zeros((5, 6), int)
    heavy[0, :2] = weights
    connections = (replace(first, synapse=replace(first.synapse, weight=heavy)), *network.connections[1:])
    network = replace(network, connections=connections)
    found = compare_with_witness(NENGO, network, np.ones((1, 6), int), None, 60.0, shown=False)
    assert found.exact and found.extent == f"1 of 2 populations, one by one; first: {why}"


@needs_nengo
def test_a_budget_leaves_samples_and_populations_out(monkeypatch):
    network = int_residual()
    monkeypatch.setattr(nengo_loihi, "COSTS", Costs(piece=1.0, synapse=0.0, step=1.0, arrival=0.0))
    assert compared(NENGO, network, 22.0).extent == "2 of 3 samples, populations, one by one"
    assert compared(NENGO, network, 8.0).extent == "1 of 3 samples, 2 of 3 populations, one by one"
    with pytest.raises(SimulationError, match=r"no population fits a budget of 1 s; raise --budget"):
        compared(NENGO, network, 1.0)


@needs_nengo
def test_without_a_trace_a_few_samples_run(monkeypatch):
    monkeypatch.setattr(lava_models, "FEW_SAMPLES", 2)
    assert compared(NENGO, int_chain()).extent == "2 of 3 samples, populations, one by one"
    assert compared(NENGO, int_chain(), None).extent == "populations, one by one"


def test_a_witness_that_is_not_installed(monkeypatch):
    def missing(package):
        raise nengo_loihi.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(nengo_loihi.metadata, "version", missing)
    network = int_chain()
    report = verify(network, inputs_for(network), budget=10.0, witness="nengo-loihi")
    last = report.comparisons[-1]
    assert last.not_run == "nengo-loihi is not installed; pip install 'mpbn_deploy[witness]'."
    assert report.passed and not report.failed
    assert report.verdict.endswith(" not run")


@needs_nengo
@pytest.mark.usefixtures("without_lava")
def test_a_witness_that_fails_is_a_failure(monkeypatch):
    def broken(piece):
        raise WitnessFailedError("it broke")

    monkeypatch.setattr(nengo_loihi, "run", broken)
    network = int_chain()
    report = verify(network, inputs_for(network), budget=10.0, witness="nengo-loihi")
    assert report.failed == ("nengo-loihi",) and not report.passed


# ---- SANA-FE ----------------------------------------------------------------------------------

SANA_FE = WITNESSES["sana-fe"]
needs_sana_fe = pytest.mark.skipif(not installed(SANA_FE), reason="SANA-FE is not installed")


def soft(threshold, subtrahend):
    return SoftLif(
        threshold=np.array(threshold), subtrahend=np.array(subtrahend), bias=np.zeros(len(threshold), int)
    )


@pytest.mark.parametrize(
    ("neuron", "why"),
    [
        (Readout(bias=np.zeros(1, int), decay_current=0), None),
        (Readout(bias=np.zeros(1, int), decay_current=7), "a decaying current, which SANA-FE does not round"),
        (soft([3, 0], [3, 0]), None),
        (soft([3, 4], [3, 5]), "a soft reset that does not subtract the threshold"),
        (soft([3, -1], [3, -1]), "a soft reset with a negative threshold"),
    ],
)
def test_what_sana_fe_cannot_express(neuron, why):
    assert SANA_FE.obstacle(neuron) == why


@needs_sana_fe
def test_sana_fe_has_a_soft_reset():
    network = without_current(int_loop())
    for name in ("first", "last"):
        hard = network.layer(name).neuron
        bent = SoftLif(
            threshold=hard.threshold,
            subtrahend=hard.threshold,
            bias=hard.bias,
            decay_voltage=hard.decay_voltage,
        )
        populations = tuple(p.with_neuron(bent) if p.name == name else p for p in network.populations)
        network = replace(network, populations=populations)
    found = compared(SANA_FE, network)
    assert found.exact and found.spikes_compared == 3 * 5 * 9


@needs_sana_fe
def test_a_spoiled_sana_fe_turns_a_residual_network_red(tmp_path, monkeypatch):
    """The child is told other biases than the network has."""
    sound = sana_fe._request
    monkeypatch.setattr(
        sana_fe, "_request", lambda piece: {**(asked := sound(piece)), "bias": asked["bias"] + 1}
    )
    found = compared(SANA_FE, without_current(int_residual()), samples=1)
    assert not found.exact and found.voltages_mismatched and found.first_mismatch.time_step == 0


@needs_sana_fe
def test_a_child_that_fails(tmp_path, monkeypatch):
    child = tmp_path / "child.py"
    monkeypatch.setattr(sana_fe, "CHILD", child)
    for text, why in (
        ("raise RuntimeError('no chip')", "SANA-FE failed: RuntimeError: no chip"),
        ("import os; os._exit(3)", "SANA-FE failed: exit code 3"),
        ("import time; time.sleep(60)", "SANA-FE: a piece took more than 0.5 s."),
    ):
        child.write_text(text, encoding="utf-8")
        monkeypatch.setattr(sana_fe, "PATIENCE", 0.5 if "sleep" in text else 60.0)
        with pytest.raises(WitnessFailedError) as raised:
            compared(SANA_FE, int_chain())
        assert str(raised.value) == why


@needs_sana_fe
def test_more_axons_than_its_loihi_has(monkeypatch):
    monkeypatch.setattr(sana_fe, "MOST_AXONS", 40)
    found = compared(SANA_FE, int_chain())
    assert "of which its Loihi has 40" in found.extent and "of 3 populations" in found.extent


def test_an_interpreter_without_sana_fe(monkeypatch):
    monkeypatch.setenv("SANA_FE_PYTHON", "/nowhere/python")
    with pytest.raises(
        MissingPackageError, match=r"SANA-FE is not installed for /nowhere/python; pip install"
    ):
        SANA_FE.version()


# ---- commands ---------------------------------------------------------------------------------


@any_witness
@pytest.mark.usefixtures("without_lava")
def test_verify_adds_a_row(witness, export_folder, capsys):
    arguments = ["verify", str(export_folder), "--samples", "2", "--budget", "20", "--json"]
    assert console_script([*arguments, "--witness", witness.name, "--witness", witness.name]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [c["execution"] for c in found["comparisons"]].count(witness.name) == 1
    last = found["comparisons"][-1]
    assert last["execution"] == witness.name and last["spikes_compared"] > 0 == last["spikes_mismatched"]


@needs_nengo
@pytest.mark.usefixtures("without_lava")
def test_the_text_says_how_much_was_compared():
    network = int_residual()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(verify_text(verify(network, inputs_for(network), budget=10.0, witness="nengo-loihi")))
    assert "nengo-loihi: populations, one by one" in console.export_text()


def test_an_unknown_witness(capsys):
    with pytest.raises(SystemExit) as ended:
        console_script(["verify", "folder", "--witness", "oracle"])
    assert ended.value.code == 2 and "invalid choice: 'oracle'" in capsys.readouterr().err


@any_witness
def test_doctor_tries_it(witness):
    assert witness.check().endswith("one neuron fired 2 spikes as expected")


def test_doctor_counts_what_is_not_installed_as_no_failure(monkeypatch, capsys):
    def missing():
        raise MissingPackageError("not there")

    monkeypatch.setattr(nengo_loihi, "version", missing)
    code = console_script(["doctor"])
    shown = capsys.readouterr().out
    assert "to add nengo-loihi (verify --witness): pip install 'mpbn_deploy[witness]'" in shown
    assert ("to fix" in shown) == (code == 1)


def test_a_witness_that_was_asked_for_must_be_installed(monkeypatch, tmp_path, capsys):
    def missing(package):
        raise nengo_loihi.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(nengo_loihi.metadata, "version", missing)
    write_netx(int_chain(), tmp_path / "a.net")
    for command in ([VERIFY, tmp_path / "a.net"], [EXPORT, tmp_path / "a.pt", "--target", "loihi2"]):
        assert main(command[0], [*map(str, command[1:]), "--witness", "nengo-loihi"]) == 2
        assert "nengo-loihi is not installed; pip install" in capsys.readouterr().err
