"""Check whether a network fits a chip, and estimate what a sample costs there.

IntNetwork + HardwareProfile (+ Activity) -> FitReport

    stage         fit: placement, design rules, traffic, chips and costs in one report; its verdict
    rules/        the design rules of a chip
    spike_traffic spikes sent between cores
    chips         assignment of cores to chips; links has the loads of the links between chips
    activity      spikes and synaptic operations; measurement counts them on samples
    energy        energy and time per sample; energy_text prints them
    neurobench    the metrics of NeuroBench
    fabric        what the Verilog core takes of an FPGA
    form          the form with the fewest cores that fits
    host_layer    the network without its first layer or readout, which the host computes
    question      the request of the command line: network, chip, options of placement
    untrained     a network before its training, with what `assumed` says of it
    requantize    other integers for the network of an export folder
    threshold_variants, threshold_text: thresholds per channel, core and population, compared and printed
    advice        changes that make a network fit, each tried; advice_text prints them
    search        the fewest cores with equal integers; search_text prints them
    next_command  what to type next
    text          the printed report; command and __main__ are the command line
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .activity import Activity as Activity, core_loads as core_loads, operations as operations
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
    from .energy_text import energy_table as energy_table
    from .fabric import FabricUse as FabricUse, fabric_use as fabric_use, uses_single_port as uses_single_port
    from .form import fit_on_chip as fit_on_chip, resolved_pooling as resolved_pooling
    from .host_layer import check_sides as check_sides
    from .measurement import measure as measure
    from .neurobench import (
        NeuroBenchMetrics as NeuroBenchMetrics,
        neurobench_metrics as neurobench_metrics,
        used_bits as used_bits,
    )
    from .search import SearchResult as SearchResult
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
    from .text import column as column, fit_text as fit_text, shown_resources as shown_resources
    from .threshold_variants import ThresholdVariant as ThresholdVariant
else:
    __getattr__, __dir__ = door(__name__, __file__)
