"""Convert a trained network to its integer twin, from which quantization-aware training starts.

The network is folded and quantized with calibration, as `export` does. The twin starts as exactly that
integer network, and training changes its integers (quantize/twin.py).
"""

from __future__ import annotations

import numpy as np

from ..base import OptionError, announce
from ..data import DataSet
from ..fold import fold, offset_inputs
from ..formats.options import AUTO, Auto
from ..frontend import trace
from ..hardware import HardwareProfile
from ..ir import InputFormat
from ..nn import ModelCard, SpikingNetwork
from ..quantize import (
    QUANTIZED,
    NumberFormats,
    QuantizedBody,
    ThresholdLimits,
    calibration_data,
    choose_offset,
    quantize,
)
from .settings import FULL_RATE_BITS, QUANTIZED_RATE


def quantized_rate(weight_bits: int) -> float:
    """rate * 2**(4 - bits) below 4 bits, where the latent weight must move further to change an integer"""
    return QUANTIZED_RATE * 2.0 ** max(FULL_RATE_BITS - weight_bits, 0)


def quantized_twin(
    model: SpikingNetwork,
    profile: HardwareProfile,
    weight_bits: int | None,
    dataset: DataSet,
    input_offset: int | Auto = AUTO,
) -> SpikingNetwork:
    """Return a trainable integer network, quantized with calibration on the first training samples.

    Its body takes inputs minus the offset.
    """
    if isinstance(model.body, QuantizedBody):
        raise OptionError("the network to start from is quantized already; start from the one before.")
    formats, folded = NumberFormats.of(profile, weight_bits), fold(trace(model))
    offset = choose_offset(folded, formats) if input_offset == AUTO else input_offset
    folded = offset_inputs(folded, offset)
    inputs = folded.input_range.presented(calibration_data(folded, dataset).inputs)
    announce(f"quantize: to the formats of {profile.name}")
    quantized = quantize(folded, profile, inputs, weight_bits=weight_bits, pooling="composed")
    for note in quantized.notes:
        announce(f"note: {note}")
    body = QuantizedBody.of(quantized.network, formats, inputs)
    if ThresholdLimits.of(profile, "own", formats).bind:
        body.freeze_thresholds()  # few per core, or none below one: what quantization chose must stay
    given, card = model.input_format, model.card
    return SpikingNetwork(
        body,
        timesteps=model.timesteps,
        # Raw values go in, less the offset: the rest of their normalization is in the weights.
        input_format=InputFormat(
            shape=given.shape,
            minimum=given.minimum,
            maximum=given.maximum,
            mean=np.full(1, offset),
            deviation=np.ones(1),
        ),
        card=ModelCard(
            architecture=QUANTIZED,
            arguments={"structure": body.structure},
            class_names=() if card is None else card.class_names,
        ),
    )
