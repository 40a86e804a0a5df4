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

import torch

from ..base import OptionError, Outcome, announce, check_writable
from ..checkpoint import load_model
from ..data import DataSet, load_dataset
from ..hardware import load_profile
from ..nn import SpikingNetwork
from .files import files_beside, resume_file
from .precision import fastest_precision, keep_freed_memory
from .processes import is_first_process, join_process_group, select_device
from .quantized import quantized_rate, quantized_twin
from .settings import (
    DEFAULT_ARCHITECTURE,
    FINE_TUNING_RATE,
    NEURON_DEFAULTS,
    RECIPES,
    Training,
)
from .stage import train

BUILT_IN = ("mpbn", *NEURON_DEFAULTS, "width")  # options of the network that --init already has
OF_NEW_NETWORKS = ("arch", "timesteps", "single_step", "learning_rate", *BUILT_IN)


def execute(options: argparse.Namespace) -> Outcome:
    if not is_first_process():
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  only the first process prints
    for file in files_beside(options.out):
        check_writable(file)
    if options.mpbn == "none" and options.mpbn_gain == "positive":
        raise OptionError(
            f"--mpbn-gain {options.mpbn_gain} has no effect with --mpbn none; drop one of them."
        )
    keep_freed_memory()
    device = select_device(options.device)
    _apply_recipe(options)
    training = _training(options, device)
    dataset = load_dataset(options.data, options.data_dir)
    init = _initial_network(options, dataset)
    if is_first_process():
        announce(f"recipe {options.recipe}: {_described(options, training)}")
    with join_process_group(device) as processes, _advice_when_interrupted(options.out):
        network = train(
            dataset,
            options.arch or DEFAULT_ARCHITECTURE,
            mpbn=options.mpbn or "channel",
            timesteps=options.timesteps,
            training=training,
            neuron=_given(options, (*NEURON_DEFAULTS, "width")),
            out=options.out,
            resume=options.resume,
            init=init,
            device=device,
            processes=processes,
        )
    assert network.card is not None
    result = network.card.training["test_accuracy"]
    data = {
        "model": str(options.out),
        "architecture": network.card.architecture,
        **NEURON_DEFAULTS,
        **network.card.arguments,
        "timesteps": network.timesteps,
        **network.card.training,
    }
    text = f"{options.out}: {network.card.architecture}, test accuracy {result:.2%} on {options.data}"
    return Outcome(data=data, text=text)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the options and their recipe set, as it appears on the card of the trained network."""
    options = argparse.Namespace(**vars(options))
    _apply_recipe(options)
    names = ("timesteps", "width", *NEURON_DEFAULTS, *asdict(Training()))
    given = {**asdict(Training()), **_given(options, names)}
    return {name: value for name, value in given.items() if value is not None and value != "auto"}


def _apply_recipe(options: argparse.Namespace) -> None:
    """Set options that were not given as the recipe does; those of new networks only without --init."""
    for name, value in RECIPES[options.recipe].items():
        if getattr(options, name) is None and (options.init is None or name not in OF_NEW_NETWORKS):
            setattr(options, name, value)


def _training(options: argparse.Namespace, device: torch.device) -> Training:
    """Return the hyperparameters: what was given, else the recipe's, else the defaults."""
    parts = _given(options, tuple(asdict(Training())))
    parts.setdefault("learning_rate", _default_learning_rate(options))
    if parts.get("precision") == "auto":
        parts["precision"] = "float32" if options.quantize else fastest_precision(device)
    training = Training(**parts)
    if options.quantize and training.precision != "float32":
        raise OptionError(
            f"--precision {training.precision} with --quantize: integers are trained in float32, in which "
            "they are exact; drop --precision."
        )
    return training


def _described(options: argparse.Namespace, training: Training) -> str:
    """Return all settings on one line: "seed 0, arch digits-cnn, mpbn channel, epochs 8, ..."."""
    names = ("seed", "arch", "timesteps", "mpbn", "width", *NEURON_DEFAULTS)
    parts = {**{name: getattr(options, name) for name in names}, **asdict(training)}
    return ", ".join(
        f"{name.replace('_', '-')} {value}" for name, value in parts.items() if value is not None
    )


def _given(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options of these names that are set."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _default_learning_rate(options: argparse.Namespace) -> float:
    """Return the default rate; that of trained networks grows with the batch."""
    if options.init is None and options.quantize is None:
        return Training().learning_rate
    scale = (options.batch or Training().batch) / Training().batch
    if options.quantize is None:
        return FINE_TUNING_RATE * scale
    profile = load_profile(options.quantize)
    return scale * quantized_rate(options.weight_bits or profile.value("formats.weight_bits"))


def _initial_network(options: argparse.Namespace, dataset: DataSet) -> SpikingNetwork | None:
    """Load the network of --init and, with --quantize, convert it to its integer twin."""
    if options.init is None:
        if options.quantize is not None:
            raise OptionError("--quantize needs a trained network to start from; add --init model.pt.")
        if options.weight_bits is not None:
            raise OptionError("--weight-bits has an effect only with --quantize; add --quantize TARGET.")
        return None
    own = options.arch is not None and ":" in options.arch  # a file cannot name code to import
    for name in (*BUILT_IN, *(() if own else ("arch",))):
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise OptionError(f"{option} with --init: {options.init} already defines it; drop {option}.")
    model = load_model(options.init, arch=options.arch)
    if options.timesteps is not None:
        model.timesteps = options.timesteps
    notes: dict[str, Any] = {"init": options.init.name}
    if options.quantize is not None:
        profile = load_profile(options.quantize)
        model = quantized_twin(model, profile, options.weight_bits, dataset)
        notes |= {"quantize": profile.name, "weight_bits": options.weight_bits}
    assert model.card is not None
    model.card = replace(model.card, training=notes)
    return model


@contextmanager
def _advice_when_interrupted(out: Path) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if is_first_process() and resume_file(out).exists():
            announce("interrupted: the same command with --resume continues after the last complete epoch.")
        raise
