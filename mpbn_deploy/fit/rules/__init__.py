"""The design rules of a chip, each a function named as the sentence that must hold.

    design          what a rule is, and what it finds
    formats         numbers: weights, thresholds, biases, decays, states, messages, delays
    neurons         what a neuron can do: keep a voltage, leak, reset, count in integers and time steps
    layers          shapes: kinds of layers, kernels, maps, fan-in and fan-out, circles
    capacity        how much: cores, thresholds on a core, inputs, hidden neurons and outputs

All rules always run, and everything that breaks one is found. An error decides whether a network fits. A
warning says that it can be placed, but that what runs there will not be this network bit for bit. A rule
whose limits the profile does not know says "not checked" instead of passing, unless it cannot apply:
of limits that only some chips have (kernels, fan-in, sizes of the whole network), one is missed only
where the profile states another of its kind. All numbers are the profile's.
"""

from typing import TYPE_CHECKING

from ...base.doors import door

if TYPE_CHECKING:
    from .design import Design as Design, Finding as Finding
    from .register import RULES as RULES
else:
    __getattr__, __dir__ = door(__name__, __file__)
