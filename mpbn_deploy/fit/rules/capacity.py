"""Rules for resources: what fits on a core, on a chip, and on a chip that holds a network as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ...base import Report, record
from ...formats.c import program_size
from ...formats.verilog import Tables, core_tables, obstacle
from ...hardware import HardwareProfile
from ...hardware.place import RESOURCES, ROW_KEYS, ROW_RESOURCES, read_by_output, reading_input
from ...ir import IntNetwork, connection_synapses, varies
from .design import (
    NEURON_RULES,
    WHOLE_NETWORK,
    Design,
    Finding,
    Rule,
    Violations,
    is_digital,
    needs,
    not_checked,
    readable,
    rule,
    violation,
)
from .formats import FORMAT_RULES
from .layers import LAYER_RULES

SIZE_KEYS = ("network.inputs_maximum", "network.hidden_maximum", "network.outputs_maximum")
REACH_KEYS = ("network.input_reach", "network.output_reach")
# Limits that every core of a kind has. Violations appear in the resource use of memories of words, and as
# problems of other placements.
CORE_LIMITS = {
    "words": RESOURCES,
    "crossbar": ("neurons", "input_axons"),
    "layers": ("kernel_words", "neuron_words", "bias_words"),
    "whole": ("neurons",),
}


def is_placed(design: Design) -> bool:
    return design.profile.placement != "unknown"


def takes_cores(design: Design) -> bool:
    """Return whether a layer may take any number of cores, on one chip or several."""
    return design.profile.placement in ("words", "crossbar")


def shares_cores(design: Design) -> bool:
    """Return whether the threshold limit applies to cores; limits per layer or process have their own rules.

    A core that has one threshold holds any network whose cores need no more.
    """
    other = any(map(design.profile.knows, ("layer.thresholds", "formats.process_thresholds")))
    one = all(count <= 1 for _, count in _distinct_thresholds(design)) if is_placed(design) else False
    ours = design.profile.placement in ("program", "fabric")  # which have a table of thresholds
    return is_placed(design) and is_digital(design) and not (other or one or ours)


def layers_fit_on_cores(design: Design) -> list[Finding]:
    """Every core satisfies all limits, and the placement has no problems."""
    if not is_placed(design):
        return [_no_cores(design)]
    name, profile = layers_fit_on_cores.__name__, design.profile
    unknown = [key for key in _core_keys(design) if not profile.knows(key)]
    return [
        *([not_checked(name, _what(unknown), unknown, profile)] if unknown else []),
        *_memory_not_checked(design),
        *(_error(design, problem.where, problem.message) for problem in design.placement.problems),
        *_overflows(design),
    ]


@needs("core.thresholds", applies=shares_cores)
def distinct_thresholds_fit_core(design: Design) -> Violations:
    """distinct thresholds on each core <= maximum"""
    most = design.limit("core.thresholds")
    for where, count in _distinct_thresholds(design):
        if count > most.value:
            found = f"{count} distinct thresholds on one core"
            advice = (
                f"Export for this target (--target {design.profile.target}), which reduces them (with "
                "--thresholds shared, to one per population), or choose another target."
            )
            yield where, f"{found}; {design.limit_text(most.value, most)}. {advice}"


@needs(
    "formats.process_thresholds",
    related=("formats.process_thresholds",),
    severity="not known",
)
def thresholds_per_channel_work_on_the_chip(design: Design) -> Violations:
    """distinct thresholds of each population <= what the chip's public software declares"""
    declared = design.limit("formats.process_thresholds")
    for population in design.spiking():
        if (count := len(np.unique(population.neuron.threshold))) > declared.value:
            yield (
                population.name,
                f"{count} thresholds; the public software of {design.profile.name} declares {declared.value} "
                f"per population ({declared.source}), and what the chip does with more is not public. It "
                "would be settled by running network.net on a board and comparing its spikes with those of "
                "`run`. Export with --thresholds shared to need one per population; fit "
                "--compare-thresholds shows what that costs.",
            )


@needs("chip.cores", applies=takes_cores)
def cores_fit_on_chip(design: Design) -> Violations:
    """cores of all layers <= chips * cores per chip"""
    cores, used = design.limit("chip.cores"), design.placement.cores
    if used is not None and used > design.chips * cores.value:
        chips = -(-used // cores.value)
        boards = [name for name, size in design.profile.systems.items() if size >= chips]
        where = f"{chips} chips would be enough" + (f" (boards: {', '.join(boards)})" if boards else "")
        found = f"{used} cores; a chip of {design.profile.name} has {cores.value} ({cores.source})"
        yield WHOLE_NETWORK, f"{found}. Use fewer or narrower layers; {where}: --chips {chips}."


@needs("network.inputs_maximum", related=SIZE_KEYS)
def inputs_are_few_enough(design: Design) -> Violations:
    """inputs <= maximum"""
    return _too_many(design, design.network.input.size, "inputs", "network.inputs_maximum")


@needs("network.hidden_maximum", related=SIZE_KEYS)
def hidden_neurons_are_few_enough(design: Design) -> Violations:
    """neurons between input and output <= maximum"""
    hidden = sum(population.size for population in design.network.populations[1:-1])
    return _too_many(design, hidden, "hidden neurons", "network.hidden_maximum")


@needs("network.outputs_maximum", related=SIZE_KEYS)
def outputs_are_few_enough(design: Design) -> Violations:
    """outputs <= maximum"""
    return _too_many(design, design.network.output.size, "outputs", "network.outputs_maximum")


@needs("network.input_reach", related=REACH_KEYS)
def neurons_reading_inputs_are_few_enough(design: Design) -> Violations:
    """hidden neurons with a synapse from the input <= maximum"""
    count = sum(int(reading.sum()) for reading in reading_input(design.network).values())
    return _too_many(design, count, "hidden neurons that read inputs", "network.input_reach")


@needs("network.output_reach", related=REACH_KEYS)
def neurons_read_by_outputs_are_few_enough(design: Design) -> Violations:
    """hidden neurons with a synapse to the output <= maximum"""
    count = sum(int(read.sum()) for read in read_by_output(design.network).values())
    return _too_many(design, count, "hidden neurons that outputs read", "network.output_reach")


@needs("network.synapses_maximum", related=("network.synapses_maximum",))
def synapses_are_few_enough(design: Design) -> Violations:
    """synapses between hidden neurons <= maximum"""
    network = design.network
    ends = {network.input.name, network.output.name}
    inner = [c for c in network.connections if not {c.source, c.target} & ends]
    count = sum(connection_synapses(network, connection) for connection in inner)
    return _too_many(design, count, "synapses between hidden neurons", "network.synapses_maximum")


@needs("chip.flash_bytes", related=("chip.flash_bytes",))
def program_fits_flash(design: Design) -> Violations:
    """tables + code <= flash"""
    size, most = program_size(design.network), design.limit("chip.flash_bytes")
    if size.flash > most.value:
        bits = size.with_packed_weights
        packed = f"--weight-bits 4 would take about {bits:,}. " if bits < size.flash else ""
        yield (
            WHOLE_NETWORK,
            f"{size.flash:,} bytes of flash ({size.tables:,} of tables), {size.flash - most.value:,} too "
            f"many; {design.maximum_text(most)}. {packed}Fewer channels or layers take less.",
        )


@needs("chip.ram_bytes", related=("chip.ram_bytes",))
def program_fits_memory(design: Design) -> Violations:
    """static memory <= memory"""
    size, most = program_size(design.network), design.limit("chip.ram_bytes")
    if size.memory > most.value:
        yield (
            WHOLE_NETWORK,
            f"{size.memory:,} bytes of memory, {size.memory - most.value:,} too many; "
            f"{design.maximum_text(most)}. Fewer channels, smaller maps or fewer time steps take less.",
        )


CAPACITY_RULES: tuple[Rule, ...] = (
    layers_fit_on_cores,
    rule(distinct_thresholds_fit_core),
    rule(thresholds_per_channel_work_on_the_chip),
    rule(cores_fit_on_chip),
    rule(inputs_are_few_enough),
    rule(hidden_neurons_are_few_enough),
    rule(outputs_are_few_enough),
    rule(neurons_reading_inputs_are_few_enough),
    rule(neurons_read_by_outputs_are_few_enough),
    rule(synapses_are_few_enough),
    rule(program_fits_flash),
    rule(program_fits_memory),
)


def _core_keys(design: Design) -> list[str]:
    """Return the limits that a core of this kind must have, and the keys required to check them."""
    resources = CORE_LIMITS.get(design.profile.placement, ())
    rows = ROW_KEYS if any(resource in ROW_RESOURCES for resource in resources) else ()
    return [*(f"core.{resource}" for resource in resources), *rows]


def _what(unknown: list[str]) -> str:
    """Describe what is not checked without these keys."""
    if len(unknown) > 1:
        return "layers fit on cores (in part)"
    resource = "synapse words" if unknown[0] in ROW_KEYS else readable(unknown[0].split(".")[1])
    return f"{resource} fit on cores"


def _overflows(design: Design) -> Iterator[Finding]:
    """Yield layers that exceed a limit of a core, for memories of words and single cores."""
    if design.profile.placement == "whole":
        yield from _too_many_neurons(design)
    if design.profile.placement != "words":
        return
    for layer in design.placement.layers:
        for resource, used in layer.use.items():
            limit = design.profile.limits.get(f"core.{resource}")  # not every resource has a limit
            if limit is not None and used > limit.value:
                found = f"{used} {readable(resource)} on one core; {design.limit_text(limit.value, limit)}"
                advice = "No tiling of this layer fits; use fewer inputs or smaller kernels."
                yield _error(design, layer.name, f"{found}. {advice}")


def _too_many_neurons(design: Design) -> Iterator[Finding]:
    """Check the neurons of all layers against the limit of a single core."""
    limit, used = (
        design.profile.limit("core.neurons"),
        sum(layer.neurons for layer in design.placement.layers),
    )
    if limit is not None and used > limit.value:
        found = f"{used} neurons on one core; {design.limit_text(limit.value, limit)}"
        yield _error(
            design, WHOLE_NETWORK, f"{found}. Train a smaller network (--arch), or choose another target."
        )


def _memory_not_checked(design: Design) -> Iterator[Finding]:
    """Report a memory of which only the size is known."""
    if (limit := design.profile.limit("core.memory_bytes")) is not None:
        what = f"whether weights fit the {limit.value} bytes of a core ({limit.source})"
        why = f"because it is undocumented how {design.profile.name} stores weights"
        message = f"not checked: {what}, {why}."
        name = layers_fit_on_cores.__name__
        yield Finding(rule=name, where=WHOLE_NETWORK, message=message, severity="not checked")


def _error(design: Design, where: str, message: str) -> Finding:
    return violation(design, layers_fit_on_cores.__name__, where, message, "error")


def _no_cores(design: Design) -> Finding:
    tables = {key.split(".")[0] for key in design.profile.limits}
    name = design.profile.name
    undocumented = f"it is undocumented how {name} fills its cores"
    why = undocumented if tables & {"core", "chip"} else f"{name} describes no cores"
    return Finding(
        rule=layers_fit_on_cores.__name__,
        where=WHOLE_NETWORK,
        message=f"not checked: whether layers fit on cores, because {why}.",
        severity="not checked",
    )


def _distinct_thresholds(design: Design) -> Iterator[tuple[str, int]]:
    """Yield the largest number of distinct thresholds on any core of each layer, or on a single core."""
    placed = {layer.name: layer for layer in design.placement.layers}
    if design.profile.placement == "whole":
        thresholds = [np.unique(population.neuron.threshold).tolist() for population in design.spiking()]
        yield WHOLE_NETWORK, len(set().union(*thresholds))
        return
    for population in design.spiking():
        threshold, layer = population.neuron.threshold, placed[population.name]
        steps = threshold if varies(population.neuron) else [threshold]
        yield population.name, max(map(layer.most_distinct, steps))


def _too_many(design: Design, count: int, name: str, key: str) -> Violations:
    most = design.limit(key)
    if count > most.value:
        found = f"{count} {name}; {design.maximum_text(most)}"
        yield WHOLE_NETWORK, f"{found}. Train a smaller network (--arch), or choose another target."


# What the Verilog core takes of an FPGA: blocks of RAM by counting, logic and time by estimates.
#
# Blocks of RAM follow from the depth and width of each memory. The logic is estimated by a linear formula
# that benchmarks/fpga.py fits to runs of yosys and nextpnr (docs/results/fpga.md shows both).


SINGLE_PORT = "single-port RAM"


@record
class Memory(Report):
    """A memory of the core, and the blocks of RAM that it takes; none in single-port RAM."""

    JSON = "name words=depth bits=width blocks"

    name: str
    depth: int
    width: int
    blocks: int


@record
class FabricUse(Report):
    """What a network takes of an FPGA."""

    lanes: int
    weight_bits: int
    memories: tuple[Memory, ...]
    block_rams: int
    block_ram_limit: int
    single_port_bytes: int  # of weights in single-port RAM; 0 if they are in blocks
    logic_cells: int  # estimated
    logic_limit: int
    multipliers: int
    power: float | None = None  # not estimated

    @property
    def line(self) -> str:
        """One line for reports."""
        weights = (
            f", weights in {SINGLE_PORT} ({self.single_port_bytes:,} bytes)" if self.single_port_bytes else ""
        )
        return (
            f"core of {self.lanes} lanes: about {self.logic_cells:,} of {self.logic_limit:,} logic cells "
            f"(estimated), {self.block_rams} of {self.block_ram_limit} blocks of RAM{weights}; power is not "
            "estimated"
        )


def fabric_use(network: IntNetwork, profile: HardwareProfile) -> FabricUse:
    """Count the memories of the core and estimate its logic; the network must have no `obstacle`."""
    lanes = profile.value("fabric.lanes")
    tables = _tables(network, lanes)
    numbers = tables.numbers
    geometry = (profile.value("fabric.block_ram_width"), profile.value("fabric.block_ram_depth"))
    sizes = {
        "weights": (numbers["ROWS"], lanes * numbers["WEIGHT_BITS"]),
        "spikes": (numbers["SPIKE_WORDS"], lanes),
        "inputs": (numbers["INPUT_WORDS"], numbers["VALUE_BITS"]),
        "parameters": (numbers["PARAMETERS"], numbers["PARAMETER_WIDTH"]),
        "voltages": (2 ** numbers["STATE_ADDRESS_BITS"], numbers["STATE_BITS"]),
        "scores": (2 ** numbers["SCORE_BITS"], numbers["STATE_BITS"]),
    }
    if numbers["CURRENTS"]:
        sizes["currents"] = sizes["voltages"]
    aside = {"weights"} if uses_single_port(tables, profile) else set()
    memories = tuple(
        Memory(
            name=name,
            depth=depth,
            width=width,
            blocks=0 if name in aside else blocks(depth, width, *geometry),
        )
        for name, (depth, width) in sizes.items()
    )
    return FabricUse(
        lanes=lanes,
        weight_bits=numbers["WEIGHT_BITS"],
        memories=memories,
        block_rams=sum(memory.blocks for memory in memories),
        block_ram_limit=profile.value("fabric.block_rams"),
        single_port_bytes=numbers["ROWS"] * lanes * numbers["WEIGHT_BITS"] // 8 if aside else 0,
        logic_cells=estimated_cells(tables),
        logic_limit=profile.value("fabric.logic_cells"),
        multipliers=lanes,
    )


@lru_cache(maxsize=4)
def _tables(network: IntNetwork, lanes: int) -> Tables:
    return core_tables(network, lanes=lanes)


def uses_single_port(tables: Tables, profile: HardwareProfile) -> bool:
    """Whether weights are in single-port RAM: if the device has it, and they fit."""
    limit = profile.limit("fabric.single_port_bytes")
    return (
        limit is not None
        and tables.numbers["ROWS"] * tables.lanes * tables.numbers["WEIGHT_BITS"] <= 8 * limit.value
    )


def blocks(depth: int, width: int, widest: int, words: int) -> int:
    """Return the blocks of RAM of a memory: `words` of `widest` bits each, or twice as many of half."""
    fewest = None
    while widest:
        count = -(-depth // words) * -(-width // widest)
        fewest = count if fewest is None else min(fewest, count)
        widest, words = widest // 2, 2 * words
    assert fewest is not None
    return fewest


# cells = FIXED + sum of weight * bits, fitted by benchmarks/fpga.py --fit
FIXED = 600.0
PER_SUM_BIT = 2.2  # an accumulator and its copy, per lane
PER_ADDRESS_BIT = 20.0  # counters and adders of the schedule
PER_DECAY_BIT = 30.0  # one addition of the width of a state
PER_CONNECTION = 12.0  # tables in lookup tables


def estimated_cells(tables: Tables) -> int:
    """Estimate the logic cells of core and serial front."""
    n = tables.numbers
    address = n["ADDRESS_BITS"] + n["ROW_BITS"] + n["COUNT_BITS"] + n["PARAMETER_BITS"]
    decays = n["VOLTAGE_MASK"].bit_count() + n["CURRENT_MASK"].bit_count()
    return round(
        FIXED
        + PER_SUM_BIT * n["LANES"] * n["SUM_BITS"]
        + PER_ADDRESS_BIT * address
        + PER_DECAY_BIT * decays
        + PER_CONNECTION * n["CONNECTIONS"]
    )


# The rule for FPGAs: the memories of our core fit the device.


def in_fabric(design: Design) -> bool:
    return design.profile.placement == "fabric"


@needs("fabric.block_rams", applies=in_fabric)
def memories_fit_the_fpga(design: Design) -> Violations:
    """blocks of RAM of all memories, and bits of weights in single-port RAM <= those of the device"""
    if (reason := obstacle(design.network)) is not None:
        yield WHOLE_NETWORK, f"the Verilog core does not hold it: {reason}."
        return
    use, most = fabric_use(design.network, design.profile), design.limit("fabric.block_rams")
    if use.block_rams > most.value:
        largest = max(use.memories, key=lambda memory: memory.blocks)
        yield (
            WHOLE_NETWORK,
            f"{use.block_rams} blocks of RAM, of which {largest.name} take {largest.blocks} ({largest.depth} "
            f"words of {largest.width} bits); {design.limit_text(most.value, most)}: "
            f"{use.block_rams - most.value} too many. "
            "Use fewer weight bits (--weight-bits 4), a smaller network, or a larger device (ecp5-85k).",
        )


FABRIC_RULES: tuple[Rule, ...] = (rule(memories_fit_the_fpga),)


# List all design rules in the order of the report.


RULES: tuple[Rule, ...] = (*FORMAT_RULES, *NEURON_RULES, *LAYER_RULES, *CAPACITY_RULES, *FABRIC_RULES)
