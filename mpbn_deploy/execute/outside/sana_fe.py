"""WITNESS: SANA-FE, a simulator of Loihi, in a process of its own (see sana_fe_child).

It may be installed in an interpreter of its own, which the environment variable SANA_FE_PYTHON names. It has
no limits on weights, and takes negative thresholds. Its currents are not rounded, so they must vanish, or
stay, in each step; its soft reset subtracts the threshold.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import MissingPackageError
from ...ir import (
    DECAY_ONE,
    STATE_LIMIT,
    Delta,
    Lif,
    Neuron,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SoftLif,
    Xylo,
)
from .witnesses import Answer, Costs, ObstacleError, Piece, WitnessFailedError

COSTS = Costs(piece=0.6, synapse=3e-6, step=2e-3, arrival=2e-5)
INSTALL = "pip install sanafe"
PYTHON = "SANA_FE_PYTHON"
MOST_AXONS = 127 * 1024 - 1  # all cores of its Loihi but one; one axon is the bias
PATIENCE = 1800.0  # seconds for a piece
CHILD = Path(__file__).with_name("sana_fe_child.py")
VERSION = "from importlib.metadata import version; print(version('sanafe'))"


def version() -> str:
    return _version(_python())


@cache
def _version(python: str) -> str:
    try:
        found = subprocess.run([python, "-I", "-c", VERSION], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingPackageError(
            f"SANA-FE is not installed for {python}; {INSTALL}, or name one that has it in {PYTHON}."
        ) from error
    return found.stdout.strip()


def obstacle(neuron: Neuron) -> str | None:
    match neuron:
        case Xylo():
            return "a neuron of Xylo"
        case Relay():
            return "a relay, which sends graded messages"
        case Delta() | SigmaDelta() | Sigma():
            return "sigma-delta neurons, which send graded messages"
        case Lif() | SoftLif() | Readout() if neuron.decay_current not in (0, DECAY_ONE):
            return "a decaying current, which SANA-FE does not round"
        case Lif() | Readout():
            return None
        case SoftLif():
            if not np.array_equal(neuron.subtrahend, neuron.threshold):
                return "a soft reset that does not subtract the threshold"
            # It would fire in the step before the first spikes arrive.
            return "a soft reset with a negative threshold" if (neuron.threshold < 0).any() else None
        case _:
            assert_never(neuron)


def run(piece: Piece) -> Answer:
    version()
    if piece.axons > MOST_AXONS:
        raise ObstacleError(f"{piece.axons} axons, of which its Loihi has {MOST_AXONS}")
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "request.npz", Path(folder) / "answer.npz"
        np.savez(asked, **_request(piece))
        _call([str(asked), str(answered)])
        with np.load(answered, allow_pickle=False) as arrays:
            return Answer(spikes=arrays["spikes"], voltages=arrays["voltages"])


def _request(piece: Piece) -> dict[str, Any]:
    """Return what `sana_fe_child.answer` takes, in units of the state."""
    rule, shape = piece.rule, (len(piece.neurons),)
    threshold = 2 * STATE_LIMIT if rule.threshold is None else rule.threshold
    numbers = {
        "threshold": np.broadcast_to(threshold, shape),
        "bias": np.broadcast_to(rule.bias, shape),
        "leak": rule.decay_voltage.kept,
        "current_leak": rule.decay_current.kept,
        "soft": rule.subtrahend is not None,
        "spikes": piece.spikes,
        "axon": piece.axon,
        "neuron": piece.neuron,
        "weight": piece.weight,
    }
    return {name: np.asarray(values) for name, values in numbers.items()}


def _call(arguments: list[str]) -> None:
    try:
        subprocess.run(
            [_python(), "-I", str(CHILD), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise WitnessFailedError(f"SANA-FE: a piece took more than {PATIENCE:g} s.") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise WitnessFailedError(f"SANA-FE failed: {last}") from error


def _python() -> str:
    """Return the interpreter that has SANA-FE."""
    return os.environ.get(PYTHON) or sys.executable
