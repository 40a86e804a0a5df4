"""The page: the same bytes each time, nothing from elsewhere, every number that matters on it."""

import base64
import io
import re
from collections import OrderedDict
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from networks import int_windows
from PIL import Image
from torch import nn

from mpbn_deploy.base import OptionError, printable
from mpbn_deploy.data import Samples, Split
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.fit import (
    ChipMap,
    LayerFit,
    estimate,
    fit,
    headline,
    measure,
    quantity,
    shown_resources,
    spread,
)
from mpbn_deploy.fit.energy import NO_FIGURE
from mpbn_deploy.fit.rules import Finding
from mpbn_deploy.fit.stage import ResourceUse
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import Cost, HardwareProfile, Limit, load_profile
from mpbn_deploy.hardware.place import PlacedLayer, Placement
from mpbn_deploy.ir import (
    STATE_LIMIT,
    Connection,
    Conv2d,
    Dense,
    Input,
    InputFormat,
    IntNetwork,
    Lif,
    Population,
    Readout,
    count_spikes,
)
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.quantize import quantize
from mpbn_deploy.report import ReportContent, write_html
from mpbn_deploy.report.costs import Grid, core_map, cores_of, costs, grid_of
from mpbn_deploy.report.diagram import choose_lanes, network_diagram, split_connections, synapse_text
from mpbn_deploy.report.histograms import (
    agreement,
    bitmap,
    folded_thresholds,
    heat_map,
    histogram_range,
    integer_edges,
    raster,
    rates,
    real_thresholds,
    sampled_neurons,
    thresholds,
    weights,
)
from mpbn_deploy.report.html import render
from mpbn_deploy.report.summary import cards, pipeline, shown_findings, verdicts
from mpbn_deploy.report.svg import (
    arrange,
    byte_size,
    decades,
    element,
    percent,
    plural,
    population_colors,
    short,
    shortened,
    ticks,
)
from mpbn_deploy.verify import Drift, Mismatch, verify
from mpbn_deploy.verify.accuracy import Accuracy, Predictions, accuracy_text, compare_classes
from mpbn_deploy.verify.comparison import Comparison
from mpbn_deploy.verify.flips import Flip
from mpbn_deploy.verify.folding import FloatingCheck, FoldCheck

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
    layers["second"].mpbn.bn.bias.data += 0.5  # so that some of its neurons fire on noise
    return nn.Sequential(layers).eval()


@pytest.fixture(scope="module")
def folded():
    values = InputFormat(shape=(1, 4, 4), minimum=0, maximum=16, mean=np.zeros(1), deviation=np.full(1, 8.0))
    return fold(trace(SpikingNetwork(trained_body(), timesteps=3, input_format=values)))


def with_spikes(content, spikes):
    """The fields of a content in which these spikes were fired."""
    trace = replace(content.trace, spikes=spikes, voltages={})
    return {"trace": trace, "counted": count_spikes(trace)}


@pytest.fixture(scope="module")
def content(folded):
    """A network of two populations that fire, through the whole pipeline."""
    quantized = quantize(folded, LOIHI2)
    network = quantized.network
    inputs = np.random.default_rng(0).integers(0, 17, size=(2, 1, 4, 4))
    test = Split(inputs=inputs, labels=np.array([0, 1]))
    return ReportContent(
        title="tiny.pt on loihi2",
        network=network,
        profile=LOIHI2,
        verify=verify(network, Samples(name="noise", inputs=inputs, labels=None, test=test), folded=folded),
        fit=fit(network, LOIHI2, measure(network, inputs)),
        quantization=quantized.errors,
        trace=emulate(network, inputs),
        counted=count_spikes(emulate(network, inputs)),
        facts={"model sha256": "abc123", "python": "3.x"},
        folded=folded,
        trained_thresholds={"first": 0.5, "second": 0.5},
        normalized=("first", "second"),
        files={"network.nir": 1200, "network.net": 800},
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


def pictures_of(page):
    """The SVG of each picture on a page, read as XML."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def texts_of(picture):
    """All that a picture says."""
    return [element.text for element in ElementTree.fromstring(str(picture)).iter("text")]


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


def renamed(content, old, new):
    """The same content, with another name for one population."""

    def swap(mapping):
        return {new if key == old else key: value for key, value in mapping.items()}

    def name(text):
        return new if text == old else text

    network, report = content.network, content.verify
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
        content,
        title=new,
        network=network,
        verify=replace(report, bounds=swap(report.bounds), drift=drift),
        fit=fit(network, LOIHI2),
        quantization=tuple(replace(errors, name=name(errors.name)) for errors in content.quantization),
        **with_spikes(content, swap(content.trace.spikes)),
        facts={new: new},
        trained_thresholds=swap(content.trained_thresholds),
        folded=None,
    )


# ---- the file ---------------------------------------------------------------------------------


def test_equal_content_gives_the_same_bytes(content, tmp_path):
    for name in ("one.html", "two.html"):
        write_html(tmp_path / name, content)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.html", "two.html"))
    assert one == two
    assert one.startswith(b"<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.html", "two.html"]


def test_other_content_gives_other_bytes(content):
    assert render(content) != render(replace(content, facts={"model sha256": "abc124"}))


def test_the_page_needs_nothing_from_elsewhere(content):
    page = render(content)
    for forbidden in ("<script", "@import", "url(", "http://", "https://"):
        assert forbidden not in page, forbidden
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert len(sources) > 5
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page


def test_links_lead_to_sections_that_are_there(content):
    for shown in (content, replace(content, fit=replace(content.fit, energy=None))):
        page = render(shown)
        sections = re.findall(r'<section id="(\w+)">', page)
        assert re.findall(r'href="#(\w+)"', page) == sections
        assert {"network", "exactness", "quantization", "fit", "provenance"} <= set(sections)
        assert ("energy" in sections) == (shown.fit.energy is not None)


def test_every_color_is_there_in_light_and_in_dark(content):
    page = render(content)
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    assert "@media screen and (prefers-color-scheme: dark)" in page
    colors = set(re.findall(r"(--[\w-]+):", light))
    assert colors == set(re.findall(r"(--[\w-]+):", dark))
    of_one_element = {"--full", "--low", "--high", "--heat", "--steps"}
    assert set(re.findall(r"var\((--[\w-]+)\)", page)) <= colors | of_one_element


def test_pictures_say_what_they_show(content):
    found = pictures_of(render(content))
    assert len(found) == 8  # the network; thresholds of 2 populations; weights of 3; a chip; energies
    assert all(picture.get("aria-label") for picture in found)


def test_no_attribute_is_left_unquoted(content):
    for name, content in (("title", '"<&'), ("class_", "a b")):
        written = element("g", "<b>", **{name: content})
        assert ElementTree.fromstring(str(written)).get(name.rstrip("_")) == content
        assert ElementTree.fromstring(str(written)).text == "<b>"


def test_a_folder_that_is_not_there_is_an_error(content, tmp_path):
    with pytest.raises(OptionError, match="cannot be written"):
        write_html(tmp_path / "missing" / "report.html", content)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$x$", "a & \"b\" 'c'", "日本", "x" * 300])
def test_hostile_names_are_only_text(content, name):
    page = render(renamed(content, "first", name))
    assert "<script" not in page
    assert page.count("<main>") == 1
    assert not any(picture.findall(".//{*}script") for picture in pictures_of(page))
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace('"', "&#34;").replace("'", "&#39;")
    assert f"<h1>{escaped}</h1>" in page
    named = page.count(f"</i>{escaped}</th>")
    assert named == 5  # firing rates, drift in each step, drift, what changed, fit


def test_marks_of_direction_are_shown_as_escapes(content):
    page = render(replace(content, title="a\u202eb\x1b", facts={"x\u2066": "y\u200f"}))
    assert "<h1>a\\u202eb\\x1b</h1>" in page and "x\\u2066" in page and "y\\u200f" in page
    assert printable(page) == page


# ---- what it says -----------------------------------------------------------------------------


def test_what_folding_changed_is_said(content):
    check = FoldCheck.from_json({"samples": 8, "spikes_compared": 1234, "spikes_mismatched": 5})
    floating = FloatingCheck(spikes_compared=99, spikes_mismatched=2, close_calls=1)
    report = replace(content.verify, fold=check, floating=floating)
    words = words_of(render(replace(content, verify=report)))
    assert "in 5 of 1,234 spikes" in words
    assert "against the folded network: 2 of 99 spikes different (1 close calls)." in words
    alone = replace(content, verify=replace(content.verify, fold=None, floating=None))
    assert "Folding" not in words_of(render(alone))


def test_every_population_is_named(content):
    page = render(content)
    for population in content.network.populations[1:]:
        assert page.count(f"</i>{population.name}</th>") >= 3, population.name


def test_the_verdict_of_an_exact_network_that_fits(content):
    ran = [c for c in content.verify.comparisons if c.not_run is None]
    ran.append(Comparison(execution="Lava's own models", spikes_compared=9))
    exact = replace(content, verify=replace(content.verify, comparisons=tuple(ran)))
    words = words_of(render(exact))
    assert words.startswith(
        "tiny.pt on loihi2 ✓ bit-exact to Lava&#39;s own models ? fits Intel Loihi 2 on 3 cores, if "
        "thresholds per channel work on the chip (not known) accuracy "
    )
    assert "model sha256 abc123" in words


def test_each_execution_says_who_wrote_it_and_how_much_it_ran(content):
    seen = Comparison(execution="nengo-loihi", extent="2 of 3 samples; lif1: soft reset", spikes_compared=9)
    own = Comparison(execution="Lava's own models", not_run="no Lava here")
    words = words_of(render(replace(content, verify=replace(content.verify, comparisons=(seen, own)))))
    assert "nengo-loihi Applied Brain Research 2 of 3 samples; lif1: soft reset 9 0" in words
    assert "own models Intel, in Lava not run: no Lava here" in words


def test_mismatches_are_shown_with_their_place(content):
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
    words = words_of(render(replace(content, verify=replace(content.verify, comparisons=(wrong,)))))
    assert words.startswith("tiny.pt on loihi2 ✗ not bit-exact")
    assert "executions 20 of 4,325 values differ, in 1 of 1 execution" in words
    assert "other this package all samples, the whole network 4,321 17 not exposed 4 3" in words
    assert "spike of first, sample 1, time step 2, neuron [0, 3, 1]: expected 1, got 0" in words


def test_a_mismatch_of_an_output_has_no_time_step(content):
    first = Mismatch(
        quantity="output", population="output", sample=0, time_step=None, index=(1,), expected=5, got=-6
    )
    wrong = Comparison(execution="other", outputs_compared=4, outputs_mismatched=1, first_mismatch=first)
    words = words_of(render(replace(content, verify=replace(content.verify, comparisons=(wrong,)))))
    assert "output of output, sample 0, neuron [1]: expected 5, got -6" in words


@pytest.mark.parametrize(
    ("comparisons", "claimed"),
    [
        ([Comparison(execution="Lava's own models", spikes_compared=9)], True),
        ([Comparison(execution="Lava (our models)", spikes_compared=9)], False),
        ([Comparison(execution="Lava's own models", spikes_compared=9, spikes_mismatched=1)], False),
        ([Comparison(execution="Lava's own models", not_run="no Lava here")], False),
        ([Comparison(execution="emulator", spikes_compared=9)], False),
    ],
)
def test_equality_with_lava_is_claimed_only_where_it_was_found(content, comparisons, claimed):
    page = render(replace(content, verify=replace(content.verify, comparisons=tuple(comparisons))))
    assert ("bit-accurate to Lava&#39;s fixed-point model" in page) == claimed
    assert "bit-accurate to the chip" not in page


def test_an_execution_that_did_not_run_says_why_and_proves_nothing(content):
    absent = Comparison(execution="Lava", not_run="no Lava <here>")
    ran = Comparison(execution="emulator", spikes_compared=9)
    page = render(replace(content, verify=replace(content.verify, comparisons=(ran, absent))))
    assert "not run: no Lava &lt;here&gt;" in page
    assert "bit-exact in the one execution that ran; Lava not run" in page
    page = render(replace(content, verify=replace(content.verify, comparisons=(absent,))))
    assert re.search(r'<li class="unknown">.*bit-exactness not tested</li>', page)


def test_a_network_that_lava_dl_cannot_load_gets_no_lines_for_it(content):
    lines = "from mpbn_deploy.execute.lava import load_netx"
    assert lines in render(content) and "Loihi2HwCfg" in render(content)
    obstacle = "out: neurons with a soft reset; those of netx reset to zero"
    page = render(replace(content, verify=replace(content.verify, stock_reader_obstacle=obstacle)))
    assert lines not in page and "Loihi2HwCfg" not in page
    files = words_of(page).partition("What to do with these files")[2]
    assert "with our loader and process models" in files and obstacle in files
    assert "no models for the chip" in files


def test_classes_are_shown(content):
    """Few as a confusion matrix, many as those that are recognized worst."""
    labels = np.array([0, 0, 0, 1])

    def shown(labels, predicted, outputs):
        found = compare_classes(labels, predicted, labels, outputs)
        accuracy = replace(content.verify.accuracy, per_class=found)
        return words_of(render(replace(content, verify=replace(content.verify, accuracy=accuracy))))

    words = shown(labels, np.array([0, 1, 1, 1]), 2)
    assert "class 0 1 samples float integer 0 1 2 3 100.00% 33.33% 1 1 1 100.00% 100.00%" in words
    assert "Most frequent confusions (class → prediction: samples): 0 → 1: 2." in words
    many = np.arange(1000)
    words = shown(many, np.where(many < 7, 999, many), 1000)
    assert "The 10 classes that the integer network recognizes worst, of 1,000." in words
    assert "class samples float integer 0 1 100.00% 0.00% 1 1 100.00% 0.00%" in words
    assert "6 → 999: 1." in words
    right = shown(labels, labels, 2)
    assert "Accuracy per class" in right and "Most frequent confusions" not in right


def test_accuracy_is_shown(content):
    changed = Predictions(samples=1234, changed=20, became_right=3, became_wrong=15)
    accuracy = Accuracy(
        data="noise",
        samples=1234,
        float_network=0.9876,
        integer_network=0.9753,
        trained_network=0.9877,
        predictions=changed,
    )
    words = words_of(render(replace(content, verify=replace(content.verify, accuracy=accuracy))))
    assert "accuracy 98.76% folded → 97.53% integer" in words
    assert "Accuracy on all 1,234 test samples of noise: float network 98.76%, integer" in words
    assert ", PyTorch model 98.77%." in words
    assert "changed by quantization: 20 of 1234, of which 3 became right and 15 became wrong" in words
    words = words_of(render(replace(content, verify=replace(content.verify, accuracy=replace(
        accuracy, trained_network=None, predictions=None)))))  # fmt: skip
    assert "PyTorch model 9" not in words and "changed by quantization" not in words


def test_drift_is_shown(content):
    first = replace(
        content.verify.drift.populations[0],
        spike_agreement=np.array([1.0, 0.5, 0.75]),
        rate_float=np.array([0.25, 0.25, 0.25]),
        rate_integer=np.array([0.25, 0.5, 0.75]),
        voltage_error_rms=np.full(3, 0.0125),
        threshold_distance_rms=np.full(3, 0.1),
        near_threshold=np.zeros(3),
        flips={"weight": 1234, "bias": 0, "leak": 2},
    )
    drift = Drift(
        populations=(first, *content.verify.drift.populations[1:]),
        predictions=Predictions(samples=8, changed=1),
        first_flip=flip_of("first"),
    )
    words = words_of(render(replace(content, verify=replace(content.verify, drift=drift))))
    assert "Both predict the same class for 87.50% of the 2 compared samples." in words
    assert "first 25.00% 50.00% 75.00% 0.0125 12.50% 0.00% weight 1,234, leak 2 second" in words
    assert (
        "differs: first, sample 1, step 2, neuron [0, 3]: the folded network fires at 0.51 against 0.5, the "
        "integer network does not at 0.48 against 0.49; cause: weight (undoing bias restores it too)."
        in words
    )
    drift = replace(drift, first_flip=None)
    assert "No spike differs." in words_of(
        render(replace(content, verify=replace(content.verify, drift=drift)))
    )


def test_agreement_is_shown_per_step(content):
    """Up to twelve steps as numbers, beyond as strips of color."""
    drift = content.verify.drift
    few = agreement(content, drift)
    assert [row.name for row in few.rows] == list(drift.spike_agreement)
    for row in few.rows:
        shares = 1 - drift.population(row.name).spike_agreement
        assert [text for text, _ in row.cells] == [f"{share:.2%}" for share in shares]
        assert row.strip is None
    steps = {key: np.repeat(values, 7) for key, values in drift.populations[0].steps().items()}
    many = replace(drift, populations=(replace(drift.populations[0], **steps),))
    (row,) = agreement(content, many).rows
    assert row.strip is not None and not row.cells
    assert row.mean == few.rows[0].mean


def test_the_darkest_cell_is_the_largest_share():
    table = {"a": np.array([0.0, 0.5]), "b": np.array([0.25, 0.1])}
    found = heat_map(table, {"a": "red", "b": "blue"}, digits=1)
    assert [row.cells for row in found.rows] == [
        (("0.0%", "0%"), ("50.0%", "100%")),
        (("25.0%", "50%"), ("10.0%", "20%")),
    ]
    assert (found.top, found.steps) == ("50.0%", ("1", "2"))
    nothing = heat_map({"a": np.zeros(2)}, {"a": "red"}, digits=1)
    assert nothing.rows[0].cells == (("0.0%", "0%"), ("0.0%", "0%"))


def test_a_long_strip_has_a_cell_for_each_step():
    values = np.linspace(0, 1, 40)
    (row,) = heat_map({"a": values}, {"a": "red"}, digits=1).rows
    strip = ElementTree.fromstring(str(row.strip))
    drawn = {float(path.get("opacity")): path.get("d").count("M") for path in strip}
    levels = np.rint(10 * values)
    assert drawn == {level / 10: int((levels == level).sum()) for level in range(1, 11)}


def test_the_page_works_without_drift_and_accuracy(content):
    page = render(replace(content, verify=replace(content.verify, drift=None, accuracy=None)))
    assert "Float and integer network" not in page
    assert "Drift" not in page
    assert "accuracy" not in words_of(page).lower()
    assert "integers – not compared with the folded network" in words_of(page)  # noqa: RUF001


def test_a_network_without_spikes_in_common_has_no_table_of_agreement(content):
    silent = {key: np.zeros(3) for key in ("rate_float", "rate_integer")}
    populations = tuple(replace(p, **silent) for p in content.verify.drift.populations)
    nothing = Drift(populations=populations, predictions=Predictions(samples=2, changed=0))
    page = render(replace(content, verify=replace(content.verify, drift=nothing)))
    assert "Drift per time step" not in page
    assert "Both predict the same class for 100.00%" in words_of(page)


def test_bounds_are_held_against_24_bits(content):
    page = render(replace(content, verify=replace(content.verify, bounds={"first": STATE_LIMIT // 4})))
    assert "2,097,151" in page
    assert "25.00%" in page
    assert "impossible" in page
    page = render(replace(content, verify=replace(content.verify, bounds={"first": 2 * STATE_LIMIT})))
    assert 'class="bar over"' in page
    assert "200.00%" in page
    assert "impossible" not in page


def finding(severity, message, rule="some_rule"):
    return Finding(rule=rule, where="w", message=message, severity=severity)


def test_errors_come_before_warnings_and_what_was_not_checked(content):
    found = (
        finding("not checked", "something is unknown"),
        finding("warning", "something is doubtful"),
        finding("error", "something is too large", "sizes_fit"),
    )
    words = words_of(render(replace(content, fit=replace(content.fit, fits=False, findings=found))))
    assert "✗ does not fit Intel Loihi 2 (1 rule broken)" in words
    places = [words.index(text) for text in (
        "Errors error not met: sizes fit something is too large",
        "To find changes that make it fit: python -m mpbn_deploy.fit FOLDER --target loihi2 --advise",
        "warning not met: some rule something is doubtful",
        "something is unknown",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "cores on 1 chip; 1 error, 1 warning, 1 not checked" in words


def test_a_warning_is_part_of_the_verdict(content):
    report = replace(content.fit, findings=(finding("warning", "doubtful"),))
    fitting = verdicts(replace(content, fit=report))[1]
    assert (fitting.text, fitting.tone) == ("fits Intel Loihi 2 on 3 cores, with 1 warning", "unknown")


def test_lost_weights_and_accuracy_are_verdicts(content):
    """Of a network whose predictions have become another's."""
    changed = Predictions(samples=100, changed=80, became_right=0, became_wrong=70)
    accuracy = Accuracy(data="d", samples=100, float_network=0.8, integer_network=0.1, predictions=changed)
    assert accuracy.lost and accuracy.collapsed and not replace(accuracy, integer_network=0.792).lost
    few = Predictions(samples=10, changed=8, became_right=3, became_wrong=4)  # which may be chance
    assert not replace(accuracy, samples=10, integer_network=0.7, predictions=few).lost
    first = content.quantization[0]
    lost = (replace(first, channels_without_weights=first.channels_with_weights), *content.quantization[1:])
    verified = replace(content.verify, accuracy=accuracy)
    assert not verified.passed
    assert accuracy_text(accuracy)[2] == (
        "ACCURACY LOST by quantization: 70.00 points, with a standard error of 4.58"
    )
    assert verified.verdict.startswith("70.0 points of accuracy lost by quantization; the integers: ")
    found = verdicts(replace(content, quantization=lost, verify=verified))[2:]
    assert [(each.text.replace('"', ""), each.tone) for each in found] == [
        (f"weights lost to rounding: {first.name}", "bad"),
        (f"accuracy {percent(0.8)} folded → {percent(0.1)} integer", "bad"),
    ]


def test_many_findings_of_one_rule_can_be_expanded(content):
    found = tuple(finding("error", f"layer {n} is wrong", "a_rule") for n in range(9))
    report = replace(content.fit, fits=False, findings=(*found, finding("error", "other", "b_rule")))
    first, second = shown_findings(report, "error")
    assert (first.rule, len(first.shown), len(first.collapsed), len(second.shown)) == ("a rule", 4, 5, 1)
    page = render(replace(content, fit=report))
    assert all(one.message in page for one in report.findings)
    assert "<summary>5 more</summary>" in page


def test_the_use_of_every_resource_is_shown(content):
    page = render(content)
    for layer in content.fit.layers:
        row = re.search(
            rf"<tr><th>[^\n]*</i>{layer.name}</th><td>{layer.neurons:,}</td>.*?</tr>", page, re.DOTALL
        )
        for resource in shown_resources(content.fit):
            use = layer.use[resource]
            assert f'title="{use.used:,} of {use.limit:,}"><b>{use.percent:,.2f}%</b>' in row[0]
            assert f"--full: {use.percent:.2f}%" in row[0]


def test_too_much_is_marked(content):
    layer = content.fit.layers[0]
    use = {**layer.use, "neurons": replace(layer.use["neurons"], used=5, limit=4)}
    report = replace(content.fit, layers=(replace(layer, use=use), *content.fit.layers[1:]))
    page = render(replace(content, fit=report))
    cell = 'class="bar over" title="5 of 4"><b>125.00%</b><span class="track"><i style="--full: 100.00%">'
    assert cell in page
    assert '<small class="over">1 core, 125.00% of neurons</small>' in page


def test_a_chip_of_which_nothing_is_known(content):
    shown = replace(content, profile=NOTHING_KNOWN, fit=fit(content.network, NOTHING_KNOWN))
    words = words_of(render(shown))
    assert "number of chips unknown, because the profile has no cores per chip" in words
    assert "not checked: whether weights fit format" in words
    assert "cores per chip unknown" in words


def test_a_chip_whose_cores_nobody_can_fill(content):
    profile = replace(NOTHING_KNOWN, placement="unknown", is_chip=False)
    shown = replace(content, profile=profile, fit=fit(content.network, profile))
    assert shown.fit.cores is None
    page = render(shown)
    words = words_of(page)
    assert "The core allocation of this chip is not documented" in words
    assert "chip ? cores;" in words
    assert 'class="chips"' not in page
    assert "fits ? on" not in words and "✓ fits ?" in words


def test_spikes_between_chips_are_counted(content):
    chip_map = ChipMap(
        chip=np.array([0, 0, 1]),
        slot=np.array([0, 1, 0]),
        chips=2,
        crossings=1234.0,
        share=0.25,
        board="oheo_gulch",
        boards=3,
        method="METIS",
    )
    report = replace(content.fit, chips=2, chip_map=chip_map, lower_bound=2)
    words = words_of(render(replace(content, fit=report)))
    assert "3 cores; 2 chips. Lower bound for any partition: 2 cores." in words
    assert "Traffic between chips: 1,234 spikes per sample, 25.00% of all (partition: METIS)." in words
    assert "Boards needed: 3 × oheo_gulch." in words  # noqa: RUF001
    assert "chip 1 2 cores, 2 populations" in words and "chip 2 1 core, 1 population" in words


# ---- the top ----------------------------------------------------------------------------------


def test_each_step_says_what_it_changed(content):
    check = FoldCheck.from_json({"samples": 8, "spikes_compared": 1234, "spikes_mismatched": 0})
    ran = Comparison(execution="Lava's own models", spikes_compared=1000, outputs_compared=9)
    accuracy = replace(
        content.verify.accuracy, trained_network=0.75, predictions=Predictions(samples=8, changed=3)
    )
    report = replace(content.verify, fold=check, comparisons=(ran,), accuracy=accuracy)
    found = pipeline(replace(content, verify=report, facts={"model architecture": "some-cnn"}))
    assert [(step.label, step.value, step.tone) for step in found] == [
        ("model", "75.00%", ""),
        ("folded", "0", "good"),
        ("integers", "3", "unknown"),
        ("files", "0", "good"),
        ("executions", "0", "good"),
        ("chip", "3", "unknown"),
    ]
    assert [step.note for step in found] == [
        "accuracy; some-cnn in PyTorch",
        "of 1,234 spikes changed",
        "of 8 predictions changed",
        "integers changed on reading network.net back; 2 kB in 2 files",
        "of 1,009 values differ, in 1 of 1 execution",
        "cores on 1 chip; no rule violated, 2 not known",
    ]


def test_steps_that_were_not_taken_say_so(content):
    bare = replace(content, files={}, verify=replace(content.verify, drift=None, accuracy=None, fold=None))
    notes = {step.label: (step.value, step.note) for step in pipeline(bare)}
    assert notes["model"] == ("3", "time steps; tiny.pt on loihi2")
    assert notes["folded"] == ("–", "not compared with PyTorch")  # noqa: RUF001
    assert "files" not in notes


def test_cards_hold_the_numbers_of_the_records(content):
    shown = {card.label: card.value for card in cards(content)}
    energy = content.fit.energy
    assert shown["energy"] == quantity(energy.energy.value, "J", 1e-12)
    assert shown["time"] == quantity(energy.time.value, "s", 1e-9)
    assert shown["cores"] == str(content.fit.cores) == "3"
    assert shown["neurons"] == "55" and shown["weights"] == str(27 + 240 + 10)
    assert shown["firing rate"] == f"{content.firing_rate():.2%}"


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


def with_network(content, network):
    """The content of another network, in which nothing fires."""
    spikes = {p.name: np.zeros((1, 2, *p.shape), bool) for p in network.populations[1:]}
    return replace(
        content,
        network=network,
        fit=fit(network, LOIHI2),
        **with_spikes(content, spikes),
        verify=replace(content.verify, drift=None),
        folded=None,
    )


def test_a_network_with_skips_is_drawn_whole(content):
    network = skipping()
    diagram = network_diagram(with_network(content, network))
    texts = texts_of(diagram)
    assert {"input", "a", "b", "c", "out", "2 × 4 × 4"} <= set(texts)  # noqa: RUF001
    assert {"conv 1 × 1, stride 2", "conv 1 × 1, delay 1"} <= set(texts)  # noqa: RUF001
    assert "conv 3 × 3, stride 2, 36 weights" in texts  # noqa: RUF001
    drawn = ElementTree.fromstring(str(diagram))
    assert len(drawn.findall(".//rect")) == len(network.populations)
    assert len(drawn.findall(".//path[@class='head']")) == len(network.connections)
    assert "a → b" in words_of(render(with_network(content, network)))


def test_windows_of_one_target_are_one_arrow(content):
    network = int_windows()
    straight, lanes = split_connections(network)
    assert [c.label for c in straight] == ["input->first", "first->last"]
    assert [(c.label, c.delay) for c, _ in lanes] == [("first->last", 1)]
    texts = texts_of(network_diagram(with_network(content, network)))
    assert "conv 7 × 4, stride 2 × 1, 6 windows, 1,008 weights" in texts  # noqa: RUF001
    assert len(weights(network)) == 3


def test_a_convolution_says_what_is_special_about_it():
    weight = np.zeros((4, 1, 3, 5), int)
    synapse = Conv2d(weight=weight, stride=(1, 2), dilation=(2, 2), groups=4)
    assert synapse_text(synapse) == "conv 3 × 5, stride 1 × 2, dilation 2, 4 groups"  # noqa: RUF001


def test_rates_are_those_of_the_trace(content):
    for row in rates(content).rows:
        spikes = content.trace.spikes[row.name]
        shares = [spikes[:, step].mean() for step in range(3)]
        assert [text for text, _ in row.cells] == [f"{share:.1%}" for share in shares]


def test_many_time_steps_are_drawn_without_numbers(content):
    spikes = {name: np.repeat(values, 100, axis=1) for name, values in content.trace.spikes.items()}
    longer = replace(content, **with_spikes(content, spikes))
    assert all(row.strip is not None for row in rates(longer).rows)
    assert "the first 256 of 300 steps" in words_of(render(longer))


def test_a_network_of_a_readout_alone_has_no_pictures_of_spikes(content):
    whole = skipping()
    network = IntNetwork(
        populations=(whole.input, whole.output),
        connections=(Connection(source="input", target="out", synapse=Dense(weight=np.ones((2, 16), int))),),
        timesteps=2,
        scales={},
    )
    shown = with_network(content, network)
    page = render(shown)
    assert not any(heading in page for heading in ("Spikes of the first", "Thresholds</h3>", "Firing rates"))
    assert "firing rate" not in {card.label for card in cards(shown)}


def test_the_raster_holds_the_spikes_of_the_first_sample(content):
    for panel in raster(content):
        encoded = re.search(r"base64,([^\"]+)", panel.picture)[1]
        picture = np.array(Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGBA"))
        spikes = content.trace.spikes[panel.name][0].reshape(3, -1)
        assert ((picture[..., 3] == 255) == spikes.T).all()


@pytest.mark.parametrize("width", [1, 8, 13])
def test_a_bitmap_is_read_back(width):
    pixels = np.random.default_rng(0).random((5, width)) < 0.5
    picture = Image.open(io.BytesIO(bitmap(pixels, (1, 2, 3)))).convert("RGBA")
    read = np.array(picture)
    assert ((read[..., 3] == 255) == pixels).all()
    assert (read[pixels] == (1, 2, 3, 255)).all()


def test_thresholds_are_shown_in_units_of_the_float_network(content, folded):
    for population in content.spiking():
        (real,) = [p.neuron.threshold for p in folded.populations if p.name == population.name]
        shown = real_thresholds(content.network, population)
        assert shown.shape == real.shape
        scale = content.network.scales[population.name].reshape(-1, *(1 for _ in real.shape[1:]))
        assert (np.abs(shown - real) * scale <= 1).all()  # rounded down by less than one unit


def test_thresholds_without_a_scale_are_the_integers():
    network = skipping()
    population = network.populations[1]
    assert (real_thresholds(network, population) == 3).all()


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
    assert shortened("layer1.conv1", 12) == "layer1.conv1"
    assert shortened("a" * 20 + "b" * 20, 9) == "aaaa…bbbb"
    assert shortened("$a\n$", 9) == "$a $"


def test_thresholds_before_and_after_quantizing(content, folded):
    """Both histograms count every threshold, in the same bins."""
    for panel, population in zip(thresholds(content), content.spiking(), strict=True):
        before = folded_thresholds(folded, population.name)
        after = real_thresholds(content.network, population)
        assert panel.notes == (
            f"{after.size} {'neurons' if population.name == 'second' else 'channels'}, "
            f"{plural(len(np.unique(population.neuron.threshold)), 'distinct integer')}",
            "0.5 for all before folding",
            f"rounding error at most {np.abs(after - before).max():.2g}",
        )
        drawn = ElementTree.fromstring(str(panel.picture))
        assert drawn.findall("path[@class='outline']") and drawn.findall("path[@class='bars']")
    alone = thresholds(replace(content, folded=None, trained_thresholds={}))
    assert all("outline" not in panel.picture and len(panel.notes) == 1 for panel in alone)


def test_thresholds_that_no_voltage_reaches_are_left_out(content, folded):
    """A neuron that never fires has an infinite threshold before quantizing."""
    first = folded.populations[1]
    infinite = np.array(first.neuron.threshold)
    infinite[0] = np.inf
    never = replace(first, neuron=replace(first.neuron, threshold=infinite))
    network = replace(folded, populations=(folded.populations[0], never, *folded.populations[2:]))
    (panel, _) = thresholds(replace(content, folded=network))
    assert "inf" not in panel.picture and not any("inf" in note for note in panel.notes)


def test_thresholds_beyond_reach_have_no_rounding_error(content, folded):
    """Their integer is the largest of the format, whatever the folded threshold is."""
    first = folded.populations[1]
    beyond = np.array(first.neuron.threshold)
    beyond[0], beyond[1] = 1e3, -1e3
    constant = replace(first, neuron=replace(first.neuron, threshold=beyond))
    network = replace(folded, populations=(folded.populations[0], constant, *folded.populations[2:]))
    quantized = quantize(network, LOIHI2)
    shown = replace(content, folded=network, network=quantized.network, quantization=quantized.errors)
    after = real_thresholds(quantized.network, quantized.network.layers[0])
    assert np.abs(after[0] - beyond[0]).item() > 10  # what was shown as the rounding error
    (panel, _) = thresholds(shown)
    error = np.abs(after[2:] - beyond[2:]).max()
    assert f"rounding error at most {error:.2g}" in panel.notes and error < 0.1
    count = len(beyond)
    assert f"1 of {count} channels never fire, for any input: left out here" in panel.notes
    assert f"1 of {count} channels always fire, for any input: left out here" in panel.notes


def test_mpbn_is_mentioned_only_where_it_was_folded(content):
    norm = "membrane-potential batch norm (MPBN)"
    assert f"The {norm} costs nothing" in render(content)
    assert f"The {norm} of 1 of 2 populations costs nothing" in render(
        replace(content, normalized=("first",))
    )
    without = render(replace(content, normalized=()))
    assert "MPBN" not in without and "normalized" not in without
    assert "<h3>Thresholds</h3>" in without


def test_negative_thresholds_are_explained_only_where_they_are(content):
    sentence = "A neuron with a negative threshold fires unless it is inhibited."
    layers = [
        replace(p, neuron=replace(p.neuron, threshold=np.abs(p.neuron.threshold)))
        if p in content.spiking()
        else p
        for p in content.network.populations
    ]
    positive = replace(content, network=replace(content.network, populations=tuple(layers)))
    some = replace(layers[1], neuron=replace(layers[1].neuron, threshold=-layers[1].neuron.threshold - 1))
    negative = replace(content, network=replace(content.network, populations=(layers[0], some, *layers[2:])))
    assert sentence not in render(positive) and sentence in render(negative)


def test_weights_are_counted(content):
    for panel, connection in zip(weights(content.network), content.network.connections, strict=True):
        integers = connection.synapse.weight
        assert panel.name == f"{connection.source} → {connection.target}"
        assert f"{integers.size} weights, {integers.min()} to {integers.max()}" in panel.notes
        assert f"{np.mean(integers == 0):.1%} are zero" in panel.notes


@pytest.mark.parametrize(("low", "high"), [(-127, 127), (0, 0), (-1, 1), (5, 900)])
def test_bars_lie_between_integers(low, high):
    edges = integer_edges(low, high)
    assert len(edges) <= 66 and edges[0] < low and high < edges[-1]
    assert (edges % 1 == 0.5).all() and len(np.unique(np.diff(edges))) == 1
    assert np.histogram(np.arange(low, high + 1), bins=edges)[0].sum() == high - low + 1


def test_twelve_panels_are_shown_and_the_others_collapsed(content):
    many = [weights(content.network)[0]] * 30
    assert (len(arrange(many).shown), len(arrange(many).collapsed)) == (12, 18)


def test_ticks_are_round_numbers():
    assert ticks(-127.5, 127.5, 7) == [-100, -50, 0, 50, 100]
    assert ticks(0.0, 1.0, 5) == [0, 0.25, 0.5, 0.75, 1]
    assert ticks(0.31, 0.62, 4) == [0.4, 0.6]
    assert decades(3.0, 250.0) == [0, 1, 2, 3]
    assert decades(10.0, 100.0) == [1, 2]


def test_numbers_in_pictures_are_short():
    assert [short(value) for value in (0.0, -0.001, 1.0, 1.5, 0.126, -12.0)] == [
        "0",
        "0",
        "1",
        "1.5",
        "0.13",
        "-12",
    ]
    assert [byte_size(count) for count in (5, 1234, 12_345_678)] == ["5 B", "1 kB", "12.3 MB"]


@pytest.mark.parametrize("count", [1, 8, 9, 60])
def test_populations_have_colors_of_their_own(count):
    colors = population_colors([f"p{n}" for n in range(count)])
    assert len(set(colors.values())) == count


# ---- cores ------------------------------------------------------------------------------------


def placed(name, shape, tile, **use):
    return PlacedLayer(name=name, shape=shape, tile=tile, use=use)


def layer_fit(layer, **limits):
    use = {name: ResourceUse(used=used, limit=limits[name]) for name, used in layer.use.items()}
    return LayerFit(
        kind="LIF",
        name=layer.name,
        neurons=layer.neurons,
        cores=layer.cores,
        lower_bound=1,
        tile=layer.tile,
        use=use,
    )


def chip_map_of(chip):
    slots = np.array([np.count_nonzero(chip[:core] == chip[core]) for core in range(len(chip))])
    return ChipMap(
        chip=chip,
        slot=slots,
        chips=int(chip.max()) + 1,
        crossings=0.0,
        share=0.0,
        board=None,
        boards=0,
        method="?",
    )


def area(path):
    """Of all rectangles of a path."""
    return sum(float(w) * float(h) for w, h in re.findall(r"h([\d.]+)v([\d.]+)", path.get("d")))


def test_each_core_is_filled_as_far_as_it_is_full():
    full = placed("full", (4,), (2,), neurons=2, words=50)
    half = placed("half", (1, 6), (1, 2), neurons=1, words=30)
    fits = [layer_fit(full, neurons=4, words=50), layer_fit(half, neurons=2, words=None)]
    found = core_map(Placement(layers=(full, half)), fits, chip_map_of(np.array([0, 0, 0, 1, 1])), LOIHI2)
    assert [(one.name, one.cores, one.percent, one.resource) for one in found.legend] == [
        ("full", 2, 100.0, "words"),
        ("half", 3, 50.0, "neurons"),
    ]
    assert [chip.note for chip in found.shown] == ["3 cores, 2 populations", "2 cores, 1 population"]
    colors = population_colors(["full", "half"])
    for chip, expected in zip(
        found.shown, ({"full": (200, 200), "half": (100, 50)}, {"half": (200, 100)}), strict=True
    ):
        groups = ElementTree.fromstring(str(chip.picture)).findall("g")
        drawn = {group.get("fill"): tuple(area(path) for path in group.findall("path")) for group in groups}
        assert drawn == {colors[name]: areas for name, areas in expected.items()}


def test_cores_that_differ_are_filled_differently():
    uneven = PlacedLayer(
        name="uneven",
        shape=(3,),
        tile=(2,),
        use={"neurons": 2},
        use_of=lambda tile: {"neurons": tile[0].stop - tile[0].start},
    )
    cores = cores_of(Placement(layers=(uneven,)), {"uneven": {"neurons": 4}}, None, LOIHI2)
    assert cores.load.tolist() == [0.5, 0.25]


def test_without_a_map_cores_follow_each_other():
    placement = Placement(layers=(placed("a", (200,), (1,)), placed("b", (60,), (1,))))
    cores = cores_of(placement, {}, None, LOIHI2)
    assert np.bincount(cores.chip).tolist() == [128, 128, 4]
    assert cores.slot[[0, 127, 128, 259]].tolist() == [0, 127, 0, 3]
    assert np.isnan(cores.load).all()


def test_layers_on_cores_of_their_own_are_drawn_there():
    layers = tuple(replace(placed(name, (2,), (2,)), core=core) for name, core in (("a", 5), ("b", 2)))
    assert cores_of(
        Placement(layers=layers, kind="layers"), {}, None, load_profile("speck")
    ).slot.tolist() == [5, 2]


def test_cores_of_a_router_lie_together():
    grid = Grid(columns=8, rows=4, per_router=4)
    columns, rows = grid.positions(np.arange(128))
    assert grid.cells == (16, 8)
    assert len(set(zip(columns.tolist(), rows.tolist(), strict=True))) == 128
    assert list(zip(columns[:5].tolist(), rows[:5].tolist(), strict=True)) == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        (2, 0),
    ]
    assert columns[-1] == 15 and rows[-1] == 7


def test_a_chip_without_a_known_grid_has_room_for_its_cores():
    cores = cores_of(Placement(layers=(placed("a", (9,), (1,)),)), {}, None, NOTHING_KNOWN)
    grid = grid_of(NOTHING_KNOWN, cores)
    assert grid.columns * grid.rows >= 9
    known = replace(NOTHING_KNOWN, limits={"chip.cores": Limit(value=50, source="s", basis="b")})
    assert (lambda found: found.columns * found.rows >= 50)(grid_of(known, cores))


def test_one_core_for_all_needs_no_map():
    layer = placed("a", (2,), (2,))
    assert core_map(Placement(layers=(layer,), kind="whole"), [], None, LOIHI2) is None
    assert core_map(Placement(layers=(layer,), kind="unknown"), [], None, LOIHI2) is None


def test_the_page_of_ten_thousand_cores_is_small(content):
    """As those of a ResNet34 that is cut badly: no two neighbors alike."""
    generator = np.random.default_rng(0)
    layers = tuple(
        PlacedLayer(
            name=f"layer{n}.conv",
            shape=(300,),
            tile=(1,),
            use={"neurons": 4000},
            use_of=lambda tile: {"neurons": int(generator.integers(1, 4000))},
        )
        for n in range(36)
    )
    placement = Placement(layers=layers)
    chip_map = chip_map_of(generator.permutation(np.arange(placement.cores) // 128))
    report = replace(
        content.fit,
        cores=placement.cores,
        chips=chip_map.chips,
        placement=placement,
        chip_map=chip_map,
        layers=tuple(layer_fit(layer, neurons=4096) for layer in layers),
    )
    page = render(replace(content, fit=report))
    assert placement.cores == 10_800
    assert len(page.encode()) < 1_500_000
    assert "<summary>25 more chips</summary>" in page


# ---- energy -----------------------------------------------------------------------------------


def test_energy_and_time_are_those_of_the_report(content):
    energy, shown = content.fit.energy, costs(content.fit.energy)
    words = words_of(render(content))
    assert f"Energy per sample: {spread(energy.energy, 'J', 1e-12)}." in words
    sample, step = spread(energy.time, "s", 1e-9), spread(energy.step.total, "s", 1e-9)
    assert f"Time per sample: {sample}; per time step: {step} (" in words
    assert headline(energy) == (
        quantity(energy.energy.value, "J", 1e-12),
        quantity(energy.time.value, "s", 1e-9),
    )
    for rows, total in (
        (shown.dynamic, energy.dynamic),
        (shown.static, energy.static),
        (shown.steps, energy.step),
    ):
        assert [row.name for row in rows] == [item.name for item in total.items]
        assert [row.basis for row in rows] == [item.cost.basis if item.cost else "" for item in total.items]
    for row, item in zip(shown.dynamic, energy.dynamic.items, strict=True):
        assert row.total == quantity(item.total.value, "J", 1e-12)
        assert f"{row.name} {row.count} {row.each}".strip() in words


def test_bars_are_shares_of_the_largest_high(content):
    items = (*content.fit.energy.dynamic.items, *content.fit.energy.static.items)
    top = max(item.total.high for item in items)
    shown = costs(content.fit.energy)
    for row, item in zip((*shown.dynamic, *shown.static), items, strict=True):
        assert (row.low, row.share, row.high) == pytest.approx(
            [100 * value / top for value in (item.total.low, item.total.value, item.total.high)]
        )


def test_what_has_no_public_figure_is_listed(content):
    activity = measure(content.network, np.full((1, 1, 4, 4), 9))
    costs_known = {"energy.spike": Cost(value=2.0, low=1.0, high=3.0, source="a <book>", basis="published")}
    profile = replace(NOTHING_KNOWN, costs=costs_known)
    report = replace(content.fit, energy=estimate(content.network, profile, activity, cores=3))
    words = words_of(render(replace(content, fit=report)))
    assert f"energy of synaptic operations: {NO_FIGURE}" in words
    assert ", excluding the items listed below." in words
    assert "The time per sample is unknown." in words
    assert "spikes : a &lt;book&gt;" in words
    nothing = replace(report, energy=estimate(content.network, NOTHING_KNOWN, activity, cores=3))
    words = words_of(render(replace(content, fit=nothing)))
    assert "The energy per sample is unknown." in words


def test_ordinary_networks_are_drawn_on_a_logarithmic_axis(content):
    drawn = ElementTree.fromstring(str(costs(content.fit.energy).comparison))
    dots = [float(dot.get("cx")) for dot in drawn.findall("circle")]
    energy = content.fit.energy
    values = [energy.dynamic.total, energy.energy, *(item.total for item in energy.ordinary)]
    assert len(dots) == len(values)
    logarithms = np.log10([value.value for value in values])
    slope = (dots[1] - dots[0]) / (logarithms[1] - logarithms[0])
    assert dots == pytest.approx(dots[0] + slope * (logarithms - logarithms[0]), abs=0.1)


def test_without_activity_there_is_no_energy(content):
    shown = replace(content, fit=fit(content.network, LOIHI2))
    assert 'id="energy"' not in render(shown)
    assert not {"energy", "time"} & {card.label for card in cards(shown)}
