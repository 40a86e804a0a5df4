"""--weight-bits auto: bits per layer, within bounds and with the predictions of the folded network."""

from dataclasses import replace

import numpy as np
import pytest
from networks import inputs_for, spiking_network

from mpbn_deploy.base import OptionError
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place, weight_bits
from mpbn_deploy.quantize import NumberFormats, quantize

LOIHI2 = load_profile("loihi2")


@pytest.fixture(scope="module")
def case():
    folded = fold(trace(spiking_network(3)))
    return folded, inputs_for(folded, 40)


def bits_of(network):
    """The bits of the widest weights into each population."""
    return {
        p.name: max(weight_bits(c.synapse.weight) for c in network.entering(p.name)) for p in network.layers
    }


def bytes_of(network, bits):
    entering = {name: network.entering(name) for name in bits}
    return sum(-(-sum(c.synapse.weight.size for c in entering[n]) * bits[n] // 8) for n in bits)


def test_formats_of_a_layer_keep_the_range_of_the_integers():
    formats = NumberFormats.of(LOIHI2, None)
    narrow = replace(formats, narrow={"a": 3})
    assert (narrow.into("a").weight, narrow.into("a").step) == (3, 32)
    assert narrow.into("b") is narrow


def test_a_bound_of_bytes_is_kept_and_used(case):
    folded, inputs = case
    whole = quantize(folded, LOIHI2, inputs).network
    widest = bytes_of(whole, dict.fromkeys(bits_of(whole), 8))
    sizes = []
    for fraction in (1.0, 0.7, 0.4):
        found = quantize(folded, LOIHI2, inputs, weight_bits="auto", most_bytes=int(fraction * widest))
        chosen = found.widths.chosen
        assert chosen.bytes <= fraction * widest and chosen in found.widths.curve
        assert all(bits <= chosen.bits[name] for name, bits in bits_of(found.network).items())
        assert bytes_of(found.network, chosen.bits) == chosen.bytes
        sizes.append(chosen.bytes)
        got = emulate(found.network, inputs).outputs
        assert np.array_equal(got, simulate(found.network, inputs).outputs)
    assert sizes[0] == widest > sizes[1] > sizes[2] > 0.3 * widest


def test_without_bounds_the_predictions_stay(case):
    folded, inputs = case
    found = quantize(folded, LOIHI2, inputs, weight_bits="auto")
    first, chosen = found.widths.curve[0], found.widths.chosen
    assert chosen.unchanged >= first.unchanged - 0.01 and chosen.bytes < first.bytes
    assert [trial.bytes for trial in found.widths.curve] == sorted(
        (trial.bytes for trial in found.widths.curve), reverse=True
    )
    assert found.notes[0].startswith(f"--weight-bits auto: {chosen.bytes:,} bytes of weights")


def test_layers_get_bits_of_their_own(case):
    bits = quantize(case[0], LOIHI2, case[1], weight_bits="auto").widths.chosen.bits
    assert len(set(bits.values())) > 1


def test_a_bound_of_cores_is_kept(case):
    folded, inputs = case
    cores = place(quantize(folded, LOIHI2, inputs).network, LOIHI2).cores
    found = quantize(folded, LOIHI2, inputs, weight_bits="auto", most_cores=cores)
    assert set(found.widths.chosen.bits.values()) == {8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most_bytes": 100}, "--most-bytes has an effect only with --weight-bits auto"),
        ({"weight_bits": 4, "most_cores": 1}, "--most-cores has an effect only with --weight-bits auto"),
        ({"weight_bits": "auto", "most_bytes": 1}, "with 2-bit weights in all layers, the network takes"),
        ({"weight_bits": "most"}, "weight_bits 'most'; a whole number or 'auto' is needed"),
    ],
)
def test_bounds_that_cannot_hold_are_refused(case, options, message):
    with pytest.raises(OptionError, match=message):
        quantize(case[0], LOIHI2, case[1], **options)


def test_widths_need_data(case):
    with pytest.raises(OptionError, match="--weight-bits auto needs calibration data: add --calibration"):
        quantize(case[0], LOIHI2, weight_bits="auto")
