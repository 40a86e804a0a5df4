"""Read the model to export, a checkpoint or a NIR file, and fold it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path

import torch

from ..base import MissingDataError, OptionError, announce, option_name, record
from ..checkpoint import InputFacts, load_model
from ..data import (
    DATASETS,
    IN_MEMORY,
    RANDOM,
    LoadedPart,
    Part,
    Samples,
    announce_random,
    choose_samples,
    conversion_options,
    dataset_name,
    load_parts,
)
from ..fold import coarsen_inputs, fold, normalize_inputs, offset_inputs
from ..formats.folder import NETX_SUFFIX, NIR_SUFFIX, sha256
from ..formats.nir import Assumption, in_dialect, open_nir
from ..formats.options import AUTO, ExportOptions
from ..frontend import trace
from ..hardware import HardwareProfile
from ..ir import XYLO_INPUT_SPIKES, FoldedNetwork, Input, InputFormat, IntNetwork, counting, real_network
from ..nn import LIF, ModelCard, SpikingNetwork, static_steps
from ..quantize import (
    CalibrationData,
    NumberFormats,
    QuantizedBody,
    choose_offset,
    load_calibration,
    read_calibration,
    shifts_decays,
)
from .given import Parts as Parts, class_name


@record
class FoldedModel:
    """A folded model, and what it was made from."""

    path: Path  # of a module in memory: the name of its class
    folded: FoldedNetwork
    module: SpikingNetwork | None = None  # None for a NIR file
    integers: IntNetwork | None = None  # chosen by `train --quantize`
    assumptions: tuple[Assumption, ...] = ()  # under which a NIR file was read
    notes: tuple[str, ...] = ()
    input_offset: int = 0  # that was subtracted from the inputs
    timed: FoldedNetwork | None = None  # with its numbers per time step, which --static-steps replaced

    @property
    def digest(self) -> str:
        """The SHA-256 of the file, or of the tensors of a module that was in memory."""
        if self.path.is_file() or self.module is None:
            return sha256(self.path)
        found = hashlib.sha256()
        for name, tensor in self.module.state_dict().items():
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
        return found.hexdigest()

    @property
    def card(self) -> ModelCard | None:
        return None if self.module is None else self.module.card

    @property
    def trained_on(self) -> str | None:
        """The data set named by the model's card."""
        name = None if self.card is None else self.card.training.get("data")
        return name if isinstance(name, str) else None

    @property
    def trained_thresholds(self) -> dict[str, float]:
        """The threshold of each LIF before folding, by the layer's path in the module."""
        return {name: lif.threshold for name, lif in self._lifs().items()}

    @property
    def normalized(self) -> tuple[str, ...]:
        """The paths of the LIFs with membrane-potential batch norm."""
        return tuple(name for name, lif in self._lifs().items() if lif.mpbn is not None)

    def _lifs(self) -> dict[str, LIF]:
        if self.module is None:
            return {}
        return {name: lif for name, lif in self.module.body.named_modules() if isinstance(lif, LIF)}


def load_and_fold(
    given: Path | SpikingNetwork, options: ExportOptions, profile: HardwareProfile
) -> FoldedModel:
    """Read a model, fold it, and change it as --nir-dialect, --input-offset and --input-bits ask.

    The number formats of the profile tell which --input-offset leaves the most bits to weights.
    """
    if isinstance(given, SpikingNetwork):
        model = _fold_module(Path(class_name(given)), given, options)
    elif given.suffix == NETX_SUFFIX:
        raise OptionError(
            f"{given}: a netx file holds integers already and cannot be exported again; fit, run and verify "
            f"accept it directly: python -m mpbn_deploy.fit {given} --target loihi2"
        )
    else:
        model = (_load_nir if given.suffix == NIR_SUFFIX else _load_checkpoint)(given, options)
    if model.integers is not None:
        return model
    offset = options.input_offset
    if offset == AUTO and (_counts(model.folded) or shifts_decays(profile)):
        offset = 0  # inputs are counts of spikes
    elif offset == AUTO:
        offset = choose_offset(model.folded, NumberFormats.of(profile, options.weight_bits))
    return _with_inputs(model, offset, options.input_bits, automatic=options.input_offset == AUTO)


def _load_checkpoint(path: Path, options: ExportOptions) -> FoldedModel:
    for name in ("dt", "nir_reset", "nir_current"):
        if getattr(options, name) != getattr(ExportOptions(), name):
            raise OptionError(f"{path}: {option_name(name)} applies to NIR files only; drop it.")
    inputs = InputFacts(shape=options.input_shape, range=options.input_range, normalization=options.normalize)
    module = load_model(path, arch=options.arch, timesteps=options.timesteps, inputs=inputs)
    return _fold_module(path, module, options)


def _fold_module(path: Path, module: SpikingNetwork, options: ExportOptions) -> FoldedModel:
    if isinstance(module.body, QuantizedBody):
        return _load_integers(path, module, module.body, options)
    announce(f"fold: normalization layers of {path}")
    # Rescaled before quantization, so that the scales of the integers are those of network.nir.
    timed = fold(trace(module)) if options.static_steps else None
    module = static_steps(module) if options.static_steps else module
    folded = in_dialect(fold(trace(module)), options.nir_dialect)
    return FoldedModel(path=path, folded=folded, module=module, timed=timed)


def _load_nir(path: Path, options: ExportOptions) -> FoldedModel:
    if options.static_steps:
        raise OptionError(
            f"{path}: --static-steps averages norms of checkpoints, which a NIR file does not have. Drop it."
        )
    if options.arch is not None:
        raise OptionError(
            f"{path}: --arch applies to checkpoints only; a NIR file describes its own network. Drop --arch."
        )
    if options.normalize is not None and len(options.normalize) != 2:
        raise OptionError(
            f"{path}: --normalize with {len(options.normalize)} numbers; for a NIR file, one mean and one "
            "deviation are supported."
        )
    mean, deviation = options.normalize or (0.0, 1.0)
    if not (isfinite(mean) and 0 < deviation < inf):
        raise OptionError(
            f"{path}: --normalize {mean:g} {deviation:g}; a finite mean and a deviation above zero are "
            "needed."
        )
    announce(f"read: {path}")
    read = open_nir(
        path,
        timesteps=options.timesteps,
        input_range=options.input_range,
        dt=options.dt,
        reset=options.nir_reset,
        current=options.nir_current,
        input_shape=options.input_shape,
    )
    return FoldedModel(
        path=path,
        folded=in_dialect(normalize_inputs(read.folded, mean, deviation), options.nir_dialect),
        assumptions=read.assumptions,
        notes=read.notes,
    )


def _counts(folded: FoldedNetwork) -> bool:
    """Whether neurons are those of Xylo, which count spikes."""
    return any(counting(population.neuron) is not None for population in folded.layers)


def _with_inputs(model: FoldedModel, offset: int, bits: int | None, *, automatic: bool) -> FoldedModel:
    """Apply --input-offset and --input-bits to the model; its module then takes the same inputs."""
    given, folded = model.folded.input_range, model.folded
    if _counts(folded) and bits is None and given.maximum > XYLO_INPUT_SPIKES:
        bits = XYLO_INPUT_SPIKES.bit_length()
    folded = _converted(folded, offset, bits)
    if folded is model.folded:
        return model
    taken = folded.input_range
    if model.module is not None:
        trained = model.module.input_format
        model.module.input_format = replace(
            trained,
            minimum=taken.minimum,
            maximum=taken.maximum,
            mean=(trained.mean - offset) / taken.divisor,
            deviation=trained.deviation / taken.divisor,
        )
    note = _conversion_note(
        given, taken, " auto, which leaves more bits to weights" * (automatic and offset != 0)
    )
    timed = None if model.timed is None else _converted(model.timed, offset, bits)
    return replace(model, folded=folded, timed=timed, notes=(*model.notes, note), input_offset=offset)


def _converted(folded: FoldedNetwork, offset: int, bits: int | None) -> FoldedNetwork:
    """Return the network that takes inputs less an offset, and of so many bits."""
    if offset:
        folded = offset_inputs(folded, offset)
    if bits is not None and folded.input_range.coarser(bits).divisor > 1:
        folded = coarsen_inputs(folded, bits)
    return folded


def _conversion_note(given: Input | InputFormat, taken: Input, why: str = "") -> str:
    return (
        f"the network takes {taken.minimum}..{taken.maximum}: inputs {given.minimum}..{given.maximum}"
        f"{taken.conversion} ({conversion_options(taken)}{why}); our commands convert data themselves"
        + ("; all figures, those of PyTorch too, are for rounded inputs." if taken.divisor > 1 else ".")
    )


# ---- integers chosen by training ----------------------------------------------------------------


def _load_integers(
    path: Path, module: SpikingNetwork, body: QuantizedBody, options: ExportOptions
) -> FoldedModel:
    """Read a network trained by `train --quantize`, whose integers are exported unchanged."""
    _reject_quantization(path, options)
    integers = body.to_integers(module.timesteps)
    folded = in_dialect(real_network(integers), options.nir_dialect)
    if folded.shapes != integers.shapes:
        raise OptionError(
            f"{path}: --nir-dialect portable adds neurons for thresholds at or below zero, but its integers "
            "were chosen by training and are exported unchanged. Use --nir-dialect faithful."
        )
    given, taken = module.input_format, integers.input_range
    notes = () if taken.takes_raw_values else (_conversion_note(given, taken),)
    return FoldedModel(path=path, folded=folded, module=module, integers=integers, notes=notes)


UNCHANGED = {"calibration": None, "input_offset": 0}  # what "auto" is for trained integers


def _reject_quantization(path: Path, options: ExportOptions) -> None:
    """Raise if an option asks for other integers than the trained ones."""
    usual = ExportOptions()
    numbers = ("weight_bits", "most_bytes", "most_cores", "overflow", "input_offset", "input_bits")
    for name in (*numbers, "calibration", "thresholds", "static_steps"):
        given = getattr(options, name)
        if given not in (getattr(usual, name), UNCHANGED.get(name)):
            raise OptionError(
                f"{path}: {option_name(name)} {given}, but its integers were chosen by training and "
                "are exported unchanged. Export the network that the training started from, or train again "
                "with train --quantize."
            )


# Choose the samples to verify with, and those to calibrate on, which are never the same.


def read_named(options: ExportOptions) -> Parts:
    """Read the data sets that options name, before anything long: a file may be missing or damaged."""
    found = Parts()
    if options.data not in (None, RANDOM) and not str(options.data).startswith(IN_MEMORY):
        found = Parts(**load_parts(str(options.data), options.data_dir))
    if options.calibrated and (options.calibration != options.data or found.train is None):
        train = read_calibration(str(options.calibration), options.data_dir)
        found = replace(found, train=train)
    return found


def choose_inputs(
    model: FoldedModel, options: ExportOptions, named: Parts
) -> tuple[Samples, CalibrationData | None, ExportOptions]:
    """Return the samples to verify with, those to calibrate on, and the options with what "auto" became."""
    data, parts = _find_data(model, options, named)
    samples = choose_samples(model.folded, options.samples, data, options.data_dir, parts.test)
    automatic = options.calibration == AUTO
    calibration = data if automatic else options.calibration
    train = _beside_tested(parts, options.samples) if calibration == data else parts.train
    if train is None or model.integers is not None or calibration is None:
        if calibration is not None and not samples.random and model.integers is None:
            announce(f"note: no calibration: {samples.name} has no samples beside those that are tested")
        return samples, None, replace(options, calibration=None)
    chosen = load_calibration(model.folded, calibration, options.data_dir, train)
    if automatic:
        note = (
            f"integers chosen on {len(chosen.inputs)} training samples of {dataset_name(calibration)}, none "
            "of which is tested; --calibration none rounds to nearest."
        )
        chosen = replace(chosen, notes=(note, *chosen.notes))
    return samples, chosen, replace(options, calibration=calibration)


def _find_data(model: FoldedModel, options: ExportOptions, named: Parts) -> tuple[str | None, Parts]:
    """Return the data set to verify with, the one given or else the model's, and its parts.

    Data of the user's own are known by the name of their file only, not by its path.
    """
    trained_on = model.trained_on
    if options.data is not None or trained_on is None:
        return options.data, named
    if trained_on not in DATASETS:
        announce_random(
            f"the model was trained on {trained_on}, data of your own",
            f"to verify with it, add --data {trained_on}",
        )
        return RANDOM, named
    try:
        found = Parts(**load_parts(trained_on, options.data_dir))
    except MissingDataError:
        if options.data_dir is not None:
            raise
        announce_random(
            f"the model was trained on {trained_on}, which is not on this machine",
            "to verify with its test samples, add --data-dir FOLDER",
        )
        return RANDOM, named
    return trained_on, Parts(test=found.test, train=named.train or found.train)


def _beside_tested(parts: Parts, tested: int | None) -> LoadedPart | None:
    """Return the training samples; of samples that are in one part without labels, those not tested."""
    if parts.train is None or parts.test is None or parts.train[0] is not parts.test[0]:
        return parts.train
    whole, axes = parts.train
    others = whole.inputs[:0] if tested is None else whole.inputs[tested:]
    return (Part(inputs=others, labels=None), axes) if len(others) else None
