"""Executions of a network held against the reference simulator, in every spike, voltage and output they show.

Samples do not touch each other, so they may be compared in parts: what all parts say together
(`join_comparisons`) is what one comparison of all samples says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..base import Array, MissingPackageError, SimulationError, Watch, announce, record, unwatched, watched
from ..base.arguments import HANG_SECONDS
from ..execute import lava as lava_sim
from ..execute.emulator import emulate
from ..execute.reference import simulate
from ..ir import IntNetwork, Trace, as_steps
from ..nn import SpikingNetwork
from ..quantize import QuantizedBody

EMULATOR = "emulator"
QUANTITIES = ("spike", "voltage", "output")
COUNTS = (
    "spikes_compared",
    "spikes_mismatched",
    "voltages_compared",
    "voltages_mismatched",
    "outputs_compared",
    "outputs_mismatched",
)


@record
class Mismatch:
    """The first place where two executions differ."""

    quantity: str  # spike, voltage or output
    population: str
    sample: int
    time_step: int | None  # None for an output
    index: tuple[int, ...]
    expected: int
    got: int


@record
class Comparison:
    """One execution against the reference; `not_run` says why it did not happen."""

    execution: str
    spikes_compared: int = 0
    spikes_mismatched: int = 0
    voltages_compared: int = 0
    voltages_mismatched: int = 0
    outputs_compared: int = 0
    outputs_mismatched: int = 0
    first_mismatch: Mismatch | None = None
    not_run: str | None = None

    @property
    def exact(self) -> bool:
        return not (self.spikes_mismatched or self.voltages_mismatched or self.outputs_mismatched)


@record
class Compared:
    """All executions on some samples; `failed` names those that broke off in the middle."""

    comparisons: tuple[Comparison, ...]
    failed: tuple[str, ...] = ()


@record
class Executions:
    """What is held against the reference: the emulator, Lava, and what else there is.

    `netx` is the file network.net that lava-dl's stock reader runs, or what it holds; `twin` the PyTorch
    model of a network that was trained quantization-aware. With `stock`, Lava's own process models run too.
    """

    network: IntNetwork
    netx: Path | bytes | None = None
    twin: SpikingNetwork | None = None
    stock: bool = False
    patience: float = HANG_SECONDS  # seconds, after which Lava is taken to hang

    def portable(self) -> Executions:
        """The same for another machine, which has no such file."""
        return replace(self, netx=self.netx.read_bytes()) if isinstance(self.netx, Path) else self


def compare_executions(given: Executions, inputs: Array, *, shown: bool = True) -> Compared:
    """Run everything that there is on some samples; an execution that cannot run says why.

    With `shown`, people are told what runs and how far it is.
    """
    tell: Callable[[str], None] = announce if shown else lambda text: None
    tell(f"verify: the reference, {len(inputs)} samples of {given.network.timesteps} steps")
    reference = simulate(given.network, inputs)
    comparisons, failed = [], []
    with _as_file(given.netx) as netx:
        for name, execute in _executions(replace(given, netx=netx), inputs, shown).items():
            tell(f"verify: reference against {name}, {len(inputs)} samples")
            try:
                comparisons.append(compare(name, reference, execute()))
            except (MissingPackageError, SimulationError) as error:
                if name == EMULATOR:  # it runs whatever the reference runs
                    raise
                comparisons.append(Comparison(execution=name, not_run=str(error)))
                failed += [name] if isinstance(error, lava_sim.LavaFailedError) else []
    return Compared(comparisons=tuple(comparisons), failed=tuple(failed))


def compare_shard(given: Executions, inputs: Array) -> Compared:
    """The same, in silence: by a worker of a cluster."""
    return compare_executions(given, inputs, shown=False)


@contextmanager
def _as_file(netx: Path | bytes | None) -> Iterator[Path | None]:
    if not isinstance(netx, bytes):
        yield netx
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.net"
        file.write_bytes(netx)
        yield file


def _executions(given: Executions, inputs: Array, shown: bool) -> dict[str, Callable[[], Trace]]:
    """What is held against the reference; Lava takes long for large networks, so it shows how far it is."""
    network, netx, twin, patience = given.network, given.netx, given.twin, given.patience

    def watch(label: str) -> Watch:
        return watched(label) if shown else unwatched

    executions: dict[str, Callable[[], Trace]] = {
        EMULATOR: lambda: emulate(network, inputs),
        "Lava": lambda: lava_sim.run(
            network, inputs, patience=patience, watch=watch("Lava, blocks of steps")
        ),
    }
    if given.stock:
        executions["Lava (stock)"] = lambda: lava_sim.run(
            network, inputs, stock=True, patience=patience, watch=watch("Lava (stock), blocks of steps")
        )
    if isinstance(netx, Path):
        executions["lava-dl netx"] = lambda: lava_sim.run_stock_netx(
            netx, network, inputs, patience=patience, watch=watch("lava-dl netx, samples")
        )
    if twin is not None:
        executions["PyTorch, as trained"] = lambda: run_twin(twin, inputs)
    return executions


def run_twin(model: SpikingNetwork, inputs: Array) -> Trace:
    """What the forward pass of a network that was trained quantization-aware does, in its integers.

    It shows spikes and outputs; voltages stay inside its passage over the time steps.
    """
    body = model.body
    assert isinstance(body, QuantizedBody)
    stepped = as_steps(np.asarray(inputs, np.float32), model.input_format.shape, model.timesteps)
    with torch.no_grad():
        sent = body.run(torch.from_numpy(stepped.swapaxes(0, 1).copy()).flatten(0, 1))
    arrays = {
        name: values.view(model.timesteps, -1, *values.shape[1:]).transpose(0, 1).numpy()
        for name, values in sent.items()
    }
    *firing, readout = (neurons.population.name for neurons in body.all_neurons)
    spikes = {name: arrays[name].astype(bool) for name in firing}
    return Trace(spikes=spikes, voltages={}, outputs=arrays[readout].sum(axis=1).astype(np.int64))


# ---- two traces -------------------------------------------------------------------------------


def compare(name: str, expected: Trace, got: Trace) -> Comparison:
    """Count what differs between two traces; populations that `got` does not show are not counted."""
    pairs = [("spike", name, expected.spikes[name], values) for name, values in got.spikes.items()]
    pairs += [("voltage", name, expected.voltages[name], values) for name, values in got.voltages.items()]
    pairs.append(("output", "output", expected.outputs, got.outputs))
    compared = dict.fromkeys(QUANTITIES, 0)
    mismatched = dict(compared)
    for quantity, _, left, right in pairs:
        compared[quantity] += left.size
        mismatched[quantity] += int(np.count_nonzero(left != right))
    found = [mismatch for pair in pairs if (mismatch := _first_of_pair(*pair)) is not None]
    return Comparison(
        execution=name,
        spikes_compared=compared["spike"],
        spikes_mismatched=mismatched["spike"],
        voltages_compared=compared["voltage"],
        voltages_mismatched=mismatched["voltage"],
        outputs_compared=compared["output"],
        outputs_mismatched=mismatched["output"],
        first_mismatch=_first(found, list(expected.spikes)),
    )


def _first_of_pair(quantity: str, population: str, expected: Array, got: Array) -> Mismatch | None:
    """The earliest in time; among equals, of the first sample, at the first neuron."""
    where = np.argwhere(expected != got)
    if not len(where):
        return None
    timed = quantity != "output"
    at = tuple(where[where[:, 1].argmin()] if timed else where[0])
    return Mismatch(
        quantity=quantity,
        population=population,
        sample=int(at[0]),
        time_step=int(at[1]) if timed else None,
        index=tuple(int(i) for i in at[2 if timed else 1 :]),
        expected=int(expected[at]),
        got=int(got[at]),
    )


def _first(mismatches: Sequence[Mismatch], populations: Sequence[str]) -> Mismatch | None:
    """The earliest in time, outputs last; then spikes before voltages, in the first population, of the
    first sample.

    Where each mismatch is the first of its samples, this is the first of all: a minimum of minima.
    """

    def rank(mismatch: Mismatch) -> tuple[float, int, int, int]:
        step, quantity = mismatch.time_step, QUANTITIES.index(mismatch.quantity)
        place = populations.index(mismatch.population) if step is not None else 0
        return (np.inf if step is None else step, quantity, place, mismatch.sample)

    return min(mismatches, key=rank, default=None)


# ---- parts ------------------------------------------------------------------------------------


def join_comparisons(network: IntNetwork, parts: Sequence[tuple[int, Compared]]) -> Compared:
    """What was compared in parts, each with its first sample, as if it had been compared at once."""
    alike = zip(*([(start, each) for each in part.comparisons] for start, part in parts), strict=True)
    names = [population.name for population in network.populations[1:]]
    failed = dict.fromkeys(name for _, part in parts for name in part.failed)
    return Compared(
        comparisons=tuple(_joined(comparisons, names) for comparisons in alike), failed=tuple(failed)
    )


def _joined(parts: Sequence[tuple[int, Comparison]], populations: Sequence[str]) -> Comparison:
    """Of one execution: sums of counts, and the first of the first mismatches; not run if a part was not."""
    one = parts[0][1]
    if broken := [part for _, part in parts if part.not_run]:
        return Comparison(execution=one.execution, not_run=broken[0].not_run)
    found = [
        replace(part.first_mismatch, sample=start + part.first_mismatch.sample)
        for start, part in parts
        if part.first_mismatch is not None
    ]
    counts = {count: sum(getattr(part, count) for _, part in parts) for count in COUNTS}
    return replace(one, **counts, first_mismatch=_first(found, populations))
