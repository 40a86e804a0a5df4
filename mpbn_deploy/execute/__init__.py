"""Executors: the ways to execute an integer network, each in a file or folder of its own.

executors            the protocol, and the dict that lists them all
options              what an execution is told
reference            the definition, in NumPy
emulator             the fast one, in torch (spike_convolution: its convolutions of spikes)
lava/                Lava's CPU simulator with our process models and with its own; lava-dl's netx reader
trial                one neuron, to see whether an executor works here
cluster              samples shared out over workers
"""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .executors import EXECUTORS as EXECUTORS, Executor as Executor, ListedExecutor as ListedExecutor
    from .options import ExecutionOptions as ExecutionOptions
    from .trial import one_neuron as one_neuron, one_neuron_fires as one_neuron_fires
else:
    __getattr__, __dir__ = door(__name__, __file__)
