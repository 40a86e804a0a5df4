"""Write requirements.txt: every version of constraints.txt with the hashes of its files on PyPI.

    python .ci/pin.py        after a change of constraints.txt or constraints-tools.txt; needs a network

So is requirements-tools.txt written, from constraints-tools.txt: tools that only some tests run.

`make` installs from requirements.txt with --require-hashes, so that a file that was replaced on its way, or
on the index, is not installed. The hashes are those of wheels for the platforms below, and of source archives
where there are no wheels. torch is left out: builds for processors are on an index of their own, and those
for graphics cards bring libraries of their own. constraints.txt pins its version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.request import urlopen

from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[1]
INDEX = PyPI.simple_url  # where pip itself looks
LEFT_OUT = ("torch", "torchvision")
PYTHONS = re.compile(r"-(py3|py2\.py3|cp310|cp311|cp312|cp313|cp3\d+-abi3|py3\d*|py30|py310)[-.]")
PLATFORMS = re.compile(
    r"(none-any|manylinux\S*_(x86_64|aarch64)|macosx_\d+_\d+_(x86_64|arm64|universal2))\.whl$"
)
LINK = re.compile(r'href="[^"#]*/([^/"#]+)#sha256=([0-9a-f]{64})"')
HEADER = """\
# Written by .ci/pin.py from constraints{kind}.txt: the same versions, with the hashes of their files on PyPI.
# pip install --require-hashes --no-deps --requirement requirements{kind}.txt
"""


def pins(file: Path) -> list[tuple[str, str, str]]:
    """Return name, version and marker of each line of a file of constraints."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = []
    for line in filter(None, (line.partition("#")[0].strip() for line in lines)):
        requirement, _, marker = line.partition(";")
        name, version = requirement.strip().split("==")
        found.append((name, version, marker.strip()))
    return found


def hashes(name: str, version: str) -> list[str]:
    """Return the hashes of the files of a version that we may install, wheels before source archives."""
    with urlopen(f"{INDEX}/{name}/", timeout=60) as page:
        links = LINK.findall(page.read().decode("utf-8"))
    own = re.compile(
        rf"{re.sub('[-_.]+', '[-_.]+', name)}-{re.escape(version)}(-|\.tar|\.zip)", re.IGNORECASE
    )
    files = {file: digest for file, digest in links if own.match(file)}
    wheels = [d for f, d in files.items() if PYTHONS.search(f) and PLATFORMS.search(f)]
    chosen = wheels or [digest for file, digest in files.items() if not file.endswith(".whl")]
    if not chosen:
        sys.exit(f"{name} {version}: no file for our platforms among {sorted(files)}")
    return sorted(chosen)


def main() -> None:
    for kind in ("", "-tools"):
        text = HEADER.format(kind=kind)
        for name, version, marker in pins(ROOT / f"constraints{kind}.txt"):
            if name not in LEFT_OUT:
                options = "".join(f" \\\n    --hash=sha256:{digest}" for digest in hashes(name, version))
                text += f"{name}=={version}{f' ; {marker}' if marker else ''}{options}\n"
        (ROOT / f"requirements{kind}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
