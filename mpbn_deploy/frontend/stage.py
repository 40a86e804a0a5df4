"""`trace`: torch module -> TrainedNetwork.

torch.fx traces the module; a dictionary from module class to converter gives the meaning of each leaf
module. Your own entries take precedence:

    trace(network, converters={MyNeuron: lambda module: Spike(leak=0.5, threshold=1.0, norm=None)})

A converter returns None for a module that passes its input on unchanged.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ..base import Array, FrontendError, layer_name
from ..ir import InputFormat, Shape, Spike, TrainedNetwork
from ..nn import LIF, SpikingNetwork
from .foreign import check_supported, is_foreign
from .handwritten import HandwrittenError
from .layers import CONVERTERS, Converters
from .operations import UntraceableError, converted, converter_of, fx_graph, known_converters, operations_of
from .recording import ForwardError, copy_to_run, record_step
from .rehearsal import Player, final_output, ready_copy, rehearse, sending


class NoNeuronsError(FrontendError):
    """A module that runs, without neurons of any kind that is known."""


def trace(
    module: nn.Module,
    input_shape: Shape | None = None,
    timesteps: int | None = None,
    *,
    converters: Converters | None = None,
) -> TrainedNetwork:
    """Return the operations of a module as a TrainedNetwork.

    A SpikingNetwork has its own input shape and time steps. Any other module is treated as the body of one:
    it maps [timesteps * batch, *input_shape], raw values 0..255, to outputs. Modules with neurons of
    snnTorch, SpikingJelly or norse, or with handwritten ones, may be written in any of the styles of
    `recording`.
    """
    if isinstance(module, SpikingNetwork):
        given, body = module.input_format, module.body
        timesteps = module.timesteps if timesteps is None else timesteps
    elif input_shape is None or timesteps is None:
        raise FrontendError(
            f"{type(module).__name__}: give input_shape and timesteps, or pass a SpikingNetwork."
        )
    else:
        given, body = _format_of_shape(input_shape), module
    if input_shape is not None and tuple(input_shape) != given.shape:
        raise FrontendError(f"input_shape {tuple(input_shape)}; the network was built for {given.shape}.")
    known = known_converters(converters)
    if is_foreign(body):
        return _followed(body, given, timesteps, known)[1]
    # Then its neurons, if it has any, are computed by forward itself.
    without_lif = not any(isinstance(part, LIF) for part in body.modules())
    traced = copy_to_run(body) if without_lif else body  # forward may keep states, which would become proxies
    try:
        picture = given.as_picture()
        operations = operations_of(fx_graph(traced, known), traced, picture.shape, known)
    except FrontendError as error:
        if not without_lif:
            raise
        try:
            return _followed(body, given, timesteps, known)[1]
        except (ForwardError, NoNeuronsError):
            raise error from None
        except FrontendError as found:
            # The reader that got further speaks: torch.fx, if it has a graph, unless neurons were found.
            further = isinstance(found, HandwrittenError) or isinstance(error, UntraceableError)
            raise (found if further else error) from (error if further else None)
    return TrainedNetwork(input=picture, operations=operations, timesteps=timesteps)


def foreign_player(network: SpikingNetwork) -> Player:
    """Return a network without LIFs of ours, ready to be played.

    Its neurons are those of another library, or forward computes them by itself.
    """
    return _followed(network.body, network.input_format, network.timesteps, known_converters())[0]


def foreign_run(player: Player, network: SpikingNetwork, inputs: Array) -> tuple[dict[str, Array], Array]:
    """Play inputs; return the neurons' spikes [samples, timesteps, *shape] by path, and the outputs.

    A forward that loops over time by itself repeats one input; it then gets the first step of each sample.
    """
    values = torch.tensor(np.asarray(inputs, np.float64))
    changing = values.dim() > 1 + len(network.input_format.shape)
    steps = values.transpose(0, 1) if changing else values.expand(network.timesteps, *values.shape)
    sent, outputs = player.play(network.normalize(steps))
    spikes = {path: each.transpose(0, 1).numpy() for path, each in sent.items()}
    return spikes, final_output(outputs, player.output[1], player.membrane, network.timesteps).numpy()


def _followed(
    body: nn.Module, given: InputFormat, timesteps: int, known: Converters
) -> tuple[Player, TrainedNetwork]:
    """Trace a module without LIFs of ours by running it; then run both and compare spikes."""
    check_supported(body, lambda part: converter_of(part, known) is not None, known)
    layers = tuple(CONVERTERS)
    neuron_classes = tuple(kind for kind in known if not issubclass(kind, layers))
    for path, part in body.named_modules():
        if isinstance(part, neuron_classes) and converter_of(part, known) is not None:
            converted(path, part, known)  # raises if it has no exact equivalent, before anything runs
    try:
        return _followed_in(torch.float64, body, given, timesteps, known, neuron_classes)
    except ForwardError:  # it may hold float32 numbers of its own
        return _followed_in(torch.float32, body, given, timesteps, known, neuron_classes)


def _followed_in(
    dtype: torch.dtype,
    body: nn.Module,
    given: InputFormat,
    timesteps: int,
    known: Converters,
    neuron_classes: tuple[type[nn.Module], ...],
) -> tuple[Player, TrainedNetwork]:
    """Run a copy of the module in this precision, and return it with the network that fires its spikes."""
    module = ready_copy(body, dtype)
    with sending(module, dtype, neuron_classes):
        recorded = record_step(
            module,
            given.shape,
            timesteps,
            dtype,
            lambda part: converter_of(part, known) is not None,
            neuron_classes,
        )
    if not recorded.handwritten and not is_foreign(body):
        raise NoNeuronsError(f"{type(body).__name__}: no neurons were found.")
    read_out = recorded.readout
    trained = TrainedNetwork(
        input=given,
        operations=operations_of(recorded.graph, body, given.shape, known),
        timesteps=timesteps,
        readout_leak=recorded.leak if read_out is None else _readout_leak(body, read_out, known),
    )
    player = Player(
        module=module,
        style=recorded.style,
        output=recorded.output,
        neuron_classes=neuron_classes,
        dtype=dtype,
        handwritten=recorded.handwritten,
        membrane=trained.readout_leak is not None,
    )
    try:
        rehearse(player, trained)
    except FrontendError as error:
        if not recorded.handwritten:
            raise
        raise HandwrittenError(str(error)) from error
    return player, trained


def _readout_leak(body: nn.Module, path: str, known: Converters) -> float:
    """Return the leak of a neuron whose membrane is the output, and which therefore must not reset."""
    module = body.get_submodule(path)
    where, neuron = layer_name(path, type(module).__name__), converted(path, module, known)
    if not isinstance(neuron, Spike) or neuron.subtrahend is None or neuron.subtrahend.any():
        raise FrontendError(
            f"{where}: its membrane is the output, but it resets; only a neuron that never resets, as with "
            "snnTorch's reset_mechanism='none', can be a readout. Return its spikes."
        )
    if isinstance(neuron.leak, np.ndarray) or np.any(neuron.current_leak) or neuron.recurrent is not None:
        raise FrontendError(
            f"{where}: its membrane is the output; only one with one leak and without currents of its own "
            "can be a readout. Return its spikes."
        )
    return neuron.leak


def _format_of_shape(shape: Shape) -> InputFormat:
    channels = shape[0]
    return InputFormat(
        shape=tuple(shape), minimum=0, maximum=255, mean=np.zeros(channels), deviation=np.ones(channels)
    )
