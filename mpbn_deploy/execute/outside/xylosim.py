"""WITNESS: xylosim, SynSense's simulator of Xylo (its second version), which counts in 16 bits.

Xylo's neurons are of another kind than ours. A voltage leaks by a bit shift that rounds differently and loses
at least one unit, a spike subtracts the threshold, and a current decays before it is used. What remains equal
are neurons whose voltage and current do not outlive a time step (leak 0, whatever the reset): there the
voltage is the sum of arrivals and bias, and Xylo fires if it reaches a threshold that is one above ours.

So each time step is run from rest. A current that is positive loses one unit before it is used; an axon that
always spikes keeps it positive, and the bias subtracts what that adds. The reset, which Xylo's next step
forgets, is undone in the recorded voltages. The only module that imports xylosim.

Networks of Xylo's own neurons run as a whole, each with one layer of xylosim: an executor, `WHOLE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, FormatError, MissingPackageError, record
from ...formats.xylo import specification
from ...ir import (
    DECAY_ONE,
    Delta,
    IntNetwork,
    Lif,
    Neuron,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SoftLif,
    Trace,
    Xylo,
    as_steps,
    check_input_values,
)
from ..reference import ExecutionOptions, outputs_of
from .witnesses import Answer, Costs, ObstacleError, Piece

COSTS = Costs(piece=0.01, synapse=2e-6, step=2e-3, arrival=2e-5)
INSTALL = "pip install xylosim"
LARGEST_WEIGHT = 127  # 8 bits
LARGEST_STATE = 2**15 - 1  # 16 bits
NO_DECAY = 15  # bits by which a current is shifted: nothing is left, and one unit is lost instead
FORGET = 0  # bits: a voltage is lost as a whole


def version() -> str:
    try:
        return metadata.version("xylosim")
    except metadata.PackageNotFoundError as error:
        raise MissingPackageError(f"xylosim is not installed; {INSTALL}.") from error


def obstacle(neuron: Neuron) -> str | None:
    match neuron:
        case Xylo():
            return "a neuron of Xylo itself, which runs with its whole network"
        case Relay() | Delta() | SigmaDelta() | Sigma():
            return "graded messages"
        case Lif() | SoftLif() | Readout():
            if np.any(neuron.decay_current != DECAY_ONE):
                return "a current that outlives its time step"
            if np.any(neuron.decay_voltage != DECAY_ONE):
                return "a voltage that outlives its time step, whose leak Xylo rounds differently"
            return None
        case _:
            assert_never(neuron)


def run(piece: Piece) -> Answer:
    version()
    numbers = _in_units_of_xylo(piece)
    synapses = _synapses(numbers, piece)  # the layer only points at them, so they must live as long as it
    layer = _layer(numbers, synapses)
    shape = (*piece.steps, len(piece.neurons))
    counts, voltages = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for sample, step in np.ndindex(*piece.steps):
        layer.reset_all()
        layer.evolve([[*map(int, piece.spikes[sample, step]), 1]])
        counts[sample, step] = layer.rec_recurrent_spikes[0]
        voltages[sample, step] = np.asarray(layer.rec_v_mem)[:, 0]
    fired = counts > 0
    charged = (voltages + counts * numbers.threshold) * numbers.unit
    left = 0 if piece.rule.subtrahend is None else charged - piece.rule.subtrahend
    return Answer(spikes=fired, voltages=np.where(fired, left, charged))


@record
class _Numbers:
    """The integers of a piece, in units of a power of two that divides all weights and biases."""

    unit: int
    weight: Array
    offset: int  # added to every current, and subtracted by the bias
    bias: Array
    threshold: Array


def _in_units_of_xylo(piece: Piece) -> _Numbers:
    bias, threshold = (
        np.broadcast_to(values, (len(piece.neurons),)).astype(np.int64)
        for values in (piece.rule.bias, 0 if piece.rule.threshold is None else piece.rule.threshold)
    )
    digits = int(np.bitwise_or.reduce(np.abs(np.concatenate([piece.weight, bias]).astype(np.int64))))
    unit = digits & -digits or 1
    weight, bias = piece.weight // unit, bias // unit
    if np.abs(weight).max(initial=0) > LARGEST_WEIGHT:
        raise ObstacleError("weights of more than 8 bits")
    offset = 2 + int(np.bincount(piece.neuron, np.abs(weight), len(bias)).max(initial=0))
    bias = bias - (offset - 1)  # the current has lost one unit
    # A voltage is a multiple of the unit, so it is above a threshold from the next multiple on.
    reached = threshold // unit + 1
    if piece.rule.threshold is None:
        reached = np.full_like(bias, LARGEST_STATE)
    if 2 * offset + np.abs(bias).max() >= LARGEST_STATE or np.abs(reached).max() > LARGEST_STATE:
        raise ObstacleError("sums or thresholds of more than 16 bits")
    return _Numbers(unit=unit, weight=weight, offset=offset, bias=bias, threshold=reached)


def _synapses(numbers: _Numbers, piece: Piece) -> list[list[Any]]:
    """Return the synapses of each axon; the last axon is the offset."""
    from xylosim.v2 import XyloSynapse

    synapses: list[list[Any]] = [[] for _ in range(piece.axons + 1)]
    for axon, neuron, weight in zip(piece.axon, piece.neuron, numbers.weight, strict=True):
        synapses[axon].append(XyloSynapse(int(neuron), 0, int(weight)))
    full, rest = divmod(numbers.offset, LARGEST_WEIGHT)
    for neuron in range(len(piece.neurons)):
        synapses[-1] += [XyloSynapse(neuron, 0, weight) for weight in [LARGEST_WEIGHT] * full + [rest]]
    return synapses


def _layer(numbers: _Numbers, synapses: list[list[Any]]) -> Any:
    """Return a layer of Xylo's hidden neurons, without output neurons."""
    from xylosim.v2 import XyloLayer

    neurons = len(numbers.bias)
    none: list[list[Any]] = [[] for _ in range(neurons)]
    return XyloLayer(
        synapses_in=synapses,
        synapses_rec=none,
        synapses_out=none,
        aliases=none,
        threshold=numbers.threshold.tolist(),
        threshold_out=[],
        has_bias=True,
        bias=numbers.bias.tolist(),
        bias_out=[],
        weight_shift_inp=0,
        weight_shift_rec=0,
        weight_shift_out=0,
        dash_mem=[FORGET] * neurons,
        dash_mem_out=[],
        dash_syns=[[NO_DECAY]] * neurons,
        dash_syns_out=[],
        name="piece",
    )


# ---- whole networks ---------------------------------------------------------------------------


class WholeNetwork:
    """A layer of xylosim with the numbers of a `formats.xylo` specification."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        from xylosim.v2 import XyloLayer

        # The layer only points at its synapses, so they must live as long as it does.
        self.synapses = {part: _matrix_synapses(given[f"weights_{part}"]) for part in ("in", "rec", "out")}
        self.layer = XyloLayer(
            **{f"synapses_{part}": synapses for part, synapses in self.synapses.items()},
            aliases=[[] for _ in given["threshold"]],
            **{name: given[name].tolist() for name in ("threshold", "threshold_out", "bias_out")},
            **{name: given[name].tolist() for name in ("dash_mem", "dash_mem_out")},
            bias=given["bias"].tolist(),
            has_bias=bool(given["bias"].any() or given["bias_out"].any()),
            dash_syns=given["dash_syn"][:, None].tolist(),
            dash_syns_out=given["dash_syn_out"][:, None].tolist(),
            weight_shift_inp=given["weight_shift_in"],
            weight_shift_rec=given["weight_shift_rec"],
            weight_shift_out=given["weight_shift_out"],
            name="network",
        )

    def run(self, steps: Array) -> tuple[Array, Array]:
        """Run a sample [timesteps, inputs]; return spikes and voltages [timesteps, neurons], outputs last."""
        layer = self.layer
        layer.reset_all()
        layer.evolve(steps.tolist())
        spikes = np.hstack([layer.rec_recurrent_spikes, layer.rec_out_spikes])
        return spikes, np.vstack([layer.rec_v_mem, layer.rec_v_mem_out]).T


def _matrix_synapses(weights: Array) -> list[list[Any]]:
    """Return the synapses of each source of a matrix [sources, targets], in the order of the targets."""
    from xylosim.v2 import XyloSynapse

    return [
        [XyloSynapse(int(target), 0, int(row[target])) for target in np.flatnonzero(row)] for row in weights
    ]


class XyloNetworks:
    """EXECUTOR: whole networks of Xylo's own neurons; all spikes and voltages are xylosim's."""

    def obstacle(self, network: IntNetwork) -> str | None:
        """Return why the chip, and so its simulator, cannot hold a network."""
        try:
            specification(network)
        except FormatError as error:
            return str(error)
        return None

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        """Run all samples, one after the other."""
        version()
        check_input_values(network, np.asarray(inputs))
        steps = as_steps(inputs, network.input.shape, network.timesteps)
        steps = steps.reshape(*steps.shape[:2], -1).astype(np.int64)
        chip = WholeNetwork(specification(network))
        answers = [chip.run(steps[index]) for index in options.progress(range(len(steps)))]
        fired, charged = (np.stack(parts).astype(np.int64) for parts in zip(*answers, strict=True))
        ends = np.cumsum([0, *(p.size for p in network.layers)])
        places = {p.name: slice(a, b) for p, a, b in zip(network.layers, ends[:-1], ends[1:], strict=True)}

        def split(values: Array) -> dict[str, Array]:
            return {
                p.name: values[..., places[p.name]].reshape(*values.shape[:2], *p.shape)
                for p in network.layers
            }

        spikes, voltages = split(fired), split(charged)
        return Trace(spikes=spikes, voltages=voltages, outputs=outputs_of(network, spikes, voltages))


WHOLE = XyloNetworks()
