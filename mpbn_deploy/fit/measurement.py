"""Measure activity: count how often each neuron fires on given samples."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ..base import Array, NetworkError, OptionError, Progress, no_progress, record
from ..checkpoint import build_untrained
from ..execute import chunks
from ..execute.emulator import Emulator
from ..fold import fold
from ..formats.folder import NetworkFile
from ..frontend import trace
from ..hardware import HardwareProfile, export_profile
from ..hardware.place import Tiling
from ..ir import (
    FoldedNetwork,
    InputFormat,
    IntNetwork,
    SpikeCounts,
    as_steps,
    count_spikes,
    join_counts,
    relay_names,
    sends,
)
from ..nn import SpikingNetwork
from ..quantize import quantize
from .activity import Activity


def measure(
    network: IntNetwork,
    inputs: Array,
    progress: Progress = no_progress,
    counted: SpikeCounts | None = None,
    *,
    random: bool = False,
) -> Activity:
    """Count the spikes of a network on inputs [samples, timesteps, *shape], or [samples, *shape].

    `counted` are the spikes of an earlier execution on the same inputs. Without them, samples run in chunks,
    and only sums are kept; `progress` counts the chunks. `random` says that the inputs are random.
    """
    inputs = np.asarray(inputs)
    as_steps(inputs[:1], network.input.shape, network.timesteps)
    parts = [inputs[part] for part in chunks(network, len(inputs))]
    if counted is None:
        emulator = Emulator(network)
        counted = join_counts([count_spikes(emulator.run(parts[i])) for i in progress(range(len(parts)))])
    given = (
        np.count_nonzero(as_steps(part, network.input.shape, network.timesteps), axis=(0, 1))
        for part in parts
    )
    counts = {network.input.name: sum(given), **counted.per_neuron}
    return Activity(
        samples=len(inputs),
        timesteps=network.timesteps,
        spikes={name: total / len(inputs) for name, total in counts.items()},
        random=random,
    )


# Build a network that is not trained yet, to check its shapes against a chip.
#
# Weights are random, and so are the statistics of norms, so that thresholds differ per channel as they do
# after training. Integers are quantized for the chip in question. How often neurons fire is assumed.


SEED = 0


@record
class UntrainedNetwork:
    """What the command line says of a network before training."""

    arch: str
    input_shape: tuple[int, ...]
    timesteps: int
    input_range: tuple[int, int]
    classes: int
    firing_rate: float

    @property
    def typed(self) -> tuple[str, ...]:
        """The options that name it, and what is assumed of it."""
        return *self._named, "--classes", str(self.classes), "--firing-rate", str(self.firing_rate)

    @property
    def _named(self) -> tuple[str, ...]:
        return (
            "--arch", self.arch,
            "--input-shape", *map(str, self.input_shape),
            "--timesteps", str(self.timesteps),
            "--input-range", *map(str, self.input_range),
        )  # fmt: skip

    def training_command(self, target: str, options: Sequence[str]) -> str:
        """Return what to type to train it, and to export it with options that matter.

        A module of the user's own may need a loop of their own.
        """
        export = "then python -m mpbn_deploy.export"
        wanted = ["--target", target, *options]
        if ":" in self.arch:
            return f"train it, {export} WEIGHTS.pt {shlex.join([*self._named, *wanted])}"
        train = f"python -m mpbn_deploy.train --data YOURS --arch {self.arch} --timesteps {self.timesteps}"
        return f"{train}, {export} model.pt {shlex.join(wanted)}" if options else train

    @property
    def assumption(self) -> str:
        return f"untrained: random weights, and an assumed firing rate of {self.firing_rate:.0%}"

    def folded(self) -> FoldedNetwork:
        """Return the network with random weights, folded."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            body = build_untrained(self.arch, self.input_shape, self.classes)
            randomize_norms(body)
        low, high = self.input_range
        middle, half = np.array([(low + high) / 2]), np.array([max(high - low, 1) / 2])
        try:
            given = InputFormat(
                shape=self.input_shape, minimum=low, maximum=high, mean=middle, deviation=half
            )
        except NetworkError as error:
            raise OptionError(f"--arch {self.arch}: input {'; '.join(error.problems)}.") from error
        module = SpikingNetwork(body, timesteps=self.timesteps, input_format=given).eval()
        return fold(trace(module))

    def quantized_for(self, profile: HardwareProfile, tiling: Tiling = "auto") -> NetworkFile:
        """Return the integers of the network in the formats of a chip."""
        folded = self.folded()
        network = quantize(folded, export_profile(profile), tiling=tiling).network
        return NetworkFile(netx=Path(self.arch), network=network, folded=folded)

    def activity(self, network: IntNetwork) -> Activity:
        """Return the assumed activity: every input value is nonzero, and all neurons fire alike.

        A relay of n inputs sends a message unless all of them are silent: 1 - (1 - rate)**n.
        """
        rates = {p.name: self.firing_rate if sends(p.neuron) else 0.0 for p in network.layers}
        rates[network.input.name] = 1.0
        for name in relay_names(network):
            silent = [
                (1 - rates[c.source]) ** prod(c.synapse.weight.shape[1:]) for c in network.entering(name)
            ]
            rates[name] = 1 - prod(silent)
        spikes = {p.name: np.full(p.shape, rates[p.name] * network.timesteps) for p in network.populations}
        return Activity(samples=1, timesteps=network.timesteps, spikes=spikes, assumed=True)


def randomize_norms(body: nn.Module) -> None:
    """Give norms the variety of trained ones."""
    for module in body.modules():
        mean, variance = getattr(module, "running_mean", None), getattr(module, "running_var", None)
        if isinstance(mean, torch.Tensor) and isinstance(variance, torch.Tensor):
            with torch.no_grad():
                mean.normal_(0.0, 0.1)
                variance.uniform_(0.5, 1.5)
