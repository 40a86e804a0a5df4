"""The fastest executor: the network as C, compiled on this machine and run on all its cores.

The program is that of `formats.c`, in the style for this machine. Its tables are loaded and not compiled, so
networks that differ only in their numbers share one library, and large ones are ready as soon as small ones.
Libraries are kept in the user's cache, by the hash of their text, of the compiler and of the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, FormatError, MissingPackageError, Progress, SimulationError, layer_name, no_progress
from ..formats.c import Program, plan_program, score_type, write_fast
from ..ir import STATE_LIMIT, IntNetwork, Trace, as_steps, check_input_values, is_graded, sends
from .reference import ExecutionOptions, join_traces

# At -O3, gcc unrolls loops over channels: twenty times the time to compile, and no faster.
FLAGS = ("-std=gnu11", "-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-w", "-shared", "-fPIC")
NATIVE = ("-march=native",)
INSTALL = "apt install gcc, xcode-select --install, or set CC to a C compiler"
PARTS_PER_THREAD = 4  # so that threads end at about the same time
LINE = 64  # bytes of a line of the cache
MAX_LIBRARIES = 256  # in the cache, some 100 kB each
PATIENCE = 600  # seconds for the compiler

DRIVER = """
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define NET_THREAD __thread
#define NET_KERNEL static inline __attribute__((always_inline))
static const int channels[] = {%(channels)s}, pixels[] = {%(pixels)s}, widths[] = {%(widths)s};
static __thread int32_t **all_voltages;
static __thread void **all_sent;
static __thread int64_t **all_overflows;
static __thread size_t sample;
static void traced(int n, int step, int pixel, const int32_t *voltages, const uint8_t *spikes,
                   const void *messages) {
    const size_t count = (size_t)channels[n], width = (size_t)widths[n];
    const size_t at = ((sample * %(timesteps)d + (size_t)step) * (size_t)pixels[n] + (size_t)pixel) * count;
    if (voltages) memcpy(all_voltages[n] + at, voltages, count * sizeof *voltages);
    if (spikes) memcpy((uint8_t *)all_sent[n] + at, spikes, count);
    if (messages) memcpy((char *)all_sent[n] + at * width, messages, count * width);
}
#define NET_TRACE(n, step, pixel, voltages, spikes, messages) \\
    if (all_voltages) traced(n, step, pixel, voltages, spikes, messages)
#define NET_OVERFLOW(n, pixel, channel) ++all_overflows[n][(pixel) * channels[n] + (channel)]
%(network)s
int run_samples(const uint8_t *tables, const net_input_t *inputs, size_t samples, size_t apart,
                size_t stride, net_score_t *scores, int32_t **voltages, void **sent, int64_t **overflows) {
    blob = tables, all_voltages = voltages, all_sent = sent, all_overflows = overflows;
    for (sample = 0; sample < samples; ++sample) {
        const int error = run(inputs + sample * apart, stride, scores + sample * %(outputs)d);
        if (error) return error;
    }
    return 0;
}
"""


class Compiled:
    """A network compiled once, to run on many inputs."""

    def __init__(self, network: IntNetwork, threads: int | None = None) -> None:
        self.network, self.threads = network, threads or cores()
        self.program, text, tables = write_fast(network)
        self.tables = _aligned(tables)
        self.input_type = _numpy_type(self.program.input_type)
        self.shapes = network.input.shape, (network.timesteps, *network.input.shape)
        self.library = ctypes.CDLL(str(built(_driver(self.program, text))))
        self.function = self.library.run_samples
        self.function.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_size_t] * 3, *[ctypes.c_void_p] * 4]
        self.narrows = [layer for layer in self.program.layers if layer.narrows]

    def run(self, inputs: Array, *, keep_trace: bool = True, progress: Progress = no_progress) -> Trace:
        """Run the network; without a trace, only outputs are kept. `progress` counts chunks of samples."""
        network, inputs = self.network, np.asarray(inputs)
        if len(inputs) == 0 or inputs.shape[1:] not in self.shapes:
            as_steps(inputs[:1], network.input.shape, network.timesteps)  # raises
        check_input_values(network, inputs)
        given = np.ascontiguousarray(inputs, self.input_type)
        size = max(1, -(-len(given) // (PARTS_PER_THREAD * self.threads))) if self.threads > 1 else len(given)
        starts = range(0, len(given), size)
        parts = [given[start : start + size] for start in starts]
        if len(parts) == 1:
            return self._part(parts[0], keep_trace)
        with ThreadPoolExecutor(self.threads) as pool:
            running = [pool.submit(self._part, part, keep_trace) for part in parts]
            return join_traces([running[index].result() for index in progress(range(len(parts)))])

    def _part(self, given: Array, keep_trace: bool) -> Trace:
        """Run some samples in this thread."""
        network, samples = self.network, len(given)
        steps = 0 if given.shape[1:] == network.input.shape else network.input.size
        scores = np.zeros((samples, *network.output.shape), _numpy_type(score_type(self.program)))
        voltages, sent = self._recordings(samples) if keep_trace else ({}, {})
        overflows = {
            layer.number: np.zeros((layer.pixels, layer.channels), np.int64) for layer in self.narrows
        }
        error = self.function(
            self.tables.ctypes.data,
            given.ctypes.data,
            samples,
            given[:1].size,
            steps,
            scores.ctypes.data,
            *(self._pointers(each) for each in (voltages, sent, overflows)),
        )
        if error:
            raise SimulationError(_overflow_text(network.populations[-error].name))
        named = {layer.number: layer.population for layer in self.program.layers}
        return Trace(
            spikes={named[n].name: _by_channel(values, named[n].shape) for n, values in sent.items()},
            voltages={named[n].name: _by_channel(values, named[n].shape) for n, values in voltages.items()},
            outputs=scores.astype(np.int64),
            overflows={
                named[n].name: _by_channel(values, named[n].shape)
                for n, values in overflows.items()
                if values.any()
            },
        )

    def _recordings(self, samples: int) -> tuple[dict[int, Array], dict[int, Array]]:
        """Return empty arrays of voltages and of what is sent, [samples, timesteps, pixels, channels]."""
        voltages, sent = {}, {}
        for layer in self.program.layers:
            shape = (samples, self.network.timesteps, layer.pixels, layer.channels)
            voltages[layer.number] = np.zeros(shape, np.int32)
            neuron = layer.population.neuron
            graded = is_graded(neuron)
            kind = _numpy_type(self.program.senders[layer.population.name].c_type) if graded else np.bool_
            sent[layer.number] = np.zeros(shape, kind if sends(neuron) else _never_sends(layer))
        return voltages, sent

    def _pointers(self, arrays: dict[int, Array]) -> Any:
        """Return a C array of pointers by number of population; None if there are none."""
        if not arrays:
            return None
        numbers = range(len(self.program.layers) + 1)
        found = [arrays[n].ctypes.data if n in arrays else None for n in numbers]
        return (ctypes.c_void_p * len(found))(*found)


def _aligned(values: Array) -> Array:
    """Return a copy that begins with a line of the cache: rows of weights then do not cross more of them."""
    space = np.empty(len(values) + LINE, np.uint8)
    start = -space.ctypes.data % LINE
    space[start : start + len(values)] = values
    return space[start : start + len(values)]


def _never_sends(layer: Any) -> Any:
    """Return the type of the zeros that a readout sends: spikes, or messages of a sigma neuron."""
    from ..ir import Modulator

    return np.int64 if isinstance(layer.rule, Modulator) else np.bool_


def _by_channel(values: Array, shape: Sequence[int]) -> Array:
    """[..., pixel, channel] as [..., *shape], without a copy"""
    lead = values.shape[:-2]
    if len(shape) == 1:
        return values.reshape(*lead, *shape)
    return np.moveaxis(values.reshape(*lead, *shape[1:], shape[0]), -1, -3)


def _numpy_type(c_type: str) -> np.dtype[Any]:
    return np.dtype(c_type.removesuffix("_t"))


def _overflow_text(name: str) -> str:
    return (
        f"{layer_name(name)}: a state overflows 24 bits (at most {STATE_LIMIT}). Quantize with --overflow "
        "proved, or calibrate on such inputs."
    )


def _driver(program: Program, network: str) -> str:
    channels = [0, *(layer.channels for layer in program.layers)]
    pixels = [0, *(layer.pixels for layer in program.layers)]
    return DRIVER % {
        "channels": ", ".join(map(str, channels)),
        "pixels": ", ".join(map(str, pixels)),
        "widths": ", ".join(str(_numpy_type(each.c_type).itemsize) for each in program.senders.values()),
        "timesteps": program.network.timesteps,
        "outputs": program.network.output.size,
        "network": network,
    }


# ---- compiling --------------------------------------------------------------------------------


def cores() -> int:
    """Return how many threads to use: OMP_NUM_THREADS, or the cores that this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiler() -> str | None:
    """Return the path of the C compiler: that of CC, or cc, gcc or clang."""
    wanted = os.environ.get("CC")
    return next(
        (p for name in ([wanted] if wanted else ["cc", "gcc", "clang"]) if (p := shutil.which(name))), None
    )


def built(text: str) -> Path:
    """Compile a library, unless it is in the cache; return its path."""
    if (path := compiler()) is None:
        raise MissingPackageError(
            f"no C compiler found ({os.environ.get('CC', 'cc, gcc, clang')}): {INSTALL}."
        )
    key = hashlib.sha256("\0".join([text, path, *FLAGS, *NATIVE, _identity(path)]).encode()).hexdigest()
    folder = _cache()
    library = folder / f"{key[:32]}.so"
    if not library.exists():
        source = folder / f"{key[:32]}.{os.getpid()}.c"
        source.write_text(text)
        unfinished = source.with_suffix(".tmp")
        _compile(path, source, unfinished)
        unfinished.replace(library)
        source.unlink()
        _forget_old(folder)
    return library


def _forget_old(folder: Path) -> None:
    """Remove the libraries that were used least recently; those in use stay open."""
    used = {path: path.stat().st_atime for path in folder.glob("*.so")}
    for path in sorted(used, key=lambda each: used[each])[:-MAX_LIBRARIES]:
        path.unlink(missing_ok=True)


def _compile(path: str, source: Path, library: Path) -> None:
    """Call the compiler, without instructions of this very processor if it does not know them."""
    for native in (NATIVE, ()):
        command = [path, *FLAGS, *native, str(source), "-o", str(library)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired as error:
            raise SimulationError(f"{path} did not compile the network within {PATIENCE} s.") from error
        if done.returncode == 0:
            return
    lines = done.stderr.splitlines()
    first = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
    raise SimulationError(f"{path} failed: {first.strip()} (the program is kept: {source})")


@lru_cache
def _identity(path: str) -> str:
    """Return what decides the code of a compiler beside its options: its version, and the processor."""
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    processor = Path("/proc/cpuinfo")
    lines = processor.read_text().splitlines() if processor.exists() else []
    return version + next((line for line in lines if line.startswith(("flags", "Features"))), "")


@lru_cache
def _cache() -> Path:
    """Return a folder that only this user can write: libraries in it are run."""
    wanted = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(wanted) if wanted else Path.home() / ".cache") / "mpbn_deploy" / "c"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = folder.stat()
        ours = facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if ours and os.access(folder, os.W_OK):
            return folder
    except OSError:  # no home, or a full disk: a folder of this process does
        pass
    return Path(tempfile.mkdtemp(prefix="mpbn_deploy-c-"))


# ---- as an executor ---------------------------------------------------------------------------


def obstacle(network: IntNetwork) -> str | None:
    """Return why a network cannot be written as C."""
    try:
        plan_program(network)
    except FormatError as error:
        return str(error).rstrip(".")
    return None


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """Compile a network, unless it is in the cache, and run it."""
    return Compiled(network).run(inputs, keep_trace=options.keep_trace, progress=options.progress)


@contextmanager
def opened(
    network: IntNetwork, samples: int, options: ExecutionOptions
) -> Iterator[Callable[[Array], Trace]]:
    """Compile a network once."""
    compiled = Compiled(network)
    yield lambda inputs: compiled.run(inputs, keep_trace=options.keep_trace, progress=options.progress)
