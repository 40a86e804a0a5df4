/* Runs samples, and compares outputs, and all spikes and voltages by their hash, with the reference. */
#include <stdio.h>
#include <stdint.h>

static uint32_t hash;
static void add_to_hash(int population, int step, int pixel, const int32_t *voltages, const uint8_t *spikes,
                        const void *messages);
#define NET_TRACE(population, step, pixel, voltages, spikes, messages) \
    add_to_hash(population, step, pixel, voltages, spikes, messages)
#include "../src/$name.c"
#include "samples.h"

static const int sizes[][3] = NET_SIZES; /* channels, pixels, bytes of a message */

static uint32_t mixed(uint32_t word) {
    word = (word ^ (word >> 16)) * 0x7feb352du;
    word = (word ^ (word >> 15)) * 0x846ca68bu;
    return word ^ (word >> 16);
}

static void add_to_hash(int population, int step, int pixel, const int32_t *voltages, const uint8_t *spikes,
                        const void *messages) {
    uint32_t place = 0;
    for (int n = 1; n < population; ++n) place += (uint32_t)(NET_TIMESTEPS * sizes[n][0] * sizes[n][1]);
    place += (uint32_t)((step * sizes[population][1] + pixel) * sizes[population][0]);
    for (int o = 0; o < sizes[population][0]; ++o, ++place) {
        const uint32_t voltage = voltages ? (uint32_t)voltages[o] : 0u;
        uint32_t sent = spikes ? spikes[o] : 0u;
        if (messages) {
            sent = sizes[population][2] == 8 ? (uint32_t)((const int64_t *)messages)[o]
                                             : (uint32_t)((const int32_t *)messages)[o];
        }
        hash += mixed(mixed(mixed(place) + voltage) + sent);
    }
}

int main(void) {
    int wrong = 0;
    for (int k = 0; k < SAMPLES; ++k) {
        net_score_t scores[NET_OUTPUTS];
        hash = 0;
        const int class_or_error = net_run(samples + (size_t)k * SAMPLE_SIZE, SAMPLE_STRIDE, scores);
        int different = class_or_error < 0;
        for (int i = 0; i < NET_OUTPUTS; ++i) different |= scores[i] != expected[k * NET_OUTPUTS + i];
        if (different || hash != expected_hash[k]) {
            printf("sample %d: %s; hash %08lx, expected %08lx\n", k, different ? "outputs differ" : "outputs equal",
                   (unsigned long)hash, (unsigned long)expected_hash[k]);
            ++wrong;
        }
    }
    printf("$name: %d of %d samples equal to the reference, all outputs, spikes and voltages (%s)\n",
           SAMPLES - wrong, SAMPLES, NET_STEPPED ? "step by step" : "whole samples");
    return wrong != 0;
}
