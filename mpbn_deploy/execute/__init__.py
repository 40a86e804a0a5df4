"""Execute an integer network: IntNetwork + inputs -> Trace, in several independent implementations.

Every executor must give the integers of the reference, bit by bit; `verify` checks that.

    executors      the executor protocol, and the dict that lists all executors
    reference      the definition, in NumPy; ExecutionOptions, which every executor accepts; traces joined
                   and divided; a one-neuron network that tests whether an executor works on this machine
    c              the fastest: the network as C, compiled on this machine
    emulator       the fast simulator, in torch
    layers         populations as the emulator runs them
    membranes      the states of their neurons; sigma-delta and Xylo's neurons
    products       integer products of spikes and weights, convolutions that torch computes correctly
    lava/          Lava's CPU simulator, with our process models or its own; lava-dl's netx reader
    outside/       third-party simulators, as witnesses: nengo-loihi, SANA-FE, xylosim
    verilog        the Verilog core in a simulator of hardware, as a simulated board, or on an FPGA
    cluster        distributes samples over Dask workers
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
    from .reference import (
        ExecutionOptions as ExecutionOptions,
        check_one_neuron as check_one_neuron,
        chunks as chunks,
        one_neuron as one_neuron,
        outputs_of as outputs_of,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
