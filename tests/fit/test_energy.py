"""Events and synaptic operations against brute force, and every sum of an estimate worked by hand."""

import json
from collections import Counter
from dataclasses import replace
from importlib import metadata
from io import StringIO

import numpy as np
import pytest
from networks import inputs_for, int_chain, int_loop, int_residual, int_windows
from rich.console import Console

from mpbn_deploy.base import OptionError, SimulationError
from mpbn_deploy.execute import reference
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fit import (
    core_loads,
    energy_table,
    estimate,
    measure,
    operations,
    quantity,
)
from mpbn_deploy.fit.activity import (
    Activity,
    CoreLoad,
    check_activity,
    multiplications,
    operations_per_neuron,
)
from mpbn_deploy.fit.energy import ORDINARY
from mpbn_deploy.formats.netx import read_netx
from mpbn_deploy.hardware import Cost, HardwareProfile, load_profile, profile_names
from mpbn_deploy.ir import Connection, Dense, Input, IntNetwork, Lif, Population, Readout, as_steps


def thinned(network, seed=7):
    """The same network with half of its weights zero, and all those of the first half of its sources."""
    generator = np.random.default_rng(seed)
    connections = []
    for connection in network.connections:
        weight = connection.synapse.weight * generator.integers(0, 2, size=connection.synapse.weight.shape)
        weight[:, : weight.shape[1] // 2] = 0
        connections.append(replace(connection, synapse=replace(connection.synapse, weight=weight)))
    return replace(network, connections=tuple(connections))


NETWORKS = {
    "chain": int_chain(),  # stride, padding, dilation
    "groups": int_chain(groups=2),
    "skips": int_residual(delay=1),
    "windows": int_windows(),  # silent borders
    "loop": int_loop(delays=(0, 1, 3)),
    "thin chain": thinned(int_chain()),
    "thin groups": thinned(int_chain(groups=2)),
    "thin windows": thinned(int_windows()),
    "thin loop": thinned(int_loop(delays=(0, 2))),
}
every_network = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())


# ---- brute force ------------------------------------------------------------------------------


def events(network, inputs):
    """Of each population, what it sent, [samples, timesteps, *shape], by the reference simulator."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    return {network.input.name: steps != 0, **simulate(network, inputs).spikes}


def kernel_meetings(synapse, source, target):
    """(source, target neuron, weight, its row) of all synapses of a convolution, by its definition."""
    (above, below), (left, right) = synapse.silent
    outputs, inputs, height, width = synapse.weight.shape
    for o, y, x in np.ndindex(*target):
        if not (above <= y < target[1] - below and left <= x < target[2] - right):
            continue
        group = o // (outputs // synapse.groups)
        for i, a, b in np.ndindex(inputs, height, width):
            channel = group * inputs + i
            row = synapse.stride[0] * y - synapse.padding[0] + synapse.dilation[0] * a
            column = synapse.stride[1] * x - synapse.padding[1] + synapse.dilation[1] * b
            if 0 <= row < source[1] and 0 <= column < source[2]:
                yield (channel, row, column), (o, y, x), synapse.weight[o, i, a, b], (channel, a, b)


def brute_force(network, inputs, zero_weights):
    """Synaptic operations per label and target neuron, on all samples together."""
    sent = {name: values.sum(axis=(0, 1)) for name, values in events(network, inputs).items()}
    shapes = {population.name: population.shape for population in network.populations}
    found = {c.label: np.zeros(shapes[c.target]) for c in network.connections}
    dense = {}
    for connection in network.connections:
        source, target, synapse = shapes[connection.source], shapes[connection.target], connection.synapse
        if isinstance(synapse, Dense):
            dense.setdefault(connection.label, []).append((connection, synapse.weight != 0))
            continue
        meetings = list(kernel_meetings(synapse, source, target))
        rows = {row for _, _, weight, row in meetings if weight}
        for where, there, weight, row in meetings:
            if weight or (zero_weights and row in rows):
                found[connection.label][there] += sent[connection.source][where]
    for label, several in dense.items():
        synapses = sum(mask.astype(int) for _, mask in several)
        for i, j in np.ndindex(*synapses.shape):
            many = max(synapses[i, j], 1) if zero_weights and synapses[:, j].any() else synapses[i, j]
            found[label].flat[i] += many * sent[several[0][0].source].flat[j]
    return found


@every_network
@pytest.mark.parametrize("steps", [False, True], ids=["still", "moving"])
def test_events_are_those_of_the_reference(network, steps):
    inputs = inputs_for(network, samples=5, steps=steps)
    activity = measure(network, inputs)
    assert (activity.samples, activity.timesteps) == (5, network.timesteps)
    expected = events(network, inputs)
    assert activity.spikes.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(activity.spikes[name], values.sum(axis=(0, 1)) / 5)
        np.testing.assert_array_equal(activity.counts(name), values.sum(axis=(0, 1)))
    assert any(activity.counts(p.name).any() for p in network.populations[1:])


@every_network
@pytest.mark.parametrize("zero_weights", [False, True], ids=["synapses", "stored"])
def test_operations_are_those_that_brute_force_counts(network, zero_weights):
    inputs = inputs_for(network, samples=3, seed=1)
    activity = measure(network, inputs)
    expected = brute_force(network, inputs, zero_weights)
    found = operations_per_neuron(network, activity, zero_weights=zero_weights)
    assert found.keys() == expected.keys()
    for label, values in expected.items():
        np.testing.assert_array_equal(found[label], values, err_msg=label)
    sums = operations(network, activity, zero_weights=zero_weights)
    assert sums == {label: values.sum() / 3 for label, values in expected.items()}


def test_stored_zeros_count_in_rows_that_hold_a_weight():
    network = tiny(weight=np.array([[3, 0, 0], [1, 5, 0]]))
    activity = measure(network, np.array([[1, 1, 1]]))  # each in two steps
    assert operations(network, activity) == {"in->out": 6.0}
    assert operations(network, activity, zero_weights=True) == {"in->out": 8.0}


def test_chunks_are_as_small_as_memory_demands_and_change_nothing(monkeypatch):
    network = int_residual()
    inputs = inputs_for(network, samples=7)
    whole = measure(network, inputs)
    seen = []

    def progress(parts):
        seen.append(len(parts))
        return parts

    monkeypatch.setattr(reference, "VALUES_AT_ONCE", 1)
    parts = measure(network, inputs, progress)
    assert seen == [7]
    for name, values in whole.spikes.items():
        np.testing.assert_array_equal(parts.spikes[name], values)


def halves(shape):
    """Two parts of a population: its first channels, and the rest."""
    return (slice(0, 1),), (slice(1, shape[0]),)


def test_core_loads_add_up_to_the_whole_network():
    network = int_residual()
    activity = measure(network, inputs_for(network, samples=4))
    parts = [[(p.name, where)] for p in network.populations[1:] for where in halves(p.shape)]
    parts = [parts[0] + parts[-1], *parts[1:-1]]  # two populations may share a core
    loads = core_loads(network, activity, parts)
    assert len(loads) == len(parts)
    assert sum(load.operations for load in loads) == sum(operations(network, activity).values())
    assert sum(load.neurons for load in loads) == 180
    assert sum(load.spikes for load in loads) == sum(
        activity.spikes[p.name].sum() for p in network.populations[1:]
    )
    assert loads[0].neurons == sum(np.empty((3, 4, 5))[part[1]].size for part in parts[0])


def test_multiplications_are_counted_as_people_do():
    assert multiplications(int_chain()) == 4 * 2 * 3 * 2 * (3 * 3) + 5 * 36 + 3 * 5
    assert multiplications(int_chain(groups=2)) == 4 * 1 * 3 * 2 * (3 * 3) + 5 * 36 + 3 * 5
    assert multiplications(int_loop(delays=(0, 1, 3))) == 5 * 6 + 5 * 5 + 4 * 5
    windows = int_windows()
    sizes = [
        c.synapse.weight.size * (4 - sum(c.synapse.silent[0])) * (5 - sum(c.synapse.silent[1]))
        for c in windows.connections[1:]
    ]
    assert multiplications(windows) == 3 * 2 * 3 * 3 * (8 * 6) + sum(sizes)


# ---- what is not an activity of this network --------------------------------------------------


def test_the_activity_of_another_network_is_refused_and_all_is_said():
    activity = measure(int_chain(), inputs_for(int_chain()))
    with pytest.raises(SimulationError) as caught:
        check_activity(activity, int_residual())
    text = str(caught.value)
    for part in (
        "4 time steps; the network has 3",
        "conv: no such population",
        "last: activity missing",
        "input: shape (2, 6, 5); the network has (2, 4, 5)",
    ):
        assert part in text
    with pytest.raises(SimulationError, match="does not match this network"):
        operations(int_residual(), activity)
    with pytest.raises(SimulationError, match="does not match this network"):
        estimate(int_residual(), CHIP, activity, cores=1)


@pytest.mark.parametrize("wrong", [-1.0, 4.5, np.nan])
def test_events_that_no_neuron_sends_are_refused(wrong):
    good = measure(int_chain(), inputs_for(int_chain()))
    values = np.array(good.spikes["dense"])
    values[2] = wrong
    with pytest.raises(SimulationError, match=r"dense: .* events per neuron; 4 time steps allow 0..4"):
        check_activity(replace(good, spikes={**good.spikes, "dense": values}), int_chain())


def test_no_samples_are_refused():
    with pytest.raises(SimulationError, match="no samples"):
        measure(int_chain(), np.zeros((0, 2, 6, 5), int))
    nothing = Activity(
        samples=0, timesteps=4, spikes={p.name: np.zeros(p.shape) for p in int_chain().populations}
    )
    with pytest.raises(SimulationError, match="0 samples; at least one is needed"):
        operations(int_chain(), nothing)


def test_wrong_inputs_are_refused():
    with pytest.raises(SimulationError, match="the network takes"):
        measure(int_chain(), np.zeros((2, 3), int))


# ---- the estimate -----------------------------------------------------------------------------


def cost(value, low=None, high=None, basis="published"):
    return Cost(value=value, low=low or value, high=high or value, source=f"source of {value}", basis=basis)


def chip(**costs):
    found = {key.replace("__", "."): value for key, value in costs.items()}
    return HardwareProfile(name="chip", title="chip", description="chip", limits={}, costs=found)


ALL_COSTS = {
    "energy__synaptic_operation": cost(20.0, 10.0, 40.0),
    "energy__neuron_update": cost(80.0, 50.0, 90.0),
    "energy__spike": cost(2.0),
    "energy__hop": cost(3.0, 2.0, 5.0),
    "energy__chip_crossing": cost(700.0),
    "power__static": cost(100.0, 90.0, 200.0, basis="measured"),
    "time__synaptic_operation": cost(4.0, 3.0, 5.0),
    "time__neuron_update": cost(8.0, 5.0, 9.0),
    "time__spike": cost(2.0, 1.0, 30.0),
    "time__barrier": cost(500.0, 100.0, 1800.0),
}
CHIP = chip(**ALL_COSTS)


def without(*keys):
    return chip(**{key: value for key, value in ALL_COSTS.items() if key not in keys})


def tiny(weight=None):
    """Three inputs to two neurons that fire in both steps whatever comes: the smallest network there is."""
    weight = np.array([[3, 0, -1], [1, 5, 2]]) if weight is None else weight
    neuron = Lif(threshold=np.array([-999, -999]), bias=np.zeros(2, int))
    return IntNetwork(
        populations=(
            Population(name="in", shape=(3,), neuron=Input(minimum=0, maximum=9)),
            Population(name="out", shape=(2,), neuron=neuron),
        ),
        connections=(Connection(source="in", target="out", synapse=Dense(weight=weight)),),
        timesteps=2,
        scales={},
    )


def tiny_activity():
    """Sent per sample: 2, 1 and 0 values of the inputs; so 2 * 2 + 1 * 1 operations, and four spikes."""
    return measure(tiny(), np.array([[5, 7, 0], [1, 0, 0]]))


def ends(found):
    return (found.value, found.low, found.high)


def test_one_population_worked_by_hand():
    report = estimate(tiny(), CHIP, tiny_activity(), cores=1, hops=6.0)
    counts = {item.name: item.count for item in report.dynamic.items}
    assert counts == {
        "synaptic operations": 5.0,
        "neuron updates": 4.0,
        "spikes": 4.0,
        "hops": 6.0,
        "chip crossings": 0.0,
    }
    assert report.operations == {"in->out": 5.0}
    assert ends(report.dynamic.total) == (
        5 * 20 + 4 * 80 + 4 * 2 + 6 * 3,
        5 * 10 + 4 * 50 + 4 * 2 + 6 * 2,
        5 * 40 + 4 * 90 + 4 * 2 + 6 * 5,
    )
    step = (2.5 * 4 + 2 * 8 + 2 * 2 + 500, 2.5 * 3 + 2 * 5 + 2 * 1 + 100, 2.5 * 5 + 2 * 9 + 2 * 30 + 1800)
    assert ends(report.step.total) == step
    assert ends(report.time) == tuple(2 * value for value in step)
    static = (100 * 2 * step[0], 90 * 2 * step[1], 200 * 2 * step[2])
    assert ends(report.static.total) == static
    together = zip(ends(report.dynamic.total), static, strict=True)
    assert ends(report.energy) == tuple(dynamic + still for dynamic, still in together)
    assert report.missing == ()
    assert (report.target, report.samples, report.timesteps) == ("chip", 2, 2)


def test_the_values_of_the_input_are_no_spikes_of_a_neuron():
    silent = replace(tiny().populations[1].neuron, threshold=np.array([999, 999]))
    network = replace(
        tiny(), populations=(tiny().populations[0], replace(tiny().populations[1], neuron=silent))
    )
    report = estimate(network, CHIP, measure(network, np.array([[5, 7, 1]])), cores=1, hops=0)
    assert {item.name: item.count for item in report.dynamic.items}["spikes"] == 0.0


def test_a_readout_is_updated_and_sends_nothing():
    network = replace(
        tiny(),
        populations=(
            tiny().populations[0],
            Population(name="out", shape=(2,), neuron=Readout(bias=np.zeros(2, int))),
        ),
    )
    report = estimate(network, CHIP, measure(network, np.array([[5, 7, 1]])), cores=1, hops=0)
    counts = Counter({item.name: item.count for item in report.dynamic.items})
    assert (counts["spikes"], counts["neuron updates"]) == (0.0, 4.0)


def test_what_was_not_counted_is_listed_and_left_out():
    report = estimate(tiny(), CHIP, tiny_activity(), cores=2, chips=2)
    assert report.missing == ("energy of hops: not counted", "energy of chip crossings: not counted")
    assert report.dynamic.total.value == 5 * 20 + 4 * 80 + 4 * 2
    counted = estimate(tiny(), CHIP, tiny_activity(), cores=2, chips=2, hops=0, crossings=3)
    assert counted.missing == ()
    assert counted.dynamic.total.value == 5 * 20 + 4 * 80 + 4 * 2 + 3 * 700
    assert counted.static.total.value == 2 * 100 * counted.time.value


SHORT_TIME = "energy of static power: the time is incomplete, so this is a lower bound"


@pytest.mark.parametrize(
    ("key", "missing"),
    [
        ("energy__synaptic_operation", ("energy of synaptic operations: no public figure",)),
        ("energy__hop", ("energy of hops: no public figure",)),
        ("power__static", ("energy of static power: no public figure",)),
        ("time__spike", (SHORT_TIME, "time of spikes: no public figure")),
        ("time__barrier", (SHORT_TIME, "time of barriers: no public figure")),
        ("energy__chip_crossing", ()),  # one chip: none are crossed, whatever it would cost
    ],
)
def test_what_has_no_public_figure_is_listed_and_left_out(key, missing):
    full = estimate(tiny(), CHIP, tiny_activity(), cores=1, hops=6)
    report = estimate(tiny(), without(key), tiny_activity(), cores=1, hops=6)
    assert report.missing == missing
    assert report.to_json()["complete"] == (not missing)
    for name in ("dynamic", "static", "step"):
        pairs = zip(getattr(full, name).items, getattr(report, name).items, strict=True)
        lost = [before for before, after in pairs if after.missing]
        total = getattr(report, name).total
        rest = sum(item.total.value for item in getattr(full, name).items if item not in lost)
        if name != "static" or not key.startswith("time"):  # static energy takes that long
            assert (total.value if total else 0) == rest


def test_of_a_chip_of_which_nothing_is_known_nothing_is_said():
    report = estimate(tiny(), chip(), tiny_activity(), cores=1, hops=1)
    assert report.time is None and report.step.total is None
    assert report.energy is None  # that no chips are crossed is no energy of a sample
    assert "energy of static power: no public figure" in report.missing
    assert len(report.missing) == 4 + 1 + 4
    powered = estimate(tiny(), chip(power__static=cost(5.0)), tiny_activity(), cores=1, hops=1)
    assert "energy of static power: the time is not known" in powered.missing


def test_a_chip_that_fixes_its_step_takes_that_long():
    slow = chip(**ALL_COSTS, time__step=cost(1e6))
    report = estimate(tiny(), slow, tiny_activity(), cores=1, hops=0, loads=[])
    assert (report.time.value, report.step_of) == (2e6, "fixed by the chip")
    assert report.static.total.value == 100 * 2e6


def test_a_step_waits_for_the_busiest_core():
    busy = [
        CoreLoad(operations=2.0, neurons=1, spikes=0.0),  # 1 * 4 + 1 * 8
        CoreLoad(operations=40.0, neurons=1, spikes=0.0),  # 20 * 4 + 8
        CoreLoad(operations=0.0, neurons=10, spikes=2.0),  # 10 * 8 + 1 * 2
    ]
    report = estimate(tiny(), CHIP, tiny_activity(), cores=3, hops=0, loads=busy)
    assert (report.step.total.value, report.step_of) == (588, "work of the busiest core")
    average = estimate(tiny(), CHIP, tiny_activity(), cores=2, hops=0)
    assert average.step_of == "work of an average core"
    assert average.step.total.value == (2.5 * 4 + 2 * 8 + 2 * 2) / 2 + 500


def test_the_number_of_cores_may_be_unknown():
    report = estimate(tiny(), CHIP, tiny_activity(), cores=None, hops=0)
    assert report.cores is None and report.to_json()["cores"] is None
    assert report.step.total.value == 2.5 * 4 + 2 * 8 + 2 * 2 + 500
    assert report.step_of == "work of all cores, whose number is not known"
    console = Console(width=160, file=StringIO())
    with console.capture() as captured:
        console.print(energy_table(report))
    assert "(cores: not known, chips: 1, samples: 2)" in captured.get()


@pytest.mark.parametrize("options", [{"cores": 0}, {"cores": 1, "chips": 0}])
def test_there_is_at_least_one_core_and_chip(options):
    with pytest.raises(OptionError, match="at least one of each"):
        estimate(tiny(), CHIP, tiny_activity(), **options)


def test_stored_zeros_can_be_paid_for():
    report = estimate(tiny(), CHIP, tiny_activity(), cores=1, hops=0, zero_weights=True)
    assert report.operations == {"in->out": 2 * 2 + 1 * 2}
    assert report.to_json()["zero_weights_counted"] is True


def test_the_same_network_on_ordinary_machines():
    report = estimate(tiny(), CHIP, tiny_activity(), cores=1)
    assert {item.name: ends(item.total) for item in report.ordinary} == {
        name: (6 * each.value, 6 * each.low, 6 * each.high) for name, each in ORDINARY.items()
    }
    assert ORDINARY["CPU"].value > ORDINARY["ARM"].value > ORDINARY["GPU"].value


def test_the_report_as_json():
    data = json.loads(json.dumps(estimate(tiny(), CHIP, tiny_activity(), cores=1).to_json()))
    assert data["energy_per_sample"]["low"] < data["energy_per_sample"]["value"]
    first = data["dynamic"]["items"][0]
    assert first["each"] == {
        "value": 20.0, "low": 10.0, "high": 40.0, "source": "source of 20.0", "basis": "published"
    }  # fmt: skip
    assert first["total"] == {"value": 100.0, "low": 50.0, "high": 200.0}
    assert data["missing"] == ["energy of hops: not counted"] and data["complete"] is False
    assert [item["name"] for item in data["ordinary_network"]] == list(ORDINARY)


def test_the_report_as_text_shows_ranges_basis_sources_and_what_is_missing():
    console = Console(width=160, file=StringIO())
    with console.capture() as captured:
        console.print(energy_table(estimate(tiny(), without("energy__spike"), tiny_activity(), cores=1)))
    text = captured.get()
    for part in (
        "chip: estimate (cores: 1, chips: 1, samples: 2)",
        "incomplete, see below",
        "50 pJ to 200 pJ",
        "no public figure",
        "excluded: energy of hops: not counted",
        "synaptic operations: source of 20.0",
        "100 mW",
        "measured",
        "ordinary network",
        "GPU",
    ):
        assert part in text
    with console.capture() as captured:
        console.print(energy_table(estimate(tiny(), chip(), tiny_activity(), cores=1, hops=0)))
    assert "unknown" in captured.get()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 J"), (0.3, "0.3 pJ"), (999, "999 pJ"), (999.6, "1 nJ"), (1234567, "1.23 µJ"), (2e15, "2,000 J")],
)
def test_quantities_are_readable(value, shown):
    assert quantity(value, "J", 1e-12) == shown


@pytest.mark.parametrize("name", ["loihi1", "loihi2"])
def test_profiles_know_all_but_the_crossing_of_chips(name):
    report = estimate(tiny(), load_profile(name), tiny_activity(), cores=1, hops=1, chips=2, crossings=1)
    assert report.missing == ("energy of chip crossings: no public figure",)
    derived = {item.cost.basis for item in report.dynamic.items[:3]}
    assert derived == ({"derived"} if name == "loihi2" else {"published"})


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_gives_a_report(name):
    report = estimate(tiny(), load_profile(name), tiny_activity(), cores=1, hops=1)
    data = json.loads(json.dumps(report.to_json()))
    assert data["target"] == name
    figures = [item for sums in (report.dynamic, report.static, report.step) for item in sums.items]
    assert all((item.total is None) == (item.missing is not None) for item in figures)
    assert all(
        ends(item.total)[1] <= ends(item.total)[0] <= ends(item.total)[2] for item in figures if item.total
    )


# ---- against a chip ---------------------------------------------------------------------------


def test_operations_are_those_that_loihi2_counted():
    """lava-dl netx/pilotnet_snn/benchmark.ipynb, "Activity Results": synaptic operations of one core of each
    convolution in 10,000 steps, read off the figure. The neurons of its input were silent.
    """
    try:
        files = metadata.files("lava-dl") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [file.locate() for file in files if str(file).endswith("gts/pilotnet_lif/network.net")]
    if not found or not found[0].exists():
        pytest.skip("lava-dl with its recorded networks is not installed")
    network = read_netx(found[0], timesteps=16)
    activity = measure(network, np.zeros((1, *network.input.shape), int))
    first_cores = {"layer2": (36, 15, 4), "layer3": (48, 7, 8), "layer4": (64, 4, 8), "layer5": (64, 2, 16)}
    parts = [[(name, tuple(map(slice, tile)))] for name, tile in first_cores.items()]
    counted = [load.operations / 16 * 10_000 for load in core_loads(network, activity, parts)]
    assert [f"{count:.2e}" for count in counted] == ["1.31e+09", "1.51e+09", "5.26e+08", "5.11e+08"]


def test_host_and_barriers_are_terms_with_or_without_a_figure():
    """Without a public figure they are listed beside the sum; a profile that has one adds them."""
    network = int_chain()
    activity = measure(network, inputs_for(network))
    plain = load_profile("loihi2")
    report = estimate(network, plain, activity, cores=3, chips=2, crossings=0.0)
    sent = activity.counts(network.input.name).sum() / activity.samples
    assert {item.name: (item.count, item.missing) for item in report.outside} == {
        "input from the host": (sent, "no public figure"),
        "output to the host": (network.output.size, "no public figure"),
        "barriers": (2 * network.timesteps, "no public figure"),
    }
    each = Cost(value=3.0, low=2.0, high=4.0, source="test", basis="derived")
    figures = {"energy.host_message": each, "energy.barrier": each}
    known = estimate(
        network, replace(plain, costs={**plain.costs, **figures}), activity, cores=3, chips=2, crossings=0.0
    )
    more = 3.0 * (sent + network.output.size + 2 * network.timesteps)
    assert known.outside == ()
    assert known.dynamic.total.value == pytest.approx(report.dynamic.total.value + more)
    assert known.dynamic.missing == report.dynamic.missing
