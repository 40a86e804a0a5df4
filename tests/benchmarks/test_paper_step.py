"""The comparison with the paper's code finds what differs; their code itself is not needed for that."""

import copy
from pathlib import Path

import pytest
import torch

from mpbn_deploy.ir import InputFormat
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.nn.zoo import ARCHITECTURES

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHAPE = (3, 8, 8)
BATCH_NORMS, MPBN, SYNAPSES = "batch norms", "MPBN", "convolutions and readout"


@pytest.fixture
def paper_step(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import paper_step

    return paper_step


def small_network():
    torch.manual_seed(0)
    given = InputFormat(shape=SHAPE, minimum=0, maximum=255, mean=[127.0], deviation=[64.0])
    body = ARCHITECTURES["resnet20-slim"](SHAPE, 10, surrogate="tanh")
    return SpikingNetwork(body, timesteps=3, input_format=given).double()


def changed_rows(paper_step, change):
    """The rows in which a copy differs from its original after one step, once the copy is changed."""
    network = small_network()
    other = copy.deepcopy(network)
    change(other)
    inputs = torch.randint(0, 256, (4, *SHAPE)).double()
    labels = torch.randint(10, (4,))
    rows = paper_step.differences(
        paper_step.training_step(network, inputs, labels), paper_step.training_step(other, inputs, labels)
    )
    assert sum(values for what, values, *_ in rows if what.startswith("gradients")) == sum(
        parameter.numel() for parameter in network.parameters()
    )
    return {what for what, _, _, relative in rows if not relative <= paper_step.LARGEST_DIFFERENCE}


def nothing(network):
    pass


def another_weight(network):
    network.body.readout.weight.data[0, 0] += 1e-6


def another_surrogate(network):
    for module in network.modules():
        if isinstance(module, LIF):
            module.surrogate = "rectangle"


def another_momentum(network):
    network.body.layer1[0].lif1.mpbn.bn.momentum = 0.2


def another_count(network):
    network.body.layer1[0].norm1.num_batches_tracked += 1


def not_a_number(network):
    network.body.readout.bias.register_hook(lambda gradient: gradient * float("nan"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (nothing, set()),
        (another_weight, {"loss", *(f"gradients of {kind}" for kind in (SYNAPSES, BATCH_NORMS, MPBN))}),
        (another_surrogate, {f"gradients of {kind}" for kind in (SYNAPSES, BATCH_NORMS, MPBN)}),
        (another_momentum, {f"running statistics of {MPBN}"}),
        (another_count, {f"running statistics of {BATCH_NORMS}"}),
        (not_a_number, {f"gradients of {SYNAPSES}"}),
    ],
)
def test_a_change_shows_in_its_rows_alone(paper_step, change, expected):
    assert changed_rows(paper_step, change) == expected


def test_their_names_become_ours_and_none_may_be_left_over(paper_step):
    """By the table in checkpoint/architectures.py; a tensor on one side alone is an error that names it."""
    network = small_network()
    their_names = {
        "model.conv1.0.pool.weight": "body.conv1.weight",
        "model.layer1.0.output_act.bn.running_var": "body.layer1.0.lif2.mpbn.bn.running_var",
        "model.fc.conv.bias": "body.readout.bias",
        "loss": "loss",
    }
    step = dict.fromkeys(their_names, torch.ones(1))
    ours = paper_step.under_our_names(step, network.body, "paper:res20m")
    assert list(ours) == list(their_names.values())
    with pytest.raises(ValueError, match=r"without a counterpart: body\.readout\.bias, elsewhere"):
        paper_step.differences(
            ours, {"elsewhere": ours["loss"], **{k: v for k, v in ours.items() if "readout" not in k}}
        )


@pytest.mark.parametrize("script", ["paper_step.py", "paper_checkpoints.py", "training_speed.py"])
def test_a_folder_without_their_code_is_bad_input(script, tmp_path, run_here):
    found = run_here(FOLDER / script, "--paper-code", tmp_path)
    assert found.returncode == 2 and "Traceback" not in found.stderr
    assert f"{tmp_path}: no models/spike_model.py in it; give the folder" in found.stderr
