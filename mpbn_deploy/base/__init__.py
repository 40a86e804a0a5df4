"""Shared by all rooms, and independent of spiking networks: errors, records, files, commands, progress.

errors         the exception tree, and names and problems as messages list them
records        `@record`, the frozen dataclass that every data type here is
files          atomic writes, bounded reads and JSON
text           text that others wrote, made safe to show
leftovers      temporary files and folders, removed by the next process if their owner was killed
hdf5           HDF5 files as plain trees, with bounds on what is read
hdf5_process   reads them in a process of its own, with limits on memory and time
pickle_check   rejects pickles that could exhaust memory, stack or time
progress       progress bars and messages on standard error
commands       runs a command: options, outcome, exit code, signals
terminal       prints the text of an outcome
faults         two lines and a file about an exception that no input should cause
schemas        records as JSON, and the schemas that describe it
imports        functions that the user names as package.module:function
memory         freed memory, kept or returned to the system
interrupts     Ctrl-C, while a command starts and while it runs
options        options as fields of records, from which command lines, files and schemas derive
arguments      values of options, read from words
completion     a script for the shell that completes commands and options
doors          lazy `__init__.py` files: each public name is imported on first use
"""

from typing import TYPE_CHECKING

from .doors import door as door

if TYPE_CHECKING:
    from .arguments import (
        HANG_SECONDS as HANG_SECONDS,
        LOCAL as LOCAL,
        OWN_DATA as OWN_DATA,
        USUAL_BUDGET as USUAL_BUDGET,
        USUAL_SAMPLES as USUAL_SAMPLES,
        WIDEST_INPUT as WIDEST_INPUT,
        cluster_address as cluster_address,
        host_and_port as host_and_port,
        local_workers as local_workers,
        seconds as seconds,
        share as share,
        whole_number as whole_number,
    )
    from .commands import (
        JSON as JSON,
        SURPLUS as SURPLUS,
        Command as Command,
        CommandParser as CommandParser,
        Execute as Execute,
        Outcome as Outcome,
        StrictParser as StrictParser,
        main as main,
        run_command as run_command,
    )
    from .completion import PrintCompletion as PrintCompletion
    from .errors import (
        CheckpointError as CheckpointError,
        DataError as DataError,
        DeployError as DeployError,
        FoldError as FoldError,
        FormatError as FormatError,
        FrontendError as FrontendError,
        MissingDataError as MissingDataError,
        MissingPackageError as MissingPackageError,
        NetworkError as NetworkError,
        OptionError as OptionError,
        ProfileError as ProfileError,
        QuantizeError as QuantizeError,
        SimulationError as SimulationError,
        and_more as and_more,
        class_of as class_of,
        did_you_mean as did_you_mean,
        layer_name as layer_name,
        problem_lines as problem_lines,
    )
    from .files import (
        MANIFEST_FILE as MANIFEST_FILE,
        check_writable as check_writable,
        json_text as json_text,
        read_json as read_json,
        read_text as read_text,
        similar_path as similar_path,
        write_atomically as write_atomically,
    )
    from .hdf5 import write_tree as write_tree
    from .hdf5_process import Tree as Tree, as_text as as_text, read_tree as read_tree
    from .imports import import_function as import_function
    from .interrupts import (
        exit_when_interrupted as exit_when_interrupted,
        interrupts_blocked as interrupts_blocked,
    )
    from .leftovers import (
        abandoned as abandoned,
        new_temporary_folder as new_temporary_folder,
        owned_name as owned_name,
        remove_abandoned as remove_abandoned,
        temporary_folder as temporary_folder,
    )
    from .memory import (
        keep_freed_memory as keep_freed_memory,
        return_freed_memory as return_freed_memory,
    )
    from .options import (
        Options as Options,
        add_network as add_network,
        add_options as add_options,
        changed as changed,
        option as option,
        option_name as option_name,
        options_schema as options_schema,
        typed as typed,
    )
    from .pickle_check import (
        ForbiddenNameError as ForbiddenNameError,
        PickleKind as PickleKind,
        PickleRules as PickleRules,
        UnsafePickleError as UnsafePickleError,
        check_pickle as check_pickle,
    )
    from .progress import (
        QUIET_SECONDS as QUIET_SECONDS,
        Progress as Progress,
        announce as announce,
        no_progress as no_progress,
        progress_bar as progress_bar,
        signs_of_life as signs_of_life,
        track as track,
    )
    from .records import (
        Array as Array,
        array_record as array_record,
        freeze_arrays as freeze_arrays,
        record as record,
        remembered as remembered,
        same_records as same_records,
    )
    from .schemas import (
        SCHEMA_VERSION as SCHEMA_VERSION,
        Report as Report,
        marked_json as marked_json,
        object_schema as object_schema,
        schema_of as schema_of,
    )
    from .text import (
        LONGEST_NAME as LONGEST_NAME,
        Color as Color,
        Summarized as Summarized,
        Summary as Summary,
        one_line as one_line,
        printable as printable,
        shortened as shortened,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
