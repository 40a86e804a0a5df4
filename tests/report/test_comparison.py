"""The page that compares several exports."""

from dataclasses import replace

import numpy as np
import pytest
from markupsafe import Markup

from mpbn_deploy.report.command import ComparedExport, _chosen_bits, chart, comparison_values
from mpbn_deploy.report.html import render_template

ONE = ComparedExport(
    name="model.loihi2",
    target="loihi2",
    weight_bits=8,
    bit_exact=True,
    fits=True,
    cores=4,
    chips=1,
    data="digits",
    float_accuracy=0.9861,
    integer_accuracy=0.9833,
    energy=2_020_000.0,
    time=7_647.0,
)
UNKNOWN = ComparedExport(
    name="<b>.speck", target="speck", weight_bits=4, bit_exact=False, fits=None, cores=None, chips=None
)


def page(*exports):
    return render_template("comparison.html.j2", comparison_values(exports))


@pytest.mark.parametrize(
    ("weights", "bits"),
    [([-112, 16, 96], 4), ([-112, 17, 96], 8), ([-128, 127], 8), ([0, 0], 1), ([2, -2], 2)],
)
def test_bits_are_those_that_were_chosen_however_the_chip_stores_them(weights, bits):
    assert _chosen_bits(np.array(weights)) == bits


def test_the_page_shows_every_export_and_needs_nothing_from_elsewhere():
    found = page(ONE, replace(ONE, name="other", weight_bits=4, fits=False, random_inputs=True), UNKNOWN)
    assert (
        "3 exports compared" in found
        and "<script" not in found
        and "http:" not in found
        and "https" not in found
    )
    for text in ("98.33%", "7.65 µs", "&lt;b&gt;.speck", ">no</td>", "2.02 µJ*", "random inputs"):
        assert text in found, text
    assert found.count("<svg") == 3 and found.count("<circle") == 6  # nothing is drawn of what is unknown


def test_a_chip_that_fits_under_conditions_is_no_plain_yes():
    assert ">depends</td>" not in page(ONE) and "no public source" not in page(ONE)
    found = page(replace(ONE, conditions=2))
    assert ">depends</td>" in found and "no public source" in found
    assert ">depends</td>" not in page(replace(ONE, fits=False, conditions=2))
    assert ">no chip</td>" in page(replace(ONE, cores=None))


def test_points_that_coincide_share_a_label_and_counts_have_whole_ticks():
    cores = {"loihi2": "red"}
    drawn = chart("Cores", [ONE, ONE, replace(ONE, cores=5)], lambda export: export.cores, cores)
    assert ">1, 2</text>" in drawn and ">3</text>" in drawn
    assert ">4</text>" in drawn and ">4.5</text>" not in drawn


def test_charts_without_values_are_left_out():
    assert chart("Cores", [UNKNOWN], lambda export: export.cores, {"speck": "red"}) is None
    assert "<svg" not in page(UNKNOWN) and isinstance(comparison_values([ONE])["charts"][0][1], Markup)
