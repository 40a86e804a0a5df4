"""Design rules of a chip: each is a function whose name states what must hold.

A rule takes a Design (network, profile, placement, number of chips) and returns Findings.

    design       Design, Finding, and what rules are made of; neuron models: membrane, leak, current, reset,
                 time steps, integer states
    formats      numbers: weights, thresholds, biases, decays, states, messages, delays
    layers       shapes: layer types, kernels, maps, fan-in and fan-out, recurrence
    capacity     resources: cores, thresholds per core, inputs, hidden neurons, outputs; the memories of our
                 core in an FPGA; RULES, all rules in the order of the report

All rules run, and every violation is found. An error means that the network does not fit. "not known" means
that no public source says whether the chip can. A warning means that the network can be placed, but the chip
will not execute it bit for bit. A rule whose limits are missing from the profile reports "not checked" unless
it cannot apply. Limits that only some chips have (kernels, fan-in, network size) are reported as missing only
if the profile has a related limit. All numbers come from the profile.
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .capacity import (
        RULES as RULES,
        FabricUse as FabricUse,
        fabric_use as fabric_use,
        uses_single_port as uses_single_port,
    )
    from .design import Design as Design, Finding as Finding, Severity as Severity
else:
    __getattr__, __dir__ = door(__name__, __file__)
