"""What quantization costs in accuracy, on whole test sets, four ways side by side.

    python benchmarks/quantization.py --data fashion-mnist --label Fashion-MNIST MODEL.pt ...
    python benchmarks/quantization.py --time [--arch resnet20]
    python benchmarks/quantization.py --data cifar10 --data-dir FOLDER --sensitivity MODEL.pt

The first prints a table of docs/results: for each width of weights, how many points of accuracy

    one scale       rounding to nearest, one scale per layer, as lava-dl and SpikingJelly's exchange do;
                    thresholds and biases are ours, one per channel or neuron
    data-free       one scale per channel, exponents, no data: `quantize(folded, profile)`
    calibrated      the same with 256 training samples: `quantize(folded, profile, samples)`
    per layer       calibrated, with bits per layer (`weight_bits="auto"`) in the bytes that all layers take
                    at the bits of the row
    trained         quantization-aware training from the calibrated network, `--epochs` long

lose against the float network, as the mean over the models given and its range. The second says how
long calibration takes, and in how much memory, on a large network with random weights. The third says how
many predictions of a *float* network change when some pixels of the first samples change by one grey level.
"""

import argparse
import platform
import resource
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import torch
from fold_zoo import lively_network

from mpbn_deploy.checkpoint import load_model, save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute.emulator import Emulator, emulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import (
    CALIBRATION_SAMPLES,
    QUANTIZED,
    NumberFormats,
    choose_grid,
    quantize,
    round_without_overflow,
)
from mpbn_deploy.train import Training, quantized_rate, quantized_twin, train

PROFILE = load_profile("loihi2")
SENSED = 5000  # samples whose pixels are changed
METHODS = ("one scale", "data-free", "calibrated", "per layer", "trained")


def with_one_scale(folded, bits):
    """Round to nearest with one scale per layer, the largest that all its channels can hold."""
    formats = NumberFormats.of(PROFILE, bits)
    grids = {p.name: choose_grid(folded, p, replace(formats, exponent=0)) for p in folded.populations[1:]}
    for name, grid in grids.items():
        grids[name] = replace(grid, scales=np.full_like(grid.scales, grid.scales.min()))
    return round_without_overflow(folded, grids, formats)[0]


def with_widths(folded, dataset, bits):
    """Choose the bits of each layer, within the bytes of all layers at `bits`."""
    entering = [folded.entering(p.name) for p in folded.layers]
    sizes = [sum(c.synapse.weight.size for c in into) for into in entering]
    most = sum(-(-size * bits // 8) for size in sizes)
    inputs = dataset.train.inputs[:CALIBRATION_SAMPLES]
    found = quantize(folded, PROFILE, inputs, weight_bits="auto", most_bytes=most)
    print(f"at most {most:,} bytes: {dict(found.widths.chosen.bits)}", file=sys.stderr, flush=True)
    return found.network


def trained(model, dataset, bits, options, out):
    """Quantization-aware training; read back where an earlier run was cut."""
    if not out.exists():
        rate = options.learning_rate or quantized_rate(bits) * options.batch / Training().batch
        training = Training(epochs=options.epochs, batch=options.batch, learning_rate=rate, seed=options.seed)
        twin = quantized_twin(model, PROFILE, bits, dataset)
        save_model(out, train(dataset, QUANTIZED, training=training, init=twin))
    network = load_model(out)
    return network.body.to_integers(network.timesteps)


def quantized(method, folded, model, dataset, bits, path, options):
    """The integer network that a method makes."""
    if method == "one scale":
        return with_one_scale(folded, bits)
    if method == "data-free":
        return quantize(folded, PROFILE, weight_bits=bits).network
    if method == "calibrated":
        return quantize(folded, PROFILE, dataset.train.inputs[:CALIBRATION_SAMPLES], weight_bits=bits).network
    if method == "per layer":
        return with_widths(folded, dataset, bits)
    return trained(model, dataset, bits, options, options.out / f"{path.stem}-{options.data}-{bits}.pt")


def measure(path, dataset, options):
    """Points lost and share of changed predictions, {(bits, method): (points, changed)}, of one model."""
    model = load_model(path)
    folded = fold(trace(model))
    inputs, labels = dataset.test.inputs[:], np.asarray(dataset.test.labels)

    def predictions(network):
        return emulate(network, inputs, keep_trace=False).predictions

    real = predictions(folded)
    right = 100 * np.mean(real == labels)
    print(f"{path}: float {right:.2f} %", file=sys.stderr, flush=True)
    found = {}
    for bits in options.bits:
        for method in options.methods:
            network = quantized(method, folded, model, dataset, bits, path, options)
            got = predictions(network)
            found[bits, method] = right - 100 * np.mean(got == labels), 100 * np.mean(got != real)
            print(f"{path}: {bits} bits, {method}: {found[bits, method]}", file=sys.stderr, flush=True)
    return right, found


def print_accuracies(options):
    dataset = load_dataset(options.data, options.data_dir)
    results = [measure(path, dataset, options) for path in options.models]
    floats = [right for right, _ in results]
    print(f"{options.label}, {len(dataset.test)} test samples, {len(results)} networks, float accuracy "
          f"{np.mean(floats):.2f} % ({min(floats):.2f} to {max(floats):.2f})\n")  # fmt: skip
    print("| bits | " + " | ".join(options.methods) + " |\n|---" + "|---" * len(options.methods) + "|")
    for bits in options.bits:
        cells = []
        for method in options.methods:
            points, changed = zip(*(found[bits, method] for _, found in results), strict=True)
            spread = f" ({min(points):.2f} to {max(points):.2f})" if len(points) > 1 else ""
            cells.append(f"{np.mean(points):.2f}{spread}; {np.mean(changed):.1f} % changed")
        print(f"| {bits} | " + " | ".join(cells) + " |")


def print_times(options):
    torch.manual_seed(0)
    folded = fold(trace(lively_network(options.arch, "channel", options.timesteps)))
    generator = np.random.default_rng(0)
    samples = generator.integers(0, 256, size=(CALIBRATION_SAMPLES, *folded.input.shape))
    print("| network | time steps | weight bits | processor seconds | gigabytes |\n|---|---|---|---|---|")
    for bits in options.bits:
        started = time.process_time()
        quantize(folded, PROFILE, samples, weight_bits=bits)
        seconds = time.process_time() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"| {options.arch} | {options.timesteps} | {bits} | {seconds:.0f} | {memory:.1f} |", flush=True)


def print_sensitivity(options):
    dataset = load_dataset(options.data, options.data_dir)
    generator = np.random.default_rng(options.seed)
    inputs = np.asarray(dataset.test.inputs[:SENSED]).astype(int)
    labels = np.asarray(dataset.test.labels[:SENSED])
    lowest, highest = dataset.input_format.minimum, dataset.input_format.maximum
    print("| network | pixels changed | predictions changed | accuracy |\n|---|---|---|---|")
    for path in options.models:
        emulator = Emulator(fold(trace(load_model(path))))
        first = None
        for share in (0.0, 0.002, 0.01, 0.05, 0.3):
            steps = generator.choice([-1, 0, 1], size=inputs.shape, p=[share / 2, 1 - share, share / 2])
            changed = np.clip(inputs + steps, lowest, highest)
            got = emulator.run(changed, keep_trace=False).predictions
            first = got if first is None else first
            moved, right = 100 * np.mean(got != first), 100 * np.mean(got == labels)
            print(f"| {path.stem} | {100 * share:.1f} % | {moved:.1f} % | {right:.2f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--label", default="")
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 4, 3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--epochs", type=int, default=1, help="of quantization-aware training")
    parser.add_argument("--batch", type=int, default=Training().batch)
    parser.add_argument("--learning-rate", type=float, help="default: the usual one, times batch / 32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the trained networks")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--sensitivity", action="store_true")
    parser.add_argument("--arch", default="resnet20")
    parser.add_argument("--timesteps", type=int, default=4)
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch "
          f"{torch.__version__}, {torch.get_num_threads()} threads, seed {options.seed}\n")  # fmt: skip
    if options.time:
        print_times(options)
    elif options.sensitivity:
        print_sensitivity(options)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        print_accuracies(options)


if __name__ == "__main__":
    main()
