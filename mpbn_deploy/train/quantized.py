"""Quantization-aware training starts here: a trained network as its integer twin.

The network is folded and quantized with calibration, as `export` would; the twin begins as exactly
that integer network, and what training changes are its integers (nn/quantized.py).
"""

from __future__ import annotations

import numpy as np

from ..base import OptionError, announce
from ..data import DataSet
from ..fold import fold
from ..frontend import trace
from ..hardware import HardwareProfile
from ..ir import InputFormat
from ..nn import ModelCard, SpikingNetwork
from ..quantize import CALIBRATION_SAMPLES, QUANTIZED, Formats, QuantizedBody, ThresholdLimits, quantize
from .settings import FULL_RATE_BITS, QUANTIZED_RATE


def quantized_rate(weight_bits: int) -> float:
    """rate * 2**(4 - bits) below 4 bits: an integer moves when the number behind it did by half a quantum."""
    return QUANTIZED_RATE * 2.0 ** max(FULL_RATE_BITS - weight_bits, 0)


def quantized_twin(
    model: SpikingNetwork, profile: HardwareProfile, weight_bits: int | None, dataset: DataSet
) -> SpikingNetwork:
    """The integer network of a trained one, calibrated on the first training samples, ready to be trained."""
    if isinstance(model.body, QuantizedBody):
        raise OptionError("the network to start from is quantized already; start from the one before.")
    folded = fold(trace(model))
    if dataset.input_format.shape != folded.input.shape:
        raise OptionError(
            f"samples of {dataset.name} have shape {dataset.input_format.shape}; "
            f"the network takes {folded.input.shape}."
        )
    announce(f"quantize: to the formats of {profile.name}")
    inputs = dataset.train.inputs[:CALIBRATION_SAMPLES]
    formats = Formats.of(profile, weight_bits)
    network = quantize(folded, profile, inputs, weight_bits=weight_bits)
    body = QuantizedBody.of(network, formats, inputs)
    if ThresholdLimits.of(profile, "own", formats).bind:
        body.hold_thresholds()  # few per core, or none below one: what quantization chose must stay
    given, card = model.input_format, model.card
    return SpikingNetwork(
        body,
        timesteps=model.timesteps,
        # Raw values go in: their normalization is in the weights.
        input_format=InputFormat(
            shape=given.shape,
            minimum=given.minimum,
            maximum=given.maximum,
            mean=np.zeros(1),
            deviation=np.ones(1),
        ),
        card=ModelCard(
            architecture=QUANTIZED,
            arguments={"structure": body.structure},
            class_names=() if card is None else card.class_names,
        ),
    )
