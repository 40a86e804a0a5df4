"""The metrics of NeuroBench: equal to its own harness on the PyTorch network that was folded."""

import numpy as np
import pytest
import torch
from networks import inputs_for, int_chain, int_residual
from torch import nn

from mpbn_deploy.api import InputFormat, SpikingNetwork, fold, simulate, trace
from mpbn_deploy.fit import measure, neurobench_metrics
from mpbn_deploy.fit.activity import used_bits
from mpbn_deploy.ir import IntNetwork, count_spikes

STEPS, SAMPLES = 5, 3


def ours(network, inputs):
    counted = count_spikes(simulate(network, inputs))
    return neurobench_metrics(network, measure(network, inputs, counted=counted), counted)


@pytest.mark.interop
@pytest.mark.parametrize("highest", [1, 7], ids=["spikes", "graded"])
def test_the_numbers_are_those_of_neurobench(highest):
    snn = pytest.importorskip("snntorch", reason="snnTorch is not installed (pip install snntorch)")
    pytest.importorskip("neurobench", reason="neurobench is not installed (pip install neurobench)")
    from neurobench.metrics.manager.workload_manager import WorkloadMetricManager
    from neurobench.metrics.static import ConnectionSparsity
    from neurobench.metrics.workload import ActivationSparsity, MembraneUpdates, SynapticOperations
    from neurobench.models import SNNTorchModel

    def leaky():
        return snn.Leaky(beta=0.75, init_hidden=True, reset_mechanism="zero", reset_delay=False)

    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2, bias=False),
        leaky(),
        nn.Conv2d(4, 4, 3, groups=2, bias=False),
        leaky(),
        nn.Flatten(),
        nn.Linear(4 * 4, 6, bias=False),
    )
    with torch.no_grad():
        for layer in (body[0], body[2], body[5]):
            layer.weight *= 4
            layer.weight[layer.weight.abs() < layer.weight.abs().median() / 2] = 0
    given = InputFormat(shape=(2, 8, 7), minimum=0, maximum=highest, mean=[0.0], deviation=[1.0])
    folded = fold(trace(SpikingNetwork(body, timesteps=STEPS, input_format=given)))
    inputs = np.random.default_rng(0).integers(-highest, highest + 1, (SAMPLES, STEPS, 2, 8, 7)).clip(0)
    found = ours(folded, inputs)

    class Stepped(SNNTorchModel):
        def __call__(self, data):
            from snntorch import utils

            utils.reset(self.net)
            return torch.stack([self.net(data[:, step]) for step in range(STEPS)], 1)

    model, manager = (
        Stepped(body),
        WorkloadMetricManager([ActivationSparsity, SynapticOperations, MembraneUpdates]),
    )
    manager.register_hooks(model)
    data = torch.from_numpy(inputs).float()
    manager.initialize_metrics()
    with torch.no_grad():
        theirs = manager.run_metrics(model, model(data), (data, None), 1, 1)  # one batch is all
    operations = theirs["SynapticOperations"]
    assert 0.05 < found.activation_sparsity < 0.95 and found.connection_sparsity > 0.1
    assert found.activation_sparsity == theirs["ActivationSparsity"]
    assert round(found.connection_sparsity, 4) == ConnectionSparsity()(model)
    assert found.effective_acs == operations["Effective_ACs"]
    assert found.effective_macs == operations["Effective_MACs"] and (found.effective_macs > 0) == (
        highest > 1
    )
    assert found.dense == operations["Dense"]
    assert found.membrane_updates == theirs["MembraneUpdates"]


def test_the_footprint_is_that_of_the_integers():
    network = int_chain()
    assert isinstance(network, IntNetwork)
    found = ours(network, inputs_for(network))
    weights = [connection.synapse.weight for connection in network.connections]
    assert found.parameters > sum(weight.size for weight in weights)
    assert sum(weight.size for weight in weights) < found.footprint < 4 * found.parameters


def test_a_silent_step_updates_nothing_but_the_first_counts_all():
    network = int_residual()
    found = ours(network, inputs_for(network))
    firing = sum(p.size for p in network.populations[1:])
    assert firing <= found.membrane_updates <= firing * network.timesteps


@pytest.mark.parametrize(
    "values, bits", [([0], 1), ([-1, 0], 1), ([1], 2), ([-128, 127], 8), ([-9], 5), ([], 1)]
)
def test_bits_of_the_widest_integer(values, bits):
    assert used_bits(np.array(values, int)) == bits
