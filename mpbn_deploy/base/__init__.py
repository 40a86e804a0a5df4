"""To be described."""

from typing import TYPE_CHECKING

from .doors import door

if TYPE_CHECKING:
    from .arguments import whole_number as whole_number
    from .commands import Command as Command, Outcome as Outcome, main as main
    from .errors import (
        CheckpointError as CheckpointError,
        DataError as DataError,
        DeployError as DeployError,
        FoldError as FoldError,
        FormatError as FormatError,
        FrontendError as FrontendError,
        MissingPackageError as MissingPackageError,
        NetworkError as NetworkError,
        OptionError as OptionError,
        ProfileError as ProfileError,
        QuantizeError as QuantizeError,
        SimulationError as SimulationError,
        did_you_mean as did_you_mean,
    )
    from .files import (
        json_text as json_text,
        refuse_unwritable as refuse_unwritable,
        write_atomically as write_atomically,
    )
    from .hdf5 import Tree as Tree, read_tree as read_tree, write_tree as write_tree
    from .pickle_traps import (
        CONTAINER as CONTAINER,
        RESULT as RESULT,
        TUPLE as TUPLE,
        ForeignNameError as ForeignNameError,
        Rules as Rules,
        TrapError as TrapError,
        refuse_traps as refuse_traps,
    )
    from .progress import (
        Watch as Watch,
        announce as announce,
        track as track,
        unwatched as unwatched,
        watched as watched,
    )
    from .records import (
        Array as Array,
        freeze_arrays as freeze_arrays,
        record as record,
        same_records as same_records,
    )

__getattr__, __dir__ = door(__name__, __file__)
