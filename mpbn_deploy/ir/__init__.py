"""The network representations that all other rooms share: trained, folded and integer networks.

    TrainedNetwork  --fold-->  FoldedNetwork  --quantize-->  IntNetwork  --execute-->  Trace

Everything is a frozen record of NumPy arrays that is checked when it is made. No torch.

    trained          TrainedNetwork: the operations of a trained model in order of execution
    graph            Population, Connection and Network, shared by folded and integer networks
    folded, integer  FoldedNetwork (real numbers) and IntNetwork (integers), with their checks
    neurons          the kinds of neurons and their equations
    membranes        the neuron update, written once for integers and real numbers
    modulators       the update of sigma-delta neurons
    shifting         the update of Xylo's neurons
    synapses         Dense and Conv2d: the linear maps between populations
    composition      composes and adds synapses
    pooling          pooling layers as synapses
    values           sums of linear maps plus a constant, as they accumulate between two neurons
    receptive        receptive and projective fields of convolutions
    constants        constants on leaking currents, as neurons that always fire
    counts           numbers of synapses, fan-in and fan-out
    sums             bounds of what arrives in one time step
    relays           pooling as relay populations, and as part of the synapses after it
    splits           long sums in parts, which relays add
    intervals        proved bounds of currents and voltages
    overflow         what becomes of integers that leave their width, as in Lava
    exact_floats     the narrowest float type that computes a sum exactly
    dequantize       IntNetwork -> FoldedNetwork: the real numbers that the integers represent
    trace            Trace: spikes, voltages and outputs of an execution; checks of inputs
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .composition import (
        Synapses as Synapses,
        add as add,
        as_dense as as_dense,
        diagonal_synapse as diagonal_synapse,
        identity_synapse as identity_synapse,
        matrix as matrix,
        pool_synapse as pool_synapse,
        regroup as regroup,
        through as through,
    )
    from .constants import always_fires as always_fires, constant_source as constant_source
    from .counts import (
        connection_fan_in as connection_fan_in,
        connection_fan_out as connection_fan_out,
        connection_synapses as connection_synapses,
        count_synapses as count_synapses,
        counted as counted,
        fan_in as fan_in,
        fan_out as fan_out,
        synapses_into as synapses_into,
        synapses_out_of as synapses_out_of,
        unit_weights as unit_weights,
    )
    from .dequantize import real_network as real_network
    from .exact_floats import (
        exact_float as exact_float,
        largest_sum as largest_sum,
        largest_total as largest_total,
        magnitude as magnitude,
    )
    from .folded import FloatPopulation as FloatPopulation, FoldedNetwork as FoldedNetwork
    from .graph import (
        MOST_NEURONS as MOST_NEURONS,
        MOST_TIMESTEPS as MOST_TIMESTEPS,
        Connection as Connection,
        Network as Network,
        Population as Population,
        timestep_problems as timestep_problems,
    )
    from .integer import (
        IntNetwork as IntNetwork,
        IntPopulation as IntPopulation,
        class_names as class_names,
    )
    from .intervals import Bound as Bound, bounds as bounds, state_intervals as state_intervals
    from .membranes import (
        AnyNetwork as AnyNetwork,
        AnyPopulation as AnyPopulation,
        Decay as Decay,
        Leak as Leak,
        Membrane as Membrane,
        Rule as Rule,
        State as State,
        Truncation as Truncation,
        firing as firing,
        membrane as membrane,
        spiking as spiking,
        update_rule as update_rule,
    )
    from .modulators import Modulator as Modulator
    from .neurons import (
        DECAY_ONE as DECAY_ONE,
        LARGEST_GROWTH as LARGEST_GROWTH,
        LARGEST_SHIFT as LARGEST_SHIFT,
        STATE_EXPONENT as STATE_EXPONENT,
        STATE_LIMIT as STATE_LIMIT,
        THRESHOLD_LIMIT as THRESHOLD_LIMIT,
        XYLO_HIDDEN_SPIKES as XYLO_HIDDEN_SPIKES,
        XYLO_HIGH as XYLO_HIGH,
        XYLO_INPUT_SPIKES as XYLO_INPUT_SPIKES,
        XYLO_LOW as XYLO_LOW,
        XYLO_OUTPUT_SPIKES as XYLO_OUTPUT_SPIKES,
        AnyNeuron as AnyNeuron,
        Delta as Delta,
        FiringNeuron as FiringNeuron,
        FloatFiringNeuron as FloatFiringNeuron,
        FloatLif as FloatLif,
        FloatNeuron as FloatNeuron,
        FloatReadout as FloatReadout,
        FloatSoftLif as FloatSoftLif,
        FloatXylo as FloatXylo,
        Input as Input,
        IntegratingNeuron as IntegratingNeuron,
        Lif as Lif,
        Neuron as Neuron,
        Readout as Readout,
        Relay as Relay,
        Sigma as Sigma,
        SigmaDelta as SigmaDelta,
        SigmaDeltaNeuron as SigmaDeltaNeuron,
        SoftLif as SoftLif,
        Xylo as Xylo,
        at_step as at_step,
        counting as counting,
        fires as fires,
        has_current as has_current,
        in_steps as in_steps,
        integer_neuron as integer_neuron,
        integrating as integrating,
        is_graded as is_graded,
        map_steps as map_steps,
        modulating as modulating,
        neuron_bias as neuron_bias,
        neuron_kind as neuron_kind,
        neuron_subtrahend as neuron_subtrahend,
        neuron_threshold as neuron_threshold,
        sends as sends,
        soft_reset as soft_reset,
        value_range as value_range,
        varies as varies,
        with_values as with_values,
        xylo_reset as xylo_reset,
    )
    from .overflow import (
        clipped_voltage as clipped_voltage,
        wide_sums as wide_sums,
        wrapped as wrapped,
    )
    from .pooling import (
        any_synapse as any_synapse,
        average_synapse as average_synapse,
        pooled_shape as pooled_shape,
        spread_synapse as spread_synapse,
    )
    from .receptive import (
        Axis as Axis,
        ProjectiveFields as ProjectiveFields,
        axes as axes,
        by_group as by_group,
        groups_of as groups_of,
        projective_fields as projective_fields,
        source_channels as source_channels,
    )
    from .relays import (
        behind_pooling as behind_pooling,
        find_poolings as find_poolings,
        pooled_window as pooled_window,
        relay_names as relay_names,
        with_relays as with_relays,
        without_relays as without_relays,
    )
    from .shifting import (
        Shifting as Shifting,
        delivered_counts as delivered_counts,
        delivered_weights as delivered_weights,
        saturated as saturated,
        shift_rules as shift_rules,
    )
    from .splits import can_split as can_split, split_sum as split_sum
    from .sums import sum_of_weights as sum_of_weights
    from .synapses import (
        NO_BORDER as NO_BORDER,
        Border as Border,
        Conv2d as Conv2d,
        Dense as Dense,
        Pair as Pair,
        Shape as Shape,
        Synapse as Synapse,
        apply_synapse as apply_synapse,
        compact as compact,
        largest_per_channel as largest_per_channel,
        output_shape as output_shape,
        patches as patches,
        per_channel as per_channel,
        picture_shape as picture_shape,
        real_weight as real_weight,
        scale_channels as scale_channels,
        scaled as scaled,
        span as span,
        window as window,
    )
    from .trace import (
        Overflow as Overflow,
        SpikeCounts as SpikeCounts,
        Trace as Trace,
        as_steps as as_steps,
        check_input_values as check_input_values,
        count_overflows as count_overflows,
        count_spikes as count_spikes,
        join_counts as join_counts,
        join_overflows as join_overflows,
        overflow_lines as overflow_lines,
        shape_for as shape_for,
    )
    from .trained import (
        INPUT_NAME as INPUT_NAME,
        AdaptivePool as AdaptivePool,
        Add as Add,
        AveragePool as AveragePool,
        BatchNorm as BatchNorm,
        Convolution as Convolution,
        CountingSpike as CountingSpike,
        Delay as Delay,
        Flatten as Flatten,
        Gate as Gate,
        InputFormat as InputFormat,
        Linear as Linear,
        MaxPool as MaxPool,
        Operation as Operation,
        OverTime as OverTime,
        Spike as Spike,
        TracedOperation as TracedOperation,
        TrainedNetwork as TrainedNetwork,
        channel_map as channel_map,
        counting_threshold as counting_threshold,
        product_of_spikes as product_of_spikes,
        stacked as stacked,
    )
    from .values import (
        Affine as Affine,
        Algebra as Algebra,
        Arrival as Arrival,
        Diagonal as Diagonal,
        Value as Value,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
