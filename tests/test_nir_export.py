"""`export theirs.nir`: the whole pipeline on files that others wrote."""

import json

import nir
import nir_graphs
import numpy as np
import pytest
import test_nir_read as foreign
from networks import int_chain, needs_lava

from mpbn_deploy.cli import main
from mpbn_deploy.errors import FormatError, OptionError
from mpbn_deploy.export import COMMAND, export
from mpbn_deploy.folder import open_folder
from mpbn_deploy.nir_io import write_nir


def theirs(tmp_path, name="pools"):
    return foreign.written(tmp_path, foreign.graph_of(*foreign.CHAINS[name]))


@needs_lava
@pytest.mark.parametrize("name", ["pools", "line"])
def test_a_chain_of_others_runs_bit_exactly_in_lava(tmp_path, name):
    result = export(theirs(tmp_path, name), "loihi2", timesteps=3, input_range=(0, 3), samples=3)
    assert result.good and result.verified.executed == len(result.verified.comparisons) >= 2
    opened = open_folder(result.folder)
    assert opened.network.timesteps == 3 and opened.network.input_range.maximum == 3
    assert (
        opened.manifest["model"]["name"] == "theirs.nir" and opened.manifest["model"]["architecture"] is None
    )


@needs_lava
def test_a_recurrent_network_of_others(tmp_path):
    path = foreign.written(tmp_path, foreign.graph_of((3,), *foreign.recurrent(foreign.cuba)))
    result = export(path, "loihi2", timesteps=5, samples=3)
    assert result.verified.bit_exact


@needs_lava
@pytest.mark.parametrize("kind", [nir_graphs.identity_skip, nir_graphs.own_biases])
def test_files_of_ours_say_all_that_is_needed(tmp_path, kind):
    write_nir(kind(), tmp_path / "ours.nir")
    assert export(tmp_path / "ours.nir", "loihi2", samples=2).verified.bit_exact


def test_the_command(tmp_path, capfd):
    path = theirs(tmp_path)
    arguments = [str(path), "--target", "loihi2", "--timesteps", "2", "--samples", "2", "--json"]
    code = main(COMMAND, [*arguments, "--input-range", "0", "5", "--dt", "2e-4"])
    data = json.loads(capfd.readouterr().out)
    assert code == 0 and data["bit_exact"] and data["folder"].endswith("theirs.loihi2")
    neuron = open_folder(data["folder"]).folded.populations[1].neuron
    np.testing.assert_allclose(neuron.leak, 0.0)  # tau 2e-4: with a dt as long, all is forgotten
    assert main(COMMAND, arguments[:3]) == 2
    assert "the file does not say how many" in capfd.readouterr().err


def test_what_does_not_go_together(tmp_path, model_path):
    with pytest.raises(OptionError, match="--arch builds the network of a checkpoint"):
        export(theirs(tmp_path), "loihi2", timesteps=2, arch="networks:conv_body")
    for options, name in (({"dt": 1e-3}, "--dt"), ({"input_range": (0, 1)}, "--input-range")):
        with pytest.raises(OptionError, match=f"{name} is for NIR files"):
            export(model_path, "loihi2", **options)
    write_nir(int_chain(), tmp_path / "integers.nir")
    with pytest.raises(FormatError, match="holds an integer network"):
        export(tmp_path / "integers.nir", "loihi2")
    nir.write(tmp_path / "none.nir", foreign.lif(2))
    with pytest.raises(FormatError, match="holds no NIRGraph"):
        export(tmp_path / "none.nir", "loihi2", timesteps=2)
