"""What is installed is pinned, by hash; what is under the GPL is optional."""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LICENSES = (ROOT / "docs" / "licenses.md").read_text(encoding="utf-8")
REQUIRED = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
UNHASHED = {"torch", "torchvision"}  # .ci/pin.py says why
COPYLEFT = re.compile(r"\bL?GPL|General Public License", re.IGNORECASE)


def name_of(requirement):
    return re.sub("[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def pinned(file):
    """Return {(name, version, marker): hashes} of a file of requirements."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    found = {}
    for line in filter(None, lines):
        requirement, *hashes = re.split(r"\s+--hash=", line)
        pin, _, marker = requirement.partition(";")
        name, version = pin.strip().split("==")
        found[name, version, marker.strip()] = hashes
    return found


@pytest.mark.parametrize("kind", ["", "-tools"])
def test_every_pinned_version_has_hashes(kind):
    versions = {pin for pin in pinned(f"constraints{kind}.txt") if pin[0] not in UNHASHED}
    hashed = pinned(f"requirements{kind}.txt")
    assert hashed.keys() == versions
    assert all(
        hashes and all(re.fullmatch("sha256:[0-9a-f]{64}", h) for h in hashes) for hashes in hashed.values()
    )


@pytest.mark.parametrize("extra", ["required", *EXTRAS])
def test_every_dependency_is_pinned_and_its_license_listed(extra):
    names = {name_of(pin[0]) for file in ("constraints.txt", "constraints-tools.txt") for pin in pinned(file)}
    for name in map(name_of, REQUIRED if extra == "required" else EXTRAS[extra]):
        assert name in names
        assert re.search(rf"^\| [^|]*\b{re.escape(name)}\b[^|]*\|", LICENSES, re.MULTILINE), name


def test_the_build_backend_is_pinned():
    (backend,) = PROJECT["build-system"]["requires"]
    name, version = backend.split("==")
    assert (name, version, "") in pinned("requirements.txt")


def test_make_installs_with_hashes():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes --no-deps" in makefile and "--requirement requirements.txt" in makefile


@pytest.mark.parametrize("requirement", REQUIRED, ids=name_of)
def test_no_required_dependency_is_under_the_gpl(requirement):
    name = name_of(requirement)
    try:
        facts = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        pytest.skip("not needed on this Python or machine")
    stated = [facts.get("License-Expression") or "", *(facts.get_all("Classifier") or [])]
    stated += (facts.get("License") or "").splitlines()[:1]
    assert not any(COPYLEFT.search(each) for each in stated)
