// Runs samples through the simulated core:  bench INPUTS OUTPUTS STATE_BITS SAMPLES SCORES [TRACE]
// SAMPLES holds int32 values; SCORES receives, per sample, the cycles and all scores as int32; TRACE receives
// 2 * voltage + spike of every neuron in every step, as int32, in the order of the core.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "Vmpbn_network.h"
#include "verilated.h"

static Vmpbn_network core;

static void tick() {
    core.clk = 0;
    core.eval();
    core.clk = 1;
    core.eval();
}

int main(int count, char **words) {
    if (count < 6) return 2;
    const size_t inputs = atoi(words[1]), outputs = atoi(words[2]);
    const int unused = 32 - atoi(words[3]);
    FILE *samples = fopen(words[4], "rb"), *scores = fopen(words[5], "wb");
    FILE *trace = count > 6 ? fopen(words[6], "wb") : nullptr;
    if (!samples || !scores || (count > 6 && !trace)) return 3;
    const auto extended = [unused](uint32_t value) { return (int32_t)(value << unused) >> unused; };
    std::vector<int32_t> sample(inputs), answer(outputs + 1), traced;
    while (fread(sample.data(), 4, inputs, samples) == inputs) {
        core.input_write = 1;
        for (size_t at = 0; at < inputs; ++at) {
            core.input_address = at;
            core.input_value = sample[at] & ((1LL << MPBN_VALUE_BITS) - 1);
            tick();
        }
        core.input_write = 0;
        core.start = 1;
        tick();
        core.start = 0;
        int32_t cycles = 1;
        while (core.busy) {
            tick();
            ++cycles;
            if (trace && core.trace) traced.push_back(2 * extended(core.trace_voltage) + core.trace_spike);
        }
        answer[0] = cycles;
        for (size_t at = 0; at < outputs; ++at) {
            core.score_address = at;
            tick();
            answer[at + 1] = extended(core.score);
        }
        if (fwrite(answer.data(), 4, answer.size(), scores) != answer.size()) return 4;
        if (trace && fwrite(traced.data(), 4, traced.size(), trace) != traced.size()) return 4;
        traced.clear();
    }
    core.final();
    return fclose(scores) || (trace && fclose(trace));
}
