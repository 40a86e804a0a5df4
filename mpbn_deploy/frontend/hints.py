"""What to do about layers and operations that no spiking chip computes, by their names in torch."""

from __future__ import annotations

SOFTMAXES = frozenset({"softmax", "softmin", "logsoftmax", "softmax2d"})
ACTIVATIONS = frozenset(
    {"relu", "relu6", "leakyrelu", "prelu", "rrelu", "elu", "celu", "selu", "gelu", "silu", "mish", "sigmoid"}
    | {"logsigmoid", "tanh", "softplus", "softsign", "hardswish", "hardsigmoid", "hardtanh"}
)
SOFTMAX = (
    "Softmax divides by a sum over all outputs, which no neuron of a chip computes. After the readout, it "
    "does not change which output is the largest: take it out of forward, and apply it to the outputs on "
    "the host."
)
ACTIVATION = (
    "Layers of a spiking network send spikes, and no graded activations: take it out where a neuron follows, "
    "put a neuron such as mpbn_deploy.nn.LIF in its place where none does, and train again."
)
ADAPTIVE_THRESHOLD = (
    "Adaptive thresholds, and other states that change with spikes, are not supported: a neuron has one "
    "membrane and, at most, one synaptic current. Train with a constant threshold, which may be learned."
)


def hint_for(name: str) -> str:
    """Return what to do about a function of torch, or a class of its layers; nothing if it has no hint."""
    plain = name.strip("'_").lower().replace("_", "")
    if plain in SOFTMAXES:
        return SOFTMAX
    return ACTIVATION if plain in ACTIVATIONS else ""
