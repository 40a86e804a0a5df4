"""From a network to a verified export in ten lines.

python examples/ten_lines.py
"""

import torch
from torch import nn

import mpbn_deploy
from mpbn_deploy.api import LIF, SpikingNetwork, load_dataset

torch.manual_seed(0)
digits = load_dataset("digits")
body = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), LIF(64, mpbn="channel"), nn.Linear(64, 10))
net = SpikingNetwork(body, timesteps=4, input_format=digits.input_format)
images, labels = torch.tensor(digits.train.inputs), torch.tensor(digits.train.labels)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for batch in torch.arange(10 * len(labels)).split(64):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images[batch % len(labels)]), labels[batch % len(labels)]).backward()
    optimizer.step()
print(mpbn_deploy.export(net.eval(), "loihi2", data=digits))
