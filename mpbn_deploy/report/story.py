"""All that the page shows, from the stages that came before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..base import record
from ..fit import FitReport
from ..hardware import HardwareProfile
from ..ir import FoldedNetwork, IntNetwork, IntPopulation, Lif, Trace
from ..verify import VerifyReport


@record
class Story:
    """A network on its way to a chip; `trace` is the integer network's, on the verified samples.

    `folded` is the network before its numbers were rounded, and `trained_thresholds` are those of its
    populations before the normalization was folded into them. `files` are those that hold the network, with
    their bytes; the integers were read back, and are these. What is not given is not shown.
    """

    title: str
    network: IntNetwork
    profile: HardwareProfile
    verify: VerifyReport
    fit: FitReport
    quantization: list[dict[str, Any]]
    trace: Trace
    facts: Mapping[str, str]
    folded: FoldedNetwork | None = None
    trained_thresholds: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)

    def spiking(self) -> list[tuple[IntPopulation, Lif]]:
        """The populations that fire, each with its neuron."""
        return [(p, p.neuron) for p in self.network.populations if isinstance(p.neuron, Lif)]

    def firing_rate(self) -> float | None:
        """Spikes per neuron and time step, over all neurons that can fire; None where none can."""
        spikes = [self.trace.spikes[population.name] for population, _ in self.spiking()]
        count = sum(values.size for values in spikes)
        return sum(float(values.sum()) for values in spikes) / count if count else None
