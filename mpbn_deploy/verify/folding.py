"""Compare the trained PyTorch model with the folded network, spike by spike."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from ..base import Array, announce, record
from ..execute.reference import simulate
from ..fold import as_trained
from ..frontend import foreign_spikes, is_foreign, trace
from ..ir import FoldedNetwork, Trace, firing
from ..nn import LIF, SpikingNetwork


@record
class FoldCheck:
    """The trained PyTorch model compared with the folded network, both in float64."""

    spikes_compared: int
    spikes_mismatched: int
    largest_output_difference: float | None  # None for modules without LIFs of ours


def check_fold(
    model: SpikingNetwork,
    folded: FoldedNetwork,
    inputs: Array,
    folded_trace: Callable[[], Trace] | None = None,
) -> FoldCheck:
    """Count the spikes in which the folded network differs from the PyTorch module.

    Layers are matched by their path in the module; a layer that is called twice is left out. `folded_trace`
    returns the trace of the folded network, to avoid computing it twice. Modules without LIFs of ours are run
    in their own way, and their outputs are not compared.
    """
    announce(f"verify: PyTorch against the folded network, {len(inputs)} samples")
    got = simulate(folded, inputs) if folded_trace is None else folded_trace()
    if in_one_run(model, folded):
        spikes, logits = trained_spikes(model, inputs)
    else:
        spikes, logits = foreign_spikes(model, inputs) or {}, None
    names = [name for name in spikes if name in got.spikes and f"{name}@2" not in got.spikes]
    fired = got.spikes
    if any(spikes[name].shape != fired[name].shape for name in names):
        fired = as_trained(trace(model), fired)
    return FoldCheck(
        spikes_compared=sum(spikes[name].size for name in names),
        spikes_mismatched=sum(int(np.count_nonzero(spikes[name] != fired[name])) for name in names),
        largest_output_difference=None if logits is None else float(np.abs(logits - got.outputs).max()),
    )


def in_one_run(model: SpikingNetwork, folded: FoldedNetwork) -> bool:
    """Whether a model computes all time steps in one call: its neurons are ours, or it has none."""
    ours = any(isinstance(part, LIF) for part in model.body.modules())
    return not is_foreign(model.body) and (ours or not any(firing(folded)))


def trained_spikes(model: SpikingNetwork, inputs: Array) -> tuple[dict[str, Array], Array]:
    """Return the spikes [samples, timesteps, *shape] of every LIF, by its path, and the logits in float64."""
    model = copy.deepcopy(model).double().eval()
    spikes: dict[str, Array] = {}

    def recorder(name: str) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        def keep(module: nn.Module, given: Any, sent: torch.Tensor) -> None:
            stepped = sent.view(model.timesteps, -1, *sent.shape[1:]).transpose(0, 1)
            spikes[name] = stepped.numpy().astype(bool)

        return keep

    for name, module in model.body.named_modules():
        if isinstance(module, LIF):
            module.register_forward_hook(recorder(name))
    with torch.no_grad():
        logits: Array = model(torch.tensor(np.asarray(inputs, np.float64))).numpy()
    return spikes, logits
