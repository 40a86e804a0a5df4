"""Measure the Verilog core: equality in simulation, cycles, and place and route by open tools.

    python benchmarks/fpga.py equal digits --traced 64               # in Verilator
    python benchmarks/fpga.py equal fashion --samples 128 --data-dir DATA
    python benchmarks/fpga.py equal scg --scg FOLDER                 # best_snn_5class.pt, val.npz
    python benchmarks/fpga.py random --count 200                     # small networks of every kind
    python benchmarks/fpga.py place digits --target ice40-up5k       # yosys, nextpnr
    python benchmarks/fpga.py netlist digits --target ice40-up5k     # a sample after synthesis

Each prints one line of JSON per result. `random` takes the builders of tests/networks.py.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mpbn_deploy.api import load_dataset, load_profile, quantize
from mpbn_deploy.base import Array
from mpbn_deploy.execute.emulator import run as emulate
from mpbn_deploy.execute.reference import ExecutionOptions, simulate
from mpbn_deploy.execute.verilog import Simulation, build, call
from mpbn_deploy.export.model import load_and_fold
from mpbn_deploy.fit import fabric_use, uses_single_port
from mpbn_deploy.formats.options import ExportOptions
from mpbn_deploy.formats.verilog import boards_of, core_tables, write_fpga
from mpbn_deploy.ir import Connection, Dense, FloatSoftLif, FoldedNetwork, Input, IntNetwork, Population

HERE = Path(__file__).resolve().parent
SCG_INPUT_BITS = 6
DEVICES = {"ice40-up5k": "up5k", "ecp5-25k": "25k", "ecp5-85k": "85k"}
SHORT = {
    "digits": "digits",
    "fashion": "fashion-mnist",
    "digits-4bit": "digits-4bit",
    "fashion-4bit": "fashion-mnist-4bit",
}


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


# ---- networks -----------------------------------------------------------------------------------


def network_of(name: str, options: argparse.Namespace) -> tuple[IntNetwork, Array, Array | None]:
    """Return a network, its test inputs and their labels."""
    if name == "scg":
        return scg(options.scg, options.target)
    path = HERE.parent / "examples" / "models" / f"{SHORT[name]}.pt" if name in SHORT else Path(name)
    model = load_and_fold(path, ExportOptions(), load_profile(options.target))
    network = model.integers or quantize(model.folded, load_profile(options.target)).network
    assert model.trained_on is not None
    test = load_dataset(model.trained_on, options.data_dir).test
    return network, network.input_range.presented(test.inputs), test.labels


def scg(folder: Path, target: str) -> tuple[IntNetwork, Array, Array]:
    """Return the network of dentar142/scg-snn-eg4s20: 256-64-5, v <- 0.9 v + W x / 127, fires at 1.

    Inputs have 6 bits, as with --input-bits 6, and overflow is measured on 1,000 of the windows: soft resets
    let proved voltages climb so high that weights of 8-bit inputs would have three bits.
    """
    import torch

    loaded = torch.load(folder / "best_snn_5class.pt", map_location="cpu", weights_only=True)
    first, second = (loaded["state"][f"fc{k}.weight"].numpy().astype(np.float64) for k in (1, 2))
    shown = Input(minimum=-128, maximum=127).coarser(SCG_INPUT_BITS)

    def layer(name: str, size: int) -> Population[Any]:
        at = np.full(size, np.nextafter(float(loaded["threshold"]), 0))  # ours fires above, theirs at it
        ones, leak = np.full(size, float(loaded["threshold"])), float(loaded["beta"])
        neuron = FloatSoftLif(threshold=at, subtrahend=ones, bias=np.zeros(size), leak=leak)
        return Population(name=name, shape=(size,), neuron=neuron)

    folded = FoldedNetwork(
        populations=(
            Population(name="input", shape=(256,), neuron=shown),
            layer("hidden", 64),
            layer("output", 5),
        ),
        connections=(
            Connection(source="input", target="hidden", synapse=Dense(weight=first / 127 * shown.divisor)),
            Connection(source="hidden", target="output", synapse=Dense(weight=second)),
        ),
        timesteps=int(loaded["T"]),
    )
    data = np.load(folder / "val.npz")
    inputs = shown.presented(data["X"].reshape(-1, 256).astype(np.int64))
    quantized = quantize(folded, load_profile(target), inputs[::5][:1000], overflow="measured")
    return quantized.network, inputs, data["y"]


# ---- equality ---------------------------------------------------------------------------------------


def different(simulation: Simulation, inputs: Array) -> tuple[int, int, Array]:
    """Compare spikes, voltages and outputs with the reference: numbers compared, different, and cycles."""
    answer, want = simulation.run(inputs), simulate(simulation.network, inputs)
    pairs = [(answer.outputs, want.outputs)]
    for name in want.spikes:
        pairs += [(answer.spikes[name], want.spikes[name]), (answer.voltages[name], want.voltages[name])]
    wrong = sum(int((got != expected).sum()) for got, expected in pairs)
    return sum(expected.size for _, expected in pairs), wrong, answer.cycles


def equal(options: argparse.Namespace) -> None:
    network, inputs, labels = network_of(options.network, options)
    lanes = load_profile(options.target).value("fabric.lanes")
    samples = inputs[: options.samples]
    with tempfile.TemporaryDirectory() as folder:
        simulation = build(network, Path(folder), lanes=lanes)
        compared, wrong, cycles = different(simulation, samples[: options.traced])
        say(network=options.network, lanes=lanes, traced=len(cycles), compared=compared, different=wrong)
        started = time.perf_counter()
        answer = simulation.run(samples, trace=False)
        seconds = time.perf_counter() - started
    expected = emulate(network, samples, ExecutionOptions(keep_trace=False)).outputs
    events = synaptic_events(network, samples[: options.traced])
    say(
        network=options.network,
        samples=len(samples),
        scores_different=int((answer.outputs != expected).sum()),
        classes_different=int((answer.outputs.argmax(1) != expected.argmax(1)).sum()),
        cycles_mean=float(answer.cycles.mean()),
        cycles_least=int(answer.cycles.min()),
        cycles_most=int(answer.cycles.max()),
        events_per_cycle=events / float(answer.cycles[: options.traced].mean()),
        lanes=lanes,
        accuracy=None
        if labels is None
        else float((answer.outputs.argmax(1) == labels[: len(samples)]).mean()),
        accuracy_all=None if labels is None else _accuracy(network, inputs, labels),
        cycles_per_second=float(answer.cycles.sum()) / seconds,
    )


def _accuracy(network: IntNetwork, inputs: Array, labels: Array) -> float:
    outputs = emulate(network, inputs, ExecutionOptions(keep_trace=False)).outputs
    return float((outputs.argmax(1) == labels).mean())


def synaptic_events(network: IntNetwork, inputs: Array) -> float:
    """Return weights added per sample, on average; a static input counts once."""
    from mpbn_deploy.ir import connection_fan_out

    trace, total = simulate(network, inputs), 0.0
    for connection in network.connections:
        reached = connection_fan_out(network, connection).ravel()
        if connection.source == network.input.name:
            total += float(reached.sum())
        else:
            total += float((trace.spikes[connection.source].sum(axis=(0, 1)).ravel() * reached).sum()) / len(
                inputs
            )
    return total


def random_networks(count: int) -> Iterator[tuple[str, IntNetwork, Array, bool]]:
    """Yield small networks of every kind that the core holds, inputs static or changing."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from networks import (
        charged,
        inputs_for,
        int_chain,
        int_loop,
        int_pooled,
        int_residual,
        int_windows,
        softened,
    )

    kinds = {
        "chain": lambda seed: int_chain(seed, per_neuron=bool(seed % 2)),
        "groups": lambda seed: int_chain(seed, groups=2),
        "residual": lambda seed: int_residual(seed, delay=seed % 3),
        "windows": int_windows,
        "pooled": int_pooled,
        "loop": lambda seed: int_loop(seed, delays=(seed % 3,)),
    }
    changes = {
        "": lambda n, s: n,
        "soft": softened,
        "charged": charged,
        "both": lambda n, s: charged(softened(n, s), s),
    }
    for seed in range(count):
        kind, change = list(kinds)[seed % len(kinds)], list(changes)[seed // len(kinds) % len(changes)]
        network = changes[change](kinds[kind](seed), seed)
        steps = bool(seed // 2 % 2)
        yield f"{kind} {change}".strip(), network, inputs_for(network, 2, seed, steps), not steps


def random(options: argparse.Namespace) -> None:
    compared = wrong = count = 0
    for name, network, inputs, static in random_networks(options.count):
        with tempfile.TemporaryDirectory() as folder:
            simulation = build(
                network, Path(folder), options.simulator, lanes=(4, 8, 16)[count % 3], static=static
            )
            size, found, _ = different(simulation, inputs)
        compared, wrong, count = compared + size, wrong + found, count + 1
        if found:
            say(random=name, number=count - 1, different=found)
    say(random=count, simulator=options.simulator, compared=compared, different=wrong)


# ---- place and route ------------------------------------------------------------------------------------


def written(options: argparse.Namespace, folder: Path) -> tuple[IntNetwork, Array]:
    network, inputs, _ = network_of(options.network, options)
    profile = load_profile(options.target)
    lanes = options.lanes or profile.value("fabric.lanes")
    spram = uses_single_port(core_tables(network, lanes=lanes), profile)
    trace = simulate(network, inputs[:1])
    write_fpga(folder, network, inputs[:1], trace, device=DEVICES[options.target], lanes=lanes, spram=spram)
    return network, inputs


def place(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fpga"
        network, _ = written(options, folder)
        board = options.board or boards_of(DEVICES[options.target])[0]
        call(["make", "bitstream", f"BOARD={board}"], folder)
        log = (folder / "route.log").read_text()
        used = {key: int(count) for key, count in re.findall(r"(\w+):\s+([1-9]\d*)/\s*\d+", log)}
        megahertz = float(re.findall(r"Max frequency for clock.*?: ([\d.]+) MHz", log)[-1])
    estimate = fabric_use(network, load_profile(options.target))
    say(
        network=options.network,
        target=options.target,
        board=board,
        lanes=options.lanes or estimate.lanes,
        megahertz=megahertz,
        used=used,
        estimated_cells=estimate.logic_cells,
        counted_block_rams=estimate.block_rams,
    )


def netlist(options: argparse.Namespace) -> None:
    """Synthesize the logic of the core, and run a sample through the netlist in Icarus Verilog."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fpga"
        written(options, folder)
        said = call(["make", "netlist"], folder)
    say(network=options.network, target=options.target, netlist=said.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("equal", "random", "place", "netlist"))
    parser.add_argument(
        "network", nargs="?", default="digits", help=f"{', '.join(SHORT)}, scg, or a checkpoint"
    )
    parser.add_argument("--target", choices=tuple(DEVICES), default="ice40-up5k")
    parser.add_argument("--board")
    parser.add_argument("--lanes", type=int)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--traced", type=int, default=64)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--simulator", choices=("verilator", "iverilog"), default="iverilog")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--scg", type=Path, help="folder with best_snn_5class.pt and val.npz")
    options = parser.parse_args()
    {"equal": equal, "random": random, "place": place, "netlist": netlist}[options.what](options)


if __name__ == "__main__":
    main()
