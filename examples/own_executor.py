"""Add an executor: a function from network and inputs to a Trace. `run`, `verify` and `doctor` then take it.

python examples/own_executor.py
"""

from pathlib import Path

import numpy as np

from mpbn_deploy.api import (
    Trace,
    fold,
    load_dataset,
    load_model,
    load_profile,
    quantize,
    simulate,
    trace,
    verify,
)
from mpbn_deploy.execute import EXECUTORS, ListedExecutor

HERE = Path(__file__).parent


def run(network, inputs, options):
    """Execute one sample at a time; yours would send them to a simulator or to a board."""
    samples = options.progress(range(len(inputs)))
    traces = [simulate(network, inputs[sample : sample + 1]) for sample in samples]
    names = traces[0].spikes
    return Trace(
        spikes={name: np.concatenate([trace.spikes[name] for trace in traces]) for name in names},
        voltages={},  # not recorded, so not compared
        outputs=np.concatenate([trace.outputs for trace in traces]),
    )


def obstacle(network):
    """Return what of a network this executor cannot run, or None."""
    return "a delay" if any(connection.delay for connection in network.connections) else None


def main() -> None:
    EXECUTORS["mine"] = ListedExecutor(name="my simulator", parts="samples", module="own_executor")
    digits, model = load_dataset("digits"), load_model(HERE / "models" / "digits.pt")
    network = quantize(fold(trace(model)), load_profile("loihi2")).network
    report = verify(network, digits.test.inputs[:2], budget=0)
    for each in report.comparisons:
        print(f"{each.execution}: {each.spikes_compared} spikes, {each.spikes_mismatched} different")


if __name__ == "__main__":
    main()
