"""Choose the samples that a command runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..base import USUAL_SAMPLES, Array, DataError, announce, record
from ..ir import FoldedNetwork, Input, IntNetwork, counting
from .dataset import Inputs, Part, Split, followed_by_silence
from .layout import Changed, arranged, presented
from .own import dataset_name, is_own
from .registry import DATASETS, LoadedPart, load_part, unknown_data

RANDOM = "random"
SAMPLE_SEED = 0
SMALL_PART = 2  # values that cover at most 1 / SMALL_PART of the range of inputs are announced


@record
class Samples:
    """Inputs to run, with their labels and the whole test split if they are known."""

    name: str
    inputs: Array
    labels: Array | None
    test: Split | None

    @property
    def random(self) -> bool:
        return self.name == RANDOM


def check_data_name(data: str) -> None:
    """Raise if samples can be taken neither from a data set of this name nor from a file or function."""
    if data not in (*DATASETS, RANDOM) and not is_own(data):
        raise unknown_data(data, (*DATASETS, RANDOM))


def choose_samples(
    network: IntNetwork | FoldedNetwork,
    count: int | None,
    data: str | None,
    data_dir: Path | None,
    loaded: LoadedPart | None = None,
) -> Samples:
    """Return the first `count` test samples of a data set (None: all), or random inputs without one.

    Random inputs have no end: as many are drawn as are usual where all are asked for. Samples that are
    `loaded` already are not read again.
    """
    if data is None:
        announce_random("no data set is known", "choose data with --data")
    if data is None or data == RANDOM:
        return _random_samples(network, USUAL_SAMPLES if count is None else count)
    check_data_name(data)
    name = dataset_name(data)
    part = fitting_part(network, data, data_dir, "test", loaded)
    _check_values(network, name, part.inputs)
    _check_labels(network, name, part.labels)
    available = len(part.inputs)
    if count is not None and count > available:
        announce(
            f"note: --samples {count}, but {name} has {available} test samples; all {available} are used"
        )
    chosen = slice(None, count)
    return Samples(
        name=name,
        inputs=part.inputs[chosen],
        labels=None if part.labels is None else part.labels[chosen],
        test=None if part.labels is None else Split(inputs=part.inputs, labels=part.labels),
    )


def announce_random(why: str, remedy: str) -> None:
    """Announce that inputs are random, why, and what to do about it."""
    announce(f"note: {why}, so inputs are random, and so are firing rates, energy and time; {remedy}")


def fitting_part(
    network: IntNetwork | FoldedNetwork,
    data: str,
    data_dir: Path | None,
    part: str,
    loaded: LoadedPart | None = None,
) -> Part:
    """Return the samples to "train" or to "test" with, as the network takes them."""
    found, axes = load_part(data, data_dir, part) if loaded is None else loaded
    name = dataset_name(data)
    taken = network.input_range
    quiet = part == "train"  # what is said of the samples to test with holds for these
    if not taken.takes_raw_values and not quiet:
        announce(
            f"note: the network takes {taken.minimum}..{taken.maximum}, which are values of {name}"
            f"{taken.conversion} ({conversion_options(taken)})"
        )
    given = presented(found.inputs, taken)
    if any(counting(p.neuron) is not None for p in network.layers) and len(given.shape) == 3:
        given = followed_by_silence(np.asarray(given[:]), network.timesteps)
    inputs = arranged(name, given, network.input.shape, network.timesteps, axes, quiet=quiet)
    return Part(inputs=inputs, labels=found.labels)


def conversion_options(taken: Input) -> str:
    """Return the options of an export that ask for the conversion of data to these inputs."""
    asked = {"--input-offset": taken.offset != 0, "--input-bits": taken.divisor > 1}
    return ", ".join(option for option, given in asked.items() if given)


def _check_values(network: IntNetwork | FoldedNetwork, name: str, inputs: Inputs) -> None:
    """Raise if an array has values beyond the network's range; images on disk are checked when they run."""
    if isinstance(inputs, Changed):
        inputs = inputs.inputs
    if not isinstance(inputs, np.ndarray):
        return
    allowed, lowest, highest = network.input_range, int(inputs.min()), int(inputs.max())
    taken = f"{allowed.minimum}..{allowed.maximum}"
    if lowest < allowed.minimum or highest > allowed.maximum:
        wider = (
            allowed.divisor * edge + allowed.offset
            for edge in (min(lowest, allowed.minimum), max(highest, allowed.maximum))
        )
        raise DataError(
            f"{name}: inputs{allowed.conversion} from {lowest} to {highest}; the network takes {taken}. Give "
            "raw values of that range, not normalized ones; or export it again (a bare state_dict or a NIR "
            f"file), or read it (a .net file), with --input-range {' '.join(map(str, wider))}; where "
            "--normalize divides inputs, its numbers change with their units."
        )
    if SMALL_PART * (highest - lowest) <= allowed.maximum - allowed.minimum:
        announce(
            f"note: inputs of {name} are {lowest} to {highest}, a small part of what the network takes, "
            f"{taken}. If they were scaled, give raw values; if not, a narrower --input-range leaves more "
            "bits for weights"
        )


def _check_labels(network: IntNetwork | FoldedNetwork, name: str, labels: Array | None) -> None:
    outputs = network.layers[-1].size
    if labels is not None and labels.max() >= outputs:
        raise DataError(
            f"{name}: label {labels.max()}; the network has {outputs} outputs, for labels 0..{outputs - 1}. "
            "Save labels that count from 0."
        )


def _random_samples(network: IntNetwork | FoldedNetwork, count: int) -> Samples:
    """Return random inputs: spikes that vary over time for binary inputs, still images otherwise."""
    allowed = network.input_range
    spikes = (allowed.minimum, allowed.maximum) == (0, 1)
    size = (count, *((network.timesteps,) if spikes else ()), *network.input.shape)
    inputs = np.random.default_rng(SAMPLE_SEED).integers(allowed.minimum, allowed.maximum + 1, size=size)
    return Samples(name=RANDOM, inputs=inputs, labels=None, test=None)
