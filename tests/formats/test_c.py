"""Networks as C: the self-test of the folder c/, compiled with sanitizers, and what C cannot hold."""

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from networks import (
    charged,
    inputs_for,
    int_chain,
    int_loop,
    int_pooled,
    int_residual,
    int_sigma_delta,
    int_windows,
    softened,
    widened,
)

from mpbn_deploy.base import FormatError, OptionError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.c import program_size, run_hash, write_project, write_source
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, Readout

STRICT = "-std=c99 -O1 -g -Wall -Wextra -Wconversion -Wshadow -pedantic -Werror"
SANITIZED = f"{STRICT} -fsanitize=address,undefined -fno-sanitize-recover"
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
KINDS = {
    "chain": int_chain,
    "groups": lambda seed: int_chain(seed, groups=2),
    "residual": int_residual,
    "delays": lambda seed: int_residual(seed, delay=2),
    "windows": int_windows,
    "relays": int_pooled,
    "late relays": lambda seed: int_pooled(seed, delay=1),
    "sigma-delta": int_sigma_delta,
    "mixed sigma-delta": lambda seed: int_sigma_delta(seed, mixed=True),
    "loop": int_loop,
    "long loop": lambda seed: int_loop(seed, delays=(0, 2)),
    "soft reset": lambda seed: softened(int_chain(seed)),
    "currents": lambda seed: charged(int_residual(seed)),
    "soft currents in a loop": lambda seed: charged(softened(int_loop(seed))),
}

pytestmark = pytest.mark.skipif(not COMPILERS or not shutil.which("make"), reason="no C compiler")


def project(folder, network, *, samples=2, steps=False, **options):
    inputs = inputs_for(network, samples, steps=steps)
    write_project(folder, network, inputs, simulate(network, inputs), **options)
    return folder


def make(folder, compiler=None, flags=SANITIZED):
    words = ["make", "-s", "-C", str(folder), "test", f"CC={compiler or COMPILERS[0]}", f"CFLAGS={flags}"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_passes_its_self_test(tmp_path, kind):
    place = list(KINDS).index(kind)
    network = KINDS[kind](place)
    done = make(project(tmp_path, network, steps=place % 2 == 1), COMPILERS[place % len(COMPILERS)])
    assert (done.returncode, done.stderr) == (0, "")
    modes = 1 if any(c.delay for c in network.connections if c.source == network.input.name) else 2
    assert done.stdout.count("2 of 2 samples equal to the reference") == modes


def test_a_self_test_fails_if_one_weight_differs(tmp_path):
    folder = project(tmp_path, int_chain(3))
    source = folder / "src" / "network.c"
    text = source.read_text()
    found = re.search(r"weights_1_0\[\d+\] = \{\n\s+(-?\d+),", text)
    changed = str(int(found[1]) + (1 if int(found[1]) < 100 else -1))
    source.write_text(text[: found.start(1)] + changed + text[found.end(1) :])
    done = make(folder, flags="-std=c99 -O1")
    assert done.returncode != 0
    assert re.search(r"sample 0: .*; hash [0-9a-f]{8}, expected [0-9a-f]{8}", done.stdout)


def dense(shape=(5,), weights=None, *, bits=8, size=6, seed=0, timesteps=3, maximum=9, foreign=False):
    """Return input, a firing population and a readout, fully connected."""
    generator = np.random.default_rng(seed)
    limit = 2 ** (bits - 1)
    count = int(np.prod(shape))
    first = generator.integers(-limit, limit, (size, count)) if weights is None else weights
    return IntNetwork(
        populations=(
            Population(name="input", shape=shape, neuron=Input(minimum=0, maximum=maximum)),
            Population(
                name="hidden",
                shape=(size,),
                neuron=Lif(threshold=np.full(size, 20), bias=np.arange(size), decay_voltage=1000),
            ),
            Population(name="out", shape=(3,), neuron=Readout(bias=np.zeros(3, np.int64))),
        ),
        connections=(
            Connection(source="input", target="hidden", synapse=Dense(weight=first)),
            Connection(
                source="hidden",
                target="out",
                synapse=Dense(weight=generator.integers(-limit, limit, (3, size))),
            ),
        ),
        timesteps=timesteps,
        scales={},
        foreign=foreign,
    )


@pytest.mark.parametrize("size", [1, 2, 7, 300])
def test_weights_of_four_bits_share_bytes(tmp_path, size):
    network = dense(bits=4, size=size)
    assert (make(project(tmp_path, network)).returncode) == 0
    narrow, wide = (program_size(each).tables for each in (network, dense(bits=8, size=size)))
    packed = sum(c.synapse.weight.size - (-(-len(c.synapse.weight) // 2) * c.synapse.weight.shape[1])
                 for c in network.connections if len(c.synapse.weight) > 1)  # fmt: skip
    assert wide - narrow == packed


def test_a_matrix_onto_maps_and_a_kernel_add_up(tmp_path):
    generator = np.random.default_rng(4)
    network = IntNetwork(
        populations=(
            Population(name="input", shape=(2, 3, 4), neuron=Input(minimum=-5, maximum=9)),
            Population(
                name="maps",
                shape=(3, 3, 4),
                neuron=Lif(
                    threshold=generator.integers(0, 60, (3, 3, 4)),
                    bias=generator.integers(-9, 9, (3, 3, 4)),
                    decay_voltage=generator.integers(0, 4097, (3, 3, 4)),
                ),
            ),
        ),
        connections=(
            Connection(
                source="input",
                target="maps",
                synapse=Conv2d(weight=generator.integers(-9, 9, (3, 2, 3, 3)), padding=(1, 1), exponent=1),
            ),
            Connection(
                source="maps",
                target="maps",
                delay=1,
                synapse=Dense(weight=generator.integers(-9, 9, (36, 36))),
            ),
        ),
        timesteps=5,
        scales={},
    )
    done = make(project(tmp_path, network, steps=True))
    assert (done.returncode, done.stderr) == (0, "")


def test_states_that_may_overflow_are_checked(tmp_path):
    network = dense(weights=np.full((6, 5), 20_000), maximum=9)
    header = write_source(network)
    assert "if (bad != 0) return 1;" in header.source
    (tmp_path / "network.c").write_text(header.source)
    (tmp_path / "network.h").write_text(header.header)
    (tmp_path / "main.c").write_text(
        '#include "network.h"\n#include <stdio.h>\nint main(void) { static net_score_t s[NET_OUTPUTS];'
        "const net_input_t low[5] = {0}, high[5] = {9, 9, 9, 9, 9}, wrong[5] = {10};"
        'printf("%d %d %d", net_run(low, 0, s) >= 0, net_run(high, 0, s), net_run(wrong, 0, s)); return 0; }'
    )
    program = tmp_path / "program"
    files = [str(tmp_path / name) for name in ("main.c", "network.c")]
    subprocess.run([COMPILERS[0], *SANITIZED.split(), *files, "-o", str(program)], check=True)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "1 -1 -32768"


def test_networks_of_others_overflow_as_in_lava(tmp_path):
    network = widened(int_chain(2), 3000)
    done = make(project(tmp_path, network))
    assert (done.returncode, done.stderr) == (0, "")


def test_two_networks_in_one_program(tmp_path):
    folders = [
        project(tmp_path / name, int_chain(seed), prefix=name) for seed, name in enumerate(("one", "two"))
    ]
    main = tmp_path / "main.c"
    main.write_text(
        '#include "one.h"\n#include "two.h"\nint main(void) { return ONE_OUTPUTS - TWO_OUTPUTS + '
        "(one_run == 0) + (two_run == 0); }\n"
    )
    files = [str(folder / "src" / f"{name}.c") for folder, name in zip(folders, ("one", "two"), strict=True)]
    include = [f"-I{folder / 'src'}" for folder in folders]
    program = tmp_path / "program"
    words = [COMPILERS[0], "-std=c99", *include, str(main), *files, "-o", str(program)]
    subprocess.run(words, check=True, capture_output=True)
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.parametrize("prefix", ["", "1net", "my net", "int", "a" * 40, "net;"])
def test_prefixes_that_are_no_names(prefix):
    with pytest.raises(OptionError, match="is no C name"):
        write_source(int_chain(0), prefix)


def test_inputs_of_more_than_32_bits_are_named():
    network = dense(weights=np.ones((6, 5), np.int64), maximum=2**40)
    with pytest.raises(
        FormatError, match=r"input: values of 0..1099511627776; C programs take inputs of up to 32"
    ):
        write_source(network)


def test_names_cannot_end_a_comment(tmp_path):
    network = dense()
    hidden = replace(network.populations[1], name="*/ int x; /* \\ ü ??/")
    network = replace(
        network,
        populations=(network.populations[0], hidden, network.populations[2]),
        connections=(
            replace(network.connections[0], target=hidden.name),
            replace(network.connections[1], source=hidden.name),
        ),
    )
    done = make(project(tmp_path, network))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_hash_sees_every_spike_and_voltage():
    network = int_chain(1)
    inputs = inputs_for(network, 1)
    trace = simulate(network, inputs)
    name = network.layers[0].name
    voltages = {**trace.voltages, name: trace.voltages[name].copy()}
    voltages[name][0, 1].flat[3] += 1
    spikes = {**trace.spikes, name: trace.spikes[name].copy()}
    spikes[name][0, 0].flat[2] ^= True
    found = {
        run_hash(network, each)
        for each in (trace, replace(trace, voltages=voltages), replace(trace, spikes=spikes))
    }
    assert len(found) == 3


@pytest.mark.skipif(not shutil.which("size"), reason="no size")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_counted_to_the_byte(tmp_path, kind):
    network = KINDS[kind](1)
    source, size = write_source(network), program_size(network)
    (tmp_path / "network.h").write_text(source.header)
    (tmp_path / "network.c").write_text(source.source)
    words = [COMPILERS[0], "-std=c99", "-Os", "-c", str(tmp_path / "network.c"), "-o", str(tmp_path / "n.o")]
    subprocess.run(words, check=True)
    listed = subprocess.run(["size", tmp_path / "n.o"], capture_output=True, text=True, check=True).stdout
    _, data, zero = map(int, listed.splitlines()[1].split()[:3])
    assert data + zero == size.memory == source.memory_bytes
