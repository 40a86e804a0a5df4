"""The command line of `export`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..base.arguments import (
    count_or_all,
    whole_number,
)
from ..base.commands import Command, Outcome, main
from ..formats.nir import DIALECTS, FAITHFUL
from ..quantize import OVERFLOW_CHOICES, THRESHOLD_CHOICES


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a checkpoint that `train` wrote, or a .nir file")
    parser.add_argument(
        "--target", required=True, help="profile name or .toml file; `fit --targets` lists them"
    )
    parser.add_argument("--out", type=Path, help="folder to write (default: MODEL.TARGET beside the model)")
    parser.add_argument("--weight-bits", type=whole_number(1), help="default: as many as the target holds")
    parser.add_argument(
        "--thresholds",
        choices=THRESHOLD_CHOICES,
        default="own",
        help="one per channel or neuron, as far as the target holds them, or one shared by each population "
        "(default own)",
    )
    parser.add_argument(
        "--overflow",
        choices=OVERFLOW_CHOICES,
        default="proved",
        help="proved: no state can overflow, whatever the input; measured: larger scales, a margin above "
        "what the calibration samples reach (default %(default)s)",
    )
    parser.add_argument(
        "--calibration", help="round by the fewest spike flips on training samples of this data set"
    )
    parser.add_argument(
        "--chips", type=whole_number(1), default=1, help="that the network may take (default 1)"
    )
    parser.add_argument(
        "--samples", type=count_or_all, default=16, help="to verify with; or `all` (default 16)"
    )
    parser.add_argument("--data", help="data set to verify with; default: the one the model was trained on")
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument(
        "--timesteps", type=whole_number(1), help="default: as trained, or as a .nir file says"
    )
    parser.add_argument(
        "--input-range",
        type=whole_number(-(2**23), 2**23),
        nargs=2,
        metavar=("LOWEST", "HIGHEST"),
        help="of a .nir file that does not say it (default: spikes, 0 1)",
    )
    parser.add_argument(
        "--dt", type=float, help="seconds per time step of a .nir file that does not say it (default 1e-4)"
    )
    parser.add_argument(
        "--nir-dialect",
        choices=DIALECTS,
        default=FAITHFUL,
        help="of network.nir: thresholds as they are, or one for all, which snnTorch and SpikingJelly need "
        f"and not every network allows (default {FAITHFUL})",
    )
    parser.add_argument(
        "--arch",
        help="build the network with package.module:factory (imported, so its code runs); or read a "
        "checkpoint of the paper's code: paper:res20m, paper:res19, paper:res20, paper:VGG16; --timesteps",
    )


def _execute(options: argparse.Namespace) -> Outcome:
    from .command import execute

    return execute(options)


COMMAND = Command(
    name="export",
    summary="Fold, quantize, verify and fit a trained network; write the export folder.",
    details=(
        "The folder holds the folded network (network.nir), the integer network (network.net), fit.json,\n"
        "verify.json, report.html and manifest.json. The same model and options give the same bytes.\n"
        "Exit code 0: fits and is bit-exact. 1: does not; everything is still written.\n\n"
        "example: python -m mpbn_deploy.export model.pt --target loihi2\n"
        "         python -m mpbn_deploy.export theirs.nir --target loihi2 --timesteps 16"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
