"""Our neighbors on the same work: ways of a small network to the integers of Loihi 2, and who runs them.

    python benchmarks/neighbors.py                                  prints the tables of docs/results
    SANA_FE_PYTHON=other/bin/python python benchmarks/neighbors.py  with SANA-FE in an environment of its own

The network has 64, 64 and 10 neurons without biases, which all of them can express, and sees scikit-learn's
digits as pixels that are bright or not, for 8 steps. It is trained once in float, with SpikingJelly; ours and
SpikingJelly's exchange (by slayer of lava-dl) round the same weights. Slayer also trains it itself. Times are
processor seconds of all processes.
"""

import argparse
import os
import tempfile
import warnings
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import torch
from spikingjelly.activation_based import functional, layer, neuron, surrogate
from torch import nn

from mpbn_deploy.api import (
    InputFormat,
    SpikingNetwork,
    fit,
    fold,
    load_dataset,
    load_profile,
    quantize,
    simulate,
    trace,
)
from mpbn_deploy.base import DeployError
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions
from mpbn_deploy.execute.lava import load_netx
from mpbn_deploy.execute.outside import WITNESSES
from mpbn_deploy.formats.netx import read_netx, write_netx
from mpbn_deploy.hardware.place import place
from mpbn_deploy.verify import compare
from mpbn_deploy.verify.lava_models import compare_with_witness

STEPS, SIZES, EPOCHS, BATCH, COMPARED = 8, (64, 64, 10), 12, 32, 64
LEAK = 0.5  # of the membrane, of which as much is lost in a step


def pictures(split):
    """Return [samples, 64] pixels that are bright or not, and labels."""
    return torch.tensor(split.inputs.reshape(-1, 64) >= 8).float(), torch.tensor(split.labels)


def fitted(parameters, loss, images, labels):
    """Train with Adam; `loss` is that of a batch."""
    optimizer = torch.optim.Adam(parameters, lr=5e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            loss(images[batch], labels[batch]).backward()
            optimizer.step()


def rates(spikes):
    """Return the loss of spike counts [samples, classes], which are far from logits."""
    return 10 * (spikes / STEPS - 0.5)


# ---- the three ways -------------------------------------------------------------------------------


def float_network(images, labels):
    """Train the network in float with SpikingJelly."""
    parts = []
    for before, after in pairwise(SIZES):
        node = neuron.LIFNode(
            tau=1 / LEAK, decay_input=False, v_reset=0.0, surrogate_function=surrogate.ATan()
        )
        parts += [layer.Linear(before, after, bias=False), node]
    network = nn.Sequential(*parts)

    def loss(batch, wanted):
        functional.reset_net(network)
        return nn.functional.cross_entropy(rates(sum(network(batch) for _ in range(STEPS))), wanted)

    fitted(network.parameters(), loss, images, labels)
    functional.reset_net(network)
    return network


def slayer_blocks(slayer):
    rule = {"threshold": 1.0, "current_decay": 1.0, "voltage_decay": LEAK, "requires_grad": False}
    dense = slayer.block.cuba.Dense
    return nn.ModuleList(dense(dict(rule), a, b, delay_shift=False) for a, b in pairwise(SIZES))


def slayer_spikes(blocks, images):
    """Return the spikes of each layer as slayer computes them, [samples, neurons, timesteps]."""
    found, spikes = [], images[:, :, None].repeat(1, 1, STEPS)
    for block in blocks:
        for state in ("current_state", "voltage_state"):  # which blocks of the exchange keep
            setattr(block.neuron, state, torch.zeros(1))
        spikes = block(spikes)
        found.append(spikes)
    return found


def trained_by_slayer(slayer, images, labels):
    blocks = slayer_blocks(slayer)

    def loss(batch, wanted):
        return nn.functional.cross_entropy(rates(slayer_spikes(blocks, batch)[-1].sum(-1)), wanted)

    fitted(blocks.parameters(), loss, images, labels)
    return blocks


def exchanged(network):
    """Convert the float network by SpikingJelly's exchange with Lava."""
    from spikingjelly.activation_based import lava_exchange

    pairs = zip(network[0::2], network[1::2], strict=True)
    for node in network[1::2]:
        node.lava_s_cale = 1 << 6  # as its documentation has it
    return nn.ModuleList(lava_exchange.to_lava_block_dense(linear, node) for linear, node in pairs)


def written_by_slayer(blocks, path):
    with h5py.File(path, "w") as file:
        for index, block in enumerate(blocks):
            block.export_hdf5(file.create_group(f"layer/{index}"))
    return read_netx(path, timesteps=STEPS)


# ---- the tables -----------------------------------------------------------------------------------


def print_head(columns):
    print(f"\n| {columns} |\n|{'---|' * len(columns.split('|'))}")


def folded_of(network):
    spikes = InputFormat(shape=SIZES[:1], minimum=0, maximum=1, mean=[0.0], deviation=[1.0])
    return fold(trace(SpikingNetwork(network, timesteps=STEPS, input_format=spikes)))


def accuracy_rows(network, digits, folder):
    """Yield (way, accuracy, predictions as in float, spikes as in float, own against file) of one network."""
    from lava.lib.dl import slayer

    images, labels = pictures(digits.train)
    tested, wanted = pictures(digits.test)
    folded, inputs = folded_of(network), tested.numpy().astype(int)
    expected = simulate(folded, inputs)
    yield "float network (SpikingJelly)", _accuracy(expected, wanted), None, None, None
    for bits, calibration in ((8, None), (4, images[:256].numpy()), (3, images[:256].numpy())):
        made = quantize(folded, load_profile("loihi2"), weight_bits=bits, calibration=calibration).network
        way = f"ours, {bits} bits{', calibrated' if calibration is not None else ''}"
        yield (way, *_against(expected, simulate(made, inputs), wanted), None)
    ways = {
        "SpikingJelly's exchange by slayer, 8 bits": exchanged(network),
        "slayer's own training, 8 bits": trained_by_slayer(slayer, images, labels),
    }
    for way, blocks in ways.items():
        with torch.no_grad():
            theirs = [spikes.numpy().transpose(0, 2, 1) > 0 for spikes in slayer_spikes(blocks, tested)]
        found = simulate(written_by_slayer(blocks, folder / "theirs.net"), inputs)
        wrong = sum(int((a != b).sum()) for a, b in zip(theirs, layers(found), strict=True))
        same = _against(expected, found, wanted)
        yield (way, *(same if "exchange" in way else (same[0], None, None)), wrong)


def layers(result):
    """Return the spikes of the two layers, without the sum of spikes that ours adds as an output."""
    return list(result.spikes.values())[: len(SIZES) - 1]


def _against(expected, found, wanted):
    equal = [a == b for a, b in zip(layers(expected), layers(found), strict=True)]
    share = sum(int(e.sum()) for e in equal) / sum(e.size for e in equal)
    return _accuracy(found, wanted), np.mean(_votes(found) == _votes(expected)), share


def _votes(result):
    """Return the class of each sample: that of the most spikes, the first of several."""
    return layers(result)[-1].sum(1).argmax(1)


def _accuracy(result, wanted):
    return np.mean(_votes(result) == wanted.numpy())


def print_ways(networks, digits, folder):
    runs = [list(accuracy_rows(network, digits, folder)) for network in networks]
    print_head(
        "way to integers | accuracy | predictions as in float | spikes as in float | slayer against the file"
    )
    for rows in zip(*runs, strict=True):
        way, *columns = (list(column) for column in zip(*rows, strict=True))
        accuracy, votes, spikes, wrong = columns
        shown = [f"{100 * np.mean(accuracy):.2f} ± {100 * np.std(accuracy):.2f} %"]
        shown += [" " if v[0] is None else f"{100 * np.mean(v):.2f} %" for v in (votes, spikes)]
        shown.append("" if wrong[0] is None else f"{sum(wrong):,} different")
        print(f"| {way[0]} | {' | '.join(shown)} |")


def print_executions(network, inputs, folder):
    """Who runs the same integers, with the same spikes, in which time."""
    write_netx(network, folder / "network.net")
    reference = simulate(network, inputs)
    options = ExecutionOptions(netx=folder / "network.net")
    print_head(
        "execution | by | spikes compared | different | voltages compared | different | processor seconds"
    )
    for name, executor in EXECUTORS.items():
        if name == "netx" or executor.obstacle(network) is None:
            seconds, found = _timed(lambda executor=executor: executor.run(network, inputs, options))
            _print_comparison(
                executor.name, executor.author, compare(executor.name, reference, found), seconds
            )
    for name in ("nengo-loihi", "sana-fe"):
        witness = WITNESSES[name]
        try:
            seconds, found = _timed(
                lambda witness=witness: compare_with_witness(
                    witness, network, inputs, reference, None, shown=False
                )
            )
        except DeployError as error:
            print(f"| {name} | {witness.author} | not run: {error} |  |  |  |  |")
            continue
        _print_comparison(f"{name} {witness.version()}", witness.author, found, seconds)


def _timed(call):
    def spent():
        return sum(os.times()[:4])

    before = spent()
    found = call()
    return spent() - before, found


def _print_comparison(name, author, found, seconds):
    counts = (
        found.spikes_compared,
        found.spikes_mismatched,
        found.voltages_compared,
        found.voltages_mismatched,
    )
    print(f"| {name} | {author} | {' | '.join(f'{c:,}' for c in counts)} | {seconds:.2f} |")


def print_cores(network):
    """What the network takes on Loihi 1, as nengo-loihi counts it, and by ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of versions of nengo that it does not know
        from nengo_loihi.block import Axon, LoihiBlock, Synapse
    profile = load_profile("loihi1")
    print_head("layer | counted by | neurons | input axons | output axons | words of synapses")
    blocks = {p.name: LoihiBlock(p.size) for p in network.layers}
    for connection in network.connections:
        weight = connection.synapse.weight
        synapse = Synapse(weight.shape[1])
        synapse.set_weights(weight.T.astype(float))
        blocks[connection.target].add_synapse(synapse)
        if connection.source in blocks:
            axon = Axon(weight.shape[1])
            axon.target = synapse
            blocks[connection.source].add_axon(axon)
    for part in place(network, profile).layers:
        (_, use), block = next(iter(part.uses())), blocks[part.name]
        names = ("neurons", "input_axons", "axon_map_entries", "synapse_words")
        words = sum(synapse.bits() for synapse in block.synapses) // 64
        axons = sum(synapse.n_axons for synapse in block.synapses)
        sent = sum(axon.axon_slots() for axon in block.axons)
        theirs = (block.n_neurons, axons, sent, words)
        print(f"| {part.name} | nengo-loihi {version('nengo-loihi')} | {' | '.join(map(str, theirs))} |")
        print(f"| {part.name} | ours | {' | '.join(str(use[name]) for name in names)} |")
    print(f"\nLoihi 2, ours: {fit(network, load_profile('loihi2')).cores} cores")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    load_netx()
    digits = load_dataset("digits")
    networks = []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        networks.append(float_network(*pictures(digits.train)))
    integers = quantize(folded_of(networks[0]), load_profile("loihi2")).network
    tested, _ = pictures(digits.test)
    with tempfile.TemporaryDirectory() as name:
        print_ways(networks, digits, Path(name))
        print_executions(integers, tested[:COMPARED].numpy().astype(int), Path(name))
    print_cores(integers)


if __name__ == "__main__":
    main()
