"""Everything the report page shows: the results of all stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ..base import record
from ..fit import FitReport
from ..hardware import HardwareProfile
from ..ir import FiringNeuron, FoldedNetwork, IntNetwork, Population, SpikeCounts, Trace, firing
from ..quantize import RoundingErrors, Widths
from ..verify import VerifyReport
from .svg import population_colors


@record
class ReportContent:
    """The results of one deployment.

    `trace` is the integer network's execution of the first verified samples, and `counted` has its spikes on
    all of them. `folded` is the network before quantization, and `trained_thresholds` are the thresholds
    before folding, by population; `normalized` names the populations whose membrane-potential batch norm was
    folded. `files` maps the files that store the network to their sizes in bytes; reading network.net back
    gave the same integers. The page omits sections whose optional content is missing.
    """

    title: str
    network: IntNetwork
    profile: HardwareProfile
    verify: VerifyReport
    fit: FitReport
    quantization: tuple[RoundingErrors, ...]
    trace: Trace
    counted: SpikeCounts
    facts: Mapping[str, str]
    folded: FoldedNetwork | None = None
    trained_thresholds: Mapping[str, float] = field(default_factory=dict)
    normalized: tuple[str, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # of all stages, for the user
    widths: Widths | None = None

    @property
    def colors(self) -> dict[str, str]:
        """The color of each population, the same in all figures."""
        return population_colors([population.name for population in self.network.layers])

    def spiking(self) -> list[Population[FiringNeuron]]:
        """Return the spiking populations."""
        return list(firing(self.network))

    def firing_rate(self) -> float | None:
        """Return the mean spikes per neuron and time step; None without spiking populations."""
        names = [population.name for population in self.spiking()]
        size = self.counted.samples * self.network.timesteps * sum(p.size for p in self.spiking())
        return sum(float(self.counted.per_step[name].sum()) for name in names) / size if size else None
