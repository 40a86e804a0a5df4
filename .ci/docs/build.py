"""Build the documentation site: python .ci/docs/build.py, or make docs.

    docs/*.md, README.md, ...   copied to build/docs, with links to files of the repository as plain names
    reference/*.md              generated from parsers, docstrings, schemas and profiles (reference.py)
    $...$                       converted to MathML, so that no page needs a script from elsewhere

mkdocs then builds build/site with --strict: a broken link or anchor is an error. Needs the extra `docs`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from latex2mathml.converter import convert
from reference import pages

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
STAGING = ROOT / "build" / "docs"
ELSEWHERE = {  # pages that are not in docs/
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "hw_profiles/README.md": "hw_profiles.md",
    "examples/README.md": "examples.md",
}
CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
MATH = re.compile(r"\$\$(.+?)\$\$|(?<![\w$\\])\$(?! )([^$\n]+?)(?<! )\$(?![\w$])", re.DOTALL)


def main() -> None:
    stage()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", HERE / "mkdocs.yml"]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "NO_MKDOCS_2_WARNING": "1"}
    sys.exit(subprocess.run([*command, *sys.argv[1:]], env=environment, check=False).returncode)


def stage() -> None:
    """Write all pages and pictures to build/docs."""
    shutil.rmtree(STAGING, ignore_errors=True)
    for folder in ("reference", "results"):
        (STAGING / folder).mkdir(parents=True)
    for source, page in sources().items():
        (STAGING / page).write_text(page_text(source), encoding="utf-8")
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, STAGING)
    for page, text in pages().items():
        (STAGING / page).write_text(text, encoding="utf-8")


def sources() -> dict[str, str]:
    """Map each page of the repository to its page of the site."""
    docs = ROOT / "docs"
    found = [file.relative_to(docs).as_posix() for file in sorted(docs.rglob("*.md"))]
    inside = {f"docs/{page}": page for page in found}
    return {**inside, **{source: page for source, page in ELSEWHERE.items() if (ROOT / source).is_file()}}


def page_text(source: str) -> str:
    """Return a page for the site; code stays as it is."""
    kept: list[str] = []

    def keep(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\0{len(kept) - 1}\0"

    text = CODE.sub(keep, (ROOT / source).read_text(encoding="utf-8"))
    text = MATH.sub(_formula, LINK.sub(lambda link: _link(link, source), text))
    return re.sub("\0(\\d+)\0", lambda number: kept[int(number[1])], text)


def _link(link: re.Match[str], source: str) -> str:
    """Return a link between pages of the site; a file without a page is only named."""
    mark, label, target = link.groups()
    path, _, anchor = target.partition("#")
    if not path or "://" in path:
        return link[0]
    found = os.path.relpath((ROOT / source).parent / path, ROOT)
    known = sources()
    if found in known:
        return f"[{label}]({_from(source, known[found])}{'#' if anchor else ''}{anchor})"
    if found.startswith("docs/"):
        return f"{mark}[{label}]({_from(source, found.removeprefix('docs/'))})"
    if not (ROOT / found).exists():
        sys.exit(f"{source}: links to {target}, which does not exist")
    return f"`{label}`" if found.endswith(label) else f"{label} (`{found}`)"


def _from(source: str, page: str) -> str:
    """Return the path of a page of the site, seen from the page of a source."""
    return os.path.relpath(page, Path(sources()[source]).parent)


def _formula(math: re.Match[str]) -> str:
    """Return a formula as MathML."""
    block, inline = math.groups()
    return convert(block or inline, display="block" if block else "inline").replace("\n", " ")


if __name__ == "__main__":
    main()
