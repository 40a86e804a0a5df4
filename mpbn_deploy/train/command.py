"""Execute `python -m mpbn_deploy.train`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base import OptionError, Outcome, announce, check_writable
from ..checkpoint import load_model
from ..data import DataSet, load_dataset
from ..hardware import load_profile
from ..nn import SpikingNetwork
from .files import files_beside, resume_file
from .processes import is_first_process, join_process_group, select_device
from .quantized import quantized_rate, quantized_twin
from .settings import (
    DEFAULT_ARCHITECTURE,
    FINE_TUNING_RATE,
    NEURON_DEFAULTS,
    Training,
)
from .stage import train


def execute(options: argparse.Namespace) -> Outcome:
    if not is_first_process():
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  only the first process prints
    for file in files_beside(options.out):
        check_writable(file)
    if options.mpbn == "none" and options.mpbn_gain == "positive":
        raise OptionError(
            f"--mpbn-gain {options.mpbn_gain} has no effect with --mpbn none; drop one of them."
        )
    device = select_device(options.device)
    rate = _default_learning_rate(options)
    training = Training(
        epochs=options.epochs,
        batch=options.batch,
        learning_rate=rate if options.learning_rate is None else options.learning_rate,
        weight_decay=options.weight_decay,
        augmentation=not options.no_augmentation,
        seed=options.seed,
    )
    dataset = load_dataset(options.data, options.data_dir)
    init = _initial_network(options, dataset)
    with join_process_group(device) as processes, _advice_when_interrupted(options.out):
        network = train(
            dataset,
            options.arch or DEFAULT_ARCHITECTURE,
            mpbn=options.mpbn or "channel",
            timesteps=options.timesteps,
            training=training,
            neuron={
                "mpbn_gain": options.mpbn_gain or NEURON_DEFAULTS["mpbn_gain"],
                "surrogate": options.surrogate or NEURON_DEFAULTS["surrogate"],
            },
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


def _default_learning_rate(options: argparse.Namespace) -> float:
    if options.quantize is not None:
        profile = load_profile(options.quantize)
        return quantized_rate(options.weight_bits or profile.value("formats.weight_bits"))
    return FINE_TUNING_RATE if options.init is not None else Training().learning_rate


def _initial_network(options: argparse.Namespace, dataset: DataSet) -> SpikingNetwork | None:
    """Load the network of --init and, with --quantize, convert it to its integer twin."""
    if options.init is None:
        if options.quantize is not None:
            raise OptionError("--quantize needs a trained network to start from; add --init model.pt.")
        if options.weight_bits is not None:
            raise OptionError("--weight-bits has an effect only with --quantize; add --quantize TARGET.")
        return None
    own = options.arch is not None and ":" in options.arch  # a file cannot name code to import
    for name in ("mpbn", "mpbn_gain", "surrogate", "timesteps", *(() if own else ("arch",))):
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise OptionError(f"{option} with --init: {options.init} already defines it; drop {option}.")
    model = load_model(options.init, arch=options.arch)
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
