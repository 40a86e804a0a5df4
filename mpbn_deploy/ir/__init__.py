"""The network representations that all other rooms share: trained, folded and integer networks.

    TrainedNetwork  --fold-->  FoldedNetwork  --quantize-->  IntNetwork  --execute-->  Trace

Everything is a frozen record of NumPy arrays that is checked when it is made. No torch.

    trained      TrainedNetwork: the operations of a trained model in order of execution
    graph        Population, Connection and Network, shared by folded and integer networks; bounds of what
                 arrives in one time step, and the narrowest float type that computes a sum exactly
    networks     FoldedNetwork (real numbers) and IntNetwork (integers), with their checks; numbers of
                 synapses, fan-in and fan-out
    neurons      the kinds of neurons and their equations
    membranes    the neuron update, written once for integers and real numbers; sigma-delta neurons; what
                 becomes of integers that leave their width, as in Lava
    intervals    proved bounds of currents and voltages; the update of Xylo's neurons
    synapses     Dense and Conv2d: the linear maps between populations; receptive and projective fields
    composition  composes and adds synapses
    values       sums of linear maps plus a constant, as they accumulate between two neurons; pooling layers
    relays       exact rewritings: pooling as relay populations, long sums in parts, constants as neurons
                 that always fire; IntNetwork -> FoldedNetwork
    trace        Trace: spikes, voltages and outputs of an execution; checks of inputs
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
    from .graph import (
        MOST_NEURONS as MOST_NEURONS,
        MOST_TIMESTEPS as MOST_TIMESTEPS,
        Connection as Connection,
        Network as Network,
        Population as Population,
        exact_float as exact_float,
        largest_sum as largest_sum,
        largest_total as largest_total,
        magnitude as magnitude,
        sum_of_weights as sum_of_weights,
        timestep_problems as timestep_problems,
    )
    from .intervals import (
        Bound as Bound,
        Shifting as Shifting,
        bounds as bounds,
        delivered_counts as delivered_counts,
        delivered_weights as delivered_weights,
        saturated as saturated,
        shift_rules as shift_rules,
        state_intervals as state_intervals,
    )
    from .membranes import (
        AnyNetwork as AnyNetwork,
        AnyPopulation as AnyPopulation,
        Decay as Decay,
        Leak as Leak,
        Membrane as Membrane,
        Modulator as Modulator,
        Rule as Rule,
        State as State,
        Truncation as Truncation,
        clipped_voltage as clipped_voltage,
        firing as firing,
        membrane as membrane,
        spiking as spiking,
        update_rule as update_rule,
        wide_sums as wide_sums,
        wrapped as wrapped,
    )
    from .networks import (
        FloatPopulation as FloatPopulation,
        FoldedNetwork as FoldedNetwork,
        IntNetwork as IntNetwork,
        IntPopulation as IntPopulation,
        class_names as class_names,
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
    from .relays import (
        always_fires as always_fires,
        behind_pooling as behind_pooling,
        can_split as can_split,
        constant_source as constant_source,
        find_poolings as find_poolings,
        pooled_window as pooled_window,
        real_network as real_network,
        relay_names as relay_names,
        split_sum as split_sum,
        with_relays as with_relays,
        without_relays as without_relays,
    )
    from .synapses import (
        NO_BORDER as NO_BORDER,
        Axis as Axis,
        Border as Border,
        Conv2d as Conv2d,
        Dense as Dense,
        Pair as Pair,
        ProjectiveFields as ProjectiveFields,
        Shape as Shape,
        Synapse as Synapse,
        apply_synapse as apply_synapse,
        axes as axes,
        by_group as by_group,
        compact as compact,
        groups_of as groups_of,
        largest_per_channel as largest_per_channel,
        output_shape as output_shape,
        patches as patches,
        per_channel as per_channel,
        picture_shape as picture_shape,
        projective_fields as projective_fields,
        real_weight as real_weight,
        scale_channels as scale_channels,
        scaled as scaled,
        source_channels as source_channels,
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
        any_synapse as any_synapse,
        average_synapse as average_synapse,
        pooled_shape as pooled_shape,
        spread_synapse as spread_synapse,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
