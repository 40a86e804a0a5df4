"""What is exported: a checkpoint or a NIR file, read and folded."""

from __future__ import annotations

from pathlib import Path

from ..base import OptionError, announce, record
from ..checkpoint import load_model
from ..data import DATASETS
from ..fold import fold
from ..formats.folder import NETX_SUFFIX, NIR_SUFFIX
from ..formats.nir import in_dialect, read_folded
from ..formats.options import ExportOptions
from ..frontend import trace
from ..hardware import HardwareProfile
from ..ir import FoldedNetwork, IntNetwork, real_network
from ..nn import LIF, ModelCard, SpikingNetwork
from ..quantize import QuantizedBody


@record
class ExportedModel:
    """A model, folded. A NIR file has no module, and only `train --quantize` leaves integers."""

    path: Path
    folded: FoldedNetwork
    module: SpikingNetwork | None = None
    integers: IntNetwork | None = None

    @property
    def card(self) -> ModelCard | None:
        return None if self.module is None else self.module.card

    @property
    def trained_on(self) -> str | None:
        """The data set that the model's card names, if it is one of ours."""
        name = None if self.card is None else self.card.training.get("data")
        return name if isinstance(name, str) and name in DATASETS else None

    @property
    def trained_thresholds(self) -> dict[str, float]:
        """The threshold of each LIF before its normalization is folded into it, by its path in the module."""
        if self.module is None:
            return {}
        return {name: lif.threshold for name, lif in self.module.body.named_modules() if isinstance(lif, LIF)}


def load(path: Path, options: ExportOptions) -> ExportedModel:
    """Read a model and fold it; its thresholds are those that network.nir will hold."""
    if path.suffix == NETX_SUFFIX:
        raise OptionError(
            f"{path}: a netx file holds integers, so nothing is left to export; fit, run and verify take it "
            f"as it is: python -m mpbn_deploy.fit {path} --target loihi2"
        )
    if path.suffix == NIR_SUFFIX:
        return _load_nir(path, options)
    for option, value in (("--input-range", options.input_range), ("--dt", options.dt)):
        if value is not None:
            raise OptionError(f"{path}: {option} is for NIR files; a checkpoint says it itself.")
    module = load_model(path, arch=options.arch, timesteps=options.timesteps)
    if isinstance(module.body, QuantizedBody):
        return _load_integers(path, module, module.body, options)
    announce(f"fold: {path} without its normalizations")
    folded = in_dialect(fold(trace(module)), options.nir_dialect)
    return ExportedModel(path=path, folded=folded, module=module)


def _load_nir(path: Path, options: ExportOptions) -> ExportedModel:
    if options.arch is not None:
        raise OptionError(f"{path}: --arch builds the network of a checkpoint; a NIR file holds its own.")
    announce(f"read: {path}")
    folded = read_folded(path, timesteps=options.timesteps, input_range=options.input_range, dt=options.dt)
    return ExportedModel(path=path, folded=in_dialect(folded, options.nir_dialect))


# ---- integers that training chose ---------------------------------------------------------------


def _load_integers(
    path: Path, module: SpikingNetwork, body: QuantizedBody, options: ExportOptions
) -> ExportedModel:
    """Read a network of `train --quantize`, whose integers are exported as they are."""
    _reject_other_timesteps(path, options)
    _reject_quantization(path, options)
    integers = body.to_integers(module.timesteps)
    folded = in_dialect(real_network(integers), options.nir_dialect)
    return ExportedModel(path=path, folded=folded, module=module, integers=integers)


def _reject_other_timesteps(path: Path, options: ExportOptions) -> None:
    if options.timesteps is None:
        return
    trained = load_model(path, arch=options.arch).timesteps
    if options.timesteps != trained:
        raise OptionError(
            f"{path}: --timesteps {options.timesteps}; its integers were trained, and proved not to "
            f"overflow, for {trained}."
        )


def _reject_quantization(path: Path, options: ExportOptions) -> None:
    """Raise on options that would choose other integers."""
    usual = ExportOptions()
    for name in ("weight_bits", "calibration", "thresholds", "overflow"):
        given = getattr(options, name)
        if given != getattr(usual, name):
            raise OptionError(
                f"{path}: --{name.replace('_', '-')} {given}: its integers were trained, and are exported as "
                "they are. Export the network that the training started from, or train again with "
                "train --quantize."
            )


def notes_on_target(exported: ExportedModel, profile: HardwareProfile) -> tuple[str, ...]:
    """Say what to do where integers were trained for another chip."""
    trained_for = None if exported.card is None else exported.card.training.get("quantize")
    if exported.integers is None or trained_for in (None, profile.name):
        return ()
    return (
        f"its integers were trained for {trained_for}; what does not fit {profile.name} needs "
        f"train --quantize {profile.name}; no option of export changes it.",
    )
