"""A new chip is one TOML file, which export and fit take as it is."""

import json
from pathlib import Path

import numpy as np
import pytest

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.formats.folder import open_folder

pytestmark = pytest.mark.usefixtures("without_lava")

CHIP = Path(__file__).parents[1] / "toy_chip.toml"


def test_a_new_chip_is_one_file(model_path, export_folder, tmp_path, capfd):
    out, target = tmp_path / "toy", ("--target", str(CHIP))
    assert console_script(["export", str(model_path), *target, "--samples", "2", "--out", str(out)]) == 0
    assert "Toy chip" in (out / "report.html").read_text(encoding="utf-8")
    weights = [connection.synapse.weight for connection in open_folder(out).network.connections]
    assert max(np.abs(weight).max() for weight in weights) <= 16
    capfd.readouterr()
    for folder, fits in ((out, True), (export_folder, False)):
        assert console_script(["fit", str(folder), *target, "--json"]) == (0 if fits else 1)
        report = json.loads(capfd.readouterr().out)
        assert (report["target"], report["cores"], report["fits"]) == (
            "toy",
            20,
            fits,
        )  # 26 in the compiler's tiling
    assert {f["rule"] for f in report["findings"] if f["severity"] == "error"} == {"weights_fit_format"}
