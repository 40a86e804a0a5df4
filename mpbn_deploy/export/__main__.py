"""The command line of `export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base import JSON, SURPLUS, Command, Execute, FormatError, OptionError, StrictParser, add_options, main
from ..data import RANDOM
from ..execute.outside import ASKED
from ..formats.options import Details, Placing, Quantizing, Reading, Verifying, Writing

CONFIG = "--config"
SAMPLES = (
    "number of test samples, or `all`, on which executors are compared bit by bit and energy and time are "
    "estimated"
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    reading = parser.add_argument_group("input")
    reading.add_argument(
        "model",
        type=Path,
        nargs="?",
        help="the trained network: a checkpoint written by `train` (model.pt, model.safetensors), a "
        "state_dict of your own network, or a NIR file (.nir) from any tool",
    )
    reading.add_argument(
        CONFIG,
        type=Path,
        metavar="FILE",
        help="take the model and options from this file, like the run.toml of an export folder; options "
        "on the command line override it",
    )
    add_options(reading, Reading)
    add_options(parser.add_argument_group("quantization"), Quantizing)
    add_options(
        parser.add_argument_group("verification"),
        Verifying,
        samples={"help": SAMPLES},
        data={"also": f"else {RANDOM}"},
        data_dir={"help": "folder with the files of the data set, if it needs one; also for --calibration"},
        witness={"choices": ASKED},
    )
    placing = parser.add_argument_group("target and output")
    placing.add_argument(
        "--target",
        metavar="NAME",
        help="the chip to export for: the name of a profile (`fit --targets` lists them), or a .toml file",
    )
    add_options(placing, Placing)
    placing.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder to write (default: MODEL.TARGET beside the model)"
    )
    add_options(placing, Writing)
    add_options(placing, Details)


def _expand(words: Sequence[str]) -> Sequence[str]:
    """Put the options of the file of --config before the words, so that those given by hand win.

    Raises if the words name several targets; one of them may replace that of the file.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(CONFIG, type=Path, nargs="?")
    parser.add_argument("--target", action="append", nargs="?", default=[])
    parser.add_argument("--witness", action="append", nargs="?")
    given = parser.parse_known_args(words)[0]
    if len(given.target) > 1:
        listed = ", ".join(map(str, given.target))
        raise OptionError(
            f"--target is given {len(given.target)} times ({listed}); an export is for one chip. Give one; "
            "`fit FOLDER --target A --target B` compares chips."
        )
    config = given.config
    if config is None:
        return words
    from ..formats.options import config_words, read_config

    content = read_config(config)
    _check_config(config, content)
    if given.witness:  # they would be added to those of the file
        content.pop("witness", None)
    return [*config_words(content), f"{CONFIG}={config}", *words]


def _check_config(path: Path, content: dict[str, Any]) -> None:
    """Parse each option of the file of --config alone; raise FormatError if one has a wrong value."""
    from ..formats.options import config_words, entry_text

    parser = StrictParser(prog=COMMAND.name)
    COMMAND.configure(parser)
    for name, value in content.items():
        where, many = f"{path}, {entry_text(name, value)}", f"more values than {name} takes."
        try:
            parsed = parser.parse_args([*config_words({name: value}), JSON])
        except OptionError as error:
            reason = str(error).partition(": ")[2]  # argparse begins with the option's name
            end = "" if reason.endswith("?") else "."
            surplus = str(error).startswith(SURPLUS)
            raise FormatError(f"{where}: {many if surplus else reason + end}") from error
        if parsed.model is not None:  # the last word of a list that is too long
            raise FormatError(f"{where}: {many}")


def _check(options: argparse.Namespace) -> None:
    """Take the model from the file of --config unless it is given; raise if there is no model or target."""
    if options.model is None and options.config is not None:
        from ..formats.options import MODEL, read_config

        named = read_config(options.config).get(MODEL)
        options.model = None if named is None else Path(named)
    if options.model is None:
        raise OptionError(
            "no model given. Name a checkpoint or a .nir file, or a file that does with --config."
        )
    if options.target is None:
        raise OptionError("no target given. Name the chip with --target; `fit --targets` lists them.")


def _load() -> Execute:
    from .command import execute

    return execute


COMMAND = Command(
    name="export",
    summary="Fold, quantize, verify and fit a trained network; write the export folder.",
    details=(
        "The folder holds the folded network (network.nir), the integer network (network.net), fit.json,\n"
        "verify.json, neurobench.json, report.html, run.toml and manifest.json. The same model and options\n"
        "give the same bytes.\n"
        "Exit code 0: the network fits the chip, as far as its limits are known, all executors agree bit by\n"
        "bit, and rounding kept weights and accuracy. 1: otherwise; all files are still written.\n\n"
        "example: python -m mpbn_deploy.export model.pt --target loihi2\n"
        "         python -m mpbn_deploy.export model.pt --target loihi2 --weight-bits 4\n"
        "         python -m mpbn_deploy.export model.pt --target loihi2 --witness nengo-loihi\n"
        "         python -m mpbn_deploy.export theirs.nir --target loihi2 --timesteps 16\n"
        "         python -m mpbn_deploy.export --config model.loihi2/run.toml"
    ),
    add_arguments=_add_arguments,
    load=_load,
    expand=_expand,
    check=_check,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
