"""The step of an epoch whose gradient is largest, and the most constant membranes in it.

    python benchmarks/largest_gradient.py cifar-4/channel-1.pt --arch own_network:build --data-dir FOLDER

For a training that was interrupted, or stopped because it diverged: repeats the epoch after the last complete
one, from the state beside the network. Channel-wise MPBN only.
"""

import argparse
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from mpbn_deploy.api import Training, load_dataset, load_model
from mpbn_deploy.base import keep_freed_memory
from mpbn_deploy.data import hold_out
from mpbn_deploy.nn import MPBN, NEURON_DEFAULTS
from mpbn_deploy.train.files import TrainingFiles, TrainingState, settings_to_resume
from mpbn_deploy.train.loop import deterministic, run_epochs
from mpbn_deploy.train.optimizer import SINGLE_PROCESS, make_optimizer


class EpochDone(Exception):  # noqa: N818  it is no error
    """Raised after the last step of the epoch, before it is evaluated."""


@dataclass(kw_only=True)
class Watch:
    """Follows gradients and membranes, step by step; `worst` describes the step of the largest gradient."""

    names: dict[int, str]
    steps: int
    norms: list[float] = field(default_factory=list)
    membranes: list[tuple[float, float, str]] = field(default_factory=list)
    worst: list[str] = field(default_factory=list)

    def observe(self, layer):
        def measure(membrane):
            values = membrane.detach().movedim(1, -1).flatten(0, -2)
            deviations = values.std(0)
            channel = int(deviations.argmin())
            mean = float(values[:, channel].mean())
            self.membranes.append((float(deviations[channel]), mean, f"{layer}, channel {channel}"))

        return measure

    def before_step(self, optimizer, _arguments, _keywords):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.norms.append(float(torch.stack([p.grad.norm() for p in parameters]).norm()))
        if self.norms[-1] == max(self.norms):
            self.worst = [f"step {len(self.norms)}: {self.norms[-1]:.3g}", *self.describe(parameters)]
        self.membranes.clear()
        if len(self.norms) == self.steps:
            raise EpochDone

    def describe(self, parameters):
        steepest = max(parameters, key=lambda p: float(p.grad.abs().max()))
        place = int(steepest.grad.abs().argmax())
        value, slope = (float(each.flatten()[place]) for each in (steepest.detach(), steepest.grad))
        yield f"steepest: {self.names[id(steepest)]}[{place}] = {value:.3g}, gradient {slope:.3g}"
        deviation, mean, where = min(self.membranes)
        yield f"most constant membranes: {where}: mean {mean:.3g}, deviation {deviation:.3g}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="network beside which MODEL.resume.pt is")
    parser.add_argument("--arch", help="of a network of one's own: package.module:factory")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    settings = {**NEURON_DEFAULTS, **asdict(Training()), **settings_to_resume(options.model)}
    training = Training(**{each.name: settings[each.name] for each in fields(Training)})
    dataset, validation = hold_out(load_dataset(settings["data"], options.data_dir), training.validation)
    network = load_model(options.model, options.arch).to(memory_format=torch.channels_last)
    state = TrainingState(network=network, optimizer=make_optimizer(network, training), history=[])
    TrainingFiles(model=options.model, settings=settings).restore(state)
    names = {id(parameter): name for name, parameter in network.body.named_parameters()}
    watch = Watch(names=names, steps=len(dataset.train) // training.batch)
    for name, module in network.body.named_modules():
        if isinstance(module, MPBN):
            module.observe = watch.observe(name)
    register_optimizer_step_pre_hook(watch.before_step)
    try:
        with deterministic():
            run_epochs(state, dataset, validation, training, SINGLE_PROCESS, None)
    except EpochDone:
        print(
            f"epoch {len(state.history) + 1}: median norm of {len(watch.norms)} {np.median(watch.norms):.3g}"
        )
        print("\n".join(watch.worst))


if __name__ == "__main__":
    main()
