"""Run a residual network in Lava and look inside: spikes and voltages of a population, by a probe.

python examples/residual_probes.py
"""

import torch
from torch import nn

from mpbn_deploy.api import (
    LIF,
    LavaSession,
    SpikingNetwork,
    fold,
    load_dataset,
    load_profile,
    quantize,
    simulate,
    trace,
)


class Residual(nn.Module):
    """A block that adds its input's spikes to a convolution of them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), LIF(4, mpbn="channel"))
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.fire = nn.BatchNorm2d(4), LIF(4, mpbn="channel")
        self.readout = nn.Sequential(nn.Flatten(), nn.Linear(4 * 64, 10))

    def forward(self, x):
        spikes = self.stem(x)
        return self.readout(self.fire(self.norm(self.conv(spikes)) + spikes))


def main() -> None:
    torch.manual_seed(0)
    digits = load_dataset("digits")
    model = SpikingNetwork(Residual().eval(), timesteps=4, input_format=digits.input_format)
    network = quantize(fold(trace(model)), load_profile("loihi2")).network
    samples = digits.test.inputs[:2]
    with LavaSession(network, probe=["fire"]) as session:
        seen = session.run(samples)
    spikes, voltages = seen.spikes["fire"], seen.voltages["fire"]  # [samples, steps, channels, height, width]
    expected = simulate(network, samples)
    print(f"fire: {int(spikes.sum())} spikes, voltages from {voltages.min()} to {voltages.max()}")
    print(f"different from the reference: {int((spikes != expected.spikes['fire']).sum())} spikes")


if __name__ == "__main__":
    main()
