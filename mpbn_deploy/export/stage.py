"""COMMAND: the whole pipeline, model.pt (or a NIR file that others wrote) -> export folder."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from ..base import Array, FormatError, OptionError, announce, json_text, record, same_records
from ..checkpoint import load_model
from ..data import DATASETS, Samples, choose_samples
from ..execute.lava import installed_version
from ..fit import measure, stage as fit
from ..fold import fold
from ..formats.folder import (
    FILES,
    FIT_FILE,
    MANIFEST_FILE,
    NETX_FILE,
    NETX_SUFFIX,
    NIR_FILE,
    NIR_SUFFIX,
    REPORT_FILE,
    VERIFY_FILE,
    new_folder,
    refuse_to_overwrite,
    sha256,
    write_manifest,
)
from ..formats.netx import read_netx, write_netx
from ..formats.nir import FAITHFUL, in_dialect, read_folded, write_nir
from ..frontend import trace
from ..hardware import HardwareProfile, load_profile
from ..ir import FoldedNetwork, IntNetwork, real_network
from ..nn import LIF, SpikingNetwork
from ..quantize import Formats, QuantizedBody, calibration_inputs, describe, quantize
from ..report import ReportContent, write_html
from ..verify import stage as verify

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
        announce(f"fit: on {profile.title}")
        fitted = fit.fit(network, profile, measure(network, chosen.inputs, trace=verified.trace), chips=chips)
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
    trace = result.verified.trace
    assert trace is not None  # no cluster compared
    content = ReportContent(
        title=f"{facts['model']['name']} on {profile.title}",
        network=network,
        profile=profile,
        verify=result.verified,
        fit=result.fitted,
        quantization=described,
        trace=trace,
        facts=_flat(facts),
        folded=folded,
        trained_thresholds=trained_thresholds(model),
        files={name: (staging / name).stat().st_size for name in (NIR_FILE, NETX_FILE)},
    )
    write_html(staging / REPORT_FILE, content)


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
