"""STAGE + COMMAND: data set + architecture -> model.pt

The epochs are in train_loop.py, what lies beside model.pt in train_files.py, and how several
processes share a training in train_distributed.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from .checkpoint import build_body, load_model
from .cli import Command, Outcome, main, whole_number
from .data import DATASETS, DataSet, load_dataset
from .data.batches import samples
from .errors import DeployError, OptionError
from .files import refuse_unwritable
from .fold import fold
from .foreign import foreign_converters
from .frontend import trace
from .hardware import load_profile
from .nn import MPBN_GAINS, MPBN_KINDS, SURROGATES, ModelCard, QuantizedBody, SpikingNetwork
from .progress import announce
from .train_distributed import ALONE, Processes, is_first_process, own_device, started_by_torchrun
from .train_files import Progress, TrainingFiles, files_beside, resume_file
from .train_loop import (
    Training,
    accuracy,
    deterministic,
    evaluate,
    make_optimizer,
    note_on_card,
    run_epochs,
)
from .train_quantized import FULL_RATE_BITS, QUANTIZED_RATE, quantized_rate, quantized_twin
from .zoo import ARCHITECTURES

__all__ = ["COMMAND", "NEURON_DEFAULTS", "Training", "accuracy", "evaluate", "train"]

DEFAULT_ARCHITECTURE = "digits-cnn"
DEFAULT_TIMESTEPS = 4
FINE_TUNING_RATE = 0.0005  # of a network that is trained already
NEURON_DEFAULTS = {"mpbn_gain": "free", "surrogate": "rectangle"}


def train(
    dataset: DataSet,
    architecture: str,
    *,
    mpbn: str = "channel",
    timesteps: int | None = None,
    training: Training,
    neuron: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    init: SpikingNetwork | None = None,
    device: torch.device | str = "cpu",
    processes: Processes = ALONE,
) -> SpikingNetwork:
    """Train a network.

    The same arguments give the same network, bit by bit, on one machine with as many threads.
    `neuron` are further arguments of the zoo's LIF neurons. With `out`, checkpoints and a log are
    written after every epoch, from which `resume` goes on to the same network as an unbroken training.
    A network to start from (`init`, which is changed) is instead of one that the arguments describe.
    """
    _check(training, dataset, processes)
    if init is None:
        arguments = {"mpbn": mpbn, **_unusual(neuron or {})}
        network = _build(dataset, architecture, arguments, _timesteps(dataset, timesteps), training.seed)
    else:
        network = _start_from(init, dataset)
    if processes.first:
        _try_out(network, dataset)
    network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    progress = Progress(network=network, optimizer=make_optimizer(network, training), history=[])
    files = None if out is None else TrainingFiles(model=out, settings=_settings(dataset, network, training))
    if files is not None and resume:
        files.restore(progress)
        note_on_card(progress, dataset, training)
        if processes.first:
            announce(f"resuming after epoch {len(progress.history)} of {training.epochs}")
    with deterministic():
        run_epochs(progress, dataset, training, processes, files)
    return network.cpu()


def _build(
    dataset: DataSet, architecture: str, neuron: dict[str, Any], timesteps: int, seed: int
) -> SpikingNetwork:
    """A new network for a data set, with the card that will go into its checkpoints."""
    shape = dataset.input_format.shape
    arguments = {"input_shape": shape, "classes": len(dataset.class_names), **neuron}
    torch.manual_seed(seed)
    body = build_body(architecture, arguments)
    card = ModelCard(
        architecture=architecture,
        arguments={**arguments, "input_shape": list(shape)},
        class_names=dataset.class_names,
    )
    return SpikingNetwork(body, timesteps=timesteps, input_format=dataset.input_format, card=card)


def _start_from(init: SpikingNetwork, dataset: DataSet) -> SpikingNetwork:
    """The network, where it takes such samples; what was noted of an earlier training is not of this one."""
    if init.card is None:
        raise OptionError("the network to start from has no ModelCard, so its checkpoints could not be read.")
    given, wanted = init.input_format, dataset.input_format
    if (given.shape, given.minimum, given.maximum) != (wanted.shape, wanted.minimum, wanted.maximum):
        raise OptionError(
            f"the network takes inputs {given.shape} of {given.minimum}..{given.maximum}; samples of "
            f"{dataset.name} are {wanted.shape} of {wanted.minimum}..{wanted.maximum}."
        )
    _timesteps(dataset, init.timesteps)
    init.card = replace(init.card, class_names=dataset.class_names)
    return init


def _unusual(neuron: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the neuron's own defaults: a network of somebody else's may not know the rest."""
    return {name: value for name, value in neuron.items() if NEURON_DEFAULTS.get(name) != value}


def _timesteps(dataset: DataSet, asked: int | None) -> int:
    """As asked; samples that are recordings have as many steps as frames."""
    if dataset.frames is None:
        return DEFAULT_TIMESTEPS if asked is None else asked
    if asked not in (None, dataset.frames):
        raise OptionError(f"{asked} time steps; a sample of {dataset.name} has {dataset.frames} frames.")
    return dataset.frames


def _check(training: Training, dataset: DataSet, processes: Processes) -> None:
    if training.batch > len(dataset.train):
        raise OptionError(
            f"batch {training.batch}; {dataset.name} has {len(dataset.train)} samples to train with."
        )
    if training.batch < 2:
        raise OptionError(f"batch {training.batch}; batch norm needs 2 samples or more.")
    if training.batch % processes.count or training.batch < 2 * processes.count:
        raise OptionError(
            f"batch {training.batch} over {processes.count} processes; equal shares of 2 or more are needed."
        )
    if not (isfinite(training.learning_rate) and training.learning_rate > 0):
        raise OptionError(f"learning rate {training.learning_rate}; a number above zero is needed.")
    if not (isfinite(training.weight_decay) and training.weight_decay >= 0):
        raise OptionError(f"weight decay {training.weight_decay}; zero or a number above it is needed.")


def _settings(dataset: DataSet, network: SpikingNetwork, training: Training) -> dict[str, Any]:
    """All that the network to come depends on: what is trained on what, and how."""
    assert network.card is not None
    return {
        "data": dataset.name,
        "samples": len(dataset.train),
        "architecture": network.card.architecture,
        **NEURON_DEFAULTS,
        **network.card.arguments,
        "timesteps": network.timesteps,
        **asdict(training),
    }


def _try_out(network: SpikingNetwork, dataset: DataSet) -> None:
    """Find out before training whether the network takes the data, and whether it could be exported."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise OptionError("the network has no parameters to train.")
    _refuse_foreign(network)
    inputs, classes = samples(dataset.test, slice(2))[0], len(dataset.class_names)
    try:
        with torch.no_grad():
            found = tuple(network.eval()(inputs).shape)
    except Exception as error:  # whatever a network of somebody else does with inputs it cannot take
        raise OptionError(f"the network cannot take samples of {dataset.name}: {error}") from error
    if found != (len(inputs), classes):
        raise OptionError(
            f"the network gives outputs {found} for {len(inputs)} samples; {dataset.name} needs "
            f"({len(inputs)}, {classes})."
        )
    if isinstance(network.body, QuantizedBody):
        return  # it is what will be exported
    try:
        fold(trace(network))
    except DeployError as error:
        announce(f"note: as it is, this network can be trained, but not exported: {error}")


def _refuse_foreign(network: SpikingNetwork) -> None:
    """Neurons of other libraries take one time step per call; here all steps lie in the batch."""
    kinds = tuple(foreign_converters())
    foreign = [name for name, module in network.named_modules() if isinstance(module, kinds)]
    if foreign:
        raise OptionError(
            f"{foreign[0]}: a neuron of another library, which takes one time step per call. Train it there, "
            "and fold it with fold(trace(module, input_shape, timesteps))."
        )


# ---- command ----------------------------------------------------------------------------------


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", default="digits", help=f"data set: {', '.join(DATASETS)} (default %(default)s)"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument(
        "--arch",
        help=f"network: {', '.join(ARCHITECTURES)}; or package.module:factory (imported, so its code runs);"
        " it is called with input_shape, classes, mpbn, and mpbn_gain and surrogate where you choose them"
        f" (default {DEFAULT_ARCHITECTURE})",
    )
    _add_neuron_arguments(parser)
    _add_optimization_arguments(parser)
    parser.add_argument("--init", type=Path, help="a checkpoint to start from, instead of a new network")
    parser.add_argument(
        "--quantize",
        metavar="TARGET",
        help="train the integers of the --init network for this profile (quantization-aware training)",
    )
    parser.add_argument(
        "--weight-bits", type=whole_number(1), help="of --quantize; default: as many as the target holds"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("model.pt"),
        help="the checkpoint to write; log, curves and best checkpoint go beside it (default %(default)s)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on after an interruption, with otherwise the same options"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default %(default)s)")


def _add_neuron_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mpbn",
        choices=MPBN_KINDS,
        help="membrane-potential batch norm (default channel)",
    )
    parser.add_argument(
        "--mpbn-gain",
        choices=MPBN_GAINS,
        help="positive: gains above zero by construction, so that thresholds fold for every chip "
        "(default free)",
    )
    parser.add_argument(
        "--surrogate",
        choices=tuple(SURROGATES),
        help="gradient of a spike: as the paper prints, or as its code does (default rectangle)",
    )
    parser.add_argument(
        "--timesteps",
        type=whole_number(1),
        help=f"per sample (default {DEFAULT_TIMESTEPS}, or as many as a recording has frames)",
    )


def _add_optimization_arguments(parser: argparse.ArgumentParser) -> None:
    usual = Training()
    parser.add_argument(
        "--epochs",
        type=whole_number(1),
        default=usual.epochs,
        help="passes over the data (default %(default)s)",
    )
    parser.add_argument(
        "--batch",
        type=whole_number(2),
        default=usual.batch,
        help="samples per step of SGD (default %(default)s)",
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        help="of SGD, falling to zero in a cosine "
        f"(default {usual.learning_rate}; with --init {FINE_TUNING_RATE}, with --quantize {QUANTIZED_RATE}, "
        f"more below {FULL_RATE_BITS} bits)",
    )
    parser.add_argument(
        "--weight-decay", type=float, default=usual.weight_decay, help="of weights (default %(default)s)"
    )
    parser.add_argument(
        "--no-augmentation",
        action="store_true",
        help="train on the samples as they are, not cropped or flipped",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=usual.seed,
        help="same seed, same network (default %(default)s)",
    )


def _execute(options: argparse.Namespace) -> Outcome:
    if not is_first_process():
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  one process speaks for all
    for file in files_beside(options.out):
        refuse_unwritable(file)
    if options.mpbn == "none" and options.mpbn_gain == "positive":
        raise OptionError(f"--mpbn-gain {options.mpbn_gain} with --mpbn none: there is no gain to keep so.")
    device = own_device(options.device)
    rate = _usual_rate(options)
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
    with started_by_torchrun(device) as processes, _advice_when_interrupted(options.out):
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


def _usual_rate(options: argparse.Namespace) -> float:
    if options.quantize is not None:
        profile = load_profile(options.quantize)
        return quantized_rate(options.weight_bits or profile.value("formats.weight_bits"))
    return FINE_TUNING_RATE if options.init is not None else Training().learning_rate


def _initial_network(options: argparse.Namespace, dataset: DataSet) -> SpikingNetwork | None:
    """The network that --init names, as the integers that --quantize asks for."""
    if options.init is None:
        if options.quantize is not None:
            raise OptionError("--quantize starts from a trained network; name it with --init model.pt.")
        if options.weight_bits is not None:
            raise OptionError("--weight-bits is for --quantize; a network of real numbers has none.")
        return None
    own = options.arch is not None and ":" in options.arch  # code that only the user may name
    for name in ("mpbn", "mpbn_gain", "surrogate", "timesteps", *(() if own else ("arch",))):
        if getattr(options, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise OptionError(
                f"{option} with --init: the network is in {options.init}, which says it itself."
            )
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
            announce("interrupted: the same command with --resume goes on after the last finished epoch.")
        raise


COMMAND = Command(
    name="train",
    summary="Train a spiking network and write model.pt.",
    details="example: python -m mpbn_deploy.train --data digits --arch digits-cnn --epochs 8 --out model.pt",
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
