"""What the commands print, word for word. `make update-golden` rewrites the expected texts: read the diff."""

import io
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from json_schemas import check_json

from mpbn_deploy.__main__ import commands, console_script
from mpbn_deploy.base import MissingPackageError
from mpbn_deploy.formats.options import Verifying

HERE = Path(__file__).parent
COLUMNS = "100"
SIGNIFICANT = 4  # digits of numbers in JSON: sums of floats end otherwise on other processors

EXPORT = "export model.pt --target loihi2 --samples 2 --json"
CASES = {
    "help": "--help",
    **{f"help-{name}": f"{name} --help" for name in commands()},
    "train": "train --arch digits-mlp --epochs 1 --out fresh.pt",
    "train-json": "train --arch digits-mlp --epochs 1 --out fresh.pt --json",
    "run": "run model.loihi2 --samples 20 --backend emulator",
    "run-json": "run model.loihi2 --samples 2 --backend emulator --json",
    "fit": "fit model.loihi2",
    "fit-json": "fit model.loihi2 --json",
    "fit-several": "fit model.loihi2 --target loihi1 --target loihi2 --target speck --target truenorth",
    "fit-advise": "fit model.loihi2 --target loihi1 --advise",
    "fit-energy": "fit model.loihi2 --energy",
    "fit-host": "fit model.loihi2 --target loihi1 --first-layer host --tiling best",
    "fit-targets": "fit --targets",
    "report": "report model.loihi2 model.loihi2",
    "report-json": "report model.loihi2 --json",
    "error-no-file": "export nothing.pt --target loihi2",
    "error-no-folder": "run nowhere",
    "error-json": "run nowhere --json",
    "error-argument-json": "run model.loihi2 --samples 0 --json",
    "error-not-a-checkpoint": "export letter.pt --target loihi2",
    "error-target": "export model.pt --target loihi22",
    "error-export-first": "verify model.pt",
    "error-weight-bits": "export model.pt --target loihi2 --weight-bits 9",
    "error-samples": "run model.loihi2 --samples 0",
    "error-data": "run model.loihi2 --data digitz",
    "error-fit-what": "fit",
    "error-init": "train --quantize loihi2",
}
LAVA_CASES = {
    "export": "export model.pt --target loihi1 --samples 2 --out model.loihi1",
    "verify": "verify model.loihi2 --check",
    "verify-json": "verify model.loihi2 --samples 1 --json",
    "doctor": "doctor",
    "doctor-json": "doctor --json",
}


def printed(line):
    """Return a command line and what it prints, without what depends on the machine or on time."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = console_script(line.split())
        except SystemExit as stop:  # argparse leaves this way
            code = stop.code
    shown = out.getvalue()
    if "--json" in line.split():
        data = json.loads(shown)
        check_json(data["schema"].removeprefix("mpbn_deploy.").removesuffix("/1"), data)
        shown = json.dumps(rounded(data), indent=2, ensure_ascii=False) + "\n"
    text = f"$ mpbn-deploy {line}\n{shown}--- stderr\n{err.getvalue()}--- exit code {code}\n"
    return masked(text, line.split()[0])


def rounded(value):
    """Return a JSON value whose floats have a few significant digits."""
    match value:
        case dict():
            return {key: rounded(item) for key, item in value.items()}
        case list():
            return [rounded(item) for item in value]
        case float():
            return float(f"{value:.{SIGNIFICANT}g}")
    return value


MASKS = {
    r"^compiling loops for training with Numba.*\n": "",  # only where the cache is empty
    r"^[^\n:]*(: [^\n:]*)?: \d+/\d+\n": "",  # progress, printed where something takes long
    r'("samples_per_second": )[\d.e+]+|[\d.]+( samples per second)': r"\1N\2",
    r" +$": "",
}
COMMAND_MASKS = {
    "train": {  # another torch trains another network
        r'(loss|train|test|accuracy|"test_accuracy":) [\d.]+': r"\1 N",
        r"[\d.]+ s$": "N s",
    },
    "doctor": {
        r'("platform": ).*': r'\1"PLATFORM",',
        r"\d+(\.\d+)+[\w.+]*": "VERSION",
        r"\d+ threads?": "N threads",
        r"(?<=\S) {2,}|─{2,}": "  ",  # widths of columns follow the versions
    },
}


def masked(text, command):
    for pattern, replacement in {**COMMAND_MASKS.get(command, {}), **MASKS}.items():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


@pytest.fixture(scope="module")
def golden(request):
    """Compare a text with the file of its name, or write that file."""

    def compare(name, text):
        file = HERE / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            file.write_text(text)
        assert text == file.read_text(), f"{file.name}: after a change that is meant, make update-golden"

    return compare


def with_lavas_own_models(patch):
    """Set the budget to its default, which other tests set to zero."""
    patch.setitem(Verifying.declared, "budget", replace(Verifying.declared["budget"], default=60.0))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with the stored checkpoint and its export, and what export printed."""
    folder = tmp_path_factory.mktemp("golden")
    shutil.copy(HERE / "model.pt", folder)
    (folder / "letter.pt").write_text("Dear")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", COLUMNS)
        with_lavas_own_models(patch)
        text = printed(EXPORT)
    return folder, text


def not_installed():
    raise MissingPackageError("not installed")


@pytest.fixture
def inside(exported, monkeypatch):
    monkeypatch.chdir(exported[0])
    monkeypatch.setenv("COLUMNS", COLUMNS)
    monkeypatch.delenv("SANA_FE_PYTHON", raising=False)
    monkeypatch.setattr("mpbn_deploy.execute.outside.xylosim.version", not_installed)
    with_lavas_own_models(monkeypatch)


@pytest.mark.parametrize("name", CASES)
def test_printed(golden, inside, name):
    golden(name, printed(CASES[name]))


@pytest.mark.lava
@pytest.mark.parametrize("name", LAVA_CASES)
def test_printed_with_lava(golden, inside, name):
    golden(name, printed(LAVA_CASES[name]))


@pytest.mark.lava
def test_export_printed(golden, exported):
    golden("export-json", exported[1])


@pytest.mark.parametrize("name", ["fit", "verify", "neurobench", "manifest"])
def test_files_of_an_export_follow_their_schemas(exported, name):
    check_json(name, json.loads((exported[0] / "model.loihi2" / f"{name}.json").read_text()))


@pytest.mark.parametrize(
    "line", ["fit --targets", f"{CASES['fit-several']} --samples 0", CASES["fit-advise"]]
)
def test_long_json_follows_its_schema(inside, line):
    assert '"schema": "mpbn_deploy.fit/1"' in printed(f"{line} --json")


def test_every_expected_text_has_its_case():
    assert {file.stem for file in HERE.glob("*.txt")} == {*CASES, *LAVA_CASES, "export-json"}
