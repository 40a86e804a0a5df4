"""Train a network of your own with your own PyTorch loop, and export it.

python examples/own_loop.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from torch import nn

from mpbn_deploy.api import LIF, ModelCard, SpikingNetwork, export, load_dataset, save_model


def build() -> nn.Module:
    """Time steps are part of the batch dimension, so only LIF deals with time."""
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        LIF(12, mpbn="channel"),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(192, 10),  # the readout integrates and never fires
    )


def main(folder: Path) -> None:
    torch.manual_seed(0)
    digits = load_dataset("digits")
    card = ModelCard(architecture="own_loop:build", class_names=digits.class_names)
    network = SpikingNetwork(build(), timesteps=4, input_format=digits.input_format, card=card)
    images, labels = torch.tensor(digits.train.inputs), torch.tensor(digits.train.labels)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(4):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
    save_model(folder / "own.pt", network.eval())
    result = export(folder / "own.pt", "loihi2", arch="own_loop:build", data="digits")
    print(f"{result.verified.fold.spikes_mismatched} spikes changed by folding; {result.verified.verdict}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
