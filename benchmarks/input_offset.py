"""What an offset of the inputs and finer steps of weights bring to the first layer, on a whole test split.

    python benchmarks/input_offset.py MODEL.pt --data cifar10 --data-dir FOLDER

The mean of the inputs is part of the biases of the first layer, whose format is narrow: it limits the scale,
and with it the resolution of the weights. A network that takes pixels minus 128 has small biases. Weights of
4 bits are multiples of 16, or, in layers of small scales, of a smaller step: both are measured. "Largest
weight" is that of a channel of the first layer in steps, in the middle over its channels, of 127 or 7 that
fit; "as float" counts the predictions that are those of the float network.
"""

import argparse
from pathlib import Path
from unittest.mock import patch

import numpy as np

from mpbn_deploy.api import emulate, fold, load_dataset, load_model, load_profile, quantize, trace
from mpbn_deploy.fold import offset_inputs
from mpbn_deploy.quantize import CALIBRATION_SAMPLES, NumberFormats
from mpbn_deploy.quantize.scales import grid_exponent

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
    print("| bits | inputs | calibrated | step | largest weight | accuracy | as float |")
    print("|---|---|---|---|---|---|---|")
    print(f"| float network | | | | | {np.mean(floats == labels):.2%} | |", flush=True)
    by_layer = NumberFormats.finest
    for bits, calibrated, finest in (
        (8, False, by_layer),
        (8, True, by_layer),
        (4, True, 0),
        (4, True, by_layer),
    ):
        for offset in (0, middle(folded)):
            shifted = offset_inputs(folded, offset)
            taken = shifted.input_range
            calibration = taken.presented(samples) if calibrated else None
            with patch.object(NumberFormats, "finest", finest):
                network = quantize(shifted, PROFILE, calibration, weight_bits=bits).network
            found = emulate(network, taken.presented(inputs), keep_trace=False).predictions
            step, largest = first_weights(network, bits)
            print(
                f"| {bits} | {taken.minimum}..{taken.maximum} | {'yes' if calibrated else 'no'} | {step} "
                f"| {largest:.0f} | {np.mean(found == labels):.2%} | {np.mean(found == floats):.2%} |",
                flush=True,
            )


def middle(folded):
    taken = folded.input_range
    return (taken.minimum + taken.maximum + 1) // 2


def first_weights(network, bits):
    """Return the step of the first layer's weights, and the largest weight of a channel in steps."""
    synapse, formats = network.entering(network.layers[0].name)[0].synapse, NumberFormats.of(PROFILE, bits)
    step = formats.weight_step(grid_exponent(synapse, formats))
    rows = np.abs(synapse.weight.reshape(len(synapse.weight), -1))
    return step, np.median(rows.max(axis=1)) / step


if __name__ == "__main__":
    main()
