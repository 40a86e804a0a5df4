"""Comparison itself: it counts, and it finds the first difference with all its coordinates."""

import re
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import inputs_for, int_chain, int_loop, int_residual, needs_lava, replace_lava, spiking_network
from properties import examples

from mpbn_deploy.base import MissingPackageError, SimulationError
from mpbn_deploy.data import Samples, Split
from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import write_netx
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.verify import compare, verify
from mpbn_deploy.verify.command import verify_text
from mpbn_deploy.verify.comparison import Comparison, Comparisons, join_samples
from mpbn_deploy.verify.folding import FloatingCheck, check_fold, join_floating_checks


@pytest.fixture(scope="module")
def reference():
    return simulate(int_chain(), inputs_for(int_chain(), samples=3))


def altered(trace_, kind, population, at, value):
    arrays = {name: np.array(array) for name, array in getattr(trace_, kind).items()}
    arrays[population][at] = value
    return replace(trace_, **{kind: arrays})


def test_equal_traces(reference):
    result = compare("same", reference, reference)
    assert result.exact and result.first_mismatch is None
    assert result.spikes_compared == 3 * 4 * (36 + 5 + 3) == result.voltages_compared
    assert result.outputs_compared == 9


def test_the_first_difference_has_all_coordinates(reference):
    spike = not reference.spikes["conv"][2, 1, 3, 0, 2]
    other = altered(reference, "spikes", "conv", (2, 1, 3, 0, 2), spike)
    other = altered(other, "spikes", "dense", (0, 3, 4), True)
    other = altered(other, "voltages", "dense", (1, 1, 0), 12345)
    result = compare("other", reference, other)
    assert result.spikes_mismatched >= 1 and result.voltages_mismatched == 1 and not result.exact
    first = result.first_mismatch
    assert (first.quantity, first.population, first.sample, first.time_step) == ("spike", "conv", 2, 1)
    assert first.index == (3, 0, 2) and (first.expected, first.got) == (int(not spike), int(spike))


def test_a_difference_only_in_outputs_has_no_time_step(reference):
    outputs = np.array(reference.outputs)
    outputs[1, 2] += 1
    result = compare("other", reference, replace(reference, outputs=outputs))
    assert result.outputs_mismatched == 1
    assert (result.first_mismatch.quantity, result.first_mismatch.time_step) == ("output", None)
    assert (result.first_mismatch.sample, result.first_mismatch.index) == (1, (2,))


@examples(100)
@given(data=st.data(), seed=st.integers(0, 2**32), flips=st.integers(0, 6))
def test_parts_together_say_what_one_comparison_says(data, seed, flips):
    """Wherever the samples are cut, and wherever two executions differ: counts, and the first difference."""
    network, samples = int_chain(), 6
    reference = simulate(network, inputs_for(network, samples=samples))
    other = spoiled(reference, np.random.default_rng(seed), flips)
    cuts = sorted(data.draw(st.sets(st.integers(1, samples - 1))))
    parts = [
        (
            start,
            Comparisons(
                comparisons=(compare("other", part(reference, start, stop), part(other, start, stop)),)
            ),
        )
        for start, stop in pairwise([0, *cuts, samples])
    ]
    joined = join_samples(network, parts)
    assert asdict(joined.comparisons[0]) == asdict(compare("other", reference, other))
    assert joined.failed == ()


def spoiled(trace_, generator, flips):
    """Another trace that differs in so many places at most, of any kind."""
    spikes, voltages = (
        {k: np.array(v) for k, v in kind.items()} for kind in (trace_.spikes, trace_.voltages)
    )
    outputs = np.array(trace_.outputs)
    for _ in range(flips):
        array = [*spikes.values(), *voltages.values(), outputs][generator.integers(2 * len(spikes) + 1)]
        at = tuple(generator.integers(size) for size in array.shape)
        array[at] = not array[at] if array.dtype == bool else array[at] + generator.integers(-2, 3)
    return replace(trace_, spikes=spikes, voltages=voltages, outputs=outputs)


def part(trace_, start, stop):
    return replace(
        trace_,
        spikes={name: values[start:stop] for name, values in trace_.spikes.items()},
        voltages={name: values[start:stop] for name, values in trace_.voltages.items()},
        outputs=trace_.outputs[start:stop],
    )


def test_a_part_that_was_not_run_leaves_the_whole_not_run():
    good = Comparison(execution="Lava", spikes_compared=7)
    parts = [
        (0, Comparisons(comparisons=(good,))),
        (3, Comparisons(comparisons=(Comparison(execution="Lava", not_run="it hung"),), failed=("Lava",))),
        (6, Comparisons(comparisons=(Comparison(execution="Lava", not_run="it died"),), failed=("Lava",))),
    ]
    joined = join_samples(int_chain(), parts)
    assert asdict(joined.comparisons[0]) == asdict(Comparison(execution="Lava", not_run="it hung"))
    assert joined.failed == ("Lava",)
    assert join_floating_checks([FloatingCheck(close_calls=2), FloatingCheck(close_calls=3)]).close_calls == 5
    broken = FloatingCheck(not_run="it hung")
    assert join_floating_checks([FloatingCheck(close_calls=2), broken]) is broken


def small_networks():
    folded = fold(trace(spiking_network(gains="positive")))
    return folded, quantize(folded, load_profile("loihi2")).network


def test_all_executions_agree_and_drift_is_measured(tmp_path):
    folded, network = small_networks()
    write_netx(network, tmp_path / "network.net")
    inputs = inputs_for(network, samples=6)
    labels = simulate(folded, inputs).predictions
    report = verify(
        network,
        Samples(name="own", inputs=inputs, labels=None, test=Split(inputs=inputs, labels=labels)),
        folded=folded,
        netx=tmp_path / "network.net",
        budget=60.0,
    )
    data = report.to_json()
    assert data["bit_exact"] and data["first_mismatch"] is None
    executions = ["emulator", "C", "Lava's own models", "lava-dl netx"]
    assert [c["execution"] for c in data["comparisons"]] == executions
    if lava_sim.lava_version():
        assert all(c["spikes_compared"] > 0 for c in data["comparisons"])
    assert data["spikes_compared"] == sum(c["spikes_compared"] for c in data["comparisons"])
    assert 0.9 < data["populations"][0]["spike_agreement"] <= 1
    assert all(p["overflow_proved_absent"] for p in data["populations"])
    assert data["accuracy"]["float"] == 1.0 and 0 <= data["accuracy"]["integer"] <= 1


def test_a_wrong_execution_is_reported_not_raised(monkeypatch):
    _, network = small_networks()
    inputs = inputs_for(network)
    first = network.populations[1]
    wrong = replace(first, neuron=replace(first.neuron, threshold=first.neuron.threshold + 40))
    others = replace(network, populations=(network.populations[0], wrong, *network.populations[2:]))
    replace_lava(monkeypatch, lambda net, given: simulate(others, given))
    report = verify(network, inputs)
    assert not report.bit_exact
    assert report.to_json()["first_mismatch"]["population"] == "lif1"
    text = _render(report)
    assert "not bit-exact" in text and "Lava (our models): first difference: spike of lif1" in text


def _render(report):
    from io import StringIO

    from rich.console import Console

    console = Console(file=StringIO(), width=200)
    console.print(str(report), verify_text(report))
    return console.file.getvalue()


def test_without_lava_the_rest_is_compared_and_the_gap_is_said(monkeypatch):
    def missing(*given, **options):
        raise MissingPackageError("lava-nc is not installed; pip install ...")

    replace_lava(monkeypatch, missing)
    _, network = small_networks()
    report = verify(network, inputs_for(network))
    assert report.bit_exact and report.comparisons[2].not_run.startswith("lava-nc is not installed")
    text = _render(report)
    said = "bit-exact in both executions that ran; Lava (our models) not run"
    assert said in " ".join(text.split())  # it is wrapped
    assert re.search(r"Lava \(our models\) +not run +\n", text)  # its row
    assert (report.to_json()["executions_run"], report.to_json()["executions_wanted"]) == (2, 3)


def test_folding_is_checked_against_the_module_itself():
    model = spiking_network()
    folded = fold(trace(model))
    inputs = inputs_for(folded, samples=6)
    check = check_fold(model, folded, inputs)
    assert check.spikes_compared == 6 * 3 * (48 + 6) and check.spikes_mismatched == 0
    assert check.largest_output_difference < 1e-12
    model.body.lif1.threshold = 0.9
    assert check_fold(model, folded, inputs).spikes_mismatched > 0


def changed_last(network, **changes):
    *front, last = network.populations
    return replace(network, populations=(*front, replace(last, neuron=replace(last.neuron, **changes))))


def with_exponent(network):
    *front, last = network.connections
    return replace(network, connections=(*front, replace(last, synapse=replace(last.synapse, exponent=1))))


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (int_residual(), r"last: a graph with skip connections \(from first, input\)"),
        (with_exponent(int_chain()), "output: weights with exponents"),
        (changed_last(int_chain(), bias_exponent=3), "output: a bias with an exponent"),
        (int_loop(delays=(63,), loop=False), "last: several kernels, loops, delays"),
        (
            replace(int_loop(), connections=int_loop().connections[::-1]),
            "cannot express the order of the connections",
        ),
    ],
)
def test_why_the_stock_reader_is_not_asked_is_said(monkeypatch, tmp_path, network, reason):
    replace_lava(monkeypatch, lambda net, given: simulate(net, given))
    write_netx(network, tmp_path / "network.net")
    report = verify(network, inputs_for(network), netx=tmp_path / "network.net")
    assert [c.execution for c in report.comparisons] == ["emulator", "C", "Lava (our models)"]
    assert report.verdict.endswith("bit-exact to the reference; Lava's own models not run")  # one is silent
    assert re.search(f"lava-dl netx cannot run this network: .*{reason}", _render(report))
    assert re.search(reason, report.to_json()["stock_reader_obstacle"])
    assert "lava-dl netx" not in _render(verify(network, inputs_for(network)))


@needs_lava
def test_a_reader_that_cannot_take_the_network_is_reported(tmp_path):
    """lava-dl's reader divides by the largest weight of a dense layer."""
    network = int_chain()
    *front, last = network.connections
    silent = replace(last, synapse=replace(last.synapse, weight=np.zeros_like(last.synapse.weight)))
    network = replace(network, connections=(*front, silent))
    write_netx(network, tmp_path / "network.net")
    report = verify(network, inputs_for(network), netx=tmp_path / "network.net", budget=60.0)
    assert report.bit_exact and [c.execution for c in report.comparisons][-1] == "Lava's own models"
    assert "lava-dl netx cannot run this network: output: all weights are zero" in _render(report)
    with pytest.raises(SimulationError, match="lava-dl's netx reader cannot run the network"):
        lava_sim.run_stock_netx(tmp_path / "network.net", network, inputs_for(network))
