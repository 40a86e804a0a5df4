"""Draw networks and compare every execution with the reference, for hours; count, and keep what differs.

    python benchmarks/campaign.py --hours 2                      a new campaign, in campaign.json
    python benchmarks/campaign.py --hours 2 --resume             continues it
    python benchmarks/campaign.py --hours 0 --resume             prints the table of docs/results

Network number n is drawn with seed n: a float model in PyTorch with batch norms and MPBN of random gains,
whose statistics are measured on its inputs, so that most neurons fire sometimes but not always. It is folded
and quantized; some networks get recurrent and delayed connections, in integers, and some have convolutions
of odd geometry: sides of one pixel, strides beyond kernels, dilations, one channel per group, kernels larger
than the image. Then the folded network is compared with the PyTorch model, and `verify` compares the
reference with the emulator, Lava (our models, its own), lava-dl's netx reader and the outside witnesses that
are installed, and the oracle (oracle.py: big integers, code of its own) compares with the reference.
Networks are drawn and compared in a process of their own, so that a crash of a library is a finding, too.

What differs is written to --cases as NUMBER.json, which tests/benchmarks/test_campaign.py draws again.
"""

import argparse
import io
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from datetime import date
from math import gcd
from pathlib import Path

import numpy as np
import oracle
import torch
from torch import nn

from mpbn_deploy.api import (
    LIF,
    InputFormat,
    SpikingNetwork,
    fold,
    load_profile,
    quantize,
    trace,
    verify,
    write_netx,
)
from mpbn_deploy.base import DeployError, MissingPackageError, json_text, write_atomically
from mpbn_deploy.execute.outside import WITNESSES
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import (
    STATE_LIMIT,
    Connection,
    Conv2d,
    Dense,
    FoldedNetwork,
    IntNetwork,
    bounds,
    connection_synapses,
    firing,
)
from mpbn_deploy.verify.folding import check_fold

CASES = Path(__file__).parents[1] / "tests" / "benchmarks" / "counterexamples"
ORACLE = "oracle"
SAMPLES = 512
BUDGET = 8.0  # seconds for Lava's own models, and for each witness
ORACLE_ARRIVALS = 4_000_000  # synapses that the oracle passes spikes through, per network
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
FOLDING = "folding, against PyTorch"
FEATURES = (
    "residual",
    "grouped",
    "dilated",
    "strided",
    "odd",
    "element-wise",
    "soft reset",
    "recurrent",
    "delayed",
)


# ---- drawing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A network, its samples, and what is special about it."""

    network: IntNetwork
    inputs: np.ndarray
    features: frozenset
    folded: FoldedNetwork
    model: SpikingNetwork
    extended: bool  # connections were added to the integers


class Block(nn.Module):
    """spikes of norm(convolution(x))"""

    def __init__(self, convolution, neuron):
        super().__init__()
        self.convolution, self.neuron = convolution, neuron
        self.norm = nn.BatchNorm2d(convolution.out_channels)

    def forward(self, x):
        return self.neuron(self.norm(self.convolution(x)))


class Residual(nn.Module):
    """spikes of norm(convolution(block(x))) + shortcut(x)"""

    def __init__(self, block, channels, neuron, shortcut):
        super().__init__()
        self.block, self.neuron, self.shortcut = block, neuron, shortcut
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return self.neuron(self.norm(self.convolution(self.block(x))) + self.shortcut(x))


class Draw:
    """The random choices of one network."""

    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)
        self.odd = np.random.default_rng((seed, 1))
        self.features = set()
        self.mpbn = self.choice(("channel", "channel", "element", "none"))
        self.leak = self.choice((0.0, 0.25, 0.5, 0.9, 1.0))
        self.soft = self.happens(0.25)
        self.note("element-wise", self.mpbn == "element")

    def choice(self, values):
        return values[int(self.generator.integers(len(values)))]

    def happens(self, chance):
        return bool(self.generator.random() < chance)

    def note(self, feature, there):
        if there:
            self.features.add(feature)

    def neuron(self, shape):
        reset = "subtract" if self.soft and self.happens(0.7) else "zero"
        self.note("soft reset", reset == "subtract")
        sizes = shape if self.mpbn == "element" else shape[0]
        return LIF(sizes, mpbn=self.mpbn, leak=self.leak, reset=reset)

    def block(self, shape):
        """Return a block and the shape of its spikes."""
        channels = self.choice((4, 8, 12, 16))
        kernel = (self.choice((1, 2, 3)), self.choice((1, 3)))
        dilation = self.choice((1, 1, 2))
        stride = self.choice((1, 1, 2))
        groups = gcd(shape[0], channels) if self.happens(0.25) else 1
        padding = (kernel[0] // 2 * dilation, kernel[1] // 2 * dilation)
        settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        if self.odd.random() < 0.3:
            channels, kernel, settings = self.odd_geometry(shape)
        convolution = nn.Conv2d(shape[0], channels, kernel, **settings)
        after = tuple(convolution(torch.zeros(1, *shape)).shape[1:])
        strided, dilated = (max(getattr(convolution, name)) > 1 for name in ("stride", "dilation"))
        grouped = convolution.groups > 1
        for feature, there in (("strided", strided), ("dilated", dilated), ("grouped", grouped)):
            self.note(feature, there)
        return self.with_shortcut(Block(convolution, self.neuron(after)), shape, after), after

    def odd_geometry(self, shape):
        """Return channels, kernel and settings of a convolution that few networks have, with any output."""
        self.features.add("odd")
        while True:
            kernel, stride, padding, dilation = (
                tuple(int(side) for side in self.odd.choice(values, 2))
                for values in ((1, 1, 2, 3, 4, 5, 7), (1, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4), (1, 1, 2, 3))
            )
            groups = int(self.odd.choice((1, shape[0])))
            sides = zip(shape[1:], kernel, padding, dilation, strict=True)
            if all(size + 2 * p > d * (k - 1) for size, k, p, d in sides):
                settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
                return groups * int(self.odd.choice((1, 2, 4))) if groups > 1 else 8, kernel, settings

    def with_shortcut(self, block, before, after):
        """Return the block, or a residual one around it."""
        shortcut = nn.Identity() if before == after else self.projection(before, after)
        if shortcut is None or not self.happens(0.4):
            return block
        self.features.add("residual")
        return Residual(block, after[0], self.neuron(after), shortcut)

    def projection(self, before, after):
        """Return a convolution of one tap that gives the shape, if a stride does."""
        for stride in (1, 2):
            found = nn.Conv2d(before[0], after[0], 1, stride, bias=False)
            if tuple(found(torch.zeros(1, *before)).shape[1:]) == after:
                return nn.Sequential(found, nn.BatchNorm2d(after[0]))
        return None

    def body(self, shape):
        layers = OrderedDict()
        for number in range(self.choice((1, 2, 3, 4))):
            layers[f"block{number}"], shape = self.block(shape)
        layers["flatten"] = nn.Flatten()
        size = int(np.prod(shape))
        for number in range(self.choice((0, 1, 2))):
            width = self.choice((16, 32, 64))
            layers[f"dense{number}"] = nn.Linear(size, width)
            layers[f"norm{number}"] = nn.BatchNorm1d(width)
            layers[f"neuron{number}"], size = self.neuron((width,)), width
        layers["readout"] = nn.Linear(size, self.choice((3, 10)))
        return nn.Sequential(layers)


def draw(seed, samples=SAMPLES):
    """Return network number `seed`."""
    torch.manual_seed(seed)
    choices = Draw(seed)
    shape = (choices.choice((1, 2, 3)), choices.choice((6, 9, 12)), choices.choice((5, 8, 12)))
    if choices.odd.random() < 0.15:
        shape = (shape[0], *(int(side) for side in choices.odd.choice((1, 2, 9), 2)))
    maximum, timesteps = choices.choice((1, 9, 255)), choices.choice((2, 4, 6, 9))
    inputs = choices.generator.integers(0, maximum + 1, (samples, timesteps, *shape))
    model = enlivened(choices.body(shape), inputs, maximum, choices.mpbn == "element")
    folded = fold(trace(model))
    network = quantize(folded, load_profile("loihi2"), weight_bits=choices.choice((4, 6, 8))).network
    extended = with_recurrence(network, choices) if choices.happens(0.3) else network
    return Drawn(
        network=extended,
        inputs=inputs,
        features=frozenset(choices.features),
        folded=folded,
        model=model,
        extended=extended is not network,
    )


def enlivened(body, inputs, maximum, elementwise, passes=5):
    """Return a model with random gains of either sign, whose norms have measured these inputs."""
    timesteps, shape = inputs.shape[1], inputs.shape[2:]
    given = InputFormat(
        shape=shape,
        minimum=0,
        maximum=maximum,
        mean=np.full(shape[0], maximum / 2),
        deviation=np.full(shape[0], maximum / 3),
    )
    model = SpikingNetwork(body, timesteps=timesteps, input_format=given).double()
    for name, norm in model.named_modules():
        if not isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
            continue
        norm.momentum = 0.5
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0.2, 0.2)
        # Neurons of a channel share a kernel, which is negated for all or none of them.
        if not (elementwise and "mpbn" in name):
            norm.weight.data[torch.rand(norm.num_features) < 0.3] *= -1
    with torch.no_grad():
        for _ in range(passes):
            model.train()(torch.randint(0, maximum + 1, (32, *shape)).double())
    return model.eval()


def with_recurrence(network, choices):
    """Return the network with a connection of a population to itself, and one that skips and is late.

    If their sums might overflow, the network stays as it is.
    """
    added, populations = [], list(firing(network))
    itself = choices.choice(populations)
    added.append(drawn_connection(choices, itself, itself, delay=choices.choice((1, 2))))
    if len(populations) > 1:
        added.append(drawn_connection(choices, populations[0], populations[-1], delay=choices.choice((1, 3))))
    extended = replace(network, connections=(*network.connections, *(c for c in added if c is not None)))
    if max(bound.magnitude for bound in bounds(extended).values()) > STATE_LIMIT:
        return network
    choices.note("recurrent", added[0] is not None)
    choices.note("delayed", len(added) > 1 and added[1] is not None)
    return extended


def drawn_connection(choices, source, target, delay):
    """Return a connection with weights of a few percent of the target's thresholds."""
    largest = max(2, int(np.median(np.abs(target.neuron.threshold))) // 8)
    if source.shape == target.shape and len(source.shape) == 3:
        shape = (target.shape[0], source.shape[0], 1, 1)
        synapse = Conv2d(weight=choices.generator.integers(-largest, largest + 1, shape))
    else:
        shape = (target.size, source.size)
        synapse = Dense(weight=choices.generator.integers(-largest, largest + 1, shape))
    return Connection(source=source.name, target=target.name, synapse=synapse, delay=delay)


# ---- comparing --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What the executions of one network said: {execution: (decisions, voltages, different)}."""

    counts: dict
    differences: dict  # {execution: its first difference, or how it failed}
    lively: float  # share of neurons that fire in some but not all steps
    features: frozenset


def examine(drawn, budget=BUDGET):
    """Compare all executions of a network."""
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        netx = Path(folder) / "network.net"
        write_netx(drawn.network, netx)
        report = verify(
            drawn.network,
            drawn.inputs,
            folded=None if drawn.extended else drawn.folded,
            netx=netx,
            budget=budget,
            witness=[name for name, witness in WITNESSES.items() if installed(witness)],
        )
    counts = {c.execution: counted(c) for c in report.comparisons if not c.not_run}
    differences = {c.execution: str(c.first_mismatch) for c in report.comparisons if not c.exact}
    differences |= {c.execution: c.not_run for c in report.comparisons if c.execution in report.failed}
    counts[ORACLE], wrong = consult(drawn.network, drawn.inputs, report.trace)
    differences |= {ORACLE: wrong} if wrong else {}
    fold_check = check_fold(drawn.model, drawn.folded, drawn.inputs)
    changed = 0 if fold_check.agrees else fold_check.spikes_mismatched + fold_check.outputs_mismatched
    counts[FOLDING] = fold_check.spikes_compared, fold_check.outputs_compared, changed
    differences |= {} if fold_check.agrees else {FOLDING: fold_check.verdict}
    rates = np.concatenate(
        [report.trace.spikes[p.name].mean(axis=(0, 1)).ravel() for p in firing(drawn.network)]
    )
    lively = float(np.mean((rates > 0) & (rates < 1)))
    return Outcome(counts=counts, differences=differences, lively=lively, features=drawn.features)


def counted(comparison):
    different = sum(getattr(comparison, f"{kind}s_mismatched") for kind in ("spike", "voltage", "output"))
    return comparison.spikes_compared, comparison.voltages_compared, different


def installed(witness):
    try:
        return bool(witness.version())
    except MissingPackageError:
        return False


def consult(network, inputs, trace_):
    """Return ((decisions, voltages, different), first difference) of the oracle, on some samples."""
    sent = {
        network.input.name: np.count_nonzero(inputs),
        **{n: int(v.sum()) for n, v in trace_.spikes.items()},
    }
    sizes = {population.name: population.size for population in network.populations}
    arrivals = sum(
        sent[c.source] * connection_synapses(network, c) / sizes[c.source] for c in network.connections
    )
    samples = int(np.clip(ORACLE_ARRIVALS * len(inputs) / (arrivals + 1), 1, len(inputs)))
    reference = simulate(network, inputs[:samples])
    decisions = different = 0
    first = ""
    for sample in range(samples):
        steps = inputs[sample].reshape(network.timesteps, -1).tolist()
        for expected, got, kind in zip(
            (reference.spikes, reference.voltages),
            oracle.simulate(network, steps),
            ("spike", "voltage"),
            strict=True,
        ):
            for name, values in got.items():
                ours = expected[name][sample].reshape(network.timesteps, -1).astype(np.int64).tolist()
                wrong = sum(
                    a != b
                    for us, them in zip(ours, values, strict=True)
                    for a, b in zip(us, them, strict=True)
                )
                different += wrong
                decisions += len(values) * len(values[0]) if kind == "spike" else 0
                first = first or (f"{kind}s of {name}, sample {sample}" if wrong else "")
    return (decisions, decisions, different), first


# ---- the campaign -----------------------------------------------------------------------------


def fresh():
    return {
        "networks": 0,
        "next": 0,
        "seconds": 0.0,
        "lively": 0.0,
        "features": dict.fromkeys(FEATURES, 0),
        "executions": {},
        "not built": {},
        "counterexamples": [],
    }


def examine_number(number, state, cases, samples=SAMPLES, budget=BUDGET):
    """Draw and compare one network, and add what was found to the state."""
    state["next"] = number + 1
    try:
        drawn = draw(number, samples)
    except DeployError as error:  # for instance a network that no scale can quantize
        reason = type(error).__name__
        state["not built"][reason] = state["not built"].get(reason, 0) + 1
        return
    try:
        outcome = examine(drawn, budget)
    except Exception as error:  # a crash is a finding, too
        keep_case(number, {"crash": f"{type(error).__name__}: {error}"}, state, cases)
        return
    add(outcome, state)
    if outcome.differences:
        keep_case(number, outcome.differences, state, cases)


def add(outcome, state):
    state["networks"] += 1
    state["lively"] += outcome.lively
    for feature in outcome.features:
        state["features"][feature] += 1
    for execution, numbers in outcome.counts.items():
        sums = state["executions"].setdefault(execution, [0, 0, 0, 0])
        state["executions"][execution] = [a + b for a, b in zip(sums, (1, *numbers), strict=True)]


def keep_case(number, differences, state, cases):
    """Write a counterexample as a test case."""
    state["counterexamples"].append(number)
    cases.mkdir(parents=True, exist_ok=True)
    write_atomically(cases / f"{number}.json", json_text({"number": number, "found": differences}).encode())
    print(f"network {number}: {differences}", file=sys.stderr)


def table(state):
    """Return the table of docs/results."""
    networks = max(1, state["networks"])
    rows = [
        f"| {name} | {count:,} | {spikes:,} | {voltages:,} | {different:,} |"
        for name, (count, spikes, voltages, different) in state["executions"].items()
    ]
    total = [sum(column) for column in zip(*state["executions"].values(), strict=True)] or [0] * 4
    rows.append(f"| all | | {total[1]:,} | {total[2]:,} | {total[3]:,} |")
    features = ", ".join(f"{count} {feature}" for feature, count in state["features"].items())
    return "\n".join(
        [
            f"{state['networks']} networks ({features}) in {state['seconds'] / 3600:.2f} hours; "
            f"{state['lively'] / networks:.0%} of the neurons fire sometimes but not always; "
            f"{sum(state['not built'].values())} not built; {len(state['counterexamples'])} counterexamples. "
            f"{platform.machine()}, {date.today()}.",
            "",
            "| execution | networks | spike decisions | voltages | different |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def run(hours, path, resume, cases):
    if path.exists() and not resume:
        sys.exit(f"{path} exists: --resume continues that campaign; or give another --state.")
    state = json.loads(path.read_text(encoding="utf-8")) if path.exists() else fresh()
    end = time.monotonic() + 3600 * hours
    while (started := time.monotonic()) < end:
        examine_number(state["next"], state, cases)
        state["seconds"] += time.monotonic() - started
        write_atomically(path, json_text(state).encode())
    print(table(state))
    return 1 if state["counterexamples"] else 0


def supervise(hours, path, resume, cases):
    """Run the campaign in a process of its own; after a crash, keep the network and continue in another."""
    end = time.monotonic() + 3600 * hours
    while True:
        left = max(0.0, end - time.monotonic()) / 3600
        command = [sys.executable, __file__, "--worker", "--hours", str(left), "--state", str(path)]
        code = subprocess.run(
            [*command, "--cases", str(cases), *["--resume"][: int(resume)]], check=False
        ).returncode
        if -code not in CRASHES:
            return code
        state = json.loads(path.read_text(encoding="utf-8")) if path.exists() else fresh()
        keep_case(state["next"], {"crash": f"signal {-code}"}, state, cases)
        state["next"] += 1
        write_atomically(path, json_text(state).encode())
        resume = True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--resume", action="store_true", help="continue the campaign of --state")
    parser.add_argument(
        "--state", type=Path, default=Path("campaign.json"), help="counts (default %(default)s)"
    )
    parser.add_argument("--cases", type=Path, default=CASES, help="folder for counterexamples")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    campaign = run if options.worker else supervise
    sys.exit(campaign(options.hours, options.state, options.resume, options.cases))
