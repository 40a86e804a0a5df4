"""Samples run in chunks: neither the report nor the memory depends on how many there are."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from networks import inputs_for, spiking_network

from mpbn_deploy.data import Samples
from mpbn_deploy.execute import EXECUTORS, reference
from mpbn_deploy.fit import measure, neurobench_metrics
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.verify import executions, verify

SAMPLES = 11


@pytest.fixture(scope="module")
def networks():
    model = spiking_network(4)
    folded = fold(trace(model))
    return model, folded, quantize(folded, load_profile("loihi2"), weight_bits=3).network


def in_chunks_of(monkeypatch, network, samples):
    values = sum(population.size for population in network.populations) * network.timesteps
    monkeypatch.setattr(reference, "VALUES_AT_ONCE", samples * values)
    assert reference.chunks(network, SAMPLES)[0] == slice(0, samples)


def verified(networks, **options):
    model, folded, network = networks
    inputs = inputs_for(network, samples=SAMPLES)
    labels = np.arange(SAMPLES) % network.output.size
    samples = Samples(name="", inputs=inputs, labels=labels, test=None)
    report = verify(network, samples, folded=folded, model=model, **options)
    activity = measure(network, inputs, counted=report.counted)
    return report, neurobench_metrics(network, activity, report.counted)


def assert_same(got, expected):
    """Assert that two JSON values are equal; fractions may be summed in another order."""
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for pair in zip(got, expected, strict=True):
            assert_same(*pair)
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert got == expected


@pytest.mark.usefixtures("without_lava")
@pytest.mark.parametrize("size", [1, 3, 4, 10, 11])
def test_the_report_does_not_depend_on_the_size_of_chunks(networks, monkeypatch, size):
    whole, metrics = verified(networks)
    in_chunks_of(monkeypatch, networks[2], size)
    parts, same = verified(networks)
    assert whole.drift.first_flip is not None
    assert whole.total("spikes_compared") > 0
    assert_same(parts.to_json(), whole.to_json())
    assert same.to_json() == metrics.to_json()
    assert len(parts.trace.outputs) == size
    for name, counts in whole.counted.per_neuron.items():
        np.testing.assert_array_equal(parts.counted.per_neuron[name], counts)
        np.testing.assert_array_equal(parts.counted.per_step[name], whole.counted.per_step[name])


@pytest.mark.lava
def test_lava_sees_the_same_samples_in_chunks(networks, monkeypatch):
    whole, _ = verified(networks, budget=30.0)
    in_chunks_of(monkeypatch, networks[2], 4)
    parts, _ = verified(networks, budget=30.0)
    assert all(comparison.not_run is None for comparison in parts.comparisons)
    assert {c.execution for c in parts.comparisons} >= {"C", "Lava's own models"}
    assert_same(parts.to_json(), whole.to_json())
    assert parts.floating.spikes_compared > 0


@pytest.mark.usefixtures("without_lava")
@pytest.mark.parametrize("size", [1, 4, 11])
def test_the_first_mismatch_has_the_number_of_its_sample(networks, monkeypatch, size):
    """A reference that is wrong in one spike of sample 9 differs there, whatever the chunks."""
    network, seen = networks[2], 0

    def wrong(network, inputs):
        nonlocal seen
        found = traces_of(network, inputs)
        seen, first = seen + len(inputs), seen
        spikes = {name: values.copy() for name, values in found.spikes.items()}
        if first <= 9 < seen:
            spikes["lif1"][9 - first, 1, 0] ^= True
        return replace(found, spikes=spikes)

    traces_of = executions.simulate
    in_chunks_of(monkeypatch, network, size)
    monkeypatch.setattr(executions, "simulate", wrong)
    (emulator, *_) = verify(network, inputs_for(network, samples=SAMPLES), budget=0).comparisons
    assert emulator.execution == EXECUTORS["emulator"].name
    assert (emulator.first_mismatch.sample, emulator.first_mismatch.time_step) == (9, 1)
    assert emulator.first_mismatch.population == "lif1"


# ---- memory -----------------------------------------------------------------------------------

PEAK = """
import resource, sys
import numpy as np
from mpbn_deploy.data import Samples
from mpbn_deploy.execute import reference
from mpbn_deploy.ir import Connection, Conv2d, Input, IntNetwork, Lif, Population
from mpbn_deploy.run import run
from mpbn_deploy.verify import verify

reference.VALUES_AT_ONCE = 2**20
shape, names = (16, 16, 16), ("input", "lif1", "lif2", "lif3")
lif = Lif(threshold=np.full((16, 1, 1), 8), bias=np.zeros((16, 1, 1), np.int64), decay_voltage=1024)
weight = np.random.default_rng(0).integers(-9, 10, size=(16, 16, 1, 1))
neurons = (Input(minimum=0, maximum=1), lif, lif, lif)
network = IntNetwork(
    populations=tuple(Population(name=n, shape=shape, neuron=k) for n, k in zip(names, neurons)),
    connections=tuple(
        Connection(source=a, target=b, synapse=Conv2d(weight=weight)) for a, b in zip(names, names[1:])
    ),
    timesteps=8,
    scales={},
)
stage, count = sys.argv[1], int(sys.argv[2])
inputs = np.random.default_rng(0).integers(0, 2, size=(count, *shape)).astype(np.int8)
if stage == "verify":
    report = verify(network, inputs, budget=0)
    assert report.bit_exact and report.counted.per_neuron["lif3"].any()
else:
    run(network, Samples(name="random", inputs=inputs, labels=None, test=None), stage)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
"""


def peak(stage, samples):
    """The peak memory in MB of a process whose allocator has its usual settings."""
    command = [sys.executable, "-c", PEAK, stage, str(samples)]
    settings = {
        name: value for name, value in os.environ.items() if "MALLOC" not in name and "GLIBC" not in name
    }
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("stage", ["verify", "reference", "emulator"])
def test_memory_does_not_grow_with_samples(stage):
    """Sixteen times as many samples: their traces would take 640 MB more. Chunks vary by some 50 MB."""
    few, many = peak(stage, 40), peak(stage, 640)
    assert many - few < 150
