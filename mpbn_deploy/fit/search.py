"""Search for the fewest cores under the rule that integers stay equal: `fit --search`.

The compiler's cut comes first. Then the same populations are divided by the best tiling and storage of rows
that a search finds (`hardware/place/`), after that with relays and split sums (`quantize/pooling.py`), and at
last with the readout, the first layer or both on the host. Every row has a lower bound for its populations:
no tiling of them, in any storage, takes fewer cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..base import OptionError, Report, announce, record
from ..execute.emulator import emulate
from ..formats.options import Side
from ..ir import IntNetwork, relay_names, without_relays
from ..quantize import fewest_cores
from .question import Question
from .requantize import Requantizer
from .stage import FitReport

# Where the first layer and the readout run.
SIDES: tuple[tuple[Side, Side, str], ...] = (
    ("chip", "host", "readout"),
    ("host", "chip", "first layer"),
    ("host", "host", "first layer and readout"),
)


@record
class SearchResult(Report):
    """A form of the network with equal integers, and the cores it takes, on as many chips as it needs."""

    JSON = """change cores=report.cores cores_lower_bound=report.lower_bound chips=report.chips
        fits=report.fits relays sparse_rows=sparse commands"""

    change: str
    network: IntNetwork
    question: Question
    report: FitReport
    commands: tuple[str, ...]

    @property
    def relays(self) -> list[str]:
        return relay_names(self.network)

    @property
    def sparse(self) -> tuple[str, ...]:
        """The populations whose rows drop zero weights."""
        return tuple(layer.name for layer in self.report.placement.layers if layer.storage == "sparse")


def search(question: Question) -> list[SearchResult]:
    """Return the compiler's cut, the best tiling, the best rewriting, and that with parts on the host."""
    check_searchable(question)
    return list(_results(question))


def check_searchable(question: Question) -> None:
    """Raise if there is nothing to search on this chip."""
    if question.profile.placement != "words":
        raise OptionError(
            f"--search: {question.target} does not divide layers over a memory of words, as Loihi does; its "
            "placement has no alternatives. Leave --search out."
        )


def _results(question: Question) -> Iterator[SearchResult]:
    given = question.opened.network if question.untrained is None else question.network
    compiler = replace(
        question,
        form=None if question.untrained is None else given,
        pooling="auto" if question.untrained is None else question.pooling,  # as it is
        tiling="compiler",
        first_layer=_unless_typed(question.first_layer),
        readout=_unless_typed(question.readout),
    )
    best = replace(compiler, tiling="best")
    yield _result("as it is, the compiler's cut", given, compiler)
    yield _result("as it is, best tiling and storage", given, best)
    announce(f"search: {question.target}: relays and split sums")
    network = fewest_cores(without_relays(given), question.profile, "best")
    _check_equal(given, network, question)
    number = len(relay_names(network))
    if number or relay_names(given):
        rewriting = f"{number} relay populations" if number else "no relays"
        yield _result(rewriting, network, best)
    else:  # nothing to rewrite
        network, rewriting = given, "as it is"
    for first_layer, readout, moved in SIDES:
        try:
            hosted = replace(best, first_layer=first_layer, readout=readout)
            yield _result(f"{rewriting}, {moved} on the host", network, hosted)
        except OptionError as error:  # no layer that the host can take over
            announce(f"note: {error}")


def _unless_typed(side: Side) -> Side:
    return "chip" if side == "auto" else side


def _result(change: str, network: IntNetwork, question: Question) -> SearchResult:
    """Ask for one form of the network, on as many chips as it needs."""
    report = question.ask(network)
    if report.chips is not None and report.chips > question.chips:
        question = replace(question, chips=report.chips)
        report = question.ask(network)
    commands = tuple(_commands(question, network))
    return SearchResult(change=change, network=network, question=question, report=report, commands=commands)


def _commands(question: Question, network: IntNetwork) -> Iterator[str]:
    """Yield the commands that make a form; none for a rewritten network that no `export` would make."""
    requantizer = Requantizer(question)
    if network in (question.opened.network, question.form):
        yield question.command()
    elif requantizer.folder is not None:
        given = requantizer.folder.options
        # Integers that were calibrated with pooling in the kernels are others than those of relays.
        if not (given.calibrated and given.pooling == "composed"):
            options = replace(given, pooling="auto", tiling="best")
            yield from requantizer.commands(question, options)


def _check_equal(given: IntNetwork, network: IntNetwork, question: Question) -> None:
    """Run both forms on the samples of the request; every output must be equal."""
    if question.samples is None:
        return
    inputs = question.samples.inputs
    before, after = (emulate(form, inputs, keep_trace=False).outputs for form in (given, network))
    assert np.array_equal(before, after), "a rewriting changed an output"  # relays and splits are exact
    announce(f"search: the outputs of both forms are equal on {len(before)} samples")


def fewest(results: list[SearchResult]) -> SearchResult:
    """Return the result of fewest cores, of those that fit; without the host if one of these does.

    Earlier ones win ties.
    """
    fitting = [result for result in results if result.report.fits is not False] or results
    on_chip = [
        result for result in fitting if result.question.first_layer == result.question.readout == "chip"
    ]
    return min(
        on_chip or fitting, key=lambda result: (len(result.report.found("error")), result.report.cores or 0)
    )
