"""The keys that a hardware profile may hold, and the kind of number each is.

`formats` are the number formats of neurons and synapses; `layer` and `network` restrict layers and the whole
network; `core` and `chip` are capacities; `energy`, `power` and `time` are costs. hw_profiles/README.md
documents the keys for authors of profiles.
"""

from __future__ import annotations

SCHEMA = 1
HEADINGS = ("name", "title", "description")
PLACEMENT = "placement"  # the heading that selects how cores are filled
EXTENDS, WITHOUT = "extends", "without"  # headings: a profile to start from, and its keys to leave out
SIMULATOR = "simulator"  # the heading of a target that is not a chip
PLACEMENTS = ("words", "crossbar", "layers", "whole", "program", "fabric", "unknown")
BASES = ("published", "measured", "fitted", "derived")  # how a number was obtained
CHIP = "chip"  # the table of capacities of a chip
SYSTEMS = "systems"  # the table of boards: name -> number of chips

FORMATS: dict[str, str] = {
    "formats.weight_bits": "bits of a stored weight, sign included",
    "formats.input_weight_bits": "bits of a weight that reads the input, if different from weight_bits",
    "formats.weight_exponent_minimum": "smallest exponent of weights; at 0, a weight of 1 adds 2**6",
    "formats.weight_exponent_maximum": "largest exponent of weights",
    "formats.threshold_minimum": "smallest threshold, in units of 2**6 states",
    "formats.threshold_maximum": "largest threshold, in units of 2**6 states",
    "formats.bias_mantissa_bits": "bits of a bias before its exponent, sign included",
    "formats.bias_exponent_minimum": "smallest exponent of a bias; absent: 0",
    "formats.bias_exponent_maximum": "largest exponent of a bias",
    "formats.decay_bits": "bits of a decay register, unsigned; 2**bits clears the state in one step",
    "formats.decay_current_offset": "offset that the chip adds to the decay register of the current",
    "formats.decay_voltage_offset": "offset that the chip adds to the decay register of the voltage",
    "formats.decay_shift_maximum": "largest k of a state that decays by 2**-k of itself per step",
    "formats.state_bits": "bits of a current or voltage, sign included",
    "formats.message_bits": "bits of the number that a spike carries; 1 is a binary spike, more are signed",
    "formats.delay_maximum": "largest delay of a connection, in time steps",
    "formats.membrane": "1 if the voltage persists from step to step, 0 if not",
    "formats.leak": "1 if the voltage can lose a fraction of itself per step, 0 if not",
    "formats.current": "1 if the current can persist beyond its time step, 0 if not",
    "formats.reset_to_zero": "1 if a spike can reset the voltage to zero, 0 if not",
    "formats.soft_reset": "core neurons that a neuron with a soft reset takes; 0 if there is none",
    "formats.sigma_delta": "1 if neurons can send the changes of an activation (sigma-delta), 0 if not",
    "formats.subtrahend": "1 if a soft reset can subtract a number other than the threshold, 0 if not",
    "formats.step_parameters": "1 if the numbers of neurons can differ from time step to time step, 0 if not",
    "formats.neuron_programs": "1 if neurons are programs, and how one writes them is not public, 0 if not",
    "formats.process_thresholds": "thresholds per population that the chip's public software declares",
    "formats.time_steps": "1 if the chip works in time steps, 0 if events act when they arrive",
    "formats.digital": "1 if states are integers, 0 if they are analog and never exact",
}

LAYERS: dict[str, str] = {
    "layer.dense": "1 if layers may be fully connected, 0 if not",
    "layer.convolution": "1 if layers may be convolutions, 0 if not",
    "layer.recurrence": "1 if connections may be recurrent, 0 if not",
    "layer.kernel_sizes": "allowed heights and widths of a kernel",
    "layer.kernel_square": "1 if kernels must be square, 0 if not",
    "layer.strides": "allowed strides of a convolution",
    "layer.pooling": "sides of the square windows over which a core can sum its spikes as it sends them",
    "layer.padding_maximum": "largest padding of a convolution",
    "layer.dilation_maximum": "largest dilation of a convolution",
    "layer.groups_maximum": "most groups of a convolution",
    "layer.input_side_maximum": "largest height and width of a convolution's input maps",
    "layer.output_side_maximum": "largest height and width of a convolution's output maps",
    "layer.channels_maximum": "most channels of a map",
    "layer.fan_in_maximum": "most synapses into one neuron",
    "layer.fan_out_maximum": "most synapses out of one neuron",
    "layer.dense_inputs_maximum": "most inputs of a fully connected layer",
    "layer.targets_maximum": "most populations that one population may send spikes to",
    "layer.exact_width_maximum": "widest source map of a convolution of which no spike is dropped",
    "layer.thresholds": "distinct thresholds within one layer",
}

NETWORKS: dict[str, str] = {
    "network.inputs_maximum": "most inputs of a network, pixels or features",
    "network.input_minimum": "smallest input value in a time step, if message_bits does not determine it",
    "network.input_maximum": "largest input value in a time step, if message_bits does not determine it",
    "network.hidden_maximum": "most neurons between input and output",
    "network.outputs_maximum": "most output neurons of a network",
    "network.input_reach": "hidden neurons that inputs may reach",
    "network.output_reach": "hidden neurons that outputs may read",
    "network.synapses_maximum": "most synapses between hidden neurons",
}

CORES: dict[str, str] = {
    "core.neurons": "neurons on one core",
    "core.neuron_groups": "populations that may share one core",
    "core.input_axons": "axons that may enter one core",
    "core.synapse_words": "memory words for the synapses of one core",
    "core.axon_map_entries": "entries for spikes that leave one core",
    "core.total_words": "memory words of one core for axons, neurons, synapses and axon maps together",
    "core.thresholds": "distinct thresholds on one core",
    "core.word_bits": "bits of a memory word",
    "core.index_bits": "index bits stored with each weight of a dense row",
    "core.shared_index_bits": "index bits stored with each weight of a convolution's shared kernel",
    "core.row_header_bits": "header bits of each row of weights",
    "core.row_entries": "weights per row header; absent: one header per row",
    "core.shared_axons": "axons through which a convolution enters a core; absent: one per source pixel",
    "core.zero_weights_stored": "1 if a dense row stores zero weights, 0 if it drops them",
    "core.sparse_index_bits": "index bits of a weight in a sparse row, without zeros; absent: no such rows",
    "core.axon_memory_words": "memory words for the lists of target cores of one core's spikes",
    "core.axon_memory_targets": "target cores in one word of such a list",
    "core.input_words": "memory words of one core for input axons and synapses together",
    "core.row_shifts": "neurons by which one stored row can be shifted to serve another axon; absent: any",
    "core.stored_weight_bits": "allowed widths of stored weights; each weight takes the first that holds it",
    "core.stored_index_bits": "allowed widths of a convolution's stored indices; absent: shared_index_bits",
    "core.axon_types": "types of axon; a neuron has one weight per type, and a synapse is on or off",
    "core.axon_weight_bits": "bits of a neuron's weight for one type of axon, sign included",
    "core.axons_per_signed_input": "axons that an input with weights of both signs takes in a crossbar",
    "core.targets_per_neuron": "axons that one neuron can send spikes to",
    "core.kernel_words": "memory words for kernels, one number per core",
    "core.neuron_words": "memory words for neuron states, one number per core",
    "core.bias_words": "memory words for biases, one number per core",
    "core.memory_bytes": "bytes of memory of one core, for everything",
}

CHIPS: dict[str, str] = {
    "chip.cores": "cores of one chip",
    "chip.grid_columns": "routers from east to west",
    "chip.grid_rows": "routers from north to south",
    "chip.cores_per_router": "cores per router",
    "chip.flash_bytes": "bytes of flash, for the code and tables of a program",
    "chip.ram_bytes": "bytes of memory that one array of a program may take",
    "chip.clock_megahertz": "highest clock of the processor",
    "chip.word_bits": "bits of the processor's registers",
    f"{SYSTEMS}.*": "chips on the board of this name",
}

FABRICS: dict[str, str] = {
    "fabric.logic_cells": "cells of an FPGA, each a lookup table of four inputs and a register",
    "fabric.block_rams": "blocks of RAM with a read port and a write port",
    "fabric.block_ram_width": "bits of a word of a block of RAM, at its widest",
    "fabric.block_ram_depth": "words of a block of RAM, at its widest; twice as many of half the width",
    "fabric.single_port_bytes": "bytes of RAM with a single port, empty after configuration; absent: none",
    "fabric.multipliers": "multipliers of at least 16 x 16 bits",
    "fabric.lanes": "neurons that the core charges in parallel, each with a multiplier",
    "fabric.clock": "frequency, in MHz, for which the core is placed and routed",
}

COSTS: dict[str, str] = {
    "energy.synaptic_operation": "picojoules to add one weight to one neuron",
    "energy.neuron_update": "picojoules for one neuron in one time step",
    "energy.spike": "picojoules for a spike that leaves its neuron",
    "energy.hop": "picojoules for a spike from one router to the next",
    "energy.chip_crossing": "picojoules for a spike from one chip to the next",
    "energy.barrier": "picojoules of one chip for the synchronization at the end of a time step",
    "energy.host_message": "picojoules for a number that the host sends to a chip, or receives from it",
    "power.static": "milliwatts of one idle chip",
    "time.synaptic_operation": "nanoseconds to add one weight to one neuron",
    "time.neuron_update": "nanoseconds for one neuron in one time step",
    "time.spike": "nanoseconds for a spike that leaves its neuron",
    "time.hop": "nanoseconds for a spike from one router to the next",
    "time.barrier": "nanoseconds for all cores to synchronize at the end of a time step",
    "time.step": "nanoseconds of a time step, if the chip fixes it",
}

KEYS: dict[str, str] = {**FORMATS, **LAYERS, **NETWORKS, **CORES, **CHIPS, **FABRICS, **COSTS}

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
        "formats.soft_reset",
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
LIST_KEYS = frozenset({"layer.kernel_sizes", "layer.strides", "layer.pooling"}) | CORE_LISTS | WIDTHS
# Non-negative real numbers, optionally with the range over which sources disagree.
COST_KEYS = frozenset(COSTS)
