"""The folder c/ of an export: the network as C with a self-test, for make, CMake and Arduino.

src/network.c, src/network.h   the network; nothing else is needed on a device
test/selftest.c                runs samples, and compares outputs and a hash of all spikes and voltages
test/samples.h                 the samples, and what the reference computes for them
Makefile, CMakeLists.txt       `make test` needs nothing but a C compiler
library.properties, examples/  the same folder as an Arduino library
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ... import __version__
from ...base import Array
from ...ir import IntNetwork, Trace
from .memory import template
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
        "test/selftest.c": renamed(template("selftest.c").substitute(facts), prefix),
        "Makefile": renamed(template("Makefile").substitute(facts), prefix),
        "CMakeLists.txt": renamed(template("CMakeLists.txt").substitute(facts), prefix),
        "library.properties": template("library.properties").substitute(facts),
        "examples/Classify/Classify.ino": renamed(template("Classify.ino").substitute(facts), prefix),
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
            f"/* {count} samples, and results of the reference of mpbn_deploy {__version__}. */\n",
            f"#define SAMPLES {count}\n#define SAMPLE_SIZE {given[0].size}\n",
            f"#define SAMPLE_STRIDE {stride}u\n",
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
