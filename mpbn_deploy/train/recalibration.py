"""Re-estimate the running statistics of a trained network's norms, layer by layer, in inference mode.

In training, a norm uses the statistics of its batch, and MPBN those of each time step; the network that is
deployed uses one running mean and variance for all. So the neurons of a deployed network fire a little
differently, the next layer sees other inputs than its running statistics were collected on, and so forth.

    for every norm, first to last:
        mean, variance <- over samples, time steps (and the image), of what the norm is given
                          when all norms before it use their new statistics

Samples are augmented as in training: whole pictures have other statistics than crops with black borders.
Weights that were averaged over the last steps are not those that the statistics belong to either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from ..base import Array, Progress, announce, no_progress, progress_bar, record
from ..data import DataSet, Split, subset
from ..nn import LIF, SpikingNetwork
from .files import TrainingState
from .loop import DRAWS, augment, evaluate, read_samples
from .optimizer import BatchNorm, ProcessGroup, norms_outside_neurons
from .settings import Training

SAMPLES = 2048
BATCH = 256
CLEAR_RISE = 2.0  # standard errors of the accuracy
PASSES = 2  # for MPBN over several steps, whose spikes, and so later membranes, depend on its statistics

NormSite = LIF | BatchNorm  # a module that normalizes: neurons with MPBN, or a batch norm outside neurons


class _ReachedError(Exception):
    """The forward pass has reached the norm that is observed; the layers after it are not needed."""


class _Sums:
    """Mean and variance over everything added, one per feature of a norm, summed in double precision."""

    def __init__(self, features: int) -> None:
        self.features = features
        self.count = 0
        self.sums = torch.zeros(2, features, dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Add values [batch, channels, ...]: per element if there is a feature for each value of a sample."""
        per_element = x[0].numel() == self.features
        rows = (x.flatten(1) if per_element else x.movedim(1, -1).flatten(0, -2)).double().cpu()
        self.count += len(rows)
        self.sums += torch.stack([rows.sum(0), rows.square().sum(0)])

    def write(self, norm: BatchNorm) -> None:
        """Make mean and variance the running statistics; as in torch, the variance is the unbiased one."""
        assert norm.running_mean is not None and norm.running_var is not None
        mean, square = self.sums / self.count
        variance = (square - mean.square()).clamp_min(0) * (self.count / max(self.count - 1, 1))
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)


def recalibrate(network: SpikingNetwork, samples: Tensor, progress: Progress = no_progress) -> None:
    """Replace the running statistics of all norms by those over `samples` in inference mode."""
    network.eval()
    with torch.no_grad():
        order = _in_order(network, samples[:1])
        for site in (order[number] for number in progress(range(len(order)))):
            norm = _batch_norm(site)
            repeated = isinstance(site, LIF) and network.timesteps > 1
            for _ in range(PASSES if repeated else 1):
                sums = _Sums(norm.num_features)
                with _observing(site, sums.add):
                    for batch in torch.split(samples, BATCH):
                        _run_until_reached(network, batch)
                sums.write(norm)


def recalibrate_as_asked(
    network: SpikingNetwork,
    dataset: DataSet,
    validation: Split | None,
    training: Training,
    processes: ProcessGroup,
) -> bool:
    """Recalibrate as `training.recalibration` says; return whether the network has new statistics.

    `auto` keeps them if the accuracy rises clearly, by `CLEAR_RISE` standard errors: on the validation split,
    or else on training samples that the statistics do not see.
    """
    if training.recalibration == "off" or not norm_sites(network):
        return False
    trial = _Trial.of(network, dataset, validation, training, processes)
    if training.recalibration == "on":
        trial.recalibrate()
        return True
    return trial.run("recalibration of the norms", trial.recalibrate, CLEAR_RISE)


def average_as_asked(
    state: TrainingState,
    dataset: DataSet,
    validation: Split | None,
    training: Training,
    processes: ProcessGroup,
) -> bool:
    """Replace the weights by their mean, with statistics for it, if accuracy rises; return whether it did."""
    if not state.mean.steps:
        return False
    trial = _Trial.of(state.network, dataset, validation, training, processes)

    def average() -> None:
        state.mean.write(state.network)
        trial.recalibrate()

    return trial.run("averaged weights", average, 0.0)


@record
class _Trial:
    """A change of a trained network, and the samples that judge whether it is kept."""

    network: SpikingNetwork
    samples: Tensor  # for statistics of norms
    judged_on: Split
    where: str  # the judging samples come from
    processes: ProcessGroup

    @classmethod
    def of(
        cls,
        network: SpikingNetwork,
        dataset: DataSet,
        validation: Split | None,
        training: Training,
        processes: ProcessGroup,
    ) -> _Trial:
        chosen, others = drawn_samples(len(dataset.train), training.seed)
        kind = dataset.augmentation if training.augmentation is None else training.augmentation
        samples = augmented_samples(dataset, chosen, kind, training.seed)
        return cls(
            network=network,
            samples=samples.to(next(network.parameters()).device),
            judged_on=validation or subset(dataset.train, others),
            where="training samples" if validation is None else "the validation split",
            processes=processes,
        )

    def recalibrate(self) -> None:
        recalibrate(
            self.network,
            self.samples,
            progress_bar("recalibration") if self.processes.first else no_progress,
        )

    def run(self, name: str, change: Callable[[], None], least_rise: float) -> bool:
        """Change the network; change it back unless accuracy rises by more than so many standard errors."""
        before = evaluate(self.network, self.judged_on, self.processes)[1]
        kept = {name: values.clone() for name, values in self.network.state_dict().items()}
        change()
        after = evaluate(self.network, self.judged_on, self.processes)[1]
        better = after - before > least_rise * _standard_error(before, len(self.judged_on))
        if not better:
            self.network.load_state_dict(kept)
        if self.processes.first:
            verdict = "kept" if better else "not kept"
            announce(f"{name}: {before:.2%} -> {after:.2%} on {self.where}, {verdict}")
        return better


def augmented_samples(dataset: DataSet, chosen: Array, kind: str, seed: int) -> Tensor:
    """Return training samples as the network was trained on them."""
    draws = np.random.default_rng([seed, len(chosen)]).random((len(chosen), DRAWS), dtype=np.float32)
    samples, _ = read_samples(dataset.train, chosen)
    return augment(kind, samples, torch.from_numpy(draws), *dataset.input_format.shape[1:])


def _standard_error(accuracy: float, samples: int) -> float:
    """Return sqrt(p (1 - p) / n): how far chance alone moves an accuracy p that is measured on n samples."""
    return sqrt(accuracy * (1 - accuracy) / samples)


def drawn_samples(available: int, seed: int) -> tuple[Array, Array]:
    """Return the indices of two random sets of samples, of the same size and without common members.

    Random, because many data sets are sorted by class. The first gives the statistics, the second judges.
    """
    count = min(SAMPLES, available // 2)
    order = np.random.default_rng(seed).permutation(available)
    return np.sort(order[:count]), np.sort(order[count : 2 * count])


def norm_sites(network: SpikingNetwork) -> list[NormSite]:
    """Return the modules that have running statistics to estimate, neurons first."""
    neurons = [layer for layer in network.modules() if isinstance(layer, LIF) and layer.mpbn is not None]
    norms = norms_outside_neurons(network).values()
    return [*neurons, *(norm for norm in norms if isinstance(norm, BatchNorm) and norm.track_running_stats)]


def _batch_norm(site: NormSite) -> BatchNorm:
    return site.mpbn.bn if isinstance(site, LIF) and site.mpbn is not None else site  # type: ignore[return-value]


def _in_order(network: SpikingNetwork, sample: Tensor) -> list[NormSite]:
    """Return the modules that normalize, in the order in which they run."""
    order: list[NormSite] = []
    handles = [site.register_forward_pre_hook(lambda m, _: order.append(m)) for site in norm_sites(network)]
    try:
        network(sample)
    finally:
        for handle in handles:
            handle.remove()
    return list(dict.fromkeys(order))


@contextmanager
def _observing(site: NormSite, observe: Callable[[Tensor], None]) -> Iterator[None]:
    """Call `observe` with all that the norm is given, and end the forward pass there."""

    def reached(*_: object) -> None:
        raise _ReachedError

    if isinstance(site, LIF):
        assert site.mpbn is not None
        site.mpbn.observe = observe
    else:
        before = site.register_forward_pre_hook(lambda _, inputs: observe(inputs[0]))
    after = site.register_forward_hook(reached)
    try:
        yield
    finally:
        after.remove()
        if isinstance(site, LIF):
            assert site.mpbn is not None
            site.mpbn.observe = None
        else:
            before.remove()


def _run_until_reached(network: SpikingNetwork, batch: Tensor) -> None:
    try:
        network(batch)
    except _ReachedError:
        return
