"""Training speed and memory beside the paper's own code and SpikingJelly, in one run.

    python benchmarks/training_speed.py --paper-code FOLDER     (a clone of github.com/yfguo91/MPBN)

Everyone trains the paper's ResNet20 (its code's res20m): the same batch, time steps, threads, SGD.
Each step is timed in a process of its own, in turns, so that all see the same machine; the fastest
round counts. Memory is the highest resident size of that process, less what it had before its first
step. SpikingJelly (pip install spikingjelly) has our layers with its neurons between them. What is
not installed or not given is left out. Ours keeps freed memory and has compiled loops, as `train` does;
those with "torch" in their name have torch's operations instead, as without Numba.
The last column is the share of convolutions in a step, by torch's profiler: the rest is what a
spiking network adds (norms, neurons, optimizer), and the limit of any further speedup of it. "bare" has
the same convolutions and nothing but a ReLU in place of each neuron: no spiking network has a larger share.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import date

import torch
from paper_code import import_paper_code, paper_folder, spiking_network
from torch import nn
from torch.profiler import ProfilerActivity, profile

from mpbn_deploy.base import keep_freed_memory
from mpbn_deploy.ir import InputFormat
from mpbn_deploy.nn import LIF, SpikingNetwork, compiled_norms
from mpbn_deploy.nn.zoo import ARCHITECTURES

CONTESTANTS = {
    "ours": "with MPBN",
    "ours-torch": "with MPBN",
    "ours-bfloat16": "with MPBN",
    "ours-torch-bfloat16": "with MPBN",
    "paper": "with MPBN",
    "spikingjelly-mpbn": "with MPBN",
    "ours-without": "without MPBN",
    "spikingjelly": "without MPBN",
    "bare": "without norms and neurons",
}
CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")
YARDSTICK = {"with MPBN": "ours", "without MPBN": "ours-without", "without norms and neurons": "ours"}


# ---- the networks -----------------------------------------------------------------------------


def ours(options, **neuron):
    width = {} if options.width is None else {"width": options.width}
    body = ARCHITECTURES[options.arch]((3, 32, 32), 10, surrogate="tanh", **width, **neuron)
    given = InputFormat(shape=(3, 32, 32), minimum=0, maximum=255, mean=[127.0] * 3, deviation=[64.0] * 3)
    network = SpikingNetwork(body, timesteps=options.timesteps, input_format=given)
    return network.to(memory_format=torch.channels_last)


def bare(options):
    """The same convolutions with as little as possible between them: a ReLU for a neuron, no norms."""
    network = ours(options, mpbn="none")
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, LIF):
                setattr(module, name, nn.ReLU(inplace=True))
            elif isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
    return network


def papers(options):
    return spiking_network(import_paper_code(options.paper_code), "paper:res20m", 10, options.timesteps)


class SpikingJellyNeuron(nn.Module):
    """One of SpikingJelly's multi-step neurons, where time lies in the batch."""

    def __init__(self, neuron, timesteps):
        super().__init__()
        self.neuron, self.timesteps = neuron, timesteps

    def forward(self, x):
        return self.neuron(x.view(self.timesteps, -1, *x.shape[1:])).flatten(0, 1)


def spikingjelly(options, with_mpbn):
    """Our ResNet20 with SpikingJelly's neurons; in torch's usual layout, as SpikingJelly trains."""
    from spikingjelly.activation_based import neuron, surrogate

    network = ours(options).to(memory_format=torch.contiguous_format)
    alike = {
        "tau": 4 / 3, "decay_input": False, "v_threshold": 0.5, "v_reset": 0.0, "step_mode": "m",
        "surrogate_function": surrogate.Rect(),
    }  # fmt: skip
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, LIF):
                made = (
                    neuron.MPBNLIFNode(out_channels=child.mpbn.shape[0], **alike)
                    if with_mpbn
                    else neuron.LIFNode(**alike)
                )
                setattr(module, name, SpikingJellyNeuron(made, options.timesteps))
    return UsualLayout(network)


class UsualLayout(nn.Module):
    """A SpikingNetwork of somebody else's neurons: no channels_last, and states reset after each batch."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, inputs):
        from spikingjelly.activation_based import functional

        steps = self.network.normalize(inputs.float()).repeat(self.network.timesteps, 1, 1, 1)
        logits = self.network.body(steps)
        functional.reset_net(self.network)
        return logits.view(self.network.timesteps, -1, logits.shape[1]).mean(0)


def build(options):
    match options.worker:
        case "ours-without":
            return ours(options, mpbn="none")
        case "bare":
            return bare(options)
        case "paper":
            return papers(options)
        case "spikingjelly":
            return spikingjelly(options, with_mpbn=False)
        case "spikingjelly-mpbn":
            return spikingjelly(options, with_mpbn=True)
        case _:
            return ours(options)


# ---- one process ------------------------------------------------------------------------------


def measure(options):
    """Seconds per step, and megabytes, of one contestant."""
    if options.worker.startswith(("ours", "bare")):
        keep_freed_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    network = build(options).train()
    inputs = torch.randint(0, 256, (options.batch, 3, 32, 32))
    if options.worker == "paper":
        inputs = (inputs.float() - 127) / 64
    labels = torch.randint(0, 10, (options.batch,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.worker.endswith("bfloat16")):
            logits = network(inputs)
        nn.functional.cross_entropy(logits.float(), labels).backward()
        optimizer.step()

    ours = options.worker.startswith("ours")
    with compiled_norms(network) if ours else nullcontext():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds = []
        for _ in range(options.steps + 1):
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = {"seconds": min(seconds[1:]), "megabytes": (peak - before) / 1024, "share": share(step)}
    print(json.dumps(found))


def share(step):
    """The fraction of a step's processor time that is spent in convolutions, forward and backward."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    events = profiler.key_averages()
    inside = sum(event.cpu_time_total for event in events if event.key in CONVOLUTIONS)
    return inside / sum(event.self_cpu_time_total for event in events)


# ---- all in turns -----------------------------------------------------------------------------


def available(options):
    from importlib.util import find_spec

    missing = {"paper"} if options.paper_code is None or options.arch != "resnet20" else set()
    if find_spec("spikingjelly") is None:
        missing |= {name for name in CONTESTANTS if name.startswith("spikingjelly")}
    return [name for name in CONTESTANTS if name not in missing]


def in_turns(options):
    """The fastest time and the least memory of each contestant over the rounds."""
    best = {}
    for turn in range(options.rounds):
        for name in available(options):
            command = [sys.executable, __file__, *sys.argv[1:], "--worker", name]
            environment = {**os.environ, "NUMBA_DISABLE_JIT": str(int("torch" in name))}
            done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
            found = json.loads(done.stdout)
            print(f"round {turn + 1}: {name} {found['seconds']:.3f} s", file=sys.stderr, flush=True)
            known = best.setdefault(name, found)
            faster = min(known, found, key=lambda each: each["seconds"])
            best[name] = {**faster, "megabytes": min(known["megabytes"], found["megabytes"])}
    return best


def print_table(options, best):
    print(
        f"{options.arch}, batch {options.batch}, {options.timesteps} time steps, "
        f"{options.threads} threads, {date.today()}, {platform.machine()}, torch {torch.__version__}\n"
    )
    print("| network | who | pictures per second | ours is faster by | megabytes | of ours | convolutions |")
    print("|---|---|---|---|---|---|---|")
    network = options.arch if options.width is None else f"{options.arch} of width {options.width}"
    for name, found in best.items():
        yardstick = best[YARDSTICK[CONTESTANTS[name]]]
        speed, memory = found["seconds"] / yardstick["seconds"], found["megabytes"] / yardstick["megabytes"]
        print(
            f"| {network}, {CONTESTANTS[name]} | {name} | {options.batch / found['seconds']:.1f} "
            f"| {speed:.2f} x | {found['megabytes']:.0f} | {memory:.2f} x | {found['share']:.0%} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paper-code", type=paper_folder, help="folder of the paper's code")
    parser.add_argument("--arch", default="resnet20", choices=tuple(ARCHITECTURES))
    parser.add_argument("--width", type=int, help="channels of the first layer")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--timesteps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        measure(options)
    else:
        print_table(options, in_turns(options))


if __name__ == "__main__":
    main()
