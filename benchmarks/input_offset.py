"""What an offset of the inputs brings at 8 bits, on a whole test split.

    python benchmarks/input_offset.py MODEL.pt --data cifar10 --data-dir FOLDER

The mean of the inputs is part of the biases of the first layer, whose format is narrow: it limits the scale,
and with it the resolution of the weights. A network that takes pixels minus 128 has small biases. "Largest
weight" is that of a channel of the first layer, in the middle over its channels, of 127 that fit; "as float"
counts the predictions that are those of the float network.
"""

import argparse
from pathlib import Path

import numpy as np

from mpbn_deploy.api import emulate, fold, load_dataset, load_model, load_profile, quantize, trace
from mpbn_deploy.fold import offset_inputs
from mpbn_deploy.quantize import CALIBRATION_SAMPLES

PROFILE = load_profile("loihi2")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    data = load_dataset(options.data, options.data_dir)
    inputs, labels = np.asarray(data.test.inputs[:]), np.asarray(data.test.labels[:])
    samples = np.asarray(data.train.inputs[:CALIBRATION_SAMPLES])
    folded = fold(trace(load_model(options.model)))
    floats = emulate(folded, inputs, keep_trace=False).predictions
    print("| inputs | calibrated | largest weight | accuracy | as float |")
    print("|---|---|---|---|---|")
    print(f"| float network | | | {np.mean(floats == labels):.2%} | |", flush=True)
    for offset in (0, middle(folded)):
        shifted = offset_inputs(folded, offset)
        taken = shifted.input_range
        for calibration in (None, taken.presented(samples)):
            network = quantize(shifted, PROFILE, calibration).network
            found = emulate(network, taken.presented(inputs), keep_trace=False).predictions
            print(
                f"| {taken.minimum}..{taken.maximum} | {'no' if calibration is None else 'yes'} "
                f"| {largest_weight(network):.0f} | {np.mean(found == labels):.2%} "
                f"| {np.mean(found == floats):.2%} |",
                flush=True,
            )


def middle(folded):
    taken = folded.input_range
    return (taken.minimum + taken.maximum + 1) // 2


def largest_weight(network):
    weights = network.entering(network.layers[0].name)[0].synapse.weight
    return np.median(np.abs(weights.reshape(len(weights), -1)).max(axis=1))


if __name__ == "__main__":
    main()
