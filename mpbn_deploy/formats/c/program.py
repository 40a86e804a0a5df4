"""IntNetwork -> C: one source file and its header, in C99, without a heap and without libraries."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from math import prod
from textwrap import indent

import numpy as np

from ... import __version__
from ...base import Array, OptionError, record
from ...ir import IntNetwork, neuron_kind, sends, value_range
from .memory import Memory, template
from .plan import FAST, SMALL, Program, Style, plan_program
from .source import Writer, comment, memories, places_text, schedule, struct_text, table_text

PREFIX = "net"
KEYWORDS = frozenset(template("keywords.txt").template.split())
# Upper bounds of the code that gcc 12 writes at -O2 for Cortex-M0+, M4, M7 and RV32 (make test-mcu).
CODE_BYTES, LAYER_BYTES, ARRIVAL_BYTES = 800, 260, 210
ALIGNED = 64  # bytes between tables of a blob begin at multiples of


@record
class CSource:
    """A network as C, and the bytes that it takes: tables of constants, and static memory."""

    name: str  # of the files, without .c and .h
    prefix: str
    source: str
    header: str
    program: Program
    hash: str
    table_bytes: int
    memory_bytes: int  # for whole samples
    stepped_bytes: int  # for single time steps

    @property
    def delayed_input(self) -> bool:
        """Whether single time steps cannot run: they would need inputs of the past."""
        return _delayed_input(self.program.network)


@record
class ProgramSize:
    """The bytes of a program. Tables and memory are exact; code is an upper bound, measured at -O2."""

    tables: int
    code: int
    memory: int
    stepped_memory: int  # to run single time steps
    with_packed_weights: int  # of flash, with weights of 4 bits

    @property
    def flash(self) -> int:
        return self.tables + self.code

    def to_json(self) -> dict[str, int]:
        return {
            "flash_bytes": self.flash,
            "table_bytes": self.tables,
            "code_bytes": self.code,
            "memory_bytes": self.memory,
            "stepped_memory_bytes": self.stepped_memory,
        }

    def __str__(self) -> str:
        return (
            f"program: {self.flash:,} bytes of flash ({self.tables:,} of tables, code at most about "
            f"{self.code:,}), {self.memory:,} bytes of memory ({self.stepped_memory:,} to run single steps)"
        )


@lru_cache(maxsize=4)
def program_size(network: IntNetwork) -> ProgramSize:
    """Count the bytes of a network as a C program for a microcontroller."""
    program = plan_program(network, SMALL)
    whole, stepped = memories(program)
    weights = {id(a.weights): a.weights for layer in program.layers for a in layer.arrivals if not a.packed}
    tables = sum(table.values.nbytes for table in program.tables)
    code = CODE_BYTES + sum(LAYER_BYTES + ARRIVAL_BYTES * len(layer.arrivals) for layer in program.layers)
    halved = sum(table.values.nbytes // 2 for table in weights.values() if table.values.dtype == np.int8)
    return ProgramSize(
        tables=tables,
        code=code,
        memory=whole.bytes,
        stepped_memory=stepped.bytes,
        with_packed_weights=tables + code - halved,
    )


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is a C name."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,30}", prefix) and prefix not in KEYWORDS:
        return prefix
    raise OptionError(
        f"the prefix {prefix!r} is no C name; allowed are up to 31 letters, digits and underscores, a letter "
        "first, and no keyword. For example: net."
    )


def write_source(network: IntNetwork, prefix: str = PREFIX, style: Style = SMALL) -> CSource:
    """Write a network as C. `prefix` begins every name that other files see."""
    check_prefix(prefix)
    program = plan_program(network, style)
    whole, stepped = memories(program)
    digest = network_hash(network)
    tables = sum(table.values.nbytes for table in program.tables)
    name = "network" if prefix == PREFIX else prefix
    return CSource(
        name=name,
        prefix=prefix,
        source=renamed(_source(program, whole, stepped, name), prefix),
        header=renamed(_header(program, digest, tables, whole.bytes, stepped.bytes), prefix),
        program=program,
        hash=digest,
        table_bytes=tables,
        memory_bytes=whole.bytes,
        stepped_bytes=stepped.bytes,
    )


def write_fast(network: IntNetwork) -> tuple[Program, str, Array]:
    """Return a program for this machine, its text, and its tables as one array of bytes that it loads."""
    program = plan_program(network, FAST)
    whole, _ = memories(program)
    writer = Writer(program)
    layers = [writer.layer(layer) for layer in program.layers]
    pointers, parts, at = [], [], 0
    for table in program.tables:
        pointers.append(f"#define {table.name} ((const {table.c_type} *)(blob + {at}))\n")
        padding = -table.values.nbytes % ALIGNED
        parts += [np.ascontiguousarray(table.values).view(np.uint8).ravel(), np.zeros(padding, np.uint8)]
        at += table.values.nbytes + padding
    text = "\n".join(
        [
            f"typedef {program.input_type} net_input_t;",
            f"typedef {score_type(program)} net_score_t;",
            f"#define NET_TIMESTEPS {network.timesteps}",
            "static NET_THREAD const uint8_t *blob; /* all tables */\n" + "".join(pointers),
            struct_text(whole) + places_text(program, whole),
            writer.functions(),
            *layers,
            "static int run(const net_input_t *input, size_t stride, net_score_t *scores) {\n"
            f"    (void)input; (void)stride;\n{schedule(program, whole, stepped=False)}    return 0;\n}}\n",
        ]
    )
    return program, text, np.concatenate(parts) if parts else np.zeros(1, np.uint8)


def score_type(program: Program) -> str:
    """Return the type of outputs: voltages, or sums over time of what the last population sends."""
    neuron = program.network.output.neuron
    largest = program.network.timesteps * max(map(abs, value_range(neuron))) if sends(neuron) else 0
    return "int64_t" if largest >= 2**31 else "int32_t"


def _delayed_input(network: IntNetwork) -> bool:
    return any(c.delay for c in network.connections if c.source == network.input.name)


def _sizes(program: Program) -> list[str]:
    kinds = [np.dtype(each.c_type.removesuffix("_t")).itemsize for each in program.senders.values()]
    rows = [(each.channels, each.pixels) for each in program.senders.values()]
    return [f"{channels}, {pixels}, {width}" for (channels, pixels), width in zip(rows, kinds, strict=True)]


def network_hash(network: IntNetwork) -> str:
    """Return the SHA-256 of all that decides what a network computes."""
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        for value in values:
            if isinstance(value, np.ndarray):
                digest.update(f"{value.shape}".encode() + np.ascontiguousarray(value, "<i8").tobytes())
            else:
                digest.update(f"{value};".encode())

    add(network.timesteps, network.foreign)
    for population in network.populations:
        add(population.shape, neuron_kind(population.neuron))
        add(*(getattr(population.neuron, name) for name in type(population.neuron).__dataclass_fields__))
    order = network.order
    for c in network.connections:
        add(order[c.source], order[c.target], c.delay, type(c.synapse).__name__)
        add(*(getattr(c.synapse, name) for name in type(c.synapse).__dataclass_fields__))
    return digest.hexdigest()


def renamed(text: str, prefix: str) -> str:
    """Replace the usual prefix of all names."""
    return re.sub(r"\bNET_", f"{prefix.upper()}_", re.sub(r"\bnet_", f"{prefix}_", text))


# ---- the header -------------------------------------------------------------------------------


def _header(program: Program, digest: str, tables: int, whole: int, stepped: int) -> str:
    network = program.network
    given, shape = network.input_range, network.input.shape
    form = " x ".join(map(str, shape))
    conversion = (
        "" if given.takes_raw_values else f"\n   A value of the data becomes: value{given.conversion}."
    )
    scores = "numbers of spikes" if sends(network.output.neuron) else "voltages after the last time step"
    rows = "".join(
        comment(f"{p.name}: {' x '.join(map(str, p.shape))}, {neuron_kind(p.neuron)}")
        .replace("/* ", "     ")
        .replace(" */", "")
        for p in network.populations
    )
    single = "" if _delayed_input(network) else _STEPS
    sizes = ", ".join(f"{{{n}}}" for n in _sizes(program))
    return f"""/* A spiking network in C99, written by mpbn_deploy {__version__}; do not edit.
   No heap, no libraries, not reentrant: all memory is static.

{rows}
   Constant tables: {tables} bytes. Memory: {whole} bytes; {stepped} with NET_STEPPED=1. */
#ifndef NET_NETWORK_H
#define NET_NETWORK_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#define NET_VERSION "{__version__}"
#define NET_HASH "{digest}" /* SHA-256 of the network */
#define NET_TIMESTEPS {network.timesteps}
#define NET_INPUTS {prod(shape)} /* {form} */
#define NET_INPUT_MINIMUM ({given.minimum})
#define NET_INPUT_MAXIMUM {given.maximum}
#define NET_OUTPUTS {network.output.size}
#define NET_TABLE_BYTES {tables}
#define NET_MEMORY_BYTES {whole}
#define NET_STEPPED_BYTES {stepped}
#define NET_SIZES {{{sizes}}} /* of populations: channels, pixels, bytes of a message */

typedef {program.input_type} net_input_t;
typedef {score_type(program)} net_score_t;

/* Run one sample. input: {form} values, channel by channel, row by row.{conversion}
   They are the same in every time step (stride 0), or each step begins `stride` values after the last one.
   scores: {network.output.size} {scores}.
   Returns the class, the index of the largest score (the first of equal ones). Negative: the state of
   population -result left 24 bits, or a value of the input is out of range (NET_BAD_INPUT). */
#define NET_BAD_INPUT (-32768)
int net_run(const net_input_t *input, size_t stride, net_score_t scores[NET_OUTPUTS]);

/* Return the index of the largest score, the first of equal ones. */
int net_class(const net_score_t scores[NET_OUTPUTS]);
{single}
#ifdef __cplusplus
}}
#endif
#endif
"""


_STEPS = """
/* One time step at a time; compile with NET_STEPPED=1, which keeps the states of all neurons. Results are
   those of net_run after NET_TIMESTEPS steps. net_step returns 0, or a negative error as net_run does. */
#if defined(NET_STEPPED) && NET_STEPPED
void net_reset(void);
int net_step(const net_input_t input[NET_INPUTS], net_score_t scores[NET_OUTPUTS]);
#endif
"""

# ---- the source -------------------------------------------------------------------------------


def _source(program: Program, whole: Memory, stepped: Memory, name: str) -> str:
    writer = Writer(program)
    layers = [writer.layer(layer) for layer in program.layers]
    late = _delayed_input(program.network)
    refused = '#error "The input arrives late in this network: run whole samples."\n' if late else ""
    tables = "\n".join(table_text(table) for table in program.tables)
    return "\n".join(
        [
            f'#include "{name}.h"\n#include <limits.h>\n#include <string.h>',
            _HOOKS,
            tables,
            f"#if NET_STEPPED\n{refused}{struct_text(stepped)}{places_text(program, stepped)}#else\n"
            f"{struct_text(whole)}{places_text(program, whole)}#endif\n",
            writer.functions(),
            *layers,
            _range_check(program),
            f"#if NET_STEPPED\n{_stepped(program, stepped)}\n#else\n{_whole(program, whole)}\n#endif",
            _CLASS,
        ]
    )


_HOOKS = """#if INT_MAX < 2147483647
#error "This program needs an int of 32 bits."
#endif
#ifndef NET_STEPPED
#define NET_STEPPED 0 /* 1: net_reset and net_step, one time step at a time */
#endif
#ifndef NET_TRACE /* is given the voltages, spikes and messages of each pixel; 0 where there are none */
#define NET_TRACE(population, step, pixel, voltages, spikes, messages) ((void)0)
#endif
#ifndef NET_OVERFLOW /* is given each neuron whose state left its width, in networks of others */
#define NET_OVERFLOW(population, pixel, channel) ((void)0)
#endif
#define NET_THREAD
#define NET_KERNEL static
"""


def _range_check(program: Program) -> str:
    """Reject inputs out of range, unless their type cannot hold any."""
    kind, given = np.iinfo(program.input_type.removesuffix("_t")), program.network.input_range
    tests = [
        "input[i] < NET_INPUT_MINIMUM" * (given.minimum > kind.min),
        "input[i] > NET_INPUT_MAXIMUM" * (given.maximum < kind.max),
    ]
    if not any(tests):
        return ""
    return (
        "static int in_range(const net_input_t *input) {\n    for (int i = 0; i < NET_INPUTS; ++i) {\n"
        f"        if ({' || '.join(filter(None, tests))}) return 0;\n    }}\n    return 1;\n}}\n"
    )


def _whole(program: Program, memory: Memory) -> str:
    check = ""
    if _range_check(program):
        check = (
            "    for (int t = 0; t < (stride != 0u ? NET_TIMESTEPS : 1); ++t) {\n"
            "        if (!in_range(input + (size_t)t * stride)) return NET_BAD_INPUT;\n    }\n"
        )
    return (
        "int net_run(const net_input_t *input, size_t stride, net_score_t scores[NET_OUTPUTS]) {\n"
        f"    (void)stride;\n{check}{indent(schedule(program, memory, stepped=False), '    ')}"
        "    return net_class(scores);\n}\n"
    )


def _stepped(program: Program, memory: Memory) -> str:
    check = "    if (!in_range(input)) return NET_BAD_INPUT;\n" if _range_check(program) else ""
    calls = indent(schedule(program, memory, stepped=True), "    ")
    return f"""static int now;

void net_reset(void) {{
    now = 0;
    memset(&memory, 0, sizeof memory);
}}

int net_step(const net_input_t input[NET_INPUTS], net_score_t scores[NET_OUTPUTS]) {{
    const int t = now;
    const size_t stride = 0;
    (void)stride;
{check}{calls}    /* Steps are counted modulo a power of two, which rings of past spikes divide. */
    now = t < 1073741823 ? t + 1 : 536870912;
    return 0;
}}

int net_run(const net_input_t *input, size_t stride, net_score_t scores[NET_OUTPUTS]) {{
    net_reset();
    for (int t = 0; t < NET_TIMESTEPS; ++t) {{
        const int error = net_step(input + (size_t)t * stride, scores);
        if (error != 0) return error;
    }}
    return net_class(scores);
}}
"""


_CLASS = """int net_class(const net_score_t scores[NET_OUTPUTS]) {
    int best = 0;
    for (int i = 1; i < NET_OUTPUTS; ++i) {
        if (scores[i] > scores[best]) best = i;
    }
    return best;
}
"""
