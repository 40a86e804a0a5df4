"""Add a chip: one TOML file, every number with its source; then export for it and count its cores.

python examples/own_chip.py [FOLDER]
"""

import sys
from pathlib import Path

from mpbn_deploy.api import export

HERE = Path(__file__).parent
CHIP = """\
schema = 1
name = "mychip"
title = "My chip"
description = "64 cores of 128 neurons, weights of six bits."

[formats]
weight_bits = { value = 6, source = "my data sheet, table 2", basis = "published" }
threshold_minimum = { value = -32768, source = "my data sheet, table 2", basis = "published" }
threshold_maximum = { value = 32767, source = "my data sheet, table 2", basis = "published" }
bias_mantissa_bits = { value = 13, source = "my data sheet, table 2", basis = "published" }
decay_bits = { value = 12, source = "my data sheet, table 2", basis = "published" }

[core]
neurons = { value = 128, source = "my data sheet, table 1", basis = "published" }

[chip]
cores = { value = 64, source = "my data sheet, table 1", basis = "published" }
"""


def main(folder: Path) -> None:
    (folder / "mychip.toml").write_text(CHIP, encoding="utf-8")
    model, target = HERE / "models" / "digits.pt", str(folder / "mychip.toml")
    result = export(model, target, folder / "digits.mychip", samples=2)
    print(f"fits: {result.fitted.fits}, cores: {result.fitted.cores}")
    print(*(f"not checked: {finding.rule}" for finding in result.fitted.found("not checked")), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
