The functions of a program that do not depend on its network; each is written only where it is called.

A kernel adds the weights of sources that sent something to the sums of their targets. Sums are $sum, weights
$weight, and each is worth $times (nothing, or a multiplication by a power of two). Work follows spikes: rows of
weights are added for the channels in a list of those that fired, four rows at once, so that sums are loaded and
stored once for four of them. These are plain loops over contiguous numbers, which compilers vectorize.

//// add
/* Add the rows of the sources in a list to the sums of their targets. */
NET_KERNEL void $name($sum *restrict sums, const $weight *restrict weights, size_t stride, int targets,
                      const $index *restrict list, int count) {
    int k = 0;
    for (; k + 4 <= count; k += 4) {
        const $weight *a = weights + (size_t)list[k] * stride, *b = weights + (size_t)list[k + 1] * stride;
        const $weight *c = weights + (size_t)list[k + 2] * stride, *d = weights + (size_t)list[k + 3] * stride;
        for (int o = 0; o < targets; ++o) sums[o] = ($sum)(sums[o] + (($sum)a[o] + b[o] + c[o] + d[o])$times);
    }
    for (; k < count; ++k) {
        const $weight *a = weights + (size_t)list[k] * stride;
        for (int o = 0; o < targets; ++o) sums[o] = ($sum)(sums[o] + ($sum)a[o]$times);
    }
}

//// add_packed
/* The same with two weights in a byte, each plus 8: the first half of a row in the low bits. */
NET_KERNEL void $name($sum *restrict sums, const uint8_t *restrict weights, size_t stride, int targets,
                      const $index *restrict list, int count) {
    const int half = (targets + 1) / 2;
    $sum *restrict upper = sums + half;
    int k = 0;
    for (; k + 4 <= count; k += 4) {
        const uint8_t *a = weights + (size_t)list[k] * stride, *b = weights + (size_t)list[k + 1] * stride;
        const uint8_t *c = weights + (size_t)list[k + 2] * stride, *d = weights + (size_t)list[k + 3] * stride;
        for (int o = 0; o < half; ++o)
            sums[o] = ($sum)(sums[o] + ((a[o] & 15) + (b[o] & 15) + (c[o] & 15) + (d[o] & 15) - 32)$times);
        for (int o = 0; o < targets - half; ++o)
            upper[o] = ($sum)(upper[o] + ((a[o] >> 4) + (b[o] >> 4) + (c[o] >> 4) + (d[o] >> 4) - 32)$times);
    }
    for (; k < count; ++k) {
        const uint8_t *a = weights + (size_t)list[k] * stride;
        for (int o = 0; o < half; ++o) sums[o] = ($sum)(sums[o] + ((a[o] & 15) - 8)$times);
        for (int o = 0; o < targets - half; ++o) upper[o] = ($sum)(upper[o] + ((a[o] >> 4) - 8)$times);
    }
}

//// add_pairs
typedef int16_t $lanes __attribute__((vector_size($bytes), aligned(2), may_alias));
typedef uint16_t u$lanes __attribute__((vector_size($bytes), aligned(2), may_alias));
/* Add the rows of the sources in a list to the sums of $targets targets. */
static __attribute__((noinline)) void $name(int16_t *restrict sums, const int16_t *restrict weights,
                                            size_t stride, const $index *restrict list, int count) {
    u$lanes $zeros;
    $lanes $highs;
    for (int k = 0; k < count; ++k) {
        const $lanes *row = (const $lanes *)(weights + (size_t)list[k] * stride);
        $adds
    }
    $lanes *first = ($lanes *)sums, *second = ($lanes *)(sums + $half);
    const uint16_t extra = (uint16_t)(128 * count);
    $stores
}

//// add_grouped
/* Add the row of each source in a list to the sums of its group; `sources` are in a group, the first is `first`. */
NET_KERNEL void $name($sum *restrict sums, const $weight *restrict weights, size_t stride, int targets,
                      const $index *restrict list, int count, int sources, int first) {
    for (int k = 0; k < count; ++k) {
        $add(sums + ((list[k] - first) / sources) * targets, weights, stride, targets, list + k, 1);
    }
}

//// add_bits
/* Add the weight of each channel whose bit is set. */
NET_KERNEL void $name($sum *restrict sums, const $weight *restrict weights, const uint8_t *spikes, int channels) {
    for (int o = 0; o < channels; ++o) {
        if ((spikes[o / 8] >> (o % 8)) & 1) sums[o] = ($sum)(sums[o] + ($sum)weights[o]$times);
    }
}

//// add_fired
/* Add the weight of each channel that fired. */
NET_KERNEL void $name($sum *restrict sums, const $weight *restrict weights, const uint8_t *restrict fired,
                      int channels) {
    for (int o = 0; o < channels; ++o) sums[o] = ($sum)(sums[o] + ($sum)fired[o] * weights[o]$times);
}

//// add_values
/* Add the rows of all sources, times what each sends; values are `apart`, and zeros are skipped. */
NET_KERNEL void $name($sum *restrict sums, const $weight *restrict weights, size_t stride, int targets,
                      const $value *restrict values, size_t apart, int groups, int sources) {
    for (int g = 0; g < groups; ++g, sums += targets) {
        for (int i = 0; i < sources; ++i, weights += stride, values += apart) {
            const $sum value = ($sum)*values;
            if (value == 0) continue;
            for (int o = 0; o < targets; ++o) sums[o] = ($sum)(sums[o] + weights[o] * value$times);
        }
    }
}

//// add_packed_values
/* The same with two weights in a byte, each plus 8. */
NET_KERNEL void $name($sum *restrict sums, const uint8_t *restrict weights, size_t stride, int targets,
                      const $value *restrict values, size_t apart, int groups, int sources) {
    const int half = (targets + 1) / 2;
    for (int g = 0; g < groups; ++g, sums += targets) {
        $sum *restrict upper = sums + half;
        for (int i = 0; i < sources; ++i, weights += stride, values += apart) {
            const $sum value = ($sum)*values;
            if (value == 0) continue;
            for (int o = 0; o < half; ++o) sums[o] = ($sum)(sums[o] + ((weights[o] & 15) - 8) * value$times);
            for (int o = 0; o < targets - half; ++o)
                upper[o] = ($sum)(upper[o] + ((weights[o] >> 4) - 8) * value$times);
        }
    }
}

//// listed_bits
/* List the channels whose bits are set; return how many. */
static int listed_bits(const uint8_t *spikes, int bytes, $index *list) {
    int count = 0;
    for (int n = 0; n < bytes; ++n) {
        int channel = 8 * n;
        for (unsigned rest = spikes[n]; rest != 0u; rest >>= 1, ++channel) {
            if ((rest & 1u) != 0u) list[count++] = ($index)channel;
        }
    }
    return count;
}

//// packed_bits
/* One bit for each channel that fired. */
static void packed_bits(const uint8_t *fired, int channels, uint8_t *spikes) {
    for (int o = 0; o < channels; o += 8) {
        unsigned byte = 0;
        for (int bit = 0; bit < 8 && o + bit < channels; ++bit) byte |= (unsigned)fired[o + bit] << bit;
        spikes[o / 8] = (uint8_t)byte;
    }
}

//// listed_fired
/* chosen[m]: the numbers of the bits of m that are set */
static const $index chosen[256][8] = {$chosen};
/* List the channels that fired, eight at a time, counted from `first`; return how many. */
NET_KERNEL int listed_fired(const uint8_t *restrict fired, int channels, $index *restrict list, int first) {
    int count = 0, o = 0;
    for (; o + 8 <= channels; o += 8) {
        unsigned mask = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        uint64_t eight; /* of its eight bytes, the lowest bits */
        memcpy(&eight, fired + o, 8);
        mask = (unsigned)((eight * 0x0102040810204080u) >> 56);
#else
        for (int k = 0; k < 8; ++k) mask |= (unsigned)fired[o + k] << k;
#endif
        for (int k = 0; k < 8; ++k) list[count + k] = ($index)(chosen[mask][k] + first + o);
        count += __builtin_popcount(mask);
    }
    for (; o < channels; ++o) {
        if (fired[o]) list[count++] = ($index)(first + o);
    }
    return count;
}

//// decayed
/* trunc(state * kept / 4096) of a state of 24 bits, without a product of more than 32. */
static inline int32_t decayed(int32_t state, int32_t kept) {
    const int32_t size = state < 0 ? -state : state;
    const int32_t left = (size >> 12) * kept + (((size & 4095) * kept) >> 12);
    return state < 0 ? -left : left;
}

//// floored
/* floor(value / 2**shift) */
static inline $wide floored($wide value, int shift) {
    return value < 0 ? -((-value - 1) >> shift) - 1 : value >> shift;
}

//// beyond
/* Whether a state has left 24 bits. */
static inline int beyond(int64_t state) { return state > 8388607 || state < -8388607; }

//// wrapped
/* value, changed by multiples of 2**bits to at least -2**(bits - 1) and below 2**(bits - 1) */
static inline int64_t wrapped(int64_t value, int bits) {
    const int64_t half = (int64_t)1 << (bits - 1);
    const int64_t kept = (int64_t)((uint64_t)(value + half) & ((uint64_t)half * 2u - 1u));
    return kept - half;
}

//// wrapped_current
/* A current as Lava holds it: 32 bits, and beyond 24 moved toward zero by 2**24, once. */
static inline int64_t wrapped_current(int64_t current) {
    const int64_t held = wrapped(current, 32);
    return held > 8388608 ? held - 16777216 : held <= -8388608 ? held + 16777216 : held;
}

//// clipped
/* A voltage as Lava holds it: 32 bits, clipped at 24. */
static inline int64_t clipped(int64_t voltage) {
    const int64_t held = wrapped(voltage, 32);
    return held > 8388607 ? 8388607 : held < -8388607 ? -8388607 : held;
}
