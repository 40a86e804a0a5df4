"""IntNetwork -> the arguments of Rockpool's `config_from_specification`: one network is one chip.

Xylo has three matrices: inputs onto hidden neurons, hidden neurons onto hidden ones, and hidden neurons onto
outputs. A spike of a hidden neuron arrives one time step later, that of an input at once. All hidden
populations are parts of one, so a chain of layers is a matrix with blocks beside its diagonal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, FormatError, layer_name
from ..ir import (
    XYLO_HIDDEN_SPIKES,
    XYLO_INPUT_SPIKES,
    XYLO_OUTPUT_SPIKES,
    Connection,
    IntNetwork,
    Network,
    Shifting,
    as_dense,
    shift_rules,
)

XYLO_FILES = ARRAYS, CARD, SCRIPT = "xylo.npz", "xylo.json", "run_on_xylo.py"
DEVICES = {"xylo-a2": "syns61201", "xylo-a3": "syns65302", "xylo-imu": "syns63300"}
LARGEST_WEIGHT = 127
PARTS = ("in", "rec", "out")


def specification(network: IntNetwork) -> dict[str, Any]:
    """Return the numbers of a chip: matrices [sources, targets], and vectors of hidden and output neurons.

    Raises FormatError if a chip cannot hold the form of the network; numbers of neurons are `fit`'s question.
    """
    rules = shift_rules(network)
    if rules is None:
        raise FormatError("the network has no Xylo neurons. Train with --neuron xylo.")
    if problems := form_problems(network):
        raise FormatError("; ".join(problems))
    hidden = [rules[p.name] for p in network.layers[:-1]]
    last = rules[network.output.name]
    given: dict[str, Any] = {}
    for part in PARTS:
        given[f"weights_{part}"], given[f"weight_shift_{part}"] = _matrix(network, part)
    for key, field in (("dash_mem", "shift_voltage"), ("dash_syn", "shift_current")):
        given[key], given[f"{key}_out"] = _joined(hidden, field), getattr(last, field)
    for key in ("threshold", "bias"):
        given[key], given[f"{key}_out"] = _joined(hidden, key), getattr(last, key)
    return given


def write_xylo(network: IntNetwork, folder: Path, target: str, class_names: Sequence[str]) -> None:
    """Write the numbers of a chip, a card that says what they are, and a script that loads them."""
    given = specification(network)
    arrays = {name: np.asarray(values) for name, values in given.items()}
    np.savez(folder / ARRAYS, **arrays)
    card = {
        "format": "mpbn_deploy.xylo",
        "version": 1,
        "target": target,
        "device": DEVICES.get(target),
        "timesteps": network.timesteps,
        "inputs": network.input.size,
        "input_spikes": [network.input_range.minimum, network.input_range.maximum],
        "input_divisor": network.input_range.divisor,
        "hidden": {p.name: p.size for p in network.layers[:-1]},
        "outputs": list(class_names) or network.output.size,
        "meaning": "the class is the output that fires most often; states start at zero for each sample",
        "arguments": {name: list(values.shape) for name, values in arrays.items()},
    }
    (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    (folder / SCRIPT).write_text(SCRIPT_TEXT, encoding="utf-8")


# Rockpool names the biases of hidden neurons differently in its simulator and for its chips.
SCRIPT_TEXT = '''"""Run spike counts [steps, inputs] on Xylo: python run_on_xylo.py counts.npy [--chip]"""

import importlib, json, sys
from pathlib import Path
import numpy as np

here, counts, chip = Path(__file__).parent, np.load(sys.argv[1]), "--chip" in sys.argv
numbers = {name: v.item() if v.ndim == 0 else v for name, v in np.load(here / "xylo.npz").items()}
if chip:  # needs samna and a development kit
    device = json.loads((here / "xylo.json").read_text())["device"]
    xylo = importlib.import_module(f"rockpool.devices.xylo.{device}")
    config, valid, why = xylo.config_from_specification(bias_hidden=numbers.pop("bias"), **numbers)
    assert valid, why
    kits, *_ = importlib.import_module("rockpool.devices.xylo.helper").find_xylo_hdks()
    spikes, _, _ = xylo.XyloSamna(kits[0], config, dt=1e-3)(counts)
else:  # the simulator of Audio 2: pip install rockpool xylosim
    from rockpool.devices.xylo.syns61201 import XyloSim

    spikes, _, _ = XyloSim.from_specification(**numbers).evolve(counts)
fired = np.asarray(spikes).sum(axis=0)
print("spikes of each output:", *fired.tolist(), "class:", int(fired.argmax()))
'''


def part_of(network: Network[Any], connection: Connection) -> str:
    """Return the matrix that holds a connection: "in", "rec" or "out"."""
    if connection.source == network.input.name:
        return "in"
    return "out" if connection.target == network.output.name else "rec"


def form_problems(network: IntNetwork) -> list[str]:
    """List what of a network no chip of the family can express; empty if there is nothing."""
    last = network.output.name
    problems = []
    if network.input_range.maximum > XYLO_INPUT_SPIKES or network.input_range.minimum < 0:
        problems.append(
            f"inputs of {network.input_range.minimum}..{network.input_range.maximum}; Xylo takes "
            f"0..{XYLO_INPUT_SPIKES} spikes per channel and step. Use --input-bits 4"
        )
    if len(network.layers) < 2:
        problems.append("one population; Xylo needs hidden neurons and outputs")
    for population in network.layers:
        allowed = XYLO_OUTPUT_SPIKES if population.name == last else XYLO_HIDDEN_SPIKES
        if getattr(population.neuron, "max_spikes", 0) != allowed:
            problems.append(
                f"{layer_name(population.name)}: Xylo fires up to {allowed} spikes per step there"
            )
    for c in network.connections:
        part = part_of(network, c)
        if part == "in" and c.target == last:
            problems.append(f"{c.label}: inputs reach hidden neurons only; put a hidden layer between them")
        if c.source == last:
            problems.append(f"{c.label}: outputs send to nobody on the chip")
        if c.delay != (wanted := 0 if part == "in" else 1):
            problems.append(f"{c.label}: a delay of {c.delay}; on Xylo it takes {wanted} time steps")
        if np.abs(c.synapse.weight).max(initial=0) > LARGEST_WEIGHT:
            problems.append(f"{c.label}: weights beyond +-{LARGEST_WEIGHT}")
    for part in PARTS:
        exponents = {c.synapse.exponent for c in network.connections if part_of(network, c) == part}
        if len(exponents) > 1:
            problems.append(
                f"weight shifts {sorted(exponents)} of one matrix ({part}); Xylo has one for each"
            )
    return problems


def _joined(rules: list[Shifting], field: str) -> Array:
    return np.concatenate([getattr(rule, field) for rule in rules])


def _matrix(network: IntNetwork, part: str) -> tuple[Array, int]:
    """Return a matrix [sources, targets] and its shift."""
    hidden = network.layers[:-1]
    ends = np.cumsum([0, *(p.size for p in hidden)])
    start = {p.name: int(end) for p, end in zip(hidden, ends[:-1], strict=True)}
    start |= {network.input.name: 0, network.output.name: 0}
    sources = network.input.size if part == "in" else int(ends[-1])
    targets = network.output.size if part == "out" else int(ends[-1])
    matrix, shift = np.zeros((sources, targets), np.int64), 0
    for c in network.connections:
        if part_of(network, c) != part:
            continue
        shift = c.synapse.exponent
        block = as_dense(c.synapse, network.shapes[c.source]).weight.astype(np.int64).T >> shift
        row, column = start[c.source], start[c.target]
        matrix[row : row + block.shape[0], column : column + block.shape[1]] = block
    return matrix, shift
