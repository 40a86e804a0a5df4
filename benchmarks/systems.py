"""Official code of spiking networks, read, proved, folded, and placed on Loihi 2.

    python benchmarks/systems.py CLONES [NAME ...]        prints the table of docs/results/systems.md

CLONES holds clones of the repositories below, in folders named owner+name. Nothing of them is part of
this package, and they are imported as they are, on a processor, with torch 2 and SpikingJelly 2: `cuda()`
does nothing; packages that they import and do not use, and old names of SpikingJelly, are stand-ins.
Weights are random (seed 0); norms get gains and statistics with which neurons fire sometimes. "Spikes
compared" counts the decisions of the proof in float64 on random inputs; a spike that differs outside a tie
rejects the network. Each system has a process of its own.
"""

import argparse
import functools
import importlib
import subprocess
import sys
import types
from pathlib import Path

import torch
from torch import nn

REPOSITORIES = {
    "TET": "Gus-Lab+temporal_efficient_training",
    "STBP": "yjwu17+BP-for-SpikingNN",
    "OTTT": "pkuxmq+OTTT-SNN",
    "SEW": "fangwei123456+Spike-Element-Wise-ResNet",
    "tdBN": "thiswinex+STBP-simple",
    "IM-Loss": "yfguo91+IM-Loss-Information-Maximization-Loss-for-Spiking-Neural-Networks",
    "Joint A-SNN": "yfguo91+Joint-A-SNN",
    "Real Spike": "yfguo91+Real-Spike",
    "MS-ResNet": "Ariande1+MS-ResNet",
    "DIET-SNN": "nitin-rathi+DIET-SNN",
    "Hybrid": "nitin-rathi+hybrid-snn-conversion",
    "PLIF": "fangwei123456+Parametric-Leaky-Integrate-and-Fire-Spiking-Neuron",
    "MPBN": "yfguo91+MPBN",
    "Re-Loss": "yfguo91+Re-Loss",
    "Ternary Spike": "yfguo91+Ternary-Spike",
}
SYSTEMS = {}  # name -> repository, file, function that builds (module, shape of samples, time steps)


def system(name, file, variant=""):
    def kept(build):
        SYSTEMS[f"{name} {variant}".strip()] = (REPOSITORIES[name], file, build)
        return build

    return kept


# ---- what their code expects of its surroundings ------------------------------------------------


class OldNode(nn.Module):
    """The base class of neurons in SpikingJelly 0.0.0.0.4, as far as PLIF's file uses it."""

    def __init__(self, v_threshold, v_reset, surrogate_function, detach_reset, monitor_state):
        super().__init__()
        self.v_threshold, self.v_reset, self.v = v_threshold, v_reset, 0.0 if v_reset is None else v_reset
        self.surrogate_function = surrogate_function

    def spiking(self):
        spike = self.surrogate_function(self.v - self.v_threshold)
        soft = self.v_reset is None
        self.v = self.v - spike * self.v_threshold if soft else (1 - spike) * self.v + spike * self.v_reset
        return spike


def stand_in(name, **contents):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(contents)
    return made


def prepare():
    from spikingjelly.activation_based import functional, layer, neuron, surrogate

    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    for unused in ("IPython", "torchvision", "matplotlib", "matplotlib.pyplot"):
        stand_in(unused, embed=None, transforms=None, pyplot=None)

    def several_steps(kind):
        return functools.partial(kind, step_mode="m")

    arctangent = surrogate.ATan
    surrogate.ATan = lambda *args, learnable=False, **kwargs: arctangent(*args, **kwargs)
    nodes = {"BaseNode": OldNode, "LIFNode": neuron.LIFNode, "IFNode": neuron.IFNode}
    layers = {
        "SeqToANNContainer": layer.SeqToANNContainer,
        "Dropout": lambda p=0.5, dropout_spikes=False: nn.Dropout(p),
    }
    stand_in(
        "spikingjelly.clock_driven", functional=functional, surrogate=surrogate, accelerating=None,
        neuron=stand_in("spikingjelly.clock_driven.neuron", **nodes),
        layer=stand_in("spikingjelly.clock_driven.layer", **layers),
    )  # fmt: skip
    steps = {
        "MultiStepIFNode": several_steps(neuron.IFNode),
        "MultiStepParametricLIFNode": several_steps(neuron.ParametricLIFNode),
    }
    stand_in("spikingjelly.cext", neuron=stand_in("spikingjelly.cext.neuron", **steps))


def lively(network):
    """Give norms gains, offsets and statistics with which neurons fire sometimes."""
    random = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            size = module.weight.shape
            module.weight.data = torch.rand(size, generator=random) * 0.7 + 0.6
            module.bias.data = torch.randn(size, generator=random) * 0.2 + 0.2
            module.running_mean = torch.randn(size, generator=random) * 0.05
            module.running_var = torch.rand(size, generator=random) * 0.2 + 0.15
    return network.eval()


class Called(nn.Module):
    """A network whose forward takes more than inputs."""

    def __init__(self, network, call):
        super().__init__()
        self.network, self.call = network, call

    def forward(self, x):
        return self.call(self.network, x)


# ---- the systems -------------------------------------------------------------------------------


@system("TET", "models/VGG_models.py", "VGGSNN")
def tet_vgg(load):
    return load("models.VGG_models").VGGSNN(), (2, 48, 48), 4


@system("TET", "models/resnet_models.py", "ResNet19")
def tet_resnet(load):
    network = load("models.resnet_models").resnet19(num_classes=10)
    network.T = 4
    return network, (3, 32, 32), 4


@system("STBP", "spiking_model.py", "as it is")
def stbp(load):
    found = load("spiking_model")
    found.batch_size = 1
    return found.SCNN(), (1, 28, 28), 20


class Half:
    """torch, whose random numbers are one half: pixels are compared with a constant."""

    def __getattr__(self, name):
        return getattr(torch, name)

    def rand(self, size, device):
        return torch.full(size, 0.5, device=device)


@system("STBP", "spiking_model.py", "without random encoding")
def stbp_half(load):
    found = load("spiking_model")
    found.torch = Half()

    def call(network, x):
        found.batch_size = len(x)
        return network(x, time_window=6)

    return Called(found.SCNN(), call), (1, 28, 28), 6


@system("OTTT", "models/spiking_vgg.py")
def ottt(load):
    make, node = load("models.spiking_vgg").online_spiking_vgg11_ws, load("modules.neuron").OnlineLIFNode
    sigmoid = load("modules.surrogate").Sigmoid()
    network = make(num_classes=10, single_step_neuron=node, tau=2.0, fc_hw=1, surrogate_function=sigmoid)
    steps = 4
    return Called(network, lambda net, x: sum(net(x, init=t == 0) for t in range(steps))), (3, 32, 32), steps


for connect in ("ADD", "AND", "IAND"):

    @system("SEW", "imagenet/sew_resnet.py", connect)
    def sew(load, connect=connect):
        make = load("sew_resnet", "imagenet").sew_resnet18
        return make(num_classes=10, T=4, connect_f=connect), (3, 64, 64), 4


@system("tdBN", "model.py")
def tdbn(load):
    found = load("model")
    found.steps = found.STEPS
    return found.CifarNet(), (3, 32, 32), found.STEPS


def refactored(load, function):
    """Return one of yfguo91's networks as their main programs make it."""
    make = getattr(load("models.resnet"), function)
    network = load("models.spike_model").SpikeModel(make(num_classes=10), 4)
    network.set_spike_state(True)
    return network, (3, 32, 32), 4


for name in ("IM-Loss", "MPBN", "Re-Loss", "Ternary Spike"):

    @system(name, "models/resnet.py", "ResNet20")
    def resnet20(load):
        return refactored(load, "resnet20_cifar")


@system("MPBN", "models/resnet.py", "ResNet19")
def resnet19(load):
    return refactored(load, "resnet19_cifar")


@system("Joint A-SNN", "models/resnet.py")
def joint(load):
    network = load("models.resnet").multi_resnet18_kd(num_classes=10)
    network.T = 4
    return Called(network, lambda net, x: net(x, snn_only=True)[0]), (3, 32, 32), 4


@system("Real Spike", "sew_resnet.py")
def real_spike(load):
    return load("sew_resnet").sew_resnet18(num_classes=10, T=4, connect_f="ADD"), (3, 64, 64), 4


@system("MS-ResNet", "models/MS_ResNet.py")
def ms_resnet(load):
    return load("models.MS_ResNet").resnet18(), (3, 64, 64), 6


@system("DIET-SNN", "self_models/vgg_spiking.py")
def diet(load):
    make = load("self_models.vgg_spiking").VGG_SNN_STDB
    return make("VGG5", timesteps=5, leak=0.9, default_threshold=0.6), (3, 32, 32), 5


@system("Hybrid", "self_models/vgg_spiking.py", "without random encoding")
def hybrid(load):
    """Each layer reads what fired one step earlier: 10 steps of forward are 5 of the output."""
    network = load("self_models.vgg_spiking").VGG_SNN_STDB(
        "VGG5", timesteps=10, leak=0.9, default_threshold=0.6
    )
    network.input_layer = nn.Identity()
    return network, (3, 32, 32), 5


@system("PLIF", "codes/models.py")
def plif(load):
    return load("models", "codes").MNISTNet(4, 2.0, True, True, False, True), (1, 28, 28), 4


# ---- the table ---------------------------------------------------------------------------------


def loader(folder):
    """Return a function that imports a module of a clone; of Re-Loss, whose package does not import."""

    def load(name, inside=""):
        sys.path.insert(0, str(folder / inside))
        if folder.name.endswith("Re-Loss"):
            stand_in("models", __path__=[str(folder / "models")])
        return importlib.import_module(name)

    return load


def row(name, clones):
    from mpbn_deploy.base import DeployError
    from mpbn_deploy.fit import fit
    from mpbn_deploy.fold import fold
    from mpbn_deploy.frontend.stage import OWN, as_bytes, read
    from mpbn_deploy.hardware import load_profile
    from mpbn_deploy.quantize import quantize

    prepare()
    repository, file, build = SYSTEMS[name]
    torch.manual_seed(0)
    network, shape, timesteps = build(loader(clones / repository))
    cells = [name, f"{repository.replace('+', '/')}: {file}"]
    try:
        found = read(lively(network), as_bytes(shape), shape, timesteps, OWN)
    except DeployError as error:
        return [*cells, f"rejected: {error}", "", "", "", ""]
    try:
        profile = load_profile("loihi2")
        cores = fit(quantize(fold(found.trained), profile).network, profile).cores
    except DeployError as error:
        cores = f"none: {error}"
    proof, silent = found.proof, f"; silent: {', '.join(found.proof.silent)}" if found.proof.silent else ""
    numbers = [f"{proof.decisions:,}", "0", f"{proof.ties}", cores]
    return [*cells, f"read{silent}", *numbers]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", type=Path)
    parser.add_argument("names", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--one", action="store_true", help="print one row, without a header")
    options = parser.parse_args()
    if options.one:
        print("| " + " | ".join(map(str, row(options.names[0], options.clones))) + " |")
        return
    print("| system | file | outcome | spikes compared | different | ties | cores on Loihi 2 |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.names:
        command = [sys.executable, __file__, str(options.clones), name, "--one"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
        print(lines[-1] if lines else f"| {name} | | failed: {done.stderr[-300:]} | | | | |", flush=True)


if __name__ == "__main__":
    main()
