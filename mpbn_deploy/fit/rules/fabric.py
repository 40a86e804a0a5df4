"""The rule for FPGAs: the memories of our core fit the device."""

from __future__ import annotations

from ...formats.verilog import obstacle
from ..fabric import fabric_use
from .design import WHOLE_NETWORK, Design, Rule, Violations, needs, rule


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
