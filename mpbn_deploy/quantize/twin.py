"""The quantization-aware twin: an integer network that can be trained.

The parameters are real weights, biases and thresholds. The forward pass computes with the integers that they
round to, in the arithmetic of `ir.Lif` and `ir.SoftLif`: integer weights, integer thresholds and a truncating
leak. All integers stay below 2**24, where float32 is exact (`_check_sums`), so the trained network is the
deployed network, spike by spike.

In the backward pass, rounding is a straight-through estimator, and a spike has the rectangular surrogate
gradient of the paper (Eq. 12), as wide as the standard deviation of its channel's voltages:

    d integer / d real  =  scale           within the format, else 0
    d spike / d voltage =  1 / width       where |voltage - threshold| < width / 2, else 0

Parameters are normalized such that voltages and inputs have a standard deviation of about one. Otherwise, no
learning rate would suit both the large and the small weights that folding leaves in different layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..base import Array, QuantizeError, record
from ..execute.emulator import apply_weight, truncated_decay
from ..ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    Connection,
    Conv2d,
    IntNetwork,
    IntPopulation,
    as_steps,
    exact_float,
    integrating,
    largest_total,
    neuron_subtrahend,
    neuron_threshold,
    with_values,
)
from ..nn import Feedback, Loop, TimedLayer
from .rounding import overflow
from .scales import NumberFormats
from .structure import describe_structure, read_structure

Rounding = Callable[[Tensor], Tensor]

QUANTIZED = "quantized"  # the architecture of such networks in checkpoints
STATE_UNIT = 2.0**STATE_EXPONENT
MAX_TRIALS = 20  # of shrinking channels that could overflow


# ---- rounding with a straight-through gradient ------------------------------------------------


class _Rounded(torch.autograd.Function):
    """integers = clamp(rounding(scale * real), -most, most); backward, times scale where not clamped"""

    @staticmethod
    def forward(ctx: Any, real: Tensor, scale: Tensor, most: int, rounding: Rounding) -> Tensor:
        integers = rounding(real * scale)
        ctx.save_for_backward(integers.abs() <= most, scale)
        return integers.clamp(-most, most)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inside, scale = ctx.saved_tensors
        return gradients[0] * inside * scale, None, None, None


def _rounded(real: Tensor, scale: Tensor, most: int, rounding: Rounding) -> Tensor:
    integers: Tensor = _Rounded.apply(real, scale, most, rounding)  # type: ignore[no-untyped-call]
    return integers


def _spread(values: Tensor, dimensions: int) -> Tensor:
    """Reshape one value per channel to multiply a tensor whose first dimension is that of channels."""
    return values.view(-1, *(1 for _ in range(dimensions - 1)))


def _whole(values: Tensor) -> Array:
    integers: Array = values.detach().cpu().numpy().astype(np.int32)
    return integers


# ---- one connection, one population -----------------------------------------------------------


class QuantizedSynapse(TimedLayer):
    """Computes currents in units of the state: 2**(6 + exponent) * sum of integer weight * input."""

    quanta: Tensor

    def __init__(self, connection: Connection, formats: NumberFormats) -> None:
        super().__init__()
        self.connection = connection
        self.formats = formats  # with the step of this connection
        self.timesteps = 1
        shape = connection.synapse.weight.shape
        self.weight = nn.Parameter(torch.zeros(shape))
        self.register_buffer("quanta", torch.ones(shape[0]))  # mantissa / weight

    def mantissa(self) -> Tensor:
        """round(quanta * weight), within the format"""
        return _rounded(
            self.weight, _spread(self.quanta, self.weight.dim()), self.formats.weight, torch.round
        )

    def integer_weight(self) -> Tensor:
        """step * mantissa"""
        return self.mantissa() * self.formats.step

    def start(self, mantissa: Tensor, quanta: Tensor) -> None:
        """Set the weights to exact multiples of the quanta.

        The real weights from before rounding are a poor starting point: calibration rounds many of them away
        from the nearest integer, and the first steps of training would undo that.
        """
        self.quanta.copy_(quanta)
        self.weight.copy_(mantissa / _spread(self.quanta.double(), mantissa.dim()))

    def forward(self, sent: Tensor) -> Tensor:
        current = apply_weight(self.connection.synapse, self.integer_weight(), sent)
        if self.connection.delay:
            current = self._late(current)
        return current * 2.0 ** (STATE_EXPONENT + self.connection.synapse.exponent)

    @property
    def is_loop(self) -> bool:
        """Whether it leads from a population to itself."""
        return self.connection.source == self.connection.target

    @property
    def feedback(self) -> Feedback:
        synapse = self.connection.synapse
        if not isinstance(synapse, Conv2d):
            return Feedback(padding=None)
        return Feedback(padding=synapse.padding, groups=synapse.groups)

    def loop_weight(self) -> Tensor:
        """Return the integer weights of a loop in units of the state, which is exact: a power of two."""
        return self.integer_weight() * 2.0 ** (STATE_EXPONENT + self.connection.synapse.exponent)

    def _late(self, current: Tensor) -> Tensor:
        steps = current.view(self.timesteps, -1, *current.shape[1:])
        silence = torch.zeros_like(steps[: self.connection.delay])
        return torch.cat([silence, steps[: -self.connection.delay]])[: self.timesteps].reshape(current.shape)


class QuantizedNeurons(TimedLayer):
    """Turns currents [timesteps * batch, *shape] into spikes; a readout, into increments of its voltage."""

    scale: Tensor
    width: Tensor
    subtrahend: Tensor | None

    def __init__(self, population: IntPopulation, formats: NumberFormats) -> None:
        super().__init__()
        neuron = integrating(population.neuron)
        assert neuron is not None, "`describe_structure` refuses relays"
        self.population, self.neuron, self.formats = population, neuron, formats
        self.timesteps = 1
        self.bias = nn.Parameter(torch.zeros(neuron.bias.shape))
        threshold = neuron_threshold(neuron)
        self.threshold = None if threshold is None else nn.Parameter(torch.zeros(threshold.shape))
        subtrahend = neuron_subtrahend(neuron)  # stays the integer it is: it is not trained
        self.register_buffer("subtrahend", None if subtrahend is None else torch.zeros(subtrahend.shape))
        ones = torch.ones(population.shape[0])
        self.register_buffer("scale", ones)  # as in `IntNetwork.scales`
        self.register_buffer("width", ones.clone())  # a voltage of one, in units of the state

    def integer_bias(self) -> Tensor:
        """round(bias * width / 2**bias_exponent), within the format"""
        scale = _spread(self.width / 2.0**self.neuron.bias_exponent, self.bias.dim())
        return _rounded(self.bias, scale, self.formats.bias, torch.round)

    def integer_threshold(self) -> Tensor:
        """floor(threshold * width / 2**6), within the format"""
        assert self.threshold is not None
        scale = _spread(self.width / STATE_UNIT, self.threshold.dim())
        return _rounded(self.threshold, scale, self.formats.threshold, torch.floor)

    def integer_subtrahend(self) -> Tensor | None:
        """round(subtrahend), within the format; None without a soft reset"""
        most = self.formats.threshold
        return None if self.subtrahend is None else self.subtrahend.round().clamp(-most, most)

    def start(self, population: IntPopulation, scales: Array, width: Tensor) -> None:
        """Set the parameters such that they round to the integers of a population."""
        neuron, threshold = integrating(population.neuron), neuron_threshold(population.neuron)
        assert neuron is not None, "`describe_structure` refuses relays"
        subtrahend = neuron_subtrahend(neuron)
        self.scale.copy_(torch.tensor(scales))
        self.width.copy_(width)
        bias = torch.tensor(neuron.bias * 2.0**neuron.bias_exponent)
        self.bias.copy_(bias / _spread(self.width.double(), bias.dim()))
        if threshold is not None and self.threshold is not None:
            between = torch.tensor(threshold + 0.5) * STATE_UNIT  # halfway to the next, as floor is applied
            self.threshold.copy_(between / _spread(self.width.double(), between.dim()))
        if subtrahend is not None and self.subtrahend is not None:
            self.subtrahend.copy_(torch.tensor(subtrahend))

    def integers(self) -> IntPopulation:
        """Return the population with the integers that the parameters round to."""
        bias, fires = _whole(self.integer_bias()), self.threshold is not None
        threshold = _whole(self.integer_threshold()) if fires else None
        integer = self.integer_subtrahend()
        subtrahend = None if integer is None else _whole(integer)
        return self.population.with_neuron(with_values(self.neuron, bias, threshold, subtrahend))

    def forward(self, current: Tensor, loop: QuantizedSynapse | None = None) -> Tensor:
        bias = self.integer_bias() * 2.0**self.neuron.bias_exponent
        if self.threshold is None:
            return current + bias
        width = _spread(self.width, current.dim() - 1)
        threshold = self.integer_threshold() * STATE_UNIT
        weight = None if loop is None else loop.loop_weight()
        spikes: Tensor = _Scan.apply(  # type: ignore[no-untyped-call]
            self._charge(current, loop), bias, threshold, weight, self._rule(loop), width
        )
        return spikes

    def _charge(self, arriving: Tensor, loop: QuantizedSynapse | None) -> Tensor:
        """Return the currents, which may outlast a time step, of what arrives in each step.

        The current of a recurrent layer is part of its loop.
        """
        if self.neuron.decay_current == DECAY_ONE or loop is not None:
            return arriving
        charge: Tensor = _Charge.apply(  # type: ignore[no-untyped-call]
            arriving, self.neuron.decay_current, self.timesteps
        )
        return charge

    def _rule(self, loop: QuantizedSynapse | None) -> ScanRule:
        integer = self.integer_subtrahend()
        subtrahend = None if integer is None else integer * STATE_UNIT
        decay, decay_current = self.neuron.decay_voltage, self.neuron.decay_current
        assert isinstance(decay, int) and isinstance(decay_current, int), "a structure has one for each layer"
        feedback = None if loop is None else loop.feedback
        return ScanRule(
            timesteps=self.timesteps,
            decay=decay,
            subtrahend=subtrahend,
            decay_current=decay_current,
            feedback=feedback,
        )

    def deviation(self, current: Tensor, loop: QuantizedSynapse | None = None) -> Tensor:
        """Return the standard deviation of each channel's voltages before the reset."""
        bias = self.integer_bias() * 2.0**self.neuron.bias_exponent
        charge, threshold = self._charge(current, loop), self.integer_threshold() * STATE_UNIT
        weight = None if loop is None else loop.loop_weight()
        _, voltages = scan_integers(charge, bias, threshold, self._rule(loop), weight)
        deviation = voltages.transpose(0, 1).flatten(1).double().std(dim=1)
        return torch.where(deviation > 0, deviation, self.scale.double() * STATE_UNIT)


# ---- a population over all time steps ---------------------------------------------------------


@record
class ScanRule:
    """The constants of neurons over all time steps; `subtrahend` is that of a soft reset.

    Recurrent layers have a `feedback`, and only their currents are part of the scan (`decay_current`).
    """

    timesteps: int
    decay: int
    subtrahend: Tensor | None = None
    decay_current: int = DECAY_ONE
    feedback: Feedback | None = None

    def loop(self, weight: Tensor | None) -> Loop:
        """Return the part that crosses time steps, without any spikes yet."""
        kept = 1 - self.decay_current / DECAY_ONE
        return Loop(weight, self.feedback, kept, truncated_decay(self.decay_current))


def scan_integers(
    current: Tensor, bias: Tensor, threshold: Tensor, rule: ScanRule, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return spikes, and voltages before the reset, for currents [timesteps * batch, *shape].

    This is `ir.Membrane` in torch, for speed; a test compares the two. `weight` is that of the feedback.
    """
    voltages, spikes = torch.empty_like(current), torch.empty_like(current)
    keep, reset, loop = truncated_decay(rule.decay), None, rule.loop(weight)
    steps = zip(*(values.chunk(rule.timesteps) for values in (current, voltages, spikes)), strict=True)
    for now, voltage, spike in steps:
        torch.add(loop.current(now), bias, out=voltage)
        if reset is not None and keep is not None:
            voltage += keep(reset)
        torch.gt(voltage, threshold, out=spike)
        subtrahend = voltage if rule.subtrahend is None else rule.subtrahend
        reset = torch.addcmul(voltage, subtrahend, spike, value=-1)
        loop.spike = spike
    return spikes, voltages


class _Charge(torch.autograd.Function):
    """A current that outlasts a time step, in integers.

    forward     charge    = trunc(keep * charge) + arriving
    backward    by_charge = dL/dcharge + keep * by_next
    """

    @staticmethod
    def forward(ctx: Any, arriving: Tensor, decay: int, timesteps: int) -> Tensor:
        ctx.decay, ctx.timesteps = decay, timesteps
        keep = truncated_decay(decay)
        assert keep is not None, "such a current has no charge"
        charges = arriving.clone(memory_format=torch.contiguous_format)
        for before, charge in pairwise(charges.chunk(timesteps)):
            charge += keep(before.clone())
        return charges

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_charge = gradients[0].clone(memory_format=torch.contiguous_format)
        for by_next, by_now in pairwise(reversed(by_charge.chunk(ctx.timesteps))):
            by_now.add_(by_next, alpha=1 - ctx.decay / DECAY_ONE)
        return by_charge, None, None


class _Scan(torch.autograd.Function):
    """The scan of `nn` in integers, with the neurons of `ir.Lif` and `ir.SoftLif`.

    forward     voltage    = trunc(keep * reset) + current + bias
                spike      = voltage > threshold
                reset      = voltage * (1 - spike)

    backward    by_spike   = dL/dspike - keep * by_next * voltage
                through    = by_spike / width  where |voltage - threshold| < width / 2
                by_voltage = through + keep * by_next * (1 - spike)

    soft reset  reset      = voltage - spike * subtrahend
                by_spike   = dL/dspike - keep * by_next * subtrahend
                by_voltage = through + keep * by_next

    A recurrent layer adds the steps of `nn.Loop`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        current: Tensor,
        bias: Tensor,
        threshold: Tensor,
        weight: Tensor | None,
        rule: ScanRule,
        width: Tensor,
    ) -> Tensor:
        spikes, voltages = scan_integers(current, bias, threshold, rule, weight)
        ctx.save_for_backward(voltages, spikes, threshold, width, weight)
        ctx.rule, ctx.bias_shape = rule, bias.shape
        return spikes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        voltages, spikes, threshold, width, weight = ctx.saved_tensors
        rule: ScanRule = ctx.rule
        keep = 1 - rule.decay / DECAY_ONE
        by_current = torch.empty_like(voltages)
        by_threshold = torch.zeros_like(threshold)
        by_bias = voltages.new_zeros(ctx.bias_shape)
        loop = rule.loop(weight)
        by_next: Tensor | None = None
        tensors = (gradients[0].contiguous(), voltages, spikes, by_current)
        for by_spike, voltage, spike, by_voltage in reversed(
            list(zip(*(t.chunk(rule.timesteps) for t in tensors), strict=True))
        ):
            by_spike = loop.by_spike(by_spike)
            if by_next is not None:
                subtrahend = voltage if rule.subtrahend is None else rule.subtrahend
                by_spike = torch.addcmul(by_spike, by_next, subtrahend, value=-keep)
            near = (voltage - threshold).abs_() < width / 2
            through = by_spike * near / width
            by_threshold -= through.sum(0).sum_to_size(threshold.shape)
            by_voltage.copy_(through)
            if by_next is not None:
                by_voltage += keep * (by_next - by_next * spike if rule.subtrahend is None else by_next)
            by_bias += by_voltage.sum(0).sum_to_size(ctx.bias_shape)
            by_next = loop.by_membrane(by_voltage)
        by_weight = loop.by_weight(*(t.unflatten(0, (rule.timesteps, -1)) for t in (by_current, spikes)))
        return by_current, by_bias, by_threshold, by_weight, None, None


# ---- the network ------------------------------------------------------------------------------


class QuantizedBody(nn.Module):
    """The body of a SpikingNetwork that takes raw inputs and computes with integers.

    `structure` comes from `describe_structure`; the network's numbers are parameters.
    """

    def __init__(self, structure: str) -> None:
        super().__init__()
        self.structure = structure
        template, formats, steps = read_structure(structure)
        self.source, self.formats = template.input, formats
        self.neurons = nn.ModuleList(QuantizedNeurons(p, formats) for p in template.layers)
        self.synapses = nn.ModuleList(
            QuantizedSynapse(connection, replace(formats, step=step))
            for connection, step in zip(template.connections, steps, strict=True)
        )

    @property
    def all_neurons(self) -> list[QuantizedNeurons]:
        """The populations after the input, in order."""
        return cast(list[QuantizedNeurons], list(self.neurons))

    @property
    def all_synapses(self) -> list[QuantizedSynapse]:
        """The connections, in order."""
        return cast(list[QuantizedSynapse], list(self.synapses))

    @classmethod
    def of(cls, network: IntNetwork, formats: NumberFormats, inputs: Array) -> QuantizedBody:
        """Build the twin of an integer network; `inputs` are used to measure how its voltages vary."""
        body = cls(describe_structure(network, formats))
        units = {p.name: torch.tensor(network.scales[p.name] * STATE_UNIT) for p in network.layers}
        with torch.no_grad():
            body._start(network, units, 1.0)
            units |= body._deviations(inputs, network.timesteps)
            power = float(np.sqrt(np.mean(np.square(inputs, dtype=np.float64))))
            body._start(network, units, power or 1.0)
        return body

    def _start(self, network: IntNetwork, units: Mapping[str, Tensor], power: float) -> None:
        """Set all parameters to the integers of a network, normalized by units of voltage and input power."""
        for neurons, population in zip(self.all_neurons, network.layers, strict=True):
            neurons.start(population, network.scales[population.name], units[population.name])
        for synapse, connection in zip(self.all_synapses, network.connections, strict=True):
            weight, step = connection.synapse.weight, synapse.formats.step
            unit = units[connection.target] / (STATE_UNIT * step * 2.0**connection.synapse.exponent)
            if connection.source == self.source.name:
                unit = unit / power
            synapse.start(
                torch.tensor(weight // step).double(),
                unit.repeat_interleave(len(weight) // len(unit)),
            )

    def _deviations(self, inputs: Array, timesteps: int) -> dict[str, Tensor]:
        """Return the standard deviation of the voltages of each channel that fires, in units of the state."""
        found = {}

        def measure(neurons: QuantizedNeurons, given: tuple[Any, ...], sent: Tensor) -> None:
            if neurons.threshold is not None:
                found[neurons.population.name] = neurons.deviation(*given)

        for layer in (*self.all_neurons, *self.all_synapses):
            layer.timesteps = timesteps
        hooks = [neurons.register_forward_hook(measure) for neurons in self.all_neurons]
        stepped = as_steps(np.asarray(inputs, np.float32), self.source.shape, timesteps)
        self.run(torch.from_numpy(stepped.swapaxes(0, 1).copy()).flatten(0, 1))
        for hook in hooks:
            hook.remove()
        return found

    def to_integers(self, timesteps: int) -> IntNetwork:
        """Return the integer network that will be deployed."""
        with torch.no_grad():
            return IntNetwork(
                populations=(self.source, *(module.integers() for module in self.all_neurons)),
                connections=tuple(map(_integer_connection, self.all_synapses)),
                timesteps=timesteps,
                scales={m.population.name: m.scale.double().cpu().numpy() for m in self.all_neurons},
            )

    def forward(self, steps: Tensor) -> Tensor:
        """Return the increments of the readout in each step, in real units: [timesteps * batch, classes]."""
        last = self.all_neurons[-1]
        gained = self.run(steps)[last.population.name]
        return gained / _spread(last.width, gained.dim() - 1)

    def run(self, steps: Tensor) -> dict[str, Tensor]:
        """Return the spikes of every population, [timesteps * batch, *shape], and a readout's increments."""
        sent = {self.source.name: steps.view(-1, *self.source.shape)}
        with torch.backends.nnpack.flags(enabled=False):  # its fast convolutions are not exact
            for neurons in self.all_neurons:
                name, shape = neurons.population.name, neurons.population.shape
                entering = [s for s in self.all_synapses if s.connection.target == name]
                loops = [synapse for synapse in entering if synapse.is_loop]
                current, *others = (
                    s(sent[s.connection.source]).view(-1, *shape) for s in entering if not s.is_loop
                )
                for other in others:
                    current = current + other
                sent[name] = neurons(current, *loops)
        return sent

    def freeze_thresholds(self) -> None:
        """Exclude thresholds from training."""
        for neurons in self.all_neurons:
            if neurons.threshold is not None:
                neurons.threshold.requires_grad_(False)

    def prevent_overflow(self, timesteps: int) -> None:
        """Shrink the channels whose states could overflow for some input, until none can."""
        for _ in range(MAX_TRIALS):
            network = self.to_integers(timesteps)
            excess = {p.name: overflow(network, p, self.formats) for p in network.layers}
            if max(float(ratio.max()) for ratio in excess.values()) <= 1:
                _check_sums(network)
                return
            with torch.no_grad():
                self._shrink(excess)
        worst = max(excess, key=lambda name: float(excess[name].max()))
        raise QuantizeError(
            f"{worst}: its states could overflow even with smaller weights; lower the learning rate."
        )

    def _shrink(self, excess: Mapping[str, Array]) -> None:
        factors = {name: torch.tensor(0.999 / np.maximum(ratio, 1)) for name, ratio in excess.items()}
        factors = {name: torch.where(factor < 0.999, factor, 1.0) for name, factor in factors.items()}
        for neurons in self.all_neurons:
            neurons.bias.mul_(_spread(factors[neurons.population.name], neurons.bias.dim()))
        for synapse in self.all_synapses:
            factor = factors[synapse.connection.target]
            rows = factor.repeat_interleave(len(synapse.weight) // len(factor))
            synapse.weight.mul_(_spread(rows, synapse.weight.dim()))


def _check_sums(network: IntNetwork) -> None:
    """Raise if currents that cancel could be too large for float32, in which the twin computes."""
    for population in network.layers:
        arrivals = [(c, network.population(c.source)) for c in network.entering(population.name)]
        if exact_float(largest_total(arrivals)) != np.float32:
            raise QuantizeError(
                f"{population.name}: its currents could sum to 2**24 or more, beyond which training in "
                "float32 is not exact; use inputs whose range contains zero, or train without --quantize."
            )


def _integer_connection(module: QuantizedSynapse) -> Connection:
    synapse = replace(module.connection.synapse, weight=_whole(module.integer_weight()))
    return replace(module.connection, synapse=synapse)
