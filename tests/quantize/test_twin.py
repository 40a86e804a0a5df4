"""Quantization-aware training: what is trained is what is deployed, spike by spike."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from networks import (
    CURRENTS,
    LOOPS,
    RESETS,
    Residual,
    conv_body,
    enlivened,
    graded_body,
    inputs_for,
    int_loop,
    needs_lava,
    spiking_network,
)
from properties import examples
from torch import nn

from mpbn_deploy.base import CheckpointError, OptionError, QuantizeError, main as run_command, same_records
from mpbn_deploy.checkpoint import build_body, example_model, load_model, save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute.emulator import emulate, truncated_decay
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export import stage as export_module
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import read_netx
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import weight_bits
from mpbn_deploy.ir import InputFormat, Lif, Readout, bounds, fires, real_network, scaled
from mpbn_deploy.nn import Feedback, ModelCard, SpikingNetwork
from mpbn_deploy.quantize import QUANTIZED, NumberFormats, QuantizedBody, QuantizedNeurons, quantize
from mpbn_deploy.quantize.structure import describe_structure, read_structure
from mpbn_deploy.quantize.twin import ScanRule, _Charge, _Scan
from mpbn_deploy.train import Training, evaluate, quantized_twin, train
from mpbn_deploy.train.__main__ import COMMAND as TRAIN

pytestmark = pytest.mark.usefixtures("without_lava")

LOIHI2 = load_profile("loihi2")


def twin_of(folded, bits=4, samples=16):
    """An integer network, its twin in a SpikingNetwork, and inputs for both."""
    inputs = inputs_for(folded, samples=samples)
    network = quantize(folded, LOIHI2, weight_bits=bits).network
    body = QuantizedBody.of(network, NumberFormats.of(LOIHI2, bits), inputs)
    source = network.input_range
    input_format = InputFormat(
        shape=network.input.shape,
        minimum=source.minimum,
        maximum=source.maximum,
        mean=np.zeros(1),
        deviation=np.ones(1),
    )
    card = ModelCard(architecture=QUANTIZED, arguments={"structure": body.structure})
    model = SpikingNetwork(body, timesteps=folded.timesteps, input_format=input_format, card=card)
    return network, model, inputs


def spikes_of(model, inputs):
    """[samples, timesteps, *shape] of every population that fires, from the forward pass in torch."""
    found = {}

    def keep(module, given, sent):
        if fires(module.neuron):
            steps = sent.detach().view(model.timesteps, -1, *sent.shape[1:]).transpose(0, 1)
            found[module.population.name] = steps.numpy().astype(bool)

    hooks = [m.register_forward_hook(keep) for m in model.modules() if isinstance(m, QuantizedNeurons)]
    outputs = model(torch.tensor(np.asarray(inputs, np.float32)))
    for hook in hooks:
        hook.remove()
    return found, outputs.detach().numpy()


def stir(model, seed=0, amount=0.05):
    """Parameters as a training might leave them: none where it began."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=generator))


@examples(15)
@given(
    seed=st.integers(0, 10**6),
    bits=st.integers(2, 8),
    steps=st.integers(1, 5),
    resets=st.sampled_from(RESETS),
    currents=st.sampled_from(CURRENTS),
    recurrent=st.sampled_from(LOOPS),
)
def test_the_forward_pass_is_the_integer_network(seed, bits, steps, resets, currents, recurrent):
    options = {"resets": resets, "currents": currents, "recurrent": recurrent}
    folded = fold(trace(spiking_network(seed, timesteps=steps, **options)))
    _, model, inputs = twin_of(folded, bits)
    stir(model, seed)
    model.body.prevent_overflow(steps)
    network = model.body.to_integers(steps)
    expected = simulate(network, inputs)
    for mode in (True, False):
        spikes, outputs = spikes_of(model.train(mode), inputs)
        for name, found in spikes.items():
            np.testing.assert_array_equal(found, expected.spikes[name])
        readout = outputs * 64 * network.scales["output"] * steps
        np.testing.assert_allclose(readout, expected.outputs, rtol=1e-5, atol=0.5)


def test_residual_networks_and_emulator():
    torch.manual_seed(0)
    body = Residual((2, 8, 8), pool=nn.AvgPool2d(2), shortcut="average", stride=1, mpbn="channel")
    folded = fold(trace(enlivened(body, shape=(2, 8, 8))))
    _, model, inputs = twin_of(folded, 3)
    stir(model)
    model.body.prevent_overflow(folded.timesteps)
    expected = emulate(model.body.to_integers(folded.timesteps), inputs)
    spikes, _ = spikes_of(model, inputs)
    assert sum(found.sum() for found in spikes.values()) > 0
    for name, found in spikes.items():
        np.testing.assert_array_equal(found, expected.spikes[name])


@needs_lava
def test_lava_fires_what_was_trained():
    from mpbn_deploy.execute import lava as lava_sim

    folded = fold(trace(spiking_network(3, timesteps=3)))
    _, model, inputs = twin_of(folded, 4, samples=3)
    stir(model)
    model.body.prevent_overflow(3)
    spikes, _ = spikes_of(model, inputs)
    got = lava_sim.run(model.body.to_integers(3), inputs)
    for name, found in spikes.items():
        np.testing.assert_array_equal(found, got.spikes[name])


KINDS = list(zip(RESETS, CURRENTS, LOOPS, strict=True))


@pytest.mark.parametrize(("resets", "currents", "recurrent"), KINDS)
def test_the_twin_begins_as_the_quantized_network(resets, currents, recurrent):
    folded = fold(trace(spiking_network(1, resets=resets, currents=currents, recurrent=recurrent)))
    network, model, _ = twin_of(folded, 4)
    begun = model.body.to_integers(network.timesteps)
    for ours, theirs in zip(begun.connections, network.connections, strict=True):
        np.testing.assert_array_equal(ours.synapse.weight, theirs.synapse.weight)
    for ours, theirs in zip(begun.populations, network.populations, strict=True):
        assert same_records(ours.neuron, theirs.neuron)


@pytest.mark.parametrize(("levels", "signed"), [(3, False), (1, True)])
def test_neurons_that_send_whole_numbers_are_trained_as_they_run(levels, signed):
    torch.manual_seed(1)
    body = graded_body(levels=levels, signed=signed, leak=0.5)
    network, model, inputs = twin_of(fold(trace(enlivened(body, shape=(2, 5, 6)))))
    begun = model.body.to_integers(network.timesteps)
    for ours, theirs in zip(begun.connections, network.connections, strict=True):
        np.testing.assert_array_equal(ours.synapse.weight, theirs.synapse.weight)
    expected = simulate(network, inputs).spikes
    for name, spikes in spikes_of(model, inputs)[0].items():
        np.testing.assert_array_equal(spikes, expected[name])


def test_a_grouped_feedback_has_the_gradients_of_torch():
    feedback = Feedback(padding=(1, 1), groups=2)
    weight = torch.randn(4, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    spikes = torch.randn(5, 4, 6, 7, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(5, 4, 6, 7, dtype=torch.float64)
    by_weight, by_spikes = torch.autograd.grad(feedback.drive(weight, spikes), (weight, spikes), gradient)
    torch.testing.assert_close(
        feedback.by_weight(weight, gradient, spikes), by_weight, rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(feedback.by_spikes(weight, gradient), by_spikes, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("decay", [0, 1, 1000, 3072, 4000, 4095, 4096])
def test_truncated_decay_is_that_of_the_reference(decay):
    from mpbn_deploy.ir import Truncation

    states = np.concatenate([np.arange(-5000, 5000), [2**23 - 1, -(2**23) + 1]])
    decayed = truncated_decay(decay)
    state = torch.tensor(states, dtype=torch.float32)
    found = np.zeros_like(states) if decayed is None else decayed(state).numpy().astype(np.int64)
    np.testing.assert_array_equal(found, Truncation(amount=decay)(states))


@pytest.mark.parametrize("decay", [0, 1, 1024, 4000])
def test_gradients_of_a_current_are_those_that_its_docstring_says(decay):
    torch.manual_seed(0)
    arriving = torch.randint(-400, 400, (4 * 3, 5)).double().requires_grad_()
    weights = torch.randn(4 * 3, 5, dtype=torch.float64)
    charges = _Charge.apply(arriving, decay, 4)
    (found,) = torch.autograd.grad((charges * weights).sum(), arriving)
    charge, expected = torch.zeros(3, 5, dtype=torch.float64), []
    for now in arriving.chunk(4):
        kept = (1 - decay / 4096) * charge
        charge = kept + (kept.trunc() - kept).detach() + now
        expected.append(charge)
    assert torch.equal(charges, torch.cat(expected))
    (gradient,) = torch.autograd.grad((torch.cat(expected) * weights).sum(), arriving)
    torch.testing.assert_close(found, gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("decay_current", [None, 4096, 1024])
@pytest.mark.parametrize("soft", [False, True])
def test_gradients_of_the_scan_are_those_that_its_docstring_says(soft, decay_current):
    """Against autograd through the same equations, with the slope as a straight-through function.

    With a decay of the current, of a recurrent layer.
    """
    torch.manual_seed(0)
    steps, decay = 3, 3072
    current = torch.randint(-400, 400, (steps * 4, 5)).double().requires_grad_()
    bias = torch.randint(-50, 50, (5,)).double().requires_grad_()
    threshold = torch.randint(0, 200, (5,)).double().requires_grad_()
    width = torch.full((5,), 300.0, dtype=torch.float64)
    weights = torch.randn(steps * 4, 5, dtype=torch.float64)
    subtrahend = 120 * torch.randn(5, dtype=torch.float64) if soft else None
    rule = ScanRule(timesteps=steps, decay=decay, subtrahend=subtrahend)
    numbers, weight = [current, bias, threshold], None
    if decay_current is not None:
        rule = replace(rule, decay_current=decay_current, feedback=Feedback(padding=None))
        weight = torch.randint(-200, 200, (5, 5)).double().requires_grad_()
        numbers.append(weight)
    spikes = _Scan.apply(current, bias, threshold, weight, rule, width)
    found = torch.autograd.grad((spikes * weights).sum(), numbers)
    reset, all_spikes = torch.zeros(4, 5, dtype=torch.float64), []
    charge = spike = torch.zeros(4, 5, dtype=torch.float64)
    for now in current.chunk(steps):
        kept = 0.25 * reset
        kept = kept + (kept.trunc() - kept).detach()
        if weight is not None:
            left = (1 - decay_current / 4096) * charge
            now = charge = now + spike @ weight.T + left + (left.trunc() - left).detach()
        voltage = kept + now + bias
        slope = (voltage - threshold) / width
        near = slope.detach().abs() < 0.5
        ramp = torch.where(near, slope, slope.detach())
        spike = ramp + ((voltage > threshold).double() - ramp).detach()
        reset = voltage - spike * subtrahend if soft else voltage * (1 - spike)
        all_spikes.append(spike)
    assert torch.equal(spikes, torch.cat(all_spikes))
    expected = torch.autograd.grad((torch.cat(all_spikes) * weights).sum(), numbers)
    assert all(gradient.abs().sum() > 0 for gradient in expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_settling_brings_states_back_under_their_bound():
    torch.manual_seed(0)
    pixels = enlivened(conv_body((2, 5, 7)), shape=(2, 5, 7), maximum=255)
    folded = fold(trace(pixels))
    _, model, _ = twin_of(folded, 8)
    with torch.no_grad():
        for synapse in model.body.all_synapses:
            synapse.weight.mul_(50)  # every weight at the edge of its format
    wild = model.body.to_integers(folded.timesteps)
    assert not all(bound.fits for bound in bounds(wild).values())
    model.body.prevent_overflow(folded.timesteps)
    assert all(bound.fits for bound in bounds(model.body.to_integers(folded.timesteps)).values())


@pytest.mark.parametrize(("resets", "currents", "recurrent"), KINDS)
def test_checkpoints_keep_every_integer(tmp_path, resets, currents, recurrent):
    folded = fold(trace(spiking_network(5, resets=resets, currents=currents, recurrent=recurrent)))
    _, model, _ = twin_of(folded, 4)
    stir(model)
    save_model(tmp_path / "model.pt", model)
    read = load_model(tmp_path / "model.pt")
    steps = folded.timesteps
    assert same_records(read.body.to_integers(steps), model.body.to_integers(steps))


def test_structures_without_soft_resets_and_currents_are_read_as_before():
    network, _, _ = twin_of(fold(trace(spiking_network(0))), 4)
    stored = json.loads(describe_structure(network, NumberFormats.of(LOIHI2, 4)))
    for population in stored["populations"]:
        assert population.pop("subtrahend") is None
        assert population.pop("decay_current") == 4096
    for connection in stored["connections"]:
        assert connection.pop("step") == 16
    assert stored["input"].pop("offset") == 0
    read, _, steps = read_structure(json.dumps(stored))
    assert set(steps) == {16}
    assert all(isinstance(population.neuron, Lif) for population in read.layers[:-1])
    assert all(population.neuron.decay_current == 4096 for population in read.layers)


@pytest.mark.parametrize("resets", RESETS)
def test_structures_are_read_as_they_were_written(resets):
    network, _, _ = twin_of(fold(trace(spiking_network(0, resets=resets))), 4)
    formats = NumberFormats.of(LOIHI2, 4)
    read, found, steps = read_structure(describe_structure(network, formats))
    assert same_records(found, formats)
    assert steps == (16,) * len(network.connections)
    assert describe_structure(replace(read, timesteps=2), formats) == describe_structure(network, formats)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.pop("input"), "KeyError"),
        (lambda told: told["populations"][0].update(shape=[10**9]), "lif1"),
        (lambda told: told["populations"][0].update(bias=[10**9, 1, 1]), "at most"),
        (lambda told: told["connections"][0].update(stride=["x", 1]), "ValueError"),
        (lambda told: told["connections"][0].update(source="nobody"), "nobody"),
        (lambda told: told["formats"].update(unknown=3), "TypeError"),
        (lambda told: told["connections"][0].update(step=3), "a power of two up to 16"),
        (lambda told: told["connections"][0].update(step=32), "a power of two up to 16"),
        (lambda told: told["input"].update(offset="x"), "ValueError"),
    ],
)
def test_hostile_structures_are_refused(change, message):
    _, model, _ = twin_of(fold(trace(spiking_network(0))), 4)
    told = json.loads(model.body.structure)
    change(told)
    with pytest.raises(OptionError, match=message):
        QuantizedBody(json.dumps(told))


def test_a_scale_of_zero_in_a_checkpoint_is_refused(tmp_path):
    _, model, _ = twin_of(fold(trace(spiking_network(0))), 4)
    with torch.no_grad():
        model.body.all_neurons[0].width.zero_()
    save_model(tmp_path / "model.pt", model)
    with pytest.raises(CheckpointError, match=r"neurons\.0\.width: a scale that is not positive"):
        load_model(tmp_path / "model.pt")


def test_trained_integers_need_nobody_to_build_their_network(tmp_path):
    """Whoever built the float network: its name may be given again, and nothing of it is imported."""
    _, model, _ = twin_of(fold(trace(spiking_network(0))), 4)
    save_model(tmp_path / "model.pt", model)
    again = load_model(tmp_path / "model.pt", arch="somebody.elses:factory")
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)


def test_what_cannot_be_trained_is_named():
    formats = NumberFormats.of(LOIHI2, 4)
    loop = int_loop(1)
    late = [replace(c, delay=2) if c.source == c.target else c for c in loop.connections]
    with pytest.raises(QuantizeError, match="first->first: a recurrent connection; quantization-aware"):
        describe_structure(replace(loop, connections=tuple(late)), formats)
    network, _, _ = twin_of(fold(trace(spiking_network(0))), 4)
    own = replace(network.layers[0].neuron, decay_current=np.array([1, 2, 3, 4]).reshape(4, 1, 1))
    layers = (network.layers[0].with_neuron(own), *network.layers[1:])
    with pytest.raises(QuantizeError, match="lif1: decays that differ between neurons"):
        describe_structure(replace(network, populations=(network.input, *layers)), formats)
    for decay in ({"decay_voltage": 7}, {"decay_current": 100}):
        readout = replace(network.output, neuron=replace(network.output.neuron, **decay))
        assert isinstance(readout.neuron, Readout)
        forgetful = replace(network, populations=(*network.populations[:-1], readout))
        with pytest.raises(QuantizeError, match="output: quantization-aware training needs a readout"):
            describe_structure(forgetful, formats)


def test_training_improves_the_integers():
    """Two bits fit digits worse than real numbers do; training the integers wins some of it back."""
    dataset = load_dataset("digits")
    twin = quantized_twin(load_model(example_model("digits")), LOIHI2, 2, dataset)
    before, _ = evaluate(twin, dataset.train)
    training = Training(epochs=3, learning_rate=0.05, augmentation="none")
    trained = train(dataset, QUANTIZED, training=training, init=twin)
    after, _ = evaluate(trained, dataset.train)
    assert after < 0.9 * before
    network = trained.body.to_integers(trained.timesteps)
    assert all(bound.fits for bound in bounds(network).values())
    predictions = emulate(network, dataset.test.inputs[:], keep_trace=False).predictions
    accuracy = np.mean(predictions == dataset.test.labels)
    assert accuracy == pytest.approx(trained.card.training["test_accuracy"])


def test_thresholds_under_limits_are_not_trained():
    """Loihi 1 holds few thresholds per core, none below one."""
    dataset = load_dataset("digits")
    model = train(dataset, "digits-cnn", timesteps=2, training=Training(epochs=1))
    twin = quantized_twin(model, load_profile("loihi1"), None, dataset)
    before = twin.body.to_integers(2)
    trained = train(dataset, QUANTIZED, training=Training(epochs=1, learning_rate=0.02), init=twin)
    after = trained.body.to_integers(2)
    changed = [
        not np.array_equal(a.synapse.weight, b.synapse.weight)
        for a, b in zip(before.connections, after.connections, strict=True)
    ]
    assert any(changed)
    for left, right in zip(before.populations[1:-1], after.populations[1:-1], strict=True):
        np.testing.assert_array_equal(left.neuron.threshold, right.neuron.threshold)
        assert right.neuron.threshold.min() >= 1


def test_the_twin_of_a_twin_is_refused():
    dataset = load_dataset("digits")
    _, model, _ = twin_of(fold(trace(spiking_network(0))), 4)
    with pytest.raises(OptionError, match="quantized already"):
        quantized_twin(model, LOIHI2, 4, dataset)


# ---- commands ---------------------------------------------------------------------------------


@needs_lava
@pytest.mark.parametrize("offset", [0, 8])
def test_train_and_export_quantization_aware(tmp_path, capsys, offset):
    """The whole way: real numbers, integers, and every execution of them equal to PyTorch's own."""
    model, twin, folder = tmp_path / "model.pt", tmp_path / "twin.pt", tmp_path / "out"
    assert run_command(TRAIN, ["--epochs", "1", "--timesteps", "2", "--out", str(model)]) == 0
    quantized = ["--quantize", "loihi2", "--weight-bits", "4", "--init", str(model), "--epochs", "1"]
    quantized += ["--input-offset", str(offset)] if offset else []
    assert run_command(TRAIN, [*quantized, "--out", str(twin)]) == 0
    capsys.readouterr()
    assert run_command(EXPORT, [str(twin), "--target", "loihi2", "--out", str(folder), "--verbose"]) == 0
    assert ("takes -8..8: inputs 0..16 minus 8 (--input-offset)" in capsys.readouterr().out) == bool(offset)
    report = json.loads((folder / "verify.json").read_text())
    executions = {each["execution"]: each for each in report["comparisons"]}
    assert report["bit_exact"] and executions["PyTorch, as trained"]["spikes_compared"] > 0
    assert executions["PyTorch, as trained"]["outputs_compared"] > 0
    network = read_netx(folder / "network.net")
    expected = load_model(twin).body.to_integers(2)
    assert all(
        np.array_equal(a.synapse.weight, b.synapse.weight)
        for a, b in zip(network.connections, expected.connections, strict=True)
    )
    assert max(weight_bits(c.synapse.weight) for c in network.connections) <= 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": np.full(1, 128.0)}, "takes (x - 128) / 1 for inputs x of"),
        ({"deviation": np.full(1, 2.0)}, "takes (x - 0) / 2 for inputs x of"),
        ({"maximum": 1000}, "..1000, but its integers take x - 0 of"),
    ],
)
def test_files_whose_inputs_contradict_each_other_are_refused(change, message, tmp_path, capsys):
    _, model, _ = twin_of(fold(trace(spiking_network(0))), 4)
    model.input_format = replace(model.input_format, **change)
    save_model(tmp_path / "model.pt", model)
    words = [str(tmp_path / "model.pt"), "--target", "loihi2", "--out", str(tmp_path / "out")]
    assert run_command(EXPORT, words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quantize", "loihi2"], "--init"),
        (["--weight-bits", "4"], "--quantize"),
        (["--input-offset", "8"], "--quantize"),
        (["--init", "model.pt", "--arch", "digits-mlp"], "--arch with --init"),
        (["--init", "model.pt", "--leak", "0.5"], "--leak with --init"),
        (["--init", "nothing.pt"], "no such file"),
        (["--init", "model.pt", "--quantize", "loihi9"], "loihi9"),
        (["--init", "model.pt", "--quantize", "loihi2", "--weight-bits", "9"], "2..8"),
    ],
)
def test_impossible_options_are_named(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    body = build_body("digits-cnn", {"input_shape": (1, 8, 8), "classes": 10, "mpbn": "channel"})
    card = ModelCard(
        architecture="digits-cnn", arguments={"input_shape": (1, 8, 8), "classes": 10, "mpbn": "channel"}
    )
    given = load_dataset("digits").input_format
    save_model("model.pt", SpikingNetwork(body, timesteps=2, input_format=given, card=card))
    assert run_command(TRAIN, [*options, "--epochs", "1", "--out", "out.pt"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize(
    "option",
    [
        ["--weight-bits", "4"],
        ["--thresholds", "shared"],
        ["--overflow", "measured", "--calibration", "digits"],
        ["--nir-dialect", "portable"],
    ],
)
def test_trained_integers_are_not_quantized_again(option, tmp_path, capsys):
    _, model, _ = twin_of(fold(trace(spiking_network(5))), 4)
    save_model(tmp_path / "model.pt", model)
    arguments = [str(tmp_path / "model.pt"), "--target", "loihi2", *option]
    assert run_command(EXPORT, arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "its integers were chosen by training" in said


def test_real_numbers_of_integers_round_to_them_again():
    network, _, _ = twin_of(fold(trace(spiking_network(5))), 8)
    real = real_network(network)
    for whole, number in zip(network.connections, real.connections, strict=True):
        scales = network.scales[whole.target]
        again = scaled(number.synapse, scales).weight / 2.0**whole.synapse.exponent
        np.testing.assert_allclose(again, whole.synapse.weight, rtol=1e-12, atol=1e-9)


def test_trained_integers_keep_their_time_steps(tmp_path, capsys):
    _, model, _ = twin_of(fold(trace(spiking_network(5))), 4)
    save_model(tmp_path / "model.pt", model)
    arguments = [str(tmp_path / "model.pt"), "--target", "loihi2", "--timesteps", "300"]
    assert run_command(EXPORT, arguments) == 2
    assert "proved not to overflow, for 3" in capsys.readouterr().err


def test_integers_for_another_chip_say_how_to_get_there(tmp_path):
    _, model, _ = twin_of(fold(trace(spiking_network(5))), 4)
    model.card = replace(model.card, training={"quantize": "loihi2"})
    save_model(tmp_path / "model.pt", model)
    result = export_module.export(tmp_path / "model.pt", "loihi1", tmp_path / "out", samples=1)
    assert any("train --quantize loihi1" in note for note in result.notes)


def test_networks_of_the_users_own_code_are_trained_on(tmp_path, monkeypatch, capsys):
    """Their code runs only where the user names it, also with --init."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "from mpbn_deploy.nn.zoo import ARCHITECTURES\nbuild = ARCHITECTURES['digits-mlp']\n"
    (tmp_path / "own_network.py").write_text(code)
    few = ["--epochs", "1", "--timesteps", "1"]
    train_it = ["--arch", "own_network:build", *few, "--out", "own.pt"]
    assert run_command(TRAIN, train_it) == 0
    again = ["--quantize", "loihi2", "--init", "own.pt", "--epochs", "1", "--out", "small.pt"]
    assert run_command(TRAIN, again) == 2
    assert "--arch own_network:build" in capsys.readouterr().err
    assert run_command(TRAIN, [*again, "--arch", "own_network:build"]) == 0
    assert isinstance(load_model("small.pt").body, QuantizedBody)
