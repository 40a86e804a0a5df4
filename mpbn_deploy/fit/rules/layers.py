"""Rules for layers and connections: layer types, kernels, maps, fan-in, fan-out and recurrence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from typing_extensions import assert_never

from ...base import Array, record
from ...hardware.place import as_map, stored_synapse
from ...ir import Conv2d, Dense, IntNetwork, IntPopulation, Pair, fan_in, fan_out
from .design import Design, Rule, Violations, needs, rule, says

# Related keys: if a profile has one of them, the others count as missing.
KERNEL_KEYS = (
    "layer.kernel_sizes",
    "layer.strides",
    "layer.padding_maximum",
    "layer.dilation_maximum",
    "layer.groups_maximum",
    "layer.input_side_maximum",
    "layer.output_side_maximum",
    "layer.channels_maximum",
)
FAN_KEYS = ("layer.fan_in_maximum", "layer.fan_out_maximum")
ANOTHER = "Train another network (--arch package.module:factory), or choose another target."


@record
class Kernel:
    """A connection that the chip treats as a convolution, and the sides of its source map."""

    where: str
    sizes: Pair
    sides: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


def dense_is_a_convolution(design: Design) -> bool:
    """Return whether a fully connected layer is a convolution whose kernel covers the whole source map."""
    return design.profile.placement == "layers"


def has_kernels(design: Design) -> bool:
    return any(True for _ in _kernels(design))


@needs(applies=says("layer.dense", 0))
def dense_layers_are_supported(design: Design) -> Violations:
    """No connection is fully connected if the chip does not support it."""
    return _of_kind(design, Dense, "fully connected", "layer.dense")


@needs(applies=says("layer.convolution", 0))
def convolutions_are_supported(design: Design) -> Violations:
    """No connection is a convolution if the chip does not support it."""
    return _of_kind(design, Conv2d, "a convolution", "layer.convolution")


@needs("layer.kernel_sizes", related=KERNEL_KEYS, applies=has_kernels)
def kernel_sizes_are_allowed(design: Design) -> Violations:
    """kernel height and width in the allowed values"""
    return _not_allowed(design, "layer.kernel_sizes", "a kernel", lambda kernel: kernel.sizes)


@needs(applies=says("layer.kernel_square", 1))
def kernels_are_square(design: Design) -> Violations:
    """height = width"""
    source = design.limit("layer.kernel_square").source
    for kernel in _kernels(design):
        if kernel.sizes[0] != kernel.sizes[1]:
            found = f"a kernel of {_by(kernel.sizes)}; kernels of {design.profile.name} are square ({source})"
            yield kernel.where, f"{found}. {ANOTHER}"


@needs("layer.strides", related=KERNEL_KEYS, applies=has_kernels)
def strides_are_allowed(design: Design) -> Violations:
    """strides in the allowed values"""
    return _not_allowed(design, "layer.strides", "a stride", lambda kernel: kernel.stride)


@needs("layer.padding_maximum", related=KERNEL_KEYS, applies=has_kernels)
def paddings_are_small_enough(design: Design) -> Violations:
    """padding <= maximum"""
    return _too_large(design, "layer.padding_maximum", "padding", lambda kernel: kernel.padding)


@needs("layer.dilation_maximum", related=KERNEL_KEYS, applies=has_kernels)
def dilations_are_small_enough(design: Design) -> Violations:
    """dilation <= maximum"""
    return _too_large(design, "layer.dilation_maximum", "a dilation", lambda kernel: kernel.dilation)


@needs("layer.input_side_maximum", related=KERNEL_KEYS, applies=has_kernels)
def input_maps_are_small_enough(design: Design) -> Violations:
    """height and width of the source map <= maximum"""
    return _too_large(design, "layer.input_side_maximum", "maps", lambda kernel: kernel.sides)


@needs("layer.groups_maximum", related=KERNEL_KEYS, applies=has_kernels)
def groups_are_few_enough(design: Design) -> Violations:
    """groups <= maximum"""
    most = design.limit("layer.groups_maximum")
    for kernel in _kernels(design):
        if kernel.groups > most.value:
            yield (
                kernel.where,
                f"{kernel.groups} groups; {design.maximum_text(most)}. {ANOTHER}",
            )


@needs("layer.output_side_maximum", related=KERNEL_KEYS, applies=has_kernels)
def output_maps_are_small_enough(design: Design) -> Violations:
    """height and width of a feature map <= maximum"""
    most = design.limit("layer.output_side_maximum")
    for population, _ in design.neurons():
        if max(population.shape[1:], default=0) > most.value:
            sides = (population.shape[1], population.shape[2])
            found = f"maps of {_by(sides)}; {design.maximum_text(most)}"
            yield population.name, f"{found}. {ANOTHER}"


@needs("layer.channels_maximum", related=KERNEL_KEYS, applies=has_kernels)
def channels_are_few_enough(design: Design) -> Violations:
    """channels of maps (and features, if they are maps of one pixel) <= maximum"""
    most = design.limit("layer.channels_maximum")
    for population in design.network.populations:
        counts = len(population.shape) == 3 or dense_is_a_convolution(design)
        if counts and population.shape[0] > most.value:
            found = f"{population.shape[0]} channels; {design.maximum_text(most)}"
            yield population.name, f"{found}. {ANOTHER}"


@needs("layer.fan_in_maximum", related=FAN_KEYS)
def fan_ins_are_small_enough(design: Design) -> Violations:
    """synapses into each neuron <= maximum"""
    return _too_large_fans(design, "layer.fan_in_maximum", "into", fan_in)


@needs("layer.fan_out_maximum", related=FAN_KEYS)
def fan_outs_are_small_enough(design: Design) -> Violations:
    """synapses from each neuron <= maximum"""
    return _too_large_fans(design, "layer.fan_out_maximum", "from", fan_out)


@needs("layer.dense_inputs_maximum", related=("layer.dense_inputs_maximum",))
def dense_inputs_are_few_enough(design: Design) -> Violations:
    """inputs of a fully connected layer <= maximum"""
    most = design.limit("layer.dense_inputs_maximum")
    for connection in design.network.connections:
        synapse = connection.synapse
        if isinstance(synapse, Dense) and (inputs := synapse.weight.shape[1]) > most.value:
            found = f"{inputs} inputs of a fully connected layer"
            yield connection.label, f"{found}; {design.maximum_text(most)}. {ANOTHER}"


@needs("layer.targets_maximum", related=("layer.targets_maximum",))
def targets_are_few_enough(design: Design) -> Violations:
    """target populations of one population <= maximum"""
    most = design.limit("layer.targets_maximum")
    for population, _ in design.neurons():
        targets = {c.target for c in design.network.connections if c.source == population.name}
        if len(targets) > most.value:
            found = f"spikes are sent to {len(targets)} populations; {design.maximum_text(most)}"
            yield population.name, f"{found}. {ANOTHER}"


@needs("layer.thresholds", related=("layer.thresholds",))
def distinct_thresholds_fit_layer(design: Design) -> Violations:
    """distinct thresholds in each layer <= maximum"""
    most = design.limit("layer.thresholds")
    for population in design.spiking():
        if (count := len(np.unique(population.neuron.threshold))) > most.value:
            found = f"{count} distinct thresholds in one layer; {design.limit_text(most.value, most)}"
            advice = f"Export with --target {design.export_target} --thresholds shared: one per population."
            yield population.name, f"{found}. {advice}"


@needs("layer.exact_width_maximum", related=("layer.exact_width_maximum",), severity="warning")
def no_spike_is_dropped_between_columns(design: Design) -> Violations:
    """Warn of convolutions that read column n * 256 - 1, from which the chip may drop spikes."""
    most = design.limit("layer.exact_width_maximum")
    for connection in design.network.connections:
        shape = design.network.shapes[connection.source]
        if isinstance(connection.synapse, Conv2d) and shape[2] > most.value:
            found = f"reads a map of {shape[2]} columns; {design.profile.name} may drop spikes from column "
            advice = f"Feed maps of at most {most.value} columns, for example with a larger stride before."
            yield connection.label, f"{found}{most.value} and its neighbors ({most.source}). {advice}"


@needs(applies=says("layer.recurrence", 0))
def network_has_no_recurrence(design: Design) -> Violations:
    """No connection closes a cycle; every cycle contains a connection with a delay."""
    source = design.limit("layer.recurrence").source
    for connection in design.network.connections:
        if connection.delay and connection.source in _reached(design, connection.target):
            found = f"recurrent connection; {design.profile.name} has no recurrence ({source})"
            yield connection.label, f"{found}. {ANOTHER}"


LAYER_RULES: tuple[Rule, ...] = (
    rule(dense_layers_are_supported),
    rule(convolutions_are_supported),
    rule(kernel_sizes_are_allowed),
    rule(kernels_are_square),
    rule(strides_are_allowed),
    rule(paddings_are_small_enough),
    rule(dilations_are_small_enough),
    rule(groups_are_few_enough),
    rule(input_maps_are_small_enough),
    rule(output_maps_are_small_enough),
    rule(channels_are_few_enough),
    rule(fan_ins_are_small_enough),
    rule(fan_outs_are_small_enough),
    rule(dense_inputs_are_few_enough),
    rule(targets_are_few_enough),
    rule(distinct_thresholds_fit_layer),
    rule(network_has_no_recurrence),
    rule(no_spike_is_dropped_between_columns),
)


def _kernels(design: Design) -> Iterator[Kernel]:
    for connection in design.network.connections:
        synapse, shape = stored_synapse(design.network, connection, design.profile)
        match synapse:
            case Conv2d():
                yield Kernel(
                    where=connection.label,
                    sizes=(synapse.weight.shape[2], synapse.weight.shape[3]),
                    sides=(shape[1], shape[2]),
                    stride=synapse.stride,
                    padding=synapse.padding,
                    dilation=synapse.dilation,
                    groups=synapse.groups,
                )
            case Dense():
                if dense_is_a_convolution(design):
                    _, height, width = as_map(shape)
                    sides = height, width
                    yield Kernel(where=connection.label, sizes=sides, sides=sides)
            case _:
                assert_never(synapse)


def _not_allowed(design: Design, key: str, name: str, pair_of: Callable[[Kernel], Pair]) -> Violations:
    """Yield each kernel of which one of two numbers is not in the list."""
    allowed = design.allowed_values(key)
    for kernel in _kernels(design):
        if not set(pair := pair_of(kernel)) <= set(allowed.values):
            found = f"{name} of {_by(pair)}; {design.limit_text(_numbers(allowed.values), allowed)}"
            yield kernel.where, f"{found}. {ANOTHER}"


def _too_large(design: Design, key: str, name: str, pair_of: Callable[[Kernel], Pair]) -> Violations:
    """Yield each kernel of which one of two numbers exceeds the limit."""
    most = design.limit(key)
    for kernel in _kernels(design):
        if max(pair := pair_of(kernel)) > most.value:
            found = f"{name} of {_by(pair)}; {design.maximum_text(most)}"
            yield kernel.where, f"{found}. {ANOTHER}"


def _too_large_fans(
    design: Design, key: str, way: str, fan: Callable[[IntNetwork, IntPopulation], Array]
) -> Violations:
    """Yield each population with a neuron that has too many synapses `into` or `from` it."""
    most = design.limit(key)
    for population in design.network.layers:
        if (found := int(fan(design.network, population).max())) > most.value:
            allowed = design.maximum_text(most)
            yield population.name, f"{found} synapses {way} one neuron; {allowed}. {ANOTHER}"


def _of_kind(design: Design, kind: type[Dense] | type[Conv2d], name: str, key: str) -> Violations:
    source = design.limit(key).source
    for connection in design.network.connections:
        if isinstance(connection.synapse, kind):
            yield (
                connection.label,
                f"{name}; {design.profile.name} does not support this ({source}). {ANOTHER}",
            )


def _reached(design: Design, start: str) -> set[str]:
    """Return the populations reachable from one, including itself."""
    reached, connections = {start}, design.network.connections
    while more := {c.target for c in connections if c.source in reached} - reached:
        reached |= more
    return reached


def _by(pair: Sequence[int]) -> str:
    return "x".join(map(str, pair))


def _numbers(values: Sequence[int]) -> str:
    """Return '1..16' for consecutive numbers, otherwise '1, 2, 4, 8'."""
    first, last = min(values), max(values)
    consecutive = len(values) > 2 and sorted(values) == list(range(first, last + 1))
    return f"{first}..{last}" if consecutive else ", ".join(map(str, values))
