"""The campaign: two networks of it, its oracle, and the counterexamples that it found."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from networks import charged, inputs_for, int_chain, int_loop, int_residual, int_windows, needs_lava, softened

from mpbn_deploy.execute.reference import simulate

FOLDER = Path(__file__).parents[2] / "benchmarks"
CASES = sorted((Path(__file__).parent / "counterexamples").glob("*.json"))


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


@pytest.fixture
def campaign():
    import campaign

    return campaign


# ---- the oracle -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network",
    [
        int_chain(groups=2),
        int_chain(per_neuron=False, decay_voltage=1000, decay_current=3000),
        int_residual(delay=1),
        int_loop(delays=(0, 2)),
        int_windows(),
        softened(int_residual()),
        charged(softened(int_loop(1), 1), 2),
    ],
)
def test_the_oracle_equals_the_reference(network):
    import oracle

    inputs = inputs_for(network, steps=True)
    reference = simulate(network, inputs)
    for sample, steps in enumerate(inputs):
        found = oracle.simulate(network, steps.reshape(network.timesteps, -1).tolist())
        for expected, got in zip((reference.spikes, reference.voltages), found, strict=True):
            for name, values in got.items():
                assert values == expected[name][sample].reshape(network.timesteps, -1).astype(int).tolist()


def test_the_oracle_is_written_apart_from_the_product():
    text = (FOLDER / "oracle.py").read_text(encoding="utf-8")
    imports = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    assert imports == ["from itertools import product"]


def test_the_oracle_says_where_the_reference_is_wrong(campaign):
    """It is given a trace of another network: one threshold is higher by one."""
    network = int_loop()
    inputs = inputs_for(network, samples=8, steps=True)
    sound = campaign.consult(network, inputs, simulate(network, inputs))
    assert sound == ((8 * 5 * 9, 8 * 5 * 9, 0), "")
    neuron = network.output.neuron
    other = network.output.with_neuron(replace(neuron, bias=neuron.bias + 1))
    wrong = replace(network, populations=(*network.populations[:-1], other))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign, "simulate", lambda _, given: simulate(wrong, given))
        (_, _, different), first = campaign.consult(network, inputs, simulate(network, inputs))
    assert different and first == "voltages of last, sample 0"


# ---- the campaign -----------------------------------------------------------------------------


@needs_lava
def test_two_networks_of_the_campaign(campaign, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(campaign, "WITNESSES", {"nengo-loihi": campaign.WITNESSES["nengo-loihi"]})
    state = campaign.fresh()
    for number in (0, 1):
        campaign.examine_number(number, state, tmp_path, samples=4, budget=2.0)
    assert state["networks"] == state["next"] == 2 and state["not built"] == {}
    assert state["counterexamples"] == [] and list(tmp_path.iterdir()) == []
    assert state["features"]["recurrent"] and state["lively"] / 2 > 0.5
    assert {"emulator", "Lava's own models", "oracle"} <= state["executions"].keys()
    for networks, spikes, _, different in state["executions"].values():
        assert 1 <= networks <= 2 and spikes > 0 == different
    assert "| oracle | 2 |" in campaign.table(state)
    assert state["executions"][campaign.FOLDING][0] == 2 and "odd" in state["features"]


def test_what_differs_becomes_a_test_case(campaign, tmp_path, monkeypatch, capsys):
    """The emulator drops the spikes of its first population."""
    from mpbn_deploy.execute.emulator import Emulator

    sound = Emulator.run

    def spoiled(emulator, inputs, **options):
        found = sound(emulator, inputs, **options)
        name = next(iter(found.spikes))
        return replace(found, spikes={**found.spikes, name: np.zeros_like(found.spikes[name])})

    monkeypatch.setattr(campaign, "WITNESSES", {})
    monkeypatch.setattr(Emulator, "run", spoiled)
    state = campaign.fresh()
    campaign.examine_number(0, state, tmp_path, samples=2, budget=0.0)
    (file,) = tmp_path.iterdir()
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept["number"] == 0 and state["counterexamples"] == [0]
    assert kept["found"]["emulator"].startswith("spike of ")
    assert "network 0" in capsys.readouterr().err


def test_a_crash_becomes_a_test_case(campaign, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(campaign, "examine", lambda drawn, budget: 1 / 0)
    state = campaign.fresh()
    campaign.examine_number(5, state, tmp_path, samples=2)
    kept = json.loads((tmp_path / "5.json").read_text(encoding="utf-8"))
    assert kept["found"] == {"crash": "ZeroDivisionError: division by zero"} and state["networks"] == 0


def test_a_campaign_continues(campaign, tmp_path, monkeypatch, capsys):
    """Each network takes as long as the campaign, so that each run examines one."""
    path = tmp_path / "campaign.json"

    def examined(number, state, cases):
        state["next"] = number + 1
        clock.append(clock[-1] + 3600.0)

    clock = [0.0]
    monkeypatch.setattr(campaign, "examine_number", examined)
    monkeypatch.setattr(campaign.time, "monotonic", lambda: clock[-1])
    assert campaign.run(1.0, path, False, tmp_path) == 0
    with pytest.raises(SystemExit, match=r"campaign\.json exists: --resume continues"):
        campaign.run(1.0, path, False, tmp_path)
    assert campaign.run(1.0, path, True, tmp_path) == 0
    state = json.loads(path.read_text(encoding="utf-8"))
    assert state["next"] == 2 and state["seconds"] == 7200.0
    assert "in 2.00 hours" in capsys.readouterr().out


def test_a_signal_that_ends_the_campaign_becomes_a_test_case(campaign, tmp_path, monkeypatch, capsys):
    """The first worker ends by a signal at network 3; the second one finishes."""
    path, commands = tmp_path / "campaign.json", []
    path.write_text(json.dumps({**campaign.fresh(), "next": 3}), encoding="utf-8")

    def ended(command, check):
        commands.append(command)
        return SimpleNamespace(returncode=(-signal.SIGSEGV, 1)[len(commands) - 1])

    monkeypatch.setattr(campaign.subprocess, "run", ended)
    assert campaign.supervise(1.0, path, True, tmp_path / "cases") == 1
    kept = json.loads((tmp_path / "cases" / "3.json").read_text(encoding="utf-8"))
    state = json.loads(path.read_text(encoding="utf-8"))
    assert kept["found"] == {"crash": "signal 11"} and state["next"] == 4 and state["counterexamples"] == [3]
    assert all("--worker" in command and "--resume" in command for command in commands)


@needs_lava
@pytest.mark.parametrize("case", CASES, ids=lambda case: getattr(case, "stem", "none"))
def test_counterexamples_are_gone(campaign, case):
    number = json.loads(case.read_text(encoding="utf-8"))["number"]
    assert campaign.examine(campaign.draw(number)).differences == {}
