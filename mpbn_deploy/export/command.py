"""Execute `python -m mpbn_deploy.export`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from math import sqrt

from rich.console import Group

from ..base import Outcome, layer_name, signs_of_life
from ..fit import fit_text
from ..formats.options import DATA_OPTIONS, PLACEMENT_OPTIONS, ExportOptions, typed
from ..ir import firing
from ..verify import verify_text
from .stage import ExportResult, export


def execute(options: argparse.Namespace) -> Outcome:
    with signs_of_life():
        result = export(
            options.model, options.target, options.out, ExportOptions.from_arguments(vars(options))
        )
    text = Group(
        verify_text(result.verified),
        fit_text(result.fitted, _next_command(result, options)),
        *(f"note: {note}" for note in result.notes),
        *_losses(result),
        *_doubts(result),
        f"written: {result.folder}/ with {', '.join(result.files)}",
    )
    return Outcome(data=result.to_json(), text=text, exit_code=0 if result.good else 1)


def _losses(result: ExportResult) -> Iterator[str]:
    """Yield the populations whose weights are gone; the notes say why, and what to do."""
    for layer in result.quantized.lost:
        yield (
            f"LOST: {layer_name(layer.name)}: {layer.channels_without_weights} of "
            f"{layer.channels_with_weights} channels have no weight left after rounding, and ignore their "
            "inputs; see the note on it"
        )


def _doubts(result: ExportResult) -> Iterator[str]:
    """Yield signs that the network was read wrongly: neurons that never fire, accuracy near chance."""
    yield from _silence(result)
    yield from _chance(result)


def _silence(result: ExportResult) -> Iterator[str]:
    """Yield the populations that cannot fire; if all can, the last one, if it did not on the samples."""
    causes = "check the thresholds, --input-range and --normalize, and --dt of a NIR file"
    limits = {
        layer.name: layer.thresholds for layer in result.quantized.errors if layer.thresholds is not None
    }
    silent = [name for name, found in limits.items() if found.channels_never_firing == found.channels]
    for name in silent:
        yield f"CHECK: {layer_name(name)}: no neuron can fire, for any input; {causes}"
    spiking, verified = [*firing(result.quantized.network)], result.verified
    if silent or not spiking or verified.counted is None:
        return
    last = spiking[-1].name
    if not verified.counted.per_neuron[last].any():
        yield (
            f"CHECK: {layer_name(last)}, the last layer that spikes, did not fire on any of "
            f"{verified.samples} {verified.sample_kind}; {causes}"
        )


def _chance(result: ExportResult) -> Iterator[str]:
    """Yield a doubt about a float network within two standard errors of chance."""
    accuracy, classes = result.verified.accuracy, result.quantized.network.output.size
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


def _next_command(result: ExportResult, options: argparse.Namespace) -> str:
    """Return what to type next: the search for a change that makes the network fit, or a run."""
    data = typed(options, *DATA_OPTIONS)
    if result.fitted.fits is not False:
        return shlex.join(["python", "-m", "mpbn_deploy.run", str(result.folder), *data])
    fit = ["python", "-m", "mpbn_deploy.fit", str(result.folder), "--target", options.target]
    return shlex.join([*fit, *typed(options, *PLACEMENT_OPTIONS), *data, "--advise"])
