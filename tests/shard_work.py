"""What tests let workers of a cluster and other processes do. They import this file: no torch here."""

import multiprocessing
import os
import signal
import time

from mpbn_deploy.base import SimulationError
from mpbn_deploy.execute import lava
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


def outputs_in_lava(network, inputs, results):
    """Put the outputs, and the start method of processes after the run."""
    results.put(lava.run(network, inputs).outputs)
    results.put(multiprocessing.get_start_method())
