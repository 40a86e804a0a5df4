"""What the Verilog core takes of an FPGA: blocks of RAM by counting, logic and time by estimates.

Blocks of RAM follow from the depth and width of each memory. The logic is estimated by a linear formula that
benchmarks/fpga.py fits to runs of yosys and nextpnr (docs/results/fpga.md shows both).
"""

from __future__ import annotations

from functools import lru_cache

from ..base import Report, record
from ..formats.verilog import Tables, core_tables
from ..hardware import HardwareProfile
from ..ir import IntNetwork

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
