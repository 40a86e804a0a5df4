"""Norms that know the time step: against their printed equations, and folded, with 0 spikes different."""

import numpy as np
import pytest
import torch
from networks import input_format
from torch import nn

from mpbn_deploy.base import FoldError, OptionError, main
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import bounds, varies
from mpbn_deploy.nn import BNTT, LIF, PSPBN, TAB, TDBN, TEBN, SpikingNetwork, norm_layer
from mpbn_deploy.nn.zoo import ARCHITECTURES
from mpbn_deploy.quantize import quantize
from mpbn_deploy.train.__main__ import COMMAND as TRAIN
from mpbn_deploy.verify.folding import check_fold

STEPS, SHAPES = 3, {"image": (4, 5, 3), "dense": (6,)}
KINDS = {"tdbn": TDBN, "tebn": TEBN, "bntt": BNTT, "tab": TAB, "psp": PSPBN}
VARYING = ("tebn", "bntt", "tab")


def lively(norm, generator, *, flip=False):
    """Give a norm parameters and statistics of its own; with `flip`, gains that are negative in all steps."""
    for module in norm.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.weight.data = torch.rand(module.num_features, generator=generator) + 0.5
            if module.bias.requires_grad:
                module.bias.data.normal_(0, 0.5, generator=generator)
            module.running_mean.normal_(0, 0.5, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            if flip:
                module.weight.data[::2] *= -1
    if isinstance(norm, (TEBN, TAB)):
        norm.p.data = torch.rand(len(norm.p), generator=generator) + 0.5
    if isinstance(norm, PSPBN):
        norm.moment.uniform_(0.5, 2, generator=generator)
        norm.weight.data.uniform_(0.5, 2, generator=generator)
    return norm


def printed(norm, x):
    """The equation of the paper and of its official code, written with plain operations."""
    steps = x.view(STEPS, -1, *x.shape[1:])
    wide = (1, -1, *[1] * (x.dim() - 2))

    def hat(values, over, bn):
        axes = [0, *range(2, values.dim())]
        if norm.training:
            mean, variance = over.mean(axes), over.var(axes, unbiased=False)
        else:
            mean, variance = bn.running_mean, bn.running_var
        return (values - mean.view(wide)) / (variance.view(wide) + bn.eps).sqrt()

    match norm:
        case TDBN():
            scaled = norm.scale * hat(x, x, norm.bn)
            return scaled * norm.bn.weight.view(wide) + norm.bn.bias.view(wide)
        case TEBN():
            y = hat(x, x, norm.bn) * norm.bn.weight.view(wide) + norm.bn.bias.view(wide)
            return torch.cat([p * each for p, each in zip(norm.p, y.view_as(steps), strict=True)])
        case BNTT():
            return torch.cat(
                [
                    hat(each, each, bn) * bn.weight.view(wide)
                    for each, bn in zip(steps, norm.norms, strict=True)
                ]
            )
        case TAB():
            return torch.cat(
                [
                    norm.p[t] ** 2
                    * (
                        hat(steps[t], steps[: t + 1].flatten(0, 1), bn) * bn.weight.view(wide)
                        + bn.bias.view(wide)
                    )
                    for t, bn in enumerate(norm.norms)
                ]
            )
        case PSPBN():
            axes = [0, *range(2, x.dim())]
            moment = (x**2).mean(axes) if norm.training else norm.moment
            return norm.weight.view(wide) * x / (moment.view(wide) + norm.epsilon).sqrt()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_norms_and_their_gradients_equal_the_printed_equations(kind, shape, training):
    generator = torch.Generator().manual_seed(len(kind))
    norm = lively(KINDS[kind](SHAPES[shape], STEPS), generator).double().train(training)
    x = torch.randn(STEPS * 4, *SHAPES[shape], dtype=torch.float64, generator=generator) + 0.3
    weight = torch.randn(x.shape, dtype=torch.float64, generator=generator)
    trained = [parameter for parameter in norm.parameters() if parameter.requires_grad]
    results = []
    for function in (norm, lambda given: printed(norm, given)):
        given = x.clone().requires_grad_()
        y = function(given)
        gradients = torch.autograd.grad((y * weight).sum(), [given, *trained], allow_unused=True)
        results.append((y, *gradients))
        for module in norm.modules():  # statistics of the batch, not those that the first call updated
            if training and isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.reset_running_stats()
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_norms_equal_those_of_spikingjelly():
    theirs = pytest.importorskip("spikingjelly.activation_based.layer")
    x = torch.randn(STEPS * 4, *SHAPES["image"], dtype=torch.float64)
    pairs = [
        (theirs.TemporalEffectiveBatchNorm2d(STEPS, 4), TEBN((4, 5, 3), STEPS)),
        (theirs.BatchNormThroughTime2d(STEPS, 4, step_mode="m"), BNTT((4, 5, 3), STEPS)),
    ]
    for other, ours in pairs:
        for each in (bn for bn in other.modules() if isinstance(bn, nn.BatchNorm2d)):
            each.eps = 1e-4  # of the official BNTT
        if isinstance(ours, TEBN):
            ours.p.data = torch.tensor([0.5, 2.0, 1.5])
            other.scale.data = ours.p.data.clone()
            other.eps = ours.bn.eps
        wanted = other.double()(x.view(STEPS, 4, *SHAPES["image"])).flatten(0, 1)
        torch.testing.assert_close(ours.double()(x), wanted, rtol=1e-10, atol=1e-10)


def network_of(kind, seed, *, pool=False, flip=False, **neuron):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    shape = (4, 6, 5)
    layers = [nn.Conv2d(2, 4, 3, padding=1), lively(KINDS[kind](shape, STEPS), generator, flip=flip)]
    if pool:
        layers.append(nn.AvgPool2d(2))
        shape = (4, 3, 2)
    layers += [LIF(shape, **neuron), nn.Flatten(), nn.Linear(int(np.prod(shape)), 6)]
    layers += [lively(KINDS[kind](6, STEPS), generator, flip=flip), LIF(6, **neuron), nn.Linear(6, 3)]
    network = SpikingNetwork(
        nn.Sequential(*layers), timesteps=STEPS, input_format=input_format((2, 6, 5), maximum=9)
    )
    for lif in (layer for layer in layers if isinstance(layer, LIF) and layer.mpbn is not None):
        lif.mpbn.bn.weight.data.normal_(0, 1, generator=generator)
        lif.mpbn.bn.bias.data.normal_(0.3, 0.2, generator=generator)
        lif.mpbn.bn.running_mean.normal_(0, 0.3, generator=generator)
        lif.mpbn.bn.running_var.uniform_(0.5, 2, generator=generator)
    return network.eval()


CASES = {
    "mpbn": {},
    "element": {"mpbn": "element"},
    "alone": {"mpbn": "none"},
    "pool": {"mpbn": "none", "pool": True},
    "flip": {"flip": True},
    "subtract": {"reset": "subtract", "leak": 0.5},
    "current": {"current_leak": 0.4, "leak": 0.9},
    "no leak": {"leak": 0.0, "mpbn": "none"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_folding_changes_no_spike(kind, case):
    network = network_of(kind, seed=len(case), **CASES[case])
    folded = fold(trace(network))
    assert varies(folded.layers[0].neuron) == (kind in VARYING)
    inputs = np.random.default_rng(1).integers(0, 10, (32, STEPS, 2, 6, 5))
    found = check_fold(network, folded, inputs)
    assert found.spikes_compared and not (found.spikes_mismatched or found.outputs_mismatched), str(found)
    rates = [spikes.mean() for spikes in simulate(folded, inputs).spikes.values()]
    assert any(0.02 < rate < 0.98 for rate in rates)


@pytest.mark.parametrize("kind", VARYING)
def test_integers_have_one_scale_for_all_steps_and_cannot_overflow(kind):
    folded = fold(trace(network_of(kind, seed=3)))
    inputs = np.random.default_rng(2).integers(0, 10, (24, STEPS, 2, 6, 5))
    for calibration in (None, inputs):
        quantized = quantize(folded, load_profile("unbounded"), calibration)
        assert all(bound.fits for bound in bounds(quantized.network).values())
        first = quantized.network.layers[0]
        assert varies(first.neuron) and quantized.network.scales[first.name].shape == (4,)
        got, wanted = simulate(quantized.network, inputs), simulate(folded, inputs)
        assert np.mean(got.spikes[first.name] == wanted.spikes[first.name]) > 0.98


def test_a_norm_after_the_last_layer_becomes_a_readout_per_step():
    network = network_of("tebn", seed=5)
    network.body.append(lively(TEBN(3, STEPS), torch.Generator().manual_seed(1)))
    folded = fold(trace(network))
    assert varies(folded.output.neuron)
    inputs = np.random.default_rng(1).integers(0, 10, (8, 2, 6, 5))
    assert not check_fold(network, folded, inputs).outputs_mismatched


def with_changing_sign(network):
    network.body[1].p.data[1] *= -1
    return network


def with_layer_after(network):
    network.body.insert(2, nn.Conv2d(4, 4, 1))
    return network


class Sum(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return self.first(x) + self.second(x)


def with_other_path(network):
    network.body[0] = Sum(nn.Sequential(nn.Conv2d(2, 4, 1), TEBN((4, 6, 5), STEPS)), nn.Conv2d(2, 4, 1))
    network.body[1] = nn.Identity()
    network.body[0].first[1].p.data = torch.tensor([1.0, 2.0, 3.0])
    return network


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_changing_sign, "1 .*TEBN.*|4 of 4 channels have a gain that changes its sign"),
        (with_layer_after, "weights would have to change from step to step"),
        (with_other_path, "different norms per time step"),
    ],
)
def test_what_no_constant_weights_can_do_is_rejected_by_name(change, message):
    with pytest.raises(FoldError, match=message):
        fold(trace(change(network_of("tebn", seed=1))))


def test_more_steps_than_a_norm_has_are_rejected():
    network = network_of("bntt", seed=1)
    network.timesteps = 2
    assert fold(trace(network)).timesteps == 2
    network.timesteps = STEPS + 1
    with pytest.raises(OptionError, match="numbers, for 3"):
        network(torch.zeros(1, 2, 6, 5))


@pytest.mark.parametrize("name", ["digits-cnn", "digits-mlp", "resnet20-slim", "vgg16-slim"])
def test_networks_of_the_zoo_take_a_norm(name):
    shape = (3, 32, 32) if "slim" in name else (1, 8, 8)
    body = ARCHITECTURES[name](shape, 10, norm="tab", norm_steps=2, mpbn="none")
    assert any(isinstance(part, TAB) for part in body.modules())
    with pytest.raises(OptionError, match="norm 'layer'"):
        norm_layer(3, {"norm": "layer", "norm_steps": 2})


def test_train_export_and_collapse_by_the_plain_commands(tmp_path, capsys):
    model, words = tmp_path / "m.pt", ["--data", "digits", "--epochs", "1"]
    shape = ["--arch", "digits-mlp", "--norm", "tebn", "--timesteps", "2", "--norm-rate", "3"]
    assert main(TRAIN, [*words, *shape, "--out", str(model)]) == 0
    assert load_model(model).card.arguments["norm"] == "tebn"
    quick = ["--target", "c", "--budget", "0"]
    assert main(EXPORT, [str(model), *quick, "--out", str(tmp_path / "steps")]) == 0
    assert "numbers per time step" in (tmp_path / "steps" / "report.html").read_text()
    assert (
        main(EXPORT, [str(model), *quick, "--static-steps", "--verbose", "--out", str(tmp_path / "one")]) == 0
    )
    assert "--static-steps: norms have the means" in capsys.readouterr().out
    assert main(EXPORT, [str(model), "--target", "loihi1", "--out", str(tmp_path / "no")]) == 2
    assert "lif1: thresholds that depend on the time step" in capsys.readouterr().err
    further = ["--init", str(model), "--static-steps", "--out", str(tmp_path / "s.pt")]
    assert main(TRAIN, [*words, *further]) == 0
    assert "norm" not in load_model(tmp_path / "s.pt").card.arguments
    assert (
        main(TRAIN, [*words, "--init", str(model), "--quantize", "loihi2", "--out", str(tmp_path / "q.pt")])
        == 2
    )
    assert "numbers that depend on the time step" in capsys.readouterr().err
