"""Networks that are not trained yet, judged by their shape."""

import json
import re
import shlex

import pytest

from mpbn_deploy.base import main
from mpbn_deploy.fit.__main__ import COMMAND as FIT

SHAPE = ("--input-shape", "1", "8", "8", "--timesteps", "2")


def test_an_untrained_network_is_judged_by_shape_and_assumed_activity(capsys):
    line = ["--arch", "digits-cnn", *SHAPE, "--target", "loihi2", "--firing-rate", "0.5"]
    assert main(FIT, [*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["assumption"] == "untrained: random weights, and an assumed firing rate of 50%"
    assert report["energy"]["assumed_activity"] is True
    assert report["fits"] and report["cores"] == sum(layer["cores"] for layer in report["layers"])
    assert "thresholds_per_channel_work_on_the_chip" in {finding["rule"] for finding in report["findings"]}
    main(FIT, line)
    text = capsys.readouterr().out
    assert text.splitlines()[1].endswith(f"; {report['assumption']}")
    assert "estimated from assumed activity" in text
    assert "next      python -m mpbn_deploy.train --data YOURS --arch digits-cnn --timesteps 2\n" in text


def test_the_network_may_be_a_function_of_the_user(capsys):
    line = [
        "--arch",
        "mpbn_deploy.nn.zoo.networks:digits_mlp",
        *SHAPE,
        "--target",
        "loihi1",
        "--target",
        "speck",
    ]
    assert main(FIT, [*line, "--first-layer", "chip", "--json"]) == 1
    assert [one["target"] for one in json.loads(capsys.readouterr().out)["targets"]] == ["loihi1", "speck"]
    assert main(FIT, [*line[:-4], "--target", "loihi2"]) == 0
    assert (
        "train it, then python -m mpbn_deploy.export WEIGHTS.pt --arch "
        "mpbn_deploy.nn.zoo.networks:digits_mlp "
        "--input-shape 1 8 8 --timesteps 2 --input-range 0 255 --target loihi2"
    ) in " ".join(capsys.readouterr().out.split())
    assert main(FIT, [*line[:-4], "--target", "loihi1", "--first-layer", "host"]) == 0
    assert (
        "--target loihi1 --first-layer host"
        in re.search("^next .*", capsys.readouterr().out, re.MULTILINE)[0]
    )


CHIP = 'schema = 1\nname = "mine"\ntitle = "mine"\ndescription = "mine"\nextends = "loihi2"\n'
FEW = '= { value = 2, source = "invented", basis = "derived" }'


@pytest.mark.parametrize(
    ("target", "ends", "code"),
    [
        (["loihi1", "--first-layer", "chip"], "--target loihi1", 0),
        (["loihi2", "--strict"], "--target loihi2", 0),
        (
            ["two-cores.toml", "--first-layer", "chip"],
            "--target two-cores.toml --chips 2 --first-layer chip",
            0,
        ),
        (["no-words.toml", "--tiling", "best"], "--target no-words.toml", 1),
        (["no-words.toml", "--search"], None, 1),  # which found nothing
        (["speck"], "--target rp2350 --target stm32f446 --target stm32h743", 0),
    ],
)
def test_what_to_type_if_it_does_not_fit_works(target, ends, code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two-cores.toml").write_text(f"{CHIP}[chip]\ncores {FEW}\n")
    (tmp_path / "no-words.toml").write_text(f"{CHIP}[core]\nsynapse_words {FEW}\n")
    assert main(FIT, ["--arch", "digits-cnn", *SHAPE, "--target", *target]) == 1
    text = capsys.readouterr().out
    if ends is None:
        assert "\nnext " not in text and "none of these fits" in text
        return
    typed = re.search(r"^next +(.*)", text, re.MULTILINE)[1]
    assert typed.endswith(ends)
    assert main(FIT, shlex.split(typed)[3:]) == code
    assert "error:" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["--arch", "digits-cnn"], "also needs --input-shape, --timesteps, --target."),
        (["folder", "--arch", "digits-cnn"], "folder and --arch digits-cnn: give one network."),
        (["--arch", "digits-cnn", *SHAPE, "--target", "loihi2", "--advise"], "need a trained network"),
        (
            ["--arch", "digits-cnn", *SHAPE, "--target", "loihi2", "--input-range", "255", "0"],
            "error: --arch digits-cnn: input range 255..0 is empty; give the lowest value first.\n",
        ),
        (
            ["--arch", "digits-cnn", *SHAPE, "--target", "loihi2", "--data", "digits"],
            "--data has no effect here: --data and --data-dir run in trained networks; with --arch, "
            "activity is assumed.",
        ),
        (
            ["folder", "--firing-rate", "0.5"],
            "--firing-rate has no effect here: --classes and --firing-rate describe untrained networks; "
            "they go with --arch.",
        ),
        (["--arch", "digitz-cnn", *SHAPE, "--target", "loihi2"], "Did you mean 'digits-cnn'?"),
    ],
)
def test_what_is_missing_or_too_much_is_said(line, error, capsys):
    assert main(FIT, line) == 2
    assert error in capsys.readouterr().err


def test_a_firing_rate_is_a_share():
    with pytest.raises(SystemExit):
        main(FIT, ["--arch", "digits-cnn", "--firing-rate", "2"])
