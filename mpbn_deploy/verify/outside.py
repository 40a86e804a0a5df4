"""Compare simulators of others with the reference, population by population, within a time budget.

Each population is fed the spikes that the reference recorded, in pieces that the simulator can hold. What a
simulator cannot express is named, with the populations that have it, and the others are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..base import (
    Array,
    Progress,
    SimulationError,
    and_more,
    announce,
    layer_name,
    no_progress,
    progress_bar,
)
from ..execute.outside import Answer, ObstacleError, Witness, cut_pieces, share
from ..execute.reference import simulate
from ..ir import IntNetwork, Trace
from .comparison import Comparison
from .lava_models import compare_some, extent, values_sent

MAX_NAMES = 3  # of populations, before "and 4 more"
FEW_SAMPLES = 64  # more than fit most budgets; their trace fits into memory


def compare_with_witness(
    witness: Witness,
    network: IntNetwork,
    inputs: Array,
    reference: Trace | None,
    budget: float | None,
    *,
    shown: bool = True,
) -> Comparison:
    """Compare a witness with the reference, for about `budget` seconds (None: on all samples).

    `reference` is its trace of the first samples, to which the comparison is limited; without it, it runs
    here, on a few samples if there is a budget.
    """
    witness.version()  # raises if it is not installed, before the reference runs
    obstacles = {p.name: why for p in network.layers if (why := witness.obstacle(p.neuron)) is not None}
    possible = [p.name for p in network.layers if p.name not in obstacles]
    if not possible:
        raise SimulationError(_obstacle_text(obstacles))
    if reference is None:
        reference = simulate(network, inputs if budget is None else inputs[:FEW_SAMPLES])
    given = inputs[: len(reference.outputs)]
    sent = values_sent(network, given, reference)
    chosen = share(network, possible, sent, witness.costs, budget)
    if not chosen.populations:
        raise SimulationError(f"no population fits a budget of {budget:g} s; raise --budget.")
    if shown:
        ran = extent(network, chosen.samples, len(inputs), chosen.populations)
        announce(f"verify: reference against {witness.name}, {ran}")
    progress = progress_bar(f"{witness.name}, populations") if shown else no_progress
    sent = {name: values[: chosen.samples] for name, values in sent.items()}
    answers, found = _answers(witness, network, chosen.populations, sent, progress)
    obstacles |= found
    if not answers:
        raise SimulationError(_obstacle_text(obstacles))
    compared = compare_some(witness.name, network, reference.of_samples(slice(chosen.samples)), answers)
    ran = extent(network, chosen.samples, len(inputs), [*answers])
    return replace(compared, extent="; ".join(filter(None, [ran, _obstacle_text(obstacles)])))


def _answers(
    witness: Witness,
    network: IntNetwork,
    populations: tuple[str, ...],
    sent: Mapping[str, Array],
    progress: Progress,
) -> tuple[dict[str, Answer], dict[str, str]]:
    """Return what the witness answers for each population, or what it cannot express."""
    answers, obstacles = {}, {}
    for index in progress(range(len(populations))):
        name = populations[index]
        try:
            answers[name] = run_population(witness, network, name, sent)
        except ObstacleError as error:
            obstacles[name] = str(error)
    return answers, obstacles


def run_population(witness: Witness, network: IntNetwork, name: str, sent: Mapping[str, Array]) -> Answer:
    """Run a population, piece by piece; the answer is [samples, timesteps, *shape]."""
    population = network.layer(name)
    shape = (len(next(iter(sent.values()))), network.timesteps, population.size)
    spikes, voltages = np.zeros(shape, bool), np.zeros(shape, np.int64)
    for piece in cut_pieces(network, name, sent):
        answer = witness.run(piece)
        spikes[..., piece.neurons], voltages[..., piece.neurons] = answer.spikes, answer.voltages
    whole = (*shape[:2], *population.shape)
    return Answer(spikes=spikes.reshape(whole), voltages=voltages.reshape(whole))


def _obstacle_text(obstacles: Mapping[str, str]) -> str:
    """'lif1, lif2, lif3 and 4 more: soft reset; lif9: a current that never decays'"""
    texts = []
    for why in dict.fromkeys(obstacles.values()):
        names = [layer_name(name) for name, reason in obstacles.items() if reason == why]
        texts.append(f"{and_more(names[:MAX_NAMES], len(names))}: {why}")
    return "; ".join(texts)
