"""Lay a network out in the core's memories: IntNetwork -> Tables.

Spikes are words of LANES channels, [time step][pixel][word], and weights are rows of LANES target channels,
[target group][tap][source channel]. A matrix is a convolution whose kernel is as large as its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ...base import Array, NetworkError, record
from ...ir import (
    DECAY_ONE,
    NO_BORDER,
    STATE_EXPONENT,
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    IntPopulation,
    Shape,
    bounds,
    counting,
    fires,
    integrating,
    largest_sum,
    neuron_kind,
    neuron_subtrahend,
    neuron_threshold,
    varies,
)
from .tables import CONNECTION_FIELDS, FRACTION_BITS, LAYER_FIELDS, Grid, Tables, pack

STATE_BITS = 24
MULTIPLIER_BITS = 16  # of an accumulator that yosys puts into the multiplier of an iCE40
WEIGHT_WIDTHS = (2, 4, 8, 16, 32)


# ---- populations --------------------------------------------------------------------------------


def grid(name: str, shape: Shape, unit: int, base: int = 0) -> Grid:
    channels, height, width = (*shape, 1, 1)[:3]
    return Grid(name=name, channels=channels, height=height, width=width, unit=unit, base=base)


def obstacle(network: IntNetwork) -> str | None:
    """Return a feature of the network that the core does not hold, or None if there is none."""
    for population in network.layers:
        if counting(population.neuron) is not None:
            return f"{population.name}: neurons of Xylo, which fire several times in a step"
        if integrating(population.neuron) is None:
            return f"{population.name}: {neuron_kind(population.neuron)} neurons, which send graded messages"
        if varies(population.neuron):
            return f"{population.name}: numbers that depend on the time step; the core has one set of them"
    if network.foreign and not all(bound.fits for bound in bounds(network).values()):
        return "integers of others, whose states may overflow as in Lava"
    return None


def loops(network: IntNetwork) -> list[range]:
    """Return the ranges of layers that must run step by step, because spikes return within them."""
    order = network.order
    found: list[range] = []
    for connection in sorted(network.feedback, key=lambda c: order[c.target]):
        span = range(order[connection.target] - 1, order[connection.source])
        if found and span.start < found[-1].stop:
            last = found.pop()
            span = range(last.start, max(last.stop, span.stop))
        found.append(span)
    return found


# ---- connections ----------------------------------------------------------------------------------


@record
class Window:
    """The words of source channels that a group of target channels reads: `count` from step * group on."""

    step: int
    count: int


def window(synapse: Conv2d | Dense, source: Grid, target: Grid) -> Window:
    """Return the narrowest window; all words if channel groups are not aligned with words."""
    everything = Window(step=0, count=source.words)
    if isinstance(synapse, Dense) or synapse.groups == 1:
        return everything
    inner, outer = synapse.weight.shape[1], len(synapse.weight) // synapse.groups
    channels = np.arange(target.words * target.unit).clip(max=target.channels - 1).reshape(-1, target.unit)
    first = channels[:, 0] // outer * inner // source.unit
    last = ((channels[:, -1] // outer + 1) * inner - 1) // source.unit
    step, count = int(first[-1] - first[0]) // max(1, len(first) - 1), int((last - first).max()) + 1
    regular = np.array_equal(first, step * np.arange(len(first))) and first[-1] + count <= source.words
    return Window(step=step, count=count) if regular else everything


def kernels(synapse: Conv2d | Dense, source: Grid, target: Grid) -> Array:
    """Return weights [target pixel or 1, target channel, source channel, tap row, tap column]."""
    match synapse:
        case Dense(weight=weight):
            shape = (
                target.channels,
                target.height * target.width,
                source.channels,
                source.height,
                source.width,
            )
            return weight.astype(np.int64).reshape(shape).swapaxes(0, 1)
        case Conv2d(weight=weight, groups=groups):
            outer, inner = len(weight) // groups, weight.shape[1]
            wide = np.zeros((groups, outer, groups, *weight.shape[1:]), np.int64)
            each = np.arange(groups)
            wide[each, :, each] = weight.reshape(groups, outer, *weight.shape[1:])
            return wide.reshape(1, len(weight), groups * inner, *weight.shape[2:])
        case _:
            assert_never(synapse)


def weight_rows(weights: Array, view: Window, source: Grid, target: Grid) -> Array:
    """Return [pixel, group, row, lane]: for each group of target channels the rows that it reads."""
    pixels, outer, inner, *taps = weights.shape
    padded = np.zeros((pixels, target.words * target.unit, source.words * source.unit, *taps), np.int64)
    padded[:, :outer, :inner] = weights
    lanes = padded.reshape(pixels, target.words, target.unit, -1, *taps)
    groups = []
    for group in range(target.words):
        first = view.step * group * source.unit
        read = lanes[:, group, :, first : first + view.count * source.unit]
        groups.append(np.moveaxis(read, (3, 4, 2, 1), (1, 2, 3, 4)).reshape(pixels, -1, target.unit))
    return np.stack(groups, axis=1)


def connection_numbers(
    connection: Connection, source: Grid, target: Grid, steps: int, rewind: int
) -> dict[str, int]:
    """Return the fields of a connection that do not depend on weights; `rewind` steps precede a move."""
    synapse, view = connection.synapse, window(connection.synapse, source, target)
    taps, stride, padding, dilation, silent = (source.height, source.width), (0, 0), (0, 0), (1, 1), NO_BORDER
    if isinstance(synapse, Conv2d):
        height, width = synapse.weight.shape[2:]
        taps, stride, padding, dilation = (height, width), synapse.stride, synapse.padding, synapse.dilation
        silent = synapse.silent
    delay, right, down = min(connection.delay, steps), source.words, source.width * source.words
    back = (target.words - 1) * view.step + rewind * source.time_step
    return {
        "graded": int(source.unit == 1),
        "pixelwise": int(isinstance(synapse, Dense)),
        "delay": delay,
        "kernel_height": taps[0],
        "kernel_width": taps[1],
        "source_height": source.height,
        "source_width": source.width,
        "start_y": -padding[0],
        "start_x": -padding[1],
        "stride_y": stride[0],
        "stride_x": stride[1],
        "dilation_y": dilation[0],
        "dilation_x": dilation[1],
        "words": view.count,
        "top": silent[0][0],
        "bottom": target.height - silent[0][1],
        "left": silent[1][0],
        "right": target.width - silent[1][1],
        "base": source.base - padding[0] * down - padding[1] * right - delay * source.time_step,
        "time_step": source.time_step,
        "tap_right": dilation[1] * right,
        "tap_down": dilation[0] * down - (taps[1] - 1) * dilation[1] * right,
        "next_group": view.step - rewind * source.time_step,
        "next_column": stride[1] * right - back,
        "next_row": stride[0] * down - (target.width - 1) * stride[1] * right - back,
        "tap_rows": view.count * source.unit,
        "rows": taps[0] * taps[1] * view.count * source.unit,
    }


# ---- neurons ----------------------------------------------------------------------------------------


def neuron_numbers(population: IntPopulation) -> dict[str, Array]:
    """Return bias (in units of the state), threshold, subtrahend, kept fractions, each [channels, y, x]."""
    neuron = integrating(population.neuron)
    assert neuron is not None  # `obstacle` names all others
    threshold, subtrahend = neuron_threshold(neuron), neuron_subtrahend(neuron)
    zero = np.zeros(1, np.int64)
    values = {
        "bias": neuron.bias.astype(np.int64) << neuron.bias_exponent,
        "threshold": zero if threshold is None else threshold,
        "subtrahend": zero if subtrahend is None else subtrahend,
        "keep_voltage": DECAY_ONE - np.asarray(neuron.decay_voltage, np.int64),
        "keep_current": DECAY_ONE - np.asarray(neuron.decay_current, np.int64),
    }
    shape = (*population.shape, 1, 1)[:3]
    whole = {name: np.broadcast_to(each, population.shape).reshape(shape) for name, each in values.items()}
    return {name: each.astype(np.int64) for name, each in whole.items()}


def line_classes(values: Array, axis: int) -> tuple[Array, Array]:
    """Number the distinct rows or columns of [fields, channels, y, x]: class of each, first of each."""
    lines = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    _, first, which = np.unique(lines, axis=0, return_index=True, return_inverse=True)
    return which.ravel(), first


def state_bits(network: IntNetwork) -> int:
    """Return the bits that provably hold every state, and counts of spikes; 24 where there is no proof."""
    proved = bounds(network).values()
    largest = max(1 << STATE_EXPONENT, network.timesteps, *(bound.magnitude for bound in proved))
    return min(STATE_BITS, largest.bit_length() + 1)


# ---- the whole network ------------------------------------------------------------------------------


def core_tables(network: IntNetwork, *, lanes: int = 8, static: bool = True) -> Tables:
    """Return the contents of the core's memories; `static` inputs are the same in every time step."""
    if (reason := obstacle(network)) is not None:
        raise NetworkError("verilog", [reason])
    return _Builder(network, lanes, static=static).tables()


class _Builder:
    """Collects the words of layers and connections, and then chooses widths."""

    def __init__(self, network: IntNetwork, lanes: int, *, static: bool) -> None:
        self.network, self.lanes, self.steps, self.static = network, lanes, network.timesteps, static
        self.finest = min(c.synapse.exponent for c in network.connections)
        reads = [c.synapse.exponent for c in network.connections if c.source == network.input.name]
        self.graded_shift = min(reads, default=self.finest) - self.finest
        self.loops = loops(network)
        self.grids = self._grids()
        self.neurons = {p.name: neuron_numbers(p) for p in network.layers}
        self.each_decays = any(
            np.ptp(numbers[key])
            for numbers in self.neurons.values()
            for key in ("keep_voltage", "keep_current")
        )
        self.rows: list[Array] = []
        self.row_count = 0
        self.layers: list[dict[str, int]] = []
        self.connections: list[dict[str, int]] = []
        self.parameters: list[Array] = []  # [fields, parameters] of each layer
        self.parameter_count = 0
        self.places: list[int] = []
        self.states = lanes  # the neurons at work; those of loops follow
        self.state_bits = state_bits(network)

    def _grids(self) -> dict[str, Grid]:
        name, shape = self.network.input.name, self.network.input.shape
        source = grid(name, shape, 1)
        grids = {name: replace(source, time_step=0 if self.static else source.size)}
        at = 0
        for population in self.network.layers:
            found = grid(population.name, population.shape, self.lanes, at)
            grids[population.name] = replace(found, time_step=found.size)
            at += self.steps * found.size if fires(population.neuron) else 0
        self.spike_words = at
        return grids

    def tables(self) -> Tables:
        for number, population in enumerate(self.network.layers):
            self._add_layer(number, population)
        self._fill()
        numbers = self._numbers()
        fields = np.concatenate(self.parameters, axis=1)
        fields[0] >>= numbers["BIAS_SHIFT"]
        widths = [numbers["BIAS_BITS"], numbers["THRESHOLD_BITS"], numbers["SUBTRAHEND_BITS"]]
        widths += [FRACTION_BITS] * (len(fields) - len(widths))
        words = [pack(zip(reversed(values), reversed(widths), strict=True)) for values in fields.T.tolist()]
        return Tables(
            numbers=numbers,
            layers=self.layers,
            connections=self.connections,
            weights=np.concatenate(self.rows),
            parameters=words,
            places=self.places,
            populations=tuple(self.grids[p.name] for p in self.network.layers),
        )

    def _fill(self) -> None:
        """Add zeros to small memories, so that every bit of their addresses is used."""
        missing = max(0, 2 * self.lanes - self.row_count)
        self.rows.append(np.zeros((missing, self.lanes), np.int64))
        self.row_count += missing
        missing = max(0, 2 * self.lanes - self.parameter_count)
        self.parameters.append(np.zeros((len(self.parameters[0]), missing), np.int64))
        self.parameter_count += missing

    def _add_layer(self, number: int, population: IntPopulation) -> None:
        target, values = self.grids[population.name], self.neurons[population.name]
        loop = next((span for span in self.loops if number in span), None)
        entering = self.network.entering(population.name)
        source_is_input = [c.source == self.network.input.name and c.delay == 0 for c in entering]
        first = len(self.connections)
        for connection in entering:
            self._add_connection(connection, target, 1 if loop else self.steps)
        first_parameter, places = self._add_parameters(values, target)
        self.layers.append(
            {
                "loop": int(loop is not None),
                "loop_ends": int(loop is not None and number == loop.stop - 1),
                "holds": int(loop is None and source_is_input == [True] and self.static),
                "fires": int(fires(population.neuron)),
                "subtracts": int(neuron_subtrahend(population.neuron) is not None),
                "keep_current": int(values["keep_current"].flat[0]),
                "keep_voltage": int(values["keep_voltage"].flat[0]),
                "height": target.height,
                "width": target.width,
                "groups": target.words,
                "first_connection": first,
                "last_connection": len(self.connections) - 1,
                "loop_start": loop.start if loop else 0,
                "first_parameter": first_parameter,
                "first_row_place": places,
                "first_column_place": places + target.height,
                "first_store": target.base,
                "store_step": target.size,
                "first_state": self.states if loop else 0,
            }
        )
        self.states += target.size * self.lanes if loop else 0

    def _add_connection(self, connection: Connection, target: Grid, rewind: int) -> None:
        source, synapse = self.grids[connection.source], connection.synapse
        numbers = connection_numbers(connection, source, target, self.steps, rewind)
        weights, shift = kernels(synapse, source, target), synapse.exponent - self.finest
        if numbers["graded"]:
            weights, shift = weights << shift - self.graded_shift, 0
        rows = weight_rows(weights, window(synapse, source, target), source, target).reshape(-1, self.lanes)
        missing = -len(rows) % self.lanes  # rows of words are aligned
        self.connections.append({**numbers, "factor": 1 << shift, "first_row": self.row_count})
        self.rows.append(np.pad(rows, ((0, missing), (0, 0))))
        self.row_count += len(rows) + missing

    def _add_parameters(self, values: Mapping[str, Array], target: Grid) -> tuple[int, int]:
        """Store each distinct row and column once; return the first parameter and the first place."""
        names = ("bias", "threshold", "subtrahend", "keep_voltage", "keep_current")
        stack = np.stack([values[name] for name in names[: 5 if self.each_decays else 3]])
        beyond = 1 << self.state_bits - 1 - STATE_EXPONENT  # no state is as large
        stack[1] = stack[1].clip(-beyond - 1, beyond)
        padded = np.zeros((len(stack), target.words * self.lanes, *stack.shape[2:]), np.int64)
        padded[:, : target.channels] = stack
        row_class, first_rows = line_classes(padded, 2)
        column_class, first_columns = line_classes(padded, 3)
        distinct = padded[:, :, first_rows][:, :, :, first_columns]
        size, first, places = padded.shape[1], self.parameter_count, len(self.places)
        self.places += (row_class * len(first_columns) * size).tolist() + (column_class * size).tolist()
        self.parameters.append(np.moveaxis(distinct, 1, 3).reshape(len(stack), -1))
        self.parameter_count += self.parameters[-1].shape[1]
        return first, places

    def _numbers(self) -> dict[str, int]:
        counts = [entry[f.name] for fields, entries in
                  ((LAYER_FIELDS, self.layers), (CONNECTION_FIELDS, self.connections))
                  for entry in entries for f in fields if f.width == "COUNT"]  # fmt: skip
        reach = max(
            size - 2 * start + dilation * taps
            for c in self.connections
            for size, start, dilation, taps in (
                (c["source_height"], c["start_y"], c["dilation_y"], c["kernel_height"]),
                (c["source_width"], c["start_x"], c["dilation_x"], c["kernel_width"]),
            )
        )
        count_bits = unsigned_bits(max(*counts, reach)) + 1
        inputs = self.network.input.size * (1 if self.static else self.steps)
        input_bits, spike_bits = unsigned_bits(inputs - 1), unsigned_bits(self.spike_words - 1)
        output = self.grids[self.network.output.name]
        outputs = output.size * self.lanes
        score_bits = max(unsigned_bits(outputs - 1), unsigned_bits(self.lanes - 1) + 1)
        return {
            "LANES": self.lanes,
            "STEPS": self.steps,
            "LAYERS": len(self.layers),
            "CONNECTIONS": len(self.connections),
            "CURSORS": max(e["last_connection"] - e["first_connection"] + 1 for e in self.layers),
            "BORDERS": int(self._has_borders()),
            "LAYER_BITS": unsigned_bits(len(self.layers) - 1),
            "CONNECTION_BITS": unsigned_bits(len(self.connections) - 1),
            "COUNT_BITS": count_bits,
            "STEP_BITS": unsigned_bits(self.steps),
            "ADDRESS_BITS": max(input_bits, spike_bits, count_bits) + 1,
            "INPUT_BITS": input_bits,
            "INPUTS": inputs,
            "INPUT_WORDS": max(2, inputs),
            "SPIKE_BITS": spike_bits,
            "SPIKE_WORDS": max(2, self.spike_words),
            "ROW_BITS": unsigned_bits(self.row_count - 1),
            "ROWS": self.row_count,
            "PARAMETER_BITS": unsigned_bits(self.parameter_count - 1),
            "PARAMETERS": self.parameter_count,
            "PLACE_BITS": unsigned_bits(len(self.places) - 1),
            "PLACES": len(self.places),
            "STATE_ADDRESS_BITS": unsigned_bits(self.states - 1),
            "SCORE_BITS": score_bits,
            "OUTPUTS": outputs,
            "SCORES": output.channels if output.height * output.width == 1 else outputs,
            "INDEX_BITS": max(input_bits, spike_bits, score_bits) + 1,
            **self._arithmetic(),
        }

    def _has_borders(self) -> bool:
        targets = [
            layer
            for layer in self.layers
            for _ in range(layer["first_connection"], layer["last_connection"] + 1)
        ]
        return any(
            (c["top"], c["left"], c["bottom"], c["right"]) != (0, 0, layer["height"], layer["width"])
            for c, layer in zip(self.connections, targets, strict=True)
        )

    def _arithmetic(self) -> dict[str, int]:
        """Return the widths and shifts of numbers; sums may wrap, because what they become fits the state."""
        fields = np.concatenate(self.parameters, axis=1)
        weights = np.concatenate(self.rows)
        values = np.array([self.network.input_range.minimum, self.network.input_range.maximum])
        value_bits = signed_bits(values)
        factor_bits = unsigned_bits(max(c["factor"] for c in self.connections))
        event_bits = max(value_bits + self.graded_shift, factor_bits) + 1
        weight_bits = next(bits for bits in WEIGHT_WIDTHS if bits >= signed_bits(weights))
        shift = STATE_EXPONENT + self.finest
        needed = min(self._largest_sum_bits(), STATE_BITS - shift)
        sum_bits = max(needed, MULTIPLIER_BITS, event_bits + 1, weight_bits + 1)
        bias_shift = min(self.state_bits - 2, _trailing_zeros(fields[0]))
        bias_bits, threshold_bits = signed_bits(fields[0] >> bias_shift), signed_bits(fields[1])
        subtrahend_bits = signed_bits(fields[2])
        return {
            "STATE_BITS": max(
                self.state_bits, sum_bits + 1, bias_bits + 1, threshold_bits + 1, subtrahend_bits + 1
            ),
            "WEIGHT_BITS": weight_bits,
            "VALUE_BITS": value_bits,
            "FACTOR_BITS": factor_bits,
            "GRADED_SHIFT": self.graded_shift,
            "EVENT_BITS": event_bits,
            "SUM_BITS": sum_bits,
            "SUM_SHIFT": shift,
            "BIAS_BITS": bias_bits,
            "BIAS_SHIFT": bias_shift,
            "THRESHOLD_BITS": threshold_bits,
            "SUBTRAHEND_BITS": subtrahend_bits,
            "PARAMETER_WIDTH": bias_bits
            + threshold_bits
            + subtrahend_bits
            + (2 * FRACTION_BITS if self.each_decays else 0),
            "CURRENTS": int(self._mask("keep_current") != 0),
            "SOFT": int(any(layer["subtracts"] for layer in self.layers)),
            "NEURON_DECAYS": int(self.each_decays),
            "VOLTAGE_MASK": self._mask("keep_voltage"),
            "CURRENT_MASK": self._mask("keep_current"),
            "VOLTAGE_ONE_HOT": self._one_hot("keep_voltage"),
            "CURRENT_ONE_HOT": self._one_hot("keep_current"),
        }

    def _mask(self, name: str) -> int:
        """Return the bits that some kept fraction has."""
        return int(
            np.bitwise_or.reduce([np.bitwise_or.reduce(n[name], axis=None) for n in self.neurons.values()])
        )

    def _one_hot(self, name: str) -> int:
        """Return 1 if every kept fraction is a power of two, or zero."""
        return int(all(not (n[name] & n[name] - 1).any() for n in self.neurons.values()))

    def _largest_sum_bits(self) -> int:
        """Return the bits of the largest sum of synapses that can arrive, in units of the finest weight."""
        largest = 0.0
        for population in self.network.layers:
            entering = self.network.entering(population.name)
            total = sum(
                2.0 ** (c.synapse.exponent - self.finest) * largest_sum(c, self.network.population(c.source))
                for c in entering
            )
            largest = max(largest, total)
        return int(largest).bit_length() + 1


def _trailing_zeros(values: Array) -> int:
    """Return the largest power of two that divides all values, as an exponent."""
    union = int(np.bitwise_or.reduce(np.abs(values), axis=None))
    return (union & -union).bit_length() - 1 if union else STATE_BITS


def unsigned_bits(largest: int) -> int:
    return max(1, int(largest).bit_length())


def signed_bits(values: Array) -> int:
    """Return the bits of the narrowest signed integer that holds all values; at least 2."""
    low, high = int(np.min(values, initial=0)), int(np.max(values, initial=0))
    return max(2, high.bit_length() + 1, (-low - 1).bit_length() + 1 if low < 0 else 0)
