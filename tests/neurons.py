"""The neurons of training as a plain loop, differentiated by autograd, and comparisons with it."""

import torch
from torch.nn.functional import batch_norm

from mpbn_deploy.nn import LIF, RecurrentLIF

SHAPES = {"dense": (6,), "image": (3, 4, 5)}


def soft_spike(membrane, surrogate):
    """What backward differentiates in place of the step: the paper's code, with or without its tanh."""
    if surrogate == "wide":
        return membrane.clamp(-0.5, 1.5)
    clamped = membrane.clamp(0, 1)
    if surrogate == "rectangle":
        return clamped
    edge = torch.tanh(torch.tensor(1.5, dtype=membrane.dtype))
    return (torch.tanh(3 * (clamped - 0.5)) + edge) / (2 * edge)


def plain_loop(lif, x):
    """Eq. 1, 2 and 8 step by step, differentiated by autograd."""
    membrane = current = spike = torch.zeros_like(x[: len(x) // lif.timesteps])
    spikes = []
    for arriving in x.view(lif.timesteps, -1, *x.shape[1:]):
        current = lif.current_leak * current + arriving
        if isinstance(lif, RecurrentLIF):
            current = current + lif.recurrent(spike)
        membrane = lif.leak * membrane + current
        normalized = plain_norm(lif.mpbn, membrane) if lif.mpbn else membrane
        soft = soft_spike(normalized, lif.surrogate)
        spike = ((normalized > lif.threshold).to(x.dtype) - soft).detach() + soft
        spikes.append(spike)
        fired = spike.detach() if lif.reset_gradient == "detached" else spike
        membrane = membrane - fired * lif.threshold if lif.reset == "subtract" else membrane * (1 - fired)
    return torch.cat(spikes)


def plain_norm(mpbn, membrane):
    bn = mpbn.bn
    flat = membrane.flatten(1) if mpbn.kind == "element" else membrane
    result = batch_norm(
        flat, bn.running_mean, bn.running_var, mpbn.gain, bn.bias, mpbn.training, bn.momentum, bn.eps
    )
    return result.view_as(membrane)


def make_lif(shape, **options):
    """A neuron whose MPBN has gains of both signs and statistics of its own."""
    return prepared(LIF(shape, **options))


def prepared(lif):
    lif = lif.double()
    lif.timesteps = 3
    if lif.mpbn is not None:
        for values in (lif.mpbn.bn.weight.data, lif.mpbn.bn.bias.data, lif.mpbn.bn.running_mean):
            values.normal_()
        lif.mpbn.bn.running_var.uniform_(0.5, 2)
    return lif


def outcome(lif, function, x, weights):
    """Spikes, gradients by input, gain and offset, and the running statistics afterwards."""
    buffers = [buffer.clone() for buffer in lif.buffers()]
    x = x.detach().requires_grad_()
    spikes = function(x)
    gradients = torch.autograd.grad((spikes * weights).sum(), [x, *lif.parameters()])
    moved = [buffer.clone() for buffer in lif.buffers() if buffer.is_floating_point()]
    for buffer, before in zip(lif.buffers(), buffers, strict=True):
        buffer.copy_(before)
    return spikes.detach(), [*gradients, *moved]


def assert_is_the_plain_loop(lif, shape, layout, batch=7):
    torch.manual_seed(0)
    x, weights = torch.randn(2, lif.timesteps * batch, *shape, dtype=torch.float64)
    if len(shape) == 3:
        x = x.contiguous(memory_format=layout)
    spikes, rest = outcome(lif, lif, x, weights)
    expected_spikes, expected_rest = outcome(lif, lambda x: plain_loop(lif, x), x, weights)
    assert 0 < spikes.mean() < 1
    assert torch.equal(spikes, expected_spikes)
    for found, expected in zip(rest, expected_rest, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
