"""Run a piece of a population in SANA-FE: `python sana_fe_child.py request.npz answer.npz`.

SANA-FE is under the GPL, so this file runs in a process of its own, imports nothing of this package, and may
run in an interpreter that has no more than NumPy and SANA-FE. The only file that imports SANA-FE.

SANA-FE counts in units of a weight, as floats that hold our integers exactly. A spike takes one step to
arrive, and in that step a bias would already act: it is sent as an axon that spikes in every step.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

UNIT = 64.0  # units of our state in one of SANA-FE's
INPUTS_PER_CORE = 1024
CORES_PER_TILE = 4


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the version, and spikes and voltages [samples, timesteps, neurons] of a request."""
    import sanafe

    spikes = request["spikes"]
    samples, timesteps, _ = spikes.shape
    chip = _chip(sanafe, request, _trains(spikes))
    fired = np.zeros((samples, timesteps, len(request["bias"])), bool)
    voltages = np.zeros(fired.shape, np.int64)
    for sample in range(samples):
        chip.reset()
        found = chip.sim(
            timesteps + 1,
            timing_model="simple",
            processing_threads=1,
            spike_trace=True,
            potential_trace=True,
        )
        for step, spiking in enumerate(found["spike_trace"][1:]):
            fired[sample, step, [neuron.neuron_offset for neuron in spiking]] = True
        voltages[sample] = np.asarray(found["potential_trace"])[1:] * UNIT
    return {"spikes": fired, "voltages": voltages}


def _trains(spikes: Any) -> Any:
    """[axons, steps]: the spikes of all samples, with one step after each; the last axon is the bias."""
    samples, timesteps, axons = spikes.shape
    trains = np.zeros((axons + 1, samples, timesteps + 1), bool)
    trains[:axons, :, :-1] = spikes.transpose(2, 0, 1)
    trains[axons, :, :-1] = True
    return trains.reshape(axons + 1, -1)


def _architecture(sanafe: Any, axons: int) -> Any:
    """Return SANA-FE's Loihi with only as many tiles and inputs as axons need; all of it takes seconds."""
    text = (Path(sanafe.__file__).parent / "examples" / "loihi.yaml").read_text(encoding="utf-8")
    tiles = -(-(1 + -(-axons // INPUTS_PER_CORE)) // CORES_PER_TILE)
    smaller = {
        "loihi_tile[0..31]": f"loihi_tile[0..{tiles - 1}]",
        "width: 8": f"width: {tiles}",
        "height: 4": "height: 1",
        "loihi_inputs[0..1023]": f"loihi_inputs[0..{min(axons, INPUTS_PER_CORE) - 1}]",
    }
    for old, new in smaller.items():
        if text.count(old) != 1:
            raise RuntimeError(f"SANA-FE's loihi.yaml has no {old!r}")
        text = text.replace(old, new)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        return sanafe.load_arch(file.name)


def _chip(sanafe: Any, request: dict[str, Any], trains: Any) -> Any:
    """Return a chip of Loihi that holds the neurons on its first core, and the axons on the others."""
    architecture, network = _architecture(sanafe, len(trains)), sanafe.Network()
    cores = [core for tile in architecture.tiles for core in tile.cores]
    neurons = network.create_neuron_group(
        "neurons",
        len(request["bias"]),
        soma_hw_name="loihi_lif",
        default_synapse_hw_name="loihi_dense_synapse",
        default_dendrite_hw_name="loihi_dendrites",
        log_spikes=True,
        log_potential=True,
    )
    common = {
        "leak_decay": float(request["leak"]),
        "input_decay": float(request["current_leak"]),
        "reset_mode": "soft" if request["soft"] else "hard",
        "force_update": True,
    }
    for neuron, threshold in zip(neurons.neurons, request["threshold"], strict=True):
        neuron.set_attributes(model_attributes={"threshold": threshold / UNIT, **common})
        neuron.map_to_core(cores[0])
    _connect(network, neurons, request, trains, cores[1:])
    chip = sanafe.SpikingChip(architecture)
    chip.load(network)
    return chip


def _connect(network: Any, neurons: Any, request: dict[str, Any], trains: Any, cores: list[Any]) -> None:
    axons = network.create_neuron_group("axons", len(trains), soma_hw_name="")
    for index, (axon, train) in enumerate(zip(axons.neurons, trains.tolist(), strict=True)):
        core, place = divmod(index, INPUTS_PER_CORE)
        axon.set_attributes(soma_hw_name=f"loihi_inputs[{place}]", model_attributes={"spikes": train})
        axon.map_to_core(cores[core])
    biased = np.flatnonzero(request["bias"])
    sources = np.concatenate([request["axon"], np.full(len(biased), len(trains) - 1)])
    targets = np.concatenate([request["neuron"], biased])
    weights = np.concatenate([request["weight"], request["bias"][biased]]) / UNIT
    pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    if pairs:
        axons.connect_neurons_sparse(neurons, {"weight": weights.tolist()}, pairs)


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])
    with np.load(asked, allow_pickle=False) as arrays:
        given = dict(arrays)
    np.savez(answered, **answer(given))
