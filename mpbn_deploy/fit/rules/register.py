"""List all design rules in the order of the report."""

from __future__ import annotations

from .capacity import CAPACITY_RULES
from .design import Rule
from .fabric import FABRIC_RULES
from .formats import FORMAT_RULES
from .layers import LAYER_RULES
from .neurons import NEURON_RULES

RULES: tuple[Rule, ...] = (*FORMAT_RULES, *NEURON_RULES, *LAYER_RULES, *CAPACITY_RULES, *FABRIC_RULES)
