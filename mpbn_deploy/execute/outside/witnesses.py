"""The witness protocol, and the dict of all witnesses. Reading the dict imports none of them.

To add a witness, write one module and add one line to `WITNESSES`; `--witness` of `verify` and `export`, and
`doctor`, use every entry of the dict. The module defines

    COSTS                        the seconds of its work, for `--budget`
    obstacle(neuron)             what of a population it cannot express, or None
    run(piece) -> Answer         raises ObstacleError if it cannot express a piece
    version() -> str             raises MissingPackageError with the command that installs it

and imports its own libraries inside these functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...base import OptionError, did_you_mean
from ...ir import varies
from ..executors import EXECUTORS, ListedExecutor

if TYPE_CHECKING:
    from ...ir import Neuron
    from .pieces import Answer, Piece
    from .shares import Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A simulator of others, whose module is imported on first use."""

    name: str
    module: str
    author: str
    install: str

    @property
    def costs(self) -> Costs:
        found: Costs = self._imported().COSTS
        return found

    def obstacle(self, neuron: Neuron) -> str | None:
        """Return what of a population is not supported, or None if nothing is."""
        if varies(neuron):
            return "numbers that depend on the time step"
        found: str | None = self._imported().obstacle(neuron)
        return found

    def run(self, piece: Piece) -> Answer:
        """Run a piece of a population on all its samples."""
        answer: Answer = self._imported().run(piece)
        return answer

    def version(self) -> str:
        """Return the installed version; raise MissingPackageError if there is none."""
        return str(self._imported().version())

    def check(self) -> str:
        """Run a small test on this machine and return a line for doctor; raise if it fails."""
        from .trial import check_witness

        return f"{self.version()}, {check_witness(self.name, self.obstacle, self.run)}"

    def _imported(self) -> Any:
        return import_module(self.module)


WITNESSES: dict[str, Witness] = {
    "nengo-loihi": Witness(
        name="nengo-loihi",
        module=f"{__package__}.nengo_loihi",
        author="Applied Brain Research",
        install="pip install 'mpbn_deploy[witness]'",
    ),
    "sana-fe": Witness(
        name="sana-fe",
        module=f"{__package__}.sana_fe",
        author="the University of Texas at Austin",
        install="pip install sanafe  # GPL; or SANA_FE_PYTHON",
    ),
    "xylosim": Witness(
        name="xylosim",
        module=f"{__package__}.xylosim",
        author="SynSense",
        install="pip install xylosim",
    ),
}


# What --witness can name: simulators of others, and executors that verify runs on request only.
ASKED: dict[str, Witness | ListedExecutor] = {
    **WITNESSES,
    **{name: executor for name, executor in EXECUTORS.items() if executor.requested},
}


def chosen_witnesses(names: Iterable[str], *, installed: bool = True) -> tuple[Witness | ListedExecutor, ...]:
    """Return the witnesses of these names, each once; raise if one is unknown or, if `installed`, missing."""
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        if name not in ASKED:
            raise OptionError(f"witness {name!r}. {did_you_mean(name, ASKED)}")
        if installed:
            ASKED[name].version()
    return tuple(ASKED[name] for name in chosen)
