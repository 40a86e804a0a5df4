"""Choose, for a chip, where relays pay; the integers that every other neuron receives stay equal.

composed  nowhere: pooling stays part of the synapses after it
relay     for every pooling that the synapses contain
auto      where they save cores, or make a layer fit its cores, found by a search; also for parts of sums, in
          layers with more inputs than a core takes
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..base import QUIET_SECONDS, Array, DataError, QuantizeError, SimulationError, announce, record, track
from ..data import DataSet, LoadedPart, Part, arranged, cropped, dataset_name, fitting_part, load_part
from ..formats.options import CALIBRATION_SAMPLES as CALIBRATION_SAMPLES, PoolingChoice
from ..hardware import HardwareProfile
from ..hardware.place import PlacedLayer, Tiling, capacity, place, tiles_remembered
from ..ir import (
    Connection,
    FoldedNetwork,
    IntNetwork,
    as_steps,
    can_split,
    check_input_values,
    find_poolings,
    relay_names,
    split_sum,
    value_range,
    with_relays,
)

Score = tuple[float, float]  # layers that exceed a core, and cores
MAX_PASSES = 4  # over all poolings
MAX_SINGLE = 32  # poolings, or sums, that are tried one by one; beyond, those of equal shapes are together
MANY_CORES = 8  # for each core that the neurons of a layer need: then splitting its sums is tried
GROUPS = (2, 4, 8, 16, 32)  # of channels, in which long sums are tried


def express_pooling(
    network: IntNetwork, profile: HardwareProfile, pooling: PoolingChoice, tiling: Tiling = "compiler"
) -> IntNetwork:
    """Return the network with pooling in the form that was asked for."""
    if pooling == "composed":
        return network
    return with_relays(network) if pooling == "relay" else fewest_cores(network, profile, tiling)


def fewest_cores(network: IntNetwork, profile: HardwareProfile, tiling: Tiling = "compiler") -> IntNetwork:
    """Insert relays where the chip can send their messages, and needs fewer cores with them.

    The search starts with no relay and with all of them, keeps the better, and inserts or removes single ones
    as long as a layer more fits, or fewer cores are needed. Then it tries to split sums in the same way.
    """
    with tiles_remembered():
        search = _Search(network, profile, tiling)
        if search.score is None:
            return network
        search.choose_relays()
        search.choose_splits()
        return search.best


class _Search:
    """The best rewriting so far, and its score; None if the chip does not say how cores are filled."""

    def __init__(self, network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> None:
        self.plain, self.profile, self.tiling = network, profile, tiling
        self.best, self.score = network, _score(network, profile, tiling)

    def take(self, trial: IntNetwork) -> bool:
        """Keep a rewriting if it is better; return whether it is."""
        assert self.score is not None
        found = _score(trial, self.profile, self.tiling) if messages_fit(trial, self.profile) else None
        if found is None or found >= self.score:
            return False
        self.best, self.score = trial, found
        return True

    def choose_relays(self) -> None:
        poolings = find_poolings(self.plain)
        together = _together([pooling.connections for pooling in poolings])
        chosen: frozenset[int] = frozenset()
        if len(together) > 1 and self.take(with_relays(self.plain, poolings)):
            chosen = frozenset(range(len(poolings)))
        for _ in range(MAX_PASSES):
            before = chosen
            for numbers in track(together, "relays", len(together), quiet_seconds=QUIET_SECONDS):
                other = chosen ^ frozenset(numbers)
                if self.take(with_relays(self.plain, [poolings[each] for each in sorted(other)])):
                    chosen = other
            if chosen == before:
                break

    def choose_splits(self) -> None:
        """Split the sums of layers that exceed a core, or take far more cores than their neurons need."""
        candidates = _long_sums(self.best, self.profile, self.tiling)
        together = _together([[connection] for connection in candidates])
        for numbers in track(together, "sums", len(together), quiet_seconds=QUIET_SECONDS):
            for groups in GROUPS:
                trial = self.best
                for connection in (candidates[number] for number in numbers):
                    if can_split(trial, connection, groups):
                        trial = split_sum(trial, connection, groups)
                if trial is not self.best and self.take(trial):
                    break


def _together(items: Sequence[Sequence[Connection]]) -> list[list[int]]:
    """Return the numbers of the items to try at once: each alone, or, of many, those of equal shapes.

    The work of a search then grows with the size of a network, and not with its square.
    """
    if len(items) <= MAX_SINGLE:
        return [[number] for number in range(len(items))]
    groups: dict[object, list[int]] = {}
    for number, connections in enumerate(items):
        shapes = tuple((type(c.synapse), c.synapse.weight.shape) for c in connections)
        groups.setdefault(shapes, []).append(number)
    return sorted(groups.values(), key=len, reverse=True)[:MAX_SINGLE]


def _long_sums(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> list[Connection]:
    """Return the connections into layers that splitting may help."""
    most = profile.limit("core.neurons")
    layers = place(network, profile, tiling=tiling).layers
    long = {
        layer.name
        for layer in layers
        if _exceeds(layer, profile)
        or (most is not None and layer.cores > MANY_CORES * -(-layer.neurons // most.value))
    }
    return [connection for connection in network.connections if connection.target in long]


def messages_fit(network: IntNetwork, profile: HardwareProfile) -> bool:
    """Whether the chip's spikes can carry all messages of relays; unknown widths count as too narrow."""
    bits = profile.limit("formats.message_bits")
    half = 0 if bits is None else 2 ** (bits.value - 1)  # wider messages than a bit are signed
    ranges = [value_range(network.layer(name).neuron) for name in relay_names(network)]
    return all(-half <= low and high < half for low, high in ranges)


def _score(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Score | None:
    """Return how badly a network is placed; None if the chip does not say how cores are filled."""
    placement = place(network, profile, tiling=tiling)
    if placement.cores is None:
        return None
    beyond = [layer for layer in placement.layers if _exceeds(layer, profile)]
    return len(beyond) + len(placement.problems), placement.cores


def _exceeds(layer: PlacedLayer, profile: HardwareProfile) -> bool:
    """Whether a core of the layer needs more of a resource than it has."""
    limits = {resource: capacity(resource, layer, profile) for resource in layer.use}
    return any(most is not None and layer.use[resource] > most for resource, most in limits.items())


# Calibration inputs: the first training samples of a data set, checked against the network.


@record
class CalibrationData:
    """Inputs to calibrate on, and notes about them for the user."""

    inputs: Array
    notes: tuple[str, ...] = ()


def read_calibration(name: str, data_dir: Path | None) -> LoadedPart:
    """Read the training samples of a data set, before there is a network to calibrate."""
    try:
        return load_part(name, data_dir, "train")
    except DataError as error:
        raise DataError(f"calibration: {error}") from error


def load_calibration(
    folded: FoldedNetwork, name: str, data_dir: Path | None, loaded: LoadedPart | None = None
) -> CalibrationData:
    """Return the calibration inputs of a data set by its name; those `loaded` already are not read again."""
    try:
        part = fitting_part(folded, name, data_dir, "train", loaded)
    except DataError as error:
        raise DataError(f"calibration: {error}") from error
    return _first_samples(dataset_name(name), part)


def calibration_data(folded: FoldedNetwork, dataset: DataSet) -> CalibrationData:
    """Take the first training samples of a data set; add a note if they are all of one class."""
    inputs = cropped(dataset.train.inputs, dataset.input_format.shape)
    inputs = arranged(dataset.name, inputs, folded.input.shape, folded.timesteps)
    return _first_samples(dataset.name, Part(inputs=inputs, labels=dataset.train.labels))


def _first_samples(name: str, part: Part) -> CalibrationData:
    inputs = part.inputs[:CALIBRATION_SAMPLES]
    if part.labels is None or len(np.unique(labels := part.labels[:CALIBRATION_SAMPLES])) > 1:
        return CalibrationData(inputs=inputs)
    note = f"calibration: all {len(inputs)} samples of {name} are of class {labels[0]}; shuffle the data set."
    announce(f"note: {note}")
    return CalibrationData(inputs=inputs, notes=(note,))


def check_calibration(folded: FoldedNetwork, inputs: Array) -> Array:
    """Return the inputs as an array, or raise QuantizeError if the network cannot take them."""
    inputs = np.asarray(inputs)
    try:
        as_steps(inputs, folded.input.shape, folded.timesteps)
        check_input_values(folded, inputs)
    except SimulationError as error:
        raise QuantizeError(f"calibration: {error}") from error
    return inputs
