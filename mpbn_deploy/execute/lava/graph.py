"""Network -> connected Lava processes, a run configuration that chooses their models, and tapes.

One process sends the input, and one process per population (`Layer`) computes. The run configuration chooses
its model: `fast_layers` (one process model of ours) or `stock_layers` (a graph of Lava's own processes). A
population can also be built alone, with one process per source that sends recorded spikes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...base import record
from ...ir import AnyNetwork, AnyPopulation, FoldedNetwork, Shape, is_graded, sends
from .fast_layers import fast_layer
from .models import (
    DelayLineModel,
    TapedDeltaModel,
    TapedLifModelFixed,
    TapedLifModelFloat,
    TapedSigmaDeltaModel,
    TapedSigmaModel,
    TapeInputModel,
    TapeOutputModel,
    WindowModelFixed,
    WindowModelFloat,
)
from .plans import Source, fed_populations, lava_shape, pipeline_depths, plan_layer
from .processes import (
    DelayLine,
    Layer,
    TapedDelta,
    TapedLif,
    TapedSigma,
    TapedSigmaDelta,
    TapeInput,
    TapeOutput,
    Window,
    port_name,
)
from .stock_layers import StockLayerFixed, StockLayerFloat
from .tapes import Tape

# isort: split
from lava.magma.core.run_configs import Loihi2SimCfg
from lava.proc.conv.models import PyConvModelFixed, PyConvModelFloat
from lava.proc.conv.process import Conv as LavaConv
from lava.proc.dense.models import PyDenseModelBitAcc, PyDenseModelFloat
from lava.proc.dense.process import Dense as LavaDense
from lava.proc.graded.models import PyGradedVecModelFixed
from lava.proc.graded.process import GradedVec

FIXED = {
    LavaConv: PyConvModelFixed,
    LavaDense: PyDenseModelBitAcc,
    GradedVec: PyGradedVecModelFixed,
    TapedLif: TapedLifModelFixed,
    TapedDelta: TapedDeltaModel,
    TapedSigmaDelta: TapedSigmaDeltaModel,
    TapedSigma: TapedSigmaModel,
    Window: WindowModelFixed,
}
FLOAT = {
    LavaConv: PyConvModelFloat,
    LavaDense: PyDenseModelFloat,
    TapedLif: TapedLifModelFloat,
    Window: WindowModelFloat,
}
EITHER = {TapeInput: TapeInputModel, TapeOutput: TapeOutputModel, DelayLine: DelayLineModel}
TAPE_BYTES = 2**27  # memory limit for all tapes; rows are reused
MOST_ROWS = 256


@record
class LavaGraph:
    """Connected processes, their run configuration, and the tapes of inputs and traces."""

    source: TapeInput
    configuration: Loihi2SimCfg
    input_tapes: Mapping[str, Tape]
    spike_tapes: Mapping[str, Tape]
    voltage_tapes: Mapping[str, Tape]
    probed: Collection[str]
    lanes: int | None


def build(
    network: AnyNetwork, probed: Collection[str], lanes: int | None, alone: str | None = None
) -> LavaGraph:
    """Build and connect the input and one process per population; without lanes, with Lava's own models.

    With `alone`, only this population is built, and each of its sources sends what is on its tape.
    """
    depths = pipeline_depths(network, alone)
    lane_axis: Shape = () if lanes is None else (lanes,)
    fed = fed_populations(network, alone)
    built = [p for p in network.layers if alone in (None, p.name)]
    inputs, spikes, voltages = _tapes(network, fed, built, probed, lane_axis)
    senders: dict[str, Any] = {
        name: TapeInput(shape=tape.values.shape[1:], tape=tape, name=name) for name, tape in inputs.items()
    }
    source = senders[fed[0].name]
    layers = {
        p.name: Layer(
            plan=plan_layer(network, p, depths, lane_axis, (spikes.get(p.name), voltages.get(p.name)))
        )
        for p in built
    }
    if alone is None:
        senders.update(layers)
    for layer in layers.values():
        for index, sender in enumerate(layer.proc_params["plan"].sources):
            senders[sender.name].s_out.connect(getattr(layer, port_name(index)))
    real = isinstance(network, FoldedNetwork)
    return LavaGraph(
        source=source,
        configuration=configuration(real=real, stock=lanes is None),
        input_tapes=inputs,
        spike_tapes=spikes,
        voltage_tapes=voltages,
        probed=probed,
        lanes=lanes,
    )


def _tapes(
    network: AnyNetwork,
    fed: Sequence[Source],
    built: Sequence[AnyPopulation],
    probed: Collection[str],
    lane_axis: Shape,
) -> tuple[dict[str, Tape], dict[str, Tape], dict[str, Tape]]:
    """Return tapes of what is fed, and of spikes and voltages of probed populations and the output."""
    kind = np.float64 if isinstance(network, FoldedNetwork) else np.int32
    silent = not sends(network.output.neuron)
    firing = [p for p in built if p.name in probed or (p is network.output and not silent)]
    charged = [p for p in built if p.name in probed or (p is network.output and silent)]

    def sizes(populations: Sequence[Source]) -> int:
        return sum(p.size for p in populations) * prod(lane_axis)

    graded = [p for p in firing if is_graded(p.neuron)]
    row = sizes(firing) + 3 * sizes(graded) + sizes(charged) * np.dtype(kind).itemsize + sizes(fed) * 4
    rows = int(np.clip(TAPE_BYTES // row, 1, MOST_ROWS))

    def made(populations: Sequence[Source], kind: Any) -> dict[str, Tape]:
        return {p.name: Tape(rows, (*lane_axis, *lava_shape(p.shape)), kind) for p in populations}

    spikes = {**made(firing, np.bool_), **made(graded, np.int32)}
    return made(fed, np.int32), spikes, made(charged, kind)


class ModelChoice(dict[Any, Any]):
    """Maps each process to its model, by the type of the process.

    Lava looks processes up here first. Otherwise it would search for models by executing every file of our
    package. Keys are types because processes inside other processes do not exist yet.
    """

    def __contains__(self, process: object) -> bool:
        return super().__contains__(type(process))

    def __getitem__(self, process: Any) -> Any:
        chosen = super().__getitem__(type(process))
        if chosen is not fast_layer:
            return chosen
        plan = process.proc_params["plan"]
        return fast_layer(len(plan.sources), plan.rule.graded)


def configuration(*, real: bool, stock: bool) -> Loihi2SimCfg:
    """Return a run configuration: floating-point or fixed-point models, Lava's own layers or ours."""
    stock_layer = StockLayerFloat if real else StockLayerFixed
    models = {**(FLOAT if real else FIXED), **EITHER, Layer: stock_layer if stock else fast_layer}
    return Loihi2SimCfg(
        select_tag="floating_pt" if real else "fixed_pt", exception_proc_model_map=ModelChoice(models)
    )
