"""Layers to train with: LIF neurons with membrane-potential batch norm, and the SpikingNetwork around them.

    body = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3), torch.nn.BatchNorm2d(16), LIF(16),
        torch.nn.Flatten(), torch.nn.Linear(16 * 36, 10),
    )
    network = SpikingNetwork(body, timesteps=4, input_format=...)

Inside the body, time steps are part of the batch dimension: every layer sees [timesteps * batch, ...], time
first. Ordinary torch layers therefore work unchanged, batch norm after a convolution averages over batch and
time as in the paper, and only LIF separates the time steps.

    neuron         LIF and MPBN, RecurrentLIF, SpikePool, SpikingNetwork and ModelCard
    scan           all time steps of LIF, with a handwritten backward
    norm           batch norm, also across processes; surrogate gradients, their loop, constants of neurons
    step_norms     tdBN, TEBN, BNTT, TAB and PSP-BN
    other_neurons  GradedLIF, integer spikes; XyloLIF, to train for SynSense's Xylo
    kinds          the options of LIF by name
    compiled       all of these in training, by compiled loops, and memory layouts of activations
    kernels        loops over memory, compiled by Numba
    zoo/           network architectures
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .compiled import check_compiled as check_compiled, compiled_norms as compiled_norms
    from .kinds import (
        ELEMENT_EPSILON as ELEMENT_EPSILON,
        MPBN_EPSILON as MPBN_EPSILON,
        MPBN_GAINS as MPBN_GAINS,
        MPBN_KINDS as MPBN_KINDS,
        NEURON_DEFAULTS as NEURON_DEFAULTS,
        NORMS as NORMS,
        RESET_GRADIENTS as RESET_GRADIENTS,
        RESETS as RESETS,
        SURROGATE_NAMES as SURROGATE_NAMES,
        XYLO_DEFAULTS as XYLO_DEFAULTS,
        MpbnKind as MpbnKind,
        NeuronOptions as NeuronOptions,
        NormKind as NormKind,
    )
    from .neuron import (
        LIF as LIF,
        MPBN as MPBN,
        ModelCard as ModelCard,
        RecurrentLIF as RecurrentLIF,
        SpikePool as SpikePool,
        SpikingNetwork as SpikingNetwork,
    )
    from .norm import (
        Feedback as Feedback,
        Loop as Loop,
        TimedLayer as TimedLayer,
        synchronized_batch_norm as synchronized_batch_norm,
    )
    from .other_neurons import (
        GradedLIF as GradedLIF,
        Levels as Levels,
        RepeatChannels as RepeatChannels,
        SpikeCount as SpikeCount,
        StepDelay as StepDelay,
        SumChannels as SumChannels,
        XyloLIF as XyloLIF,
    )
    from .step_norms import (
        BNTT as BNTT,
        PSPBN as PSPBN,
        TAB as TAB,
        TDBN as TDBN,
        TEBN as TEBN,
        NormNumbers as NormNumbers,
        TemporalNorm as TemporalNorm,
        norm_layer as norm_layer,
        static_steps as static_steps,
        without_norm as without_norm,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
