"""STAGE + COMMAND: data set + architecture -> model.pt

The epochs are in train_loop.py, what lies beside model.pt in train_files.py, and how several
processes share a training in train_distributed.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from ..base import DeployError, OptionError, announce
from ..checkpoint import build_body
from ..data import DataSet
from ..fold import fold
from ..frontend import foreign_converters, trace
from ..nn import ModelCard, SpikingNetwork
from ..quantize import QuantizedBody
from .batching import samples
from .files import Progress, TrainingFiles
from .loop import deterministic, make_optimizer, note_on_card, run_epochs
from .processes import ALONE, Processes
from .settings import DEFAULT_TIMESTEPS, NEURON_DEFAULTS, Training


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
