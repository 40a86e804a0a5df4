"""The sigma-delta networks in the lava-dl wheel: every execution against the record, messages, cores, energy.

    python benchmarks/sigma_delta.py                prints the tables of docs/results
    python benchmarks/sigma_delta.py --no-lava      without the executions in Lava

PilotNet SDNN runs nine steps on the recorded picture, the depth of its layers; its record holds the output of
every step. The square network has a record of the sums of its four convolutions over 20 steps, made for
Loihi 2. For the second table, the picture is shown, stands still, and then changes by noise of one unit.
"""

import argparse
import os
import platform
from dataclasses import replace
from datetime import date
from importlib import metadata

import numpy as np

from mpbn_deploy.execute import EXECUTORS, ExecutionOptions
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fit import measure
from mpbn_deploy.fit.form import fit_on_chip
from mpbn_deploy.formats.netx import read_netx
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import Input
from mpbn_deploy.verify.comparison import compare

STEPS, SQUARE_STEPS = 9, 20
IN_LAVA = ("lava", "lava-stock", "netx")


def recorded(name):
    """A file of the recorded networks inside the lava-dl wheel."""
    files = metadata.files("lava-dl") or []
    return next(file.locate() for file in files if str(file).endswith(f"gts/pilotnet_sdnn/{name}"))


def print_executions(network, picture, names):
    trace = simulate(network, picture)
    outputs = np.load(recorded("output.npy"))[0]
    different = np.count_nonzero(trace.voltages[network.output.name][0, :, 0] != outputs)
    print("| execution | compared with | messages | sums | outputs | different |\n|---|---|---|---|---|---|")
    print(f"| reference | lava-dl's record | | | {outputs.size} steps | {different} |")
    for name in names:
        got = EXECUTORS[name].run(network, picture, ExecutionOptions())
        found = compare(EXECUTORS[name].name, trace, got)
        numbers = (found.spikes_compared, found.voltages_compared, found.outputs_compared)
        wrong = found.spikes_mismatched + found.voltages_mismatched + found.outputs_mismatched
        print(f"| {found.execution} | reference | {' | '.join(f'{n:,}' for n in numbers)} | {wrong} |")


def print_square():
    """Compare the sums of the square network, which receives the recorded messages of its input layer."""
    network = read_netx(recorded("square_network.net"), timesteps=SQUARE_STEPS)
    source = network.populations[1].with_neuron(Input(minimum=-(2**17), maximum=2**17))
    network = replace(
        network,
        populations=(source, *network.populations[2:]),
        connections=network.connections[1:],
        scales={},
    )
    messages = np.load(recorded("act0.npy")).astype(int)[:33].T[None]
    trace = simulate(network, messages)
    compared = different = 0
    for number in (1, 2, 3, 4):
        sums = np.load(recorded(f"sigma{number}_square.npy")).T
        compared += sums.size
        different += np.count_nonzero(trace.voltages[f"layer{number}"][0] != sums)
    print(f"| reference, square network | lava-dl's record | | {compared:,} | | {different} |")


def print_messages(network, picture):
    """Share of neurons that send a message in a step: first picture, still picture, noise."""
    generator = np.random.default_rng(0)
    frames = np.repeat(picture, 3 * STEPS, axis=0)
    frames[2 * STEPS :] += generator.integers(-1, 2, frames[2 * STEPS :].shape)
    longer = replace(network, timesteps=3 * STEPS)
    trace = simulate(longer, frames[None])
    print("\n| layer | neurons | first picture | still | noise |\n|---|---|---|---|---|")
    for population in longer.layers[:-1]:
        sent = (trace.spikes[population.name][0] != 0).reshape(3, -1).mean(axis=1)
        shares = " | ".join(f"{100 * share:.1f} %" for share in sent)
        print(f"| {population.name} | {population.size:,} | {shares} |")
    print_costs(network, picture)


def print_costs(network, picture):
    """Estimate the first picture on Loihi 2, and what one more step costs while it stands still."""
    reports = []
    for steps in (STEPS, 2 * STEPS):
        shown = replace(network, timesteps=steps)
        activity = measure(shown, picture)
        reports.append(fit_on_chip(shown, load_profile("loihi2"), activity, first_layer="host"))
    first, second = (report.energy.to_json() for report in reports)
    joules, seconds = (
        {end: first[f"{what}_per_sample"][end] / 1e6 for end in ("value", "low", "high")}
        for what in ("energy", "time")
    )
    more = (second["energy_per_sample"]["value"] - first["energy_per_sample"]["value"]) / STEPS / 1e6
    print(
        f"\nLoihi 2, input encoded by the host: {reports[0].cores} cores; first {STEPS} steps "
        f"{joules['value']:.0f} uJ ({joules['low']:.0f} to {joules['high']:.0f}), {seconds['value']:.2f} ms "
        f"({seconds['low']:.2f} to {seconds['high']:.2f}); each further step of a still picture {more:.1f} uJ"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-lava", action="store_true", help="leave out the executions in Lava")
    chosen = parser.parse_args()
    network = read_netx(recorded("network.net"), timesteps=STEPS, input_range=(-128, 127))
    picture = np.load(recorded("input.npy"))[..., 0].T[None].astype(int)
    print(f"{date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} processors\n")
    print_executions(network, picture, ("emulator", *(() if chosen.no_lava else IN_LAVA)))
    print_square()
    print_messages(network, picture)


if __name__ == "__main__":
    main()
