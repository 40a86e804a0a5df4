"""Conventions for which NIR has no keys: how a spike resets the membrane, which current a CubaLIF integrates,
and how long a time step is.

    zero                    v <- 0 where spike                        NIR's equations, norse, SpikingJelly
    subtract-before-leak    v <- v - v_threshold where spike          sinabs, Rockpool
    subtract-after-leak     the same, but after the next step's leak  snnTorch's default

    new                     v[t] integrates the current I[t]          snnTorch, norse
    previous                v[t] integrates the current I[t - 1]      NIR's reference simulation

The metadata of the file states them, or else the caller does. Otherwise they are assumed: what the recognized
writer does by default, or else what NIR's equations say. An `Assumption` says so.
"""

from __future__ import annotations

import re

import numpy as np

from ...base import Array, FormatError, as_text, record
from ..options import NirCurrent, NirReset
from .file import NirFile, Node
from .metadata import DT, KEY, Metadata
from .neurons import NEARLY

BEFORE, AFTER = "subtract-before-leak", "subtract-after-leak"
RESETS = {
    "zero": "resets to zero",
    BEFORE: "resets by subtraction",
    AFTER: "resets by subtraction, one step later",
}
CURRENTS = {"new": "currents that act at once", "previous": "currents that act one step later"}
LEAKY, CUBA = frozenset({"LIF", "CubaLIF", "IF"}), frozenset({"CubaLIF", "CubaLI"})
# How writers reset by default. None of them writes it down.
WRITERS = {"snnTorch": AFTER, "sinabs": BEFORE, "Rockpool": BEFORE}
ROCKPOOL_NAME = re.compile(r"\d+_\w+(Torch|Jax)")


@record
class Assumption:
    """A convention that neither the file nor the caller stated: `what` is assumed, and `why`."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"assuming {self.what}: {self.why}"


@record
class Conventions:
    """The conventions by which a file is read."""

    reset: str  # a key of RESETS
    current: str  # a key of CURRENTS
    writer: str | None
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()


def conventions(
    file: NirFile, metadata: Metadata, dt: float | None, reset: NirReset, current: NirCurrent
) -> Conventions:
    """Return the conventions of a file, and which of them are assumed."""
    if metadata.dialect:
        return _ours(file, reset, current)
    writer = recognized_writer(file)
    kinds = {node.kind for node in file.nodes.values()}
    chosen_reset = _stated(file, "reset", reset)
    chosen_current = _stated(file, "current", current)
    assumed = []
    if chosen_reset is None:
        chosen_reset = WRITERS.get(writer or "", "zero")
        assumed += [Assumption(what=RESETS[chosen_reset], why=_why_reset(writer))] if kinds & LEAKY else []
    if chosen_current is None:
        chosen_current = "new"
        assumed += [Assumption(what=CURRENTS["new"], why=WHY_NEW)] if kinds & CUBA else []
    if dt is None and writer != "snnTorch" and any(_counts_seconds(node) for node in file.nodes.values()):
        assumed.append(Assumption(what=f"time steps of {DT:g} s", why=WHY_DT))
    if chosen_reset == "subtract":
        chosen_reset = AFTER if writer == "snnTorch" else BEFORE
    loses = writer == "snnTorch" and chosen_reset == "zero" and kinds & CUBA
    decays = writer == "Rockpool" and kinds & {"LIF", "CubaLIF"}
    return Conventions(
        reset=chosen_reset,
        current=chosen_current,
        writer=writer,
        assumptions=tuple(assumed),
        notes=(*((LOST_INPUT,) if loses else ()), *((ROCKPOOL_DECAY,) if decays else ())),
    )


def _counts_seconds(node: Node) -> bool:
    """Whether the meaning of a node depends on the length of a time step."""
    if node.kind in ("IF", "I"):
        return not (node.numbers("r") == 1).all()  # of one: per time step, as sinabs writes it
    return node.kind in ("LIF", "LI", "CubaLIF", "CubaLI", "Delay")


def _ours(file: NirFile, reset: NirReset, current: NirCurrent) -> Conventions:
    """Return the conventions of files by this package, which list soft resets in their metadata."""
    for option, value in (("--nir-reset", reset), ("--nir-current", current)):
        if value != "auto":
            raise FormatError(
                f"{file.path}: {option} {value}, but its metadata {KEY!r} states this; drop {option}."
            )
    return Conventions(reset="zero", current="new", writer="mpbn_deploy")


def _stated(file: NirFile, key: str, given: str) -> str | None:
    """Return the convention that the caller, or the metadata of another writer, states."""
    allowed = ("subtract", *RESETS) if key == "reset" else tuple(CURRENTS)
    value = as_text(file.metadata[key]) if key in file.metadata else None
    if key in file.metadata and value not in allowed:
        raise FormatError(f"{file.path}: metadata {key!r} is {value!r}; {', '.join(allowed)} are allowed.")
    if given == "auto":
        return value
    if value not in (None, given):
        raise FormatError(
            f"{file.path}: --nir-{key} {given}, but the metadata of the file says {value}; drop --nir-{key}."
        )
    return given


def _why_reset(writer: str | None) -> str:
    otherwise = (
        "If they reset otherwise, give --nir-reset zero or subtract; if this is right, give it to confirm"
    )
    if writer is None:
        return (
            "the file does not say how spikes reset; NIR's equations, norse and SpikingJelly reset to zero, "
            f"snnTorch, sinabs and Rockpool subtract by default. {otherwise}."
        )
    several = " sinabs may also send several spikes per step, of which one remains." * (writer == "sinabs")
    return (
        f"the file does not say how spikes reset; it looks written by {writer}, and this is the default "
        f"there.{several} {otherwise}."
    )


LOST_INPUT = (
    "snnTorch's Synaptic and RSynaptic that reset to zero lose the input of the step after a spike, unless "
    "reset_delay=False; the network read here keeps it"
)
WHY_NEW = (
    "the file does not say whether a CubaLIF integrates its new current, as snnTorch and norse do, or the "
    "previous one, as NIR's reference simulation does. Give --nir-current new or previous."
)

WHY_DT = (
    "the file does not say how long a time step is. snnTorch and SpikingJelly use this one; files of norse "
    "with its usual 1e-3 s need --dt 1e-6. Give --dt."
)
ROCKPOOL_DECAY = "Rockpool decays by exp(-dt / tau) in a step; the network read here by 1 - dt / tau"

# ---- who wrote it -------------------------------------------------------------------------------


def recognized_writer(file: NirFile) -> str | None:
    """Return the library that wrote a file, if names and numbers show it."""
    neurons = [node for node in file.nodes.values() if node.kind in LEAKY]
    if any(ROCKPOOL_NAME.fullmatch(node.name) for node in neurons):
        return "Rockpool"
    # snnTorch and sinabs call nirtorch.extract_nir_graph, which gives the ends these names; the names that
    # torch.fx gives to the input of SpikingJelly's modules never equal the builtin function `input`.
    if not neurons or (file.input.name, file.output.name) != ("input", "output"):
        return None
    if all(_is_of_snntorch(node) for node in neurons):
        return "snnTorch"
    if all(_is_of_sinabs(node) for node in neurons):
        return "sinabs"
    return None


def _is_of_snntorch(node: Node) -> bool:
    """r = tau / dt, w_in = tau_syn / dt, dt = 1e-4, without rest; threshold and beta were float32."""
    if node.kind == "IF" or not {"r", "v_leak", "v_threshold"} <= node.tree.keys():
        return False
    taus = [("tau", "r")] if node.kind == "LIF" else [("tau_mem", "r"), ("tau_syn", "w_in")]
    if not all(_natural(node, tau, factor) for tau, factor in taus if {tau, factor} <= node.tree.keys()):
        return False
    resting = not any(np.any(node.numbers(key)) for key in ("v_leak", "v_reset") if key in node.tree)
    return resting and _is_float32(node.numbers("v_threshold"))


def _natural(node: Node, tau: str, factor: str) -> bool:
    taus, factors = node.numbers(tau), node.numbers(factor)
    if taus.shape != factors.shape or not (taus > 0).all():
        return False
    return np.allclose(factors * DT, taus, rtol=NEARLY, atol=0) and (
        _is_float32(taus) or _is_float32(DT / taus)
    )


def _is_of_sinabs(node: Node) -> bool:
    """An IF with a resistance of one for each neuron; other writers count time in dt."""
    return node.kind == "IF" and node.numbers("r").ndim > 0 and bool((node.numbers("r") == 1).all())


def _is_float32(values: Array) -> bool:
    return np.allclose(values.astype(np.float32).astype(np.float64), values, rtol=1e-14, atol=0)
