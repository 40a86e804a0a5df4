"""NIR's neurons -> ours, with one Euler step of length dt per time step.

    LIF        tau dv/dt = (v_leak - v) + r I       v <- (1 - a) v + a (v_leak + r I),  a = dt / tau
    CubaLIF    tau_syn dI/dt = -I + w_in S          I <- (1 - s) I + s w_in S,          s = dt / tau_syn
               and a LIF on I
    IF         dv/dt = r I                          v <- v + dt r I
    Threshold                                       v <- I
    LI, CubaLI, I    as LIF, CubaLIF, IF, without a threshold: readouts

Voltages are in units of the factor of the input (a r, a r s w_in, dt r), so weights do not change and
thresholds are divided by it. Readouts keep their voltages, which are the output, so weights into them are
multiplied instead. The current of a CubaLIF is updated before its voltage; a file in which the voltage
integrates the previous current has connections that take one step longer (`read`). A neuron starts at zero;
one whose v_reset equals v_leak starts there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ...base import Array, FormatError, as_text, record
from ...ir import FloatLif, FloatReadout, Shape, compact
from ..options import NirCurrent, NirReset
from .file import NirFile, Node
from .metadata import DT, KEY, NO_LEAK, Metadata

SPIKING = frozenset({"LIF", "CubaLIF", "IF", "Threshold"})
INTEGRATING = frozenset({"I", "LI", "CubaLI"})
NEARLY = 1e-6  # relative tolerance for float32


@record
class _Dynamics:
    """v <- leak v + rate v_leak + unit I, where I leaks with `current_leak`"""

    unit: Array
    leak: float | Array = 1.0
    rate: float | Array = 1.0
    current_leak: float | Array = 0.0


@record
class Timing:
    """dt, if known, and the exact leaks of our metadata."""

    dt: float | None
    leaks: Mapping[str, tuple[float | Array, float | Array]]
    float32: bool = False  # whether leaks were float32 numbers before they became time constants

    @property
    def step(self) -> float:
        return self.dt or DT


def parameter_shape(node: Node) -> Shape | None:
    """Return the shape of a neuron's parameters; None if all neurons share one value."""
    key = {"Threshold": "threshold", "I": "r", "LI": "r", "CubaLI": "r"}.get(node.kind, "v_threshold")
    values = node.numbers(key)
    if values.size == 1:
        return None
    if values.ndim > 3:
        node.fail(key, f"has shape {values.shape}; at most three axes are supported")
    return node.bounded(key, values.shape)


def spiking_neuron(node: Node, shape: Shape, timing: Timing) -> FloatLif:
    """Return the neuron of a node, in units of its synapses, without the bias that they add."""
    if node.kind == "Threshold":
        threshold = _per_neuron(node, "threshold", shape)
        return FloatLif(threshold=threshold, bias=np.zeros(shape), leak=0.0)
    rest, reset = _rest_and_reset(node, shape)
    threshold = _per_neuron(node, "v_threshold", shape) - reset
    rule = _dynamics(node, shape, timing)
    if not (rule.unit > 0).all():
        node.fail("r", "r (times w_in) must be above zero")
    return FloatLif(
        threshold=threshold / rule.unit,
        bias=rule.rate * (rest - reset) / rule.unit,
        leak=rule.leak,
        current_leak=rule.current_leak,
    )


def integrator(node: Node, shape: Shape, timing: Timing, timesteps: int) -> tuple[Array, FloatReadout]:
    """Return the factor of a node's weights, and its readout without the bias that synapses add.

    Both are multiplied by the time steps, by which our readouts divide.
    """
    rule = _dynamics(node, shape, timing)
    rest = np.zeros(shape) if node.kind == "I" else _per_neuron(node, "v_leak", shape)
    ours = node.name in timing.leaks  # has a factor of one, up to the rounding of r
    factor = np.ones(shape) if ours else rule.unit * timesteps
    bias = rule.rate * rest * timesteps
    return factor, FloatReadout(bias=bias, leak=rule.leak, current_leak=rule.current_leak)


def _dynamics(node: Node, shape: Shape, timing: Timing) -> _Dynamics:
    unit = _per_neuron(node, "r", shape)
    if node.kind in ("IF", "I"):
        return _Dynamics(unit=unit * _if_step(timing, unit))
    exact = timing.leaks.get(node.name, (None, None))
    leak, rate = _decay(node, "tau" if node.kind in ("LIF", "LI") else "tau_mem", shape, timing, exact[0])
    if node.kind in ("LIF", "LI"):
        return _Dynamics(unit=_one(unit * rate), leak=leak, rate=rate)
    current_leak, share = _decay(node, "tau_syn", shape, timing, exact[1])
    weight = _per_neuron(node, "w_in", shape) if "w_in" in node.tree else 1.0
    unit = _one(unit * rate * share * weight)
    return _Dynamics(unit=unit, leak=leak, rate=rate, current_leak=current_leak)


def _one(unit: Array) -> Array:
    """Return the unit of an input, one if it is one up to rounding: most writers choose r = tau / dt."""
    return np.where(np.abs(unit - 1) < NEARLY, 1.0, unit)


def _rest_and_reset(node: Node, shape: Shape) -> tuple[Array, Array]:
    rest = np.zeros(shape) if node.kind == "IF" else _per_neuron(node, "v_leak", shape)
    reset = _per_neuron(node, "v_reset", shape) if "v_reset" in node.tree else np.zeros(shape)
    if reset.any() and not np.array_equal(rest, reset):
        node.fail(
            "v_reset", "is neither zero nor the resting voltage (v_leak); other values are not supported"
        )
    return rest, reset


def _if_step(timing: Timing, r: Array) -> float:
    """Return dt; or one, if dt is unknown and r = 1, because such files integrate per time step."""
    if timing.dt is not None:
        return timing.dt
    return 1.0 if (r == 1).all() else DT


def _decay(
    node: Node, key: str, shape: Shape, timing: Timing, exact: float | Array | None
) -> tuple[float | Array, float | Array]:
    """(leak, rate) of a time constant: 1 - dt / tau and dt / tau"""
    tau, dt = _one_or_each(node, key, shape), timing.step
    least = float(np.min(tau))
    if least <= 0:
        node.fail(key, f"is {least:g}; a time constant must be above zero")
    highest = dt / least
    if highest > 1 + NEARLY:
        found = f"is {least:g} with a dt of {dt:g}, so the leak 1 - dt/tau is {1 - highest:g}"
        node.fail(key, f"{found}; allowed are 0 to 1. Give the dt that the file was written with")
    if exact is not None:
        return exact, _plain(np.where(np.asarray(exact) < 1, 1 - np.asarray(exact), 1 / NO_LEAK))
    rate = dt / np.asarray(tau)
    leak = np.maximum(0.0, 1 - rate)
    if timing.float32:
        leak = leak.astype(np.float32).astype(np.float64)
        return _plain(leak), _plain(1 - leak)
    return _plain(leak), _plain(np.minimum(1.0, rate))


def _plain(values: Array) -> float | Array:
    """Return a number as such, and an array as it is."""
    return values if values.ndim else float(values)


def _one_or_each(node: Node, key: str, shape: Shape) -> float | Array:
    """Return one time constant if all agree up to float32, else one per neuron."""
    values = node.numbers(key)
    lowest, highest = float(values.min()), float(values.max())
    if highest - lowest <= NEARLY * abs(highest):
        return float(values.flat[0])
    each: float | Array = compact(_per_neuron(node, key, shape))
    return each


def _per_neuron(node: Node, key: str, shape: Shape) -> Array:
    values = node.numbers(key)
    if values.size not in (1, int(np.prod(shape))):
        node.fail(key, f"holds {values.size} values; the node has {list(shape)}")
    return np.broadcast_to(values.ravel(), shape) if values.size == 1 else values.reshape(shape)


# Conventions for which NIR has no keys: how a spike resets the membrane, which current a CubaLIF integrates,
# and how long a time step is.
#
#     zero                    v <- 0 where spike                        NIR's equations, norse, SpikingJelly
#     subtract-before-leak    v <- v - v_threshold where spike          sinabs, Rockpool
#     subtract-after-leak     the same, but after the next step's leak  snnTorch's default
#
#     new                     v[t] integrates the current I[t]          snnTorch, norse
#     previous                v[t] integrates the current I[t - 1]      NIR's reference simulation
#
# The metadata of the file states them, or else the caller does. Otherwise they are assumed: what the
# recognized writer does by default, or else what NIR's equations say. An `Assumption` says so.


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
