"""Rules of how much: what fits on a core, on a chip, and into a chip that takes one network as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hardware.place import RESOURCES, ROW_KEYS, ROW_RESOURCES, read_by_output, reading_input
from ...ir import connection_synapses
from .design import WHOLE_NETWORK, Design, Finding, Found, Rule, needs, not_checked, rule, words
from .neurons import is_digital

SIZE_KEYS = ("network.inputs_maximum", "network.hidden_maximum", "network.outputs_maximum")
REACH_KEYS = ("network.input_reach", "network.output_reach")
# Limits that every core of a kind has. Where they are not kept, cores that are memories of words show it in
# their use, and placements of other kinds as problems.
CORE_LIMITS = {
    "words": RESOURCES,
    "crossbar": ("neurons", "input_axons"),
    "layers": ("kernel_words", "neuron_words", "bias_words"),
    "whole": ("neurons",),
}


def is_placed(design: Design) -> bool:
    return design.profile.placement != "unknown"


def takes_cores(design: Design) -> bool:
    """Where layers take as many cores as they need, of one chip or of more."""
    return design.profile.placement in ("words", "crossbar")


def shares_cores(design: Design) -> bool:
    """Where each layer has cores of its own and its own limit of thresholds, that one is checked."""
    return is_placed(design) and is_digital(design) and not design.profile.knows("layer.thresholds")


def layers_fit_on_cores(design: Design) -> list[Finding]:
    """The fullest core of every layer keeps each limit of a core, and the placement found no problem."""
    if not is_placed(design):
        return [_no_cores(design)]
    name, profile = layers_fit_on_cores.__name__, design.profile
    unknown = [key for key in _core_keys(design) if not profile.knows(key)]
    return [
        *([not_checked(name, _what(unknown), unknown, profile)] if unknown else []),
        *_memory_not_checked(design),
        *(_error(problem.where, problem.message) for problem in design.placement.problems),
        *_overflows(design),
    ]


@needs("core.thresholds", applies=shares_cores)
def distinct_thresholds_fit_core(design: Design) -> Found:
    """On each core, neurons have at most so many different thresholds."""
    most = design.known("core.thresholds")
    for where, count in _distinct_thresholds(design):
        if count > most.value:
            found = f"{count} distinct thresholds on one core"
            advice = (
                f"Export for this target (--target {design.typed}), which chooses so few, with "
                "--thresholds shared for one per population, or change the target."
            )
            yield where, f"{found}; {design.holds(most.value, most)}. {advice}"


@needs("chip.cores", applies=takes_cores)
def cores_fit_on_chip(design: Design) -> Found:
    """All layers together keep within the cores of the chips that there are."""
    cores, used = design.known("chip.cores"), design.placement.cores
    if used is not None and used > design.chips * cores.value:
        chips = -(-used // cores.value)
        boards = [name for name, size in design.profile.systems.items() if size >= chips]
        where = f"{chips} chips would hold it" + (f" (boards: {', '.join(boards)})" if boards else "")
        found = f"{used} cores; a chip of {design.profile.name} has {cores.value} ({cores.source})"
        yield WHOLE_NETWORK, f"{found}. Use fewer or narrower layers; {where}: --chips {chips}."


@needs("network.inputs_maximum", kin=SIZE_KEYS)
def inputs_are_few_enough(design: Design) -> Found:
    """inputs <= maximum"""
    return _too_many(design, design.network.input.size, "inputs", "network.inputs_maximum")


@needs("network.hidden_maximum", kin=SIZE_KEYS)
def hidden_neurons_are_few_enough(design: Design) -> Found:
    """neurons between input and output <= maximum"""
    hidden = sum(population.size for population in design.network.populations[1:-1])
    return _too_many(design, hidden, "hidden neurons", "network.hidden_maximum")


@needs("network.outputs_maximum", kin=SIZE_KEYS)
def outputs_are_few_enough(design: Design) -> Found:
    """outputs <= maximum"""
    return _too_many(design, design.network.output.size, "outputs", "network.outputs_maximum")


@needs("network.input_reach", kin=REACH_KEYS)
def inputs_reach_few_enough(design: Design) -> Found:
    """hidden neurons with a synapse from the input <= maximum"""
    count = sum(int(reading.sum()) for reading in reading_input(design.network).values())
    return _too_many(design, count, "hidden neurons that inputs reach", "network.input_reach")


@needs("network.output_reach", kin=REACH_KEYS)
def outputs_read_few_enough(design: Design) -> Found:
    """hidden neurons with a synapse to the output <= maximum"""
    count = sum(int(read.sum()) for read in read_by_output(design.network).values())
    return _too_many(design, count, "hidden neurons that outputs read", "network.output_reach")


@needs("network.synapses_maximum", kin=("network.synapses_maximum",))
def synapses_are_few_enough(design: Design) -> Found:
    """synapses between hidden neurons <= maximum"""
    network = design.network
    ends = {network.input.name, network.output.name}
    inner = [c for c in network.connections if not {c.source, c.target} & ends]
    count = sum(connection_synapses(network, connection) for connection in inner)
    return _too_many(design, count, "synapses between hidden neurons", "network.synapses_maximum")


CAPACITY_RULES: tuple[Rule, ...] = (
    layers_fit_on_cores,
    rule(distinct_thresholds_fit_core),
    rule(cores_fit_on_chip),
    rule(inputs_are_few_enough),
    rule(hidden_neurons_are_few_enough),
    rule(outputs_are_few_enough),
    rule(inputs_reach_few_enough),
    rule(outputs_read_few_enough),
    rule(synapses_are_few_enough),
)


def _core_keys(design: Design) -> list[str]:
    """The limits that a core of this kind must have, and what they cannot be checked without."""
    resources = CORE_LIMITS.get(design.profile.placement, ())
    rows = ROW_KEYS if any(resource in ROW_RESOURCES for resource in resources) else ()
    return [*(f"core.{resource}" for resource in resources), *rows]


def _what(unknown: list[str]) -> str:
    """What is not checked for want of these."""
    if len(unknown) > 1:
        return "whether layers fit on cores, in part"
    return "synapse words" if unknown[0] in ROW_KEYS else words(unknown[0].split(".")[1])


def _overflows(design: Design) -> Iterator[Finding]:
    """Each layer whose fullest core needs more of a resource than a core, a memory of words, has."""
    if design.profile.placement == "whole":
        yield from _too_many_neurons(design)
    if design.profile.placement != "words":
        return
    for layer in design.placement.layers:
        for resource, used in layer.use.items():
            limit = design.profile.limits.get(f"core.{resource}")  # not each resource has one
            if limit is not None and used > limit.value:
                found = f"{used} {words(resource)} on one core; {design.holds(limit.value, limit)}"
                advice = "No cut of this layer helps; give it fewer inputs or smaller kernels."
                yield _error(layer.name, f"{found}. {advice}")


def _too_many_neurons(design: Design) -> Iterator[Finding]:
    """One core holds the neurons of all layers."""
    limit, used = (
        design.profile.limit("core.neurons"),
        sum(layer.neurons for layer in design.placement.layers),
    )
    if limit is not None and used > limit.value:
        found = f"{used} neurons on one core; {design.holds(limit.value, limit)}"
        yield _error(WHOLE_NETWORK, f"{found}. Train a smaller network (--arch), or choose another target.")


def _memory_not_checked(design: Design) -> Iterator[Finding]:
    """A memory of which only the size is known."""
    if (limit := design.profile.limit("core.memory_bytes")) is not None:
        what = f"whether weights fit into the {limit.value} bytes of a core ({limit.source})"
        message = f"not checked: {what}; how {design.profile.name} stores them is not known."
        name = layers_fit_on_cores.__name__
        yield Finding(rule=name, where=WHOLE_NETWORK, message=message, severity="not checked")


def _error(where: str, message: str) -> Finding:
    rule_name = layers_fit_on_cores.__name__
    return Finding(rule=rule_name, where=where, message=f"{where}: {message}", severity="error")


def _no_cores(design: Design) -> Finding:
    tables = {key.split(".")[0] for key in design.profile.limits}
    name = design.profile.name
    why = f"how {name} fills its cores is not known" if tables & {"core", "chip"} else f"{name} has none"
    return Finding(
        rule=layers_fit_on_cores.__name__,
        where=WHOLE_NETWORK,
        message=f"not checked: cores; {why}.",
        severity="not checked",
    )


def _distinct_thresholds(design: Design) -> Iterator[tuple[str, int]]:
    """The most that differ on any core, of each layer, or of all where one core holds them."""
    placed = {layer.name: layer for layer in design.placement.layers}
    lifs = [(p, np.broadcast_to(p.neuron.threshold, p.shape)) for p in design.firing()]
    if design.profile.placement == "whole":
        yield WHOLE_NETWORK, len(set().union(*(np.unique(values).tolist() for _, values in lifs)))
        return
    for population, values in lifs:
        tiles = placed[population.name].tiles()
        yield population.name, max(len(np.unique(values[tile])) for tile in tiles)


def _too_many(design: Design, count: int, name: str, key: str) -> Found:
    most = design.known(key)
    if count > most.value:
        found = f"{count} {name}; {design.holds(f'at most {most.value}', most)}"
        yield WHOLE_NETWORK, f"{found}. Train a smaller network (--arch), or choose another target."
