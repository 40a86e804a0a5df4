"""The command line of `export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from ..base import (
    JSON,
    SURPLUS,
    Command,
    Execute,
    FormatError,
    OptionError,
    StrictParser,
    add_budget_argument,
    add_chips_argument,
    add_sample_arguments,
    add_side_arguments,
    add_tiling_argument,
    add_witness_argument,
    input_value,
    main,
    whole_number,
)
from ..data import DATASETS, RANDOM
from ..execute.outside import ASKED
from ..formats.options import (
    Dialect,
    ExportOptions,
    NirCurrent,
    NirReset,
    OverflowChoice,
    PoolingChoice,
    Side,
    Thresholds,
)
from ..hardware.place import Tiling
from ..quantize import CALIBRATION_SAMPLES

USUAL = ExportOptions()
CONFIG = "--config"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_input_arguments(parser.add_argument_group("input"))
    _add_quantization_arguments(parser.add_argument_group("quantization"))
    verification = parser.add_argument_group("verification")
    add_sample_arguments(
        verification,
        (*DATASETS, RANDOM),
        "on which executors are compared bit by bit and energy and time are estimated",
        otherwise=f", else {RANDOM}",
        also="; also for --calibration",
    )
    add_budget_argument(verification)
    add_witness_argument(verification, ASKED)
    _add_target_arguments(parser.add_argument_group("target and output"))


def _add_input_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "model",
        type=Path,
        nargs="?",
        help="the trained network: a checkpoint written by `train` (model.pt, model.safetensors), a "
        "state_dict of your own network, or a NIR file (.nir) from any tool",
    )
    group.add_argument(
        CONFIG,
        type=Path,
        metavar="FILE",
        help="take the model and options from this file, like the run.toml of an export folder; options "
        "on the command line override it",
    )
    group.add_argument(
        "--arch",
        metavar="NAME",
        help="how to build the network of a checkpoint with an architecture of your own: "
        "package.module:factory, a function in your code, which is imported and called; for a checkpoint of "
        "the paper's code: paper:res20m, paper:res19, paper:res20 or paper:VGG16, together with --timesteps",
    )
    group.add_argument(
        "--timesteps",
        type=whole_number(1),
        metavar="N",
        help="time steps per sample (default: the number used in training, or stated by the .nir file)",
    )
    group.add_argument(
        "--input-range",
        type=input_value,
        nargs=2,
        metavar=("LOWEST", "HIGHEST"),
        help="range of the integer input values, if the file does not state it (default for .nir files: 0 1, "
        "spikes)",
    )
    group.add_argument(
        "--input-shape",
        type=whole_number(1),
        nargs="+",
        metavar="SIZE",
        help="shape of one sample in one time step, for a bare state_dict, or for a .nir file that states "
        "another: channels height width, or features",
    )
    group.add_argument(
        "--normalize",
        type=float,
        nargs="+",
        metavar=("MEAN", "DEVIATION"),
        help="how the inputs of a bare state_dict or a .nir file were normalized in training: "
        "(x - mean) / deviation, where x is in --input-range; for a state_dict also the means of all "
        "channels, and then their deviations (default: not at all)",
    )
    group.add_argument(
        "--dt",
        type=float,
        metavar="SECONDS",
        help="duration of one time step, if a .nir file does not state it (default: 1e-4)",
    )
    group.add_argument(
        "--nir-reset",
        choices=get_args(NirReset),
        default=USUAL.nir_reset,
        help="how spikes reset in a .nir file, which NIR does not say: zero; subtract the threshold, as the "
        "recognized writer does it, or before or after the next leak; auto: as the file's metadata states, "
        "or else assumed, and reported as an assumption (default %(default)s)",
    )
    group.add_argument(
        "--nir-current",
        choices=get_args(NirCurrent),
        default=USUAL.nir_current,
        help="which current a CubaLIF of a .nir file integrates: new or previous; auto as above, new if "
        "assumed (default %(default)s)",
    )


def _add_quantization_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--weight-bits",
        type=whole_number(2),
        metavar="N",
        help="bits per weight, including the sign (default: the most that the target supports); fewer bits "
        "take less memory and change more spikes",
    )
    group.add_argument(
        "--input-offset",
        type=int,
        default=USUAL.input_offset,
        metavar="N",
        help="let the network take inputs minus N; for pixels (0 to 255), 128 makes the biases of the first "
        "layer small, which leaves more bits to its weights; the float network stays the same (default "
        "%(default)s)",
    )
    group.add_argument(
        "--input-bits",
        type=whole_number(1),
        metavar="N",
        help="round inputs to this many bits (default: as they are); many time steps of 8-bit values leave "
        "few bits of a state for weights",
    )
    group.add_argument(
        "--calibration",
        metavar="NAME",
        help=f"choose the integers that change the fewest spikes on {CALIBRATION_SAMPLES} training "
        f"samples of this data set: {', '.join(DATASETS)}, or your own as for --data (default: round to the "
        "nearest integers, without data)",
    )
    group.add_argument(
        "--thresholds",
        choices=get_args(Thresholds),
        default=USUAL.thresholds,
        help="own: every channel or neuron keeps its own threshold, within the target's limits; core: one "
        "threshold per core of the target; shared: one per population, for chips and tools that support no "
        "more (default %(default)s)",
    )
    group.add_argument(
        "--overflow",
        choices=get_args(OverflowChoice),
        default=USUAL.overflow,
        help="proved: no input can make a membrane voltage overflow; measured: finer integers, with only a "
        "margin above the voltages that calibration samples reach; needs --calibration (default %(default)s)",
    )
    group.add_argument(
        "--pooling",
        choices=get_args(PoolingChoice),
        default=USUAL.pooling,
        help="composed: part of the kernels after it; relay: neurons that pass sums on as graded messages, "
        "with the same integers everywhere else; auto: whichever needs fewer cores of the target, in this "
        "--tiling (default %(default)s)",
    )


def _add_target_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target",
        metavar="NAME",
        help="the chip to export for: the name of a profile (`fit --targets` lists them), or a .toml file",
    )
    add_chips_argument(group)
    add_side_arguments(group, get_args(Side))
    add_tiling_argument(group, get_args(Tiling))
    group.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder to write (default: MODEL.TARGET beside the model)"
    )
    group.add_argument(
        "--nir-dialect",
        choices=get_args(Dialect),
        default=USUAL.nir_dialect,
        help="thresholds in network.nir: faithful, unchanged; portable, rescaled to one threshold for all "
        "neurons, which snnTorch and SpikingJelly require and not every network allows (default %(default)s)",
    )


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
    from ..formats.config import config_words, read_config

    content = read_config(config)
    _check_config(config, content)
    if given.witness:  # they would be added to those of the file
        content.pop("witness", None)
    return [*config_words(content), f"{CONFIG}={config}", *words]


def _check_config(path: Path, content: dict[str, Any]) -> None:
    """Parse each option of the file of --config alone; raise FormatError if one has a wrong value."""
    from ..formats.config import config_words, entry_text

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
        from ..formats.config import MODEL, read_config

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
        "bit, and rounding left weights and accuracy. 1: otherwise; all files are still written.\n\n"
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
