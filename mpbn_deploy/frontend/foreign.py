"""Convert neurons of other libraries that a folded neuron reproduces exactly.

| module                       | conversion                                                          |
|------------------------------|---------------------------------------------------------------------|
| snnTorch `Leaky`             | any reset mechanism; betas and thresholds also per feature          |
| snnTorch `Synaptic`,         | as `Leaky`, with alphas; reset to zero with reset_delay=False       |
| `RLeaky`, `RSynaptic`        | (which RSynaptic does not have)                                     |
| SpikingJelly `IFNode`,       | hard reset to 0, or soft reset; `decay_input` scales the threshold; |
| `LIFNode`, `ParametricLIF..` | `>=` becomes `>` with the next smaller float64                      |
| `LinearRecurrentContainer`   | around one of these neurons                                         |
| norse `LIFCell`,             | v_leak and v_reset of 0, or a soft reset; the rate of the input     |
| `LIFBoxCell`, `IAFCell`      | scales the threshold                                                |

Neurons without an exact equivalent raise FrontendError with the reason: inhibition, quantized states, a
subtraction in snnTorch with reset_delay=False, a `Synaptic` that resets to zero one step late, because that
step then loses its current, and SpikingJelly's MPBN, which carries the normalized membrane
to the next step, so that no threshold can replace it. The libraries are not imported here: a module of theirs
can only exist if the caller has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from math import inf
from typing import Any

import numpy as np
from torch import nn

from ..base import Array, FrontendError, layer_name
from ..ir import BatchNorm, Convolution, Linear, Operation, Spike
from .hints import ADAPTIVE_THRESHOLD
from .layers import Converter
from .synapses import convolution, linear

LAYERS = (  # where libraries define them
    "torch.nn.",
    "snntorch._neurons.",
    "spikingjelly.activation_based.neuron",
    "spikingjelly.activation_based.layer",
    "norse.torch.module.",
)
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
NEAREST = {"snntorch": "Leaky", "spikingjelly": "LIFNode", "norse": "LIFBoxCell"}  # by library
ALIKE = {"Lapicque": "Leaky", "Alpha": "Synaptic"}  # by what they compute, and not by name


def foreign_converters() -> dict[type[nn.Module], Converter]:
    """Return the converters for the libraries that are already imported."""
    found: dict[type[nn.Module], Converter] = {}
    if (snntorch := sys.modules.get("snntorch")) is not None:
        found |= {snntorch.Leaky: leaky, snntorch.Synaptic: synaptic}
        found |= {snntorch.RLeaky: recurrent_leaky, snntorch.RSynaptic: recurrent_synaptic}
    if (neuron := sys.modules.get("spikingjelly.activation_based.neuron")) is not None:
        found |= {neuron.IFNode: if_node, neuron.LIFNode: lif_node, neuron.ParametricLIFNode: parametric_node}
        if hasattr(neuron, "MPBNLIFNode"):
            found[neuron.MPBNLIFNode] = mpbn_node
    if (layer := sys.modules.get("spikingjelly.activation_based.layer")) is not None:
        found[layer.LinearRecurrentContainer] = linear_container
    if (norse := sys.modules.get("norse.torch")) is not None:
        found |= {norse.LIFCell: lif_cell, norse.LIFBoxCell: lif_box_cell, norse.IAFCell: iaf_cell}
    return found


def foreign_layers(ours: tuple[type[nn.Module], ...]) -> dict[type[nn.Module], type[nn.Module]]:
    """Return SpikingJelly's versions of torch's layers, which differ in their handling of time only."""
    layer = sys.modules.get("spikingjelly.activation_based.layer")
    pairs = ((getattr(layer, base.__name__, None), base) for base in ours)
    return {kind: base for kind, base in pairs if kind is not None}


def is_foreign(module: nn.Module) -> bool:
    """Whether a part of a module is of another library of spiking networks."""
    return any(_library(part) in NEAREST for part in module.modules())


def check_supported(
    module: nn.Module,
    is_known: Callable[[nn.Module], bool],
    known: Mapping[type[nn.Module], Any],
    path: str = "",
) -> None:
    """Raise FrontendError for a part of another library without a converter, naming the nearest one."""
    if is_known(module):
        return
    library = _library(module)
    if library in NEAREST and is_layer(module):
        name = type(module).__name__
        kinds = [kind for kind, converter in known.items() if converter is not mpbn_node]
        theirs = [kind.__name__ for kind in kinds if kind.__module__.startswith(f"{library}.")]
        similar = next(iter(get_close_matches(name, theirs, n=1, cutoff=0.4)), NEAREST[library])
        nearest = ALIKE.get(name, similar)
        is_neuron = "neuron" in type(module).__module__ or library == "norse"
        hint = f" The nearest neuron that is supported: {nearest}." if is_neuron else ""
        if library == "norse" and name.startswith("LI") and not name.startswith("LIF"):
            hint = (
                " It never fires: as a readout, leave it out, and return the stack of its inputs over time."
            )
        if name.startswith("LSNN"):
            hint += f" {ADAPTIVE_THRESHOLD}"
        raise FrontendError(
            f"{layer_name(path, name)}: {library}'s {name} is not supported.{hint} Supported of {library}: "
            f"{', '.join(sorted(theirs))}. Replace it, or pass a converter to trace()."
        )
    for child, part in module.named_children():
        check_supported(part, is_known, known, f"{path}.{child}" if path else child)


def is_layer(module: nn.Module) -> bool:
    """Whether a module is one layer of a library, and not a network or a container made of layers."""
    return type(module).__module__.startswith(LAYERS) and not isinstance(module, CONTAINERS)


def _library(module: nn.Module) -> str:
    return type(module).__module__.partition(".")[0]


# ---- snnTorch -----------------------------------------------------------------------------------


def leaky(module: Any) -> Spike:
    """mem <- beta * mem + x; spike = mem > threshold; and then, one time step later,

    zero      mem <- 0 where spike
    subtract  mem <- mem - threshold / beta where spike
    none      nothing

    snnTorch subtracts the threshold after the leak of the next step: beta * mem + x - threshold * spike.
    """
    _expect(not module.inhibition and not module.state_quant, "inhibition and state_quant are not supported")
    graded = _numbers(module.graded_spikes_factor)
    _expect(bool((graded == 1).all()), "graded spikes; only graded_spikes_factor=1 is supported")
    threshold, beta = _numbers(module.threshold), np.clip(_numbers(module.beta), 0, 1)
    leak = _one_or_each(beta)
    return _spike(leak, threshold, _leaky_subtrahend(module, leak, threshold))


def synaptic(module: Any) -> Spike:
    """syn <- alpha * syn + x; mem <- beta * mem + syn; spikes and resets as in `leaky`"""
    alpha = np.clip(_numbers(module.alpha), 0, 1)
    return replace(_at_once(module), current_leak=_one_or_each(alpha))


def recurrent_leaky(module: Any) -> Spike:
    """mem <- beta * mem + x + recurrent(spike); spikes and resets as in `leaky`"""
    return replace(_at_once(module), recurrent=_recurrent(module))


def recurrent_synaptic(module: Any) -> Spike:
    """syn <- alpha * syn + x + recurrent(spike); mem <- beta * mem + syn

    In snnTorch 1.0, its code for reset_delay=False reads variables that are not there.
    """
    _expect(module.reset_delay, "has reset_delay=False, with which snnTorch's RSynaptic does not run")
    return replace(synaptic(module), recurrent=_recurrent(module))


def _at_once(module: Any) -> Spike:
    """Return the neuron of `leaky`, whose reset to zero must not be late.

    With reset_delay=True, mem is zero in the whole step after a spike, so what arrives in it is lost.
    """
    late = module.reset_mechanism == "zero" and module.reset_delay
    _expect(
        not late and (module.reset_mechanism != "zero" or _numbers(module.threshold).min() >= 0),
        "resets to zero one step late, and then without what arrives in that step, which no neuron of ours "
        "does; use reset_delay=False and thresholds of at least 0, or reset_mechanism='subtract'",
    )
    return leaky(module)


def _recurrent(module: Any) -> Linear | Convolution:
    synapse = module.recurrent
    if isinstance(synapse, nn.Linear):
        return linear(synapse)
    if isinstance(synapse, nn.Conv2d):
        return convolution(synapse)
    weight = _numbers(synapse.V)
    _expect(
        weight.size > 1,
        "connects each neuron to itself with one V; give V one number per feature, or all_to_all=True",
    )
    return Linear(weight=np.diag(weight), bias=np.zeros(weight.size))


def _leaky_subtrahend(module: Any, beta: float | Array, threshold: Array) -> Array | None:
    """Return what a spike subtracts before the next leak; None if it resets the membrane to zero."""
    match module.reset_mechanism:
        case "zero":
            _expect(module.reset_delay or threshold.min() >= 0, "negative thresholds need reset_delay=True")
            return None
        case "none":
            return np.zeros(1)
        case "subtract":
            _expect(
                module.reset_delay,
                "subtracts with reset_delay=False, and then fires at twice the threshold wherever the "
                "membrane is still above it after the reset; no threshold can replace that. Use "
                "reset_delay=True",
            )
            _expect(
                np.min(beta) > 0,
                "subtracts with a beta of 0, after a leak that leaves nothing to subtract from; use a beta "
                "above 0, or reset_mechanism='zero'",
            )
            _expect(
                threshold.min() >= 0,
                "subtracts negative thresholds, already before the first step; only thresholds of at least 0 "
                "are supported",
            )
            return threshold / beta
        case other:
            raise FrontendError(f"reset by {other!r}; 'subtract', 'zero' and 'none' are supported.")


def _spike(leak: float | Array, threshold: Array, subtrahend: Array | None) -> Spike:
    """Return the neuron; thresholds per feature become the offset of a norm: v - threshold > 0."""
    if threshold.size == 1:
        return Spike(leak=leak, threshold=float(threshold.item()), norm=None, subtrahend=subtrahend)
    ones, zeros = np.ones(threshold.size), np.zeros(threshold.size)
    norm = BatchNorm(gain=ones, offset=-threshold, mean=zeros, variance=ones, epsilon=0.0)
    return Spike(leak=leak, threshold=0.0, norm=norm, subtrahend=subtrahend)


# ---- SpikingJelly -------------------------------------------------------------------------------


def if_node(module: Any) -> Spike:
    """v <- v + x; spike = v >= threshold; v <- 0, or v - threshold, where spike"""
    return _node(module, 1.0, module.v_threshold)


def lif_node(module: Any) -> Spike:
    """v <- (1 - 1 / tau) v + x; with decay_input, x / tau, which a threshold scaled by tau absorbs"""
    return _leaking(module, float(module.tau), module.decay_input)


def parametric_node(module: Any) -> Spike:
    """v <- (1 - sigmoid(w)) v + x, or with decay_input, sigmoid(w) x"""
    return _leaking(module, 1 / float(_numbers(module.w.sigmoid()).item()), module.decay_input)


def mpbn_node(module: Any) -> Spike:
    """Raise FrontendError: this neuron has no exact equivalent."""
    raise FrontendError(
        "carries the normalized membrane into the next step, so no threshold can replace its norm. "
        "Train with mpbn_deploy.nn.LIF, which normalizes a copy as in the paper."
    )


def linear_container(module: Any) -> tuple[Operation, ...]:
    """x <- W (x, spike of the step before) + b, and then the module inside: a neuron, or layers before it"""
    inside = module.sub_module
    *before, neuron = inside if isinstance(inside, nn.Sequential) else (inside,)
    layers = [linear(layer) for layer in before if isinstance(layer, nn.Linear)]
    converter = foreign_converters().get(type(neuron))
    spike = None if converter is None else converter(neuron)
    if not isinstance(spike, Spike) or len(layers) < len(before):
        names = ", ".join(type(part).__name__ for part in (*before, neuron))
        raise FrontendError(f"holds {names}; a supported neuron, with linear layers before it, is needed.")
    whole = linear(module.rc)
    features = len(whole.weight)
    again = whole.weight[:, features:]
    for layer in layers:
        again = layer.weight @ again
    loop = Linear(weight=again, bias=np.zeros(len(again)))
    first = Linear(weight=whole.weight[:, :features], bias=whole.bias)
    return first, *layers, replace(spike, recurrent=loop)


def _leaking(module: Any, tau: float, decay_input: bool) -> Spike:
    threshold = module.v_threshold * tau if decay_input else module.v_threshold
    return _node(module, 1 - 1 / tau, threshold)


def _node(module: Any, leak: float, threshold: float) -> Spike:
    """Return the neuron; with v_reset=None, a spike subtracts the threshold."""
    _expect(
        module.v_reset is None or module.v_reset == 0,
        f"resets to {module.v_reset}; only v_reset=0.0, and None to subtract, are supported",
    )
    subtrahend = np.array([float(threshold)]) if module.v_reset is None else None
    return Spike(leak=leak, threshold=_at_least(threshold), norm=None, subtrahend=subtrahend)


# ---- norse --------------------------------------------------------------------------------------


def lif_box_cell(module: Any) -> Spike:
    """v <- v + rate (v_leak - v + x), rate = dt / tau_mem; spike = v > v_th; v <- v_reset, or v - v_th"""
    rate = _rate(module, "tau_mem")
    method = getattr(module.p.reset_method, "__name__", "")
    return _cell(module.p, 1 - rate, rate, soft=method == "reset_subtract")


def lif_cell(module: Any) -> Spike:
    """i <- (1 - dt / tau_syn) i + x; v <- v + rate (v_leak - v + i); otherwise as `lif_box_cell`"""
    rate = _rate(module, "tau_mem")
    return replace(_cell(module.p, 1 - rate, rate, soft=False), current_leak=1 - _rate(module, "tau_syn"))


def _rate(module: Any, name: str) -> float:
    """Return dt / tau, of a time constant that is stored as 1 / tau."""
    rate = _one(getattr(module.p, f"{name}_inv"), f"{name}_inv") * float(module.dt)
    _expect(0 < rate <= 1, f"dt / {name} is {rate:g}; above 0 and at most 1 is supported")
    return rate


def iaf_cell(module: Any) -> Spike:
    """v <- v + x; spike = v > v_th; v <- v_reset where spike"""
    return _cell(module.p, 1.0, 1.0, soft=False)


def _cell(parameters: Any, leak: float, rate: float, soft: bool) -> Spike:
    """Return a neuron of norse; the threshold is in units of its scaled input."""
    rest = _one(getattr(parameters, "v_leak", np.zeros(1)), "v_leak")
    reset = _one(parameters.v_reset, "v_reset")
    _expect(rest == 0 and reset == 0, f"v_leak {rest:g}, v_reset {reset:g}; only 0 is supported")
    threshold = _numbers(parameters.v_th) / rate
    return _spike(leak, threshold, threshold if soft else None)


def _one(values: Any, name: str) -> float:
    numbers = np.unique(_numbers(values))
    _expect(
        numbers.size == 1, f"{numbers.size} different values of {name}; only one for all neurons is supported"
    )
    return float(numbers[0])


def _at_least(threshold: float) -> float:
    """Return t such that v > t is v >= threshold: the next smaller float64."""
    return float(np.nextafter(float(threshold), -inf))


def _one_or_each(values: Array) -> float | Array:
    """Return one number if all are equal."""
    return float(values[0]) if np.unique(values).size == 1 else values


def _numbers(values: Any) -> Array:
    numbers: Array = np.asarray(getattr(values, "detach", lambda: values)(), np.float64).ravel()
    return numbers


def _expect(holds: Any, found: str) -> None:
    if not holds:
        raise FrontendError(f"{found}.")
