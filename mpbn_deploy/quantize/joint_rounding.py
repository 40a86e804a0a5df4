"""The mathematics of `calibrate`: joint rounding of weights, and thresholds that flip the fewest spikes.

All numbers are real. Several scales are tried at once: the first dimension of tensors is that of *trials*.
Channels are independent of each other.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from ..base import Array, record
from ..ir import (
    Connection,
    Conv2d,
    Dense,
    FloatFiringNeuron,
    FloatPopulation,
    Pair,
    Population,
    Shape,
    neuron_subtrahend,
    patches,
    pooled_window,
    varies,
    window,
)

ROWS, ROWS_PER_INPUT = 16_384, 4  # currents compared per channel: the minimum, and the minimum per weight
LARGEST_COVARIANCE = 6_144  # weights per neuron; beyond, each is rounded to the nearest
DAMPING = 0.01  # added to the covariance's diagonal, relative to its mean
BLOCK = 128  # weights that are rounded before the rest is corrected for all of them at once

# ---- places -----------------------------------------------------------------------------------


@record
class Places:
    """Samples and, for populations with rows and columns, pixels at which currents are compared."""

    sample: Array
    row: Array | None
    column: Array | None


def draw_places(samples: int, timesteps: int, pixels: Shape, rows: int) -> Places:
    """Draw places with a fixed seed, enough for `rows` currents (one per time step), or take all."""
    wanted = max(1, rows // timesteps)
    total = samples * prod(pixels)
    chosen = np.sort(np.random.default_rng(0).choice(total, min(total, wanted), replace=False))
    if not pixels:
        return Places(sample=chosen, row=None, column=None)
    sample, row, column = np.unravel_index(chosen, (samples, *pixels))
    return Places(sample=sample, row=row, column=column)


def has_places(shape: Shape, entering: list[Connection]) -> bool:
    """Whether places can be drawn: a dense layer onto rows and columns has no shared kernel."""
    return len(shape) < 3 or not any(isinstance(c.synapse, Dense) for c in entering)


def at_places(values: Array, places: Places) -> Tensor:
    """Select [places, timesteps, channels] from values [samples, timesteps, channels, ...]."""
    if places.row is None:
        return torch.from_numpy(values[places.sample])
    return torch.from_numpy(values[places.sample, :, :, places.row, places.column])


def neurons_at(values: Array, shape: Shape, places: Places) -> Tensor:
    """Select [places, channels] from values of a population, such as its biases."""
    samples = int(places.sample.max()) + 1
    return at_places(np.broadcast_to(values, (samples, 1, *shape)), places)[:, 0]


def numbers_at(values: float | Array, population: FloatPopulation, places: Places) -> Tensor:
    """Select [places, timesteps, channels] from numbers of neurons; one step, if all are the same."""
    if not (varies(population.neuron) and isinstance(values, np.ndarray)):
        return neurons_at(np.asarray(values), population.shape, places)[:, None]
    return torch.stack([neurons_at(each, population.shape, places) for each in values], dim=1)


def inputs_at(connection: Connection, sent: Array, source: Shape, places: Places, timesteps: int) -> Tensor:
    """Return the inputs of a connection's weights: [groups, places * timesteps, inputs of a group].

    `sent` is [samples, timesteps, *source], or [samples, *source] if it is constant in time.
    """
    still = sent.shape[1:] == source
    stepped = sent[:, None] if still else sent
    match connection.synapse:
        case Dense():
            rows, groups = stepped[places.sample].reshape(len(places.sample), stepped.shape[1], -1), 1
        case Conv2d() as synapse:
            rows, groups = _patches(synapse, stepped, places), synapse.groups
    taken = torch.from_numpy(rows.astype(np.float32))
    if still:
        taken = taken.expand(-1, timesteps, -1)
    if connection.delay:
        late = torch.zeros_like(taken)
        late[:, connection.delay :] = taken[:, : -connection.delay]
        taken = late
    return taken.reshape(len(taken) * timesteps, groups, -1).transpose(0, 1)


def _patches(synapse: Conv2d, stepped: Array, places: Places) -> Array:
    """Return the values under the kernel at each place: [places, timesteps, source channels * kernel]."""
    assert places.row is not None and places.column is not None
    windows = patches(synapse, stepped)
    found: Array = windows[places.sample, :, :, places.row, places.column]
    rows, columns = window(synapse, windows.shape[2:5])
    outside = (places.row < rows.start) | (places.row >= rows.stop)
    outside |= (places.column < columns.start) | (places.column >= columns.stop)
    found[outside] = 0
    return found.reshape(*found.shape[:2], -1)


def current(weight: Tensor, inputs: Tensor) -> Tensor:
    """Return weight . inputs as [..., rows, channels].

    weight [..., channels, inputs], inputs [groups, rows, inputs]
    """
    groups, rows, count = inputs.shape
    kernels = weight.to(torch.float32).reshape(*weight.shape[:-2], groups, -1, count)
    products: Tensor = inputs @ kernels.transpose(-1, -2)  # [..., group, row, channel of the group]
    return products.movedim(-3, -2).reshape(*weight.shape[:-2], rows, -1).to(torch.float64)


# ---- weights ----------------------------------------------------------------------------------


def round_jointly(weight: Tensor, inputs: Tensor, error: Tensor, quanta: Tensor, most: int) -> Tensor:
    """Round weights such that rounded . inputs approximates weight . inputs + error.

    weight [channels, inputs], error [trials, rows, channels], quanta [trials, channels]; the result is
    [trials, channels, inputs], in whole multiples of the quanta, -most..most.
    """
    groups, rows, count = inputs.shape
    trials, channels = quanta.shape
    wanted = weight.expand(trials, -1, -1).reshape(trials, groups, -1, count).transpose(0, 1)
    steps = quanta.reshape(trials, groups, -1).transpose(0, 1)
    if count > LARGEST_COVARIANCE:
        rounded = _nearest(wanted, steps[..., None], most)
    else:
        covariance, covered = _covariances(inputs, error.reshape(trials, rows, groups, -1))
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        wanted = wanted + torch.einsum("gij,gtci->gtcj", inverse, covered)
        order = covariance.diagonal(dim1=1, dim2=2).mean(dim=0).argsort(descending=True)
        factor = torch.linalg.cholesky(inverse[:, order][:, :, order], upper=True)
        flat = wanted[..., order].reshape(groups, -1, count)
        rounded = torch.empty_like(flat)
        rounded[..., order] = _recursion(flat, factor, steps.reshape(groups, -1), most)
        rounded = rounded.reshape(groups, trials, -1, count)
    return rounded.transpose(0, 1).reshape(trials, channels, count)


def _covariances(inputs: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """Return (inputs' inputs, inputs' error), about their means, which biases compensate; damp the first."""
    rows = inputs.shape[1]
    mean = inputs.mean(dim=1, keepdim=True)
    centred = inputs - mean
    covariance = (centred.transpose(1, 2) @ centred).to(torch.float64) / rows
    level = covariance.diagonal(dim1=1, dim2=2).mean(dim=1).clamp_min(1e-12)
    # With few rows per input, the covariance is mostly noise, so it is damped more.
    damping = max(DAMPING, inputs.shape[2] / rows) * level
    covariance += damping[:, None, None] * torch.eye(covariance.shape[1], dtype=torch.float64)
    off = (error - error.mean(dim=1, keepdim=True)).to(torch.float32)
    covered = torch.einsum("gri,trgc->gtci", centred, off).to(torch.float64) / rows
    return covariance, covered


def _recursion(weight: Tensor, factor: Tensor, quanta: Tensor, most: int) -> Tensor:
    """Round one weight after another; the weights after it compensate its error.

    error_j = (w_j - rounded w_j) / U_jj,    w_(>j) <- w_(>j) - error_j * U_j,(>j)

    weight [groups, channels, inputs], factor [groups, inputs, inputs], quanta [groups, channels]
    """
    weight, count = weight.clone(), weight.shape[2]
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        block, corner = weight[:, :, start:end], factor[:, start:end, start:end]
        errors = torch.empty_like(block)
        for column in range(end - start):
            exact = block[:, :, column].clone()
            block[:, :, column] = _nearest(exact, quanta, most)
            errors[:, :, column] = (exact - block[:, :, column]) / corner[:, column, column, None]
            rest = corner[:, None, column, column + 1 :]
            block[:, :, column + 1 :] -= errors[:, :, column, None] * rest
        weight[:, :, end:] -= errors @ factor[:, start:end, end:]
    return weight


def _nearest(weight: Tensor, quanta: Tensor, most: int) -> Tensor:
    return (weight / quanta).round().clamp(-most, most) * quanta


# ---- thresholds -------------------------------------------------------------------------------


def voltages(
    currents: Tensor, spikes: Tensor, population: Population[FloatFiringNeuron], places: Places
) -> Tensor:
    """Return the voltages of neurons with currents [trials, places, timesteps, channels], reset by `spikes`.

    charge_t  = current_leak * charge_(t-1) + current_t
    voltage_t = leak * reset(voltage_(t-1), spike_(t-1)) + charge_t + bias

    This is `ir.Membrane` in torch, for all trials at once; a test compares the two.
    """
    neuron, subtrahend = population.neuron, neuron_subtrahend(population.neuron)
    numbers = (neuron.bias, 0.0 if subtrahend is None else subtrahend, neuron.leak, neuron.current_leak)
    each_step = [numbers_at(n, population, places).expand(-1, currents.shape[2], -1) for n in numbers]
    found = torch.empty_like(currents)
    charge = reset = torch.zeros_like(currents[:, :, 0])
    for step in range(currents.shape[2]):
        bias, subtracted, kept, charge_kept = (each[:, step] for each in each_step)
        charge = charge_kept * charge + currents[:, :, step]
        voltage = kept * reset + charge + bias
        found[:, :, step] = voltage
        fires = spikes[:, step]
        reset = voltage.masked_fill(fires, 0.0) if subtrahend is None else voltage - fires * subtracted
    return found


def growth(spikes: Tensor, neuron: FloatFiringNeuron, leak: Tensor) -> Tensor:
    """Return what a bias of one adds to a voltage: 1 + leak + leak**2 + ..., a term per step since reset.

    `leak` is that of the neurons at the places. A soft reset subtracts a constant, so it ends no sum.
    """
    found, added = torch.empty(spikes.shape, dtype=torch.float64), torch.zeros(())
    for step in range(spikes.shape[1]):
        found[:, step] = leak * added + 1
        added = found[:, step]
        if neuron_subtrahend(neuron) is None:
            added = added.masked_fill(spikes[:, step], 0.0)
    return found


def best_cut(margins: Tensor, spikes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cut with the fewest flips, and their number; a flip is a row with (margin > cut) != spike.

    margins [trials, rows, channels], spikes [rows, channels]; both results are [trials, channels]. The cut
    is zero unless another is better.
    """
    ordered, order = margins.transpose(1, 2).sort(dim=2)
    fires = spikes.T.expand(ordered.shape).gather(2, order)
    zero = torch.zeros(*ordered.shape[:2], 1, dtype=torch.int64)
    missed = torch.cat([zero, fires.cumsum(dim=2)], dim=2)  # spikes among the lowest 0, 1, 2, ... margins
    silent = torch.arange(ordered.shape[2] + 1) - missed
    flips = missed + silent[..., -1:] - silent
    least, place = flips.min(dim=2)
    high = ordered.gather(2, place.clamp_max(ordered.shape[2] - 1)[..., None])[..., 0]
    low = ordered.gather(2, (place - 1).clamp_min(0)[..., None])[..., 0]
    cut = torch.where(
        place == 0, low - low.abs() - 1e-9, torch.where(place == ordered.shape[2], high, (low + high) / 2)
    )
    now = ((margins > 0) != spikes).sum(dim=1)
    return torch.where(least < now, cut, 0.0), torch.minimum(least, now)


# Weights that stay equal: those under one window of a pooling, so that relays can pool in their place.
#
# sum over a window of w * input = w * (sum over the window of inputs): the weight is rounded once, for the
# sum.


@record
class Tie:
    """Pictures [channels, height, width] of weights, equal in windows; one pixel each without a pooling."""

    shape: Shape
    window: Pair = (1, 1)

    @classmethod
    def of(cls, connection: Connection, source: Shape) -> Tie:
        """Return the tie of the pooling that a connection contains."""
        synapse = connection.synapse
        shape = source if isinstance(synapse, Dense) else synapse.weight.shape[1:]
        window = pooled_window(synapse, source)
        return cls(shape=shape) if window is None else cls(shape=shape, window=window)

    def sums(self, inputs: Tensor) -> Tensor:
        """Sum inputs [..., weights] over windows."""
        return inputs if self.window == (1, 1) else self._windows(inputs).sum(dim=(-3, -1)).flatten(-3)

    def firsts(self, weight: Tensor) -> Tensor:
        """Return one weight of each window."""
        return weight if self.window == (1, 1) else self._windows(weight)[..., :, 0, :, 0].flatten(-3)

    def spread(self, weight: Tensor) -> Tensor:
        """Repeat one weight per window: the inverse of `firsts`."""
        if self.window == (1, 1):
            return weight
        (channels, height, width), (down, right) = self.shape, self.window
        pictures = weight.reshape(*weight.shape[:-1], channels, height // down, width // right)
        return pictures.repeat_interleave(down, -2).repeat_interleave(right, -1).flatten(-3)

    def _windows(self, values: Tensor) -> Tensor:
        (channels, height, width), (down, right) = self.shape, self.window
        sizes = (channels, height // down, down, width // right, right)
        return values.reshape(*values.shape[:-1], *sizes)
