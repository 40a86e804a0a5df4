"""The options of an export: the same on the command line, in the call, in the manifest and in advice."""

import argparse
import json
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hypothesis import example, given, strategies as st

from mpbn_deploy.base import FormatError, OptionError, main, same_records
from mpbn_deploy.base.options import _word
from mpbn_deploy.export import export
from mpbn_deploy.export.__main__ import COMMAND
from mpbn_deploy.formats.folder import open_folder
from mpbn_deploy.formats.options import ExportOptions

NAMES = st.text(st.characters(codec="ascii", categories=["L", "N", "Zs", "P"]), min_size=1).filter(
    lambda text: not text.startswith("-")
)
COUNTS = st.integers(1, 1000)
OPTIONS = st.builds(
    ExportOptions,
    timesteps=st.none() | COUNTS,
    input_range=st.none() | st.tuples(st.integers(-50, 0), st.integers(1, 50)),
    dt=st.none() | st.floats(1e-6, 1.0),
    arch=st.none() | NAMES,
    calibration=st.none() | NAMES,
    weight_bits=st.none() | st.integers(2, 8),
    thresholds=st.sampled_from(("own", "core", "shared")),
    overflow=st.sampled_from(("proved", "measured")),
    samples=st.none() | COUNTS,
    data=st.none() | NAMES,
    data_dir=st.none() | NAMES.map(Path),
    witness=st.sampled_from(((), ("nengo-loihi",), ("sana-fe", "xylosim"))),
    nir_dialect=st.sampled_from(("faithful", "portable")),
    chips=COUNTS,
)


def parsed(arguments):
    parser = argparse.ArgumentParser()
    COMMAND.configure(parser)
    return parser.parse_args(arguments)


def test_every_option_of_the_command_line_is_a_field():
    found = vars(parsed(["model.pt", "--target", "loihi2"]))
    assert found.keys() == {field.name for field in fields(ExportOptions)} | {
        "model",
        "target",
        "out",
        "json",
        "config",
        "verbose",
    }
    assert same_records(ExportOptions.from_arguments(argparse.Namespace(**found)), ExportOptions())


def test_whole_numbers_are_printed_without_a_fraction():
    options = ExportOptions(normalize=(0.0, 16.0, 0.5, 1e-7), budget=30.0)
    command = options.command(Path("model.pt"), "loihi2")
    assert command.endswith("--normalize 0 16 0.5 0.0000001 --budget 30")


@given(value=st.floats(allow_nan=False, allow_infinity=False))
@example(value=-0.00001)
def test_a_number_is_typed_without_an_exponent_and_read_back(value):
    """Many versions of argparse take -1e-05 for an option."""
    word = _word(value)
    assert re.fullmatch(r"-?\d+(\.\d+)?", word) and float(word) == value


@given(options=OPTIONS, model=NAMES, target=NAMES)
def test_the_command_of_options_is_read_as_these_options(options, model, target):
    python, flag, module, *arguments = shlex.split(options.command(Path(model), target))
    assert (python, flag, module) == ("python", "-m", "mpbn_deploy.export")
    found = parsed(arguments)
    assert (found.model, found.target) == (Path(model), target)
    assert same_records(ExportOptions.from_arguments(found), options)


def test_one_witness_may_be_given_by_its_name():
    assert ExportOptions(witness="xylosim").witness == ("xylosim",)


@given(options=OPTIONS)
def test_a_manifest_gives_its_options_back(options):
    recorded = json.loads(json.dumps(options.recorded()))
    again = ExportOptions.from_recorded(recorded, "manifest.json")
    assert again.recorded() == options.recorded()
    others = {field.name for field in fields(ExportOptions)} - options.recorded().keys()
    assert all(getattr(again, name) == getattr(ExportOptions(), name) for name in others)


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (None, "the options must be timesteps, "),
        ([], "the options must be timesteps, "),
        ({"arch": "os:system"}, "the options must be timesteps, "),
        ({"weight_bits": "4"}, "the option weight_bits is '4'"),
        ({"weight_bits": True}, "the option weight_bits is True"),
        ({"overflow": "hoped"}, "the option overflow is 'hoped'"),
        ({"calibration": ["digits"]}, "the option calibration is "),
        ({"input_shape": [1, "8"]}, "the option input_shape is "),
        ({"normalize": [0, 255, 3]}, "the option normalize is "),
    ],
)
def test_damaged_options_are_rejected(recorded, message):
    with pytest.raises(FormatError, match=f"manifest.json: damaged; {message}"):
        ExportOptions.from_recorded(recorded, "manifest.json")


def test_an_export_folder_knows_its_options(export_folder):
    opened = open_folder(export_folder)
    resolved = {"input_offset": 0, "calibration": "digits", "pooling": "composed", "tiling": "compiler"}
    assert same_records(opened.options, ExportOptions(**resolved))
    assert opened.options.recorded() == opened.manifest["options"]


def test_a_call_takes_the_record_or_keywords(tmp_path):
    """Keywords change what the record says."""
    options = ExportOptions(weight_bits=12)
    with pytest.raises(OptionError, match="weight bits 12"):
        export(tmp_path / "model.pt", "loihi2", options=options)
    with pytest.raises(OptionError, match="weight bits 13"):
        export(tmp_path / "model.pt", "loihi2", options=options, weight_bits=13)
    with pytest.raises(TypeError, match="bits"):
        export(tmp_path / "model.pt", "loihi2", bits=4)
    with pytest.raises(OptionError, match="--overflow measured needs calibration data"):
        given = replace(options, weight_bits=4, calibration=None)
        export(tmp_path / "model.pt", "loihi2", options=given, overflow="measured")


def test_callers_in_python_may_give_lists_and_paths_in_any_form():
    given = ExportOptions(input_shape=[1, 8, 8], normalize=[0, 255], data=Path("a.npz"), data_dir="b")
    plain = ExportOptions(input_shape=(1, 8, 8), normalize=(0, 255), data="a.npz", data_dir=Path("b"))
    assert same_records(given, plain)


CHOICES = "thresholds", "overflow", "pooling", "nir_dialect", "nir_reset", "nir_current", "tiling", "readout"


@pytest.mark.parametrize("name", [*CHOICES, "first_layer"])
def test_a_typing_error_in_a_choice_is_found_before_anything_is_read(name, capsys):
    """Neither the model nor the target of this export exists."""
    known = get_args(get_type_hints(ExportOptions)[name])
    typed = known[-1][:-1]
    with pytest.raises(OptionError, match=f"^{name} '{typed}'. Did you mean '{known[-1]}'. Known: "):
        export("missing.pt", "no chip", **{name: typed})
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(SystemExit, match="2"):
        main(COMMAND, ["missing.pt", "--target", "no chip", option, typed])
    assert f"argument {option}: invalid choice: '{typed}'" in capsys.readouterr().err


def test_all_typing_errors_are_in_one_message():
    with pytest.raises(OptionError, match=r"^pooling 'rely'\. .* nir_dialect 'portabel'\. Did you mean"):
        ExportOptions(pooling="rely", nir_dialect="portabel")
