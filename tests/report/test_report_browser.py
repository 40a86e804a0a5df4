"""The page in a real browser: no errors, no requests, readable in light and dark, on a phone and on paper."""

import json
import os
import re
import shutil
import subprocess
from html import escape

import pytest

from mpbn_deploy.report.command import comparison_values, read_export
from mpbn_deploy.report.html import render_template

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
PATIENCE = 120  # seconds
SCHEMES = {"dark": 0, "light": 1}  # as Chromium numbers them
READABLE = 4.5  # contrast of text, WCAG 2.1, 1.4.3
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is installed"),
]


@pytest.fixture(scope="module")
def page(export_folder):
    return (export_folder / "report.html").read_text()


@pytest.fixture
def browse(tmp_path):
    """Opens a page with some options of the browser; gives what it prints and what it logs."""

    def run(content, *options):
        path = tmp_path / "page.html"
        path.write_text(content)
        command = [
            BROWSER,
            "--headless",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--v=0",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={tmp_path / 'profile'}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            *options,
            path.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return run


@pytest.fixture
def probe(browse, page):
    """What a script that is put into the page finds there; the page itself allows none."""

    def run(script, *options):
        written = (
            f"<script>document.body.dataset.found = JSON.stringify((() => {{{script}}})())</script></body>"
        )
        printed, problems = browse(POLICY.sub("", page).replace("</body>", written), "--dump-dom", *options)
        assert not problems
        found = re.search(r'data-found="([^"]*)"', printed)[1]
        return json.loads(found.replace("&quot;", '"').replace("&amp;", "&"))

    return run


def test_the_page_opens_without_a_complaint(browse, page):
    printed, problems = browse(page, "--dump-dom")
    assert problems == []
    assert "<h1>model.pt on Intel Loihi 2</h1>" in printed


@pytest.mark.parametrize(
    "planted",
    [
        '<img src="https://example.org/a.png">',
        '<link rel="stylesheet" href="https://example.org/a.css">',
        "<script>1</script>",
        '<style>@import "https://example.org/a.css";</style>',
    ],
)
def test_a_request_would_be_noticed(browse, page, planted):
    """Else the test above could not fail."""
    _, problems = browse(page.replace("</main>", f"{planted}</main>"), "--dump-dom")
    assert len(problems) == 1 and "Content Security Policy" in problems[0]


def luminance(color):
    """Of 'rgb(1, 2, 3)', or a mixed 'color(srgb 0.1 0.2 0.3)', as WCAG 2.1 defines it."""
    largest = 1 if color.startswith("color(srgb ") else 255
    shares = [float(value) / largest for value in re.findall(r"[\d.]+", color)[:3]]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


COLORS = """
    const ground = node => {
        const color = getComputedStyle(node).backgroundColor;
        return color === "rgba(0, 0, 0, 0)" && node.parentElement ? ground(node.parentElement) : color;
    };
    const color = node => getComputedStyle(node)[node.namespaceURI.endsWith("svg") ? "fill" : "color"];
    const shown = "h1, h2, p, li, td, th, dt, dd, a, .pipeline span, figcaption span, summary, svg text";
    return [...document.querySelectorAll(shown)].map(node => [node.textContent, color(node), ground(node)]);
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_can_be_read(probe, scheme):
    found = probe(COLORS, f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}")
    assert len(found) > 100
    plain = [each for each in found if each[2].startswith(("rgb(", "color(srgb ")) and "/" not in each[2]]
    assert len(plain) > 0.9 * len(found)  # the others are cells of heat maps that let the page shine through
    for text, ink, ground in plain:
        assert contrast(ink, ground) >= READABLE, (text, ink, ground)
    page_is_dark = luminance(plain[0][2]) < 0.1
    assert page_is_dark == (scheme == "dark")


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_nothing_reaches_beyond_the_window(browse, page, export_folder, kind, width):
    """Wide tables and pictures scroll inside the page. In a frame: no window is as narrow as a phone."""
    if kind == "comparison":
        values = comparison_values([read_export(export_folder)] * 3)
        page = render_template("comparison.html.j2", values)
    frame = f"""<body><iframe width="{width}" height="900" style="border: 0" srcdoc="{escape(page)}"></iframe>
        <script>document.querySelector("iframe").onload = event => {{
            const inside = event.target.contentDocument.documentElement;
            document.body.dataset.found = `${{inside.scrollWidth}} ${{inside.clientWidth}}`;
        }}</script></body>"""
    printed, problems = browse(frame, "--dump-dom", "--hide-scrollbars")
    assert not problems
    needed, there = map(int, re.search(r'data-found="(\d+) (\d+)"', printed).groups())
    assert needed == there == width


def test_every_picture_has_a_size(probe):
    script = """return [...document.querySelectorAll("svg, img")]
        .filter(one => !one.closest("details"))
        .map(one => [one.getAttribute("aria-label") || one.alt, one.clientWidth, one.clientHeight])"""
    found = probe(script)
    assert len(found) > 10
    assert all(label and width > 50 and height > 20 for label, width, height in found), found


def test_the_page_prints(browse, page, tmp_path):
    path = tmp_path / "page.pdf"
    browse(page, "--no-pdf-header-footer", f"--print-to-pdf={path}")
    assert len(re.findall(rb"/Type\s*/Page\b", path.read_bytes())) >= 4
