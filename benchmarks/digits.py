"""Digits: float against integer over seeds and weight bits, and every execution against the reference.

python benchmarks/digits.py [--seeds 3]      prints the tables of docs/results
"""

import argparse
import platform
import time
from datetime import date

import numpy as np

from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.train import Training, train
from mpbn_deploy.verify import compare

WEIGHT_BITS = (8, 6, 4, 3, 2)
CALIBRATION = 256
COMPARED_SAMPLES = 64
REPEATS = 5  # the fastest counts


def accuracy_row(dataset, mpbn, seed):
    """Accuracies of one trained network on the whole test split: float, then integer for each width."""
    folded = fold(trace(train(dataset, "digits-cnn", mpbn=mpbn, training=Training(epochs=8, seed=seed))))
    profile = load_profile("loihi2")

    def measure(network):
        predictions = emulate(network, dataset.test.inputs, keep_trace=False).predictions
        return 100 * np.mean(predictions == dataset.test.labels)

    plain = [measure(quantize(folded, profile, weight_bits=bits).network) for bits in WEIGHT_BITS]
    calibration = dataset.train.inputs[:CALIBRATION]
    calibrated = [
        measure(quantize(folded, profile, calibration, weight_bits=bits).network) for bits in WEIGHT_BITS
    ]
    return folded, measure(folded), plain, calibrated


def print_accuracies(dataset, seeds):
    """One line per network and kind of quantization, in points."""
    print(
        "| MPBN | seed | calibration | float | " + " | ".join(f"{bits} bits" for bits in WEIGHT_BITS) + " |"
    )
    print("|---" * (4 + len(WEIGHT_BITS)) + "|")
    folded = None
    for mpbn in ("channel", "none"):
        for seed in range(seeds):
            folded_now, real, plain, calibrated = accuracy_row(dataset, mpbn, seed)
            folded = folded or folded_now
            for label, values in (("none", plain), (f"{CALIBRATION} samples", calibrated)):
                cells = " | ".join(f"{value:.2f}" for value in values)
                print(f"| {mpbn} | {seed} | {label} | {real:.2f} | {cells} |", flush=True)
    return folded


def print_executions(dataset, folded):
    """Each execution on the same samples: what differs, and how long it takes beside the reference."""
    network = quantize(folded, load_profile("loihi2")).network
    inputs = dataset.test.inputs[:COMPARED_SAMPLES]
    executions = {"reference": simulate, "emulator": emulate, "Lava": lava_sim.run}
    print("\n| execution | spikes compared | different | voltages | different | seconds | of the reference |")
    print("|---" * 7 + "|")
    reference, reference_seconds = None, None
    for name, execute in executions.items():
        execute(network, inputs[:1])  # imports and caches
        seconds, result = min(
            (timed(execute, network, inputs) for _ in range(REPEATS)), key=lambda run: run[0]
        )
        reference, reference_seconds = reference or result, reference_seconds or seconds
        found = compare(name, reference, result)
        counts = f"{found.spikes_compared:,} | {found.spikes_mismatched} | "
        counts += f"{found.voltages_compared:,} | {found.voltages_mismatched}"
        print(f"| {name} | {counts} | {seconds:.3f} | {seconds / reference_seconds:.2f} x |")


def timed(execute, network, inputs):
    started = time.perf_counter()
    result = execute(network, inputs)
    return time.perf_counter() - started, result


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"digits (scikit-learn), {date.today()}, {platform.machine()}, Python {platform.python_version()}\n"
    )
    dataset = load_dataset("digits")
    print_executions(dataset, print_accuracies(dataset, options.seeds))


if __name__ == "__main__":
    main()
