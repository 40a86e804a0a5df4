"""mpbn_deploy: from a spiking network trained in PyTorch to integers on a neuromorphic chip.

The rooms, in the order of processing (docs/architecture.md has the whole plan):

    api             every public name in one import

    base/           records, errors, files, progress, command line; nothing of the domain
    ir/             the heart, without torch: neurons, synapses, float and integer networks, bounds
    hardware/       profiles of chips (hw_profiles/), and which neurons sit on which core
    nn/  data/      what you train with: LIF with MPBN, architectures (nn/zoo/); data sets

    train/          COMMAND   data set + architecture -> model.pt
    checkpoint/     model.pt, safely read and written
    frontend/       torch module -> TrainedNetwork
    fold/           TrainedNetwork -> FoldedNetwork       MPBN and BN gone, thresholds differ (Eq. 10)
    quantize/       FoldedNetwork + profile -> IntNetwork, with its rounding errors
    execute/        network + inputs -> Trace: reference (the definition), emulator, Lava
    formats/        NIR, netx and the export folder, both ways
    verify/         COMMAND   executions compared bit by bit; float against integer
    fit/            COMMAND   IntNetwork + profile -> FitReport: cores, rules, energy, advice
    report/         COMMAND   all of it as one HTML page; several exports compared
    export/         COMMAND   the whole pipeline
    run/            COMMAND   run an exported network, also over a cluster
    doctor          COMMAND   what works on this machine

Importing this package imports nothing heavy.
"""

import faulthandler
import os
import sys
from importlib import import_module
from typing import Any

__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    """Return a public name of `api`, or a room; rooms with a function of their name can be called as it."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
    api = import_module(".api", __name__)
    if not hasattr(api, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(api, name)


def become_command() -> None:
    """Import no code from the current folder, here and in processes started from here; end at Ctrl-C.

    If a library ends the process by a signal, say so, and where: nothing else could.

    `python -m` lets a folder named like a library take its place. Only modules that --arch and --data name
    are looked for there (`base.import_function`), unless this package lies there itself.
    """
    if sys.stderr is not None:
        faulthandler.enable(all_threads=False)
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  no imports yet
    if sys.path[:1] != [home] and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109
        del sys.path[0]
    os.environ["PYTHONSAFEPATH"] = "1"  # Python 3.10 ignores it
    try:
        from .base import exit_when_interrupted

        exit_when_interrupted()
    except KeyboardInterrupt:  # in the first import, before anything could handle it
        os.write(2, b"interrupted\n")
        os._exit(130)


# `python -m mpbn_deploy.fit` imports this package first.
if sys.argv[:1] == ["-m"] and any(word.startswith(__name__) for word in sys.orig_argv):
    become_command()
