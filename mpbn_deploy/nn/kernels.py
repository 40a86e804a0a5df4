"""The loops of training over memory, compiled by Numba: neurons, norms and pools.

Wherever training is not a convolution, memory bandwidth limits it. torch makes one pass over memory for each
operation; a kernel makes one for all operations between two sums over the batch. Each kernel is a second
statement of equations that scan.py, norm.py and pool.py state first, and tests hold it to them.

Arrays have the shape [rows, width]. A row has the channels of one or more neighboring pixels, or samples, one
after another, so that even a few channels make rows that are long enough to be fast. Numbers are float64 (in
tests), float32, or bfloat16 as 16 bits, because NumPy has no such type. Sums over rows are taken in blocks,
and added up in float64. Each thread has a fixed share of the rows; results change only with their number.

    scale, shift      y   = x * scale + shift       a norm with its gain and offset
    inverse, center   hat = x * inverse + center    the same without them
"""

from __future__ import annotations

from collections.abc import Callable
from math import tanh
from typing import Any, NamedTuple

import numpy as np
from numba import config, njit, prange, set_num_threads, types
from numba.extending import overload
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from .surrogate import TEMPERATURE

MAY_COMPILE = not config.DISABLE_JIT
Array = NDArray[Any]
ROWS = 32  # of a block; they stay in the cache from one loop over them to the next
DEGREE = 15  # of the tanh surrogate's slope in (y - 1/2)^2, for eleven digits

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
# Products and sums may be fused; nothing else is changed that a not-a-number depends on.
part_of_kernel: Decorator = njit(fastmath={"contract"}, cache=True)
kernel: Decorator = njit(parallel=True, fastmath={"contract"}, cache=True)


class Affine(NamedTuple):
    """A norm with known moments, one number per place in a row."""

    scale: Array
    shift: Array
    inverse: Array
    center: Array


class Interval(NamedTuple):
    """Where a surrogate has a slope, ends included."""

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


@part_of_kernel
def _clear(sums: Array) -> None:
    sums[:] = 0


@part_of_kernel
def _add(new: Array, sums: Array) -> None:
    sums += new


@part_of_kernel
def _times_slope(gradient: Any, y: Any, inside: Any, curve: Any) -> Any:
    """Return gradient * slope(y), inside the interval: the curve or, without one, 1."""
    if curve is not None:
        z = (y - np.float32(0.5)) * (y - np.float32(0.5))
        slope = ((curve[0] * z + curve[1]) * z + curve[2]) * z + curve[3]
        slope = (((slope * z + curve[4]) * z + curve[5]) * z + curve[6]) * z + curve[7]
        slope = (((slope * z + curve[8]) * z + curve[9]) * z + curve[10]) * z + curve[11]
        gradient = gradient * ((((slope * z + curve[12]) * z + curve[13]) * z + curve[14]) * z + curve[15])
    return gradient if (y >= inside.low) & (y <= inside.high) else gradient * np.float32(0)


# ---- forward ------------------------------------------------------------------------------------


@kernel
def moments(x: Array, block: Array, found: Array) -> None:
    """The mean of each place in a row, and the sum of squares of the distances from it.

    `found` has them for the rows of each thread, [threads, 2, width]; `block` is room of the same shape.
    """
    threads = len(found)
    for thread in prange(threads):
        first, last = len(x) * thread // threads, len(x) * (thread + 1) // threads
        _clear(found[thread])
        for start in range(first, last, ROWS):
            stop = min(start + ROWS, last)
            _block_moments(x, start, stop, block[thread])
            _merge(found[thread], start - first, block[thread], stop - start)


@kernel
def integrate(
    x: Array,
    before: Array,
    norm: Affine,
    threshold: Any,
    leak: Any,
    subtrahend: Any,
    spike: tuple[Any, Any],
    spikes: Array,
    membrane: Array,
    block: Array,
    found: Array,
) -> None:
    """membrane = leak * (before, reset where it fired) + x, its moments, and the spikes of the step before.

    `before` is the membrane of the step before and `norm` its norm; `spike` has the numbers that stand for
    no spike and for one.
    """
    threads = len(found)
    for thread in prange(threads):
        first, last = len(x) * thread // threads, len(x) * (thread + 1) // threads
        _clear(found[thread])
        for start in range(first, last, ROWS):
            stop = min(start + ROWS, last)
            for row in range(start, stop):
                _integrate_row(
                    x[row], before[row], norm, threshold, leak, subtrahend, spike, spikes[row], membrane[row]
                )
            _block_moments(membrane, start, stop, block[thread])
            _merge(found[thread], start - first, block[thread], stop - start)


@part_of_kernel
def _integrate_row(
    x: Array,
    before: Array,
    norm: Affine,
    threshold: Any,
    leak: Any,
    subtrahend: Any,
    spike: tuple[Any, Any],
    spikes: Array,
    membrane: Array,
) -> None:
    scale, shift = norm.scale, norm.shift
    for c in range(len(x)):
        v = before[c]
        fired = v * scale[c] + shift[c] > threshold
        spikes[c] = spike[1] if fired else spike[0]
        if subtrahend is None:
            membrane[c] = widen(x[c]) + (leak * np.float32(0) if fired else leak * v)
        else:
            membrane[c] = widen(x[c]) + leak * (v - subtrahend if fired else v)


@part_of_kernel
def _block_moments(x: Array, start: int, stop: int, block: Array) -> None:
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


@part_of_kernel
def _merge(found: Array, known: int, block: Array, new: int) -> None:
    """Add the moments of a block of `new` rows to those of `known` rows (Chan, Golub and LeVeque, 1983)."""
    for c in range(block.shape[1]):
        away = block[0, c] - found[0, c]
        found[0, c] += away * (new / (known + new))
        found[1, c] += block[1, c] + away * away * (known * new / (known + new))


@part_of_kernel
def norm_of_batch(
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
    mean, variance = np.zeros(channels), np.zeros(channels)
    known = 0
    for thread in range(threads):
        new = rows * (thread + 1) // threads - rows * thread // threads
        for start in range(0, width if new else 0, channels):
            for c in range(channels):
                away = found[thread, 0, start + c] - mean[c]
                mean[c] += away * (new / (known + new))
                variance[c] += found[thread, 1, start + c] + away * away * (known * new / (known + new))
            known += new
    variance /= known
    for c in range(channels):
        running_mean[c] += momentum * (mean[c] - running_mean[c])
        running_var[c] += momentum * (variance[c] * (known / max(known - 1, 1)) - running_var[c])
    return known_norm(mean, variance, gain, offset, epsilon, width)


@part_of_kernel
def known_norm(
    mean: Array, variance: Array, gain: Array, offset: Array, epsilon: float, width: int
) -> Affine:
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
    membrane: Array, norm: Affine, threshold: Any, spike: tuple[Any, Any], spikes: Array, threads: int
) -> None:
    """spikes = norm(membrane) > threshold"""
    for thread in prange(threads):
        for row in range(len(membrane) * thread // threads, len(membrane) * (thread + 1) // threads):
            now, fired = membrane[row], spikes[row]
            for c in range(len(now)):
                y = widen(now[c]) * norm.scale[c] + norm.shift[c]
                fired[c] = spike[1] if y > threshold else spike[0]


@kernel
def normalize(x: Array, norm: Affine, y: Array, threads: int) -> None:
    """y = norm(x)"""
    for thread in prange(threads):
        for row in range(len(x) * thread // threads, len(x) * (thread + 1) // threads):
            given, result = x[row], y[row]
            for c in range(len(given)):
                result[c] = narrow(widen(given[c]) * norm.scale[c] + norm.shift[c], result)


# ---- backward -----------------------------------------------------------------------------------
#
# Here `gradient` is that by the spikes, or by the outputs of a norm without neurons, which has no interval
# `inside`. `after` is the gradient by the membrane of the next step, None in the last one. `by_reset` is the
# leak, or 0 if the reset takes the spike for a constant. scan.py has the equations.


@part_of_kernel
def _by_normalized(
    gradient: Any, v: Any, y: Any, after: Any, by_reset: Any, subtrahend: Any, inside: Any, curve: Any
) -> Any:
    """Return the gradient by y, the normalized membrane."""
    if inside is None:
        return gradient
    if after is not None:
        gradient = gradient - by_reset * after * (v if subtrahend is None else subtrahend)
    return _times_slope(gradient, y, inside, curve)


@part_of_kernel
def _at(after: Array | None, c: int) -> Any:
    if after is None:
        return None
    return widen(after[c])


@part_of_kernel
def _row(array: Array | None, row: int) -> Any:
    if array is None:
        return None
    return array[row]


@kernel
def gradient_sums(
    gradient: Array,
    membrane: Array,
    after: Array | None,
    norm: Affine,
    by_reset: Any,
    subtrahend: Any,
    inside: Interval | None,
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
        first, last = len(membrane) * thread // threads, len(membrane) * (thread + 1) // threads
        _clear(sums[thread])
        for start in range(first, last, ROWS):
            _clear(block[thread])
            total, product = block[thread, 0], block[thread, 1]
            for row in range(start, min(start + ROWS, last)):
                now, given, later = membrane[row], gradient[row], _row(after, row)
                for c in range(len(now)):
                    v = widen(now[c])
                    y = v * norm.scale[c] + norm.shift[c]
                    by_y = _by_normalized(
                        widen(given[c]), v, y, _at(later, c), by_reset, subtrahend, inside, curve
                    )
                    total[c] += by_y
                    product[c] += by_y * (v * norm.inverse[c] + norm.center[c])
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
    leak: Any,
    by_reset: Any,
    subtrahend: Any,
    threshold: Any,
    inside: Interval | None,
    curve: tuple[Any, ...] | None,
    averages: Array,
    by_input: Array,
    threads: int,
) -> None:
    """by_input = scale * (dL/dy - averages[0] - hat * averages[1]) + leak * after * (1 - spike)"""
    for thread in prange(threads):
        for row in range(len(membrane) * thread // threads, len(membrane) * (thread + 1) // threads):
            now, given, later, result = membrane[row], gradient[row], _row(after, row), by_input[row]
            for c in range(len(now)):
                v = widen(now[c])
                y = v * norm.scale[c] + norm.shift[c]
                by_y = _by_normalized(
                    widen(given[c]), v, y, _at(later, c), by_reset, subtrahend, inside, curve
                )
                hat = v * norm.inverse[c] + norm.center[c]
                by_v = norm.scale[c] * (by_y - averages[0, c] - hat * averages[1, c])
                if after is not None:
                    kept = leak * widen(later[c])
                    by_v += kept * np.float32(0) if subtrahend is None and y > threshold else kept
                result[c] = narrow(by_v, result)


# ---- pools of 2 x 2 pixels; arrays are [samples, height, width, channels] -------------------------------


@kernel
def pool(spikes: Array, pooled: Array, threads: int) -> None:
    """Whether a window has a spike. Of bfloat16, the bits of 0 and 1 are compared, in the same order."""
    samples, height, width, channels = pooled.shape
    for thread in prange(threads):
        for sample in range(samples * thread // threads, samples * (thread + 1) // threads):
            for i in range(height):
                for j in range(width):
                    result, window = (
                        pooled[sample, i, j],
                        spikes[sample, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2],
                    )
                    a, b, d, e = window[0, 0], window[0, 1], window[1, 0], window[1, 1]
                    for c in range(channels):
                        result[c] = max(max(a[c], b[c]), max(d[c], e[c]))


@kernel
def pool_gradient(gradient: Array, membrane: Array, norm: Affine, by_spike: Array, threads: int) -> None:
    """Pass the gradient of a window to the highest norm(membrane) in it, the first of equal ones."""
    samples, height, width, channels = gradient.shape
    for thread in prange(threads):
        highest = np.empty(channels, np.float32)
        for sample in range(samples * thread // threads, samples * (thread + 1) // threads):
            for i in range(height):
                for j in range(width):
                    _find_highest(membrane[sample, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2], norm.scale, highest)
                    for place in range(4):
                        result = by_spike[sample, 2 * i + place // 2, 2 * j + place % 2]
                        _pass_to(np.float32(place), highest, gradient[sample, i, j], result)


@part_of_kernel
def _find_highest(window: Array, scale: Array, highest: Array) -> None:
    """Find which of four pixels has the highest norm(membrane), in each channel; shifts change nothing."""
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
def _pass_to(place: Any, highest: Array, gradient: Array, by_spike: Array) -> None:
    for c in range(len(highest)):
        by_spike[c] = gradient[c] if highest[c] == place else narrow(np.float32(0), by_spike)
