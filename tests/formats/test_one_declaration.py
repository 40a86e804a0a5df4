"""An option is declared in one place: a field that is added to a record is an option everywhere."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import mpbn_deploy
from mpbn_deploy.base import OptionError, Options, add_options, option, same_records, typed

ROOT = Path(mpbn_deploy.__file__).parents[1]
MODEL = ROOT / "tests" / "golden" / "model.pt"
FIELD = """\
    dither: Literal["none", "blue"] = option("none", "noise added before rounding")
"""
ABOUT = """\
import json
from pathlib import Path
from mpbn_deploy.formats.folder import open_folder
from mpbn_deploy.schemas import json_schema

opened = open_folder("model.loihi2")
command = opened.options.command(Path("model.pt"), "loihi2")
print(json.dumps({"dither": opened.options.dither, "command": command, "schema": json_schema("manifest")}))
"""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A copy of the package in which one field more is declared, and a function that runs its Python."""
    folder = tmp_path_factory.mktemp("scratch")
    shutil.copytree(
        ROOT / "mpbn_deploy", folder / "mpbn_deploy", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "hw_profiles", folder / "hw_profiles")
    shutil.copy(MODEL, folder)
    file = folder / "mpbn_deploy" / "formats" / "options.py"
    before, docstring, after = file.read_text().partition('    """How to choose the integers."""\n')
    file.write_text(f"{before}{docstring}\n{FIELD}{after}")

    def run(*words):
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return folder, run


def test_a_field_is_an_option_everywhere(scratch):
    folder, run = scratch
    text = " ".join(run("-m", "mpbn_deploy.export", "--help").split())
    assert "--dither {none,blue} noise added before rounding (default none)" in text
    export = ("-m", "mpbn_deploy.export", "model.pt", "--target", "loihi2", "--samples", "1", "--budget", "0")
    run(*export, "--dither", "blue")
    manifest = json.loads((folder / "model.loihi2" / "manifest.json").read_text())
    assert manifest["options"]["dither"] == "blue"
    assert 'dither = "blue"\n' in (folder / "model.loihi2" / "run.toml").read_text()
    about = json.loads(run("-c", ABOUT))
    assert about["dither"] == "blue"
    assert "--dither blue" in about["command"]
    assert about["schema"]["properties"]["options"]["properties"]["dither"]["enum"] == ["none", "blue"]
    Draft202012Validator(about["schema"]).validate(manifest)
    again = run("-m", "mpbn_deploy.export", "--config", "model.loihi2/run.toml", "--out", "again", "--json")
    assert json.loads(again)["fits"]
    repeated = json.loads((folder / "again" / "manifest.json").read_text())
    assert repeated["options"] == manifest["options"]


# ---- records ------------------------------------------------------------------------------------


class Left(Options):
    count: int | None = option(3, "a number, or all", least=1)
    loud: bool = option(False, "a switch")


class Right(Options):
    names: tuple[str, ...] = option((), "may be repeated")
    part: float = option(0.5, "a part", must=(lambda value: value < 1, "less than 1"))


class Both(Right, Left):
    subject: object = None  # no option


def test_records_are_combined():
    assert [*Both.declared] == ["count", "loud", "names", "part"]
    both = Both(names="one", subject=dict)
    assert both.names == ("one",) and isinstance(both, Left) and isinstance(both, Right)
    assert same_records(Left.from_arguments(both), Left())


def test_a_value_that_must_not_be_is_named():
    with pytest.raises(OptionError, match=r"^--part 2; less than 1 is needed\.$"):
        Right(part=2)


def test_none_is_typed_as_all_and_switches_without_value():
    parser = argparse.ArgumentParser()
    add_options(parser, Both)
    given = Both(count=None, loud=True, names=("a", "b"), part=-1.0)
    words = typed(given, Both)
    assert words == ["--count", "all", "--loud", "--names", "a", "--names", "b", "--part", "-1"]
    assert same_records(Both.from_arguments(parser.parse_args(words)), given)
    assert typed(Both(), Both) == []
