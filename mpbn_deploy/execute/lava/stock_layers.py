"""A layer as a graph of Lava's own synapses and neurons; delay lines and windows are ours.

Lava's own neurons are an independent implementation to check `ir.Membrane` against.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array
from ...formats.netx import MOST_STOCK_GROUPS
from ...ir import (
    NO_BORDER,
    THRESHOLD_LIMIT,
    Conv2d,
    Delta,
    Dense,
    FloatLif,
    FloatReadout,
    FloatSoftLif,
    FloatXylo,
    Lif,
    Modulator,
    Pair,
    Readout,
    Relay,
    Shape,
    Sigma,
    SigmaDelta,
    SoftLif,
    Xylo,
    regroup,
    window,
)
from .plans import Arrival, Plan, lava_shape, message_bits, to_lava
from .processes import (
    DelayLine,
    Layer,
    TapedDelta,
    TapedLif,
    TapedModulator,
    TapedSigma,
    TapedSigmaDelta,
    TapeOutput,
    Window,
    port_name,
)

# isort: split
from lava.magma.core.decorator import implements
from lava.magma.core.model.sub.model import AbstractSubProcessModel
from lava.magma.core.process.process import AbstractProcess
from lava.proc.conv.process import Conv as LavaConv
from lava.proc.dense.process import Dense as LavaDense
from lava.proc.graded.process import GradedVec
from lava.utils.weightutils import SignMode


class AbstractStockLayer(AbstractSubProcessModel):  # type: ignore[misc]
    """source port -> delay line, where needed -> synapse -> neurons"""

    def __init__(self, process: Layer) -> None:
        plan: Plan = process.proc_params["plan"]
        self.count = 0
        self.neurons = self._neurons(plan)
        self.neurons.s_out.connect(process.s_out)
        for arrival in plan.arrivals:
            port = self._delayed(plan, arrival, getattr(process, port_name(arrival.port)))
            self._connect(plan, arrival, port)

    def _add(self, process: AbstractProcess) -> Any:
        """Store a process as an attribute, where Lava looks for the parts of a model."""
        setattr(self, f"part{self.count}", process)
        self.count += 1
        return process

    def _neurons(self, plan: Plan) -> TapedLif | TapedModulator | GradedVec:
        raise NotImplementedError

    def _dense(self, plan: Plan, arrival: Arrival, synapse: Dense) -> Iterator[LavaDense]:
        raise NotImplementedError

    def _kernel(self, plan: Plan, synapse: Conv2d) -> Array:
        raise NotImplementedError

    def _delayed(self, plan: Plan, arrival: Arrival, port: Any) -> Any:
        """Return the port, or a delay line after it, which also keeps spikes out of the next sample."""
        delay = arrival.connection.delay
        if arrival.wait == 0 and delay == 0:
            return port
        line = self._add(
            DelayLine(
                shape=port.shape,
                delay=arrival.wait,
                silent=min(delay, plan.timesteps),
                interval=plan.timesteps,
                offset=arrival.source_depth + 1,
                name=arrival.connection.label,
            )
        )
        port.connect(line.s_in)
        return line.s_out

    def _connect(self, plan: Plan, arrival: Arrival, port: Any) -> None:
        synapse = arrival.connection.synapse
        match synapse:
            case Dense():
                flat = port.transpose([2, 1, 0]).flatten() if len(port.shape) == 3 else port
                for process in self._dense(plan, arrival, synapse):
                    flat.connect(self._add(process).s_in)
                    self._arrive(process.a_out)
            case Conv2d():
                synapse = _in_few_groups(synapse)
                process = self._add(
                    LavaConv(
                        weight=self._kernel(plan, synapse),
                        input_shape=lava_shape(arrival.source.shape),
                        stride=_swap(synapse.stride),
                        padding=_swap(synapse.padding),
                        dilation=_swap(synapse.dilation),
                        groups=synapse.groups,
                        num_message_bits=message_bits(arrival.source),
                        name=arrival.connection.label,
                    )
                )
                port.connect(process.s_in)
                self._arrive(self._windowed(synapse, process))
            case _:
                assert_never(synapse)

    def _arrive(self, port: Any) -> None:
        if len(port.shape) != len(self.neurons.a_in.shape):  # a dense synapse into [channels, height, width]
            port = port.reshape(lava_shape(self.neurons.a_in.shape)).transpose([2, 1, 0])
        port.connect(self.neurons.a_in)

    def _windowed(self, synapse: Conv2d, convolution: LavaConv) -> Any:
        """Return the output port, with a Window after it if the synapse has a silent border."""
        port = convolution.a_out
        if synapse.silent == NO_BORDER:
            return port
        rows, columns = window(synapse, lava_shape(port.shape))
        ends = ((columns.start, columns.stop), (rows.start, rows.stop), (0, port.shape[2]))
        process = self._add(Window(shape=port.shape, ends=ends, name=convolution.name))
        port.connect(process.a_in)
        return process.a_out


@implements(proc=Layer)
class StockLayerFixed(AbstractStockLayer):
    """Fixed point: synapses multiply by 2**(exponent - lowest exponent), which is at least 1."""

    def _neurons(self, plan: Plan) -> TapedLif | TapedModulator | GradedVec:
        if isinstance(plan.rule, Modulator):
            return self._modulators(plan, plan.rule)
        if plan.membrane.graded:
            return self._relays(plan)
        return TapedLif(plan=plan, **neuron_parameters(plan))

    def _relays(self, plan: Plan) -> GradedVec:
        """Return Lava's own relays, which send every sum but zero; their voltage is always zero after it."""
        relays = GradedVec(shape=lava_shape(plan.population.shape), vth=0)
        self._record(plan, relays)
        return relays

    def _modulators(self, plan: Plan, rule: Modulator) -> TapedModulator:
        """Return Lava's own sigma-delta neurons; Sigma sends its sum, which is no message."""
        shape, bias = plan.population.shape, to_lava(rule.bias, plan.population.shape)
        if rule.threshold is None:
            return TapedSigma(plan=plan, vth=0, bias=bias)
        kind = TapedSigmaDelta if rule.accumulates else TapedDelta
        neurons = kind(plan=plan, vth=to_lava(rule.threshold, shape), bias=bias)
        self._record(plan, neurons)
        return neurons

    def _record(self, plan: Plan, neurons: AbstractProcess) -> None:
        """Record the messages of neurons that do not write them to the tape themselves."""
        if plan.spike_tape is not None:
            output = self._add(TapeOutput(shape=neurons.s_out.shape, tape=plan.spike_tape))
            neurons.s_out.connect(output.s_in)

    def _dense(self, plan: Plan, arrival: Arrival, synapse: Dense) -> Iterator[LavaDense]:
        for digits, shift in _eight_bits(synapse.weight.astype(np.int64)):
            # With SignMode.MIXED, Lava's Dense stores even weights of -256..254, so 2w with an exponent
            # lower by one is exact. The other sign modes would clip -256.
            yield LavaDense(
                weights=2 * digits.astype(np.int32),
                weight_exp=synapse.exponent - plan.lowest_exponent + shift - 1,
                num_message_bits=message_bits(arrival.source),
                sign_mode=SignMode.MIXED,
                name=arrival.connection.label,
            )

    def _kernel(self, plan: Plan, synapse: Conv2d) -> Array:
        factor = 2 ** (synapse.exponent - plan.lowest_exponent)
        kernel: Array = _convolved(synapse.weight).astype(np.int32) * factor
        return kernel


@implements(proc=Layer)
class StockLayerFloat(AbstractStockLayer):
    """Floating point: synapses multiply by 2**exponent; those of a readout also divide by the time steps."""

    def _neurons(self, plan: Plan) -> TapedLif:
        rule, shape = plan.membrane, plan.population.shape
        threshold = np.full(shape, np.inf) if rule.threshold is None else rule.threshold
        return TapedLif(
            plan=plan,
            vth=to_lava(threshold, shape),
            bias_mant=to_lava(rule.bias, shape) / rule.divisor,
            bias_exp=0,
            du=_decay(1 - rule.decay_current.kept, shape),
            dv=_decay(1 - rule.decay_voltage.kept, shape),
        )

    def _dense(self, plan: Plan, arrival: Arrival, synapse: Dense) -> Iterator[LavaDense]:
        weights = synapse.weight * 2.0**synapse.exponent / plan.membrane.divisor
        yield LavaDense(
            weights=weights,
            num_message_bits=message_bits(arrival.source),
            name=arrival.connection.label,
        )

    def _kernel(self, plan: Plan, synapse: Conv2d) -> Array:
        kernel: Array = _convolved(synapse.weight) * 2.0**synapse.exponent / plan.membrane.divisor
        return kernel


def neuron_parameters(plan: Plan) -> dict[str, Any]:
    """Return the parameters of a population, in Lava's names and axes; Lava adds one to `du`."""
    neuron, shape = plan.population.neuron, plan.population.shape
    match neuron:
        case Lif(threshold=threshold) | SoftLif(threshold=threshold):
            vth = to_lava(threshold, shape)
        case Readout():
            vth = np.full(lava_shape(shape), THRESHOLD_LIMIT)
        case (
            FloatLif()
            | FloatSoftLif()
            | FloatReadout()
            | FloatXylo()
            | Relay()
            | Delta()
            | SigmaDelta()
            | Sigma()
            | Xylo()
        ):
            raise TypeError(f"fixed-point models need an integer membrane, not {type(neuron).__name__}")
        case _:
            assert_never(neuron)
    bias = {"bias_mant": to_lava(neuron.bias, shape), "bias_exp": neuron.bias_exponent}
    du, dv = (_decay(decay, shape) for decay in (neuron.decay_current, neuron.decay_voltage))
    return {"vth": vth, "du": du - 1, "dv": dv, **bias}


def _decay(decay: float | Array, shape: Shape) -> Any:
    """Return a decay, or one per neuron, which Lava's models on the CPU take although LIF declares one."""
    return to_lava(decay, shape) if isinstance(decay, np.ndarray) else decay


def _eight_bits(weight: Array, shift: int = 0) -> Iterator[tuple[Array, int]]:
    """weight = sum of digits * 2**shift, with digits of -128..127; usually one digit"""
    while weight.any() and not (weight & 1).any():
        weight, shift = weight >> 1, shift + 1
    if weight.min() >= -128 and weight.max() <= 127:
        yield weight, shift
        return
    low = ((weight + 64) & 127) - 64
    yield low, shift
    yield from _eight_bits((weight - low) >> 7, shift + 7)


def _in_few_groups(synapse: Conv2d) -> Conv2d:
    """Return the same synapse with at most MOST_STOCK_GROUPS groups, padding its kernels with zeros."""
    if synapse.groups <= MOST_STOCK_GROUPS:
        return synapse
    fewer = max(n for n in range(1, MOST_STOCK_GROUPS + 1) if synapse.groups % n == 0)
    return replace(synapse, weight=regroup(synapse.weight, synapse.groups, fewer), groups=fewer)


def _convolved(weight: Array) -> Array:
    """[out, in, y, x] of a correlation -> [out, x, y, in] of a convolution, which flips its kernel."""
    return weight[:, :, ::-1, ::-1].transpose(0, 3, 2, 1)


def _swap(pair: Pair) -> Pair:
    return pair[1], pair[0]
