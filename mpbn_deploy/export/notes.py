"""Notes for the user on what an export found, gathered from all its stages."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np

from ..base import layer_name
from ..data import Samples
from ..formats.options import PoolingChoice
from ..hardware import HardwareProfile
from ..ir import IntNetwork, fires, relay_names
from ..quantize import CalibrationData, Quantized
from ..verify import VerifyReport, predict
from .model import FoldedModel


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
