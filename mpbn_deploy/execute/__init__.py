"""Execute an integer network: IntNetwork + inputs -> Trace, in several independent implementations.

Every executor must give the integers of the reference, bit by bit; `verify` checks that.

    executors            the executor protocol, and the dict that lists all executors
    options              ExecutionOptions, which every executor accepts
    reference            the definition, in NumPy
    c                    the fastest: the network as C, compiled on this machine
    emulator             the fast simulator, in torch
    layers, membranes    populations as the emulator runs them, and the states of their neurons
    modulation           the states of sigma-delta neurons in the emulator
    shifts               networks of Xylo's neurons in the emulator
    narrow               states that leave their width, in networks that we did not quantize
    spike_products       integer products of spikes and weights, used by the emulator
    convolutions         convolutions in forms that torch's libraries compute correctly
    lava/                Lava's CPU simulator, with our process models or its own; lava-dl's netx reader
    outside/             third-party simulators, as witnesses: nengo-loihi, SANA-FE, xylosim
    verilog              the Verilog core in a simulator of hardware, or as a simulated board
    uart                 the same core on an FPGA, at a serial port
    cluster              distributes samples over Dask workers
    trial                a one-neuron network that tests whether an executor works on this machine
    traces               joins traces, reads outputs from them, divides samples into chunks
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .executors import (
        AUTO as AUTO,
        EXECUTORS as EXECUTORS,
        Executor as Executor,
        ListedExecutor as ListedExecutor,
        chip_of as chip_of,
        fastest as fastest,
    )
    from .options import ExecutionOptions as ExecutionOptions
    from .traces import chunks as chunks, outputs_of as outputs_of
    from .trial import check_one_neuron as check_one_neuron, one_neuron as one_neuron
else:
    __getattr__, __dir__ = door(__name__, __file__)
