"""The picture of the report in the README: the top of a page that `export` wrote, as a browser shows it.

    make demo && python benchmarks/report_picture.py demo/model.loihi2/report.html      writes docs/report.png

Takes Chromium or Chrome, without a window.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1200, 745)
PATIENCE = 120  # seconds


def photograph(page, size, dark=False):
    """The page as a PNG file's content."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is installed; install one.")
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "page.png"
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
            f"--window-size={size[0]},{size[1]}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--screenshot={picture}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            page.resolve().as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        return picture.read_bytes()


def packed(content):
    """The same pixels in a smaller file."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("RGB").save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path, help="report.html of an export folder")
    parser.add_argument("--out", type=Path, default=Path("docs/report.png"), help="(default %(default)s)")
    parser.add_argument("--size", type=int, nargs=2, default=SIZE, help="width and height in pixels")
    parser.add_argument("--dark", action="store_true", help="as those see it who prefer dark pages")
    options = parser.parse_args()
    content = packed(photograph(options.page, options.size, options.dark))
    options.out.write_bytes(content)
    print(f"{options.out}: {options.size[0]} x {options.size[1]} pixels, {len(content):,} bytes")


if __name__ == "__main__":
    main()
