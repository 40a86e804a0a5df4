"""Lava gives the integers of the reference for every network structure, in its own models and in ours."""

import dataclasses
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import (
    LEAKING,
    Residual,
    assert_same_trace,
    charged,
    enlivened,
    inputs_for,
    int_chain,
    int_graded,
    int_loop,
    int_pooled,
    int_products,
    int_residual,
    int_windows,
    needs_lava,
    replace_lava,
    softened,
    spiking_network,
    widened,
)
from torch import nn

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import MissingPackageError, OptionError, SimulationError, same_records
from mpbn_deploy.execute import EXECUTORS, lava as lava_sim
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.lava import compat
from mpbn_deploy.execute.lava.plans import pipeline_depths
from mpbn_deploy.execute.reference import close_calls, simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import stock_reader_loads, write_netx
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    FloatLif,
    FoldedNetwork,
    Input,
    IntNetwork,
    Lif,
    Population,
    bounds,
    with_relays,
)
from mpbn_deploy.quantize import quantize

pytestmark = needs_lava


def folded_residual(pool):
    """Return a folded residual network after a pooling layer; max pooling of spikes becomes OR neurons."""
    torch.manual_seed(0)
    shape = (2, 6, 6)
    body = Residual(shape, pool=pool, shortcut="strided convolution", stride=2, mpbn="channel", groups=2)
    return fold(trace(enlivened(body, shape=shape)))


def or_pooling():
    return quantize(folded_residual(nn.MaxPool2d(2)), load_profile("loihi2")).network


def constant_on_a_current():
    folded = fold(trace(spiking_network(1, currents=(0.5, 0.75), padding=0)))
    return quantize(folded, load_profile("loihi2")).network


def recurrent_layers():
    """A convolution and a matrix from a layer to itself, with and without currents."""
    network = spiking_network(1, recurrent=(True, True), currents=(0.0, 0.75), timesteps=5)
    return quantize(fold(trace(network)), load_profile("loihi2")).network


STRUCTURES = {
    # Strides, padding and dilation differ by axis, so that a transposed kernel could not pass.
    "chain": int_chain,
    "chain, another": lambda: int_chain(1),
    "groups": lambda: int_chain(1, groups=2),
    "one threshold per channel": lambda: int_chain(3, per_neuron=False),
    "leaking readout": lambda: int_chain(0, **LEAKING),
    "more layers than time steps": lambda: int_chain(timesteps=2),  # several samples in the pipeline at once
    # Also: exponents, a current that decays, signed graded inputs, a dense layer onto a picture.
    "skips": lambda: int_residual(3),
    "skips, one time step": lambda: int_residual(3, timesteps=1),
    "a delay": lambda: int_residual(1, delay=1),
    "a delay longer than a sample": lambda: int_residual(1, delay=5),
    "windows with kernels of their own": lambda: int_windows(2),
    "a loop": lambda: int_loop(1),
    "a loop and delays": lambda: int_loop(1, delays=(1, 3)),
    "OR pooling": or_pooling,
    "products of spikes": int_products,
    "currents": lambda: charged(int_chain(1), 1),
    "currents and skips": lambda: charged(int_residual(3, delay=1), 4),
    "currents and a loop": lambda: charged(int_loop(1, delays=(1, 3)), 2),
    "a constant on a current": constant_on_a_current,
    "recurrent layers": recurrent_layers,
    # Also: a delayed skip past the relays, into which both paths lead.
    "relays": lambda: with_relays(int_pooled(1, delay=1, window=(2, 3), size=(2, 2))),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_our_models_and_lavas_own_fire_the_same_spikes(structure):
    """Every spike and voltage is equal; five samples do not divide evenly into two lanes."""
    network = STRUCTURES[structure]()
    inputs = inputs_for(network, samples=5, steps=True)
    expected = simulate(network, inputs)
    fired = [spikes.any() for spikes in expected.spikes.values()]
    assert sum(fired) >= len(fired) - 1  # all but a readout
    stock = lava_sim.run(network, inputs, stock=True)
    assert_same_trace(expected, stock)
    assert_same_trace(stock, lava_sim.run(network, inputs, lanes=2))


SOFT = {
    "integer spikes": int_graded,
    "signed spikes": lambda: int_graded(1, levels=2, signed=True),
    "chain": lambda: softened(int_chain(1), 1),
    "skips": lambda: softened(int_residual(3, delay=1), 3),
    "windows": lambda: softened(int_windows(2), 2),
    "a loop": lambda: softened(int_loop(1, delays=(1, 3)), 5),
    "a state that may overflow": lambda: softened(wide_chain(), 1),
    "currents": lambda: charged(softened(int_chain(1), 1), 1),
    "currents that may overflow": lambda: charged(softened(wide_chain(), 1), 3),
}


def wide_chain():
    """A chain whose first layer could overflow, but does not on small inputs."""
    network = int_chain(1)
    first, *rest = network.connections
    return replace(network, connections=(replace(first, synapse=replace(first.synapse, exponent=7)), *rest))


@pytest.mark.parametrize("structure", SOFT)
def test_soft_resets_run_in_our_models_and_are_an_obstacle_for_lavas_own(structure):
    network = SOFT[structure]()
    inputs = inputs_for(network, samples=5, steps=True)
    if not all(bound.fits for bound in bounds(network).values()):
        inputs = np.minimum(inputs, 1)
    expected = simulate(network, inputs)
    assert any(spikes.any() for spikes in expected.spikes.values())
    assert_same_trace(expected, lava_sim.run(network, inputs, lanes=2))
    name = network.layers[0].name
    with pytest.raises(SimulationError, match=f"{name}: neurons with a soft reset; Lava's own LIF resets"):
        lava_sim.run(network, inputs, stock=True)
    assert EXECUTORS["lava-stock"].obstacle(network) == lava_sim.stock_obstacle(network)
    assert "soft reset; those of netx reset to zero" in EXECUTORS["netx"].obstacle(network)


@pytest.mark.parametrize("lanes", [1, 3, 5, 9])
def test_lanes_do_not_matter(lanes):
    network = int_residual(1, delay=1)
    inputs = inputs_for(network, samples=5, steps=True)
    assert_same_trace(simulate(network, inputs), lava_sim.run(network, inputs, lanes=lanes))


def test_lanes_are_many_for_small_networks_and_few_for_large_ones():
    from mpbn_deploy.execute.lava import MOST_LANES, best_lanes

    assert [best_lanes(int_chain(), samples) for samples in (0, 1, 5, 1000)] == [1, 1, 5, MOST_LANES]
    weight = np.ones((64, 2, 3, 3), int)
    wide = one_convolution(weight)
    large = replace(
        wide,
        populations=(
            replace(wide.input, shape=(2, 600, 400)),
            replace(wide.output, shape=(64, 600, 400)),
        ),
    )
    assert best_lanes(wide, 1000) == MOST_LANES and best_lanes(large, 1000) <= 2


@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_blocks_of_steps_do_not_matter(monkeypatch, rows):
    """Tapes of a few rows are reused within a run."""
    from mpbn_deploy.execute.lava import graph, session

    monkeypatch.setattr(session, "SMALLEST_BLOCK", 7)
    monkeypatch.setattr(graph, "MOST_ROWS", rows)
    network = int_chain()
    inputs = inputs_for(network, samples=5, steps=True)
    seen = []
    got = lava_sim.run(network, inputs, lanes=1, progress=lambda parts: seen.append(len(parts)) or parts)
    assert_same_trace(simulate(network, inputs), got)
    # The last sample goes three layers deep, and the next one would begin in phase.
    assert seen == [-(-(5 + 1) * network.timesteps // min(rows, 7))]


def test_progress_is_shown_in_a_pipe(tmp_path, monkeypatch, capfd):
    from mpbn_deploy.base import terminal
    from mpbn_deploy.verify import verify

    monkeypatch.setattr(terminal, "QUIET_SECONDS", 0.0)
    network = int_chain()
    write_netx(network, tmp_path / "network.net")
    verify(network, inputs_for(network, samples=2), netx=tmp_path / "network.net", budget=60.0)
    said = capfd.readouterr().err
    assert "verify: the reference, 2 samples of 4 steps" in said
    assert "Lava (our models)" not in said  # Lava's own say more
    assert "Lava's own models and lava-dl netx, in a process beside this one" in said
    verify(network, inputs_for(network, samples=2), netx=tmp_path / "network.net", budget=None)
    assert "lava-dl netx, samples: 2/2" in capfd.readouterr().err


# ---- where floats and registers end -----------------------------------------------------------


def one_convolution(weight, *, maximum=255, threshold=5000, **neuron):
    """input (2, 5, 4) -> convolution, whose neurons keep half of their voltage in each step"""
    synapse = Conv2d(weight=weight, padding=(1, 1))
    channels = len(weight)
    shape = (channels, 5, 4)
    lif = {
        "threshold": np.full((channels, 1, 1), threshold),
        "bias": np.zeros((channels, 1, 1), int),
        "decay_voltage": 2048,
        "decay_current": 1000,
    }
    return IntNetwork(
        populations=(
            Population(name="input", shape=(2, 5, 4), neuron=Input(minimum=0, maximum=maximum)),
            Population(name="maps", shape=shape, neuron=Lif(**{**lif, **neuron})),
        ),
        connections=(Connection(source="input", target="maps", synapse=synapse),),
        timesteps=4,
        scales={},
    )


@pytest.mark.parametrize("largest", [127, 1500, 40_000])
def test_states_that_leave_their_width_wrap_and_clip_as_in_lava(largest):
    """Currents and sums of convolutions wrap at 24 bits, and voltages clip.

    The reference raises, unless the integers are from elsewhere.
    """
    weight = np.random.default_rng(largest).integers(-largest, largest + 1, size=(3, 2, 3, 3))
    network = one_convolution(weight)
    assert not bounds(network)["maps"].fits
    inputs = inputs_for(network, samples=3, steps=True)
    with pytest.raises(SimulationError, match="overflows the 24-bit state"):
        simulate(network, inputs)
    stock = lava_sim.run(network, inputs, stock=True)
    assert stock.spikes["maps"].any() and not stock.spikes["maps"].all()
    assert_same_trace(stock, lava_sim.run(network, inputs, lanes=2))
    foreign = replace(network, foreign=True)
    expected, emulated = simulate(foreign, inputs), emulate(foreign, inputs)
    assert_same_trace(expected, stock)
    assert_same_trace(expected, emulated)
    assert 0 < expected.overflows["maps"].sum() < expected.spikes["maps"].size
    assert same_records(expected.overflows, emulated.overflows)


@pytest.mark.parametrize(
    "network",
    [softened(int_residual(3, delay=2), 3), charged(int_loop(1), 2), charged(softened(int_chain(1), 1), 4)],
    ids=["soft", "loop", "current"],
)
def test_networks_of_others_that_overflow(network, tmp_path):
    """Soft resets, loops, delays and currents whose states leave 24 bits in several layers."""
    network = widened(network, 3000)
    inputs = inputs_for(network, samples=3, steps=True)
    expected = simulate(network, inputs)
    assert len(expected.overflows) > 1
    assert_same_trace(expected, lava_sim.run(network, inputs, lanes=3))


def test_sums_beyond_lavas_32_bits_are_rejected():
    weight = np.full((1, 2, 3, 3), 2**20)
    for stock in (False, True):
        network = one_convolution(weight)
        with pytest.raises(SimulationError, match=r"input->maps: sums of up to 4\.81e\+09; Lava adds in 32"):
            lava_sim.run(network, inputs_for(network), stock=stock)


@pytest.mark.parametrize("stock", [False, True])
def test_biases_wider_than_lavas_16_bits(stock):
    """Lava's own LIF would truncate them silently."""
    weight = np.random.default_rng(0).integers(-9, 10, size=(3, 2, 3, 3))
    bias = np.array([40_000, -70_000, 100_000]).reshape(3, 1, 1)
    network = one_convolution(weight, maximum=9, threshold=3000, bias=bias, bias_exponent=1)
    inputs = inputs_for(network, samples=3, steps=True)
    expected = simulate(network, inputs)
    assert 0 < expected.spikes["maps"].mean() < 1
    assert_same_trace(expected, lava_sim.run(network, inputs, stock=stock))


def test_floats_are_as_wide_as_the_largest_sum_demands():
    from mpbn_deploy.ir import exact_float, largest_sum

    def needed(total, maximum):
        weight = np.array([[total - 1, 1], [-total, 0], [5, -5]])
        source = Population(name="a", shape=(2,), neuron=Input(minimum=-maximum, maximum=1))
        connection = Connection(source="a", target="b", synapse=Dense(weight=weight))
        assert largest_sum(connection, source) == total * maximum
        return exact_float(total * maximum)

    assert needed(2**24 - 1, 1) is np.float32
    assert needed(2**24, 1) is np.float64
    assert needed(2**22, 4) is np.float64


def planned(network):
    from mpbn_deploy.execute.lava import pipeline_depths, plan_layer

    depths = pipeline_depths(network)
    return [plan_layer(network, p, depths, (1,), (None, None)) for p in network.populations[1:]]


def test_a_state_that_fits_is_proven_to_fit():
    """The proof uses the sum of magnitudes, then intervals; a state that can overflow is not proved."""
    centre = np.zeros((1, 2, 3, 3), int)
    centre[0, :, 1, 1] = 200, -200
    for weight, proven in ((20 * centre // 200, True), (centre, True), (2 * centre, False)):
        network = one_convolution(weight, decay_current=4096)
        assert planned(network)[0].proven == bounds(network)["maps"].fits == proven


@pytest.mark.parametrize("seed", range(60))
def test_products_equal_the_synapse_itself(seed):
    """For any stride, padding, dilation, groups and window, with several lanes gathered in parts."""
    from mpbn_deploy.execute.lava import fast_layers
    from mpbn_deploy.ir import apply_synapse, output_shape

    draw = np.random.default_rng(seed).integers
    groups = int(draw(1, 4))
    source = (groups * int(draw(1, 4)), int(draw(5, 10)), int(draw(5, 10)))
    kernel = (groups * int(draw(1, 4)), source[0] // groups, int(draw(1, 4)), int(draw(1, 4)))
    synapse = Conv2d(
        weight=draw(-127, 128, size=kernel),
        stride=(int(draw(1, 4)), int(draw(1, 4))),
        padding=(int(draw(0, 3)), int(draw(0, 3))),
        dilation=(int(draw(1, 3)), int(draw(1, 3))),
        groups=groups,
        exponent=int(draw(-2, 3)),
    )
    target = output_shape(synapse, source)
    if min(target[1:]) > 2:
        synapse = replace(synapse, silent=((1, 0), (0, 2)))
    values = draw(0, 256, size=(5, *source))
    connection = Connection(source="a", target="b", synapse=synapse)
    multiply = fast_layers.product(connection, source, target, np.float32, 64.0)
    multiply.lanes_at_once = 2
    got = np.zeros((5, *target[::-1]))
    got[multiply.inside] += multiply(values.transpose(0, 3, 2, 1))
    np.testing.assert_array_equal(got.transpose(0, 3, 2, 1), apply_synapse(synapse, values) * 64)


def test_a_picture_that_stands_still_is_multiplied_once():
    from mpbn_deploy.execute.lava import Current

    plan = planned(int_chain())[0]
    current = Current(plan, plan.arrivals[0])
    picture = np.ones((1, 5, 6, 2), np.int32)
    first = current(1, picture)
    assert current(2, picture.copy()) is first
    assert current(3, 2 * picture) is not first
    np.testing.assert_array_equal(current(4, 2 * picture), 2 * first)


# ---- sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"lanes": 3}, {"lanes": 1}, {"stock": True}])
def test_a_session_is_built_once_and_run_many_times(options):
    """No state carries over from one run to the next, also when runs differ in size."""
    network = int_residual(1, delay=2)
    with lava_sim.Session(network, **options) as session:
        for samples in (5, 1, 7):
            inputs = inputs_for(network, samples=samples, seed=samples, steps=True)
            assert_same_trace(simulate(network, inputs), session.run(inputs))


def test_sessions_run_side_by_side():
    networks = int_chain(), int_loop(1)
    inputs = [inputs_for(network, steps=True) for network in networks]
    with lava_sim.Session(networks[0]) as first, lava_sim.Session(networks[1]) as second:
        for _ in range(2):
            for network, given, session in zip(networks, inputs, (first, second), strict=True):
                assert_same_trace(simulate(network, given), session.run(given))


def test_any_population_can_be_probed():
    network = int_chain()
    inputs = inputs_for(network, samples=3)
    expected = simulate(network, inputs)
    for probe in ((), ("dense",), ["output", "conv"], "conv"):
        got = lava_sim.run(network, inputs, probe=probe)
        names = [name for name in expected.spikes if name in ([probe] if isinstance(probe, str) else probe)]
        assert list(got.spikes) == list(got.voltages) == names
        for name in names:
            np.testing.assert_array_equal(expected.spikes[name], got.spikes[name])
            np.testing.assert_array_equal(expected.voltages[name], got.voltages[name])
        np.testing.assert_array_equal(expected.outputs, got.outputs)
    fires = int_loop(1)
    inputs = inputs_for(fires, steps=True)
    got = lava_sim.run(fires, inputs, probe=())
    np.testing.assert_array_equal(simulate(fires, inputs).outputs, got.outputs)


def test_what_a_session_rejects():
    network = int_chain()
    with pytest.raises(OptionError, match=r"no population named 'cnv' to probe. Did you mean 'conv'\?"):
        lava_sim.Session(network, probe=["cnv"])
    for options in ({"lanes": 0}, {"lanes": 2, "stock": True}):
        with pytest.raises(OptionError, match="lanes"):
            lava_sim.Session(network, **options)
    with pytest.raises(SimulationError, match="the session is not running"):
        lava_sim.Session(network).run(inputs_for(network))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((0, 2, 6, 5), int), "no samples"),
        (np.array(3), r"inputs of shape \(\); the network takes"),
        (np.zeros((2, 6, 5), int), r"inputs of shape \(2, 6, 5\); the network takes \[samples, 2, 6, 5\]"),
        (np.zeros((1, 3, 2, 6, 5), int), "or the same with 4 time steps after the samples"),
        (np.full((1, 2, 6, 5), 8), r"inputs from 8 to 8; the network takes 0\.\.7"),
        (np.full((1, 2, 6, 5), -1), r"inputs from -1 to -1; the network takes 0\.\.7"),
        (np.full((1, 2, 6, 5), 0.5), "inputs hold fractions"),
        (np.full((1, 2, 6, 5), np.nan), "inputs hold NaN"),
        (np.full((1, 2, 6, 5), "3"), "inputs are of type <U1; whole numbers"),
    ],
)
def test_wrong_inputs_are_rejected_before_lava_starts(monkeypatch, inputs, message):
    monkeypatch.setattr(lava_sim.Session, "__enter__", lambda session: pytest.fail("Lava was started"))
    with pytest.raises(SimulationError, match=message):
        lava_sim.run(int_chain(), inputs)


def test_wrong_inputs_leave_a_session_as_it_was():
    network = int_chain()
    with lava_sim.Session(network) as session:
        with pytest.raises(SimulationError, match="the network takes"):
            session.run(np.zeros((1, 3, 3), int))
        with pytest.raises(SimulationError, match=r"inputs from 99 to 99; the network takes 0\.\.7"):
            session.run(np.full((1, 2, 6, 5), 99))
        inputs = inputs_for(network)
        assert_same_trace(simulate(network, inputs), session.run(inputs))


# ---- floating point ---------------------------------------------------------------------------


@pytest.mark.parametrize("stock", [False, True])
@pytest.mark.parametrize("name", ["chain", "average pooling", "OR pooling"])
def test_a_folded_network_fires_its_spikes_in_floating_point(name, stock):
    """All spikes are equal, except in close calls."""
    pools = {"average pooling": nn.AvgPool2d(2), "OR pooling": nn.MaxPool2d(2)}
    folded = folded_residual(pools[name]) if name in pools else fold(trace(spiking_network()))
    inputs = inputs_for(folded, samples=4)
    expected = simulate(folded, inputs)
    got = lava_sim.run(folded, inputs, stock=stock)
    close = close_calls(folded, inputs, expected)
    assert sum(c.sum() for c in close.values()) == 0  # so that every spike is compared
    for population, spikes in expected.spikes.items():
        np.testing.assert_array_equal(spikes, got.spikes[population], err_msg=population)
        np.testing.assert_allclose(expected.voltages[population], got.voltages[population], atol=1e-9)
    np.testing.assert_allclose(expected.outputs, got.outputs, atol=1e-12)
    assert any(spikes.any() for spikes in expected.spikes.values())


def test_differences_in_floating_point_are_counted(monkeypatch):
    from mpbn_deploy.verify.folding import check_floating_point

    folded = fold(trace(spiking_network()))
    inputs = inputs_for(folded, samples=4)
    size = sum(spikes.size for spikes in simulate(folded, inputs).spikes.values())
    check = check_floating_point(folded, inputs)
    assert not check.spikes_mismatched and (check.spikes_compared, check.close_calls, check.not_run) == (
        size,
        0,
        None,
    )
    assert str(check).endswith(f": 0 of {size} spikes different (0 close calls)")

    first = folded.populations[1]
    lower = replace(first, neuron=replace(first.neuron, threshold=first.neuron.threshold - 0.5))
    other = replace(folded, populations=(folded.input, lower, *folded.populations[2:]))
    replace_lava(monkeypatch, lambda network, given: simulate(other, given))
    check = check_floating_point(folded, inputs)
    assert check.spikes_mismatched > 0 and check.spikes_mismatched_in_doubt == 0


def test_close_calls_in_floating_point_are_told_apart(monkeypatch):
    """One neuron, whose voltage equals its threshold only in the first sample: only that is a close call."""
    from mpbn_deploy.verify.folding import check_floating_point

    neuron = FloatLif(threshold=np.array([3.0]), bias=np.zeros(1), leak=0.0)
    folded = FoldedNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=0, maximum=9)),
            Population(name="one", shape=(1,), neuron=neuron),
        ),
        connections=(Connection(source="input", target="one", synapse=Dense(weight=np.ones((1, 1)))),),
        timesteps=2,
    )
    inputs = np.array([[3], [5], [1]])
    expected = simulate(folded, inputs)
    for sample, counts in ((0, (0, 2)), (1, (2, 0))):
        spikes = np.array(expected.spikes["one"])
        spikes[sample] = ~spikes[sample]
        got = replace(expected, spikes={"one": spikes})
        replace_lava(monkeypatch, lambda network, given, got=got: got)
        check = check_floating_point(folded, inputs)
        assert (check.spikes_mismatched, check.spikes_mismatched_in_doubt) == counts
        assert check.close_calls == 2
        if sample == 0:
            assert "0 of 6 spikes different, and 2 in samples with close calls (2 close calls)" in str(check)


def test_a_lava_that_cannot_run_the_folded_network_is_reported(monkeypatch):
    from mpbn_deploy.verify.folding import check_floating_point

    def missing(*given, **options):
        raise MissingPackageError("lava-nc is not installed")

    replace_lava(monkeypatch, missing)
    folded = fold(trace(spiking_network()))
    check = check_floating_point(folded, inputs_for(folded))
    assert str(check).endswith("not run, lava-nc is not installed")


# ---- commands ---------------------------------------------------------------------------------


def test_commands_run_lavas_own_models_on_request(export_folder, capsys):
    common = [str(export_folder), "--samples", "2"]
    runs = []
    for options in (["--backend", "lava"], ["--stock"]):
        assert console_script(["run", *common, "--json", *options]) == 0
        runs.append(json.loads(capsys.readouterr().out))
    assert runs[0]["predictions"] == runs[1]["predictions"]
    assert [run["backend"] for run in runs] == ["lava", "lava-stock"]
    assert console_script(["verify", *common, "--json", "--stock"]) == 0
    found = json.loads(capsys.readouterr().out)
    ran = {c["execution"] for c in found["comparisons"]}
    assert {"emulator", "Lava's own models"} <= ran and "Lava (our models)" not in ran
    assert all(c["spikes_mismatched"] == 0 < c["spikes_compared"] for c in found["comparisons"])
    floating = found["lava_floating_point"]
    assert floating["spikes_mismatched"] == 0 < floating["spikes_compared"]
    assert console_script(["run", *common, "--stock", "--backend", "emulator"]) == 2
    assert "--stock selects Lava's own process models" in capsys.readouterr().err


# ---- lava-dl's reader, loops, wide weights ----------------------------------------------------


@pytest.mark.parametrize("options", [{"per_neuron": False}, {}, LEAKING])
def test_the_stock_netx_reader_fires_the_same_spikes(tmp_path, options):
    network = int_chain(2, **options)
    write_netx(network, tmp_path / "network.net")
    inputs = inputs_for(network, samples=4, steps=True)
    got = lava_sim.run_stock_netx(tmp_path / "network.net", network, inputs)
    expected = simulate(network, inputs)
    assert expected.spikes["dense"].any()
    assert_same_trace(expected, got, voltages=False)


def loop_of_two(delay):
    """Return int_loop with a connection from the last population to the first."""
    network = int_loop(1)
    back = Connection(source="last", target="first", synapse=Dense(weight=np.full((5, 4), 9)), delay=delay)
    return replace(network, connections=(*network.connections, back))


def test_a_loop_needs_a_step_of_delay_for_each_of_its_connections():
    network = loop_of_two(delay=2)
    inputs = inputs_for(network, samples=2, steps=True)
    assert_same_trace(simulate(network, inputs), lava_sim.run(network, inputs))
    message = (
        "first->last: closes a loop with more connections than steps of delay; every connection takes one "
        "step in Lava, so it cannot run this loop. Use the emulator"
    )
    with pytest.raises(SimulationError, match=message):
        lava_sim.run(loop_of_two(delay=1), inputs)


def test_dense_weights_wider_than_lavas_eight_bits():
    """Lava's Dense would clip them silently, and also -128 if no weight is positive."""
    network = int_chain()
    neuron = replace(network.populations[2].neuron, threshold=np.full(5, 2000), decay_voltage=4096)
    populations = (*network.populations[:2], replace(network.populations[2], neuron=neuron), network.output)
    conv, dense, last = network.connections
    for wide in (np.arange(-9000, 9000, 100).reshape(5, 36), 254 * np.eye(5, 36, dtype=int)):
        negative = np.full((3, 5), -128)
        changed = replace(
            network,
            populations=populations,
            connections=(
                conv,
                replace(dense, synapse=Dense(weight=wide)),
                replace(last, synapse=Dense(weight=negative)),
            ),
        )
        inputs = inputs_for(changed, samples=3, steps=True)
        assert_same_trace(simulate(changed, inputs), lava_sim.run(changed, inputs))


def test_a_threshold_that_is_off_by_one_is_noticed():
    """The comparison can fail: changing one neuron's threshold by 1 is detected."""
    network = int_chain()
    neuron = network.populations[1].neuron
    # A neuron that forgets at once, and whose largest voltage is just above its threshold.
    plain = replace(neuron, decay_voltage=4096, bias=np.zeros_like(neuron.bias))
    inputs = inputs_for(network, samples=20)
    loud = replace(plain, threshold=np.full_like(neuron.threshold, 2**16))
    voltages = simulate(with_neuron(network, loud), inputs).voltages["conv"]
    highest = voltages.max(axis=(0, 1)) >> 6
    just_above = with_neuron(network, replace(plain, threshold=highest - 1))
    not_above = with_neuron(network, replace(plain, threshold=highest))
    assert simulate(just_above, inputs).spikes["conv"].any()
    assert lava_sim.run(just_above, inputs).spikes["conv"].any()
    assert not lava_sim.run(not_above, inputs).spikes["conv"].any()


def with_neuron(network, neuron):
    first, conv, *rest = network.populations
    return replace(network, populations=(first, replace(conv, neuron=neuron), *rest))


def test_patches_are_gone_after_import():
    compat.load_netx()
    assert dataclasses.dataclass.__module__ == "dataclasses"
    stand_in = sys.modules.get("lava.lib.dl.slayer.object_detection")
    assert stand_in is None or stand_in.__file__  # a module without a file would be ours
    scipy = sys.modules["scipy"]
    assert scipy.signal is sys.modules["scipy.signal"] and scipy.signal.__file__


def test_lava_finds_what_its_own_convolutions_need():
    """scipy.signal is not imported with Lava, but when Lava first uses it."""
    compat.load_stock()
    import scipy.signal
    from lava.proc.conv import utils

    assert utils.signal.convolve2d is scipy.signal.convolve2d


def test_a_missing_lava_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(compat, "installed_version", lambda package: None)
    with pytest.raises(
        MissingPackageError, match=r"lava-nc is not installed; .* pip install .*lava-nc==0\.10\.0"
    ):
        compat.load_lava()


def test_a_lava_that_cannot_be_imported_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "lava.proc.conv.models", raising=False)
    monkeypatch.setitem(sys.modules, "lava.proc.conv", None)
    with pytest.raises(MissingPackageError, match="lava-nc is installed, but cannot be imported"):
        compat.load_lava()


def test_commands_without_lava(monkeypatch, netx_path, capfd):
    """`run` says how to install it; `verify` compares the other executions."""
    from mpbn_deploy.base import main
    from mpbn_deploy.run.__main__ import COMMAND as RUN
    from mpbn_deploy.verify.__main__ import COMMAND as VERIFY

    monkeypatch.setattr(compat, "installed_version", lambda package: None)
    assert main(RUN, [str(netx_path), "--samples", "2", "--backend", "lava"]) == 2
    err = capfd.readouterr().err
    assert "error: lava-nc is not installed; everything but Lava works" in err and "Traceback" not in err
    assert main(VERIFY, [str(netx_path), "--samples", "2", "--budget", "60"]) == 0
    out, err = capfd.readouterr()
    absent = "Lava's own models, lava-dl netx not run"
    assert f"executions that ran; {absent}" in " ".join(out.split()) and "Traceback" not in err
    assert main(RUN, [str(netx_path), "--samples", "2", "--backend", "emulator"]) == 0


def test_convolutions_in_many_groups():
    """Lava stores the number of groups in signed 8 bits: 128 would wrap to -128."""
    channels = 130
    synapse = Conv2d(weight=np.arange(-65, 65).reshape(channels, 1, 1, 1), groups=channels)
    threshold, bias = np.full((channels, 1, 1), 40), np.zeros((channels, 1, 1), int)
    neuron = Lif(threshold=threshold, bias=bias, decay_voltage=1024)
    network = IntNetwork(
        populations=(
            Population(name="input", shape=(channels, 2, 1), neuron=Input(minimum=0, maximum=3)),
            Population(name="maps", shape=(channels, 2, 1), neuron=neuron),
        ),
        connections=(Connection(source="input", target="maps", synapse=synapse),),
        timesteps=2,
        scales={},
    )
    inputs = inputs_for(network)
    assert_same_trace(simulate(network, inputs), lava_sim.run(network, inputs))
    assert not stock_reader_loads(network)


def test_depth_is_that_of_the_longest_path():
    assert pipeline_depths(int_residual()) == {"input": 0, "first": 1, "second": 2, "last": 3}
