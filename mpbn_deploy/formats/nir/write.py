"""FoldedNetwork or IntNetwork -> NIR file. The only module of this room that imports nir.

*faithful*: one threshold per neuron; r = 1, v_threshold = (1 - leak) * threshold, and a bias that
differs within a channel is v_leak. A neuron without a leak is NIR's IF, with r = 1 / dt.
*portable*: a threshold of one for all neurons, and v_leak zero (see `portable`).

A neuron whose current leaks is NIR's CubaLIF, with r = tau_mem / dt and w_in = tau_syn / dt, the only form
that its readers support. Of several connections into a population, the main path comes first, because norse
takes the first edge as such. Numbers are float32, as readers expect.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import nir
import numpy as np
from typing_extensions import assert_never

from ...base import Array, FormatError, OptionError, did_you_mean, write_atomically
from ...ir import (
    NO_BORDER,
    Connection,
    Conv2d,
    Dense,
    FloatFiringNeuron,
    FloatLif,
    FloatNeuron,
    FloatPopulation,
    FloatReadout,
    FloatSoftLif,
    FloatXylo,
    FoldedNetwork,
    IntNetwork,
    Shape,
    Synapse,
    has_current,
    identity_synapse,
    output_shape,
    real_network,
    real_weight,
    window,
    without_relays,
)
from ..options import Dialect
from .file import AmbiguousLoopError, closing_edges
from .linear import bias_carriers, main_first, split_bias, with_constants
from .metadata import (
    DIALECTS,
    DT,
    FAITHFUL,
    KEY,
    NO_LEAK,
    PORTABLE,
    first_steps,
    is_average,
    is_signal,
    metadata_text,
    safe,
    typeable,
)
from .portable import check_same_in_all_steps, portable


def write_nir(network: FoldedNetwork | IntNetwork, path: str | Path, *, dialect: Dialect = FAITHFUL) -> None:
    """Write a network; `read_nir` restores it up to float32, and integer networks bit by bit."""
    buffer = io.BytesIO()
    nir.write(buffer, to_nir(network, dialect=dialect))
    write_atomically(Path(path), buffer.getvalue())


def in_dialect(network: FoldedNetwork, dialect: Dialect) -> FoldedNetwork:
    """Return the network as a file of that dialect has it; raise where `write_nir` would."""
    if dialect != PORTABLE:
        return network
    check_same_in_all_steps(network)
    return portable(network, _explicit_delays(network))


def to_nir(network: FoldedNetwork | IntNetwork, *, dialect: Dialect = FAITHFUL) -> nir.NIRGraph:
    """Return the NIR graph of a network; relays, which NIR lacks, are composed into the next synapses."""
    if dialect not in DIALECTS:
        raise OptionError(f"no dialect of NIR named {dialect!r}. {did_you_mean(dialect, DIALECTS)}")
    integers = without_relays(network) if isinstance(network, IntNetwork) else None
    if integers is not None and dialect == PORTABLE:
        raise OptionError("an integer network is written in the faithful dialect of NIR only.")
    real = real_network(network, in_weights=True) if isinstance(network, IntNetwork) else network
    timed, real = real, first_steps(real)
    _check_names(with_constants(real)[0])
    explicit = _explicit_delays(real)
    if dialect == PORTABLE:
        check_same_in_all_steps(timed)
        real = portable(real, explicit)
    if integers is not None:
        _check_exact(real)
    whole, constants = with_constants(real)
    return _graph(whole, explicit, metadata_text(real, dialect, constants, integers, timed))


def _graph(network: FoldedNetwork, explicit: set[Connection], metadata: str) -> nir.NIRGraph:
    nodes: dict[str, Any] = {safe(network.input.name): nir.Input({"input": np.array(network.input.shape)})}
    edges: list[tuple[str, str]] = []
    for population in network.layers:
        shared, left = split_bias(network, population)
        carriers = bias_carriers(network, population)
        for number, connection in enumerate(main_first(network, population.name)):
            # The bias is added once, by the first connection or connections.
            bias = shared if connection in carriers else np.zeros(len(connection.synapse.weight))
            _add_connection(network, connection, f"{safe(population.name)}_synapse{number or ''}", bias,
                            connection in explicit, nodes, edges)  # fmt: skip
        nodes[safe(population.name)] = _neuron_node(population, left, network.timesteps)
        if is_average(population.neuron):
            _sum_before_output(population, nodes, edges)
    if not is_average(network.output.neuron):  # which is the output node itself
        name = "output"
        while name in nodes:
            name += "_"
        nodes[name] = nir.Output({"output": np.array(network.output.shape)})
        edges.append((safe(network.output.name), name))
    if is_signal(network):
        nodes = {name: _one_dimensional(node) for name, node in nodes.items()}
    return nir.NIRGraph(nodes, edges, metadata={KEY: metadata}, type_check=False)


def _add_connection(
    network: FoldedNetwork,
    connection: Connection,
    name: str,
    bias: Array,
    explicit: bool,
    nodes: dict[str, Any],
    edges: list[tuple[str, str]],
) -> None:
    """Add the nodes of a connection: Delay and Flatten if needed, the synapse, and its mask if needed."""
    shape = network.population(connection.source).shape
    path = [safe(connection.source)]
    if explicit:
        path.append(f"{name}_delay")
        nodes[path[-1]] = nir.Delay(delay=np.full(shape, connection.delay * DT, np.float32))
    if isinstance(connection.synapse, Dense) and len(shape) == 3:
        path.append(f"{name}_flatten")
        nodes[path[-1]] = nir.Flatten({"input": np.array(shape)}, start_dim=0)
    path.append(name)
    nodes[name] = _synapse_node(connection.synapse, bias, shape)
    if isinstance(connection.synapse, Conv2d) and connection.synapse.silent != NO_BORDER:
        path.append(f"{name}_window")
        nodes[path[-1]] = nir.Scale(scale=_mask(connection.synapse, shape))
    edges += zip(path, [*path[1:], safe(connection.target)], strict=True)


def _sum_before_output(
    population: FloatPopulation, nodes: dict[str, Any], edges: list[tuple[str, str]]
) -> None:
    """Sum several inputs of the output in an identity node: nirtorch adds inputs of all nodes but outputs."""
    output, shape = safe(population.name), population.shape
    entering = [index for index, (_, target) in enumerate(edges) if target == output]
    if len(entering) < 2:
        return
    name = f"{output}_sum"
    nodes[name] = _synapse_node(identity_synapse(shape), np.zeros(shape[0]), shape)
    for index in entering:
        edges[index] = (edges[index][0], name)
    edges.append((name, output))


def _explicit_delays(network: FoldedNetwork) -> set[Connection]:
    """Return the connections that need a Delay node: delayed ones, but not one-step edges closing a loop."""
    late = [c for c in network.connections if c.delay]
    single = {(c.source, c.target) for c in late if c.delay == 1}
    instant = {(c.source, c.target) for c in network.connections if not c.delay}
    longer = {(c.source, c.target) for c in late if c.delay > 1}
    try:
        closing = closing_edges(network.input.name, instant | single, longer)
    except AmbiguousLoopError:
        return set(late)
    if closing != single or single & instant:
        return set(late)
    return {c for c in late if c.delay > 1}


def _check_names(network: FoldedNetwork) -> None:
    names: dict[str, str] = {}
    for population in network.populations:
        other = names.setdefault(safe(population.name), population.name)
        if other != population.name:
            raise FormatError(
                f"{other} and {population.name}: both are named {safe(other)} in NIR; rename a module."
            )


def _check_exact(network: FoldedNetwork) -> None:
    for connection in network.connections:
        weight = connection.synapse.weight
        if not np.array_equal(weight.astype(np.float32), weight):
            raise FormatError(
                f"{connection.label}: integer weights of more than 24 bits; NIR's float32 holds 24."
            )


# ---- nodes --------------------------------------------------------------------------------------


def _synapse_node(synapse: Synapse, bias: Array, source: Shape) -> Any:
    match synapse:
        case Dense():
            return nir.Affine(weight=real_weight(synapse).astype(np.float32), bias=bias.astype(np.float32))
        case Conv2d():
            whole = typeable(synapse)
            return nir.Conv2d(
                input_shape=(source[1], source[2]),
                weight=real_weight(whole).astype(np.float32),
                stride=whole.stride,
                padding=whole.padding,
                dilation=whole.dilation,
                groups=whole.groups,
                bias=bias.astype(np.float32),
            )
        case _:
            assert_never(synapse)


def _one_dimensional(node: Any) -> Any:
    """Return a node on pictures one pixel high as the same node on signals, (channels, length)."""
    if isinstance(node, nir.Conv2d):
        return nir.Conv1d(
            input_shape=node.input_shape[1],
            weight=node.weight[:, :, len(node.weight[0, 0]) // 2],  # of a kernel that was made square
            **{key: getattr(node, key)[1] for key in ("stride", "padding", "dilation")},
            groups=node.groups,
            bias=node.bias,
        )
    if isinstance(node, (nir.Input, nir.Output, nir.Flatten)):
        (shape,) = node.input_type.values()
        if len(shape) != 3:
            return node
        given = {"output" if isinstance(node, nir.Output) else "input": np.delete(shape, 1)}
        return nir.Flatten(given, start_dim=0) if isinstance(node, nir.Flatten) else type(node)(given)
    pictures = {
        key: values[:, 0]
        for key, values in vars(node).items()
        if isinstance(values, np.ndarray) and values.ndim == 3
    }
    return replace(node, **pictures) if pictures else node


def _mask(synapse: Conv2d, source: Shape) -> Array:
    """Return a mask of the target: zero in the silent border, one elsewhere."""
    shape = output_shape(synapse, source)
    mask = np.zeros(shape, np.float32)
    rows, columns = window(synapse, shape)
    mask[:, rows, columns] = 1
    return mask


def _neuron_node(population: FloatPopulation, left: Array, timesteps: int) -> Any:
    """Return the node of a population, with the biases `left` that no synapse carries."""
    neuron, shape = population.neuron, population.shape
    match neuron:
        case FloatReadout() if not is_average(neuron):
            return _readout_node(population.name, neuron, shape, left, timesteps)
        case FloatReadout():
            if left.any():
                raise FormatError(
                    f"{population.name}: biases of the output differ within a channel; NIR has no such node."
                )
            return nir.Output({"output": np.array(shape)})
        case (
            FloatLif() | FloatSoftLif() | FloatXylo()
        ):  # NIR does not say how a neuron resets: our metadata does
            return _spiking_node(population.name, neuron, shape, left)
        case _:
            assert_never(neuron)


def _spiking_node(name: str, neuron: FloatFiringNeuron, shape: Shape, left: Array) -> Any:
    leak, threshold = neuron.leak, neuron.threshold
    if has_current(neuron):
        return _cuba_node(name, neuron, shape, left)
    if np.all(leak < 1):
        values = {"tau": DT / (1 - leak), "r": 1.0, "v_leak": left, "v_threshold": (1 - leak) * threshold}
        return nir.LIF(**_filled(shape, **values, v_reset=0.0))
    if np.any(leak < 1):
        raise FormatError(f"{name}: some of its neurons leak, others do not; NIR has no such neurons.")
    if left.any():
        values = {"tau": DT * NO_LEAK, "r": NO_LEAK, "v_leak": left * NO_LEAK, "v_threshold": threshold}
        return nir.LIF(**_filled(shape, **values, v_reset=0.0))
    return nir.IF(**_filled(shape, r=1 / DT, v_threshold=threshold, v_reset=0.0))


def _readout_node(name: str, neuron: FloatReadout, shape: Shape, left: Array, timesteps: int) -> Any:
    """Return the node of a readout that leaks; r and v_leak include our division by the time steps."""
    if has_current(neuron):
        values = _cuba_values(name, neuron, left)
        return nir.CubaLI(**_filled(shape, **_divided(values, timesteps)))
    tau = 1 / (1 - neuron.leak)
    return nir.LI(**_filled(shape, tau=tau * DT, **_divided({"r": tau, "v_leak": left * tau}, timesteps)))


def _divided(values: dict[str, Any], timesteps: int) -> dict[str, Any]:
    return {**values, "r": values["r"] / timesteps, "v_leak": values["v_leak"] / timesteps}


def _cuba_node(name: str, neuron: FloatFiringNeuron, shape: Shape, left: Array) -> Any:
    values = _cuba_values(name, neuron, left)
    return nir.CubaLIF(**_filled(shape, **values, v_threshold=neuron.threshold, v_reset=0.0))


def _cuba_values(name: str, neuron: FloatNeuron, left: Array) -> dict[str, Any]:
    if np.any(neuron.leak == 1) or np.any(neuron.current_leak == 1):
        raise FormatError(
            f"{name}: a neuron with a leaking current and no leak of its voltage, or a current that never "
            "decays; NIR has no such neuron."
        )
    syn, mem = 1 / (1 - neuron.current_leak), 1 / (1 - neuron.leak)
    return {"tau_syn": syn * DT, "w_in": syn, "tau_mem": mem * DT, "r": mem, "v_leak": left * mem}


def _filled(shape: Shape, **values: Any) -> dict[str, Array]:
    return {key: np.broadcast_to(value, shape).astype(np.float32) for key, value in values.items()}
