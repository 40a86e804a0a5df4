"""Simulate a NIR graph by its equations, one Euler step per time step, independent of our readers."""

import nir
import numpy as np
import torch
from torch.nn import functional


def forward(node, value):
    """Apply a stateless node to values [samples, *shape], with torch."""
    x = torch.tensor(value, dtype=torch.float64)
    match node:
        case nir.Affine() | nir.Linear():
            y = functional.linear(x, torch.tensor(node.weight).double(), parameter(node, "bias"))
        case nir.Conv1d() | nir.Conv2d():
            convolve = functional.conv1d if isinstance(node, nir.Conv1d) else functional.conv2d
            y = convolve(x, parameter(node, "weight"), parameter(node, "bias"), *map(plain, geometry(node)))
        case nir.SumPool2d() | nir.AvgPool2d():
            kernel = plain(node.kernel_size)
            divisor = 1 if isinstance(node, nir.SumPool2d) else None
            y = functional.avg_pool2d(
                x, kernel, plain(node.stride), plain(node.padding), divisor_override=divisor
            )
        case nir.Flatten():
            y = torch.flatten(x, int(node.start_dim) + 1, int(node.end_dim))
        case nir.Scale():
            y = x * parameter(node, "scale")
        case _:
            y = x
    return y.numpy()


def geometry(node):
    return node.stride, node.padding, node.dilation, node.groups


def parameter(node, key):
    return torch.tensor(np.asarray(getattr(node, key))).double() if hasattr(node, key) else None


def plain(value):
    return value if isinstance(value, str) else np.asarray(value).tolist()


def neuron(node, state, value, dt, reset="zero", current_used="new"):
    """Return (current, voltage) and the output: spikes, or the voltage of an integrator.

    With reset="subtract-after-leak", the voltage still holds what its spike subtracts in the next step.
    """
    current, voltage = state
    owed = 0.0
    if reset == "subtract-after-leak" and not isinstance(node, (*INTEGRATORS, nir.Threshold)):
        owed = node.v_threshold * (voltage > node.v_threshold)
    match node:
        case nir.Threshold():
            return state, (value > node.threshold).astype(float)
        case nir.IF():
            voltage = voltage + dt * node.r * value
        case nir.LIF() | nir.LI():
            voltage = voltage + dt / node.tau * ((node.v_leak - voltage) + node.r * value)
        case nir.CubaLIF() | nir.CubaLI():
            before = current
            current = current + dt / node.tau_syn * (node.w_in * value - current)
            used = current if current_used == "new" else before
            voltage = voltage + dt / node.tau_mem * ((node.v_leak - voltage) + node.r * used)
    if isinstance(node, INTEGRATORS):
        return (current, voltage), voltage
    voltage = voltage - owed
    spikes = voltage > node.v_threshold
    after = {
        "zero": np.where(spikes, node.v_reset, voltage),
        "subtract-before-leak": voltage - node.v_threshold * spikes,
        "subtract-after-leak": voltage,
    }
    return (current, after[reset]), spikes.astype(float)


INTEGRATORS = (nir.LI, nir.CubaLI)
NEURONS = (nir.LIF, nir.CubaLIF, nir.IF, nir.Threshold, *INTEGRATORS)


def euler(graph, steps, dt, **conventions):
    """Return the spikes of each neuron [samples, timesteps, *shape], and the values at the output per step.

    An edge from a node that is not computed yet carries its value of the previous step.
    """
    states, spikes, history = {}, {}, []
    sources = {name: [a for a, b in graph.edges if b == name] for name in graph.nodes}
    last = next(name for name, node in graph.nodes.items() if isinstance(node, nir.Output))
    for step in range(steps.shape[1]):
        now = {}

        def value(name, now=now, step=step):
            node = graph.nodes[name]
            if name not in now:
                now[name] = None  # being computed
                now[name] = computed(name, node, step, value)
            if now[name] is None:
                return earlier(name, node, 1, step)
            return now[name]

        def earlier(name, node, late, step):
            if step < late:
                return np.zeros((len(steps), *node.output_type["output"]))
            return history[step - late][name]

        def computed(name, node, step, value):
            if isinstance(node, nir.Input):
                return steps[:, step].astype(float)
            if isinstance(node, nir.Delay) and node.delay.any():
                late = round(float(node.delay.flat[0]) / dt)
                return sum(earlier(source, graph.nodes[source], late, step) for source in sources[name])
            total = sum(value(source) for source in sources[name])
            if not isinstance(node, NEURONS):
                return forward(node, total)
            zero = np.zeros((len(steps), *node.output_type["output"]))
            states[name], sent = neuron(
                node, states.get(name, (zero, zero)), total.reshape(zero.shape), dt, **conventions
            )
            if not isinstance(node, INTEGRATORS):
                spikes.setdefault(name, []).append(sent > 0)
            return sent

        for name in (last, *graph.nodes):
            value(name)
        history.append(now)
    outputs = [now[last] for now in history]
    return {name: np.stack(found, axis=1) for name, found in spikes.items()}, np.stack(outputs, axis=1)
