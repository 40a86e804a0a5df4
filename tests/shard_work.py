"""What tests let the workers of a cluster do with a shard. A worker imports this file: no torch here."""

import os
import signal
import time

from mpbn_deploy.base import SimulationError
from mpbn_deploy.execute.reference import simulate


def outputs_slowly(started, network, inputs):
    """Leave a file named after the process, wait, and return the outputs with their sample numbers."""
    (started / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(0.2)
    return simulate(network, inputs).outputs, inputs[:, 0, 0, 0]


def summed(network, inputs):
    return int(inputs.sum())


def slowly(network, inputs):
    time.sleep(0.3)


def failing(network, inputs):
    if (inputs[:, 0, 0, 0] == 5).any():
        raise ZeroDivisionError("of sample 5")
    return len(inputs)


def too_late(network, inputs):
    raise TimeoutError("of its own")


def dying(network, inputs):
    os.kill(os.getpid(), signal.SIGKILL)


def rejecting(network, inputs):
    raise SimulationError("inputs of another kind.")
