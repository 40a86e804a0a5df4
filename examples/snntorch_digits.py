"""Train a network of snnTorch as its tutorials do, and export it: the chip's network fires the same spikes.

python examples/snntorch_digits.py [FOLDER]
"""

import sys
from pathlib import Path

import snntorch as snn
import torch
from torch import nn

from mpbn_deploy.api import export, load_dataset

STEPS, HIGHEST = 8, 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 100)
        self.lif1 = snn.Leaky(beta=0.9)
        self.fc2 = nn.Linear(100, 10)
        self.lif2 = snn.Leaky(beta=0.9, learn_threshold=True)

    def forward(self, x):
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        spk2_rec, mem2_rec = [], []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spk2_rec.append(spk2)
            mem2_rec.append(mem2)
        return torch.stack(spk2_rec), torch.stack(mem2_rec)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    train = load_dataset("digits").train
    images = torch.tensor(train.inputs).flatten(1) / HIGHEST
    labels = torch.tensor(train.labels)
    network = Net()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(8):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            spikes, _ = network(images[batch])
            nn.functional.cross_entropy(spikes.sum(0), labels[batch]).backward()
            optimizer.step()
    torch.save(network.state_dict(), folder / "snntorch.pt")
    result = export(
        folder / "snntorch.pt",
        "loihi2",
        arch="snntorch_digits:Net",
        timesteps=STEPS,
        input_shape=(64,),
        input_range=(0, HIGHEST),
        normalize=(0, HIGHEST),
        data="digits",
    )
    print(
        f"{result.verified.fold.spikes_mismatched} spikes differ from snnTorch's; {result.verified.verdict}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
