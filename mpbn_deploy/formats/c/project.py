"""The folder c/ of an export: the network as C with a self-test, for make, CMake and Arduino.

src/network.c, src/network.h   the network; nothing else is needed on a device
test/selftest.c                runs samples, and compares outputs and a hash of all spikes and voltages
test/samples.h                 the samples, and what the reference computes for them
Makefile, CMakeLists.txt       `make test` needs nothing but a C compiler
library.properties, examples/  the same folder as an Arduino library
"""

from __future__ import annotations

from pathlib import Path
from string import Template

import numpy as np

from ... import __version__
from ...base import Array
from ...ir import IntNetwork, Trace
from .plan import Table, as_narrow
from .program import PREFIX, CSource, renamed, write_source
from .source import table_text

FOLDER = "c"
SAMPLE_BYTES = 2**14  # of all samples of a self-test
MOST_SAMPLES = 16


def sample_count(network: IntNetwork) -> int:
    """Return how many samples a self-test has: few enough for the flash of a small device."""
    return max(1, min(MOST_SAMPLES, SAMPLE_BYTES // network.input.size))


def write_project(
    folder: Path, network: IntNetwork, inputs: Array, trace: Trace, prefix: str = PREFIX
) -> CSource:
    """Write a folder; `trace` is what the reference computes for the samples `inputs`."""
    source = write_source(network, prefix)
    facts = {
        "name": source.name,
        "version": __version__.split("+")[0],
        "modes": "0" if source.delayed_input else "0 1",
        "hash": source.hash,
        "flash": f"{source.table_bytes:,}",
        "ram": f"{source.memory_bytes:,}",
    }
    files = {
        f"src/{source.name}.c": source.source,
        f"src/{source.name}.h": source.header,
        "test/samples.h": renamed(samples_text(network, source, inputs, trace), prefix),
        "test/selftest.c": renamed(SELFTEST.substitute(facts), prefix),
        "Makefile": renamed(MAKEFILE.substitute(facts), prefix),
        "CMakeLists.txt": renamed(CMAKE.substitute(facts), prefix),
        "library.properties": LIBRARY.substitute(facts),
        "examples/Classify/Classify.ino": renamed(SKETCH.substitute(facts), prefix),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return source


# ---- samples and what is expected -------------------------------------------------------------


def samples_text(network: IntNetwork, source: CSource, inputs: Array, trace: Trace) -> str:
    """Return the samples, their outputs and the hash of each run."""
    program, count = source.program, len(inputs)
    given = np.asarray(inputs).astype(np.dtype(program.input_type.removesuffix("_t")))
    stride = 0 if given.shape[1:] == network.input.shape else network.input.size
    outputs = as_narrow(trace.outputs.reshape(count, -1).astype(np.int64), signed=True)
    hashes = [run_hash(network, trace.of_samples(slice(k, k + 1))) for k in range(count)]
    return "".join(
        [
            f"/* {count} samples, and what the reference simulator of mpbn_deploy {__version__} computes for them. */\n",
            f"#define SAMPLES {count}\n#define SAMPLE_SIZE {given[0].size}\n#define SAMPLE_STRIDE {stride}u\n",
            table_text(Table(name="samples", values=given)),
            table_text(Table(name="expected", values=outputs)),
            "static const uint32_t expected_hash[SAMPLES] = {",
            ", ".join(f"{value:#010x}u" for value in hashes),
            "};\n",
        ]
    )


def run_hash(network: IntNetwork, trace: Trace) -> int:
    """Return the sum, modulo 2**32, over all neurons and time steps of one sample, of

        mixed(mixed(mixed(place) + voltage) + what it sends)

    where places count steps of populations, pixels and channels. A sum does not depend on the order.
    """
    total, start = 0, 0
    for population in network.layers:
        voltages, sent = (
            _in_order(values[population.name][0], population.shape)
            for values in (trace.voltages, trace.spikes)
        )
        places = np.arange(start, start + voltages.size, dtype=np.int64)
        words = mixed(mixed(mixed(places) + voltages) + sent)
        total, start = (total + int(words.sum(dtype=np.uint64))) % 2**32, start + voltages.size
    return total


def _in_order(values: Array, shape: tuple[int, ...]) -> Array:
    """[steps, *shape] as [step, pixel, channel], flat"""
    return np.moveaxis(values.reshape(len(values), shape[0], -1), 1, 2).astype(np.int64).ravel()


def mixed(values: Array) -> Array:
    """Scramble 32 bits (Wellons, lowbias32)."""
    word = values.astype(np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word = (word ^ (word >> np.uint32(shift))) * np.uint32(factor)
    scrambled: Array = (word ^ (word >> np.uint32(16))).astype(np.int64)
    return scrambled


# ---- files ------------------------------------------------------------------------------------

SELFTEST = Template(r"""/* Runs samples, and compares outputs, and all spikes and voltages by their hash, with the reference. */
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
""")
MAKEFILE = Template("""# make test   compile the network with a self-test, and run it
CC ?= cc
CFLAGS ?= -std=c99 -O2 -Wall -Wextra

test: $$(foreach mode,$modes,selftest-$$(mode))
	@for program in $$^; do ./$$$$program || exit 1; done

selftest-%: test/selftest.c test/samples.h src/$name.c src/$name.h
	$$(CC) $$(CFLAGS) -DNET_STEPPED=$$* -Isrc -o $$@ test/selftest.c

clean:
	rm -f selftest-*

.PHONY: test clean
""")
CMAKE = Template("""cmake_minimum_required(VERSION 3.13)
project($name C)
add_library($name STATIC src/$name.c)
set_property(TARGET $name PROPERTY C_STANDARD 99)
target_include_directories($name PUBLIC src)
# target_compile_definitions($name PUBLIC NET_STEPPED=1)  # one time step at a time

include(CTest)
if(BUILD_TESTING AND NOT CMAKE_CROSSCOMPILING)
  foreach(mode $modes)
    add_executable(selftest-$${mode} test/selftest.c)
    set_property(TARGET selftest-$${mode} PROPERTY C_STANDARD 99)
    target_include_directories(selftest-$${mode} PRIVATE src)
    target_compile_definitions(selftest-$${mode} PRIVATE NET_STEPPED=$${mode})
    add_test(NAME selftest-$${mode} COMMAND selftest-$${mode})
  endforeach()
endif()
""")
LIBRARY = Template("""name=$name
version=$version
author=mpbn_deploy
maintainer=mpbn_deploy
sentence=A spiking network in C99.
paragraph=$flash bytes of tables, $ram bytes of memory. SHA-256 of the network: $hash
category=Data Processing
url=https://github.com
architectures=*
includes=$name.h
""")
SKETCH = Template("""#include <$name.h>

static net_input_t sample[NET_INPUTS]; // fill it with values from NET_INPUT_MINIMUM to NET_INPUT_MAXIMUM
static net_score_t scores[NET_OUTPUTS];

void setup() { Serial.begin(115200); }

void loop() {
  const unsigned long before = micros();
  const int found = net_run(sample, 0, scores);
  const unsigned long took = micros() - before;
  Serial.print(found < 0 ? "error " : "class ");
  Serial.print(found);
  Serial.print(", microseconds: ");
  Serial.println(took);
  delay(1000);
}
""")
