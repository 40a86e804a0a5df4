"""Shared by all rooms, and independent of spiking networks: errors, records, files, commands, progress.

errors      the exception tree, names and problems as messages list them; functions that the user names
records     `@record`, the frozen dataclass of all data types; records as JSON, and the schemas of it
files       atomic writes, bounded reads and JSON; temporary files and their removal; freed memory
pickle_check rejects pickles that could exhaust memory, stack or time
hdf5        HDF5 files as plain trees, read in a process of its own with limits on memory and time
terminal    text that others wrote, made safe to show; progress bars and messages; Ctrl-C
commands    runs a command: options, outcome, exit code, signals; completion; internal errors
options     options as fields of records, from which command lines, files and schemas derive
doors       lazy `__init__.py` files: each public name is imported on first use
"""

from typing import TYPE_CHECKING

from .doors import door as door

if TYPE_CHECKING:
    from .commands import (
        JSON as JSON,
        SURPLUS as SURPLUS,
        Command as Command,
        CommandParser as CommandParser,
        Execute as Execute,
        Outcome as Outcome,
        PrintCompletion as PrintCompletion,
        StrictParser as StrictParser,
        main as main,
        run_command as run_command,
    )
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
        import_function as import_function,
        layer_name as layer_name,
        problem_lines as problem_lines,
    )
    from .files import (
        MANIFEST_FILE as MANIFEST_FILE,
        abandoned as abandoned,
        check_writable as check_writable,
        json_text as json_text,
        keep_freed_memory as keep_freed_memory,
        new_temporary_folder as new_temporary_folder,
        owned_name as owned_name,
        read_json as read_json,
        read_text as read_text,
        remove_abandoned as remove_abandoned,
        remove_abandoned_folders as remove_abandoned_folders,
        return_freed_memory as return_freed_memory,
        similar_path as similar_path,
        temporary_folder as temporary_folder,
        write_atomically as write_atomically,
    )
    from .hdf5 import Tree as Tree, as_text as as_text, read_tree as read_tree, write_tree as write_tree
    from .options import (
        HANG_SECONDS as HANG_SECONDS,
        LOCAL as LOCAL,
        OWN_DATA as OWN_DATA,
        USUAL_BUDGET as USUAL_BUDGET,
        USUAL_SAMPLES as USUAL_SAMPLES,
        WIDEST_INPUT as WIDEST_INPUT,
        Options as Options,
        add_network as add_network,
        add_options as add_options,
        changed as changed,
        cluster_address as cluster_address,
        host_and_port as host_and_port,
        local_workers as local_workers,
        option as option,
        option_name as option_name,
        options_schema as options_schema,
        seconds as seconds,
        share as share,
        typed as typed,
        whole_number as whole_number,
    )
    from .pickle_check import (
        ForbiddenNameError as ForbiddenNameError,
        PickleKind as PickleKind,
        PickleRules as PickleRules,
        UnsafePickleError as UnsafePickleError,
        check_pickle as check_pickle,
    )
    from .records import (
        SCHEMA_VERSION as SCHEMA_VERSION,
        Array as Array,
        Report as Report,
        array_record as array_record,
        freeze_arrays as freeze_arrays,
        marked_json as marked_json,
        object_schema as object_schema,
        record as record,
        remembered as remembered,
        same_records as same_records,
        schema_of as schema_of,
    )
    from .terminal import (
        LONGEST_NAME as LONGEST_NAME,
        QUIET_SECONDS as QUIET_SECONDS,
        Color as Color,
        Progress as Progress,
        Summarized as Summarized,
        Summary as Summary,
        announce as announce,
        exit_when_interrupted as exit_when_interrupted,
        interrupts_blocked as interrupts_blocked,
        no_progress as no_progress,
        one_line as one_line,
        printable as printable,
        progress_bar as progress_bar,
        shortened as shortened,
        signs_of_life as signs_of_life,
        track as track,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
