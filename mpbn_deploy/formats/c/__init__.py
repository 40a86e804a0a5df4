"""A network as C: one C99 file that any compiler takes, for microcontrollers and for this machine.

plan        IntNetwork -> Program: types, tables, and how much is computed at once
memory      the arrays of a program, placed in static memory; the functions that add weights, in C
source      Program -> the functions of its populations
program     the whole file and its header, their bytes, and the hash of the network
project     a folder with a self-test, for make, CMake and Arduino
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .plan import Program as Program, plan_program as plan_program
    from .program import (
        PREFIX as PREFIX,
        CSource as CSource,
        ProgramSize as ProgramSize,
        check_prefix as check_prefix,
        network_hash as network_hash,
        program_size as program_size,
        score_type as score_type,
        write_fast as write_fast,
        write_source as write_source,
    )
    from .project import (
        FOLDER as FOLDER,
        run_hash as run_hash,
        sample_count as sample_count,
        write_project as write_project,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
