"""One execution of the samples per executor serves verify, drift, activity and the report."""

from collections import Counter

import numpy as np
import pytest
from networks import inputs_for, int_chain

from mpbn_deploy.execute.emulator import Emulator, emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export import export
from mpbn_deploy.fit import measure
from mpbn_deploy.ir import count_spikes
from mpbn_deploy.verify import executions, folding, lava_models, stage

pytestmark = pytest.mark.usefixtures("without_lava")


@pytest.fixture
def executed(monkeypatch):
    """How often which executor ran which kind of network, traces kept."""
    counts = Counter()
    run = Emulator.run

    def emulated(emulator, inputs, *, keep_trace=True, **options):
        counts["emulator", type(emulator.network).__name__] += keep_trace
        return run(emulator, inputs, keep_trace=keep_trace, **options)

    def simulated(network, inputs):
        counts["reference", type(network).__name__] += 1
        return simulate(network, inputs)

    monkeypatch.setattr(Emulator, "run", emulated)
    for module in (executions, folding, folding, lava_models, stage):
        monkeypatch.setattr(module, "simulate", simulated)
    return counts


def test_an_export_executes_each_network_once_per_executor(model_path, executed, tmp_path):
    export(model_path, "loihi2", tmp_path / "out", samples=3, budget=60.0)
    both = ("IntNetwork", "FoldedNetwork")
    assert executed == {(executor, kind): 1 for executor in ("emulator", "reference") for kind in both}


def test_activity_of_a_trace_is_that_of_a_run():
    network = int_chain()
    inputs = inputs_for(network, samples=5)
    ran, counted = (
        measure(network, inputs),
        measure(network, inputs, counted=count_spikes(emulate(network, inputs))),
    )
    assert (ran.samples, ran.timesteps) == (counted.samples, counted.timesteps)
    assert ran.spikes.keys() == counted.spikes.keys()
    for name, spikes in ran.spikes.items():
        np.testing.assert_array_equal(spikes, counted.spikes[name])
