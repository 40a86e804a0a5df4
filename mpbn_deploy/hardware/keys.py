"""The keys that a hardware profile may hold, and the kind of number each is.

`formats` are the number formats of neurons and synapses; `layer` and `network` restrict layers and the whole
network; `core` and `chip` are capacities; `energy`, `power` and `time` are costs. hw_profiles/README.md
documents the keys for authors of profiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any

from ..base import and_more, did_you_mean, printable

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


# Find every problem in a hardware profile, each reported with its key.


Content = Mapping[str, Any]  # a parsed TOML file
TABLES = tuple(dict.fromkeys(key.split(".")[0] for key in KEYS))
WIDEST_FORMAT = 32  # bits of a number
WIDEST_MEMORY = 1024  # bits of a word
LARGEST_NUMBER = 2**40
MAX_KEYS = 8  # of a table, listed for an unknown one
ENTRY = '{ value = NUMBER, source = "WHERE FROM", basis = "published" }'


def profile_problems(content: Content) -> list[str]:
    """Return the problems of headings, of entries, and between entries; an empty list if there are none."""
    entries = dict(profile_entries(content))
    problems = [*_heading_problems(content), *_table_problems(entries)]
    return [*problems, *_range_problems(entries), *_list_problems(entries)]


def profile_entries(content: Content) -> Iterator[tuple[str, Any]]:
    """Yield every entry of every table with its dotted key."""
    for table, entries in content.items():
        if isinstance(entries, dict):
            yield from ((f"{table}.{name}", entry) for name, entry in entries.items())


def _heading_problems(content: Content) -> Iterator[str]:
    if content.get("schema") != SCHEMA:
        yield f"schema {content.get('schema')!r}; this version reads schema = {SCHEMA}"
    for heading in HEADINGS:
        if not _is_text(content.get(heading)):
            yield f"{heading}: missing; a printable string is needed"
    if content.get(PLACEMENT, PLACEMENTS[0]) not in PLACEMENTS:
        yield f"{PLACEMENT}: {content[PLACEMENT]!r}; allowed are {', '.join(PLACEMENTS)}"
    if type(content.get(SIMULATOR, False)) is not bool:
        yield f"{SIMULATOR}: {content[SIMULATOR]!r}; true or false is needed"
    known = ("schema", *HEADINGS, PLACEMENT, EXTENDS, WITHOUT, SIMULATOR)
    for key, value in content.items():
        if key not in known and not isinstance(value, dict):
            yield f"{key}: unknown key. {did_you_mean(key, known)}{_table_of(key, known)}"


def _table_problems(entries: Content) -> Iterator[str]:
    for key, entry in entries.items():
        if key in KEYS or key.startswith(f"{SYSTEMS}."):
            yield from (f"{key}: {problem}" for problem in _entry_problems(key, entry))
        elif key.endswith(".value"):
            name = key.removesuffix(".value")
            yield f"{name}: is in no table; a header such as [{TABLES[0]}] is missing before it"
        elif not (key.endswith((".source", ".basis")) and f"{key.partition('.')[0]}.value" in entries):
            yield f"{key}: unknown key. {_suggestion(key)}"


def _table_of(key: str, headings: Iterable[str]) -> str:
    """Return how an entry of a table is written, unless the key is a misspelt heading."""
    if get_close_matches(key, headings, n=1):
        return ""
    table, _, name = (_nearest(key) or "chip.cores").partition(".")
    return f" Numbers belong in tables: [{table}] {name} = {ENTRY}"


def _nearest(key: str) -> str | None:
    """Return the known key whose name is closest to that of a key, of the same table where two are."""
    table, _, name = key.rpartition(".")
    own_last = sorted(KEYS, key=lambda known: known.split(".")[0] == table)
    by_name = {known.split(".")[1]: known for known in own_last}
    close = get_close_matches(name, by_name, n=1)
    return by_name[close[0]] if close else None


def _suggestion(key: str) -> str:
    """Suggest the nearest key of any table, and list the nearest of the same table, or all tables."""
    table, _, name = key.partition(".")
    names = sorted(known.split(".")[1] for known in KEYS if known.startswith(f"{table}."))
    nearest = _nearest(key)
    suggestion = f"Did you mean {nearest!r}? " if nearest else ""
    if not names:
        return f"{suggestion}Known tables: {', '.join(TABLES)}."
    shown = names if len(names) <= MAX_KEYS else get_close_matches(name, names, n=MAX_KEYS, cutoff=0.0)
    return f"{suggestion}Known in [{table}]: {and_more(shown, len(names))} (hw_profiles/README.md)."


def _entry_problems(key: str, entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{_shown(entry)}; write it as {ENTRY}"
        return
    names = ("value", "low", "high", "source", "basis") if key in COST_KEYS else ("value", "source", "basis")
    if unknown := entry.keys() - set(names):
        yield f"unknown {', '.join(sorted(unknown))}; an entry holds {', '.join(names)}"
    yield from _value_problems(key, entry)
    if not _is_text(entry.get("source")):
        yield "no source; state where the number comes from"
    if entry.get("basis") not in BASES:
        yield f"basis {entry.get('basis')!r}; allowed are {', '.join(BASES)}"


def _value_problems(key: str, entry: Content) -> Iterator[str]:
    value = entry.get("value")
    if key in COST_KEYS:
        yield from _cost_problems(value, entry.get("low", value), entry.get("high", value))
    elif key not in LIST_KEYS:
        yield from _number_problems(key, value)
    elif isinstance(value, list) and value:
        for number in value:
            yield from _number_problems(key, number)
    else:
        yield f"value {value!r}; a list of integers is needed"


def _number_problems(key: str, number: Any) -> Iterator[str]:
    least = 0 if key in ZERO_KEYS else 1
    if type(number) is not int:  # a TOML boolean is an int to isinstance
        yield f"value {_shown(number)}; an integer is needed"
    elif key in FLAGS and number not in (0, 1):
        yield f"value {number}; 0 (no) or 1 (yes) is needed"
    elif abs(number) > (most := _most(key)):
        yield f"value beyond {most}, which no chip reaches"
    elif key not in SIGNED_KEYS and number < least:
        yield f"value {number}; at least {least} is needed"


def _most(key: str) -> int:
    """Return the largest magnitude of a number; others are computed from numbers of bits and exponents."""
    if key.startswith("formats.") and key.endswith(("_bits", "_exponent_minimum", "_exponent_maximum")):
        return WIDEST_FORMAT
    return WIDEST_MEMORY if key.endswith(("_bits", "_shift_maximum")) else LARGEST_NUMBER


def _cost_problems(value: Any, low: Any, high: Any) -> Iterator[str]:
    numbers = (low, value, high)
    if not all(type(n) in (int, float) and isfinite(n) and n >= 0 for n in numbers):
        yield f"value {value!r}, low {low!r}, high {high!r}; non-negative numbers are needed"
    elif not low <= value <= high:
        yield f"value {value} is outside its range {low}..{high}"


def _range_problems(entries: Content) -> Iterator[str]:
    for name in (*RANGES, "formats.bias_exponent"):
        low, high = (_value(entries, f"{name}_{end}") for end in ("minimum", "maximum"))
        if type(low) is int and type(high) is int and low > high:
            yield f"{name}: the range {low}..{high} is empty"


def _list_problems(entries: Content) -> Iterator[str]:
    """Check that lists of per-core numbers have one number per core."""
    lists = {key: value for key in sorted(CORE_LISTS) if isinstance(value := _value(entries, key), list)}
    stated = _value(entries, "chip.cores")
    cores = stated if type(stated) is int else max(map(len, lists.values()), default=0)
    for key, values in lists.items():
        if len(values) != cores:
            yield f"{key}: {len(values)} numbers for {cores} cores; one per core is needed"


def _value(entries: Content, key: str) -> Any:
    entry = entries.get(key)
    return entry.get("value") if isinstance(entry, dict) else None


def _shown(value: Any) -> str:
    """Return a value as its author wrote it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and printable(value) == value
