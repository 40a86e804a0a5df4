"""Compare reference and emulator with xylosim, SynSense's simulator of Xylo Audio 2, on random networks.

    python benchmarks/xylo_exact.py [--networks 200] [--seed 0]

Networks are of every form that the chip takes: one to four hidden populations, some of convolutions, with and
without recurrent and backward connections, biases, weight shifts; thresholds from 1 to 32767, shifts from 0
to 15. A third of them is driven so hard that sums reach the limits of 16 bits. Every spike count and membrane
is compared, of hidden neurons and outputs.
"""

import argparse
import platform
import time
from importlib import metadata

import numpy as np

from mpbn_deploy.execute import ExecutionOptions
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.outside.xylosim import WHOLE
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Population, Xylo


def neuron(random, shape, hard, max_spikes):
    """Draw the numbers of a population; `hard` ones are near the limits."""
    threshold = 2 ** random.uniform(0, 15, shape) if hard else random.integers(40, 1500, shape)
    bias = random.integers(-20000, 20000, shape) if hard else random.integers(-30, 60, shape)
    return Xylo(
        threshold=np.clip(threshold, 1, 32767).astype(np.int64),
        bias=bias * random.integers(0, 2),
        shift_current=random.integers(0 if hard else 1, 16 if hard else 5, shape),
        shift_voltage=random.integers(0, 16 if hard else 6, shape),
        max_spikes=max_spikes,
    )


def synapse(random, source, target, shift, hard, dense):
    """Draw a convolution between images of one size, or else a matrix of which a part is zero."""
    largest = 127 if hard else 25
    if len(source) == len(target) == 3 and source[1:] == target[1:] and not dense:
        weight = random.integers(-largest, largest + 1, (target[0], source[0], 3, 3))
        return Conv2d(weight=weight, padding=(1, 1), exponent=shift)
    weight = random.integers(-largest, largest + 1, (int(np.prod(target)), int(np.prod(source))))
    return Dense(weight=weight * (random.random(weight.shape) < random.uniform(0.1, 1)), exponent=shift)


def random_network(seed):
    """Draw a network; a third of all is driven to the limits of its states."""
    random = np.random.default_rng(seed)
    hard = seed % 3 == 0
    shapes = [(int(random.integers(1, 17)),) if random.random() < 0.7 else (1, 4, 4)]
    for _ in range(random.integers(1, 5)):
        shapes.append(
            (int(random.integers(2, 5)), 4, 4) if random.random() < 0.3 else (int(random.integers(4, 80)),)
        )
    shapes.append((int(random.integers(1, 9)),))
    names = ["input", *(f"hidden{i}" for i in range(1, len(shapes) - 1)), "output"]
    shifts = random.integers(0, 9 if hard else 2, 3)
    populations = [Population(name="input", shape=shapes[0], neuron=Input(minimum=0, maximum=15))]
    populations += [
        Population(name=name, shape=shape, neuron=neuron(random, shape, hard, 1 if name == "output" else 31))
        for name, shape in zip(names[1:], shapes[1:], strict=True)
    ]
    last, connections = len(names) - 1, []
    for target in range(1, len(names)):
        for source in range(last):
            part = 0 if source == 0 else 2 if target == last else 1
            chain = source == target - 1
            if (part == 0 and target == last) or not (chain or random.random() < 0.25):
                continue
            shift = int(shifts[part])
            between = synapse(random, shapes[source], shapes[target], shift, hard, dense=source == target)
            delay = 0 if source == 0 else 1
            connections.append(
                Connection(source=names[source], target=names[target], synapse=between, delay=delay)
            )
    timesteps = int(random.integers(5, 60))
    network = IntNetwork(
        populations=tuple(populations), connections=tuple(connections), timesteps=timesteps, scales={}
    )
    rate = random.uniform(0.1, 4)
    inputs = np.minimum(random.poisson(rate, (16, timesteps, *shapes[0])), 15)
    return network, inputs


def differences(expected, got):
    """Count the spike counts and membranes that differ, and how many were compared."""
    pairs = [(expected.spikes[n], got.spikes[n]) for n in expected.spikes]
    pairs += [(expected.voltages[n], got.voltages[n]) for n in expected.voltages]
    return sum(int((a != b).sum()) for a, b in pairs), sum(a.size for a, _ in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total = dict.fromkeys(("compared", "xylosim differs", "emulator differs", "spikes", "limited steps"), 0)
    seconds = dict.fromkeys(("reference", "emulator", "xylosim"), 0.0)
    several = recurrent = limited = 0
    for seed in range(options.seed, options.seed + options.networks):
        network, inputs = random_network(seed)
        begun = time.perf_counter()
        expected = simulate(network, inputs)
        reference = time.perf_counter()
        quick = emulate(network, inputs)
        emulated = time.perf_counter()
        chip = WHOLE.run(network, inputs, ExecutionOptions())
        ended = time.perf_counter()
        seconds["reference"] += reference - begun
        seconds["emulator"] += emulated - reference
        seconds["xylosim"] += ended - emulated
        found, compared = differences(expected, chip)
        total["compared"] += compared
        total["xylosim differs"] += found
        total["emulator differs"] += differences(expected, quick)[0]
        total["spikes"] += sum(int(counts.sum()) for counts in expected.spikes.values())
        total["limited steps"] += sum(int(steps.sum()) for steps in expected.overflows.values())
        several += any((counts > 1).any() for counts in expected.spikes.values())
        recurrent += bool(network.feedback)
        limited += bool(expected.overflows)
        assert all(np.array_equal(quick.overflows[n], expected.overflows[n]) for n in expected.overflows)
    print(f"xylosim {metadata.version('xylosim')}, {platform.processor() or platform.machine()}")
    print(f"{options.networks} networks, seeds from {options.seed}: {recurrent} with loops, ", end="")
    print(f"{several} with several spikes per step, {limited} with sums at the limits of 16 bits")
    print(", ".join(f"{name}: {count:,}" for name, count in total.items()))
    print(", ".join(f"{name}: {value:.1f} s" for name, value in seconds.items()))
    raise SystemExit(1 if total["xylosim differs"] or total["emulator differs"] else 0)


if __name__ == "__main__":
    main()
