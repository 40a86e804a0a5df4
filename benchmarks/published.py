"""A published network on published data, by the plain command.

    python benchmarks/published.py FOLDER

FOLDER holds best_snn_5class.pt and val.npz of github.com/dentar142/scg-snn-eg4s20 (MIT; data: CEBSDB,
ODC-BY): seismocardiograms, windows of 256 values in five classes. The network is 256-64-5 without biases:
v <- 0.9 v + W x, fires at v >= 1, subtracts 1; 32 time steps; the output counts spikes. The file holds
weights only, so the class is written here, as its authors describe it. The table of docs/results/published.md
compares the defaults with other options, on the test part of a fixed split; PyTorch on all samples reproduces
the authors' figure.
"""

import argparse
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import torch
from model_cards import processor
from torch import nn

from mpbn_deploy.api import export

INPUTS = {"timesteps": 32, "input_shape": (256,), "input_range": (-127, 127), "normalize": (0.0, 127.0)}
ROWS = {
    "the plain command": {},
    "--calibration none": {"calibration": "none"},
    "--weight-bits 6": {"weight_bits": 6},
    "--weight-bits 4": {"weight_bits": 4},
}


class Network(nn.Module):
    """256-64-5, spike counts over 32 time steps of a constant input."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(256, 64, bias=False), nn.Linear(64, 5, bias=False)

    def forward(self, inputs):
        first, second, counts = 0.0, 0.0, 0.0
        for _ in range(INPUTS["timesteps"]):
            first = 0.9 * first + self.fc1(inputs)
            spikes = (first >= 1.0).float()
            first = first - spikes
            second = 0.9 * second + self.fc2(spikes)
            fired = (second >= 1.0).float()
            second = second - fired
            counts = counts + fired
        return counts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    model, data = folder / "best_snn_5class.pt", folder / "val.npz"
    print(f"{processor()}, {date.today()}; PyTorch on all samples: ", end="")
    print(f"{published_accuracy(model, data):.2%}\n")
    print("| options | test samples | PyTorch | folded | integer | lost | exit code |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name, options in ROWS.items():
        with tempfile.TemporaryDirectory() as out:
            result = export(
                model,
                "loihi2",
                Path(out) / "out",
                arch="published:Network",
                data=data,
                budget=0,
                **INPUTS,
                **options,
            )
        found = result.verified.accuracy
        print(
            f"| {name} | {found.samples} | {found.trained_network:.2%} | {found.float_network:.2%} "
            f"| {found.integer_network:.2%} | {100 * found.loss:.2f} | {0 if result.good else 1} |",
            flush=True,
        )


def published_accuracy(model, data):
    """Return the accuracy of the authors' network in PyTorch on all their validation samples."""
    network, samples = Network(), np.load(data)
    network.load_state_dict(torch.load(model, weights_only=True, map_location="cpu")["state"])
    with torch.no_grad():
        counts = network(torch.from_numpy(samples["X"][:, 0]).float() / 127)
    return float(np.mean(counts.argmax(1).numpy() == samples["y"]))


if __name__ == "__main__":
    main()
