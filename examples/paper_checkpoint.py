"""Read a checkpoint of the paper's own code, fold its MPBN into thresholds, and ask what it takes on Loihi 2.

python examples/paper_checkpoint.py weights.pth [paper:res20m]
"""

import sys

import numpy as np

from mpbn_deploy.api import fit, fold, load_model, load_profile, quantize, simulate, trace


def main(path: str, arch: str = "paper:res20m") -> None:
    network = load_model(path, arch=arch, timesteps=4)  # takes raw pixels
    folded = fold(trace(network))
    print(f"{arch}: {len(folded.layers)} populations, {len(folded.connections)} connections")
    quantized = quantize(folded, load_profile("loihi2"))
    report = fit(quantized.network, load_profile("loihi2"))
    print(f"on Loihi 2: {report.cores} cores, fits: {report.fits}")
    gray = np.full((1, *folded.input.shape), 128)
    classes = [simulate(found, gray).predictions[0] for found in (folded, quantized.network)]
    print(f"class of a gray picture: {classes[0]} in float, {classes[1]} in integers")


if __name__ == "__main__":
    main(*sys.argv[1:])
