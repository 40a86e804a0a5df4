"""Lava's own process models, within a time budget: what they are asked, and what they say."""

import io
import json
from dataclasses import replace

import pytest
from networks import inputs_for, int_chain, int_loop, int_residual, int_windows, needs_lava, softened
from rich.console import Console

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import SimulationError
from mpbn_deploy.execute import ExecutionOptions
from mpbn_deploy.execute.lava import BudgetShare, reader_samples, stock_share
from mpbn_deploy.execute.lava.compat import load_lava
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.netx import write_netx
from mpbn_deploy.verify import lava_models, verify
from mpbn_deploy.verify.command import verify_text
from mpbn_deploy.verify.comparison import LAVA_CLAIM, check_certificate

pytestmark = pytest.mark.lava
OWN = "Lava's own models"


@pytest.fixture
def one_by_one(monkeypatch):
    """Let every population run alone, on two samples."""

    def share(network, samples, seconds):
        return BudgetShare(samples=2, alone=tuple(population.name for population in network.layers))

    monkeypatch.setattr(lava_models, "stock_share", share)


@pytest.fixture
def spoiled(monkeypatch):
    """Let Lava's own LIF add ten units to each voltage."""
    load_lava()
    from lava.proc.lif.models import AbstractPyLifModelFixed

    sound = AbstractPyLifModelFixed.subthr_dynamics

    def subthr_dynamics(model, activation_in):
        sound(model, activation_in)
        model.v[:] += 10

    monkeypatch.setattr(AbstractPyLifModelFixed, "subthr_dynamics", subthr_dynamics)


def own(report):
    (found,) = [comparison for comparison in report.comparisons if comparison.execution == OWN]
    return found


# ---- what they say ----------------------------------------------------------------------------


@needs_lava
@pytest.mark.parametrize("network", [int_chain(), int_residual(delay=1), int_loop(), int_windows()])
def test_populations_one_by_one_equal_the_reference(network, one_by_one):
    inputs = inputs_for(network, samples=3)
    reference = simulate(network, inputs)
    found = lava_models.compare_within_budget(
        lava_models.LAVA_STOCK, network, inputs, reference, 1.0, ExecutionOptions()
    )
    neurons = 2 * network.timesteps * sum(population.size for population in network.layers)
    assert found.exact and found.spikes_compared == found.voltages_compared == neurons
    assert found.outputs_compared == 2 * network.output.size
    assert found.extent == "2 of 3 samples, populations, one by one"
    assert 0 < sum(int(values.sum()) for values in reference.spikes.values()) < neurons


@needs_lava
def test_a_population_is_fed_what_the_reference_recorded(one_by_one):
    """What is wrong in one population shows there and nowhere else."""
    network = int_residual()
    inputs = inputs_for(network)
    reference = simulate(network, inputs)
    wrong = {**reference.spikes, "second": ~reference.spikes["second"]}
    found = lava_models.compare_within_budget(
        lava_models.LAVA_STOCK, network, inputs, replace(reference, spikes=wrong), 1.0, ExecutionOptions()
    )
    assert found.first_mismatch.population in ("second", "last")
    assert found.spikes_mismatched >= 2 * reference.spikes["second"][0].size


@needs_lava
@pytest.mark.parametrize("alone", [False, True])
def test_a_spoiled_lif_of_lava_turns_a_residual_network_red(spoiled, request, alone):
    if alone:
        request.getfixturevalue("one_by_one")
    network = int_residual()
    report = verify(network, inputs_for(network), budget=60.0)
    assert not report.passed and report.verdict == "not bit-exact"
    assert [c.execution for c in report.comparisons if not c.exact] == [OWN] and len(report.comparisons) > 2
    assert own(report).voltages_mismatched and report.lava_claim is None


@needs_lava
def test_the_claim_is_made_only_where_lavas_own_models_agreed():
    network = int_residual()
    inputs = inputs_for(network)
    agreed, not_asked = verify(network, inputs, budget=60.0), verify(network, inputs, budget=0)
    assert agreed.verdict == "bit-exact to Lava's own models"
    assert agreed.lava_claim == f"{LAVA_CLAIM}: Lava's own models agree on all 3 samples"
    assert (
        not_asked.verdict == "bit-exact to the reference; Lava's own models not run"
        and not_asked.lava_claim is None
    )
    soft = softened(network)
    refused = verify(soft, inputs, budget=60.0)
    assert "soft reset" in own(refused).not_run and refused.lava_claim is None


# ---- what fits a budget -----------------------------------------------------------------------


def shared(network, seconds):
    found = stock_share(network, 16, seconds)
    return found.samples, found.alone


def test_a_small_network_runs_as_a_whole_on_all_samples():
    assert shared(int_chain(), 60.0) == (16, ())


def test_fewer_seconds_give_fewer_samples_of_a_whole_network():
    found = [stock_share(int_chain(), 10**6, seconds).samples for seconds in (2.0, 4.0, 8.0)]
    assert found == sorted(set(found)) and found[0] > 0


def test_what_is_too_deep_runs_one_by_one(monkeypatch):
    """Samples pass the populations one after the other, which takes a deep network long."""
    network = int_residual()
    monkeypatch.setattr("mpbn_deploy.execute.lava.session.STOCK_PRODUCTS_PER_SECOND", 1e4)
    monkeypatch.setattr("mpbn_deploy.execute.lava.session.START_SECONDS", 0.1)
    assert shared(network, 4.0) == (1, ("first", "second", "last"))


def test_what_fits_nowhere_leaves_the_cheapest_populations(monkeypatch):
    network = int_residual()
    monkeypatch.setattr("mpbn_deploy.execute.lava.session.STOCK_PRODUCTS_PER_SECOND", 1e4)
    assert shared(network, 2.0) == (1, ("first",))
    assert shared(network, 0.5) == (0, ())
    with pytest.raises(SimulationError, match=r"no population .* fits a budget of 0\.5 s; raise --budget"):
        lava_models.compare_within_budget(
            lava_models.LAVA_STOCK, network, inputs_for(network), None, 0.5, ExecutionOptions()
        )


def test_convolutions_take_time_for_each_pair_of_channels(monkeypatch):
    network, seconds = int_residual(), 60.0
    before = stock_share(network, 10**6, seconds).samples
    monkeypatch.setattr("mpbn_deploy.execute.lava.session.PAIR_SECONDS", 1e-3)
    assert 0 < stock_share(network, 10**6, seconds).samples < before


def test_the_reader_runs_as_many_samples_as_fit_its_share():
    network = int_chain()
    found = [reader_samples(network, 10**6, seconds) for seconds in (2.0, 8.0, 32.0)]
    assert found == sorted(set(found)) and found[0] == 0
    assert reader_samples(network, 16, 60.0) == 16
    with pytest.raises(SimulationError, match=r"not one sample fits its share of a budget of 2 s"):
        lava_models.compare_within_budget(
            lava_models.READER, network, inputs_for(network), None, 2.0, ExecutionOptions()
        )


@needs_lava
def test_the_reader_says_how_many_samples_it_ran(monkeypatch, tmp_path):
    network, file = int_chain(), tmp_path / "network.net"
    write_netx(network, file)
    monkeypatch.setattr(lava_models, "reader_samples", lambda *_: 1)
    report = verify(network, inputs_for(network), netx=file, budget=30.0)
    (found,) = [c for c in report.comparisons if c.execution == "lava-dl netx"]
    assert found.exact and found.spikes_compared > 0 and found.extent == "1 of 3 samples"


@needs_lava
def test_some_populations_compare_no_outputs(monkeypatch):
    network = int_residual()
    monkeypatch.setattr(lava_models, "stock_share", lambda *_: BudgetShare(samples=1, alone=("first",)))
    found = lava_models.compare_within_budget(
        lava_models.LAVA_STOCK, network, inputs_for(network), None, 1.0, ExecutionOptions()
    )
    assert found.exact and found.outputs_compared == 0 and found.spikes_compared == 3 * 60
    assert found.extent == "1 of 3 samples, 1 of 3 populations, one by one"


# ---- commands ---------------------------------------------------------------------------------


@needs_lava
def test_a_command_runs_them_within_its_budget(export_folder, capsys):
    assert console_script(["verify", str(export_folder), "--samples", "2", "--budget", "30", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    compared = {c["execution"]: c["spikes_compared"] for c in found["comparisons"]}
    assert compared[OWN] == compared["emulator"] > 0


@pytest.mark.parametrize("wrong", ["-1", "nan", "inf", "soon"])
def test_impossible_budgets(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        console_script(["verify", "folder", f"--budget={wrong}"])
    assert ended.value.code == 2 and f"{wrong!r} is not a number of seconds" in capsys.readouterr().err


def test_a_certificate_of_another_extent_is_not_checked():
    whole = {"execution": OWN, "spikes_compared": 8, "extent": None}
    part = {"execution": OWN, "spikes_compared": 4, "extent": "1 of 2 samples"}
    checked = check_certificate({"comparisons": [whole]}, {"comparisons": [part]})
    assert checked.holds
    assert checked.not_checked == (f"the comparison with {OWN}: all samples then, 1 of 2 samples now",)


@needs_lava
def test_the_text_says_what_ran():
    network = int_chain()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(verify_text(verify(network, inputs_for(network), budget=60.0)))
    shown = console.export_text()
    assert "Lava (our models)" not in shown and OWN in shown and LAVA_CLAIM in shown
    assert max(map(len, shown.splitlines())) <= 80
