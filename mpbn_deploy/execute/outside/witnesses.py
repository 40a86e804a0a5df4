"""The witness protocol, and the dict of all witnesses. Reading the dict imports none of them.

To add a witness, write one module and add one line to `WITNESSES`; `--witness` of `verify` and `export`, and
`doctor`, use every entry of the dict. The module defines

    COSTS                        the seconds of its work, for `--budget`
    obstacle(neuron)             what of a population it cannot express, or None
    run(piece) -> Answer         raises ObstacleError if it cannot express a piece
    version() -> str             raises MissingPackageError with the command that installs it

and imports its own libraries inside these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, OptionError, SimulationError, did_you_mean, record
from ...ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    Membrane,
    Neuron,
    Shape,
    Synapse,
    as_steps,
    count_synapses,
    membrane,
    patches as receptive_fields,
    varies,
    window,
)
from ..executors import EXECUTORS, ListedExecutor
from ..reference import one_neuron, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A simulator of others, whose module is imported on first use."""

    name: str
    module: str
    author: str
    install: str

    @property
    def costs(self) -> Costs:
        found: Costs = self._imported().COSTS
        return found

    def obstacle(self, neuron: Neuron) -> str | None:
        """Return what of a population is not supported, or None if nothing is."""
        if varies(neuron):
            return "numbers that depend on the time step"
        found: str | None = self._imported().obstacle(neuron)
        return found

    def run(self, piece: Piece) -> Answer:
        """Run a piece of a population on all its samples."""
        answer: Answer = self._imported().run(piece)
        return answer

    def version(self) -> str:
        """Return the installed version; raise MissingPackageError if there is none."""
        return str(self._imported().version())

    def check(self) -> str:
        """Run a small test on this machine and return a line for doctor; raise if it fails."""

        return f"{self.version()}, {check_witness(self.name, self.obstacle, self.run)}"

    def _imported(self) -> Any:
        return import_module(self.module)


WITNESSES: dict[str, Witness] = {
    "nengo-loihi": Witness(
        name="nengo-loihi",
        module=f"{__package__}.nengo_loihi",
        author="Applied Brain Research",
        install="pip install 'mpbn_deploy[witness]'",
    ),
    "sana-fe": Witness(
        name="sana-fe",
        module=f"{__package__}.sana_fe",
        author="the University of Texas at Austin",
        install="pip install sanafe  # GPL; or SANA_FE_PYTHON",
    ),
    "xylosim": Witness(
        name="xylosim",
        module=f"{__package__}.xylosim",
        author="SynSense",
        install="pip install xylosim",
    ),
}


# What --witness can name: simulators of others, and executors that verify runs on request only.
ASKED: dict[str, Witness | ListedExecutor] = {
    **WITNESSES,
    **{name: executor for name, executor in EXECUTORS.items() if executor.requested},
}


def chosen_witnesses(names: Iterable[str], *, installed: bool = True) -> tuple[Witness | ListedExecutor, ...]:
    """Return the witnesses of these names, each once; raise if one is unknown or, if `installed`, missing."""
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        if name not in ASKED:
            raise OptionError(f"witness {name!r}. {did_you_mean(name, ASKED)}")
        if installed:
            ASKED[name].version()
    return tuple(ASKED[name] for name in chosen)


# A small network that tests whether a witness works on this machine.


def check_witness(name: str, obstacle: Callable[[Neuron], str | None], run: Callable[[Piece], Answer]) -> str:
    """Compare a witness with the reference on one neuron: leaky, or else one that forgets its voltage."""
    network, inputs = one_neuron(), np.array([[[1], [1]], [[5], [0]], [[4], [4]]])
    if obstacle(network.output.neuron) is not None:
        network = one_neuron(DECAY_ONE)
    expected = simulate(network, inputs)
    (piece,) = cut_pieces(network, "neuron", {"input": as_steps(inputs, (1,), network.timesteps)})
    answer = run(piece)
    if not np.array_equal(answer.spikes, expected.spikes["neuron"]):
        raise RuntimeError(f"{name}: spikes of a one-neuron network differ from the reference")
    fired = int(answer.spikes.sum())
    return f"one neuron fired {fired} spike{'s' if fired > 1 else ''} as expected"


# Cut a population into pieces that another simulator can hold.
#
# Axons carry zeros and ones. A graded input becomes several axons, one per binary digit and sign, whose
# weights are multiplied by that digit's value. A delayed connection becomes axons whose spikes are sent
# later.


LARGEST_PIECE = 1024  # neurons of a core of Loihi


class ObstacleError(SimulationError):
    """Something that a witness cannot express."""


class WitnessFailedError(SimulationError):
    """A witness stopped in the middle of a run."""


@record
class Piece:
    """Some neurons of a population, and the axons that reach them. In units of the state, synapse k adds

        weight[k] to the current of neuron[k] where spikes[sample, step, axon[k]]

    Synapses are sorted by axon. Axons without a spike are left out.
    """

    neurons: Array  # places in the flattened population
    rule: Membrane  # with one bias, threshold and subtrahend per neuron
    spikes: Array  # bool [samples, timesteps, axons]
    axon: Array
    neuron: Array
    weight: Array

    @property
    def steps(self) -> tuple[int, int]:
        """The number of samples, and of time steps of each."""
        samples, timesteps, _ = self.spikes.shape
        return samples, timesteps

    @property
    def axons(self) -> int:
        return int(self.spikes.shape[2])


@record
class Answer:
    """What the neurons of a piece did, [samples, timesteps, neurons]."""

    spikes: Array
    voltages: Array


@record
class _Bundle:
    """The axons of one connection into a piece."""

    spikes: Array
    axon: Array
    neuron: Array
    weight: Array


def cut_pieces(
    network: IntNetwork, name: str, sent: Mapping[str, Array], size: int = LARGEST_PIECE
) -> Iterator[Piece]:
    """Yield the pieces of a population; `sent` has what each source sent, [samples, timesteps, *shape]."""
    population = network.layer(name)
    samples = len(next(iter(sent.values())))
    rule, entering = membrane(population.neuron, network.timesteps), network.entering(name)
    for neurons in neurons_of_pieces(population.shape, size):

        def of_neurons(values: Array, neurons: Array = neurons) -> Array:
            chosen: Array = np.broadcast_to(values, population.shape).ravel()[neurons]
            return chosen

        bundles = [
            bundle
            for connection in entering
            for bundle in _bundles(network, connection, sent[connection.source], neurons)
        ]
        yield _piece(neurons, rule.mapped(of_neurons), bundles, samples, network.timesteps)


def neurons_of_pieces(shape: Shape, size: int) -> list[Array]:
    """Return the neurons of each piece: pixel by pixel, so that a piece has few sources."""
    places = np.moveaxis(np.arange(int(np.prod(shape))).reshape(shape), 0, -1).ravel()
    return [places[start : start + size] for start in range(0, len(places), size)]


def binary_digits(values: Array) -> list[tuple[int, Array]]:
    """Return (factor, zeros and ones) with values = sum of factor * zeros and ones."""
    if values.dtype == np.bool_:
        return [(1, values)]
    largest = int(np.abs(values).max(initial=0)).bit_length()
    found = [
        (sign << digit, (np.maximum(sign * values, 0) >> digit & 1).astype(bool))
        for sign in (1, -1)
        for digit in range(largest)
    ]
    return [(factor, ones) for factor, ones in found if ones.any()]


def _piece(neurons: Array, rule: Membrane, bundles: list[_Bundle], *steps: int) -> Piece:
    counts = [bundle.spikes.shape[2] for bundle in bundles]
    first = np.cumsum([0, *counts])
    none = np.zeros(0, np.int64)
    return Piece(
        neurons=neurons,
        rule=rule,
        spikes=np.concatenate([np.zeros((*steps, 0), bool), *(bundle.spikes for bundle in bundles)], axis=2),
        axon=np.concatenate([none, *(b.axon + start for b, start in zip(bundles, first[:-1], strict=True))]),
        neuron=np.concatenate([none, *(bundle.neuron for bundle in bundles)]),
        weight=np.concatenate([none, *(bundle.weight for bundle in bundles)]),
    )


def _bundles(network: IntNetwork, connection: Connection, values: Array, neurons: Array) -> Iterator[_Bundle]:
    """Yield the axons of a connection, one bundle for each binary digit of its source."""
    shapes = network.shapes
    source, neuron, weight = _synapses(
        connection.synapse, shapes[connection.source], shapes[connection.target], neurons
    )
    arriving = np.zeros_like(values).reshape(*values.shape[:2], -1)
    arriving[:, connection.delay :] = values.reshape(arriving.shape)[
        :, : max(0, network.timesteps - connection.delay)
    ]
    for factor, ones in binary_digits(arriving):
        used = np.any(ones, axis=(0, 1))  # [source]
        axon_of = np.cumsum(used) - 1
        kept = used[source]
        order = np.argsort(source[kept], kind="stable")
        yield _Bundle(
            spikes=ones[:, :, used],
            axon=axon_of[source[kept]][order],
            neuron=neuron[kept][order],
            weight=_in_units_of_state(weight[kept][order] * factor),
        )


def _in_units_of_state(weight: Array) -> Array:
    scaled: Array = (weight * 2.0**STATE_EXPONENT).astype(
        np.int64
    )  # exact: sums of a network are below 2**53
    return scaled


def _synapses(synapse: Synapse, source: Shape, target: Shape, neurons: Array) -> tuple[Array, Array, Array]:
    """Return the source, the place in `neurons` and the weight (with its exponent) of each synapse."""
    match synapse:
        case Dense():
            weight = synapse.weight[neurons] * 2.0**synapse.exponent
            sources = np.broadcast_to(np.arange(weight.shape[1]), weight.shape)
            there = weight != 0
        case Conv2d():
            sources, weight, there = _taps(synapse, source, target, neurons)
        case _:
            assert_never(synapse)
    place = np.nonzero(there)[0]
    return sources[there], place, weight[there]


def _taps(synapse: Conv2d, source: Shape, target: Shape, neurons: Array) -> tuple[Array, Array, Array]:
    """[neuron, input, a, b]: the source that each weight of a kernel reads, the weight, whether it counts."""
    channel, y, x = np.unravel_index(neurons, target)
    numbers = np.arange(1, 1 + int(np.prod(source))).reshape(source)  # zero is the padding
    fields = receptive_fields(synapse, numbers)  # [channel, y, x, a, b]
    inputs = synapse.weight.shape[1]
    first = channel // (target[0] // synapse.groups) * inputs
    read = fields[first[:, None] + np.arange(inputs), y[:, None], x[:, None]]
    weight = synapse.weight[channel] * 2.0**synapse.exponent
    audible = np.zeros(target[1:], bool)
    audible[window(synapse, target)] = True
    there = (read > 0) & (weight != 0) & audible[y, x][:, None, None, None]
    return read - 1, weight, there


# How much of a network a witness can run in a given time.
#
# As for Lava's own models, the estimate counts work, not the seconds of this machine, so that a verification
# that is repeated elsewhere compares as much.


@record
class Costs:
    """Seconds that a witness takes."""

    piece: float  # to start
    synapse: float  # to build
    step: float  # of a piece, without spikes
    arrival: float  # of a spike at a piece


@record
class Share:
    """What fits a budget: some samples of some populations."""

    samples: int
    populations: tuple[str, ...]


def share(
    network: IntNetwork,
    populations: Collection[str],
    sent: Mapping[str, Array],
    costs: Costs,
    seconds: float | None,
) -> Share:
    """Return the most samples of all these populations that take about so many seconds (None: all samples).

    If not even one sample of all populations fits, it is one sample of the cheapest ones.
    """
    samples = len(next(iter(sent.values())))
    if seconds is None:
        return Share(samples=samples, populations=tuple(populations))
    build = {name: _build_seconds(network, name, costs) for name in populations}
    run = {name: _sample_seconds(network, name, sent, costs) for name in populations}
    fitting = int((seconds - sum(build.values())) / max(sum(run.values()), 1e-9))
    if fitting >= 1:
        return Share(samples=min(samples, fitting), populations=tuple(populations))
    chosen, left = set(), seconds
    for name in sorted(populations, key=lambda name: build[name] + run[name]):
        left -= build[name] + run[name]
        chosen |= {name} if left >= 0 else set()
    return Share(samples=min(1, len(chosen)), populations=tuple(n for n in populations if n in chosen))


def _pieces(network: IntNetwork, name: str) -> int:
    return -(-network.layer(name).size // LARGEST_PIECE)


def _build_seconds(network: IntNetwork, name: str, costs: Costs) -> float:
    shapes = network.shapes
    synapses = sum(
        count_synapses(c.synapse, shapes[c.source], shapes[c.target]) for c in network.entering(name)
    )
    return _pieces(network, name) * costs.piece + synapses * costs.synapse


def _sample_seconds(network: IntNetwork, name: str, sent: Mapping[str, Array], costs: Costs) -> float:
    arrivals = sum(
        _spikes_per_sample(sent[c.source]) * _pieces_reached(network, c) for c in network.entering(name)
    )
    return _pieces(network, name) * network.timesteps * costs.step + arrivals * costs.arrival


def _spikes_per_sample(values: Array) -> float:
    """Return the spikes of a sample; a graded value counts as many as it may have binary digits."""
    digits = 1 if values.dtype == np.bool_ else int(np.abs(values).max(initial=0)).bit_length()
    return float(np.count_nonzero(values)) * digits / len(values)


def _pieces_reached(network: IntNetwork, connection: Connection) -> float:
    """Estimate how many pieces a spike reaches: each row of a kernel is a run of neurons."""
    synapse, most = connection.synapse, _pieces(network, connection.target)
    if isinstance(synapse, Dense):
        return most
    channels, _, height, width = synapse.weight.shape
    return float(min(most, height * (1 + width * channels / LARGEST_PIECE)))
