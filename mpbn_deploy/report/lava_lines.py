"""The lines of Python that run an exported network.net in lava-dl's own reader."""

from __future__ import annotations

from math import prod

from ..ir import Conv2d, IntNetwork, fires, modulating
from ..verify import VerifyReport

_LINES = """\
import numpy as np
from mpbn_deploy.execute.lava import load_netx  # imports Lava on Python 3.11 and newer

Network = load_netx().Network  # on Python 3.10 also: from lava.lib.dl.netx.hdf5 import Network
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg
from lava.proc.io.source import RingBuffer

network = Network("network.net", input_message_bits={bits}, reset_interval={timesteps}, reset_offset=1)
source = RingBuffer(data=np.load("samples.npy"))  # one sample of yours, {shape}: {axes}, time step
source.s_out.connect(network.inp){recording}
network.run(condition=RunSteps(num_steps={steps}), run_cfg=Loihi2SimCfg(select_tag="fixed_pt"))
print({output}
network.stop()"""
_RECORDING = """
from lava.proc.io.sink import RingBuffer as Recording
recording = Recording(shape=network.out.shape, buffer={steps})
network.out.connect(recording.a_in)"""
_VOLTAGES = "network.layers[-1].neuron.v.get().astype(int))  # the output: the voltage of the readout"
_COUNTS = "recording.data.get()[..., {depth}:].sum(axis=-1).astype(int))  # the output: the number of spikes"


def reader_obstacle(network: IntNetwork, report: VerifyReport) -> str | None:
    """Return why lava-dl's reader alone does not run the network; None if the lines below do."""
    if report.stock_reader_obstacle is not None:
        return report.stock_reader_obstacle
    for population in network.layers:
        if modulating(population.neuron) is not None:
            return f"{population.name}: sigma-delta neurons, which lava-dl never resets"
    return None


def lava_lines(network: IntNetwork) -> str:
    """Return the lines that print the output of one sample.

    A layer at depth d sees the stream d steps late, so the last layer ends its sample after as many more
    steps as there are layers.
    """
    depth, timesteps = len(network.layers), network.timesteps
    steps, counted = timesteps + depth, fires(network.output.neuron)
    shape, axes = _sample(network)
    return _LINES.format(
        bits=_message_bits(network),
        timesteps=timesteps,
        steps=steps,
        shape=(*shape, timesteps),
        axes=axes,
        recording=_RECORDING.format(steps=steps) if counted else "",
        output=_COUNTS.format(depth=depth) if counted else _VOLTAGES,
    )


def _sample(network: IntNetwork) -> tuple[tuple[int, ...], str]:
    """Return the shape of an input in lava-dl's reader, and the names of its axes."""
    shape = network.input.shape
    if isinstance(network.connections[0].synapse, Conv2d):
        return shape[::-1], "x, y, channel"
    return (prod(shape),), "feature" if len(shape) == 1 else "pixel (channel, y, x)"


def _message_bits(network: IntNetwork) -> int:
    """Return the bits of a signed message that holds every input value."""
    allowed = network.input_range
    return max(allowed.maximum, -allowed.minimum).bit_length() + 1
