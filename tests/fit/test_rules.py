"""Every design rule is broken by one network and kept by another; counts of synapses are exact."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import (
    int_chain,
    int_loop,
    int_residual,
    int_sigma_delta,
    int_windows,
    int_xylo,
    spiking_network,
    stepped,
)
from properties import examples

from mpbn_deploy.base import ProfileError
from mpbn_deploy.fit import fit
from mpbn_deploy.fit.activity import updates
from mpbn_deploy.fit.rules import RULES, Design
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import Allowed, HardwareProfile, Limit, load_profile, profile_names
from mpbn_deploy.hardware.place import place
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
    Sigma,
    SigmaDelta,
    SoftLif,
    connection_fan_in,
    connection_fan_out,
    fan_in,
    fan_out,
    firing,
    output_shape,
    with_relays,
)
from mpbn_deploy.quantize import quantize


def chip(placement="unknown", **known):
    """A profile that knows just these: `layer__strides=[1, 2]` is layer.strides."""
    entries = {name.replace("__", "."): value for name, value in known.items()}
    told = {"source": "a test", "basis": "derived"}
    return HardwareProfile(
        name="chip",
        title="A chip",
        description="For one test.",
        placement=placement,
        limits={key: Limit(value=v, **told) for key, v in entries.items() if not isinstance(v, list)},
        lists={key: Allowed(values=tuple(v), **told) for key, v in entries.items() if isinstance(v, list)},
    )


def findings(network, profile):
    design = Design(network=network, profile=profile, placement=place(network, profile))
    return [finding for rule in RULES for finding in rule(design)]


def broken(network, profile):
    """(rule, where) of each error."""
    return [(f.rule, f.where) for f in findings(network, profile) if f.severity == "error"]


def warned(network, profile):
    return [f.rule for f in findings(network, profile) if f.severity == "warning"]


def unchecked(network, profile):
    """The keys that were missed."""
    messages = [f.message for f in findings(network, profile) if f.severity == "not checked"]
    lists = [message.split(" state ")[1].split(" (")[0] for message in messages if " state " in message]
    return [key.rstrip(".") for keys in lists for key in keys.split(", ")]


def features(sizes=(3, 4, 2), *, timesteps=2, maximum=1, connections=(), weight=1, **neuron):
    """Fully connected populations "p0" (the input), "p1", ...; all but the last fire."""
    neuron = {"threshold": 5, "bias": 0, "decay_voltage": 0} | neuron
    arrays = ("threshold", "bias")

    def lif(size):
        values = {name: np.broadcast_to(np.array(neuron[name]), (size,)) for name in arrays}
        return Lif(**(neuron | values))

    names = [f"p{index}" for index in range(len(sizes))]
    first = Population(name="p0", shape=(sizes[0],), neuron=Input(minimum=0, maximum=maximum))
    hidden = [
        Population(name=n, shape=(s,), neuron=lif(s)) for n, s in zip(names[1:-1], sizes[1:-1], strict=True)
    ]
    last = Population(name=names[-1], shape=(sizes[-1],), neuron=Readout(bias=np.zeros(sizes[-1], int)))
    chain = [
        Connection(source=a, target=b, synapse=Dense(weight=np.full((m, n), weight)))
        for a, b, n, m in zip(names, names[1:], sizes, sizes[1:], strict=False)
    ]
    return IntNetwork(
        populations=(first, *hidden, last),
        connections=(*chain, *connections),
        timesteps=timesteps,
        scales={},
    )


def soft(network, subtrahend=5):
    """The network with soft resets that subtract the same number everywhere."""

    def softened(population):
        hard = population.neuron
        numbers = {name: getattr(hard, name) for name in ("threshold", "bias", "decay_voltage")}
        return population.with_neuron(SoftLif(subtrahend=np.full_like(hard.threshold, subtrahend), **numbers))

    populations = {population.name: softened(population) for population in firing(network)}
    return replace(network, populations=tuple(populations.get(p.name, p) for p in network.populations))


def stepwise(network):
    """The network with thresholds that rise by one with each time step."""

    def rising(population):
        static = population.neuron
        steps = np.arange(network.timesteps)[:, None]
        rows = {"threshold": static.threshold + steps, "bias": static.bias + 0 * steps}
        return population.with_neuron(Lif(per_step=True, decay_voltage=static.decay_voltage, **rows))

    populations = {population.name: rising(population) for population in firing(network)}
    return replace(network, populations=tuple(populations.get(p.name, p) for p in network.populations))


def changes(state_exponent):
    """Sigma-delta neurons "p1" whose messages are those of 25 bits, divided by 2**state_exponent."""
    network = features()
    neuron = SigmaDelta(
        threshold=np.zeros(4, int), bias=np.zeros(4, int), message_exponent=0, state_exponent=state_exponent
    )
    p0, p1, p2 = network.populations
    return replace(network, populations=(p0, p1.with_neuron(neuron), p2.with_neuron(Sigma())))


def maps(shape=(2, 6, 6), channels=4, kernel=(3, 3), *, dense=0, **convolution):
    """ "in" -> one convolution, "maps" -> if wanted, "out", fully connected."""
    groups = convolution.get("groups", 1)
    synapse = Conv2d(weight=np.ones((channels, shape[0] // groups, *kernel), int), **convolution)
    made = output_shape(synapse, shape)
    flat = (channels, 1, 1)
    neuron = Lif(threshold=np.full(flat, 5), bias=np.zeros(flat, int), decay_voltage=0)
    populations = [
        Population(name="in", shape=shape, neuron=Input(minimum=0, maximum=1)),
        Population(name="maps", shape=made, neuron=neuron),
    ]
    connections = [Connection(source="in", target="maps", synapse=synapse)]
    if dense:
        weight = np.ones((dense, int(np.prod(made))), int)
        populations.append(Population(name="out", shape=(dense,), neuron=Readout(bias=np.zeros(dense, int))))
        connections.append(Connection(source="maps", target="out", synapse=Dense(weight=weight)))
    return IntNetwork(populations=tuple(populations), connections=tuple(connections), timesteps=2, scales={})


def extra(source, target, rows, columns, **options):
    return Connection(
        source=source, target=target, synapse=Dense(weight=np.ones((rows, columns), int)), **options
    )


# ---- each rule, broken and kept ---------------------------------------------------------------

RELAYS = with_relays(maps(dense=2))
CASES = [
    # what the profile knows, the rule, where it is broken, a network that breaks it, one that keeps it
    (
        {"formats__weight_bits": 4},
        "weights_fit_format",
        "p0->p1",
        features((3, 4), weight=9),
        features((3, 4), weight=7),
    ),
    (
        {"formats__weight_bits": 4, "formats__input_weight_bits": 5},
        "weights_fit_format",
        "p1->p2",
        features((3, 4, 2), weight=9),
        features((3, 4), weight=9),
    ),
    (
        {"formats__threshold_minimum": 1},
        "thresholds_fit_format",
        "p1",
        features(threshold=0),
        features(threshold=1),
    ),
    (
        {"formats__threshold_maximum": 9},
        "thresholds_fit_format",
        "p1",
        features(threshold=10),
        features(threshold=9),
    ),
    ({"formats__bias_mantissa_bits": 4}, "biases_fit_format", "p1", features(bias=8), features(bias=-8)),
    (
        {"formats__bias_exponent_maximum": 6, "formats__bias_exponent_minimum": 6},
        "biases_fit_format",
        "p1",
        features(bias_exponent=5),
        features(bias_exponent=6),
    ),
    (
        {"formats__decay_shift_maximum": 3},
        "decays_are_shifts",
        "p1",
        features((3, 4, 2), decay_voltage=256),
        None,  # the readout, which never forgets, breaks it too: see below
    ),
    (
        {"formats__state_bits": 9},
        "states_stay_in_width",
        "p1",
        features((5, 1, 1), threshold=0, timesteps=1),  # 5 * 64 > 255
        features((3, 1, 1), threshold=0, timesteps=1),  # 3 * 64 = 192
    ),
    ({"formats__message_bits": 1}, "input_values_fit_message", "p0", features(maximum=2), features()),
    ({"formats__message_bits": 1}, "messages_of_relays_fit", "maps_pool", RELAYS, maps(dense=2)),
    (
        {"network__input_minimum": 0, "network__input_maximum": 15},
        "input_values_fit_message",
        "p0",
        features(maximum=16),
        features(maximum=15),
    ),
    (
        {"formats__delay_maximum": 1},
        "delays_fit_format",
        "p0->p2",
        features(connections=[extra("p0", "p2", 2, 3, delay=2)]),
        features(connections=[extra("p0", "p2", 2, 3, delay=1)]),
    ),
    ({"formats__membrane": 0}, "membranes_are_supported", "network", features(), features(timesteps=1)),
    ({"formats__leak": 0}, "leaks_are_supported", "network", features(decay_voltage=1), features()),
    (
        {"formats__current": 0},
        "synaptic_currents_are_supported",
        "network",
        features(decay_current=9),
        features(),
    ),
    ({"formats__reset_to_zero": 0}, "reset_to_zero_is_supported", "network", features(), features((3, 2))),
    (
        {"formats__sigma_delta": 0},
        "sigma_delta_neurons_are_supported",
        "network",
        int_sigma_delta(),
        features(),
    ),
    (
        {"formats__message_bits": 14},
        "messages_of_changes_fit",
        "p1",
        changes(state_exponent=10),
        changes(state_exponent=11),
    ),
    (
        {"formats__step_parameters": 0},
        "parameters_are_constant_in_time",
        "network",
        stepwise(features()),
        features(),
    ),
    ({"formats__soft_reset": 0}, "soft_resets_are_supported", "network", soft(features()), features()),
    (
        {"formats__step_parameters": 0},
        "parameters_are_constant_in_time",
        "network",
        stepped(features()),
        features(),
    ),
    ({"formats__subtrahend": 0}, "subtrahends_are_thresholds", "p1", soft(features(), 7), soft(features())),
    ({"layer__dense": 0}, "dense_layers_are_supported", "p0->p1", features((3, 2)), maps()),
    ({"layer__convolution": 0}, "convolutions_are_supported", "in->maps", maps(), features()),
    (
        {"layer__kernel_sizes": [1, 3]},
        "kernel_sizes_are_allowed",
        "in->maps",
        maps(kernel=(3, 2)),
        maps(kernel=(3, 1)),
    ),
    ({"layer__kernel_square": 1}, "kernels_are_square", "in->maps", maps(kernel=(3, 2)), maps(kernel=(2, 2))),
    ({"layer__strides": [1, 3]}, "strides_are_allowed", "in->maps", maps(stride=(1, 2)), maps(stride=(1, 3))),
    (
        {"layer__padding_maximum": 1},
        "paddings_are_small_enough",
        "in->maps",
        maps(padding=(0, 2)),
        maps(padding=(1, 1)),
    ),
    (
        {"layer__dilation_maximum": 1},
        "dilations_are_small_enough",
        "in->maps",
        maps(dilation=(2, 1)),
        maps(),
    ),
    ({"layer__groups_maximum": 1}, "groups_are_few_enough", "in->maps", maps(groups=2), maps()),
    (
        {"layer__input_side_maximum": 6},
        "input_maps_are_small_enough",
        "in->maps",
        maps((2, 5, 7)),
        maps((2, 6, 6)),
    ),
    (
        {"layer__output_side_maximum": 4},
        "output_maps_are_small_enough",
        "maps",
        maps((2, 6, 7)),
        maps((2, 6, 6), dense=9),
    ),
    (
        {"layer__channels_maximum": 4},
        "channels_are_few_enough",
        "maps",
        maps(channels=5),
        maps(channels=4, dense=9),
    ),
    (
        {"layer__fan_in_maximum": 3},
        "fan_ins_are_small_enough",
        "p2",
        features((3, 4, 2)),
        features((3, 3, 2)),
    ),
    (
        {"layer__fan_out_maximum": 3},
        "fan_outs_are_small_enough",
        "p1",
        features((3, 4, 4)),
        features((3, 4, 3)),
    ),
    (
        {"layer__dense_inputs_maximum": 4},
        "dense_inputs_are_few_enough",
        "p1->p2",
        features((4, 5, 2)),
        features((4, 4, 2)),
    ),
    (
        {"layer__targets_maximum": 1},
        "targets_are_few_enough",
        "p1",
        features((3, 4, 4, 2), connections=[extra("p1", "p3", 2, 4)]),
        features((3, 4, 4, 2), connections=[extra("p1", "p2", 4, 4), extra("p0", "p3", 2, 3)]),
    ),
    (
        {"layer__thresholds": 2},
        "distinct_thresholds_fit_layer",
        "p1",
        features(threshold=[1, 2, 3, 1]),
        features(threshold=[1, 2, 1, 2]),
    ),
    (
        {"layer__recurrence": 0},
        "network_has_no_recurrence",
        "p2->p1",
        features((3, 4, 4, 2), connections=[extra("p2", "p1", 4, 4, delay=1)]),
        features((3, 4, 4, 2), connections=[extra("p1", "p3", 2, 4, delay=1)]),
    ),
    (
        {"network__inputs_maximum": 3},
        "inputs_are_few_enough",
        "network",
        features((4, 4, 2)),
        features((3, 4, 2)),
    ),
    (
        {"network__hidden_maximum": 8},
        "hidden_neurons_are_few_enough",
        "network",
        features((3, 4, 5, 9)),
        features((9, 4, 4, 9)),
    ),
    (
        {"network__outputs_maximum": 2},
        "outputs_are_few_enough",
        "network",
        features((3, 4, 3)),
        features((3, 4, 2)),
    ),
    (
        {"network__input_reach": 4},
        "neurons_reading_inputs_are_few_enough",
        "network",
        features((3, 4, 4, 2), connections=[extra("p0", "p2", 4, 3)]),
        features((3, 4, 4, 2), connections=[extra("p0", "p3", 2, 3), extra("p0", "p1", 4, 3)]),
    ),
    (
        {"network__output_reach": 4},
        "neurons_read_by_outputs_are_few_enough",
        "network",
        features((3, 1, 4, 2), connections=[extra("p1", "p3", 2, 1)]),
        features((3, 9, 4, 2), connections=[extra("p0", "p3", 2, 3), extra("p2", "p3", 2, 4)]),
    ),
    (
        {"network__synapses_maximum": 16},
        "synapses_are_few_enough",
        "network",
        features((3, 4, 5, 2)),
        features((9, 4, 4, 9)),
    ),
    (
        {"chip__flash_bytes": 2500},
        "program_fits_flash",
        "network",
        features((9, 40, 40, 9)),
        features((3, 4, 5, 2)),
    ),
    ({"chip__ram_bytes": 100}, "program_fits_memory", "network", features((9, 400, 9)), features((3, 4, 2))),
]


@pytest.mark.parametrize(
    ("known", "rule", "where", "wrong", "right"), CASES, ids=[f"{case[1]} {case[0]}" for case in CASES]
)
def test_a_rule_is_broken_and_kept(known, rule, where, wrong, right):
    profile = chip(**known)
    assert (rule, where) in broken(wrong, profile)
    assert {name for name, _ in broken(wrong, profile)} == {rule}
    assert right is None or broken(right, profile) == []
    (finding, *_) = [f for f in findings(wrong, profile) if f.rule == rule and f.severity == "error"]
    assert finding.message.startswith((f"{where}: ", f"{where} (")) and "chip" in finding.message
    assert "(a test)" in finding.message  # the source of the limit
    assert len(finding.message.split("(a test)")[1]) > 20  # and what to do


def test_every_rule_but_those_of_cores_is_in_the_cases():
    """Those of cores are in test_fit.py, that of relays in quantize/test_pooling_choice.py."""
    of_cores = {"layers_fit_on_cores", "distinct_thresholds_fit_core", "cores_fit_on_chip"}
    of_cores |= {"thresholds_per_channel_work_on_the_chip"}
    warnings = {"time_steps_are_supported", "states_are_integers", "decay_rounding_matches"}
    warnings |= {"sums_of_changes_stay_in_width"}
    warnings |= {"no_spike_is_dropped_between_columns"}
    cases = {case[1] for case in CASES}
    elsewhere = {"decays_fit_format", "messages_of_relays_fit", "network_has_the_form_of_the_chip"}
    elsewhere |= {"memories_fit_the_fpga"}  # execute/test_verilog.py
    assert {rule.__name__ for rule in RULES} == cases | of_cores | warnings | elsewhere


def test_networks_of_xylo_have_its_form():
    form, network = "network_has_the_form_of_the_chip", int_xylo()
    assert broken(network, load_profile("xylo-a3")) == []
    assert (form, "network") in broken(network, load_profile("loihi2"))
    at_once = tuple(replace(c, delay=0) if c.target == "output" else c for c in network.connections)
    late = replace(network, connections=at_once)
    assert [(form, "network")] * 2 == broken(late, load_profile("xylo-a3"))


def test_a_leak_of_a_power_of_two_is_a_shift():
    profile = chip(formats__decay_shift_maximum=3)
    assert ("decays_are_shifts", "p1") not in broken(features(decay_voltage=512), profile)
    assert ("decays_are_shifts", "p1") in broken(features(decay_voltage=513), profile)
    assert ("decays_are_shifts", "p2") in broken(features(), profile)  # a readout that never forgets
    fine = chip(formats__decay_shift_maximum=15)  # 4096 >> 13 is nothing any more, and no decay
    assert ("decays_are_shifts", "p1") in broken(features(decay_voltage=0), fine)


def test_weight_exponents_are_checked_at_the_end_that_is_known():
    def exponent(value):
        network = features((3, 4))
        (connection,) = network.connections
        synapse = replace(connection.synapse, exponent=value)
        return replace(network, connections=(replace(connection, synapse=synapse),))

    low, high = chip(formats__weight_exponent_minimum=0), chip(formats__weight_exponent_maximum=0)
    assert broken(exponent(-1), low) == [("weights_fit_format", "p0->p1")]
    assert broken(exponent(3), low) == []
    assert broken(exponent(1), high) == [("weights_fit_format", "p0->p1")]
    assert broken(exponent(-1), high) == []
    assert "formats.weight_exponent_maximum" in unchecked(exponent(0), low)


def test_a_dense_layer_of_a_chip_of_convolutions_has_the_whole_map_as_its_kernel():
    network = maps((2, 8, 8), kernel=(2, 2), dense=3)  # maps of 7 x 7
    assert broken(network, chip(layer__kernel_sizes=[2])) == []
    assert broken(network, chip("layers", layer__kernel_sizes=[2])) == [
        ("kernel_sizes_are_allowed", "maps->out")
    ]
    assert broken(features((3, 9, 2)), chip("layers", layer__kernel_sizes=[1])) == []
    assert broken(features((3, 9, 2)), chip("layers", layer__channels_maximum=8)) == [
        ("channels_are_few_enough", "p1")
    ]


def test_a_population_that_feeds_itself_runs_in_a_circle():
    profile = chip(layer__recurrence=0)
    assert broken(int_loop(), profile) == [("network_has_no_recurrence", "first->first")]
    assert broken(int_loop(loop=False), profile) == []
    assert broken(int_loop(), chip(layer__recurrence=1)) == []


def test_in_a_single_time_step_nothing_can_leak_or_last():
    profile = chip(formats__leak=0, formats__current=0, formats__membrane=0)
    assert broken(features(timesteps=1, decay_voltage=9, decay_current=9), profile) == []
    assert len(broken(features(timesteps=2, decay_voltage=9, decay_current=9), profile)) == 3


def test_what_runs_otherwise_is_a_warning_and_no_error():
    assert warned(features(), chip(formats__time_steps=0)) == ["time_steps_are_supported"]
    assert warned(features(), chip(formats__digital=0)) == ["states_are_integers"]
    assert warned(features(), chip(formats__decay_shift_maximum=4)) == ["decay_rounding_matches"]
    assert warned(features(), chip(formats__time_steps=1, formats__digital=1)) == []
    wide = chip(layer__exact_width_maximum=maps().input.shape[2] - 1)
    assert warned(maps(), wide) == ["no_spike_is_dropped_between_columns"]
    assert warned(maps(), chip(layer__exact_width_maximum=maps().input.shape[2])) == []
    assert broken(features(), chip(formats__time_steps=0, formats__digital=0)) == []


# ---- what is not checked ----------------------------------------------------------------------


def test_of_limits_that_only_some_chips_have_one_is_missed_only_beside_another():
    nothing = unchecked(maps(), chip())
    assert not [key for key in nothing if key.startswith(("layer.", "network."))]
    assert "formats.weight_bits" in nothing
    beside = unchecked(maps(), chip(layer__strides=[1]))
    assert [key for key in beside if key.startswith("layer.")] == [
        "layer.kernel_sizes",
        "layer.padding_maximum",
        "layer.dilation_maximum",
        "layer.groups_maximum",
        "layer.input_side_maximum",
        "layer.output_side_maximum",
        "layer.channels_maximum",
    ]
    assert "layer.fan_out_maximum" in unchecked(maps(), chip(layer__fan_in_maximum=9))
    assert "network.outputs_maximum" in unchecked(maps(), chip(network__inputs_maximum=99))


def test_kernels_are_not_missed_in_a_network_without_convolutions():
    assert not [key for key in unchecked(features(), chip(layer__strides=[1])) if key.startswith("layer.")]


@pytest.mark.parametrize(
    ("known", "silent"),
    [
        ({"formats__leak": 0}, "formats.decay_bits"),
        ({"formats__decay_shift_maximum": 4}, "formats.decay_bits"),
        ({"formats__membrane": 0}, "formats.state_bits"),
        ({"formats__digital": 0}, "formats.threshold_maximum"),
        ({"core__axon_types": 4}, "formats.weight_bits"),
        ({"network__input_minimum": 0, "network__input_maximum": 1}, "formats.message_bits"),
    ],
)
def test_a_limit_that_cannot_apply_is_not_missed(known, silent):
    assert silent in unchecked(features(), chip())
    assert silent not in unchecked(features(), chip(**known))


def test_where_nobody_knows_how_cores_are_filled_that_is_said_once():
    (message,) = [f.message for f in findings(features(), chip()) if f.rule == "layers_fit_on_cores"]
    assert message == "not checked: whether layers fit on cores, because chip describes no cores."
    (message,) = [
        f.message for f in findings(features(), chip(chip__cores=9)) if f.rule == "layers_fit_on_cores"
    ]
    why = "because it is undocumented how chip fills its cores"
    assert message == f"not checked: whether layers fit on cores, {why}."


def test_what_a_placement_finds_impossible_is_an_error():
    """A neuron reads three inputs, each through an axon of its core's crossbar."""
    profile = chip("crossbar", core__neurons=4, core__input_axons=3, chip__cores=2, core__thresholds=9)
    assert broken(features((3, 3, 2)), profile) == []
    assert broken(features((3, 4, 2)), profile) == [("layers_fit_on_cores", "p2")]  # four inputs
    assert broken(features((3, 3, 5)), profile) == [("cores_fit_on_chip", "network")]  # 5 = 4 + 1 outputs


def test_what_cannot_be_checked_of_a_rule_is_said_in_one_line():
    def said(profile):
        return [f.message for f in findings(features(), profile) if f.rule == "weights_fit_format"]

    keys = [f"formats.weight_{name}" for name in ("bits", "exponent_minimum", "exponent_maximum")]
    why = "because the chip profile does not state"
    assert said(chip()) == [f"not checked: whether weights fit format, {why} {', '.join(keys)}."]
    assert said(chip(formats__weight_bits=8)) == [
        f"not checked: whether weights fit format (in part), {why} {keys[1]}, {keys[2]}."
    ]
    (single,) = said(chip(formats__weight_bits=8, formats__weight_exponent_minimum=0))
    assert single.startswith(f"not checked: whether weight exponents fit format, {why} {keys[2]} (")


@pytest.mark.parametrize(
    ("kind", "missed"),
    [
        ("crossbar", ["core.neurons", "core.input_axons"]),
        ("layers", ["core.kernel_words", "core.neuron_words", "core.bias_words"]),
        ("whole", ["core.neurons"]),
        ("unknown", []),
    ],
)
def test_only_limits_of_its_kind_of_core_are_missed(kind, missed):
    found = unchecked(features(), chip(kind))
    assert [key for key in found if key.startswith("core.") and key != "core.thresholds"] == missed


def test_a_resource_that_only_some_cores_limit_is_checked_where_it_is_counted():
    """Three axons and their synapses, on the core of one readout neuron."""
    loihi2, network = load_profile("loihi2"), features((2, 3, 1))
    (out,) = [layer for layer in place(network, loihi2).layers if layer.name == "p2"]

    def limited(words):
        limit = Limit(value=words, source="a test", basis="derived")
        return replace(loihi2, limits={**loihi2.limits, "core.input_words": limit})

    assert broken(network, limited(out.use["input_words"])) == []
    found = broken(network, limited(out.use["input_words"] - 1))
    assert ("layers_fit_on_cores", "p2") in found


# ---- the chips that come with the package -----------------------------------------------------


@pytest.mark.parametrize("name", profile_names())
@pytest.mark.parametrize("network", [features(), maps(dense=3), int_loop(), int_residual(), int_windows()])
def test_every_chip_judges_every_network(name, network):
    """No rule stumbles, and every message begins with where it is, or says that it was not checked."""
    for finding in findings(network, load_profile(name)):
        begin = (
            ("not checked: ",)
            if finding.severity == "not checked"
            else (f"{finding.where}: ", f"{finding.where} (")
        )
        assert finding.message.startswith(begin)
        assert finding.message.endswith(".")


@pytest.mark.parametrize("name", ["loihi1", "loihi2", "unbounded"])
def test_reports_of_these_miss_no_limit_of_layers_or_formats(name):
    missed = unchecked(int_chain(), load_profile(name))
    assert [key for key in missed if not key.startswith("core.")] == []


def rules_of(network, name):
    return {rule for rule, _ in broken(network, load_profile(name))}


LEAKY = features((3, 4, 2), decay_voltage=3072)


def test_the_leak_of_the_paper_is_no_leak_of_truenorth_or_speck():
    for name in ("truenorth", "speck"):
        assert "leaks_are_supported" in rules_of(LEAKY, name)
        assert "leaks_are_supported" not in rules_of(features(), name)


def test_xylo_subtracts_and_shifts():
    assert {"reset_to_zero_is_supported", "decays_are_shifts"} <= rules_of(LEAKY, "xylo-a3")
    assert warned(LEAKY, load_profile("xylo-a3")) == ["decay_rounding_matches"]
    assert "inputs_are_few_enough" in rules_of(features((17, 4, 2)), "xylo-a3")


def test_sigma_delta_networks_are_for_chips_with_graded_messages():
    """Loihi 2 has run one; chips of binary spikes cannot; what nobody says of others is not checked."""
    network = int_sigma_delta()
    assert broken(network, load_profile("loihi2")) == []
    assert ("messages_of_changes_fit", "maps") in broken(network, load_profile("loihi1"))
    unknown = [f.rule for f in findings(network, load_profile("spinnaker2")) if f.severity == "not checked"]
    assert "sigma_delta_neurons_are_supported" in unknown
    silent = [f.rule for f in findings(LEAKY, load_profile("spinnaker2")) if f.severity == "not checked"]
    assert "sigma_delta_neurons_are_supported" not in silent


def test_sums_of_changes_that_are_not_proved_to_fit_are_a_warning():
    """No error: the bounds of deep networks are wide, and every execution checks its own sums."""
    network = changes(state_exponent=6)
    assert warned(network, chip(formats__state_bits=24)) == []
    assert warned(network, chip(formats__state_bits=2)) == ["sums_of_changes_stay_in_width"]
    assert broken(network, chip(formats__state_bits=2)) == []


def test_soft_resets_are_for_the_chips_that_have_them():
    """Xylo has nothing else; what nobody says of the others is not checked."""
    own, other = soft(LEAKY), soft(LEAKY, -3)
    assert not {"reset_to_zero_is_supported", "subtrahends_are_thresholds"} & rules_of(own, "xylo-a3")
    assert "subtrahends_are_thresholds" in rules_of(other, "xylo-a3")
    for name in ("loihi2", "unbounded"):
        assert rules_of(other, name) == rules_of(LEAKY, name)
    unknown = [f.rule for f in findings(other, load_profile("tianjic")) if f.severity == "not checked"]
    assert {"soft_resets_are_supported", "subtrahends_are_thresholds"} <= set(unknown)
    silent = [f.rule for f in findings(LEAKY, load_profile("tianjic")) if f.severity == "not checked"]
    assert not {"soft_resets_are_supported", "subtrahends_are_thresholds"} & set(silent)


def test_a_soft_reset_takes_two_compartments_of_loihi1_and_one_neuron_of_loihi2():
    hard = features((4, 600, 2))
    for name, expected in (("loihi1", (1, 2)), ("loihi2", (1, 1))):
        profile = load_profile(name)
        placements = [place(network, profile).layers[0] for network in (hard, soft(hard))]
        assert tuple(layer.cores for layer in placements) == expected
    profile = load_profile("loihi1")
    one, two = (place(network, profile).layers[0].use for network in (features(), soft(features())))
    assert (one["neurons"], two["neurons"]) == (4, 8)
    assert two["input_axons"] == one["input_axons"] + 4
    assert two["synapse_words"] == one["synapse_words"] + 4
    assert [updates(soft(hard).layers[0].neuron, load_profile(n)) for n in ("loihi1", "loihi2")] == [2, 1]


def test_akida_has_no_membrane_and_wider_weights_in_its_first_layer():
    one_step = maps(dense=3, padding=(1, 1))
    assert rules_of(one_step, "akida1000") == {"membranes_are_supported"}
    assert rules_of(replace(one_step, timesteps=1), "akida1000") == set()
    assert rules_of(features((3, 4), weight=127, timesteps=1), "akida1000") == set()
    assert rules_of(features((3, 4, 2), weight=9, timesteps=1), "akida1000") == {"weights_fit_format"}


def test_speck_has_one_threshold_per_layer_and_no_time_steps():
    several = features((3, 4, 2), threshold=[1, 2, 3, 4])
    assert "distinct_thresholds_fit_layer" in rules_of(several, "speck")
    assert warned(several, load_profile("speck")) == ["time_steps_are_supported"]
    assert "network_has_no_recurrence" in rules_of(int_loop(), "speck")


def test_nothing_is_bit_exact_on_analogue_circuits():
    assert warned(LEAKY, load_profile("brainscales2")) == ["time_steps_are_supported", "states_are_integers"]


def test_any_network_within_the_formats_of_lava_is_fine_where_nothing_bounds_it():
    assert rules_of(LEAKY, "unbounded") == set()
    assert rules_of(features((3, 4, 2), weight=129), "unbounded") == {"weights_fit_format"}


def test_a_network_is_quantized_without_a_chip_and_then_put_to_the_rules_of_one():
    folded = fold(trace(spiking_network()))
    network = quantize(folded, load_profile("unbounded")).network
    assert rules_of(network, "unbounded") == set()
    assert "leaks_are_supported" in rules_of(network, "truenorth")
    with pytest.raises(ProfileError, match="truenorth: networks cannot be quantized for it"):
        quantize(folded, load_profile("truenorth"))


# ---- counts of synapses -----------------------------------------------------------------------


def by_hand(network, connection):
    """[*target shape, *source shape]: whether there is a synapse, by the equations of the docstrings."""
    shapes = {population.name: population.shape for population in network.populations}
    source, target = shapes[connection.source], shapes[connection.target]
    synapse = connection.synapse
    found = np.zeros((*target, *source), int)
    if isinstance(synapse, Dense):
        return (synapse.weight != 0).astype(int).reshape(*target, *source)
    (top, bottom), (left, right) = synapse.silent
    per_group = target[0] // synapse.groups
    for o, y, x in np.ndindex(*target):
        if not (top <= y < target[1] - bottom and left <= x < target[2] - right):
            continue
        first = (o // per_group) * synapse.weight.shape[1]
        for i, a, b in np.ndindex(*synapse.weight.shape[1:]):
            row = synapse.stride[0] * y - synapse.padding[0] + synapse.dilation[0] * a
            column = synapse.stride[1] * x - synapse.padding[1] + synapse.dilation[1] * b
            inside = 0 <= row < source[1] and 0 <= column < source[2]
            if inside and synapse.weight[o, i, a, b]:
                found[o, y, x, first + i, row, column] += 1
    return found


@st.composite
def convolutions(draw):
    """A network of one convolution, with zeros in its kernel."""
    groups = draw(st.integers(1, 2))
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, stride, dilation = draw(pair), draw(pair), draw(pair)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    source = (groups * draw(st.integers(1, 2)), draw(st.integers(7, 9)), draw(st.integers(7, 9)))
    shape = (groups * draw(st.integers(1, 2)), source[0] // groups, *kernel)
    weight = np.random.default_rng(draw(st.integers(0, 99))).integers(-1, 2, size=shape)
    synapse = Conv2d(weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    made = output_shape(synapse, source)
    if min(made[1:]) > 2:
        synapse = replace(synapse, silent=draw(st.sampled_from([((0, 0), (0, 0)), ((1, 0), (0, 2))])))
    return one_connection(source, made, synapse)


def one_connection(source, made, synapse):
    return IntNetwork(
        populations=(
            Population(name="in", shape=source, neuron=Input(minimum=0, maximum=1)),
            Population(name="out", shape=made, neuron=Readout(bias=np.zeros(made, int))),
        ),
        connections=(Connection(source="in", target="out", synapse=synapse),),
        timesteps=1,
        scales={},
    )


@examples(60)
@given(convolutions())
def test_fan_in_and_fan_out_of_a_convolution_are_exact(network):
    (connection,) = network.connections
    expected = by_hand(network, connection)
    np.testing.assert_array_equal(connection_fan_in(network, connection), expected.sum(axis=(3, 4, 5)))
    np.testing.assert_array_equal(connection_fan_out(network, connection), expected.sum(axis=(0, 1, 2)))


@pytest.mark.parametrize("network", [int_chain(), int_residual(), int_windows(), int_loop(delays=(0, 1))])
def test_the_fans_of_a_population_are_those_of_all_its_connections(network):
    for population in network.populations:
        rank = len(population.shape)
        entering = [by_hand(network, c) for c in network.connections if c.target == population.name]
        leaving = [by_hand(network, c) for c in network.connections if c.source == population.name]
        into = sum(f.sum(axis=tuple(range(rank, f.ndim))) for f in entering)
        out_of = sum(f.sum(axis=tuple(range(f.ndim - rank))) for f in leaving)
        np.testing.assert_array_equal(fan_in(network, population), into + np.zeros(population.shape, int))
        np.testing.assert_array_equal(fan_out(network, population), out_of + np.zeros(population.shape, int))


def test_the_fans_of_a_full_convolution():
    """16 channels in 2 groups, 3 x 3, padded: 8 * 9 synapses into a neuron, 10 * 9 out of one, inside."""
    network = maps((16, 5, 5), 20, groups=2, padding=(1, 1))
    source, target = network.populations
    into, out_of = fan_in(network, target), fan_out(network, source)
    assert (into[0, 2, 2], into[0, 0, 0], out_of[0, 2, 2], out_of[0, 0, 0]) == (72, 32, 90, 40)


@pytest.mark.parametrize(
    ("key", "used", "rule"),
    [("core__neurons", 6, "layers_fit_on_cores"), ("core__thresholds", 5, "distinct_thresholds_fit_core")],
)
def test_one_core_for_all_counts_the_neurons_and_thresholds_of_all_layers(key, used, rule):
    """Neurons: 3 + 2 + 1, and five thresholds that differ, at most three of them in one layer."""
    network = features((2, 3, 2, 1))
    first, second = (
        replace(population, neuron=replace(population.neuron, threshold=np.array(thresholds)))
        for population, thresholds in zip(network.populations[1:3], ([1, 2, 3], [4, 5]), strict=True)
    )
    network = replace(network, populations=(network.populations[0], first, second, network.populations[3]))
    for limit, where in ((used, []), (used - 1, ["network"])):
        found = fit(network, chip("whole", **{key: limit})).found("error")
        assert [finding.where for finding in found if finding.rule == rule] == where


def test_a_memory_of_which_only_the_size_is_known_is_never_passed_in_silence():
    profile = load_profile("tianjic")
    found = [f.message for f in fit(features(), profile).found("not checked")]
    assert any("bytes of a core" in message for message in found)
