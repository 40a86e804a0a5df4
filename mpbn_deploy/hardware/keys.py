"""The keys that a hardware profile may hold, and the kind of number each is.

`formats` are the number formats of neurons and synapses; `layer` and `network` restrict layers and the whole
network; `core` and `chip` are capacities; `energy`, `power` and `time` are costs. hw_profiles/README.md
documents the keys for authors of profiles.
"""

from __future__ import annotations

SCHEMA = 1
HEADINGS = ("name", "title", "description")
PLACEMENT = "placement"  # the heading that selects how cores are filled
PLACEMENTS = ("words", "crossbar", "layers", "whole", "unknown")
BASES = ("published", "measured", "fitted", "derived")  # how a number was obtained
SYSTEMS = "systems"  # the table of boards: name -> number of chips

FORMATS: dict[str, str] = {
    "formats.weight_bits": "bits of a stored weight, sign included",
    "formats.input_weight_bits": "bits of a weight that reads the input, where they differ from weight_bits",
    "formats.weight_exponent_minimum": "smallest exponent of a connection; at 0 a weight of 1 adds 2**6",
    "formats.weight_exponent_maximum": "largest exponent of a connection",
    "formats.threshold_minimum": "smallest threshold, in units of 2**6 states",
    "formats.threshold_maximum": "largest threshold, in units of 2**6 states",
    "formats.bias_mantissa_bits": "bits of a bias before its exponent, sign included",
    "formats.bias_exponent_minimum": "smallest exponent of a bias; absent: 0",
    "formats.bias_exponent_maximum": "largest exponent of a bias",
    "formats.decay_bits": "bits of a decay register, without sign; 2**bits forgets everything in one step",
    "formats.decay_current_offset": "what the chip adds to the register of the current's decay",
    "formats.decay_voltage_offset": "what the chip adds to the register of the voltage's decay",
    "formats.decay_shift_maximum": "largest k of a decay by 2**-k per step, where it decays by shifting",
    "formats.state_bits": "bits of a current or voltage, sign included",
    "formats.message_bits": "bits of the number that a spike carries; 1 is a plain spike, more have a sign",
    "formats.delay_maximum": "largest delay of a connection, in time steps",
    "formats.membrane": "1 if neurons keep a voltage from step to step, 0 if they do not",
    "formats.leak": "1 if a voltage can lose a share of itself per step, 0 if it cannot",
    "formats.current": "1 if a current can outlast its time step, 0 if synapses act on the voltage at once",
    "formats.reset_to_zero": "1 if a spike can reset the voltage to zero, 0 if it cannot",
    "formats.time_steps": "1 if the chip works in time steps, 0 if events arrive whenever they do",
    "formats.digital": "1 if states are integers, 0 if they are analogue and so never exact",
}

LAYERS: dict[str, str] = {
    "layer.dense": "1 if a layer may be fully connected, 0 if not",
    "layer.convolution": "1 if a layer may be a convolution, 0 if not",
    "layer.recurrence": "1 if spikes may run in a circle, 0 if not",
    "layer.kernel_sizes": "heights and widths that a kernel may have",
    "layer.kernel_square": "1 if a kernel must be as high as wide, 0 if not",
    "layer.strides": "strides that a convolution may have",
    "layer.padding_maximum": "largest padding of a convolution",
    "layer.dilation_maximum": "largest dilation of a convolution",
    "layer.groups_maximum": "most groups of a convolution",
    "layer.input_side_maximum": "largest height and width of the maps a convolution reads",
    "layer.output_side_maximum": "largest height and width of the maps a convolution makes",
    "layer.channels_maximum": "most channels of a map",
    "layer.fan_in_maximum": "most synapses into one neuron",
    "layer.fan_out_maximum": "most synapses that leave one neuron",
    "layer.dense_inputs_maximum": "most inputs of a fully connected layer",
    "layer.targets_maximum": "most populations that one population may send its spikes to",
    "layer.thresholds": "distinct thresholds within one layer",
}

NETWORKS: dict[str, str] = {
    "network.inputs_maximum": "most inputs of a network, pixels or features",
    "network.input_minimum": "smallest value of an input in a time step, where message_bits does not say it",
    "network.input_maximum": "largest value of an input in a time step, likewise",
    "network.hidden_maximum": "most neurons between input and output",
    "network.outputs_maximum": "most output neurons of a network",
    "network.input_reach": "hidden neurons that inputs may reach",
    "network.output_reach": "hidden neurons that outputs may read",
    "network.synapses_maximum": "most synapses between hidden neurons",
}

CORES: dict[str, str] = {
    "core.neurons": "neurons of one core",
    "core.neuron_groups": "populations that may share one core",
    "core.input_axons": "axons that may enter one core",
    "core.synapse_words": "memory words for the synapses of one core",
    "core.axon_map_entries": "entries for spikes that leave one core",
    "core.total_words": "memory words of one core for all of the above together",
    "core.thresholds": "distinct thresholds on one core",
    "core.word_bits": "bits of a memory word",
    "core.index_bits": "bits beside each weight of a dense row that say which neuron it goes to",
    "core.shared_index_bits": "the same for a row of a shared convolution kernel",
    "core.row_header_bits": "bits in front of each row of weights",
    "core.row_entries": "weights after which a row needs another header; absent: a row may be of any length",
    "core.shared_axons": "axons by which a convolution enters a core; absent: one per source pixel",
    "core.zero_weights_stored": "1 if a dense row keeps a place for zero weights, 0 if it drops them",
    "core.axon_memory_words": "memory words for the lists of cores that the spikes of one core go to",
    "core.axon_memory_targets": "target cores in one word of such a list",
    "core.input_words": "memory words for input axons and synapses of one core together",
    "core.row_shifts": "neurons by which one stored row can be shifted to serve another axon; absent: any",
    "core.stored_weight_bits": "widths in which weights are stored, each in the first that holds it",
    "core.stored_index_bits": "widths of the index beside a convolution's weight; absent: shared_index_bits",
    "core.axon_types": "kinds of axon; a neuron has one weight for each, and a synapse is on or off",
    "core.axon_weight_bits": "bits of the weight that a neuron has for one kind of axon, sign included",
    "core.axons_per_signed_input": "axons of a crossbar that an input with weights of both signs takes",
    "core.targets_per_neuron": "axons that one neuron can send its spikes to",
    "core.kernel_words": "of each core, words for kernels",
    "core.neuron_words": "of each core, words for the states of neurons",
    "core.bias_words": "of each core, words for biases",
    "core.memory_bytes": "bytes of the memory of one core, for everything",
}

CHIPS: dict[str, str] = {
    "chip.cores": "cores of one chip",
    "chip.grid_columns": "routers from east to west",
    "chip.grid_rows": "routers from north to south",
    "chip.cores_per_router": "cores at one router",
    f"{SYSTEMS}.*": "chips of a board, by the name of the board",
}

COSTS: dict[str, str] = {
    "energy.synaptic_operation": "picojoules for adding one weight to one neuron",
    "energy.neuron_update": "picojoules for one neuron in one time step",
    "energy.spike": "picojoules for a spike that leaves its neuron",
    "energy.hop": "picojoules for a spike from one router to the next",
    "energy.chip_crossing": "picojoules for a spike from one chip to the next",
    "power.static": "milliwatts of one chip that does nothing",
    "time.synaptic_operation": "nanoseconds for adding one weight to one neuron",
    "time.neuron_update": "nanoseconds for one neuron in one time step",
    "time.spike": "nanoseconds for a spike that leaves its neuron",
    "time.hop": "nanoseconds for a spike from one router to the next",
    "time.barrier": "nanoseconds in which all cores agree that a time step is over",
    "time.step": "nanoseconds of a time step, where the chip fixes it",
}

KEYS: dict[str, str] = {**FORMATS, **LAYERS, **NETWORKS, **CORES, **CHIPS, **COSTS}

# Ranges whose ends may be negative.
RANGES = ("formats.weight_exponent", "formats.threshold", "network.input")
SIGNED_KEYS = frozenset(f"{name}_{end}" for name in RANGES for end in ("minimum", "maximum"))
FLAGS = frozenset(key for key, meaning in KEYS.items() if meaning.startswith("1 if "))
ZERO_KEYS = frozenset(
    {
        *FLAGS,
        "formats.bias_exponent_minimum",
        "formats.bias_exponent_maximum",
        "formats.decay_current_offset",
        "formats.decay_voltage_offset",
        "formats.delay_maximum",
        "layer.padding_maximum",
        "core.index_bits",
        "core.shared_index_bits",
        "core.row_header_bits",
    }
)
# Required to quantize a network for a chip.
EXPORT_KEYS = (
    "formats.weight_bits",
    "formats.threshold_maximum",
    "formats.bias_mantissa_bits",
    "formats.decay_bits",
)
# Lists of integers: allowed values, or one per core.
CORE_LISTS = frozenset({"core.kernel_words", "core.neuron_words", "core.bias_words"})
WIDTHS = frozenset({"core.stored_weight_bits", "core.stored_index_bits"})
LIST_KEYS = frozenset({"layer.kernel_sizes", "layer.strides"}) | CORE_LISTS | WIDTHS
# Non-negative real numbers, optionally with the range over which sources disagree.
COST_KEYS = frozenset(COSTS)
