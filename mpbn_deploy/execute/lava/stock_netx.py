"""Run network.net in lava-dl's own netx reader, with Lava's own processes and models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...base import HANG_SECONDS, Array, Progress, SimulationError, no_progress
from ...ir import (
    STATE_EXPONENT,
    IntNetwork,
    IntPopulation,
    Trace,
    apply_synapse,
    as_steps,
    check_input_values,
    fires,
    modulating,
    sends,
)
from ..reference import join_traces, outputs_of, simulate
from .compat import load_netx, quiet
from .graph import run_steps, started
from .plans import Source, Tape, lava_shape, message_bits
from .processes import TapeInput, TapeInputModel, TapeOutput, TapeOutputModel

# isort: split
from lava.magma.core.run_configs import Loihi2SimCfg


def run_stock_netx(
    path: Path,
    network: IntNetwork,
    inputs: Array,
    *,
    patience: float = HANG_SECONDS,
    progress: Progress = no_progress,
) -> Trace:
    """Run the file network.net, which holds `network`, in lava-dl's reader; the trace has no voltages.

    Of a sigma-delta network, the trace has those of a Sigma at the end.
    lava-dl does not drive an input layer that has neurons; the layers after it then receive the spikes of the
    reference. `patience` is the time limit, in seconds, for one sample. `progress` counts samples.
    """
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    check_input_values(network, steps)
    if modulating(network.output.neuron) is not None:
        with _translated_errors():
            samples = progress(range(len(steps)))
            return join_traces([run_sigma_delta(path, network, steps[i], patience) for i in samples])
    part = _part(path, network)
    sent = steps
    if part.first > 0:
        sent = simulate(network, steps).spikes[network.populations[part.first].name]
    # Spikes in flight are not reset, so with delays samples run one by one.
    one_by_one = any(connection.delay for connection in network.connections)

    def run(batch: Array, progress: Progress) -> Trace:
        return _run(path, part, network, batch, patience, progress)

    with _translated_errors():
        if one_by_one:
            samples = progress(range(len(sent)))
            return join_traces([run(sent[i : i + 1], no_progress) for i in samples])
        return run(sent, progress)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Silence lava-dl, and raise its errors as ours: its reader validates little, so many kinds surface."""
    with quiet():
        try:
            yield
        except (ValueError, RuntimeError, ArithmeticError, TypeError, LookupError) as error:
            raise SimulationError(f"lava-dl's netx reader cannot run the network: {error}") from error


@dataclass(frozen=True)
class _Part:
    """The part of a file that lava-dl's reader runs: populations after `first`, up to layer `layers`."""

    first: int
    layers: int
    populations: tuple[IntPopulation, ...]


def _part(path: Path, network: IntNetwork) -> _Part:
    """Select all layers except an input layer with neurons and a final average layer."""
    layers = load_netx().NetDict(str(path))["layer"]
    count = len(layers)
    first = 1 if layers[0]["type"] == "input" and "neuron" in layers[0].keys() else 0  # noqa: SIM118
    averaged = layers[count - 1]["type"] == "average"
    populations = network.layers[first : -1 if averaged else None]
    return _Part(first=first, layers=count - 1 if averaged else count, populations=populations)


def _run(
    path: Path, part: _Part, network: IntNetwork, sent: Array, patience: float, progress: Progress
) -> Trace:
    timesteps, samples, source_population = network.timesteps, len(sent), network.populations[part.first]
    total = samples * timesteps + len(part.populations) + 1
    stock = load_netx().Network(
        net_config=str(path),
        num_layers=part.layers,
        skip_layers=part.first,
        input_message_bits=message_bits(source_population),
        reset_interval=timesteps,
        reset_offset=1,  # the first layer sees the stream one step late; lava-dl adds one per layer
    )
    shape = lava_shape(source_population.shape)
    tape = Tape(total, shape, np.int32)
    tape.values[: samples * timesteps] = sent.reshape(-1, *shape[::-1]).transpose(
        0, *range(len(shape), 0, -1)
    )
    source = TapeInput(shape=shape, tape=tape, name=source_population.name)
    _connect_input(source, source_population, stock)
    tapes = {p.name: Tape(total, lava_shape(p.shape), np.bool_) for p in part.populations}
    voltages = _run_samples(
        source,
        stock.layers[-1],
        recording(source, stock.layers, list(tapes.values())),
        progress(range(samples)),
        timesteps,
        len(part.populations),
        patience,
    )
    spikes = {
        p.name: _read(tapes[p.name], p, depth, samples, timesteps)
        for depth, p in enumerate(part.populations, start=1)
    }
    return Trace(spikes=spikes, voltages={}, outputs=_outputs(part, network, spikes, voltages))


def _read(tape: Tape, population: IntPopulation, late: int, samples: int, timesteps: int) -> Array:
    """Return a tape as [samples, timesteps, *shape]; its population sees the stream `late` steps late."""
    stream = tape.values[late : late + samples * timesteps]
    stream = stream.transpose(0, *range(stream.ndim - 1, 0, -1))
    return stream.reshape(samples, timesteps, *population.shape)


def _outputs(part: _Part, network: IntNetwork, spikes: Mapping[str, Array], voltages: Array) -> Array:
    """Return voltages of a readout, else spike counts; an average layer sums the counts of its groups."""
    last = part.populations[-1]
    if not fires(last.neuron):
        return voltages
    counts: Array = spikes[last.name].sum(axis=1)
    if last is network.output:
        return counts
    sums: Array = apply_synapse(network.connections[-1].synapse, counts) * 2**STATE_EXPONENT
    return sums.astype(np.int64)


def _connect_input(source: TapeInput, population: Source, stock: Any) -> None:
    flat = len(population.shape) == 3 and len(stock.inp.shape) == 1
    port = source.s_out.transpose([2, 1, 0]).flatten() if flat else source.s_out
    port.connect(stock.inp)


def _run_samples(
    source: TapeInput,
    last: Any,
    configuration: Loihi2SimCfg,
    samples: Iterable[int],
    timesteps: int,
    late: int,
    patience: float,
) -> Array:
    """Run samples one after the other; return the voltages of the last layer after each."""
    outputs = []
    with started(source, configuration):
        for sample in samples:
            steps = timesteps + (late if sample == 0 else 0)
            run_steps(source, steps, patience)
            outputs.append(np.asarray(last.neuron.v.get()).T)
    stacked: Array = np.stack(outputs).astype(np.int64)
    return stacked


# Run a sigma-delta network.net in lava-dl's own netx reader, with Lava's own processes and models.
#
# lava-dl never resets sigma-delta neurons, so every sample runs in a new network. Its reader does not connect
# the neurons of the input layer; samples are sent to them directly, as lava-dl's own tests do.


def run_sigma_delta(path: Path, network: IntNetwork, sample: Array, patience: float) -> Trace:
    """Run one sample, [timesteps, *shape]; the trace has the sums of a Sigma at the end."""
    bits = message_bits(network.input)
    stock = load_netx().Network(net_config=str(path), input_message_bits=bits)
    shape, steps = lava_shape(network.input.shape), network.timesteps
    tape = Tape(steps, shape, np.int32)
    tape.values[:] = sample.transpose(0, *range(len(shape), 0, -1))
    source = TapeInput(shape=shape, tape=tape, name=network.input.name)
    first = stock.layers[0]
    encodes = first.block == "Input"
    flat = len(shape) == 3 and len(first.inp.shape) == 1
    port = source.s_out.transpose([2, 1, 0]).flatten() if flat else source.s_out
    port.connect(first.neuron.a_in if encodes else stock.inp)
    tapes = {p.name: Tape(steps, lava_shape(p.shape), np.int32) for p in network.layers}
    with started(source, recording(source, stock.layers, list(tapes.values()))):
        run_steps(source, steps, patience)
    return _trace(network, tapes)


def recording(source: TapeInput, layers: Sequence[Any], tapes: Sequence[Tape]) -> Loihi2SimCfg:
    """Connect a tape to the output of each layer of lava-dl's; return the run configuration."""
    models: dict[Any, type] = {source: TapeInputModel}
    for layer, tape in zip(layers, tapes, strict=True):
        sink = TapeOutput(shape=layer.out.shape, tape=tape)
        layer.out.connect(sink.s_in)
        models[sink] = TapeOutputModel
    return Loihi2SimCfg(select_tag="fixed_pt", exception_proc_model_map=models)


def _trace(network: IntNetwork, tapes: dict[str, Tape]) -> Trace:
    """Return what was sent; Sigma sends its sums, which are no messages."""
    spikes: dict[str, Array] = {}
    voltages: dict[str, Array] = {}
    for population in network.layers:
        stream = tapes[population.name].values
        values = stream.transpose(0, *range(stream.ndim - 1, 0, -1))[None].astype(np.int64)
        (spikes if sends(population.neuron) else voltages)[population.name] = values
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs_of(network, spikes, voltages))
