"""The Verilog core for FPGAs, and a network as the contents of its memories.

core/      the core, written by hand: one for all networks
front/     the serial port around it; boards/: top modules and pins
sim/       benches: samples through the core in Verilator and Icarus Verilog; a simulated board
layout     IntNetwork -> Tables
tables     what the memories hold, as text
files      the folder `fpga/`, and the tools that use it
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .files import (
        BOARDS as BOARDS,
        CORE as CORE,
        FOLDER as FOLDER,
        FRONT as FRONT,
        boards_of as boards_of,
        core_files as core_files,
        find_tool as find_tool,
        in_core_order as in_core_order,
        input_memory as input_memory,
        sample_count as sample_count,
        write_fpga as write_fpga,
    )
    from .layout import core_tables as core_tables, obstacle as obstacle
    from .tables import Tables as Tables
else:
    __getattr__, __dir__ = door(__name__, __file__)
