"""What an execution is told beside its network and its inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..base import Watch, record, unwatched
from ..base.arguments import HANG_SECONDS


@record
class ExecutionOptions:
    """Options of one execution; an executor ignores those that do not concern it.

    Without `keep_trace` the trace needs to hold outputs only. `netx` is the file network.net that holds the
    network, or its content. A block of Lava's time steps that takes longer than `patience` seconds is taken
    to hang. `watch` sees the parts of the work go by, to show progress.
    """

    keep_trace: bool = True
    netx: Path | bytes | None = None
    patience: float = HANG_SECONDS
    watch: Watch = unwatched

    def portable(self) -> ExecutionOptions:
        """Return the same for another machine, which has no such file."""
        return replace(self, netx=self.netx.read_bytes()) if isinstance(self.netx, Path) else self
