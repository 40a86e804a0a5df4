"""The paper's own code (github.com/yfguo91/MPBN), imported from a folder that the user names.

Nothing of it is part of this package; `paper_checkpoints.py`, `paper_step.py` and `training_speed.py`
compare ours with it.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from mpbn_deploy.checkpoint import PAPER_DATASETS, load_model

FUNCTIONS = {
    "paper:res20m": "resnet20_cifar_modified",
    "paper:res19": "resnet19_cifar",
    "paper:res20": "resnet20_cifar",
    "paper:VGG16": "vgg16_bn",
}


def paper_folder(text):
    """The type of --paper-code: a folder with the paper's models."""
    if not (Path(text) / "models" / "spike_model.py").is_file():
        raise argparse.ArgumentTypeError(
            f"{text}: no models/spike_model.py in it; give the folder of the paper's main_train.py, "
            "a clone of github.com/yfguo91/MPBN."
        )
    return Path(text)


def import_paper_code(folder):
    """Their `models` package; IPython, which it imports and does not use, need not be there."""
    stand_in = ModuleType("IPython")
    stand_in.embed = None
    sys.modules.setdefault("IPython", stand_in)
    sys.path.insert(0, str(folder))
    import models.spike_layer

    return models


def spiking_network(models, arch, classes, timesteps):
    """One of their networks as their main_train.py --spike makes it."""
    network = models.SpikeModel(getattr(models, FUNCTIONS[arch])(num_classes=classes), timesteps)
    network.set_spike_state(True)
    return network


def lively_network(models, arch, classes, mpbn, timesteps):
    """One of their networks whose neurons fire sometimes, with gains of either sign, in evaluation mode."""
    network = spiking_network(models, arch, classes, timesteps)
    for module in network.modules():
        if mpbn == "none" and isinstance(module, models.spike_layer.LIFAct):
            module.bn = nn.Identity()
        if getattr(module, "bias", None) is not None:
            nn.init.normal_(module.bias, 0.1, 0.2)
    norms = [m for m in network.modules() if isinstance(m, (nn.BatchNorm2d, nn.BatchNorm3d))]
    usual = norms[0].momentum
    for norm in norms:
        norm.momentum = None  # the average of all that is seen
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        norm.weight.data[torch.rand(norm.num_features) < 0.3] *= -1
    with torch.no_grad():
        network.train()(normalized(raw_pictures(4), classes))
        for norm in norms:
            norm.momentum = usual
            norm.running_mean += 0.1 * norm.running_var.sqrt() * torch.randn(norm.num_features)
            norm.running_var *= torch.empty(norm.num_features).uniform_(0.8, 1.25)
    return network.eval()


def as_ours(theirs, arch, timesteps):
    """Our network with their weights: their state dict, saved and read by load_model."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(theirs.state_dict(), Path(folder) / "theirs.pth")
        return load_model(Path(folder) / "theirs.pth", arch=arch, timesteps=timesteps)


def raw_pictures(count):
    return torch.randint(0, 256, (count, 3, 32, 32)).float()


def normalized(raw, classes):
    """As ToTensor and Normalize do it."""
    _, mean, deviation = PAPER_DATASETS[classes]
    mean, deviation = (
        torch.tensor(v, dtype=torch.float64).view(3, 1, 1).to(raw.dtype) for v in (mean, deviation)
    )
    return (raw / 255 - mean) / deviation
