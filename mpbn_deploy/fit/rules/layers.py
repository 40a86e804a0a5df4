"""Rules of shapes: what a layer may look like, and what may be connected with what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from typing_extensions import assert_never

from ...base import Array, record
from ...hardware.place import as_map
from ...ir import Conv2d, Dense, IntNetwork, IntPopulation, Pair, fan_in, fan_out
from .design import Design, Found, Rule, needs, rule, says

# Kin: a profile that states one of these is expected to know the others.
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
    """A connection that the chip sees as a convolution, and the sides of the map that it reads."""

    where: str
    sizes: Pair
    sides: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


def dense_is_a_convolution(design: Design) -> bool:
    """Where a core does one convolution, a fully connected layer is one whose kernel is the whole map."""
    return design.profile.placement == "layers"


def has_kernels(design: Design) -> bool:
    return any(True for _ in _kernels(design))


@needs(applies=says("layer.dense", 0))
def dense_layers_may_be(design: Design) -> Found:
    """No connection is fully connected where the chip has no such layers."""
    return _of_kind(design, Dense, "fully connected", "layer.dense")


@needs(applies=says("layer.convolution", 0))
def convolutions_may_be(design: Design) -> Found:
    """No connection is a convolution where the chip has no such layers."""
    return _of_kind(design, Conv2d, "a convolution", "layer.convolution")


@needs("layer.kernel_sizes", kin=KERNEL_KEYS, applies=has_kernels)
def kernel_sizes_are_allowed(design: Design) -> Found:
    """Height and width of every kernel are among those of the chip."""
    allowed = design.known_list("layer.kernel_sizes")
    for kernel in _kernels(design):
        if not set(kernel.sizes) <= set(allowed.values):
            found = f"a kernel of {_by(kernel.sizes)}; {design.holds(_numbers(allowed.values), allowed)}"
            yield kernel.where, f"{found}. {ANOTHER}"


@needs(applies=says("layer.kernel_square", 1))
def kernels_are_square(design: Design) -> Found:
    """height = width"""
    source = design.known("layer.kernel_square").source
    for kernel in _kernels(design):
        if kernel.sizes[0] != kernel.sizes[1]:
            found = f"a kernel of {_by(kernel.sizes)}; those of {design.profile.name} are square ({source})"
            yield kernel.where, f"{found}. {ANOTHER}"


@needs("layer.strides", kin=KERNEL_KEYS, applies=has_kernels)
def strides_are_allowed(design: Design) -> Found:
    """Both strides of every convolution are among those of the chip."""
    allowed = design.known_list("layer.strides")
    for kernel in _kernels(design):
        if not set(kernel.stride) <= set(allowed.values):
            found = f"a stride of {_by(kernel.stride)}; {design.holds(_numbers(allowed.values), allowed)}"
            yield kernel.where, f"{found}. {ANOTHER}"


@needs("layer.padding_maximum", kin=KERNEL_KEYS, applies=has_kernels)
def paddings_are_small_enough(design: Design) -> Found:
    """padding <= maximum"""
    return _too_large(design, "layer.padding_maximum", "padding", lambda kernel: kernel.padding)


@needs("layer.dilation_maximum", kin=KERNEL_KEYS, applies=has_kernels)
def dilations_are_small_enough(design: Design) -> Found:
    """dilation <= maximum"""
    return _too_large(design, "layer.dilation_maximum", "a dilation", lambda kernel: kernel.dilation)


@needs("layer.input_side_maximum", kin=KERNEL_KEYS, applies=has_kernels)
def maps_that_are_read_are_small_enough(design: Design) -> Found:
    """height and width of what a convolution reads <= maximum"""
    return _too_large(design, "layer.input_side_maximum", "maps", lambda kernel: kernel.sides)


@needs("layer.groups_maximum", kin=KERNEL_KEYS, applies=has_kernels)
def groups_are_few_enough(design: Design) -> Found:
    """groups <= maximum"""
    most = design.known("layer.groups_maximum")
    for kernel in _kernels(design):
        if kernel.groups > most.value:
            yield (
                kernel.where,
                f"{kernel.groups} groups; {design.holds(f'at most {most.value}', most)}. {ANOTHER}",
            )


@needs("layer.output_side_maximum", kin=KERNEL_KEYS, applies=has_kernels)
def maps_that_are_made_are_small_enough(design: Design) -> Found:
    """height and width of a population of maps <= maximum"""
    most = design.known("layer.output_side_maximum")
    for population, _ in design.neurons():
        if max(population.shape[1:], default=0) > most.value:
            sides = (population.shape[1], population.shape[2])
            found = f"maps of {_by(sides)}; {design.holds(f'at most {most.value}', most)}"
            yield population.name, f"{found}. {ANOTHER}"


@needs("layer.channels_maximum", kin=KERNEL_KEYS, applies=has_kernels)
def channels_are_few_enough(design: Design) -> Found:
    """channels of maps, and of features where they are maps of one pixel, <= maximum"""
    most = design.known("layer.channels_maximum")
    for population in design.network.populations:
        counts = len(population.shape) == 3 or dense_is_a_convolution(design)
        if counts and population.shape[0] > most.value:
            found = f"{population.shape[0]} channels; {design.holds(f'at most {most.value}', most)}"
            yield population.name, f"{found}. {ANOTHER}"


@needs("layer.fan_in_maximum", kin=FAN_KEYS)
def fan_ins_are_small_enough(design: Design) -> Found:
    """synapses into each neuron <= maximum"""
    return _too_large_fans(design, "layer.fan_in_maximum", "into", fan_in)


@needs("layer.fan_out_maximum", kin=FAN_KEYS)
def fan_outs_are_small_enough(design: Design) -> Found:
    """synapses from each neuron <= maximum"""
    return _too_large_fans(design, "layer.fan_out_maximum", "from", fan_out)


@needs("layer.dense_inputs_maximum", kin=("layer.dense_inputs_maximum",))
def dense_inputs_are_few_enough(design: Design) -> Found:
    """inputs of a fully connected layer <= maximum"""
    most = design.known("layer.dense_inputs_maximum")
    for connection in design.network.connections:
        synapse = connection.synapse
        if isinstance(synapse, Dense) and (inputs := synapse.weight.shape[1]) > most.value:
            found = f"{inputs} inputs of a fully connected layer"
            yield connection.label, f"{found}; {design.holds(f'at most {most.value}', most)}. {ANOTHER}"


@needs("layer.targets_maximum", kin=("layer.targets_maximum",))
def targets_are_few_enough(design: Design) -> Found:
    """populations that one population sends its spikes to <= maximum"""
    most = design.known("layer.targets_maximum")
    for population, _ in design.neurons():
        targets = {c.target for c in design.network.connections if c.source == population.name}
        if len(targets) > most.value:
            found = f"spikes go to {len(targets)} populations; {design.holds(f'at most {most.value}', most)}"
            yield population.name, f"{found}. {ANOTHER}"


@needs("layer.thresholds", kin=("layer.thresholds",))
def distinct_thresholds_fit_layer(design: Design) -> Found:
    """Within each layer, neurons have at most so many different thresholds."""
    most = design.known("layer.thresholds")
    for population in design.firing():
        if (count := len(np.unique(population.neuron.threshold))) > most.value:
            found = f"{count} distinct thresholds in one layer; {design.holds(most.value, most)}"
            advice = (
                f"Export with --target {design.export_target} --thresholds shared, for one per population."
            )
            yield population.name, f"{found}. {advice}"


@needs(applies=says("layer.recurrence", 0))
def spikes_run_in_no_circle(design: Design) -> Found:
    """No connection ends where a path to its own source begins; one that closes a circle has a delay."""
    source = design.known("layer.recurrence").source
    for connection in design.network.connections:
        if connection.delay and connection.source in _reached(design, connection.target):
            found = f"spikes run in a circle; {design.profile.name} allows none ({source})"
            yield connection.label, f"{found}. {ANOTHER}"


LAYER_RULES: tuple[Rule, ...] = (
    rule(dense_layers_may_be),
    rule(convolutions_may_be),
    rule(kernel_sizes_are_allowed),
    rule(kernels_are_square),
    rule(strides_are_allowed),
    rule(paddings_are_small_enough),
    rule(dilations_are_small_enough),
    rule(groups_are_few_enough),
    rule(maps_that_are_read_are_small_enough),
    rule(maps_that_are_made_are_small_enough),
    rule(channels_are_few_enough),
    rule(fan_ins_are_small_enough),
    rule(fan_outs_are_small_enough),
    rule(dense_inputs_are_few_enough),
    rule(targets_are_few_enough),
    rule(distinct_thresholds_fit_layer),
    rule(spikes_run_in_no_circle),
)


def _kernels(design: Design) -> Iterator[Kernel]:
    shapes = {population.name: population.shape for population in design.network.populations}
    for connection in design.network.connections:
        synapse, shape = connection.synapse, shapes[connection.source]
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


def _too_large(design: Design, key: str, name: str, pair_of: Callable[[Kernel], Pair]) -> Found:
    """Each kernel of which one of two numbers exceeds the limit."""
    most = design.known(key)
    for kernel in _kernels(design):
        if max(pair := pair_of(kernel)) > most.value:
            found = f"{name} of {_by(pair)}; {design.holds(f'at most {most.value}', most)}"
            yield kernel.where, f"{found}. {ANOTHER}"


def _too_large_fans(
    design: Design, key: str, way: str, fan: Callable[[IntNetwork, IntPopulation], Array]
) -> Found:
    """Each population with a neuron of too many synapses, those `into` it or `from` it."""
    most = design.known(key)
    for population in design.network.layers:
        if (found := int(fan(design.network, population).max())) > most.value:
            allowed = design.holds(f"at most {most.value}", most)
            yield population.name, f"{found} synapses {way} one neuron; {allowed}. {ANOTHER}"


def _of_kind(design: Design, kind: type[Dense] | type[Conv2d], name: str, key: str) -> Found:
    source = design.known(key).source
    for connection in design.network.connections:
        if isinstance(connection.synapse, kind):
            yield connection.label, f"{name}; {design.profile.name} has no such layers ({source}). {ANOTHER}"


def _reached(design: Design, start: str) -> set[str]:
    """The populations that spikes of one can come to, itself among them."""
    reached, connections = {start}, design.network.connections
    while more := {c.target for c in connections if c.source in reached} - reached:
        reached |= more
    return reached


def _by(pair: Sequence[int]) -> str:
    return "x".join(map(str, pair))


def _numbers(values: Sequence[int]) -> str:
    """'1..16' of numbers in a row, else '1, 2, 4, 8'"""
    first, last = min(values), max(values)
    in_a_row = len(values) > 2 and sorted(values) == list(range(first, last + 1))
    return f"{first}..{last}" if in_a_row else ", ".join(map(str, values))
