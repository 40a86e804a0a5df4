"""An example of a new executor: the reference, one sample at a time, for networks without delays."""

import numpy as np

from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import Trace


def run(network, inputs, options):
    samples = options.progress(range(len(inputs)))
    traces = [simulate(network, inputs[sample : sample + 1]) for sample in samples]
    return Trace(
        spikes={name: np.concatenate([trace.spikes[name] for trace in traces]) for name in traces[0].spikes},
        voltages={},
        outputs=np.concatenate([trace.outputs for trace in traces]),
    )


def obstacle(network):
    late = [connection.target for connection in network.connections if connection.delay]
    return f"{late[0]}: a delay" if late else None
