"""Networks that fit small chips: one without leak and norms for Speck, one that counts spikes for Xylo.

python examples/small_chips.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import mpbn_deploy
from mpbn_deploy.__main__ import console_script
from mpbn_deploy.api import LIF, InputFormat, SpikingNetwork, load_dataset, load_profile

IF = {"leak": 1, "mpbn": "none"}  # Speck has no leak, small biases, and one threshold per layer


def for_speck():
    """Train on pixels that spike or do not; return the network and its samples."""
    torch.manual_seed(0)
    digits = load_dataset("digits")
    body = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        LIF((8, 8, 8), **IF),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 32, bias=False),
        LIF((32,), **IF),
        nn.Linear(32, 10, bias=False),
    )
    spikes = InputFormat(shape=(1, 8, 8), minimum=0, maximum=1, mean=[0.0], deviation=[1.0])
    network = SpikingNetwork(body, timesteps=4, input_format=spikes)
    train, test = ((split.inputs > 7).astype(np.uint8) for split in (digits.train, digits.test))
    images, labels = torch.tensor(train), torch.tensor(digits.train.labels)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for batch in torch.arange(10 * len(labels)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            network(images[batch % len(labels)]), labels[batch % len(labels)]
        ).backward()
        optimizer.step()
    parts = {"train_inputs": train, "train_labels": digits.train.labels}
    return network.eval(), {**parts, "test_inputs": test, "test_labels": digits.test.labels}


def main(folder: Path) -> None:
    network, samples = for_speck()
    result = mpbn_deploy.export(
        network, "unbounded", folder / "speck", data=samples, thresholds="shared", calibration=None, budget=0
    )
    print(mpbn_deploy.fit(result.quantized.network, load_profile("speck")))
    words = "train --data digits-rows --neuron xylo --arch xylo-mlp --epochs 2 --out"
    console_script([*words.split(), str(folder / "xylo.pt")])
    print(mpbn_deploy.export(folder / "xylo.pt", "xylo-a3", folder / "xylo", samples=16))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
