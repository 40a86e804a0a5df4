"""The executor that compiles networks: equal to the reference, and clear where it cannot compile."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import (
    assert_same_trace,
    charged,
    inputs_for,
    int_chain,
    int_graded,
    int_loop,
    int_pooled,
    int_products,
    int_residual,
    int_sigma_delta,
    int_windows,
    softened,
    widened,
)

from mpbn_deploy.base import MissingPackageError, SimulationError
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions, c, fastest
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, Readout

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
KINDS = {
    "chain": int_chain,
    "groups": lambda seed: int_chain(seed, groups=2),
    "delays": lambda seed: int_residual(seed, delay=2),
    "windows": int_windows,
    "products": int_products,
    "integer spikes": int_graded,
    "ternary spikes": lambda seed: int_graded(seed, levels=1, signed=True),
    "relays": int_pooled,
    "sigma-delta": int_sigma_delta,
    "mixed sigma-delta": lambda seed: int_sigma_delta(seed, mixed=True),
    "loop": lambda seed: int_loop(seed, delays=(0, 2)),
    "soft currents": lambda seed: charged(softened(int_residual(seed))),
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    c._cache.cache_clear()
    yield tmp_path / "mpbn_deploy" / "c"
    c._cache.cache_clear()


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_equal_to_the_reference(kind, steps):
    for seed in (0, 1):
        network = KINDS[kind](seed)
        inputs = inputs_for(network, 5, seed=seed, steps=steps)
        assert_same_trace(simulate(network, inputs), c.Compiled(network, threads=2).run(inputs))


def deep(channels, seed=0, *, size=(5, 6), largest=127):
    """Two convolutions of many channels, whose sums need more than 16 bits if weights are large."""
    generator = np.random.default_rng(seed)

    def weights(*shape):
        return generator.integers(-largest, largest + 1, shape)

    def lif(threshold):
        return Lif(
            threshold=generator.integers(0, threshold, (channels, 1, 1)),
            bias=generator.integers(-50, 50, (channels, 1, 1)),
            decay_voltage=1024,
        )

    shape = (channels, *size)
    same = {"padding": (1, 1)}
    return IntNetwork(
        populations=(
            Population(name="input", shape=(3, *size), neuron=Input(minimum=0, maximum=60)),
            Population(name="a", shape=shape, neuron=lif(5_000)),
            Population(name="b", shape=shape, neuron=lif(4_000)),
            Population(name="pooled", shape=shape, neuron=lif(100)),
            Population(name="out", shape=(10,), neuron=Readout(bias=np.zeros(10, np.int64))),
        ),
        connections=(
            Connection(source="input", target="a", synapse=Conv2d(weight=weights(channels, 3, 3, 3), **same)),
            Connection(
                source="a", target="b", synapse=Conv2d(weight=weights(channels, channels, 3, 3), **same)
            ),
            Connection(
                source="b",
                target="pooled",
                synapse=Conv2d(weight=weights(channels, 1, 3, 3), groups=channels, **same),
            ),
            Connection(
                source="pooled", target="out", synapse=Dense(weight=weights(10, channels * size[0] * size[1]))
            ),
        ),
        timesteps=3,
        scales={},
    )


@pytest.mark.parametrize("channels", [3, 8, 16, 24, 32, 64, 96, 128, 272])
def test_blocks_of_channels_are_equal(channels):
    network = deep(channels)
    inputs = inputs_for(network, 2)
    expected = simulate(network, inputs)
    assert all(0 < expected.spikes[name].mean() < 1 for name in ("a", "b"))
    assert_same_trace(expected, c.Compiled(network).run(inputs))


def test_long_sums_are_divided_into_parts():
    (layer,) = [each for each in c.Compiled(deep(128)).program.layers if each.population.name == "b"]
    assert len(layer.arrivals) > 1 and (layer.sum_type, layer.total_type) == ("int16_t", "int32_t")


def test_networks_of_others_overflow_and_are_counted():
    network = widened(int_chain(2), 3000)
    inputs = inputs_for(network, 4)
    expected, got = simulate(network, inputs), c.Compiled(network, threads=2).run(inputs)
    assert_same_trace(expected, got)
    assert expected.overflows and expected.overflows.keys() == got.overflows.keys()
    assert all(np.array_equal(expected.overflows[name], got.overflows[name]) for name in got.overflows)


def test_an_overflow_names_the_population():
    network = replace(widened(int_chain(2), 3000), foreign=False)
    inputs = inputs_for(network, 4)
    with pytest.raises(SimulationError, match=r"overflows the 24-bit state"):
        simulate(network, inputs)
    with pytest.raises(SimulationError, match=r"\w+: a state overflows 24 bits"):
        c.Compiled(network).run(inputs)


def test_networks_that_share_a_library_keep_their_weights():
    first = deep(16)
    *others, last = first.connections
    mirrored = replace(last, synapse=replace(last.synapse, weight=last.synapse.weight[::-1]))
    second = replace(first, connections=(*others, mirrored))
    inputs = inputs_for(first, 3)
    a, b = c.Compiled(first), c.Compiled(second)
    assert a.library._handle == b.library._handle
    for network, compiled in ((first, a), (second, b), (first, a)):
        assert np.array_equal(
            compiled.run(inputs, keep_trace=False).outputs, simulate(network, inputs).outputs
        )


def test_a_program_is_compiled_once(cache, monkeypatch):
    network = int_chain(0)
    c.Compiled(network)
    assert [path.suffix for path in cache.iterdir()] == [".so"]
    monkeypatch.setattr(c, "_compile", lambda *given: pytest.fail("compiled again"))
    c.Compiled(network)


def test_a_cache_that_others_can_write_is_not_used(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert c._cache() != cache


def test_old_programs_are_forgotten(cache, monkeypatch):
    monkeypatch.setattr(c, "MAX_LIBRARIES", 1)
    for network in (int_chain(0), int_loop(0)):
        c.Compiled(network)
    assert len(list(cache.iterdir())) == 1


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    network = int_chain(0)
    assert fastest(network) == "emulator"
    with pytest.raises(
        MissingPackageError, match=r"no C compiler found \(no-such-compiler\): apt install gcc"
    ):
        EXECUTORS["c"].run(network, inputs_for(network, 1), ExecutionOptions())


def test_with_a_compiler_it_is_the_fastest():
    assert fastest(int_chain(0)) == "c"


def test_a_compiler_that_fails_leaves_the_program(cache, monkeypatch):
    monkeypatch.setattr(c, "FLAGS", ("--no-such-option",))
    with pytest.raises(SimulationError, match=r"failed: .*error.* \(the program is kept: ") as caught:
        c.Compiled(int_chain(0))
    kept = str(caught.value).rsplit("kept: ", 1)[1].rstrip(")")
    assert "int run_samples(" in Path(kept).read_text()


def test_a_compiler_that_takes_too_long_is_given_up(cache, monkeypatch):
    monkeypatch.setattr(c, "PATIENCE", 0.001)
    with pytest.raises(SimulationError, match=r"did not compile the network within 0.001 s"):
        c.Compiled(int_chain(0))


def test_wrong_inputs_are_rejected():
    network = int_chain(0)
    with pytest.raises(SimulationError, match="the network takes"):
        c.Compiled(network).run(inputs_for(network, 1) + 1000)


def test_inputs_too_wide_are_an_obstacle():
    network = int_chain(0)
    wide = replace(network.populations[0], neuron=Input(minimum=0, maximum=2**33))
    network = replace(network, populations=(wide, *network.populations[1:]))
    assert "C programs take inputs of up to 32 bits" in EXECUTORS["c"].obstacle(network)
    assert fastest(network) == "emulator"
