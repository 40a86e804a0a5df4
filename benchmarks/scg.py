"""SCG, a network that others trained and put on an FPGA, from its checkpoint to C (docs/results/c.md).

    python benchmarks/scg.py best_snn_5class.pt val.npz [--out scg.rp2040]

Checkpoint and validation windows (9,767 windows of 256 samples of a seismocardiogram, five classes) are those
of github.com/dentar142/scg-snn-eg4s20: 256 inputs, x / 127; 64 and 5 neurons without biases that keep 0.9 of
their voltage, fire at 1 and subtract 1; 32 time steps; the class is the neuron with most spikes. The float
network is written out below and runs in float64; the project in --out is for `.ci/mcu.py`.
"""

import argparse
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mpbn_deploy.api import LIF, InputFormat, SpikingNetwork, fold, load_profile, quantize, trace
from mpbn_deploy.execute.c import Compiled
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.c import program_size, sample_count, write_project

CALIBRATED = 1000  # windows on which the largest states are measured


def counted_spikes(weights, x, leak, threshold, steps):
    """The published network: the spike counts of its last layer."""
    states = [torch.zeros(len(x), len(weight), dtype=torch.float64) for weight in weights]
    counts = torch.zeros_like(states[-1])
    for _ in range(steps):
        given = x
        for index, weight in enumerate(weights):
            states[index] = leak * states[index] + given @ weight.T
            given = (states[index] >= threshold).double()
            states[index] = states[index] - threshold * given
        counts += given
    return counts


def spiking_network(weights, leak, threshold, steps):
    """The same network made of our layers."""
    layers = OrderedDict()
    for number, weight in enumerate(weights, start=1):
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.weight.data = weight
        layers[f"fc{number}"] = linear
        layers[f"lif{number}"] = LIF(
            len(weight), mpbn="none", leak=leak, threshold=threshold, reset="subtract"
        )
    given = InputFormat(
        shape=(weights[0].shape[1],), minimum=-127, maximum=127, mean=np.zeros(1), deviation=np.full(1, 127.0)
    )
    return SpikingNetwork(nn.Sequential(layers), timesteps=steps, input_format=given).double().eval()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("windows", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the C project with the default weight bits")
    options = parser.parse_args()
    saved = torch.load(options.checkpoint, map_location="cpu", weights_only=True)
    weights = [saved["state"][f"fc{n}.weight"].double() for n in (1, 2)]
    facts = saved["beta"], saved["threshold"], saved["T"]
    data = np.load(options.windows)
    inputs, labels = data["X"].reshape(len(data["X"]), -1), data["y"]
    published = counted_spikes(weights, torch.tensor(inputs / 127.0), *facts).argmax(dim=1).numpy()
    print(f"published network in PyTorch: {np.mean(published == labels):.4%} of {len(labels):,}\n")
    print("| overflow | weight bits | accuracy in C, all | without those of calibration "
          "| predictions changed | tables | memory | outputs equal |")  # fmt: skip
    print("|---" * 8 + "|")
    folded = fold(trace(spiking_network(weights, *facts)))
    for overflow, bits in (("proved", 8), ("measured", 8), ("measured", 4)):
        given = inputs[:CALIBRATED] if overflow == "measured" else None
        network = quantize(folded, load_profile("rp2040"), given, weight_bits=bits, overflow=overflow).network
        outputs = Compiled(network).run(inputs, keep_trace=False).outputs
        right, size = outputs.argmax(axis=1) == labels, program_size(network)
        changed = np.sum(outputs.argmax(axis=1) != published)
        equal = np.array_equal(simulate(network, inputs[-256:]).outputs, outputs[-256:])
        rest, agree = right[CALIBRATED:], "256 of 256" if equal else "NO"
        print(f"| {overflow} | {bits} | {np.mean(right):.2%} | {np.mean(rest):.2%} "
              f"| {changed:,} | {size.tables:,} | {size.memory:,} | {agree} |")  # fmt: skip
        if options.out and (overflow, bits) == ("measured", 8):
            some = inputs[: sample_count(network)]
            write_project(options.out / "c", network, some, simulate(network, some))


if __name__ == "__main__":
    main()
