"""Compare Lava's own process models, and lava-dl's reader, which builds them from a file, with the reference,
on as much as a time budget allows.

A network that is too large to run as a whole is compared population by population, each fed the spikes that
the reference recorded: if every population answers the same spikes with the same spikes and voltages, so does
the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from ..base import Array, SimulationError, announce, no_progress, progress_bar
from ..execute import EXECUTORS, ExecutionOptions, Executor, outputs_of
from ..execute.lava import BudgetShare, reader_samples, run_alone, stock_share
from ..execute.reference import simulate
from ..ir import IntNetwork, Trace, as_steps
from .comparison import Comparison, compare

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

    `reference` is the trace of all samples; None: the reference runs here.
    """
    share = SHARES[executor](network, len(inputs), budget)
    inputs, extent = inputs[: share.samples], _extent(network, share, len(inputs))
    if shown:
        announce(f"verify: reference against {executor.name}, {extent or f'{len(inputs)} samples'}")
        counted = "populations" if share.alone else executor.parts
        options = replace(options, progress=progress_bar(f"{executor.name}, {counted}"))
    expected = simulate(network, inputs) if reference is None else first_samples(reference, share.samples)
    if share.alone:
        found = _compare_alone(network, share, inputs, expected, options)
    else:
        found = compare(executor.name, expected, executor.run(network, inputs, options))
    return replace(found, extent=extent)


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


def _compare_alone(
    network: IntNetwork, share: BudgetShare, inputs: Array, expected: Trace, options: ExecutionOptions
) -> Comparison:
    """Compare populations one by one, each fed what the reference fed it."""
    spikes: dict[str, Array] = {
        network.input.name: as_steps(inputs, network.input.shape, network.timesteps),
        **expected.spikes,
    }
    quiet = replace(options, progress=no_progress)
    found = {}
    for index in options.progress(range(len(share.alone))):
        name = share.alone[index]
        sources = {connection.source: spikes[connection.source] for connection in network.entering(name)}
        found[name] = run_alone(network, name, sources, quiet)
    return compare_some(LAVA_STOCK.name, network, expected, found)


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


def first_samples(trace: Trace, samples: int) -> Trace:
    """Return the trace of the first samples."""
    return Trace(
        spikes={name: values[:samples] for name, values in trace.spikes.items()},
        voltages={name: values[:samples] for name, values in trace.voltages.items()},
        outputs=trace.outputs[:samples],
    )


def _extent(network: IntNetwork, share: BudgetShare, samples: int) -> str | None:
    """Return '2 of 16 samples, 5 of 9 populations, one by one'; None if all ran as a whole."""
    parts = [] if share.samples == samples else [f"{share.samples} of {samples} samples"]
    if share.alone:
        some = len(share.alone) < len(network.layers)
        parts += [f"{len(share.alone)} of {len(network.layers)} populations"] if some else ["populations"]
        parts.append("one by one")
    return ", ".join(parts) or None
