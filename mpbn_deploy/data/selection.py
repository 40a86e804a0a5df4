"""Choose the samples that a command runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..base import Array, DataError, OptionError, announce, did_you_mean, record
from ..ir import FoldedNetwork, IntNetwork
from . import DATASETS, Split, load_dataset

RANDOM = "random"
SAMPLE_SEED = 0


@record
class Samples:
    """Inputs to run, with labels and the whole test split unless the inputs are random."""

    name: str
    inputs: Array
    labels: Array | None
    test: Split | None


def choose_samples(
    network: IntNetwork | FoldedNetwork, count: int | None, data: str | None, data_dir: Path | None
) -> Samples:
    """Return the first `count` test samples of a data set (None: all), or random inputs without one."""
    shape = network.input.shape
    if data is None:
        announce("note: the model names no data set, so inputs are random; choose one with --data")
    if data is None or data == RANDOM:
        return _random_samples(network, count or 1)
    if data not in DATASETS:
        raise OptionError(f"no data set named {data!r}. {did_you_mean(data, [*DATASETS, RANDOM])}")
    dataset = load_dataset(data, data_dir)
    if dataset.input_format.shape != shape:
        found = dataset.input_format.shape
        raise DataError(f"{data}: samples have shape {found}; the network takes {shape}.")
    chosen = slice(None, count)
    return Samples(
        name=data,
        inputs=dataset.test.inputs[chosen],
        labels=dataset.test.labels[chosen],
        test=dataset.test,
    )


def _random_samples(network: IntNetwork | FoldedNetwork, count: int) -> Samples:
    """Return random inputs: spikes that vary over time for binary inputs, still images otherwise."""
    allowed = network.input_range
    spikes = (allowed.minimum, allowed.maximum) == (0, 1)
    size = (count, *((network.timesteps,) if spikes else ()), *network.input.shape)
    inputs = np.random.default_rng(SAMPLE_SEED).integers(allowed.minimum, allowed.maximum + 1, size=size)
    return Samples(name=RANDOM, inputs=inputs, labels=None, test=None)
