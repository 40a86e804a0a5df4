"""Convolutions whose geometry torch's libraries compute wrongly, or crash on: the emulator must not."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import assert_same_trace

from mpbn_deploy.execute import products
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.products import convolve, ordinary_form
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
    apply_synapse,
    output_shape,
)

GEOMETRIES = Path(__file__).parents[2] / "benchmarks" / "geometries.py"
# (channels, height, width), kernels, and what oneDNN 3 of torch 2.13 does with it on AVX-512
UNWRITTEN = ((1, 7, 4), (4, 1, 3, 4), {"stride": (1, 3), "padding": (1, 0)})
CRASHES = ((2, 2, 1), (4, 2, 2, 1), {"stride": (4, 3), "padding": (1, 2), "dilation": (2, 2)})
DEPTHWISE = ((8, 12, 4), (32, 1, 5, 7), {"stride": (1, 2), "padding": (3, 2), "groups": 8})
BESIDE = (
    (8, 2, 2),
    (2, 4, 1, 2),
    {"stride": (1, 3), "padding": (2, 4), "dilation": (2, 3), "groups": 2},
)  # crashes
NOTHING_READ = ((1, 3, 1), (2, 1, 3, 1), {"stride": (1, 5), "padding": (1, 2)})


def two_convolutions(source, kernels, options):
    """Pixels and then spikes pass through the same geometry: products in floats, and in integers."""
    generator = np.random.default_rng(0)
    convolution = Conv2d(weight=generator.integers(-20, 21, kernels), **options)
    one = Conv2d(weight=np.ones((source[0], source[0], 1, 1), int))
    shape = output_shape(convolution, source)
    populations = (
        Population(name="input", shape=source, neuron=Input(minimum=0, maximum=7)),
        Population(name="spikes", shape=source, neuron=neurons(source, 4)),
        Population(name="graded", shape=shape, neuron=neurons(shape, 30)),
        Population(name="binary", shape=shape, neuron=neurons(shape, 10)),
        Population(name="output", shape=(3,), neuron=Readout(bias=np.zeros(3, int))),
    )
    readout = Dense(weight=generator.integers(-9, 10, (3, int(np.prod(shape)))))
    return IntNetwork(
        populations=populations,
        connections=(
            Connection(source="input", target="spikes", synapse=one),
            Connection(source="input", target="graded", synapse=convolution),
            Connection(source="spikes", target="binary", synapse=convolution),
            Connection(source="graded", target="output", synapse=readout),
            Connection(source="binary", target="output", synapse=readout),
        ),
        timesteps=3,
        scales={p.name: np.ones(p.shape[0]) for p in populations[1:]},
    )


def neurons(shape, threshold):
    each = (shape[0], 1, 1)
    return Lif(threshold=np.full(each, threshold), bias=np.zeros(each, int), decay_voltage=3000)


@pytest.mark.parametrize("geometry", [UNWRITTEN, CRASHES, DEPTHWISE, BESIDE, NOTHING_READ])
def test_geometries_that_libraries_cannot_do(geometry):
    network = two_convolutions(*geometry)
    for samples in (1, 5, 64):
        inputs = np.random.default_rng(samples).integers(0, 8, (samples, 3, *geometry[0]))
        assert_same_trace(simulate(network, inputs), emulate(network, inputs))


def test_random_geometries():
    """In a process of their own, so that a crash is seen."""
    command = [sys.executable, str(GEOMETRIES), "--count", "250", "--seed", "1"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "250 geometries, seed 1: 0 differ (none)" in ran.stdout


SIDES = [
    side
    for side in product(range(1, 6), range(1, 5), range(1, 4), range(4), range(1, 4))
    if side[0] + 2 * side[3] > side[4] * (side[1] - 1)
]


def test_torch_is_asked_for_ordinary_geometries_only():
    for source, kernel, stride, padding, dilation in SIDES:
        synapse = Conv2d(
            weight=np.ones((1, 1, kernel, 1), int),
            stride=(stride, 1),
            padding=(padding, 0),
            dilation=(dilation, 1),
        )
        form = ordinary_form(synapse, (source, 9))
        side, reach = form.rows, dilation * (kernel - 1) + 1
        outputs = (source + 2 * padding - reach) // stride + 1
        size, taps = form.read(torch.zeros(1, 1, source, 9)).shape[2], form.kernel(synapse.weight).shape[2]
        assert (size + 2 * side.padding - side.dilation * (taps - 1) - 1) // side.stride + 1 == outputs
        if outputs > 1 and taps > 1 and (size, side.stride, side.padding) == (source, stride, padding):
            assert taps == kernel and padding < reach <= source and stride <= reach
        else:
            assert (side.padding, side.dilation, size) == (0, 1, outputs * taps)
            assert side.stride == (taps if outputs > 1 else 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_every_small_side_is_convolved_as_numpy_does(axis):
    generator = np.random.default_rng(0)
    for source, kernel, *others in SIDES:
        stride, padding, dilation = (
            (each, one)[:: -1 if axis else 1] for each, one in zip(others, (2, 1, 1), strict=True)
        )
        pixels, taps = ((source, 5)[:: -1 if axis else 1], (kernel, 3)[:: -1 if axis else 1])
        weight = generator.integers(-9, 10, (4, 1, *taps))
        synapse = Conv2d(weight=weight, stride=stride, padding=padding, dilation=dilation, groups=2)
        values = generator.integers(0, 3, (3, 2, *pixels))
        last = torch.empty(values.shape, memory_format=torch.channels_last).copy_(torch.tensor(values))
        found = convolve(last, torch.tensor(weight, dtype=torch.float32), synapse)
        np.testing.assert_array_equal(apply_synapse(synapse, values), found.numpy(), err_msg=str(synapse))


# ---- the trial ------------------------------------------------------------------------------------


def spoiled(sound):
    """Return a product that leaves the last output of the last sample unwritten."""

    def product(*given):
        found = sound(*given).clone()
        found[(-1,) * found.dim()] = 7.0
        return found

    return product


def test_the_trial_shares_no_error_with_what_it_tries(monkeypatch):
    """Integers and floats are wrong in the same way, and would agree."""
    synapse = Conv2d(weight=np.random.default_rng(0).integers(-9, 10, (4, 2, 3, 3)), padding=(1, 1))
    assert products.spike_product(synapse, (2, 6, 6)) is not None
    prepare = products._in_integers
    monkeypatch.setattr(products, "_in_integers", lambda *given: spoiled(prepare(*given)))
    assert products.spike_product(synapse, (2, 6, 6)) is None
