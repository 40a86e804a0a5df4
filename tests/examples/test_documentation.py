"""The documentation: commands parse, imports work, links lead somewhere, and the site builds."""

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mpbn_deploy.__main__ import commands
from mpbn_deploy.base import CommandParser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += [ROOT / "hw_profiles" / "README.md", *sorted((ROOT / "examples").glob("**/README.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:python -m mpbn_deploy\.|mpbn-deploy )(\w+) ([^`#|\n]*)")
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
PLACEHOLDERS = ("...", "[", "NAME", "TARGET")


def typed_commands(page):
    """Yield every command of a page that is meant to be typed as it is."""
    for name, rest in COMMAND.findall(page.read_text(encoding="utf-8").replace("\\\n", " ")):
        if name in commands() and rest.strip() and not any(word in rest for word in PLACEHOLDERS):
            yield name, shlex.split(rest.rstrip(" .,;:)"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_has_options_that_exist(page, capsys):
    for name, words in typed_commands(page):
        parser = CommandParser(prog=name)
        commands()[name].configure(parser)
        try:
            parser.parse_args(words)
        except SystemExit as ended:
            assert not ended.code, f"{page.name}: {name} {words}: {capsys.readouterr().err[-300:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_import_names_that_exist(page):
    blocks = [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "python"]
    for node in (node for text in blocks for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("mpbn_deploy"):
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    local = [target for target in LINK.findall(text) if "://" not in target and not target.startswith("*")]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs-material is not installed (pip install '.[docs]')")
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed (pip install '.[docs]')")
    command = [sys.executable, ROOT / ".ci" / "docs" / "build.py", "--site-dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "--weight-bits" in shown and "<math" in (tmp_path / "mathematics.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"https?:", shown)  # nothing is fetched
