"""The loops of training over memory, compiled by Numba: neurons, norms and pools.

Besides convolutions, training is a few operations per number. torch makes one pass over memory for each
operation; a kernel makes one for all operations between two sums over the batch. Each kernel is a second
statement of equations that scan.py, norm.py and neuron.py state first, and tests hold it to them.

Arrays are float32, bfloat16 stored as uint16 because NumPy has no such type, or (in tests) float64. Their
shape is [rows, width]: a row has the channels of one or more neighboring pixels, or samples, in turn,
so that even a few channels make rows that are long enough to be fast. Sums over rows are taken in blocks and
added up in float64. Each thread has a fixed share of the rows, so results change only with their number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import tanh
from typing import Any, NamedTuple

import numpy as np
from numba import config, njit, prange, set_num_threads, types
from numba.core import event
from numba.extending import overload
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from ..base import announce
from .norm import TEMPERATURE

MAY_COMPILE = not config.DISABLE_JIT
Array = NDArray[Any]
ROWS = 32  # of a block; they stay in the cache from one loop over them to the next
DEGREE = 15  # of the tanh surrogate's slope in (y - 1/2)^2, for eleven digits in float64
ZERO = np.float32(0)  # takes the precision of what it is combined with


def _can_cache() -> bool:
    """Return whether compiled code can be stored, beside the package or in the user's cache folder."""
    try:
        njit(cache=True)(_can_cache)
    except RuntimeError:  # no folder of either kind can be written to
        return False
    return True


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
CACHE = _can_cache()
# Allow fused multiply-add only; other fast-math flags would break the handling of NaN.
part_of_kernel: Decorator = njit(fastmath={"contract"}, cache=CACHE)
kernel: Decorator = njit(parallel=True, fastmath={"contract"}, cache=CACHE)


class _Announcer(event.Listener):  # type: ignore[misc]
    """Say once in each process that loops are being compiled: a silent half minute looks like a hang."""

    said = False

    def on_start(self, compiling: Any) -> None:
        if not self.said and compiling.data["dispatcher"].py_func.__module__ == __name__:
            self.said = True
            again = (
                "kept on disk for later runs" if CACHE else "in every run: no cache folder can be written to"
            )
            announce(f"compiling loops for training with Numba, about 10 seconds ({again})")

    def on_end(self, compiling: Any) -> None:
        """Say nothing: the progress of the training follows."""


event.register("numba:compile", _Announcer())


class Affine(NamedTuple):
    """A norm with known moments, one number per column of a row.

    y = x * scale + shift = gain * hat + offset         hat = x * hat_scale + hat_shift
    """

    scale: Array
    shift: Array
    hat_scale: Array
    hat_shift: Array


class Neuron(NamedTuple):
    """The numbers of a neuron. Its surrogate has a slope where low <= y <= high.

    `reset_leak` is the leak that a spike's gradient sees: 0 if the reset takes the spike for a constant.
    """

    leak: Any
    reset_leak: Any
    subtrahend: Any  # of a soft reset, or None
    threshold: Any
    low: Any
    high: Any


def _tanh_curve() -> tuple[float, ...]:
    """Return the slope of surrogate.scaled_tanh as a polynomial in (y - 1/2)^2, highest power first."""

    def slope(z: Any) -> Any:
        return TEMPERATURE / (2 * tanh(TEMPERATURE / 2) * np.cosh(TEMPERATURE * np.sqrt(z)) ** 2)

    fitted: Any = Chebyshev.interpolate(slope, DEGREE, domain=(0, 0.25))  # type: ignore[no-untyped-call]
    return tuple(fitted.convert(kind=Polynomial).coef[::-1].tolist())


TANH_CURVE = _tanh_curve()


def use_threads(threads: int) -> int:
    """Let kernels run in as many threads, or as many as there are; return how many."""
    allowed = min(threads, int(config.NUMBA_NUM_THREADS))
    set_num_threads(allowed)
    return allowed


# ---- numbers ------------------------------------------------------------------------------------


def widen(value: Any) -> Any:
    """Return the number that `value` stores."""
    raise NotImplementedError("compiled code only")


@overload(widen, inline="always")  # type: ignore[untyped-decorator]
def _widen(value: Any) -> Callable[[Any], Any]:
    def bfloat16(value: Any) -> Any:
        return np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)

    def as_it_is(value: Any) -> Any:
        return value

    return bfloat16 if isinstance(value, types.Integer) else as_it_is


def narrow(value: Any, array: Any) -> Any:
    """Return a number as `array` stores it; bfloat16 is rounded to nearest, ties to even."""
    raise NotImplementedError("compiled code only")


@overload(narrow, inline="always")  # type: ignore[untyped-decorator]
def _narrow(value: Any, array: Any) -> Callable[[Any, Any], Any]:
    def bfloat16(value: Any, array: Any) -> Any:
        bits = np.float32(value).view(np.uint32)
        odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
        return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))

    def as_it_is(value: Any, array: Any) -> Any:
        return value

    return bfloat16 if isinstance(array.dtype, types.Integer) else as_it_is


# ---- rows and sums --------------------------------------------------------------------------------


@part_of_kernel
def _share(rows: int, thread: int, threads: int) -> tuple[int, int]:
    """Return the first row of a thread, and the one behind its last."""
    return rows * thread // threads, rows * (thread + 1) // threads


# In a kernel itself, Numba would make a parallel loop of each of these assignments.


@part_of_kernel
def _clear(sums: Array) -> None:
    sums[:] = 0


@part_of_kernel
def _add(new: Array, sums: Array) -> None:
    sums += new


# ---- forward ------------------------------------------------------------------------------------


@kernel
def moments(x: Array, block: Array, found: Array) -> None:
    """Write, per thread and column, the mean and the sum of squared deviations from it.

    `found` has the shape [threads, 2, width]; `block` is room of the same shape.
    """
    threads = len(found)
    for thread in prange(threads):
        first, last = _share(len(x), thread, threads)
        _clear(found[thread])
        for start in range(first, last, ROWS):
            stop = min(start + ROWS, last)
            _add_moments(x, first, start, stop, block[thread], found[thread])


@kernel
def integrate(
    x: Array,
    before: Array,
    norm: Affine,
    neuron: Neuron,
    spike: tuple[Any, Any],
    spikes: Array,
    membrane: Array,
    block: Array,
    found: Array,
) -> None:
    """Go one time step on, from the membrane `before` and its norm. Write

        spikes      of the step before:     norm(before) > threshold
        membrane    of this step:           leak * (before, reset where it fired) + x
        found       the moments of this membrane, as `moments` does

    `spike` has the numbers that stand for no spike and for one.
    """
    threads = len(found)
    for thread in prange(threads):
        first, last = _share(len(x), thread, threads)
        _clear(found[thread])
        for start in range(first, last, ROWS):
            stop = min(start + ROWS, last)
            for row in range(start, stop):
                _integrate_row(x[row], before[row], norm, neuron, spike, spikes[row], membrane[row])
            _add_moments(membrane, first, start, stop, block[thread], found[thread])


@part_of_kernel
def _integrate_row(
    x: Array,
    before: Array,
    norm: Affine,
    neuron: Neuron,
    spike: tuple[Any, Any],
    spikes: Array,
    membrane: Array,
) -> None:
    scale, shift = norm.scale, norm.shift
    for c in range(len(x)):
        fired = before[c] * scale[c] + shift[c] > neuron.threshold
        spikes[c] = spike[1] if fired else spike[0]
        membrane[c] = widen(x[c]) + neuron.leak * _after_reset(before[c], fired, neuron.subtrahend)


@part_of_kernel
def _after_reset(v: Any, fired: bool, subtrahend: Any) -> Any:
    if subtrahend is None:
        return ZERO if fired else v
    return v - subtrahend if fired else v


@part_of_kernel
def _add_moments(x: Array, first: int, start: int, stop: int, block: Array, found: Array) -> None:
    """Add the moments of the rows from start to stop to those of the rows from first to start."""
    _clear(block)
    mean, squares = block[0], block[1]
    for row in range(start, stop):
        now = x[row]
        for c in range(len(now)):
            mean[c] += widen(now[c])
    mean /= stop - start
    for row in range(start, stop):
        now = x[row]
        for c in range(len(now)):
            away = widen(now[c]) - mean[c]
            squares[c] += away * away
    _merge(found, start - first, block, stop - start)


@part_of_kernel
def _merge(found: Array, known: int, block: Array, new: int) -> None:
    """Add the moments of `new` rows to those of `known` rows (Chan, Golub and LeVeque, 1983)."""
    for c in range(found.shape[1]):
        away = block[0, c] - found[0, c]
        found[0, c] += away * (new / (known + new))
        found[1, c] += block[1, c] + away * away * (known * new / (known + new))


@part_of_kernel
def affine_of_batch(
    found: Array,
    rows: int,
    gain: Array,
    offset: Array,
    epsilon: float,
    momentum: float,
    running_mean: Array,
    running_var: Array,
) -> Any:
    """Return the norm with the moments that `moments` found, and move the running statistics toward them."""
    threads, _, width = found.shape
    channels = len(gain)
    total, known = np.zeros((2, channels)), 0
    for thread in range(threads):
        first, last = _share(rows, thread, threads)
        for start in range(0, width if last > first else 0, channels):
            _merge(total, known, found[thread, :, start : start + channels], last - first)
            known += last - first
    mean, variance = total[0], total[1] / known
    for c in range(channels):
        running_mean[c] += momentum * (mean[c] - running_mean[c])
        # As in torch: normalize with the biased variance, accumulate the unbiased one.
        running_var[c] += momentum * (variance[c] * (known / max(known - 1, 1)) - running_var[c])
    return affine_of_moments(mean, variance, gain, offset, epsilon, width)


@part_of_kernel
def affine_of_moments(
    mean: Array, variance: Array, gain: Array, offset: Array, epsilon: float, width: int
) -> Any:
    """Return the norm with a mean and a variance, in the precision of its gain, for rows of a width."""
    numbers = np.empty((4, width), gain.dtype)
    for i in range(width):
        c = i % len(gain)
        inverse = 1 / np.sqrt(variance[c] + epsilon)
        numbers[0, i] = gain[c] * inverse
        numbers[1, i] = offset[c] - mean[c] * gain[c] * inverse
        numbers[2, i] = inverse
        numbers[3, i] = -mean[c] * inverse
    return Affine(numbers[0], numbers[1], numbers[2], numbers[3])


@kernel
def fire(
    membrane: Array, norm: Affine, neuron: Neuron, spike: tuple[Any, Any], spikes: Array, threads: int
) -> None:
    """spikes = norm(membrane) > threshold"""
    for thread in prange(threads):
        first, last = _share(len(membrane), thread, threads)
        for row in range(first, last):
            now, fired = membrane[row], spikes[row]
            for c in range(len(now)):
                y = widen(now[c]) * norm.scale[c] + norm.shift[c]
                fired[c] = spike[1] if y > neuron.threshold else spike[0]


@kernel
def normalize(x: Array, norm: Affine, y: Array, threads: int) -> None:
    """y = norm(x)"""
    for thread in prange(threads):
        first, last = _share(len(x), thread, threads)
        for row in range(first, last):
            given, result = x[row], y[row]
            for c in range(len(given)):
                result[c] = narrow(widen(given[c]) * norm.scale[c] + norm.shift[c], result)


# ---- backward -----------------------------------------------------------------------------------
#
# `gradient` is dL/dspike, or dL/dy of a norm without neurons, whose `neuron` is None. `after` is dL/dmembrane
# of the next time step, None in the last one. `curve` is the slope of the surrogate, None where it is 1. A
# membrane is v, and y the normalized one. scan.py has the equations.


@part_of_kernel
def _by_normalized(gradient: Any, v: Any, y: Any, after: Any, neuron: Any, curve: Any) -> Any:
    """Return dL/dy."""
    if neuron is None:
        return gradient
    if after is not None:
        gradient = gradient - neuron.reset_leak * after * _reset_by_spike(v, neuron.subtrahend)
    if curve is not None:
        z = (y - np.float32(0.5)) * (y - np.float32(0.5))
        slope = curve[0]
        for coefficient in curve[1:]:
            slope = slope * z + coefficient
        gradient = gradient * slope
    return gradient if (y >= neuron.low) & (y <= neuron.high) else ZERO


@part_of_kernel
def _reset_by_spike(v: Any, subtrahend: Any) -> Any:
    """Return by how much a spike lowers the membrane."""
    return v if subtrahend is None else subtrahend


@part_of_kernel
def _with_next_step(by_v: Any, after: Any, y: Any, neuron: Any) -> Any:
    """Return dL/dv with the part that comes through the next time step."""
    if after is None:
        return by_v
    if neuron.subtrahend is None:
        return by_v + (ZERO if y > neuron.threshold else neuron.leak * after)
    return by_v + neuron.leak * after


@part_of_kernel
def _row(array: Any, row: int) -> Any:
    """Return a row of an array; None of None."""
    if array is None:
        return None
    return array[row]


@part_of_kernel
def _at(row: Any, c: int) -> Any:
    """Return the number in a column of a row; None of None."""
    if row is None:
        return None
    return widen(row[c])


@kernel
def gradient_sums(
    gradient: Array,
    membrane: Array,
    after: Array | None,
    norm: Affine,
    neuron: Neuron | None,
    curve: tuple[Any, ...] | None,
    block: Array,
    sums: Array,
    totals: Array,
    averages: Array,
) -> None:
    """totals += dL/doffset and dL/dgain, the sums of dL/dy and dL/dy * hat; averages are those of this step

    Totals are [2, channels], and averages [2, width], equal for all pixels of a row. `block` and `sums` are
    room for [threads, 2, width].
    """
    threads = len(sums)
    for thread in prange(threads):
        first, last = _share(len(membrane), thread, threads)
        _clear(sums[thread])
        for start in range(first, last, ROWS):
            _clear(block[thread])
            total, product = block[thread, 0], block[thread, 1]
            for row in range(start, min(start + ROWS, last)):
                now, given, later = membrane[row], gradient[row], _row(after, row)
                for c in range(len(now)):
                    v = widen(now[c])
                    y = v * norm.scale[c] + norm.shift[c]
                    by_y = _by_normalized(widen(given[c]), v, y, _at(later, c), neuron, curve)
                    total[c] += by_y
                    product[c] += by_y * (v * norm.hat_scale[c] + norm.hat_shift[c])
            _add(block[thread], sums[thread])
    _add_up(sums, len(membrane), totals, averages)


@part_of_kernel
def _add_up(sums: Array, rows: int, totals: Array, averages: Array) -> None:
    threads, kinds, width = sums.shape
    channels = totals.shape[1]
    for kind in range(kinds):
        for c in range(channels):
            total = 0.0
            for thread in range(threads):
                for i in range(c, width, channels):
                    total += sums[thread, kind, i]
            totals[kind, c] += total
            for i in range(c, width, channels):
                averages[kind, i] = total / (rows * (width // channels))


@kernel
def gradient_inputs(
    gradient: Array,
    membrane: Array,
    after: Array | None,
    norm: Affine,
    neuron: Neuron | None,
    curve: tuple[Any, ...] | None,
    averages: Array,
    by_input: Array,
    threads: int,
) -> None:
    """by_input = scale * (dL/dy - averages[0] - hat * averages[1]) + leak * after * (1 - spike)"""
    for thread in prange(threads):
        first, last = _share(len(membrane), thread, threads)
        for row in range(first, last):
            now, given, later, result = membrane[row], gradient[row], _row(after, row), by_input[row]
            for c in range(len(now)):
                v = widen(now[c])
                y = v * norm.scale[c] + norm.shift[c]
                by_y = _by_normalized(widen(given[c]), v, y, _at(later, c), neuron, curve)
                hat = v * norm.hat_scale[c] + norm.hat_shift[c]
                by_v = norm.scale[c] * (by_y - averages[0, c] - hat * averages[1, c])
                result[c] = narrow(_with_next_step(by_v, _at(later, c), y, neuron), result)


# ---- pools of 2 x 2 pixels; arrays are [samples, height, width, channels] -----------------------------


@kernel
def pool(spikes: Array, pooled: Array, threads: int) -> None:
    """Write whether each window has a spike; the bits of bfloat16 have the order of the numbers 0 and 1."""
    samples, height, width, channels = pooled.shape
    for thread in prange(threads):
        first, last = _share(samples, thread, threads)
        for sample in range(first, last):
            for i in range(height):
                for j in range(width):
                    result, window = pooled[sample, i, j], _window(spikes[sample], i, j)
                    a, b, d, e = window[0, 0], window[0, 1], window[1, 0], window[1, 1]
                    for c in range(channels):
                        result[c] = max(max(a[c], b[c]), max(d[c], e[c]))


@part_of_kernel
def _window(picture: Array, i: int, j: int) -> Any:
    return picture[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]


@kernel
def pool_gradient(gradient: Array, membrane: Array, norm: Affine, by_spike: Array, threads: int) -> None:
    """Pass the gradient of a window to the highest norm(membrane) in it, the first of equal ones."""
    samples, height, width, channels = gradient.shape
    for thread in prange(threads):
        first, last = _share(samples, thread, threads)
        highest = np.empty(channels, np.float32)  # a corner, as a number of the width of those it is found by
        for sample in range(first, last):
            for i in range(height):
                for j in range(width):
                    _find_highest(_window(membrane[sample], i, j), norm.scale, highest)
                    for corner in range(4):
                        result = by_spike[sample, 2 * i + corner // 2, 2 * j + corner % 2]
                        _pass_to(np.float32(corner), highest, gradient[sample, i, j], result)


@part_of_kernel
def _find_highest(window: Array, scale: Array, highest: Array) -> None:
    """Find the corner with the highest norm(membrane), in each channel; shifts change nothing."""
    a, b, d, e = window[0, 0], window[0, 1], window[1, 0], window[1, 1]
    for c in range(len(highest)):
        one, two = widen(a[c]) * scale[c], widen(b[c]) * scale[c]
        three, four = widen(d[c]) * scale[c], widen(e[c]) * scale[c]
        upper = np.float32(1) if two > one else np.float32(0)
        lower = np.float32(3) if four > three else np.float32(2)
        upper_value = two if two > one else one
        lower_value = four if four > three else three
        highest[c] = lower if lower_value > upper_value else upper


@part_of_kernel
def _pass_to(corner: Any, highest: Array, gradient: Array, by_spike: Array) -> None:
    for c in range(len(highest)):
        by_spike[c] = gradient[c] if highest[c] == corner else narrow(ZERO, by_spike)
