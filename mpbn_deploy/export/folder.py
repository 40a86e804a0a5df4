"""The provenance of an export, without dates and folders: the same inputs give the same bytes."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..base import announce, layer_name
from ..data import Samples
from ..execute.lava import installed_version
from ..execute.reference import simulate
from ..fit import uses_single_port
from ..formats import c, verilog, xylo
from ..formats.options import ExportOptions, PoolingChoice
from ..hardware import HardwareProfile
from ..ir import IntNetwork, fires, relay_names
from ..quantize import CalibrationData, Quantized, shifts_decays
from ..verify import VerifyReport, predict
from .model import FoldedModel

VERSIONED_PACKAGES = ("torch", "numpy", "nir", "h5py", "lava-nc", "lava-dl")


def facts_of(
    model: FoldedModel, profile: HardwareProfile, data: str, options: ExportOptions
) -> dict[str, Any]:
    """Return the manifest's entries on model, target, data, options, number formats and versions."""
    card = model.card
    return {
        "model": {
            "name": model.path.name,
            "sha256": model.digest,
            "architecture": None if card is None else card.architecture,
        },
        "target": {"name": profile.name},
        "data": data,
        "class_names": [] if card is None else list(card.class_names),
        "options": options.recorded(),
        "formats": {key: limit.value for key, limit in profile.limits.items() if key.startswith("formats.")},
        "versions": _versions(),
    }


def _versions() -> dict[str, str | None]:
    packages = {name: installed_version(name) for name in VERSIONED_PACKAGES}
    return {"mpbn_deploy": __version__, "python": platform.python_version(), **packages}


def as_lines(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested facts for the report: {"model": {"name": "a.pt"}} -> {"model name": "a.pt"}."""
    lines: dict[str, str] = {}
    for key, value in facts.items():
        if isinstance(value, dict):
            lines |= as_lines(value, f"{prefix}{key} ")
        elif value is not None:
            lines[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return lines


# Notes for the user on what an export found, gathered from all its stages.


def all_notes(
    model: FoldedModel,
    profile: HardwareProfile,
    pooling: PoolingChoice,
    calibration: CalibrationData | None,
    quantized: Quantized,
) -> tuple[str, ...]:
    """Return the notes on the model, the network, the target, the calibration data and the rounding."""
    return (
        *model.notes,
        *notes_on_spikes(quantized.network),
        *notes_on_relays(quantized.network, pooling),
        *notes_on_target(model, profile),
        *(() if calibration is None else calibration.notes),
        *quantized.notes,
    )


def notes_on_steps(model: FoldedModel, samples: Samples) -> tuple[str, ...]:
    """Return what one set of numbers for all time steps costs, if --static-steps asked for it."""
    if model.timed is None:
        return ()
    if samples.test is None:
        return (
            "--static-steps: norms have the means of their numbers per step; without data, at unknown cost.",
        )
    labels = samples.test.labels
    both = [np.mean(predict(each, samples.test, "steps") == labels) for each in (model.timed, model.folded)]
    return (
        "--static-steps: norms have the means of their numbers per step, which changes the accuracy of the "
        f"folded network from {both[0]:.2%} to {both[1]:.2%} on {len(labels)} test samples; train --init "
        f"{model.path.name} --static-steps trains on with one set of numbers.",
    )


def notes_on_spikes(network: IntNetwork) -> tuple[str, ...]:
    """Return a note if no neuron of the network spikes."""
    if any(fires(population.neuron) for population in network.layers):
        return ()
    return (
        "the network has no spiking neuron: it is one linear map, summed over the time steps, and the spikes "
        "counted above are those of its silent output. This is allowed; for a spiking network, put LIF "
        "layers (mpbn_deploy.nn.LIF, or those of other libraries in docs/folding.md) between its weights.",
    )


def notes_on_relays(network: IntNetwork, pooling: PoolingChoice) -> tuple[str, ...]:
    """Return a note if relays were asked for and there are none."""
    if pooling != "relay" or relay_names(network):
        return ()
    return (
        "--pooling relay: no relays, because no kernel repeats its weights window by window: the network has "
        "no average pooling, its windows overlap, or its integers were trained with pooling composed.",
    )


def notes_on_target(model: FoldedModel, profile: HardwareProfile) -> tuple[str, ...]:
    """Return a note if the integers were trained for another chip."""
    trained_for = None if model.card is None else model.card.training.get("quantize")
    if model.integers is None or trained_for in (None, profile.name):
        return ()
    return (
        f"the integers were trained for {trained_for}, and export does not change them; if they do not fit "
        f"{profile.name}, train again with train --quantize {profile.target}.",
    )


# ---- signs that the network was read wrongly, or was destroyed ----------------------------------


def doubts(quantized: Quantized, verified: VerifyReport) -> tuple[str, ...]:
    """Return what makes a network look wrong: lost weights, neurons that never fire, accuracy near chance."""
    return (*_losses(quantized), *_silence(quantized), *_chance(quantized, verified))


def _losses(quantized: Quantized) -> Iterator[str]:
    """Yield the populations whose weights are gone; the notes say why, and what to do."""
    for layer in quantized.lost:
        yield (
            f"LOST: {layer_name(layer.name)}: {layer.channels_without_weights} of "
            f"{layer.channels_with_weights} channels have no weight left after rounding, and ignore their "
            "inputs; see the note on it"
        )


def _silence(quantized: Quantized) -> Iterator[str]:
    """Yield the populations that cannot fire."""
    for layer in quantized.errors:
        found = layer.thresholds
        if found is not None and found.channels_never_firing == found.channels:
            yield (
                f"CHECK: {layer_name(layer.name)}: no neuron can fire, for any input; check the thresholds, "
                "--input-range and --normalize, and --dt of a NIR file"
            )


def _chance(quantized: Quantized, verified: VerifyReport) -> Iterator[str]:
    """Yield a doubt about a float network within two standard errors of chance."""
    accuracy, classes = verified.accuracy, quantized.network.output.size
    if accuracy is None or classes == 1:
        return
    chance = 1 / classes
    if accuracy.float_network > chance + 2 * sqrt(chance * (1 - chance) / accuracy.samples):
        return
    yield (
        f"CHECK: the folded network is right on {accuracy.float_network:.2%} of {accuracy.samples} test "
        f"samples, which is near chance for {classes} classes. If it was better in training, check "
        "--normalize, --input-range, --data, and the order of pixels and channels"
    )


# Write what a network is built from outside of Python: C, a core in Verilog, the numbers of Rockpool.


# Targets with a flow of open tools: the device.
FPGAS = {"ice40-up5k": "up5k", "ecp5-25k": "25k", "ecp5-85k": "85k"}


def check_projects(network: IntNetwork, profile: HardwareProfile, options: ExportOptions) -> None:
    """Raise if a network cannot be written as asked, before anything is written."""
    if _emits_c(profile, options):
        c.plan_program(network)
    if shifts_decays(profile):
        xylo.specification(network)


def write_projects(
    staging: Path,
    network: IntNetwork,
    profile: HardwareProfile,
    samples: Samples,
    options: ExportOptions,
    class_names: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write the folders and files that are asked for, or that the target needs; return their names."""
    written: list[str] = []
    if _emits_c(profile, options):
        announce(f"write: {c.FOLDER}/, the network as C")
        inputs = samples.inputs[: c.sample_count(network)]
        c.write_project(staging / c.FOLDER, network, inputs, simulate(network, inputs), options.c_prefix)
        written.append(f"{c.FOLDER}/")
    if profile.name in FPGAS and verilog.obstacle(network) is None:  # which fit reports
        announce(f"write: {verilog.FOLDER}/, the core in Verilog with the network's memories")
        _write_fpga(staging / verilog.FOLDER, network, profile, samples)
        written.append(f"{verilog.FOLDER}/")
    if shifts_decays(profile):
        announce(f"write: {', '.join(xylo.XYLO_FILES)}, for Rockpool")
        xylo.write_xylo(network, staging, profile.name, class_names)
        written.extend(xylo.XYLO_FILES)
    return tuple(written)


def _emits_c(profile: HardwareProfile, options: ExportOptions) -> bool:
    """Whether a C program is part of the export: on request, and for targets that run one."""
    return "c" in options.emit or profile.placement == "program"


def _write_fpga(folder: Path, network: IntNetwork, profile: HardwareProfile, samples: Samples) -> None:
    lanes = profile.value("fabric.lanes")
    inputs = samples.inputs[: verilog.sample_count(network, len(samples.inputs))]
    verilog.write_fpga(
        folder,
        network,
        inputs,
        simulate(network, inputs),
        device=FPGAS[profile.name],
        lanes=lanes,
        spram=uses_single_port(verilog.core_tables(network, lanes=lanes), profile),
    )
