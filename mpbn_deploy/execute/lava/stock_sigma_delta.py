"""Run a sigma-delta network.net in lava-dl's own netx reader, with Lava's own processes and models.

lava-dl never resets sigma-delta neurons, so every sample runs in a new network. Its reader does not connect
the neurons of the input layer; samples are sent to them directly, as lava-dl's own tests do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base import Array
from ...ir import IntNetwork, Trace, sends
from ..traces import outputs_of
from .compat import load_netx
from .execute import run_steps, started
from .models import TapeInputModel, TapeOutputModel
from .plans import lava_shape, message_bits
from .processes import TapeInput, TapeOutput
from .tapes import Tape

# isort: split
from lava.magma.core.run_configs import Loihi2SimCfg


def run_sigma_delta(path: Path, network: IntNetwork, sample: Array, patience: float) -> Trace:
    """Run one sample, [timesteps, *shape]; the trace has the sums of a Sigma at the end."""
    bits = message_bits(network.input)
    stock = load_netx().Network(net_config=str(path), input_message_bits=bits)
    shape, steps = lava_shape(network.input.shape), network.timesteps
    tape = Tape(steps, shape, np.int32)
    tape.values[:] = sample.transpose(0, *range(len(shape), 0, -1))
    source = TapeInput(shape=shape, tape=tape, name=network.input.name)
    first = stock.layers[0]
    encodes = first.block == "Input"
    flat = len(shape) == 3 and len(first.inp.shape) == 1
    port = source.s_out.transpose([2, 1, 0]).flatten() if flat else source.s_out
    port.connect(first.neuron.a_in if encodes else stock.inp)
    tapes = {p.name: Tape(steps, lava_shape(p.shape), np.int32) for p in network.layers}
    with started(source, recording(source, stock.layers, list(tapes.values()))):
        run_steps(source, steps, patience)
    return _trace(network, tapes)


def recording(source: TapeInput, layers: Sequence[Any], tapes: Sequence[Tape]) -> Loihi2SimCfg:
    """Connect a tape to the output of each layer of lava-dl's; return the run configuration."""
    models: dict[Any, type] = {source: TapeInputModel}
    for layer, tape in zip(layers, tapes, strict=True):
        sink = TapeOutput(shape=layer.out.shape, tape=tape)
        layer.out.connect(sink.s_in)
        models[sink] = TapeOutputModel
    return Loihi2SimCfg(select_tag="fixed_pt", exception_proc_model_map=models)


def _trace(network: IntNetwork, tapes: dict[str, Tape]) -> Trace:
    """Return what was sent; Sigma sends its sums, which are no messages."""
    spikes: dict[str, Array] = {}
    voltages: dict[str, Array] = {}
    for population in network.layers:
        stream = tapes[population.name].values
        values = stream.transpose(0, *range(stream.ndim - 1, 0, -1))[None].astype(np.int64)
        (spikes if sends(population.neuron) else voltages)[population.name] = values
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs_of(network, spikes, voltages))
