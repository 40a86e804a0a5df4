"""Build the source archive and from it the wheel, install it into an empty environment, and try it there.

    python .ci/smoke.py FOLDER              installs all that the wheel asks for, as a user would
    python .ci/smoke.py FOLDER --borrow     takes these packages from the environment of this Python

FOLDER gets dist/ and the environment. Needs hatchling, as `make install` brings it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIED = """
from mpbn_deploy import __file__ as home
from mpbn_deploy.api import example_model, profile_names
assert home.startswith({environment!r}), home
assert "loihi2" in profile_names()
print(example_model("digits"))
"""


def build(dist: Path) -> Path:
    """Return the wheel that was built from the source archive, so that both are whole."""
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", dist, folder=ROOT)
    (archive,) = dist.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    call(*pip, "--wheel-dir", dist, archive, folder=dist)
    (wheel,) = dist.glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path, borrow: bool) -> Path:
    """Return the folder of the programs of a new environment that has the wheel."""
    venv.create(environment, clear=True, with_pip=not borrow)
    place = {"base": str(environment), "platbase": str(environment)}
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else sysconfig.get_default_scheme()
    programs = Path(sysconfig.get_path("scripts", scheme, place))
    pip = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    if not borrow:
        call(*pip, "--constraint", ROOT / "constraints.txt", wheel, folder=environment)
        return programs
    call(*pip, "--no-deps", wheel, folder=environment)
    # A path in a .pth file is searched last, and .pth files there, such as that of a checkout, are not read.
    packages = Path(sysconfig.get_path("purelib", scheme, place))
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return programs


def try_out(programs: Path, folder: Path) -> None:
    """Run the commands of the installed package, from a folder without a checkout; raise if one fails."""
    code = TRIED.format(environment=str(programs.parent))
    model = call(programs / "python", "-c", code, folder=folder).strip()
    print(call(programs / "mpbn-deploy", "--version", folder=folder).strip())
    assert "_mpbn_deploy()" in call(programs / "mpbn-deploy", "--completion", "bash", folder=folder)
    options = ["--target", "loihi2", "--samples", "2", "--budget", "0", "--out", folder / "export", "--json"]
    exported = json.loads(call(programs / "mpbn-deploy", "export", model, *options, folder=folder))
    assert exported["bit_exact"] and exported["fits"], exported
    call(
        programs / "mpbn-deploy",
        "verify",
        folder / "export",
        "--samples",
        "1",
        "--budget",
        "0",
        folder=folder,
    )
    print(f"exported and verified {Path(model).name}, from {Path(model).parent}")


def call(*command: object, folder: Path) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--borrow", action="store_true", help="take other packages from this environment")
    options = parser.parse_args()
    folder = options.folder.resolve()
    (folder / "tried").mkdir(parents=True)
    programs = install(build(folder / "dist"), folder / "environment", options.borrow)
    try_out(programs, folder / "tried")


if __name__ == "__main__":
    main()
