"""The page that compares several exports."""

from dataclasses import replace

from markupsafe import Markup

from mpbn_deploy.report.comparison import ComparedExport, chart, comparison_values
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


def test_the_page_shows_every_export_and_needs_nothing_from_elsewhere():
    found = page(ONE, replace(ONE, name="other", weight_bits=4, fits=False, random_inputs=True), UNKNOWN)
    assert (
        "3 exports compared" in found
        and "<script" not in found
        and "http:" not in found
        and "https" not in found
    )
    for text in ("98.33 %", "7.65 µs", "&lt;b&gt;.speck", ">no</td>", "2.02 µJ*", "random inputs"):
        assert text in found, text
    assert found.count("<svg") == 3 and found.count("<circle") == 6  # nothing is drawn of what is unknown


def test_charts_without_values_are_left_out():
    assert chart("Cores", [UNKNOWN], lambda export: export.cores, {"speck": "red"}) is None
    assert "<svg" not in page(UNKNOWN) and isinstance(comparison_values([ONE])["charts"][0][1], Markup)
