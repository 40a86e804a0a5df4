"""Compare Lava's own process models, and lava-dl's reader, which builds them from a file, with the reference,
on as much as a time budget allows.

A network that is too large to run as a whole is compared population by population, each fed the spikes that
the reference recorded: if every population answers the same spikes with the same spikes and voltages, so does
the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

import numpy as np

from ..base import Array, Progress, SimulationError, and_more, announce, layer_name, no_progress, progress_bar
from ..execute import EXECUTORS, ExecutionOptions, Executor, chunks, outputs_of
from ..execute.lava import BudgetShare, reader_samples, run_alone, stock_share
from ..execute.outside import Answer, ObstacleError, Witness, cut_pieces, share
from ..execute.reference import simulate
from ..ir import IntNetwork, Trace, as_steps
from .comparison import Comparison, compare, join_parts

LAVA_STOCK, READER = EXECUTORS["lava-stock"], EXECUTORS["netx"]


def compare_within_budget(
    executor: Executor,
    network: IntNetwork,
    inputs: Array,
    reference: Trace | None,
    budget: float,
    options: ExecutionOptions,
    *,
    shown: bool = True,
) -> Comparison:
    """Compare a slow executor with the reference on the first samples, for about `budget` seconds.

    `reference` is the trace of the first samples; if it has fewer than are compared, the reference runs here.
    """
    share = SHARES[executor](network, len(inputs), budget)
    ran = extent(network, share.samples, len(inputs), share.alone)
    inputs = inputs[: share.samples]
    if shown:
        announce(f"verify: reference against {executor.name}, {ran or f'{len(inputs)} samples'}")
        counted = "populations" if share.alone else executor.parts
        options = replace(options, progress=progress_bar(f"{executor.name}, {counted}"))
    parts = chunks(network, len(inputs))
    found = []
    with ExitStack() as started:
        run = None
        for part in parts:
            if reference is not None and part.stop <= len(reference.outputs):
                expected = reference.of_samples(part)
            else:
                expected = simulate(network, inputs[part])
            if share.alone:
                answers = _run_alone(
                    network, share.alone, values_sent(network, inputs[part], expected), options
                )
                compared = compare_some(executor.name, network, expected, answers)
            else:
                run = run or started.enter_context(executor.opened(network, len(expected.outputs), options))
                compared = compare(executor.name, expected, run(inputs[part]))
            found.append((part.start, compared))
    return replace(join_parts(network, found), extent=ran or None)


def _stock_share(network: IntNetwork, samples: int, budget: float) -> BudgetShare:
    if (obstacle := LAVA_STOCK.obstacle(network)) is not None:
        raise SimulationError(obstacle)
    share = stock_share(network, samples, budget)
    if not share.samples:
        raise SimulationError(f"no population of this network fits a budget of {budget:g} s; raise --budget.")
    return share


def _reader_share(network: IntNetwork, samples: int, budget: float) -> BudgetShare:
    found = reader_samples(network, samples, budget)
    if not found:
        raise SimulationError(f"not one sample fits its share of a budget of {budget:g} s; raise --budget.")
    return BudgetShare(samples=found)


# What each slow executor runs within a budget; raises SimulationError if that is nothing.
SHARES: dict[Executor, Callable[[IntNetwork, int, float], BudgetShare]] = {
    LAVA_STOCK: _stock_share,
    READER: _reader_share,
}


def _run_alone(
    network: IntNetwork, names: Sequence[str], sent: Mapping[str, Array], options: ExecutionOptions
) -> dict[str, Recorded]:
    """Run populations one by one, each fed what the reference fed it."""
    quiet = replace(options, progress=no_progress)
    found: dict[str, Recorded] = {}
    for index in options.progress(range(len(names))):
        name = names[index]
        sources = {connection.source: sent[connection.source] for connection in network.entering(name)}
        found[name] = run_alone(network, name, sources, quiet)
    return found


def values_sent(network: IntNetwork, inputs: Array, reference: Trace) -> dict[str, Array]:
    """Return what each population sent, [samples, timesteps, *shape]: values of the input, and spikes."""
    steps = as_steps(inputs, network.input.shape, network.timesteps).astype(np.int64)
    return {network.input.name: steps, **reference.spikes}


class Recorded(Protocol):
    """What one population did, [samples, timesteps, *shape]."""

    @property
    def spikes(self) -> Array: ...

    @property
    def voltages(self) -> Array: ...


def compare_some(
    execution: str, network: IntNetwork, expected: Trace, found: Mapping[str, Recorded]
) -> Comparison:
    """Compare the populations that ran alone; outputs are compared if the last population is one of them."""
    fired = {name: recorded.spikes for name, recorded in found.items()}
    charged = {name: recorded.voltages for name, recorded in found.items()}
    if network.output.name in found:
        outputs = outputs_of(network, fired, charged)
    else:  # compare none
        expected = replace(expected, outputs=expected.outputs[:0])
        outputs = expected.outputs
    return compare(execution, expected, Trace(spikes=fired, voltages=charged, outputs=outputs))


def extent(network: IntNetwork, ran: int, samples: int, alone: Sequence[str]) -> str:
    """Return '2 of 16 samples, 5 of 9 populations, one by one'; '' if all samples ran as a whole."""
    parts = [f"{ran} of {samples} samples"] if ran < samples else []
    if alone:
        some = len(alone) < len(network.layers)
        parts += [
            f"{len(alone)} of {len(network.layers)} populations" if some else "populations",
            "one by one",
        ]
    return ", ".join(parts)


# Compare simulators of others with the reference, population by population, within a time budget.
#
# Each population is fed the spikes that the reference recorded, in pieces that the simulator can hold. What a
# simulator cannot express is named, with the populations that have it, and the others are compared.


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
