"""Check whether a network fits a chip, and estimate what a sample costs there.

IntNetwork + HardwareProfile (+ Activity) -> FitReport

    stage         fit: placement, design rules, traffic, chips and costs in one report; its verdict
    rules/        the design rules of a chip
    chips         assignment of cores to chips, and the loads of the links between them
    activity      spikes and synaptic operations; spikes between cores; the metrics of NeuroBench
    measurement   counts them on samples; a network before its training
    energy        energy and time per sample
    form          the form with the fewest cores that fits; the request of the command line; the network
                  without what the host computes
    search        other forms and integers for the network of an export folder: the fewest cores with equal
                  integers, thresholds per channel, core and population
    advice        changes that make a network fit, each tried
    text          the printed reports; command and __main__ are the command line
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .activity import (
        Activity as Activity,
        NeuroBenchMetrics as NeuroBenchMetrics,
        core_loads as core_loads,
        neurobench_metrics as neurobench_metrics,
        operations as operations,
        used_bits as used_bits,
    )
    from .advice import Advice as Advice
    from .chips import ChipMap as ChipMap
    from .energy import (
        JOULES as JOULES,
        SECONDS as SECONDS,
        WATTS as WATTS,
        CostItem as CostItem,
        EnergyReport as EnergyReport,
        Range as Range,
        estimate as estimate,
        headline as headline,
        quantity as quantity,
        range_ends as range_ends,
        spread as spread,
    )
    from .form import (
        check_sides as check_sides,
        fit_on_chip as fit_on_chip,
        resolved_pooling as resolved_pooling,
    )
    from .measurement import measure as measure
    from .rules import FabricUse as FabricUse, fabric_use as fabric_use, uses_single_port as uses_single_port
    from .search import SearchResult as SearchResult, ThresholdVariant as ThresholdVariant
    from .stage import (
        DEPENDS as DEPENDS,
        FitReport as FitReport,
        LayerFit as LayerFit,
        by_rule as by_rule,
        conditions as conditions,
        cost_line as cost_line,
        fit as fit,
        full_verdict as full_verdict,
        short_verdict as short_verdict,
        verdict_color as verdict_color,
        verdict_sentence as verdict_sentence,
        verdict_word as verdict_word,
    )
    from .text import (
        column as column,
        energy_table as energy_table,
        fit_text as fit_text,
        shown_resources as shown_resources,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
