"""COMMAND: the whole pipeline, model.pt (or a NIR file that others wrote) -> export folder."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group

from . import __version__, fit, verify
from .activity import measure
from .checkpoint import load_model
from .cli import Command, Outcome, main, whole_number
from .data import DATASETS, load_dataset
from .emulate import emulate
from .errors import FormatError, OptionError
from .files import json_text
from .fit_text import report_text
from .float_ir import FoldedNetwork
from .fold import fold
from .folder import (
    FILES,
    FIT_FILE,
    MANIFEST_FILE,
    NETX_FILE,
    NETX_SUFFIX,
    NIR_FILE,
    NIR_SUFFIX,
    REPORT_FILE,
    VERIFY_FILE,
    Samples,
    choose_samples,
    count_or_all,
    new_folder,
    refuse_to_overwrite,
    sha256,
    write_manifest,
)
from .frontend import trace
from .hardware import HardwareProfile, load_profile
from .int_ir import IntNetwork
from .lava_sim.compat import installed_version
from .netx_io import read_netx, write_netx
from .nir_io import DIALECTS, FAITHFUL, in_dialect, read_folded, write_nir
from .nn import LIF, QuantizedBody, SpikingNetwork
from .progress import announce
from .quantize import CALIBRATION_SAMPLES, OVERFLOW_CHOICES, describe, quantize
from .records import Array, record, same_records
from .report import Story, write_html
from .rounding import real_network
from .scales import Formats
from .thresholds import CHOICES

VERSIONED_PACKAGES = ("torch", "numpy", "nir", "h5py", "lava-nc", "lava-dl")


@record
class ExportResult:
    """Where the export lies, and what was found on the way."""

    folder: Path
    verified: verify.VerifyReport
    fitted: fit.FitReport
    notes: tuple[str, ...] = ()  # what quantization could not do exactly, and what else to know of it

    @property
    def good(self) -> bool:
        return self.verified.passed and self.fitted.fits is True

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "files": [*FILES, MANIFEST_FILE],
            "fits": self.fitted.fits,
            "bit_exact": self.verified.bit_exact,
            "notes": list(self.notes),
        }


def export(
    model_path: str | Path,
    target: str,
    out: str | Path | None = None,
    *,
    weight_bits: int | None = None,
    thresholds: str = "own",
    overflow: str = "proved",
    calibration: str | None = None,
    samples: int | None = 16,
    data: str | None = None,
    data_dir: Path | None = None,
    arch: str | None = None,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    dt: float | None = None,
    nir_dialect: str = FAITHFUL,
    chips: int = 1,
) -> ExportResult:
    """Fold, quantize, write, verify and fit a trained network; the folder appears whole or not at all.

    A NIR file is folded already; what it does not say (time steps, input range, dt) must be given.
    """
    model_path = Path(model_path)
    profile = load_profile(target)
    folder = Path(out) if out is not None else default_folder(model_path, profile)
    refuse_to_overwrite(folder)
    Formats.of(profile, weight_bits)  # refuses what the target cannot hold, before anything takes long
    if overflow == "measured" and calibration is None:
        raise OptionError("--overflow measured: on what? Name a data set with --calibration.")
    model, folded = _load(model_path, arch, timesteps, input_range, dt)
    folded = in_dialect(folded, nir_dialect)  # so that the scales of the integers are those of network.nir
    announce(f"quantize: to the formats of {profile.name}")
    remarks: list[str] = []
    inputs: Array | None = None
    network = trained_integers(model_path, model, weight_bits, thresholds, calibration, overflow)
    if network is not None:
        remarks += foreign_target(model, profile)
    if network is None:
        inputs, remarks = calibration_inputs(folded, calibration, data_dir)
        network = quantize(
            folded, profile, inputs, weight_bits=weight_bits, thresholds=thresholds, overflow=overflow
        )
    described = describe(
        folded, network, profile, weight_bits, thresholds, inputs if overflow == "measured" else None
    )
    remarks += [note for population in described for note in population["notes"]]
    chosen = choose_samples(network, samples, data or trained_on(model), data_dir)
    options = {"weight_bits": weight_bits, "calibration": calibration, "timesteps": network.timesteps}
    options |= {"nir_dialect": nir_dialect, "thresholds": thresholds, "overflow": overflow}
    with new_folder(folder) as staging:
        _write_networks(staging, folded, network, nir_dialect)
        verified = verify.verify(
            network,
            chosen.inputs,
            folded=read_folded(staging / NIR_FILE),  # so that `verify FOLDER` finds the same
            netx=staging / NETX_FILE,
            labels=chosen.labels,
            test=chosen.test,
            data_name=chosen.name,
            model=model,
        )
        if model is not None and not isinstance(model.body, QuantizedBody):
            verified = replace(verified, fold=verify.check_fold(model, folded, chosen.inputs))
        announce(f"fit: on {profile.title}")
        fitted = fit.fit(network, profile, measure(network, chosen.inputs), chips=chips)
        result = ExportResult(folder=folder, verified=verified, fitted=fitted, notes=tuple(remarks))
        facts = _facts(model_path, model, profile, chosen, options)
        _write_reports(staging, result, network, profile, described, facts, chosen, folded, model)
        write_manifest(staging, {**facts, "quantization": described, "scales": _scales(network)})
    return result


def _load(
    path: Path,
    arch: str | None,
    timesteps: int | None,
    input_range: tuple[int, int] | None,
    dt: float | None,
) -> tuple[SpikingNetwork | None, FoldedNetwork]:
    """The folded network of a checkpoint, with its model, or of a NIR file."""
    if path.suffix == NETX_SUFFIX:
        raise OptionError(
            f"{path}: a netx file holds integers, so nothing is left to export; fit, run and verify take it "
            f"as it is: python -m mpbn_deploy.fit {path} --target loihi2"
        )
    if path.suffix == NIR_SUFFIX:
        if arch is not None:
            raise OptionError(f"{path}: --arch builds the network of a checkpoint; a NIR file holds its own.")
        announce(f"read: {path}")
        return None, read_folded(path, timesteps=timesteps, input_range=input_range, dt=dt)
    for option, value in (("--input-range", input_range), ("--dt", dt)):
        if value is not None:
            raise OptionError(f"{path}: {option} is for NIR files; a checkpoint says it itself.")
    model = load_model(path, arch=arch, timesteps=timesteps)
    if isinstance(model.body, QuantizedBody):
        if timesteps is not None and timesteps != (trained := load_model(path, arch=arch).timesteps):
            raise OptionError(
                f"{path}: --timesteps {timesteps}; its integers were trained, and proved not to overflow, "
                f"for {trained}."
            )
        return model, real_network(model.body.to_integers(model.timesteps))
    announce(f"fold: {path} without its normalizations")
    return model, fold(trace(model))


def trained_integers(
    path: Path,
    model: SpikingNetwork | None,
    weight_bits: int | None,
    thresholds: str,
    calibration: str | None,
    overflow: str,
) -> IntNetwork | None:
    """The integers of a network that was trained quantization-aware: they are what it is."""
    if model is None or not isinstance(model.body, QuantizedBody):
        return None
    for option, given in (
        ("--weight-bits", weight_bits),
        ("--calibration", calibration),
        ("--thresholds", None if thresholds == "own" else thresholds),
        ("--overflow", None if overflow == "proved" else overflow),
    ):
        if given is not None:
            raise OptionError(
                f"{path}: {option} {given}: its integers were trained, and are exported as they are. Export "
                "the network that the training started from, or train again with train --quantize."
            )
    return model.body.to_integers(model.timesteps)


def foreign_target(model: SpikingNetwork | None, profile: HardwareProfile) -> list[str]:
    """What to do where integers were trained for another chip."""
    card = None if model is None else model.card
    trained_for = None if card is None else card.training.get("quantize")
    if trained_for in (None, profile.name):
        return []
    return [
        f"its integers were trained for {trained_for}; what does not fit {profile.name} is mended by "
        f"train --quantize {profile.name}, not by options of export."
    ]


def default_folder(model_path: Path, profile: HardwareProfile) -> Path:
    """model.pt for loihi2 -> model.loihi2 beside it"""
    if not profile.name.replace("-", "").replace("_", "").isalnum():
        raise OptionError(f"profile {profile.name!r}: no name for a folder; give one with --out.")
    return model_path.with_name(f"{model_path.stem}.{profile.name}")


def calibration_inputs(
    folded: FoldedNetwork, name: str | None, data_dir: Path | None
) -> tuple[Array | None, list[str]]:
    """The first training samples of a data set, and what is odd about them."""
    if name is None:
        return None, []
    dataset = load_dataset(name, data_dir)
    if dataset.input_format.shape != folded.input.shape:
        raise OptionError(
            f"calibration: samples of {name} have shape {dataset.input_format.shape}; "
            f"the network takes {folded.input.shape}."
        )
    inputs, labels = (values[:CALIBRATION_SAMPLES] for values in (dataset.train.inputs, dataset.train.labels))
    if len(np.unique(labels)) > 1:
        return inputs, []
    note = f"calibration: all {len(inputs)} samples of {name} are of class {labels[0]}; shuffle the data set."
    announce(f"note: {note}")
    return inputs, [note]


def trained_on(model: SpikingNetwork | None) -> str | None:
    """The data set that a model's record names, if we know it."""
    card = None if model is None else model.card
    name = None if card is None else card.training.get("data")
    return name if isinstance(name, str) and name in DATASETS else None


def _write_networks(staging: Path, folded: FoldedNetwork, network: IntNetwork, nir_dialect: str) -> None:
    write_nir(folded, staging / NIR_FILE, dialect=nir_dialect)
    write_netx(network, staging / NETX_FILE)
    if not same_records(network, read_netx(staging / NETX_FILE)):
        raise FormatError(f"{NETX_FILE}: reads back as another network than was written; please report this.")


def _write_reports(
    staging: Path,
    result: ExportResult,
    network: IntNetwork,
    profile: HardwareProfile,
    described: list[dict[str, Any]],
    facts: Mapping[str, Any],
    chosen: Samples,
    folded: FoldedNetwork,
    model: SpikingNetwork | None,
) -> None:
    (staging / FIT_FILE).write_text(json_text(result.fitted.to_json()), encoding="utf-8")
    (staging / VERIFY_FILE).write_text(json_text(result.verified.to_json()), encoding="utf-8")
    story = Story(
        title=f"{facts['model']['name']} on {profile.title}",
        network=network,
        profile=profile,
        verify=result.verified,
        fit=result.fitted,
        quantization=described,
        trace=emulate(network, chosen.inputs),
        facts=_flat(facts),
        folded=folded,
        trained_thresholds=trained_thresholds(model),
        files={name: (staging / name).stat().st_size for name in (NIR_FILE, NETX_FILE)},
    )
    write_html(staging / REPORT_FILE, story)


def trained_thresholds(model: SpikingNetwork | None) -> dict[str, float]:
    """Of each LIF, by its path in the module, before its normalization is folded into it."""
    if model is None:
        return {}
    return {name: lif.threshold for name, lif in model.body.named_modules() if isinstance(lif, LIF)}


def _facts(
    path: Path,
    model: SpikingNetwork | None,
    profile: HardwareProfile,
    chosen: Samples,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Where this export comes from. No dates and no folders: same inputs, same bytes."""
    card = None if model is None else model.card
    return {
        "model": {
            "name": path.name,
            "sha256": sha256(path),
            "architecture": None if card is None else card.architecture,
        },
        "target": {"name": profile.name},
        "data": chosen.name,
        "class_names": [] if card is None else list(card.class_names),
        "options": options,
        "formats": {key: limit.value for key, limit in profile.limits.items() if key.startswith("formats.")},
        "versions": _versions(),
    }


def _versions() -> dict[str, str | None]:
    packages = {name: installed_version(name) for name in VERSIONED_PACKAGES}
    return {"mpbn_deploy": __version__, "python": platform.python_version(), **packages}


def _scales(network: IntNetwork) -> dict[str, list[float]]:
    return {name: scales.tolist() for name, scales in network.scales.items()}


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested facts as lines: 'model sha256' -> '...'"""
    lines: dict[str, str] = {}
    for key, value in facts.items():
        if isinstance(value, dict):
            lines |= _flat(value, f"{prefix}{key} ")
        elif value is not None:
            lines[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return lines


# ---- command ----------------------------------------------------------------------------------


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a checkpoint that `train` wrote, or a .nir file")
    parser.add_argument(
        "--target", required=True, help="profile name or .toml file; `fit --targets` lists them"
    )
    parser.add_argument("--out", type=Path, help="folder to write (default: MODEL.TARGET beside the model)")
    parser.add_argument("--weight-bits", type=whole_number(1), help="default: as many as the target holds")
    parser.add_argument(
        "--thresholds",
        choices=CHOICES,
        default="own",
        help="one per channel or neuron, as far as the target holds them, or one shared by each population "
        "(default own)",
    )
    parser.add_argument(
        "--overflow",
        choices=OVERFLOW_CHOICES,
        default="proved",
        help="proved: no state can overflow, whatever the input; measured: larger scales, a margin above "
        "what the calibration samples reach (default %(default)s)",
    )
    parser.add_argument(
        "--calibration", help="round by the fewest spike flips on training samples of this data set"
    )
    parser.add_argument(
        "--chips", type=whole_number(1), default=1, help="that the network may take (default 1)"
    )
    parser.add_argument(
        "--samples", type=count_or_all, default=16, help="to verify with; or `all` (default 16)"
    )
    parser.add_argument("--data", help="data set to verify with; default: the one the model was trained on")
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument(
        "--timesteps", type=whole_number(1), help="default: as trained, or as a .nir file says"
    )
    parser.add_argument(
        "--input-range",
        type=whole_number(-(2**23), 2**23),
        nargs=2,
        metavar=("LOWEST", "HIGHEST"),
        help="of a .nir file that does not say it (default: spikes, 0 1)",
    )
    parser.add_argument(
        "--dt", type=float, help="seconds per time step of a .nir file that does not say it (default 1e-4)"
    )
    parser.add_argument(
        "--nir-dialect",
        choices=DIALECTS,
        default=FAITHFUL,
        help="of network.nir: thresholds as they are, or one for all, which snnTorch and SpikingJelly need "
        f"and not every network allows (default {FAITHFUL})",
    )
    parser.add_argument(
        "--arch",
        help="build the network with package.module:factory (imported, so its code runs); or read a "
        "checkpoint of the paper's code: paper:res20m, paper:res19, paper:res20, paper:VGG16; --timesteps",
    )


def _execute(options: argparse.Namespace) -> Outcome:
    result = export(
        options.model,
        options.target,
        options.out,
        weight_bits=options.weight_bits,
        thresholds=options.thresholds,
        overflow=options.overflow,
        calibration=options.calibration,
        samples=options.samples,
        data=options.data,
        data_dir=options.data_dir,
        arch=options.arch,
        timesteps=options.timesteps,
        input_range=options.input_range and tuple(options.input_range),
        dt=options.dt,
        nir_dialect=options.nir_dialect,
        chips=options.chips,
    )
    text = Group(
        verify.report_text(result.verified),
        report_text(result.fitted),
        *(f"note: {note}" for note in result.notes),
        f"written: {result.folder}/ with {', '.join([*FILES, MANIFEST_FILE])}",
    )
    return Outcome(data=result.to_json(), text=text, exit_code=0 if result.good else 1)


COMMAND = Command(
    name="export",
    summary="Fold, quantize, verify and fit a trained network; write the export folder.",
    details=(
        "The folder holds the folded network (network.nir), the integer network (network.net), fit.json,\n"
        "verify.json, report.html and manifest.json. The same model and options give the same bytes.\n"
        "Exit code 0: fits and is bit-exact. 1: does not; everything is still written.\n\n"
        "example: python -m mpbn_deploy.export model.pt --target loihi2\n"
        "         python -m mpbn_deploy.export theirs.nir --target loihi2 --timesteps 16"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
