"""NeuroBench's published spiking networks, folded and quantized: spikes and outputs beside snnTorch's.

    git clone https://github.com/NeuroBench/neurobench
    python benchmarks/neurobench.py neurobench [--steps 100] [--samples 8]   a table of docs/results

The networks are built by NeuroBench's own code in the clone. Inputs are random spikes, because its data sets
are downloads of several gigabytes.
"""

import argparse
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import torch
from snntorch import utils

from mpbn_deploy.api import InputFormat, SpikingNetwork, fold, load_profile, quantize, simulate, trace
from mpbn_deploy.base import DeployError

RATE = 0.05  # of the random input spikes


def imported(path):
    """Return a module of the clone."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def networks(examples):
    """Yield (name, module, input shape, state_dict file, time first) of each network."""
    reaching = examples / "primate_reaching"
    for file in sorted((reaching / "model_data").glob("SNN2_*.pt")):
        features = 96 if "indy" in file.stem else 192
        yield file.stem, imported(reaching / "SNN2.py").SNN2(input_size=features), (features,), file, True
    for file in sorted((reaching / "model_data" / "SNN3_Weight").glob("*.pth")):
        features = 96 if "indy" in file.stem else 192
        name = f"SNN3_{re.sub('_model_state_dict', '', file.stem)}"
        yield name, imported(reaching / "SNN_3.py").SNNModel3(features), (features,), file, True
    speech = examples / "gsc"
    yield "gsc", imported(speech / "SNN.py").net, (20,), speech / "model_data" / "s2s_gsc_snntorch", False
    gestures = examples / "dvs_gesture"
    file = gestures / "model_data" / "dvs_gesture_snn"
    yield "dvs_gesture", imported(gestures / "snn.py").Net(), (2, 32, 32), file, False


def loaded(module, file):
    """Load the weights; files hold them bare or nested."""
    content = torch.load(file, map_location="cpu", weights_only=True)
    module.load_state_dict(content.get("model_state_dict", content), strict=False)
    return module.double().eval()


def their_run(module, steps, time_first):
    """Return the spikes of each neuron by its path, [samples, steps, ...], and the output of each step."""
    sent = {}

    def listener(path):
        def listen(part, given, output):
            """Keep the spikes; they are float32 in snnTorch, and the layers float64."""
            outputs = [each.double() for each in (output if isinstance(output, tuple) else (output,))]
            sent.setdefault(path, []).append(outputs[0])
            return tuple(outputs) if isinstance(output, tuple) else outputs[0]

        return listen

    neurons = [(path, part) for path, part in module.named_modules() if type(part).__name__ == "Leaky"]
    hooks = [part.register_forward_hook(listener(path)) for path, part in neurons]
    utils.reset(module)
    with torch.no_grad():
        outputs = module(steps) if time_first else torch.stack([module(step)[0] for step in steps])
    for hook in hooks:
        hook.remove()
    return {path: torch.stack(each, 1).bool().numpy() for path, each in sent.items()}, outputs.numpy()


def compared(module, shape, time_first, options):
    """Return a row: spikes that differ from snnTorch's, difference of outputs, spikes equal in integers."""
    inputs = np.random.default_rng(0).random((options.samples, options.steps, *shape)) < RATE
    spikes = InputFormat(shape=shape, minimum=0, maximum=1, mean=[0.0], deviation=[1.0])
    folded = fold(trace(SpikingNetwork(module, timesteps=options.steps, input_format=spikes)))
    theirs, outputs = their_run(module, torch.from_numpy(inputs.swapaxes(0, 1)).double(), time_first)
    ours = simulate(folded, inputs)
    names = [name for name in ours.spikes if name in theirs]
    different = sum(int(np.count_nonzero(theirs[name] != ours.spikes[name])) for name in names)
    count = sum(theirs[name].size for name in names)
    fired = sum(int(theirs[name].sum()) for name in names)
    final = outputs[-1] if folded.output.neuron.leak < 1 else outputs.mean(0)
    error = np.abs(final - ours.outputs).max() / np.abs(final).max()
    network = quantize(folded, load_profile("loihi2")).network
    integer = simulate(network, inputs)
    equal = sum(int(np.count_nonzero(integer.spikes[name] == ours.spikes[name])) for name in names) / count
    return f"{different} of {count:,} ({fired:,} fired) | {error:.0e} | {equal:.2%}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path, help="a clone of NeuroBench")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--samples", type=int, default=8)
    options = parser.parse_args()
    if not (options.clone / "examples").is_dir():
        sys.exit(f"{options.clone}: not a clone of github.com/NeuroBench/neurobench")
    print("| network | spikes different from snnTorch's | outputs, relative | spikes equal in integers |")
    print("|---|---|---|---|")
    failed = False
    for name, module, shape, file, time_first in networks(options.clone / "examples"):
        try:
            row = compared(loaded(module, file), shape, time_first, options)
            failed |= not row.startswith("0 of")
        except DeployError as error:
            row = f"rejected: {str(error).partition('. ')[0].rstrip('.')} | | "
        print(f"| {name} | {row} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
