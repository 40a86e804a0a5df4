"""Neurons of networks that we did not quantize: states that leave their width continue as in Lava."""

from __future__ import annotations

import numpy as np

from ..base import Array
from ..ir import AnyNetwork, IntNetwork, Membrane, Rule, Shape, State, clipped_voltage


def may_narrow(network: AnyNetwork, rule: Rule) -> bool:
    """Whether states may leave their width: not in networks of ours, and relays are proved not to.

    Sigma-delta neurons, which have no membrane, stop the execution instead.
    """
    foreign = isinstance(network, IntNetwork) and network.foreign
    return foreign and isinstance(rule, Membrane) and not rule.graded


class NarrowNeurons:
    """One population; `overflows` counts, per neuron, the steps of all samples in which a number changed."""

    def __init__(self, rule: Membrane, shape: Shape) -> None:
        self.rule = rule
        self.overflows: Array = np.zeros(shape, np.int64)

    def step(self, state: State, sums: Array, kept: Array, step: int) -> tuple[State, Array]:
        """Return the state after firing, and the spikes, given sums of synapses and what is kept of them."""
        rule = self.rule.at(step)
        charged = rule.integrate(state, (rule.unit * kept).astype(np.int64))
        narrowed = rule.narrow(charged)
        (current, voltage), spikes = rule.fire(narrowed)
        clipped = clipped_voltage(voltage)  # a subtraction can overflow too
        changed = (sums != kept) | (voltage != clipped)
        for before, after in zip(charged, narrowed, strict=True):
            changed |= before != after
        self.overflows += changed.sum(axis=0)
        return (current, clipped), spikes
