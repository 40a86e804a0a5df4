"""WITNESS: the emulator of nengo-loihi, which computes in the integers of Loihi 1.

It is given our integers directly, without nengo-loihi's own rounding, so it takes negative thresholds and
weights of any number of bits, which a chip would not; `fit` checks those. Sums of synapses have 22 bits, and
a current always decays. The only module that imports nengo-loihi.
"""

from __future__ import annotations

import warnings
from importlib import metadata
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, MissingPackageError
from ...ir import (
    STATE_LIMIT,
    Delta,
    Lif,
    Neuron,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SoftLif,
    Truncation,
    Xylo,
)
from .witnesses import Answer, Costs, ObstacleError, Piece

COSTS = Costs(piece=0.01, synapse=3e-7, step=1e-4, arrival=1.5e-5)
LARGEST_SUM = 2**31 - 1  # of the emulator's int32, where it would wrap before it counts its 22 bits


def version() -> str:
    try:
        return metadata.version("nengo-loihi")
    except metadata.PackageNotFoundError as error:
        raise MissingPackageError(
            "nengo-loihi is not installed; pip install 'mpbn_deploy[witness]'."
        ) from error


def obstacle(neuron: Neuron) -> str | None:
    match neuron:
        case SoftLif():
            return "soft reset"
        case Lif() | Readout():
            return None if neuron.decay_current else "a current that never decays"
        case Xylo():
            return "a neuron of Xylo"
        case Relay():
            return "a relay, which sends graded messages"
        case Delta() | SigmaDelta() | Sigma():
            return "sigma-delta neurons, which send graded messages"
        case _:
            assert_never(neuron)


def run(piece: Piece) -> Answer:
    version()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of versions of nengo that it does not know
        emulator, error = _emulator(piece)
        try:
            return _record(emulator, piece)
        except error as overflow:
            raise ObstacleError(
                f"{str(overflow).lower()}, of which nengo-loihi keeps fewer bits"
            ) from overflow
        finally:
            emulator.close()


def _record(emulator: Any, piece: Piece) -> Answer:
    """Step through all samples, back to back; a spike takes one step to arrive."""
    shape = (*piece.steps, len(piece.neurons))
    spikes, voltages = np.zeros(shape, bool), np.zeros(shape, np.int64)
    state = emulator.compartment
    emulator.step()
    for sample, step in np.ndindex(*piece.steps):
        if step == 0:
            state.current[:] = state.voltage[:] = 0
        emulator.step()
        spikes[sample, step], voltages[sample, step] = state.spiked, state.voltage
    return Answer(spikes=spikes, voltages=voltages)


def _emulator(piece: Piece) -> tuple[Any, type[Exception]]:
    """Return nengo-loihi's emulator of a piece, and the error that it raises when a number overflows."""
    from nengo.exceptions import SimulationError
    from nengo_loihi.block import Axon, LoihiBlock, Synapse
    from nengo_loihi.builder import Model
    from nengo_loihi.emulator import EmulatorInterface
    from nengo_loihi.inputs import SpikeInput

    class StrictEmulator(EmulatorInterface):  # type: ignore[misc]
        strict = True  # raises where the emulator would warn and wrap

    block, synapse, axon = LoihiBlock(len(piece.neurons)), Synapse(piece.axons), Axon(piece.axons)
    _set_neurons(block.compartment, piece)
    _set_weights(synapse, piece)
    axon.target = synapse
    axon.set_compartment_axon_map(np.arange(piece.axons))
    source = SpikeInput(piece.axons)
    for time, fired in enumerate(piece.spikes.reshape(-1, piece.axons), start=1):
        source.add_spikes(time, np.flatnonzero(fired))
    model = Model()
    source.add_axon(axon)
    block.add_synapse(synapse)
    model.add_input(source)
    model.add_block(block)
    return StrictEmulator(model, seed=0), SimulationError


def _set_neurons(compartment: Any, piece: Piece) -> None:
    rule, count = piece.rule, len(piece.neurons)
    assert isinstance(rule.decay_current, Truncation) and isinstance(rule.decay_voltage, Truncation)
    threshold = STATE_LIMIT if rule.threshold is None else rule.threshold  # no voltage is above the limit
    numbers = {
        "vth": threshold,
        "bias": rule.bias,
        "decay_u": rule.decay_current.amount - 1,  # it keeps 4095 - decay_u parts in 4096
        "decay_v": rule.decay_voltage.amount,
        "refract_delay": 1,  # the step of the spike itself
    }
    for name, values in numbers.items():
        setattr(compartment, name, np.broadcast_to(values, (count,)).astype(np.int32))
    compartment.scale_u = compartment.scale_v = False
    compartment.vmin, compartment.vmax = -STATE_LIMIT, STATE_LIMIT
    compartment.enable_noise[:] = False


def _set_weights(synapse: Any, piece: Piece) -> None:
    sums = np.bincount(piece.neuron, np.abs(piece.weight), len(piece.neurons))
    if sums.max() > LARGEST_SUM:
        raise ObstacleError("weights of a neuron whose sum is beyond 31 bits")
    ends = np.searchsorted(piece.axon, np.arange(1, piece.axons))
    synapse.weights = _by_axon(piece.weight, ends)
    synapse.indices = _by_axon(piece.neuron, ends)


def _by_axon(values: Array, ends: Array) -> list[Array]:
    return [part[None] for part in np.split(values.astype(np.int32), ends)]
