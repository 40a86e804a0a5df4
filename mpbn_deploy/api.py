"""Every public name in one import.

    from mpbn_deploy.api import emulate, fit, fold, load_dataset, load_profile, quantize, trace, train

A package and a function cannot share a name, so functions such as `fit` live here and not in `mpbn_deploy`.
"""

from .base import (
    CheckpointError,
    DataError,
    DeployError,
    FoldError,
    FormatError,
    FrontendError,
    MissingPackageError,
    NetworkError,
    OptionError,
    ProfileError,
    QuantizeError,
    SimulationError,
)
from .checkpoint import example_model, load_model, save_model
from .data import DATASETS, DataSet, Samples, Split, load_dataset
from .execute.emulator import Emulator, emulate
from .execute.lava import Session as LavaSession, run as run_in_lava
from .execute.reference import simulate
from .export import ExportResult, export
from .fit import Activity, FitReport, fit, measure
from .fold import fold
from .formats.folder import open_folder
from .formats.netx import read_netx, write_netx
from .formats.nir import read_nir, write_nir
from .formats.options import ExportOptions
from .frontend import trace
from .hardware import HardwareProfile, load_profile, profile_names
from .hardware.place import Placement, place
from .ir import FoldedNetwork, InputFormat, IntNetwork, Trace, TrainedNetwork
from .nn import LIF, MPBN, ModelCard, RecurrentLIF, SpikePool, SpikingNetwork
from .nn.zoo import ARCHITECTURES
from .quantize import Quantized, quantize
from .run import run
from .schemas import json_schema
from .train import Training, accuracy, train
from .verify import VerifyReport, compare, verify

__all__ = [
    "ARCHITECTURES",
    "DATASETS",
    "LIF",
    "MPBN",
    "Activity",
    "CheckpointError",
    "DataError",
    "DataSet",
    "DeployError",
    "Emulator",
    "ExportOptions",
    "ExportResult",
    "FitReport",
    "FoldError",
    "FoldedNetwork",
    "FormatError",
    "FrontendError",
    "HardwareProfile",
    "InputFormat",
    "IntNetwork",
    "LavaSession",
    "MissingPackageError",
    "ModelCard",
    "NetworkError",
    "OptionError",
    "Placement",
    "ProfileError",
    "QuantizeError",
    "Quantized",
    "RecurrentLIF",
    "Samples",
    "SimulationError",
    "SpikePool",
    "SpikingNetwork",
    "Split",
    "Trace",
    "TrainedNetwork",
    "Training",
    "VerifyReport",
    "accuracy",
    "compare",
    "emulate",
    "example_model",
    "export",
    "fit",
    "fold",
    "json_schema",
    "load_dataset",
    "load_model",
    "load_profile",
    "measure",
    "open_folder",
    "place",
    "profile_names",
    "quantize",
    "read_netx",
    "read_nir",
    "run",
    "run_in_lava",
    "save_model",
    "simulate",
    "trace",
    "train",
    "verify",
    "write_netx",
    "write_nir",
]
