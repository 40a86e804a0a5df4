"""Execute `python -m mpbn_deploy.train`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..base import OptionError, Outcome, announce, check_writable, keep_freed_memory, option_name
from ..checkpoint import load_model
from ..data import DataSet, as_spike_counts, load_dataset
from ..fold import fold, offset_inputs
from ..formats.options import AUTO, Auto
from ..frontend import trace
from ..hardware import HardwareProfile, load_profile
from ..ir import XYLO_INPUT_SPIKES, InputFormat
from ..nn import NEURON_DEFAULTS, XYLO_DEFAULTS, ModelCard, SpikingNetwork, XyloLIF, static_steps
from ..nn.zoo import ARCHITECTURES
from ..quantize import (
    QUANTIZED,
    NumberFormats,
    QuantizedBody,
    ThresholdLimits,
    calibration_data,
    choose_offset,
    quantize,
)
from .files import files_beside, resume_file, settings_to_resume
from .loop import KEPT_NOTES
from .optimizer import fastest_precision, is_first_process, join_process_group, select_device
from .settings import (
    DEFAULT_TIMESTEPS,
    FINE_TUNING_RATE,
    FULL_RATE_BITS,
    NO_MUON_FOR_INTEGERS,
    QUANTIZED_RATE,
    RECIPES,
    XYLO_RECIPE,
    Building,
    Training,
)
from .stage import train, usual_epsilon

BUILT_IN = ("mpbn", "norm", *NEURON_DEFAULTS, "width")  # options of the network that --init already has
OF_NEW_NETWORKS = ("arch", "timesteps", "single_step", "optimizer", "learning_rate", *BUILT_IN)
NOT_OF_INTEGERS = ("weight_decay", "norm_rate", "average")  # options of real weights, and of norms
OF_STILLS = ("timesteps", "single_step")  # a recording has a time step per frame


def execute(options: argparse.Namespace) -> Outcome:
    if not is_first_process():
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  only the first process prints
    check_writable(options.out)
    for file in files_beside(options.out):
        check_writable(file)
    _check_combinations(options)
    if options.neuron == "xylo" and options.recipe == "standard":
        options.recipe = XYLO_RECIPE
    keep_freed_memory()
    device = select_device(options.device)
    dataset = load_dataset(options.data, options.data_dir)
    init = _initial_network(options, dataset)
    if options.recipe == XYLO_RECIPE or _counts_spikes(init):
        dataset = as_spike_counts(dataset, XYLO_INPUT_SPIKES, options.timesteps or _steps(init))
    integers = init is not None and isinstance(init.body, QuantizedBody)
    _apply_recipe(options, recordings=dataset.frames is not None, integers=integers)
    training = _training(options, device, init)
    with join_process_group(device) as processes, _advice_when_interrupted(options.out):
        network = train(
            dataset,
            options.arch or Building.arch,
            training,
            out=options.out,
            resume=options.resume,
            init=init,
            teacher=None
            if options.teacher is None
            else load_model(options.teacher, arch=options.teacher_arch),
            device=device,
            processes=processes,
            heading=f"recipe {options.recipe}: {_described(options, training, dataset)}",
            **_given(options, [name for name in Building.declared if name != "arch"]),
        )
    assert network.card is not None
    result = network.card.training["test_accuracy"]
    data = {
        "model": str(options.out),
        "architecture": network.card.architecture,
        **({} if isinstance(network.body, QuantizedBody) else NEURON_DEFAULTS),
        **network.card.arguments,
        "timesteps": network.timesteps,
        **network.card.training,
    }
    text = f"{options.out}: {network.card.architecture}, test accuracy {result:.2%} on {options.data}"
    return Outcome(data=data, text=text)


def _counts_spikes(init: SpikingNetwork | None) -> bool:
    """Whether a network to start from has neurons of Xylo."""
    return init is not None and any(isinstance(part, XyloLIF) for part in init.modules())


def _steps(init: SpikingNetwork | None) -> int | None:
    return None if init is None else init.timesteps


def _check_combinations(options: argparse.Namespace) -> None:
    """Reject options that would have no effect beside others."""
    arch = options.arch or ""
    if options.neuron == "xylo" and arch in ARCHITECTURES and not arch.startswith("xylo"):
        raise OptionError(
            f"--neuron xylo with --arch {arch}, which has other neurons; allowed are xylo-mlp, xylo-rnn and "
            "networks of your own with mpbn_deploy.nn.XyloLIF."
        )
    if options.mpbn == "none" and options.mpbn_gain == "positive":
        raise OptionError("--mpbn-gain positive has no effect with --mpbn none; drop one of them.")
    if options.mpbn == "none" and options.mpbn_epsilon is not None:
        raise OptionError("--mpbn-epsilon has no effect with --mpbn none; drop one of them.")
    if options.mpbn == "none" and options.freeze_mpbn is not None:
        raise OptionError("--freeze-mpbn has no effect with --mpbn none; drop one of them.")
    if options.warmup is not None and _of_recipe(options, "schedule") == "cosine":
        raise OptionError("--warmup has no effect with --schedule cosine; drop it, or choose one-cycle.")
    if options.single_step and options.timesteps == 1:
        raise OptionError("--single-step has no effect with --timesteps 1; drop one of them.")
    if options.quantize is not None and options.init is None:
        raise OptionError("--quantize needs a trained network to start from; add --init model.pt.")
    if options.static_steps and options.init is None:
        raise OptionError("--static-steps needs a trained network to start from; add --init model.pt.")
    if options.quantize is not None and options.optimizer == "muon":
        raise OptionError(NO_MUON_FOR_INTEGERS)
    if options.init is not None and options.init.resolve() == options.out.resolve():
        raise OptionError(f"--out {options.out} would replace the network of --init; choose another --out.")
    if options.weight_bits == AUTO:
        raise OptionError(
            "--weight-bits auto: `export` chooses bits per layer; training needs one number for all layers."
        )
    if options.teacher_arch is not None and options.teacher is None:
        raise OptionError("--teacher-arch has an effect only with --teacher; add --teacher MODEL.")
    for name in ("weight_bits", "input_offset"):
        if getattr(options, name) is not None and options.quantize is None:
            option = option_name(name)
            raise OptionError(f"{option} has an effect only with --quantize; add --quantize TARGET.")


def _of_recipe(options: argparse.Namespace, name: str) -> Any:
    """Return a hyperparameter: as given, else as in the recipe, else the default."""
    given = getattr(options, name)
    return given if given is not None else RECIPES[options.recipe].get(name, getattr(Training(), name))


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the options and their recipe set, as it appears on the card of the trained network."""
    options = argparse.Namespace(**vars(options))
    _apply_recipe(options, recordings=False)
    architecture = options.arch or Building.arch
    names = ("timesteps", "width", *NEURON_DEFAULTS, *Training.declared)
    given = {
        "architecture": architecture,
        **NEURON_DEFAULTS,
        **usual_epsilon(architecture, options.mpbn or Building.mpbn),
        **asdict(Training()),
        **_given(options, names),
    }
    return {name: value for name, value in given.items() if value is not None and value != "auto"}


def _apply_recipe(options: argparse.Namespace, *, recordings: bool, integers: bool = False) -> None:
    """Set options that were not given as the recipe does, unless --init, the data or --arch decide them.

    A recipe's width is that of its own network, and neurons of a user's factory are as the user wrote them.
    """
    arch = options.arch or ""
    decided = {
        *(OF_NEW_NETWORKS if options.init is not None else ()),
        *(NOT_OF_INTEGERS if integers else ()),
        *(OF_STILLS if recordings else ()),
        *(("width",) if arch not in ("", RECIPES[options.recipe].get("arch")) else ()),
        *(NEURON_DEFAULTS if ":" in arch else ()),
        *(("freeze_mpbn",) if options.mpbn == "none" else ()),
    }
    for name, value in RECIPES[options.recipe].items():
        if getattr(options, name) is None and name not in decided:
            setattr(options, name, value)


def _training(options: argparse.Namespace, device: torch.device, init: SpikingNetwork | None) -> Training:
    """Return the hyperparameters: what was given, else the recipe's, else the defaults."""
    parts = _given(options, Training.declared)
    parts.setdefault("learning_rate", _default_learning_rate(options, init))
    if parts.get("precision") == "auto":
        parts["precision"] = _automatic_precision(options, device)
    if init is not None and isinstance(init.body, QuantizedBody):
        parts["weight_decay"] = 0.0
    return Training(**parts)


def _automatic_precision(options: argparse.Namespace, device: torch.device) -> str:
    """Return that of the run to resume; float32 for networks that may be integers; else the faster one."""
    resumed = settings_to_resume(options.out) if options.resume else {}
    if "precision" in resumed:
        return str(resumed["precision"])
    return "float32" if options.init is not None else fastest_precision(device)


def _described(options: argparse.Namespace, training: Training, dataset: DataSet) -> str:
    """Return all settings on one line: "seed 0, arch digits-cnn, timesteps 4, mpbn channel, ..."."""
    usual = {} if options.init is not None else _usual_network(options, dataset)
    parts = {
        **usual,
        **_given(options, ("arch", "timesteps", *BUILT_IN)),
        **asdict(training),
        "augmentation": training.augmentation or dataset.augmentation,
    }
    seed = f"seed {parts.pop('seed')}"
    listed = [f"{name.replace('_', '-')} {value}" for name, value in parts.items() if value is not None]
    return ", ".join([seed, *listed])


def _usual_network(options: argparse.Namespace, dataset: DataSet) -> dict[str, Any]:
    """Return the defaults of a new network."""
    kind, arch = options.mpbn or Building.mpbn, options.arch or Building.arch
    return {
        "arch": arch,
        "timesteps": DEFAULT_TIMESTEPS if dataset.frames is None else dataset.frames,
        "mpbn": kind,
        **NEURON_DEFAULTS,
        **(XYLO_DEFAULTS if options.recipe == XYLO_RECIPE else {}),
        **usual_epsilon(arch, kind),
    }


def _given(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options of these names that are set."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _default_learning_rate(options: argparse.Namespace, init: SpikingNetwork | None) -> float:
    """Return the default rate; that of trained networks grows with the batch."""
    if init is None:
        return Training().learning_rate
    scale = (options.batch or Training().batch) / Training().batch
    if not isinstance(init.body, QuantizedBody):
        return FINE_TUNING_RATE * scale
    return scale * quantized_rate(init.body.formats.weight_bits)


def _weight_bits(options: argparse.Namespace, profile: HardwareProfile) -> int:
    """Return the bits per weight: as given, else the most that the target supports."""
    return int(options.weight_bits or profile.value("formats.weight_bits"))


def _initial_network(options: argparse.Namespace, dataset: DataSet) -> SpikingNetwork | None:
    """Load the network of --init and, with --quantize, convert it to its integer twin."""
    if options.init is None:
        return None
    own = options.arch is not None and ":" in options.arch  # a file cannot name code to import
    for name in (*BUILT_IN, *(() if own else ("arch",))):
        if getattr(options, name) is not None:
            option = option_name(name)
            raise OptionError(f"{option} with --init: {options.init} already defines it; drop {option}.")
    model = load_model(options.init, arch=options.arch)
    if options.static_steps:
        model = static_steps(model)
    if options.timesteps is not None:
        model.timesteps = options.timesteps
    assert model.card is not None
    notes: dict[str, Any] = {
        **{name: model.card.training[name] for name in KEPT_NOTES if name in model.card.training},
        "init": options.init.name,
    }
    if options.quantize is not None or isinstance(model.body, QuantizedBody):
        _check_options_of_integers(options)
    if options.quantize is not None:
        profile = load_profile(options.quantize)
        offset = AUTO if options.input_offset is None else options.input_offset
        model = quantized_twin(model, profile, options.weight_bits, dataset, offset)
        notes |= {"quantize": profile.name, "weight_bits": _weight_bits(options, profile)}
        subtracted = int(model.input_format.mean[0])
        notes |= {"input_offset": subtracted} if subtracted else {}
    assert model.card is not None
    model.card = replace(model.card, training=notes)
    return model


def _check_options_of_integers(options: argparse.Namespace) -> None:
    if options.precision not in (None, "auto", "float32"):
        raise OptionError(
            f"--precision {options.precision}: {options.init} is trained as integers, which are exact in "
            "float32 only; drop --precision."
        )
    for name in NOT_OF_INTEGERS:
        if getattr(options, name) is not None:
            option = option_name(name)
            raise OptionError(
                f"{option} has no effect on {options.init}, trained as integers; drop {option}."
            )


@contextmanager
def _advice_when_interrupted(out: Path) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if is_first_process() and resume_file(out).exists():
            announce("The same command with --resume continues after the last complete epoch.")
        raise


# Convert a trained network to its integer twin, from which quantization-aware training starts.
#
# The network is folded and quantized with calibration, as `export` does. The twin starts as exactly that
# integer network, and training changes its integers (quantize/twin.py).


def quantized_rate(weight_bits: int) -> float:
    """rate * 2**(4 - bits) below 4 bits, where the latent weight must move further to change an integer"""
    return QUANTIZED_RATE * 2.0 ** max(FULL_RATE_BITS - weight_bits, 0)


def quantized_twin(
    model: SpikingNetwork,
    profile: HardwareProfile,
    weight_bits: int | None,
    dataset: DataSet,
    input_offset: int | Auto = AUTO,
) -> SpikingNetwork:
    """Return a trainable integer network, quantized with calibration on the first training samples.

    Its body takes inputs minus the offset.
    """
    if isinstance(model.body, QuantizedBody):
        raise OptionError("the network to start from is quantized already; start from the one before.")
    formats, folded = NumberFormats.of(profile, weight_bits), fold(trace(model))
    offset = choose_offset(folded, formats) if input_offset == AUTO else input_offset
    folded = offset_inputs(folded, offset)
    inputs = folded.input_range.presented(calibration_data(folded, dataset).inputs)
    announce(f"quantize: to the formats of {profile.name}")
    quantized = quantize(folded, profile, inputs, weight_bits=weight_bits, pooling="composed")
    for note in quantized.notes:
        announce(f"note: {note}")
    body = QuantizedBody.of(quantized.network, formats, inputs)
    if ThresholdLimits.of(profile, "own", formats).bind:
        body.freeze_thresholds()  # few per core, or none below one: what quantization chose must stay
    given, card = model.input_format, model.card
    return SpikingNetwork(
        body,
        timesteps=model.timesteps,
        # Raw values go in, less the offset: the rest of their normalization is in the weights.
        input_format=InputFormat(
            shape=given.shape,
            minimum=given.minimum,
            maximum=given.maximum,
            mean=np.full(1, offset),
            deviation=np.ones(1),
        ),
        card=ModelCard(
            architecture=QUANTIZED,
            arguments={"structure": body.structure},
            class_names=() if card is None else card.class_names,
        ),
    )
