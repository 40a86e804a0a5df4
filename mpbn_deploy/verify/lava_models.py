"""Compare Lava's own process models, and lava-dl's reader, which builds them from a file, with the reference,
on as much as a time budget allows.

A network that is too large to run as a whole is compared population by population, each fed the spikes that
the reference recorded: if every population answers the same spikes with the same spikes and voltages, so does
the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from ..base import Array, SimulationError, announce, no_progress, progress_bar
from ..execute import EXECUTORS, ExecutionOptions, outputs_of
from ..execute.lava import StockShare, reader_samples, run_alone, stock_share
from ..execute.reference import simulate
from ..ir import IntNetwork, Trace, as_steps
from .comparison import Comparison, compare

LAVA_STOCK, READER = EXECUTORS["lava-stock"], EXECUTORS["netx"]


def compare_with_lava(
    network: IntNetwork,
    inputs: Array,
    reference: Trace | None,
    budget: float,
    options: ExecutionOptions,
    *,
    shown: bool = True,
) -> Comparison:
    """Compare Lava's own models with the reference on the first samples, for about `budget` seconds.

    `reference` is the trace of all samples; None: the reference runs here.
    """
    if (obstacle := LAVA_STOCK.obstacle(network)) is not None:
        raise SimulationError(obstacle)
    share = stock_share(network, len(inputs), budget)
    if not share.samples:
        raise SimulationError(f"no population of this network fits a budget of {budget:g} s; raise --budget.")
    chosen, extent = inputs[: share.samples], _extent(network, share, len(inputs))
    if shown:
        announce(f"verify: reference against {LAVA_STOCK.name}, {extent or f'{len(inputs)} samples'}")
    progress = progress_bar(LAVA_STOCK.name) if shown else no_progress
    options = replace(options, progress=progress)
    expected = simulate(network, chosen) if reference is None else first_samples(reference, share.samples)
    if not share.alone:
        found = compare(LAVA_STOCK.name, expected, LAVA_STOCK.run(network, chosen, options))
    else:
        found = _compare_alone(network, share, chosen, expected, options)
    return replace(found, extent=extent)


def compare_with_reader(
    network: IntNetwork,
    inputs: Array,
    reference: Trace | None,
    budget: float,
    options: ExecutionOptions,
    *,
    shown: bool = True,
) -> Comparison:
    """Compare lava-dl's reader with the reference on the first samples, for a part of `budget` seconds."""
    samples = reader_samples(network, len(inputs), budget)
    if not samples:
        raise SimulationError(f"not one sample fits its share of a budget of {budget:g} s; raise --budget.")
    extent = None if samples == len(inputs) else f"{samples} of {len(inputs)} samples"
    if shown:
        announce(f"verify: reference against {READER.name}, {extent or f'{samples} samples'}")
    progress = progress_bar(f"{READER.name}, {READER.parts}") if shown else no_progress
    chosen = inputs[:samples]
    expected = simulate(network, chosen) if reference is None else first_samples(reference, samples)
    found = READER.run(network, chosen, replace(options, progress=progress))
    return replace(compare(READER.name, expected, found), extent=extent)


def _compare_alone(
    network: IntNetwork, share: StockShare, inputs: Array, expected: Trace, options: ExecutionOptions
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


def _extent(network: IntNetwork, share: StockShare, samples: int) -> str | None:
    """Return '2 of 16 samples, 5 of 9 populations, one by one'; None if all ran as a whole."""
    parts = [] if share.samples == samples else [f"{share.samples} of {samples} samples"]
    if share.alone:
        some = len(share.alone) < len(network.layers)
        parts += [f"{len(share.alone)} of {len(network.layers)} populations"] if some else ["populations"]
        parts.append("one by one")
    return ", ".join(parts) or None
