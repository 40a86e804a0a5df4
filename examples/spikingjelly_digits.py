"""Train a network of SpikingJelly, all time steps at once, and export it.

python examples/spikingjelly_digits.py [FOLDER]
"""

import sys
from pathlib import Path

import torch
from spikingjelly.activation_based import functional, layer, neuron, surrogate
from torch import nn

from mpbn_deploy.api import export, load_dataset

STEPS, HIGHEST = 4, 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            layer.Conv2d(1, 12, 3, padding=1),
            layer.BatchNorm2d(12),
            neuron.IFNode(surrogate_function=surrogate.ATan()),
            layer.MaxPool2d(2),
            layer.Flatten(),
            layer.Linear(192, 10),
            neuron.LIFNode(surrogate_function=surrogate.ATan()),
        )
        functional.set_step_mode(self, "m")

    def forward(self, x):
        return self.layers(x.unsqueeze(0).repeat(STEPS, 1, 1, 1, 1)).mean(0)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    train = load_dataset("digits").train
    images, labels = torch.tensor(train.inputs) / HIGHEST, torch.tensor(train.labels)
    network = Net()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(5):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            functional.reset_net(network)
    torch.save(network.state_dict(), folder / "spikingjelly.pt")
    result = export(
        folder / "spikingjelly.pt",
        "loihi2",
        arch="spikingjelly_digits:Net",
        timesteps=STEPS,
        input_shape=(1, 8, 8),
        input_range=(0, HIGHEST),
        normalize=(0, HIGHEST),
        data="digits",
    )
    changed = result.verified.fold.spikes_mismatched
    print(f"{changed} spikes differ from SpikingJelly's; {result.verified.verdict}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
