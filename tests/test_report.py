"""The page: the same bytes each time, nothing from elsewhere, every number that matters on it."""

import base64
import re
from collections import OrderedDict
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib import rcParams
from networks import int_windows
from torch import nn

from mpbn_deploy.accuracy import Accuracy, Predictions
from mpbn_deploy.data import Split
from mpbn_deploy.drift import Drift, Flip
from mpbn_deploy.emulate import emulate
from mpbn_deploy.errors import OptionError
from mpbn_deploy.fit import fit
from mpbn_deploy.float_ir import InputFormat
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.graph import Connection, Conv2d, Dense, Population
from mpbn_deploy.hardware import HardwareProfile, load_profile
from mpbn_deploy.int_ir import STATE_LIMIT, Input, IntNetwork, Lif, Readout
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.quantize import describe, quantize
from mpbn_deploy.report import Story, html, write_html
from mpbn_deploy.report.diagram import choose_lanes, network_diagram, split_connections, synapse_text
from mpbn_deploy.report.drawing import as_data_uri, label
from mpbn_deploy.report.html import render
from mpbn_deploy.report.pictures import agreement, histogram_range, real_thresholds, sampled_neurons
from mpbn_deploy.rules import Finding
from mpbn_deploy.verify import Comparison, FoldCheck, Mismatch, verify

LOIHI2 = load_profile("loihi2")
NOTHING_KNOWN = HardwareProfile(name="riddle", title="?", description="?", limits={})


def trained_body():
    torch.manual_seed(0)
    layers = OrderedDict(
        conv=nn.Conv2d(1, 3, 3, padding=1),
        first=LIF(3, mpbn="channel"),
        flatten=nn.Flatten(),
        dense=nn.Linear(48, 5),
        second=LIF(5, mpbn="element"),
        readout=nn.Linear(5, 2),
    )
    for module in layers.values():
        if isinstance(module, LIF):
            nn.init.uniform_(module.mpbn.bn.weight, 0.5, 1.5)
            nn.init.uniform_(module.mpbn.bn.bias, -0.5, 0.5)
    return nn.Sequential(layers).eval()


@pytest.fixture(scope="module")
def folded():
    values = InputFormat(shape=(1, 4, 4), minimum=0, maximum=16, mean=np.zeros(1), deviation=np.full(1, 8.0))
    return fold(trace(SpikingNetwork(trained_body(), timesteps=3, input_format=values)))


@pytest.fixture(scope="module")
def story(folded):
    """A network of two populations that fire, through the whole pipeline."""
    network = quantize(folded, LOIHI2)
    inputs = np.random.default_rng(0).integers(0, 17, size=(2, 1, 4, 4))
    test = Split(inputs=inputs, labels=np.array([0, 1]))
    return Story(
        title="tiny.pt on loihi2",
        network=network,
        profile=LOIHI2,
        verify=verify(network, inputs, folded=folded, test=test, data_name="noise"),
        fit=fit(network, LOIHI2),
        quantization=describe(folded, network, LOIHI2),
        trace=emulate(network, inputs),
        facts={"model sha256": "abc123", "python": "3.x"},
    )


def skipping():
    """input -> a -> b -> c -> out, with a skip a -> c and a delayed loop b -> b."""
    generator = np.random.default_rng(0)

    def conv(channels, size, stride=1):
        weight = generator.integers(-5, 5, size=(2, channels, size, size))
        return Conv2d(weight=weight, padding=(size // 2, size // 2), stride=(stride, stride))

    shapes = {"a": (2, 4, 4), "b": (2, 2, 2), "c": (2, 2, 2)}
    neurons = [
        Population(name=name, shape=shape, neuron=Lif(threshold=np.full(shape, 3), bias=np.zeros(shape, int)))
        for name, shape in shapes.items()
    ]
    source = Population(name="input", shape=(1, 4, 4), neuron=Input(minimum=0, maximum=1))
    out = Population(name="out", shape=(2,), neuron=Readout(bias=np.zeros(2, int)))
    connections = (
        Connection(source="input", target="a", synapse=conv(1, 3)),
        Connection(source="a", target="b", synapse=conv(2, 3, stride=2)),
        Connection(source="b", target="c", synapse=conv(2, 3)),
        Connection(source="a", target="c", synapse=conv(2, 1, stride=2)),
        Connection(source="b", target="b", synapse=conv(2, 1), delay=1),
        Connection(source="c", target="out", synapse=Dense(weight=generator.integers(-5, 5, size=(2, 8)))),
    )
    return IntNetwork(populations=(source, *neurons, out), connections=connections, timesteps=2, scales={})


@pytest.fixture
def undrawn(monkeypatch):
    """For tests of words alone: pictures take most of a page's time."""
    monkeypatch.setattr(html, "as_data_uri", lambda draw, story: "data:,")


def pictures_of(page):
    """The SVG of each picture on a page."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    return [base64.b64decode(content).decode() for content in found]


def words_of(page):
    """The page as a reader sees it: no tags, single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.split("<main>")[1]).split())


def flip_of(population):
    return Flip(
        population=population,
        sample=1,
        time_step=2,
        index=(0, 3),
        float_fires=True,
        float_voltage=0.51,
        float_threshold=0.5,
        integer_voltage=0.48,
        integer_threshold=0.49,
        mended_by=("weight", "bias"),
    )


def renamed(story, old, new):
    """The same story, with another name for one population."""

    def swap(mapping):
        return {new if key == old else key: value for key, value in mapping.items()}

    def name(text):
        return new if text == old else text

    network, report = story.network, story.verify
    network = replace(
        network,
        populations=tuple(replace(p, name=name(p.name)) for p in network.populations),
        connections=tuple(
            replace(c, source=name(c.source), target=name(c.target)) for c in network.connections
        ),
        scales=swap(network.scales),
    )
    drift = replace(
        report.drift,
        populations=tuple(replace(p, name=name(p.name)) for p in report.drift.populations),
        first_flip=flip_of(new),
    )
    return replace(
        story,
        title=new,
        network=network,
        verify=replace(report, bounds=swap(report.bounds), drift=drift),
        fit=fit(network, LOIHI2),
        quantization=[{**described, "name": name(described["name"])} for described in story.quantization],
        trace=replace(story.trace, spikes=swap(story.trace.spikes)),
        facts={new: new},
    )


# ---- the file ---------------------------------------------------------------------------------


def test_the_same_story_gives_the_same_bytes(story, tmp_path):
    for name in ("one.html", "two.html"):
        write_html(tmp_path / name, story)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.html", "two.html"))
    assert one == two
    assert one.startswith(b"<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.html", "two.html"]


@pytest.mark.usefixtures("undrawn")
def test_another_story_gives_other_bytes(story):
    assert render(story) != render(replace(story, facts={"model sha256": "abc124"}))


def test_settings_of_matplotlib_neither_leak_in_nor_out(story, monkeypatch):
    expected = render(story)
    monkeypatch.setitem(rcParams, "axes.titlesize", 30.0)
    monkeypatch.setitem(rcParams, "svg.hashsalt", "other")
    assert render(story) == expected
    assert (rcParams["axes.titlesize"], rcParams["svg.hashsalt"]) == (30.0, "other")


def test_the_page_needs_nothing_from_elsewhere(story):
    page = render(story)
    for forbidden in ("http://", "https://", "<script", "<link", "@import", "url(", "href="):
        assert forbidden not in page, forbidden
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert len(sources) == 6
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)


def test_pictures_are_sound_and_hold_no_date(story):
    for picture in pictures_of(render(story)):
        ElementTree.fromstring(picture)
        assert "<dc:date>" not in picture


def test_a_folder_that_is_not_there_is_an_error(story, tmp_path):
    with pytest.raises(OptionError, match="cannot be written"):
        write_html(tmp_path / "missing" / "report.html", story)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$x$", "a & \"b\" 'c'", "日本", "x" * 300])
def test_hostile_names_are_only_text(story, name):
    page = render(renamed(story, "first", name))
    assert "<script" not in page
    assert page.count("<main>") == 1
    for picture in pictures_of(page):
        assert not ElementTree.fromstring(picture).findall(".//{*}script")
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace('"', "&#34;").replace("'", "&#39;")
    assert f"<h1>{escaped}</h1>" in page
    assert page.count(f"<th>{escaped}</th>") == 4  # float against integer, what changed, fit, facts


# ---- what it says -----------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_what_folding_changed_is_said(story):
    check = FoldCheck(spikes_compared=1234, spikes_mismatched=5, largest_output_difference=0.1)
    page = words_of(render(replace(story, verify=replace(story.verify, fold=check))))
    assert "in 5 of 1,234 spikes" in " ".join(page.split())
    assert "Folding" not in words_of(render(story))


@pytest.mark.usefixtures("undrawn")
def test_every_population_is_named(story):
    page = render(story)
    for population in story.network.populations[1:]:
        assert page.count(f"<th>{population.name}</th>") == 3, population.name


@pytest.mark.usefixtures("undrawn")
def test_the_verdict_of_an_exact_network_that_fits(story):
    ran = [c for c in story.verify.comparisons if c.not_run is None]
    exact = replace(story, verify=replace(story.verify, comparisons=tuple(ran)))
    words = words_of(render(exact))
    assert words.startswith("tiny.pt on loihi2 bit-exact fits Intel Loihi 2 on 3 cores accuracy ")
    assert "values that differ 0 of" in words
    assert "model sha256 abc123" in words


@pytest.mark.usefixtures("undrawn")
def test_mismatches_are_shown_with_their_place(story):
    first = Mismatch(
        quantity="spike", population="first", sample=1, time_step=2, index=(0, 3, 1), expected=1, got=0
    )
    wrong = Comparison(
        execution="other",
        spikes_compared=4321,
        spikes_mismatched=17,
        outputs_compared=4,
        outputs_mismatched=3,
        first_mismatch=first,
    )
    words = words_of(render(replace(story, verify=replace(story.verify, comparisons=(wrong,)))))
    assert words.startswith("tiny.pt on loihi2 not bit-exact")
    assert "values that differ 20 of 4,325 compared" in words
    assert "other 4,321 17 not shown 4 3" in words
    assert "spike of first, sample 1, time step 2, neuron [0, 3, 1]: expected 1, got 0" in words


@pytest.mark.usefixtures("undrawn")
def test_a_mismatch_of_an_output_has_no_time_step(story):
    first = Mismatch(
        quantity="output", population="output", sample=0, time_step=None, index=(1,), expected=5, got=-6
    )
    wrong = Comparison(execution="other", outputs_compared=4, outputs_mismatched=1, first_mismatch=first)
    words = words_of(render(replace(story, verify=replace(story.verify, comparisons=(wrong,)))))
    assert "output of output, sample 0, neuron [1]: expected 5, got -6" in words


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("comparisons", "claimed"),
    [
        ([Comparison(execution="Lava", spikes_compared=9)], True),
        ([Comparison(execution="Lava", spikes_compared=9, spikes_mismatched=1)], False),
        ([Comparison(execution="Lava", not_run="no Lava here")], False),
        ([Comparison(execution="emulator", spikes_compared=9)], False),
    ],
)
def test_equality_with_lava_is_claimed_only_where_it_was_found(story, comparisons, claimed):
    page = render(replace(story, verify=replace(story.verify, comparisons=tuple(comparisons))))
    assert ("bit-accurate to Lava&#39;s fixed-point model" in page) == claimed
    assert "bit-accurate to the chip" not in page


@pytest.mark.usefixtures("undrawn")
def test_an_execution_that_did_not_run_says_why_and_proves_nothing(story):
    absent = Comparison(execution="Lava", not_run="no Lava <here>")
    ran = Comparison(execution="emulator", spikes_compared=9)
    page = render(replace(story, verify=replace(story.verify, comparisons=(ran, absent))))
    assert "not run: no Lava &lt;here&gt;" in page
    assert "bit-exact in 1 of 2 executions, the others not run" in page
    page = render(replace(story, verify=replace(story.verify, comparisons=(absent,))))
    assert '<span class="unknown">bit-exactness not tested</span>' in page


@pytest.mark.usefixtures("undrawn")
def test_accuracy_is_shown(story):
    changed = Predictions(samples=1234, changed=20, became_right=3, became_wrong=15)
    accuracy = Accuracy(
        data="noise",
        samples=1234,
        float_network=0.9876,
        integer_network=0.9753,
        trained_network=0.9877,
        predictions=changed,
    )
    words = words_of(render(replace(story, verify=replace(story.verify, accuracy=accuracy))))
    assert "accuracy 98.76 % float → 97.53 % integer" in words
    assert "On all 1,234 test samples of noise the float network is right in 98.76 %" in words
    assert "; the PyTorch model in 98.77 %." in words
    assert "changed the predictions of 20 of 1234, of which 3 became right and 15 became wrong" in words
    words = words_of(render(replace(story, verify=replace(story.verify, accuracy=replace(
        accuracy, trained_network=None, predictions=None)))))  # fmt: skip
    assert "PyTorch" not in words and "changed the predictions" not in words


@pytest.mark.usefixtures("undrawn")
def test_drift_is_shown(story):
    first = replace(
        story.verify.drift.populations[0],
        spike_agreement=np.array([1.0, 0.5, 0.75]),
        rate_float=np.array([0.25, 0.25, 0.25]),
        rate_integer=np.array([0.25, 0.5, 0.75]),
        voltage_error_rms=np.full(3, 0.0125),
        threshold_distance_rms=np.full(3, 0.1),
        near_threshold=np.zeros(3),
        flips={"weight": 1234, "bias": 0, "leak": 2},
    )
    drift = Drift(
        populations=(first, *story.verify.drift.populations[1:]),
        predictions=Predictions(samples=8, changed=1),
        first_flip=flip_of("first"),
    )
    words = words_of(render(replace(story, verify=replace(story.verify, drift=drift))))
    assert "The two predict the same for 87.50 % of the 2 compared samples." in words
    assert "first 25.00 % 50.00 % 75.00 % 0.0125 12.50 % 0.00 % weight 1,234, leak 2 second" in words
    assert (
        "differs: first, sample 1, step 2, neuron [0, 3]: the float network fires at 0.51 against 0.5, the "
        "integer network does not at 0.48 against 0.49; cause: weight (so would bias)." in words
    )
    drift = replace(drift, first_flip=None)
    assert "No spike differs." in words_of(render(replace(story, verify=replace(story.verify, drift=drift))))


def test_agreement_is_drawn_per_step(story):
    """Up to twelve steps as numbers, beyond with a scale of colours."""
    report = story.verify
    few = agreement(story)
    assert len(few.axes) == 1 and "0.00 %" in {text.get_text() for text in few.axes[0].texts}
    steps = {key: np.repeat(values, 7) for key, values in report.drift.populations[0].steps().items()}
    many = replace(report.drift.populations[0], **steps)
    long = replace(story, verify=replace(report, drift=replace(report.drift, populations=(many,))))
    assert len(agreement(long).axes) == 2 and not agreement(long).axes[0].texts


def test_the_page_works_without_drift_and_accuracy(story):
    page = render(replace(story, verify=replace(story.verify, drift=None, accuracy=None)))
    assert len(pictures_of(page)) == 5
    assert "Float against integer" not in page
    assert "accuracy" not in words_of(page)


def test_a_network_without_spikes_in_common_has_no_picture_of_agreement(story):
    silent = {key: np.zeros(3) for key in ("rate_float", "rate_integer")}
    populations = tuple(replace(p, **silent) for p in story.verify.drift.populations)
    nothing = Drift(populations=populations, predictions=Predictions(samples=2, changed=0))
    page = render(replace(story, verify=replace(story.verify, drift=nothing)))
    assert len(pictures_of(page)) == 5
    assert "The two predict the same for 100.00 %" in words_of(page)


@pytest.mark.usefixtures("undrawn")
def test_bounds_are_held_against_24_bits(story):
    page = render(replace(story, verify=replace(story.verify, bounds={"first": STATE_LIMIT // 4})))
    assert "2,097,151" in page
    assert "25.00 %" in page
    assert "impossible" in page
    page = render(replace(story, verify=replace(story.verify, bounds={"first": 2 * STATE_LIMIT})))
    assert 'class="gauge over"' in page
    assert "200.00 %" in page
    assert "impossible" not in page


@pytest.mark.usefixtures("undrawn")
def test_errors_come_before_what_was_not_checked(story):
    unknown = Finding(rule="r", where="w", message="something is unknown", severity="not checked")
    error = Finding(rule="r", where="w", message="something is too large", severity="error")
    report = replace(story.fit, fits=False, findings=(unknown, error))
    words = words_of(render(replace(story, fit=report)))
    assert "does not fit Intel Loihi 2 (1 reason)" in words
    assert words.index("error something is too large") < words.index("something is unknown")


def test_percentages_of_layers_are_shown(story):
    layer = story.fit.layers[0]
    use = {**layer.use, "neurons": replace(layer.use["neurons"], used=5, limit=4)}
    report = replace(story.fit, layers=(replace(layer, use=use), *story.fit.layers[1:]))
    assert '<td class="over">125.00 %</td>' in render(replace(story, fit=report))


def test_a_chip_of_which_nothing_is_known(story):
    page = render(replace(story, profile=NOTHING_KNOWN, fit=fit(story.network, NOTHING_KNOWN)))
    words = words_of(page)
    assert len(pictures_of(page)) == 5
    assert "how many chips that takes is not known" in words
    assert "not checked: weights fit format" in words
    assert "the cores of a chip are not known" in words


# ---- pictures ---------------------------------------------------------------------------------


def test_skips_and_loops_run_through_lanes():
    straight, lanes = split_connections(skipping())
    assert [c.label for c in straight] == ["input->a", "a->b", "b->c", "c->out"]
    assert [(c.label, lane) for c, lane in lanes] == [("a->c", 1), ("b->b", 0)]


def test_lanes_are_shared_only_by_those_that_do_not_meet():
    assert choose_lanes([(0.1, 1.9), (2.1, 3.9)]) == [0, 0]
    assert choose_lanes([(0.1, 1.9), (3.9, 1.5)]) == [0, 1]
    assert choose_lanes([(0.0, 9.0), (1.0, 2.0), (1.5, 2.1)]) == [2, 1, 0]
    assert choose_lanes([]) == []


def test_a_network_with_skips_is_drawn_whole(story):
    network = skipping()
    spikes = {p.name: np.zeros((1, 2, *p.shape), bool) for p in network.populations[1:]}
    shown = replace(
        story, network=network, fit=fit(network, LOIHI2), trace=replace(story.trace, spikes=spikes)
    )
    figure = network_diagram(shown)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {"input", "a", "b", "c", "out", "2 × 4 × 4"} <= set(texts)  # noqa: RUF001
    assert {"conv 1 × 1, stride 2", "conv 1 × 1, delay 1"} <= set(texts)  # noqa: RUF001
    assert "conv 3 × 3, stride 2, 36 weights" in texts  # noqa: RUF001
    assert len(figure.axes[0].patches) == len(network.populations) + len(network.connections)
    assert len(pictures_of(render(shown))) == 6


def test_windows_of_one_target_are_one_arrow(story):
    network = int_windows()
    straight, lanes = split_connections(network)
    assert [c.label for c in straight] == ["input->first", "first->last"]
    assert [(c.label, c.delay) for c, _ in lanes] == [("first->last", 1)]
    spikes = {p.name: np.zeros((1, 2, *p.shape), bool) for p in network.populations[1:]}
    shown = replace(
        story, network=network, fit=fit(network, LOIHI2), trace=replace(story.trace, spikes=spikes)
    )
    texts = [text.get_text() for text in network_diagram(shown).axes[0].texts]
    assert "conv 7 × 4, stride 2 × 1, 6 windows, 1,008 weights" in texts  # noqa: RUF001


def test_a_convolution_says_what_is_special_about_it():
    weight = np.zeros((4, 1, 3, 5), int)
    synapse = Conv2d(weight=weight, stride=(1, 2), dilation=(2, 2), groups=4)
    assert synapse_text(synapse) == "conv 3 × 5, stride 1 × 2, dilation 2, 4 groups"  # noqa: RUF001


def test_many_time_steps_are_drawn_without_numbers(story):
    spikes = {name: np.repeat(values, 10, axis=1) for name, values in story.trace.spikes.items()}
    longer = replace(story, trace=replace(story.trace, spikes=spikes))
    assert len(pictures_of(render(longer))) == 6


def test_a_network_of_a_readout_alone_has_no_pictures_of_spikes(story):
    whole = skipping()
    network = IntNetwork(
        populations=(whole.input, whole.output),
        connections=(Connection(source="input", target="out", synapse=Dense(weight=np.ones((2, 16), int))),),
        timesteps=2,
        scales={},
    )
    trace_of_it = replace(story.trace, spikes={"out": np.zeros((1, 2, 2), bool)})
    shown = replace(story, network=network, fit=fit(network, LOIHI2), trace=trace_of_it)
    page = render(replace(shown, verify=replace(story.verify, drift=None)))
    assert len(pictures_of(page)) == 2  # the network, and core use
    assert "firing rate" not in words_of(page)


def test_thresholds_are_shown_in_units_of_the_float_network(story, folded):
    for population, neuron in story.spiking():
        (real,) = [p.neuron.threshold for p in folded.populations if p.name == population.name]
        shown = real_thresholds(story.network, population, neuron)
        assert shown.shape == real.shape
        scale = story.network.scales[population.name].reshape(-1, *(1 for _ in real.shape[1:]))
        assert (np.abs(shown - real) * scale <= 1).all()  # rounded down by less than one unit


def test_thresholds_without_a_scale_are_the_integers():
    network = skipping()
    population = network.populations[1]
    assert (real_thresholds(network, population, population.neuron) == 3).all()


def test_a_histogram_leaves_out_what_lies_far_away():
    values = np.array([*np.linspace(1, 2, 50), 1000.0])
    low, high = histogram_range(values)
    assert (low, high) == (1.0, pytest.approx(3.77, abs=0.1))


@pytest.mark.parametrize("value", [0.0, 0.5, -2.0])
def test_a_histogram_of_equal_thresholds_has_a_width(value):
    low, high = histogram_range(np.full(4, value))
    assert low < value < high


def test_the_raster_shows_at_most_200_neurons_from_first_to_last():
    spikes = np.arange(1000)[None].repeat(2, axis=0)
    shown = sampled_neurons(spikes)
    assert shown.shape == (2, 200)
    assert (shown[0, 0], shown[0, -1]) == (0, 999)
    assert sampled_neurons(spikes[:, :7]).tolist() == spikes[:, :7].tolist()


def test_long_names_are_shortened_in_the_middle():
    assert label("layer1.conv1") == "layer1.conv1"
    assert label("a" * 20 + "b" * 20, 9) == "aaaa…bbbb"
    assert label("$a\n$") == r"\$a \$"


def test_a_picture_is_the_same_every_time(story):
    assert as_data_uri(network_diagram, story) == as_data_uri(network_diagram, story)
