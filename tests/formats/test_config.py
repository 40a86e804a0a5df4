"""run.toml: an export as a file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from test_options import NAMES, OPTIONS, parsed

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import FormatError, main, same_records
from mpbn_deploy.export.__main__ import COMMAND
from mpbn_deploy.formats.options import ExportOptions, config_text, config_words, read_config


@given(options=OPTIONS, model=NAMES, target=NAMES)
def test_a_written_config_is_read_as_these_options(tmp_path_factory, options, model, target):
    file = tmp_path_factory.getbasetemp() / "run.toml"
    file.write_text(config_text(Path(model), target, options), encoding="utf-8")
    content = read_config(file)
    found = parsed([*config_words(content), "--chips", str(options.chips)])
    assert same_records(ExportOptions.from_arguments(found), options)
    assert (Path(content["model"]), found.target) == (Path(model), target)


def test_options_of_the_command_line_win(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('model = "a.pt"\ntarget = "loihi1"\nweight_bits = 3\ninput_shape = [1, 8, 8]\n')
    found = parsed(COMMAND.expand(["b.pt", "--config", str(file), "--weight-bits", "4"]))
    assert (found.model, found.target, found.weight_bits) == (Path("b.pt"), "loihi1", 4)
    assert found.input_shape == [1, 8, 8] and found.config == file
    assert parsed(COMMAND.expand(["--config", str(file), "--target", "loihi2"])).target == "loihi2"
    assert parsed(COMMAND.expand(["--config", str(file)])).model is None  # then the file's
    file.write_text('witness = ["nengo-loihi"]\n')
    assert parsed(COMMAND.expand(["--config", str(file)])).witness == ["nengo-loihi"]
    assert parsed(COMMAND.expand(["--config", str(file), "--witness", "xylosim"])).witness == ["xylosim"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("weight_bit = 4", "no option 'weight_bit'. Did you mean 'weight_bits'?"),
        ("chips = true", "chips is true; a string, a number or a list of them is needed, as after --chips"),
        ("model = 3", "model must be a string"),
        ("model = ", "cannot be read as TOML"),
    ],
)
def test_damaged_configs_are_refused(tmp_path, text, message):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(FormatError, match=message):
        read_config(tmp_path / "run.toml")


@pytest.mark.parametrize(
    "entry, message",
    [
        ('weight_bits = "x"', "'x' is not a whole number or auto."),
        ("weight_bits = [3, 4]", "more values than weight_bits takes."),
        ("weight_bits = [3, 4, 5]", "more values than weight_bits takes."),
        (
            'thresholds = "shard"',
            "invalid choice: 'shard' (choose from 'own', 'core', 'shared'); did you mean",
        ),
        ("input_range = [1]", "expected 2 arguments: LOWEST HIGHEST."),
    ],
)
def test_an_error_names_the_file_and_the_key(capfd, monkeypatch, tmp_path, entry, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pt").write_text("not read")
    content = {"model": "a.pt", "target": "loihi2"}
    others = "".join(f'{name} = "{value}"\n' for name, value in content.items() if not entry.startswith(name))
    (tmp_path / "mine.toml").write_text(others + entry)
    assert main(COMMAND, ["--config", "mine.toml"]) == 2
    assert capfd.readouterr().err.startswith(f"error: mine.toml, {entry}: {message}")


@pytest.mark.parametrize(
    "entry, message",
    [
        ('model = "none.pt"', "none.pt: no such file."),
        ('target = "loihi3"', "no hardware profile 'loihi3'. Did you mean"),
        ("weight_bits = 12", "weight bits 12; loihi2 supports signed weights of 2..8 bits"),
    ],
)
def test_a_later_error_names_the_file(capfd, monkeypatch, tmp_path, entry, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pt").write_text("not read")
    given = {"model": '"a.pt"', "target": '"loihi2"'} | {entry.split(" ")[0]: entry.split(" = ")[1]}
    (tmp_path / "mine.toml").write_text("".join(f"{name} = {value}\n" for name, value in given.items()))
    assert main(COMMAND, ["--config", "mine.toml"]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"error: {message}") and error.endswith(" (options from mine.toml)\n")


@pytest.mark.parametrize(
    "line, message",
    [
        ("export --config none.toml", "none.toml: cannot be read"),
        ("export --target loihi2", "no model given. Name a checkpoint"),
        (
            "export model.pt --target loihi1 --target=loihi2",
            "--target is given 2 times (loihi1, loihi2); an export is for one chip",
        ),
        ("export model.pt", "no target given. Name the chip with --target"),
        ("export model.pt --target loihi2 --weight-bits x", "'x' is not a whole number"),
        ("exprot", "invalid choice: 'exprot'"),
        ("exprot", "did you mean export?"),
        ("export --weigth-bits=4", "unrecognized arguments: --weigth-bits=4; did you mean --weight-bits?"),
        (
            "fit --serch --treget a",
            "; for --serch, did you mean --search?; for --treget, did you mean --target?",
        ),
        ("fit a --tiling Bets", "choose from 'auto', 'compiler', 'best'); did you mean best?"),
        ("train --lr 0.1", "unrecognized arguments: --lr 0.1; did you mean --learning-rate?"),
        ("run a --nothing-like-it", "unrecognized arguments: --nothing-like-it"),
    ],
)
def test_wrong_arguments_are_json_too(capfd, monkeypatch, tmp_path, line, message):
    monkeypatch.chdir(tmp_path)
    try:
        code = console_script([*line.split(), "--json"])
    except SystemExit as stop:
        code = stop.code
    data = json.loads(capfd.readouterr().out)
    assert code == 2 and data.keys() == {"schema", "error"} and message in data["error"]
