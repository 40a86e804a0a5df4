"""Options of an execution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..base import HANG_SECONDS, Progress, no_progress, record


@record
class ExecutionOptions:
    """Options of one execution; executors ignore options that do not apply to them.

    Without `keep_trace`, the trace need only hold outputs. `netx` is the path or the content of the network's
    network.net. `patience` is the time limit, in seconds, for one block of Lava's time steps, after which it
    counts as hanging. `port` is the serial port of a board.
    """

    keep_trace: bool = True
    netx: Path | bytes | None = None
    patience: float = HANG_SECONDS
    progress: Progress = no_progress
    port: str | None = None

    def portable(self) -> ExecutionOptions:
        """Return options for another machine: the content of the netx file replaces its path."""
        return replace(self, netx=self.netx.read_bytes()) if isinstance(self.netx, Path) else self
