"""Draw odd convolutions and compare every product of the emulator with sums over taps in NumPy.

    python benchmarks/geometries.py --count 20000            the emulator's products
    python benchmarks/geometries.py --count 20000 --torch    torch's own operators, for comparison

Geometry number n is drawn with seed (--seed, n): sides of one pixel, strides beyond kernels, dilations, one
channel per group, kernels larger than the image, and what they make together. A worker process computes, so
that a crash of a library is counted: another worker continues after it. Exit code 1 if anything differs.
"""

import argparse
import json
import platform
import signal
import subprocess
import sys
from collections import Counter
from datetime import date

import numpy as np
import torch
from torch.nn import functional

from mpbn_deploy.execute.products import _in_integers, convolve
from mpbn_deploy.ir import STATE_EXPONENT, Conv2d

BATCHES = (1, 2, 5, 17)


# ---- drawing ----------------------------------------------------------------------------------


def draw(generator):
    """Return a synapse and the shape of its source."""
    while True:
        groups = int(generator.choice((1, 1, 1, 2, 3, 4, 8, 16)))
        inputs, outputs = (
            groups * drawn(generator, 1, 1, 2, 3, 4, 8),
            groups * drawn(generator, 1, 1, 2, 3, 4, 16),
        )
        source = tuple(drawn(generator, 1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 33) for _ in range(2))
        kernel = tuple(drawn(generator, 1, 1, 2, 3, 3, 4, 5, 7, 9) for _ in range(2))
        synapse = Conv2d(
            weight=generator.integers(-127, 128, (outputs, inputs // groups, *kernel)),
            stride=tuple(drawn(generator, 1, 1, 1, 2, 2, 3, 4, 5, 9) for _ in range(2)),
            padding=tuple(drawn(generator, 0, 0, 1, 2, 3, 4, 6) for _ in range(2)),
            dilation=tuple(drawn(generator, 1, 1, 1, 2, 2, 3) for _ in range(2)),
            groups=groups,
        )
        if min(outputs_of(synapse, source)) > 0:
            return synapse, (inputs, *source)


def drawn(generator, *values):
    return int(generator.choice(values))


def outputs_of(synapse, source):
    sides = zip(
        source, synapse.weight.shape[2:], synapse.stride, synapse.padding, synapse.dilation, strict=True
    )
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides)


# ---- comparing --------------------------------------------------------------------------------


def summed(synapse, spikes):
    """The definition: each tap of the kernel times the pixels that it reads, in integers."""
    weight, (down, right) = synapse.weight.astype(np.int64), synapse.stride
    rows, columns = outputs_of(synapse, spikes.shape[2:])
    padded = np.pad(spikes, ((0, 0), (0, 0), *((side, side) for side in synapse.padding))).astype(np.int64)
    grouped = padded.reshape(len(spikes), synapse.groups, -1, *padded.shape[2:])
    weight = weight.reshape(synapse.groups, -1, *weight.shape[1:])
    total = 0
    for y, x in np.ndindex(*weight.shape[3:]):
        top, left = y * synapse.dilation[0], x * synapse.dilation[1]
        read = grouped[..., top : top + down * rows : down, left : left + right * columns : right]
        total = total + np.einsum("goi,bgiyx->bgoyx", weight[..., y, x], read[..., :rows, :columns])
    return total.reshape(len(spikes), -1, rows, columns)


def products(synapse, spikes, plain):
    """Yield (name, currents) of all products of torch; `plain` asks torch itself."""
    weight = torch.tensor(synapse.weight)
    geometry = (synapse.stride, synapse.padding, synapse.dilation, synapse.groups)
    layouts = {"channels last": in_channels_last(spikes), "channels first": spikes.contiguous()}
    for layout, values in layouts.items():
        for kind in (torch.float32, torch.float64):
            sent, kernel = values.to(kind), weight.to(kind)
            found = (
                functional.conv2d(sent, kernel, None, *geometry) if plain else convolve(sent, kernel, synapse)
            )
            yield f"{kind}, {layout}".removeprefix("torch."), found
    yield "int8", (in_integers if plain else by_the_emulator)(synapse, layouts["channels last"])


def in_channels_last(spikes):
    """Return the memory of the emulator, which is also that of single channels."""
    return torch.empty(spikes.shape, dtype=torch.bool, memory_format=torch.channels_last).copy_(spikes)


def by_the_emulator(synapse, spikes):
    return _in_integers(synapse, spikes)(spikes) / 2**STATE_EXPONENT


def in_integers(synapse, spikes):
    operators, weight = torch.ops.onednn, torch.tensor(synapse.weight, dtype=torch.int8)
    geometry = (list(synapse.stride), list(synapse.padding), list(synapse.dilation), synapse.groups)
    scales, zeros = torch.ones(len(weight)), torch.zeros(len(weight), dtype=torch.int64)
    packed = operators.qconv_prepack(weight, scales, 1.0, 0, *geometry, list(spikes.shape))
    return operators.qconv2d_pointwise(
        spikes.view(torch.uint8),
        1.0,
        0,
        packed,
        scales,
        zeros,
        None,
        *geometry,
        1.0,
        0,
        torch.float32,
        "none",
        [],
        "",
    )


def compare(seed, start, count, plain):
    """The worker: print each number before it is tried, and what differs."""
    torch.set_num_threads(1)
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        for number in range(start, count):
            print(json.dumps([number]), flush=True)
            generator = np.random.default_rng((seed, number))
            synapse, source = draw(generator)
            spikes = generator.random((drawn(generator, *BATCHES), *source)) < 0.5
            expected = summed(synapse, spikes)
            for name, found in products(synapse, torch.tensor(spikes), plain):
                if not np.array_equal(expected, found.numpy()):
                    print(json.dumps([number, name]), flush=True)


# ---- counting ---------------------------------------------------------------------------------


def run(seed, count, plain):
    start, different, crashes = 0, [], []
    while start < count:
        options = [
            "--seed",
            str(seed),
            "--count",
            str(count),
            "--start",
            str(start),
            *["--torch"][: int(plain)],
        ]
        worker = subprocess.run(
            [sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True, check=False
        )
        lines = [json.loads(line) for line in worker.stdout.splitlines()]
        different += [line for line in lines if len(line) == 2]
        start = lines[-1][0] + 1
        if worker.returncode in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL):
            return 2
        if worker.returncode:
            crashes.append((start - 1, worker.returncode))
    products = ", ".join(f"{name}: {n}" for name, n in Counter(name for _, name in different).items())
    print(
        f"{count} geometries, seed {seed}: {len({n for n, _ in different})} differ ({products or 'none'}), "
    )
    print(f"{len(crashes)} end the process. torch {torch.__version__}, {platform.machine()}, {date.today()}.")
    for number, what in (*different[:9], *crashes[:9]):
        synapse, source = draw(np.random.default_rng((seed, number)))
        geometry = {name: getattr(synapse, name) for name in ("stride", "padding", "dilation", "groups")}
        print(f"  {number}: {what}: {source}, kernels {synapse.weight.shape}, {geometry}")
    return 1 if different or crashes else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--torch", action="store_true", help="torch's own operators instead of the emulator's"
    )
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)  # of a worker
    given = parser.parse_args()
    if given.start is not None:
        sys.exit(compare(given.seed, given.start, given.count, given.torch))
    sys.exit(run(given.seed, given.count, given.torch))
