"""Every network of the zoo folded: what folding made of it, and that it changed no spike.

    python benchmarks/fold_zoo.py [--arch resnet20 ...]     prints a table of docs/results

Weights are random, gains of both signs; running statistics come from two batches. Spikes of the folded
network (NumPy, float64) are compared with those of the PyTorch module in float64 on random pictures.
"Close calls" are decisions that lie closer to their threshold than float64 can tell apart from it.
Each network is folded in a process of its own, whose highest resident size is shown.
"""

import argparse
import platform
import resource
import subprocess
import sys
import time
from datetime import date

import numpy as np
import torch
from torch import nn

from mpbn_deploy.execute.reference import close_calls, simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import FloatLif, InputFormat
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.nn.zoo import ARCHITECTURES
from mpbn_deploy.verify import trained_spikes

SHAPES = {
    "digits-cnn": (1, 8, 8),
    "digits-mlp": (1, 8, 8),
    "mnist-cnn": (1, 28, 28),
    "dvs-cnn": (2, 48, 48),
    "resnet18": (3, 224, 224),
    "resnet34": (3, 224, 224),
}
COLUMNS = (
    "network | MPBN | populations | connections | thresholds below zero | channels negated "
    "| constant neurons | spikes compared | different | close calls | seconds to fold | gigabytes"
)


def lively_network(architecture, kind, timesteps):
    """A network whose neurons fire sometimes and not always."""
    shape = SHAPES.get(architecture, (3, 32, 32))
    given = InputFormat(shape=shape, minimum=0, maximum=255, mean=[120.0], deviation=[60.0])
    neuron = {"mpbn": kind, "mpbn_gain": "positive" if kind == "element" else "free"}
    body = ARCHITECTURES[architecture](shape, 10, **neuron)
    network = SpikingNetwork(body, timesteps=timesteps, input_format=given)
    for norm in network.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
            norm.momentum = 0.5
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0.2, 0.2)
            if kind != "element":
                norm.weight.data[torch.rand(norm.num_features) < 0.3] *= -1
    with torch.no_grad():
        for _ in range(2):
            network.train()(torch.randint(0, 256, (4, *shape)))
    return network.eval()


def one_row(architecture, options):
    torch.manual_seed(options.seed)
    network = lively_network(architecture, options.mpbn, options.timesteps)
    trained = trace(network)
    started = time.perf_counter()
    folded = fold(trained)
    seconds = time.perf_counter() - started
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    shape = (options.samples, *folded.input.shape)
    inputs = np.random.default_rng(options.seed).integers(0, 256, shape)
    spikes, _ = trained_spikes(network, inputs)
    got = simulate(folded, inputs)
    compared = sum(values.size for values in spikes.values())
    different = sum(int((values != got.spikes[name]).sum()) for name, values in spikes.items())
    close = sum(int(where.sum()) for where in close_calls(folded, inputs, got).values())
    neurons = [p.neuron for p in folded.populations if isinstance(p.neuron, FloatLif)]
    gains = [m.mpbn.gain for m in network.modules() if isinstance(m, LIF) and m.mpbn is not None]
    cells = [
        architecture, options.mpbn, len(folded.populations), len(folded.connections),
        sum(int((n.threshold < 0).sum()) for n in neurons),
        sum(int((g < 0).sum()) for g in gains),
        sum(int(np.isinf(n.threshold).sum()) for n in neurons) + sum(int((g == 0).sum()) for g in gains),
        f"{compared:,}", different, close, f"{seconds:.1f}", f"{gigabytes:.1f}",
    ]  # fmt: skip
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return 1 if different else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=list(ARCHITECTURES), choices=ARCHITECTURES)
    parser.add_argument("--mpbn", default="channel", choices=("channel", "element", "none"))
    parser.add_argument("--timesteps", type=int, default=2)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        return one_row(options.arch[0], options)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, numpy {np.__version__}\n")
    print(f"| {COLUMNS} |")
    print("|---" * (1 + COLUMNS.count("|")) + "|", flush=True)
    rest = ["--mpbn", options.mpbn, "--timesteps", options.timesteps, "--samples", options.samples]
    return max(
        subprocess.run(
            [sys.executable, __file__, "--row", "--arch", name, *map(str, rest), "--seed", str(options.seed)]
        ).returncode
        for name in options.arch
    )


if __name__ == "__main__":
    sys.exit(main())
