"""`train`: data set + architecture -> trained SpikingNetwork."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from ..base import DeployError, OptionError, announce, option_name
from ..checkpoint import accepted, build_body
from ..data import DataSet, Split, arranged, hold_out
from ..fold import fold
from ..frontend import foreign_neurons, trace
from ..nn import LIF, NEURON_DEFAULTS, ModelCard, SpikingNetwork
from ..quantize import QuantizedBody
from .files import TrainingFiles, TrainingState
from .loop import deterministic, evaluate, note_on_card, read_samples, run_epochs
from .optimizer import SINGLE_PROCESS, ProcessGroup, make_optimizer
from .recalibration import average_as_asked, norm_sites, recalibrate_as_asked
from .settings import (
    DEFAULT_TIMESTEPS,
    TEACHER_PART,
    Building,
    Training,
    mpbn_epsilon,
)

DIGEST = 12  # digits that tell teachers apart


def train(
    dataset: DataSet,
    architecture: Building | str,
    training: Training | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    init: SpikingNetwork | None = None,
    teacher: SpikingNetwork | None = None,
    device: torch.device | str = "cpu",
    processes: ProcessGroup = SINGLE_PROCESS,
    heading: str = "",
    **changes: Any,
) -> SpikingNetwork:
    """Train a network, given as a record or as the name of its architecture.

    Keyword arguments are fields of `Building`: train(dataset, "digits-cnn", mpbn="element", leak=0.5); the
    network gets them even where they are the defaults of `Building`, which its own may differ from. Equal
    arguments give the same network bit by bit, on the same machine with the same number of threads. With
    `out`, checkpoints and a log are written after every epoch; `resume` continues from them and gives the
    same network as an uninterrupted training. `init` is a network to start from, which is modified, in place
    of a new one; `teacher` is one whose outputs this one learns beside the labels (`Training.distillation`).
    The `heading` is announced when nothing was found wrong.
    """
    building = Building(arch=architecture) if isinstance(architecture, str) else architecture
    training = training or Training()
    if init is not None:
        dataset = _arranged(dataset, init)
    dataset, validation = hold_out(dataset, training.validation)
    training = _with_distillation(training, teacher)
    _check_settings(training, dataset, processes)
    if init is None:
        network = _build(dataset, replace(building, **changes), changes, training.seed, processes)
    else:
        network = _start_from(init, dataset)
    if processes.first:
        _check_network(network, dataset)
        if training.recalibration == "on" and not norm_sites(network):
            raise OptionError(
                "--recalibration on: the network has no norms with running statistics; drop it."
            )
    taught = "" if teacher is None else _check_teacher(teacher, network, dataset)
    for each in (network, *([] if teacher is None else [teacher])):
        each.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    state = TrainingState(
        network=network, optimizer=make_optimizer(network, training), history=[], teacher=teacher
    )
    files = (
        None
        if out is None
        else TrainingFiles(model=Path(out), settings=_settings(dataset, network, training, taught))
    )
    if files is not None and resume:
        files.restore(state)
        note_on_card(state, dataset, training)
    if processes.first and heading:
        announce(heading)
    if files is not None and resume and processes.first:
        announce(f"resuming after epoch {len(state.history)} of {training.epochs}")
    with deterministic():
        run_epochs(state, dataset, validation, training, processes, files)
        _finish(state, dataset, validation, training, processes)
    if files is not None and processes.first:
        files.finish(network, state.history)
    return network.cpu()


def _finish(
    state: TrainingState,
    dataset: DataSet,
    validation: Split | None,
    training: Training,
    processes: ProcessGroup,
) -> None:
    """Average the weights, recalibrate the norms, and put the final accuracies on the card."""
    network = state.network
    averaged = average_as_asked(state, dataset, validation, training, processes)
    done = averaged or recalibrate_as_asked(network, dataset, validation, training, processes)
    assert network.card is not None
    notes = {**network.card.training, "recalibrated": done}
    notes |= {"averaged": averaged} if training.average else {}
    if done:
        notes["test_accuracy"] = evaluate(network, dataset.test, processes)[1]
        if validation is not None:
            notes["validation_accuracy"] = evaluate(network, validation, processes)[1]
    network.card = replace(network.card, training=notes)


def _build(
    dataset: DataSet, asked: Building, typed: Collection[str], seed: int, processes: ProcessGroup
) -> SpikingNetwork:
    """Build a new network for a data set, with the card for its checkpoints."""
    timesteps, neuron = _timesteps(dataset, asked.timesteps), _network_arguments(asked, typed)
    shape = dataset.input_format.shape
    arguments = {"input_shape": shape, "classes": len(dataset.class_names), **neuron}
    if "norm" in arguments:
        arguments["norm_steps"] = timesteps
    torch.manual_seed(seed)
    body = build_body(asked.arch, arguments)
    card = ModelCard(
        architecture=asked.arch,
        arguments={**arguments, "input_shape": list(shape)},
        class_names=dataset.class_names,
    )
    network = SpikingNetwork(body, timesteps=timesteps, input_format=dataset.input_format, card=card)
    if ":" in asked.arch and processes.first:
        _check_factory(network, asked.arch, neuron)
    return network


def _check_factory(network: SpikingNetwork, architecture: str, asked: Mapping[str, Any]) -> None:
    """Reject options that a user's factory did not use; note what else its neurons have unlike others."""
    built = [module.arguments for module in network.modules() if isinstance(module, LIF)]
    usual = {"mpbn": "channel", **NEURON_DEFAULTS, "mpbn_epsilon": mpbn_epsilon(asked["mpbn"])}
    for name, default in usual.items():
        wanted = asked.get(name, default)
        found = sorted({neuron[name] for neuron in built if name in neuron}, key=str)
        listed = " and ".join(map(str, found)) or "none"
        if wanted != default and wanted not in found:
            raise OptionError(
                f"{option_name(name)} {wanted} has no effect: {architecture} builds neurons with {listed}. "
                "Let it take **neuron, and pass that on to LIF."
            )
        if found and found != [wanted]:
            announce(f"note: {architecture} builds neurons with {option_name(name)} {listed}, not {wanted}")


def _start_from(init: SpikingNetwork, dataset: DataSet) -> SpikingNetwork:
    """Check that the network takes the data set's samples, and put its class names on the card."""
    if init.card is None:
        raise OptionError("the initial network has no ModelCard, so its checkpoints could not be read.")
    given, wanted = init.input_format, dataset.input_format
    if wanted.minimum < given.minimum or wanted.maximum > given.maximum:
        raise OptionError(
            f"the network takes inputs in {given.minimum}..{given.maximum}; samples of {dataset.name} are in "
            f"{wanted.minimum}..{wanted.maximum}."
        )
    _timesteps(dataset, init.timesteps)
    init.card = replace(init.card, class_names=dataset.class_names)
    return init


def _arranged(dataset: DataSet, network: SpikingNetwork) -> DataSet:
    """Return the data set whose samples have the shape that a network takes."""
    given, steps = network.input_format, dataset.frames or network.timesteps
    if given.shape == dataset.input_format.shape:
        return dataset  # its training pictures may be larger, to be cropped
    train, test = (
        replace(split, inputs=arranged(dataset.name, split.inputs, given.shape, steps, quiet=quiet))
        for split, quiet in ((dataset.train, False), (dataset.test, True))
    )
    wanted = dataset.input_format
    same = replace(given, minimum=wanted.minimum, maximum=wanted.maximum)
    return replace(dataset, train=train, test=test, input_format=same)


def usual_epsilon(architecture: str, mpbn: str) -> dict[str, Any]:
    """Return the default epsilon of a kind of MPBN; nothing for a user's factory that takes none."""
    return accepted(architecture, {"mpbn_epsilon": mpbn_epsilon(mpbn)}, as_neuron_arguments=True)


def _network_arguments(asked: Building, typed: Collection[str]) -> dict[str, Any]:
    """Return the arguments that are `typed` or differ from the defaults.

    A user's factory may not accept the others, and networks for Xylo have other defaults.
    """
    given = {name: getattr(asked, name) for name in (*NEURON_DEFAULTS, "width")}
    given |= {} if asked.norm == "batch" else {"norm": asked.norm}
    given = {name: value for name, value in given.items() if value is not None}
    wanted = {**usual_epsilon(asked.arch, asked.mpbn), **given}
    others = {n: value for n, value in wanted.items() if n in typed or NEURON_DEFAULTS.get(n) != value}
    return {"mpbn": asked.mpbn, **others}


def _timesteps(dataset: DataSet, asked: int | None) -> int:
    """Return the number of time steps; a recording has one per frame."""
    if dataset.frames is None:
        return DEFAULT_TIMESTEPS if asked is None else asked
    if asked not in (None, dataset.frames):
        raise OptionError(f"{asked} time steps; a sample of {dataset.name} has {dataset.frames} frames.")
    return dataset.frames


def _check_settings(training: Training, dataset: DataSet, processes: ProcessGroup) -> None:
    if training.batch > len(dataset.train):
        raise OptionError(
            f"--batch {training.batch}; {dataset.name} has {len(dataset.train)} training samples"
            f"{', without those for validation' if training.validation else ''}. Give a smaller --batch."
        )
    if training.batch < 2:
        raise OptionError(f"--batch {training.batch}; batch norm needs 2 samples or more.")
    if training.batch % processes.count or training.batch < 2 * processes.count:
        raise OptionError(
            f"--batch {training.batch} over {processes.count} processes; each needs an equal share, "
            "at least 2."
        )
    if training.precision == "auto":
        raise OptionError("--precision auto is the command's; float32 or bfloat16 is needed.")
    if training.average and training.recalibration == "off":
        raise OptionError(
            "--average with --recalibration off; averaged weights need statistics of their own. Drop one."
        )
    augmentation, shape = training.augmentation or dataset.augmentation, dataset.input_format.shape
    if augmentation != "none" and len(shape) != 3:
        raise OptionError(
            f"--augmentation {augmentation}; samples of {dataset.name} have the shape {tuple(shape)}, "
            "without height and width. Give --no-augmentation."
        )
    if training.nesterov and not training.momentum:
        raise OptionError("--nesterov with --momentum 0; Nesterov's form needs a momentum above 0.")
    if dataset.frames is not None and training.single_step_epochs:
        raise OptionError(
            f"--single-step {training.single_step}; a sample of {dataset.name} has {dataset.frames} frames, "
            "so every epoch needs all time steps. Give --single-step 0."
        )


def _with_distillation(training: Training, teacher: SpikingNetwork | None) -> Training:
    if teacher is None and training.distillation is not None:
        raise OptionError("--distillation has an effect only with --teacher; add --teacher MODEL.")
    if teacher is None or training.distillation is not None:
        return training
    return replace(training, distillation=TEACHER_PART)


def _check_teacher(teacher: SpikingNetwork, network: SpikingNetwork, dataset: DataSet) -> str:
    """Check that the teacher takes the data; return its architecture and a digest of its numbers."""
    shape, theirs = dataset.input_format.shape, teacher.input_format.shape
    if tuple(theirs) != tuple(shape):
        raise OptionError(
            f"--teacher: it takes samples of shape {tuple(theirs)}; those of {dataset.name} have the shape "
            f"{tuple(shape)}. Choose one that was trained on this data."
        )
    inputs = read_samples(dataset.test, slice(2))[0]
    with torch.no_grad():
        found = tuple(teacher.eval()(inputs).shape)
    if found != (len(inputs), len(dataset.class_names)):
        raise OptionError(
            f"--teacher: it has {found[-1]} outputs; {dataset.name} has {len(dataset.class_names)} classes. "
            "Choose one that was trained on this data."
        )
    digest = sha256()
    for values in teacher.state_dict().values():
        digest.update(values.cpu().numpy().tobytes())
    architecture = "a network" if teacher.card is None else teacher.card.architecture
    return f"{architecture} {digest.hexdigest()[:DIGEST]}"


def _settings(dataset: DataSet, network: SpikingNetwork, training: Training, taught: str) -> dict[str, Any]:
    """Return everything that determines the trained network; resuming compares it."""
    assert network.card is not None
    return {
        "data": dataset.name,
        "samples": len(dataset.train),
        "architecture": network.card.architecture,
        **NEURON_DEFAULTS,
        **network.card.arguments,
        "timesteps": network.timesteps,
        **asdict(training),
        **({"teacher": taught} if taught else {}),
    }


def _check_network(network: SpikingNetwork, dataset: DataSet) -> None:
    """Check before training that the network takes the data, and note if it could not be exported."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise OptionError("the network has no parameters to train.")
    _check_own_neurons(network)
    inputs, classes = read_samples(dataset.test, slice(2))[0], len(dataset.class_names)
    try:
        with torch.no_grad():
            found = tuple(network.eval()(inputs).shape)
    except Exception as error:  # a user's network can raise anything
        raise OptionError(f"the network cannot take samples of {dataset.name}: {error}") from error
    if found != (len(inputs), classes):
        raise OptionError(
            f"the network returns outputs {found} for {len(inputs)} samples; {dataset.name} needs "
            f"({len(inputs)}, {classes})."
        )
    if isinstance(network.body, QuantizedBody):
        return  # already in the form that is exported
    try:
        fold(trace(network))
    except DeployError as error:
        announce(f"note: this network can be trained but not exported: {error}")


def _check_own_neurons(network: SpikingNetwork) -> None:
    """Reject neurons of other libraries: they take one time step per call, not a batch of all steps."""
    if foreign := foreign_neurons(network):
        raise OptionError(
            f"{foreign[0]}: a neuron of another library, which takes one time step per call. Train with that "
            "library, then fold the network with fold(trace(module, input_shape, timesteps))."
        )
