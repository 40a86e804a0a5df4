"""Every design rule holds for a network that fits and fails for one that does not."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from networks import softened, with_limit
from rich.console import Console

from mpbn_deploy.fit import by_rule, fit, fit_text, verdict_sentence
from mpbn_deploy.hardware import KEYS, HardwareProfile, load_profile
from mpbn_deploy.hardware.place import RESOURCES
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, Readout

LOIHI1, LOIHI2 = load_profile("loihi1"), load_profile("loihi2")
NOTHING_KNOWN = HardwareProfile(name="riddle", title="?", description="?", limits={})


def network(weight=3, exponent=0, delay=0, maximum=1, readout_bias=0, **neuron):
    """Two inputs, three spiking neurons "hidden", one readout "out"."""
    settings = {"threshold": [5, 6, 5], "bias": [0, 0, 0], "decay_voltage": 3072} | neuron
    arrays = {name: np.array(settings[name]) for name in ("threshold", "bias")}
    synapse = Dense(weight=np.full((3, 2), weight), exponent=exponent)
    populations = (
        Population(name="in", shape=(2,), neuron=Input(minimum=0, maximum=maximum)),
        Population(name="hidden", shape=(3,), neuron=Lif(**(settings | arrays))),
        Population(name="out", shape=(1,), neuron=Readout(bias=np.array([readout_bias]))),
    )
    connections = (
        Connection(source="in", target="hidden", synapse=synapse, delay=delay),
        Connection(source="hidden", target="out", synapse=Dense(weight=np.array([[1, 2, -3]]))),
    )
    return IntNetwork(populations=populations, connections=connections, timesteps=2, scales={})


def without(profile, key):
    return replace(profile, limits={name: limit for name, limit in profile.limits.items() if name != key})


def errors(network, profile):
    """(rule, where) of each rule that does not hold."""
    return [(f.rule, f.where) for f in fit(network, profile).findings if f.severity == "error"]


def message(network, profile):
    """The message of the only rule that does not hold."""
    (found,) = [f.message for f in fit(network, profile).findings if f.severity == "error"]
    return found


@pytest.mark.parametrize("profile", [LOIHI1, LOIHI2], ids=["loihi1", "loihi2"])
def test_a_small_network_fits_both_chips(profile):
    report = fit(network(), profile)
    assert errors(network(), profile) == []
    assert (report.target, report.fits, report.chips, report.cores) == (profile.name, True, 1, 2)


@pytest.mark.parametrize(
    ("options", "rule", "where"),
    [
        ({"weight": 129}, "weights_fit_format", "in->hidden"),
        ({"weight": 1, "exponent": -1}, "weights_fit_format", "in->hidden"),
        ({"threshold": [5, 131072, 6]}, "thresholds_fit_format", "hidden"),
        ({"threshold": [5, -131072, 6]}, "thresholds_fit_format", "hidden"),
        ({"bias": [0, 4096, 0]}, "biases_fit_format", "hidden"),
        ({"bias": [0, -4097, 0]}, "biases_fit_format", "hidden"),
        ({"bias_exponent": 8}, "biases_fit_format", "hidden"),
        ({"readout_bias": 5000}, "biases_fit_format", "out"),
        ({"decay_voltage": 4096}, "decays_fit_format", "hidden"),
        ({"decay_current": 0}, "decays_fit_format", "hidden"),
        ({"maximum": 2**31, "weight": 0}, "input_values_fit_message", "in"),
        ({"delay": 63}, "delays_fit_format", "in->hidden"),
    ],
)
def test_what_breaks_one_rule_is_found_by_that_rule(options, rule, where):
    assert errors(network(**options), LOIHI2) == [(rule, where)]


def test_networks_of_others_that_may_overflow_get_advice_that_applies():
    own, foreign = (replace(network(maximum=50000), foreign=foreign) for foreign in (False, True))
    (found,) = fit(own, LOIHI2).found("warning")  # as --overflow measured asks for, which is not undone
    assert (found.rule, found.where) == ("states_stay_in_width", "hidden")
    assert "some input might make a state reach" in found.message and "proved" not in found.message
    assert "wrap and clip" in message(foreign, LOIHI2) and "--input-range" in message(foreign, LOIHI2)


@pytest.mark.parametrize(
    "options",
    [
        {"weight": 127},
        {"weight": -128},
        {"weight": 254},  # 127 * 2**1
        {"weight": 2, "exponent": -1},
        {"weight": 0, "exponent": -6},
        {"weight": 1, "exponent": 8, "maximum": 1},
        {"threshold": [131071, -131071, 0]},
        {"bias": [4095, -4096, 0]},
        {"bias_exponent": 7},
        {"bias_exponent": 0},
        {"readout_bias": -4096},
        {"decay_voltage": 0},
        {"decay_voltage": 4095},
        {"decay_current": 1},
        {"maximum": 2**31 - 1, "weight": 0},
        {"maximum": 21000},
        {"delay": 62},
    ],
)
def test_what_just_keeps_the_rules_fits(options):
    assert errors(network(**options), LOIHI2) == []


def test_a_large_exponent_fits_as_long_as_the_mantissa_has_room():
    """A weight of 1 needs 2 of 8 bits, so it may be stored as 64 with an exponent less by 6."""
    profile = with_limit(with_limit(LOIHI2, "formats.weight_exponent_maximum", 1), "formats.state_bits", 40)
    assert errors(network(exponent=7, weight=1), profile) == []
    assert errors(network(exponent=8, weight=1), profile) == [("weights_fit_format", "in->hidden")]


def test_loihi1_knows_only_positive_thresholds_and_plain_spikes():
    assert errors(network(threshold=[0, 1, 1]), LOIHI1) == [("thresholds_fit_format", "hidden")]
    assert errors(network(threshold=[0, -1, 1]), LOIHI2) == []
    assert errors(network(maximum=2), LOIHI1) == [("input_values_fit_message", "in")]


def test_a_message_says_who_what_is_allowed_by_whom_and_what_to_do():
    assert message(network(threshold=[-12, -3, 4]), LOIHI1) == (
        "hidden (LIF): threshold -12 in 2 of 3 values; "
        "loihi1 holds 1..131071 (nengo-loihi hardware/validate.py:53). "
        "Export for this target (--target loihi1), which moves them into biases, "
        "or choose one that holds them, such as loihi2."
    )


def test_distinct_thresholds_count_per_core():
    wide = network(threshold=[1, 2, 3])
    profile = with_limit(LOIHI1, "core.thresholds", 2)
    assert errors(network(threshold=[1, 2, 1]), profile) == []
    assert "hidden (LIF): 3 distinct thresholds on one core; loihi1 holds 2 (test)" in message(wide, profile)
    assert errors(wide, with_limit(profile, "core.neurons", 2)) == []  # two cores, with two and one


def test_distinct_thresholds_count_channels_of_feature_maps():
    shape = (3, 2, 2)
    neuron = Lif(
        threshold=np.array([1, 2, 3]).reshape(3, 1, 1), bias=np.zeros((3, 1, 1), int), decay_voltage=0
    )
    maps = IntNetwork(
        populations=(
            Population(name="in", shape=shape, neuron=Input(minimum=0, maximum=1)),
            Population(name="maps", shape=shape, neuron=neuron),
        ),
        connections=(
            Connection(source="in", target="maps", synapse=Conv2d(weight=np.ones((3, 3, 1, 1), int))),
        ),
        timesteps=1,
        scales={},
    )
    assert errors(maps, with_limit(LOIHI1, "core.thresholds", 3)) == []
    profile = with_limit(LOIHI1, "core.thresholds", 2)
    assert errors(maps, profile) == [("distinct_thresholds_fit_core", "maps")]


@pytest.mark.parametrize(
    ("resource", "most"),
    [
        ("input_axons", 3),
        ("neuron_groups", 1),
        ("neurons", 1),
        ("synapse_words", 3),
        ("axon_map_entries", 1),
        ("total_words", 9),
    ],
)
def test_a_layer_that_no_cut_makes_fit_is_an_error(resource, most):
    """The readout, one neuron with three inputs, needs just `most` on its core."""
    key = f"core.{resource}"
    assert errors(network(), with_limit(LOIHI2, key, most)) == []
    found = errors(network(), with_limit(LOIHI2, key, most - 1))
    assert ("layers_fit_on_cores", "out") in found
    assert {rule for rule, _ in found} == {"layers_fit_on_cores"}


def test_more_cores_than_a_chip_has_names_a_board_that_would_do():
    assert errors(network(), with_limit(LOIHI2, "chip.cores", 2)) == []
    profile = with_limit(LOIHI2, "chip.cores", 1)
    text = message(network(), profile)
    assert text.startswith("network: 2 cores; a chip of loihi2 has 1 (test). ")
    assert text.endswith("2 chips would be enough (boards: kapoho_point): --chips 2.")
    assert fit(network(), profile, chips=2).fits
    assert fit(network(), profile).chips == 2
    assert "boards" not in message(network(), without(profile, "systems.kapoho_point"))


def test_all_failures_are_collected():
    bad = network(weight=129, threshold=[131072] * 3, bias=[9999] * 3, decay_current=0, delay=99)
    assert {rule for rule, _ in errors(bad, LOIHI2)} == {
        "weights_fit_format",
        "thresholds_fit_format",
        "biases_fit_format",
        "decays_fit_format",
        "delays_fit_format",
    }


def test_an_unknown_limit_is_reported_and_never_passes_in_silence():
    report = fit(network(weight=10**4, threshold=[10**5, 10**5, 9]), NOTHING_KNOWN)
    assert {finding.severity for finding in report.findings} == {"not checked"}
    assert {finding.rule for finding in report.findings} == {
        "weights_fit_format",
        "thresholds_fit_format",
        "biases_fit_format",
        "decays_fit_format",
        "states_stay_in_width",
        "input_values_fit_message",
        "delays_fit_format",
        "layers_fit_on_cores",
        "distinct_thresholds_fit_core",
        "cores_fit_on_chip",
    }
    assert (report.fits, report.chips, report.cores) == (True, None, 2)


@pytest.mark.parametrize("key", [key for key in LOIHI2.limits if not key.startswith("systems")])
def test_every_limit_left_out_of_loihi2_is_missed_unless_it_has_a_default(key):
    # Absent: one axon per pixel; lists of target cores, and inputs together, are not counted or not limited;
    # hops are not counted; and no row drops its zeros.
    lists = {"core.axon_memory_words", "core.axon_memory_targets", "core.input_words"}
    grid = {"chip.grid_columns", "chip.grid_rows", "chip.cores_per_router"}
    more = {
        "formats.process_thresholds",
        "layer.exact_width_maximum",
        "formats.sigma_delta",
        "formats.neuron_programs",
    }  # rules of chips that have them
    defaults = {"core.shared_axons", "core.sparse_index_bits", *lists, *grid, *more}
    soft = softened(network())  # else nothing asks for soft resets
    missed = [f for f in fit(soft, without(LOIHI2, key)).findings if f"state {key} " in f.message]
    assert bool(missed) == (key not in defaults)
    assert all(finding.severity == "not checked" and KEYS[key] in finding.message for finding in missed)


def test_the_report_as_json():
    data = fit(network(threshold=[131072, 5, 5]), LOIHI2).to_json()
    assert list(data) == [
        "target",
        "fits",
        "chips",
        "cores",
        "cores_lower_bound",
        "tiling",
        "first_layer",
        "readout",
        "choices",
        "strict",
        "assumption",
        "layers",
        "findings",
        "program",
        "between_chips",
        "energy",
    ]
    assert (data["target"], data["fits"]) == ("loihi2", False)
    hidden, out = data["layers"]
    assert (hidden["name"], hidden["neurons"], hidden["cores"], hidden["tile"]) == ("hidden", 3, 1, [3])
    assert set(out["resources"]) == {*RESOURCES, "axon_memory_words", "input_words"}
    assert hidden["resources"]["neuron_groups"] == {"used": 1, "limit": 8, "percent": 12.5}
    assert [f["rule"] for f in data["findings"] if f["severity"] == "error"] == ["thresholds_fit_format"]
    unknown = fit(network(), NOTHING_KNOWN).to_json()["layers"][0]["resources"]["neurons"]
    assert unknown == {"used": 3, "limit": None, "percent": None}


def test_the_report_as_text_shows_percentages_verdict_and_findings():
    console, report = Console(width=200, file=StringIO()), fit(network(weight=129), LOIHI2)
    with console.capture() as captured:
        console.print(fit_text(report))
    text, (first, _, *rows) = captured.get(), str(report).splitlines()
    assert first.startswith("red: loihi2: does not fit; not met: weights fit format (in->hidden")
    assert rows == ["cores     2", "chips     1 (1 x oheo_gulch)"]
    assert "12.50" in text
    assert "error: in->hidden (Dense): weights 129..129 need 9 bits; loihi2 holds 8" in text


def test_findings_of_one_rule_are_one_line_that_names_the_layers():
    report = fit(network(bias=[0, 4096, 0], readout_bias=5000), LOIHI2)
    lines = [group.line for group in by_rule(report, ("error",))]
    assert len(report.found("error")) > len(lines) == 1
    assert lines[0].endswith("Likewise: out.")
    rows = report.summary.with_rows(next="python -m mpbn_deploy.fit x --advise", form="").rows
    assert [label for label, _ in rows] == ["network", "cores", "chips", "next"]


def test_thresholds_per_channel_are_not_known_on_loihi2_and_strict_counts_that_as_no():
    own, one = network(threshold=[3, 4, 5]), network(threshold=[3, 3, 3])
    report = fit(own, LOIHI2)
    (unknown,) = report.found("not known")
    assert (report.fits, unknown.rule, unknown.where) == (
        True,
        "thresholds_per_channel_work_on_the_chip",
        "hidden",
    )
    assert "--thresholds shared" in unknown.message and "settled" in unknown.message
    assert verdict_sentence(report) == "fits, if thresholds per channel work on the chip (not known)"
    assert fit(own, LOIHI2, strict=True).fits is False
    assert fit(one, LOIHI2, strict=True).fits is True
