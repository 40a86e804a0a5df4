"""The cards of the networks in examples/models: what each was trained with, reaches and takes on Loihi 2.

    python benchmarks/model_cards.py digits --model digits.pt    writes digits.pt, digits.json and README.md
    python benchmarks/model_cards.py cifar10-fast --calibrate --input-offset 128 --data-dir DIR
    python benchmarks/model_cards.py digits --details            only adds details to the card that is there

`--model` takes a network from `train`, and the time that training took from the log beside it; its weights
are stored in half precision, which leaves trained integers as they are. The stored network is exported,
evaluated on the whole test split of its data set, and compared with every executor on the first samples of
it. Exit code 1 if an export fails its verification or does not fit.

Details are those of the integers on the whole test split: the confusion matrix (a row per true class), the
accuracy of each class, after each time step, and with weights of fewer bits chosen in the same way, and the
bytes as a C program for a microcontroller.
"""

import argparse
import hashlib
import json
import platform
import sys
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np

from mpbn_deploy.api import DeployError, export, load_dataset, load_model, save_model
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.fit import JOULES, spread
from mpbn_deploy.fit.energy import Range
from mpbn_deploy.fold import fold, offset_inputs
from mpbn_deploy.formats.c import program_size
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import QuantizedBody, calibration_data, quantize

FOLDER = Path(__file__).parents[1] / "examples" / "models"
TARGET = "loihi2"
HEAD = """# Pretrained networks

Trained checkpoints to export at once, without training and without data:

    python -m mpbn_deploy.export examples/models/cifar10-fast.pt --target loihi2

Accuracies are those of the whole test split. Integers that are "calibrated" or take "inputs minus 128" are
exported with `--calibration NAME` and `--input-offset 128`; trained ones need neither. "CIFAR-10 (JPEG)" says
that the images, to train and to test with, went through JPEG. Each `.json` beside a network is its card:
settings, seed, time, accuracies, cores, energy, and how much each executor compared. This page and the cards
are written by `benchmarks/model_cards.py`.

"""
COLUMNS = ("network", "data", "steps", "parameters", "float", "integer", "bits", "cores", "energy per sample",
           "compared, different")  # fmt: skip
DETAILS = ("network", "after each time step", "weight bits", "hardest class", "C program, bytes")
BITS = (8, 6, 4, 3, 2)
DATA = {"cifar10": "CIFAR-10 (JPEG)", "fashion-mnist": "Fashion-MNIST"}  # the others as they are


def measured(path, options):
    """Export a network; return its card, and whether it is verified and fits."""
    network = load_model(path)
    with tempfile.TemporaryDirectory() as folder:
        result = export(
            path,
            TARGET,
            Path(folder) / "export",
            samples=options.samples,
            data_dir=options.data_dir,
            calibration=network.card.training["data"] if options.calibrate else None,
            input_offset=options.input_offset,
        )
    training, accuracy = network.card.training, result.verified.accuracy
    energy = result.fitted.energy.energy
    card = {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "date": str(date.today()),
        "processor": processor(),
        "architecture": network.card.architecture,
        "arguments": network.card.arguments,
        "timesteps": network.timesteps,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "training": training,
        "training_processor_seconds": processor_seconds(path, options.model),
        "test_samples": accuracy.samples,
        "float_accuracy": accuracy.float_network,
        "integer_accuracy": accuracy.integer_network,
        "calibrated": options.calibrate,
        "input_offset": options.input_offset or training.get("input_offset", 0),
        "weight_bits": training.get("weight_bits") or 8,
        "target": TARGET,
        "fits": result.fitted.fits,
        "cores": result.fitted.cores,
        "chips": result.fitted.chips,
        "picojoules_per_sample": [energy.value, energy.low, energy.high],
        "samples_compared": options.samples,
        "certificate": {
            comparison.execution: {
                "compared": comparison.spikes_compared + comparison.voltages_compared,
                "different": comparison.spikes_mismatched + comparison.voltages_mismatched,
            }
            for comparison in result.verified.comparisons
            if not comparison.not_run
        },
    }
    return card, result.good


def details(path, card, data_dir):
    """Return what the integers do on the test split, class by class, step by step, and in fewer bits."""
    model, dataset = load_model(path), load_dataset(card["training"]["data"], data_dir)
    inputs, labels, names = dataset.test.inputs[:], np.asarray(dataset.test.labels), dataset.class_names
    if isinstance(model.body, QuantizedBody):
        networks = {card["weight_bits"]: model.body.to_integers(model.timesteps)}
    else:
        folded = offset_inputs(fold(trace(model)), card["input_offset"])
        samples = None
        if card["calibrated"]:
            samples = folded.input_range.presented(calibration_data(folded, dataset).inputs)
        networks = {
            bits: quantize(folded, load_profile(TARGET), samples, weight_bits=bits).network for bits in BITS
        }
    network = networks[card["weight_bits"]]
    presented = network.input_range.presented(inputs)

    def predictions(integers):
        return emulate(integers, presented, keep_trace=False).predictions

    confusion = np.zeros((len(names), len(names)), int)
    np.add.at(confusion, (labels, predictions(network)), 1)
    steps = range(1, network.timesteps + 1)
    return {
        "confusion": [" ".join(map(str, row)) for row in confusion],
        "accuracy_of_classes": dict(zip(names, np.diag(confusion) / confusion.sum(1), strict=True)),
        "accuracy_after_steps": {
            str(step): float(np.mean(predictions(replace(network, timesteps=step)) == labels))
            for step in steps
        },
        "accuracy_by_bits": {
            str(bits): float(np.mean(predictions(each) == labels)) for bits, each in networks.items()
        },
        "c_bytes": program_size(network).flash,
    }


def details_row(name, card):
    found = card["details"]
    hardest = min(found["accuracy_of_classes"], key=found["accuracy_of_classes"].get)
    steps, bits = (
        ", ".join(f"{key}: {value:.2%}" for key, value in found[part].items())
        for part in ("accuracy_after_steps", "accuracy_by_bits")
    )
    least = f"{hardest}, {found['accuracy_of_classes'][hardest]:.1%}"
    return f"`{name}.pt`", steps, bits, least, f"{found['c_bytes']:,}"


def processor_seconds(path, model):
    """Return the time that training took: of a model's log or, without one, of the card that is there."""
    if model is None:
        card = path.with_suffix(".json")
        return json.loads(card.read_text())["training_processor_seconds"] if card.exists() else None
    lines = model.with_suffix(".log.jsonl").read_text().splitlines()
    return round(sum(json.loads(line)["processor_seconds"] for line in lines))


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def page(cards):
    """Return README.md of {name: card}."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(row(name, card) for name, card in sorted(cards.items()))]
    detailed = [details_row(name, card) for name, card in sorted(cards.items()) if "details" in card]
    tables = [rows, [DETAILS, ("---",) * len(DETAILS), *detailed]] if detailed else [rows]
    return HEAD + "\n".join("".join(f"| {' | '.join(cells)} |\n" for cells in each) for each in tables)


def row(name, card):
    value, low, high = card["picojoules_per_sample"]
    data = card["training"]["data"]
    compared, different = (
        sum(counts[key] for counts in card["certificate"].values()) for key in ("compared", "different")
    )
    return (
        f"`{name}.pt`",
        DATA.get(data, data),
        str(card["timesteps"]),
        f"{card['parameters']:,}",
        f"{card['float_accuracy']:.2%}",
        ", ".join([f"{card['integer_accuracy']:.2%}", *how(card)]),
        str(card["weight_bits"]),
        f"{card['cores']}",
        spread(Range(value=value, low=low, high=high), *JOULES),
        f"{compared:,}, {different}",
    )


def how(card):
    """Yield how the integers were chosen, if not by rounding the network as it is."""
    if card.get("calibrated"):
        yield "calibrated"
    if card.get("input_offset"):
        yield f"inputs minus {card['input_offset']}"


def read_cards():
    return {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="of a network in examples/models, without .pt")
    parser.add_argument("--data-dir", type=Path, help="folder of its data set")
    parser.add_argument("--model", type=Path, help="trained network to store under that name")
    parser.add_argument("--calibrate", action="store_true", help="choose the integers on training samples")
    parser.add_argument("--input-offset", type=int, default=0, help="subtracted from the inputs")
    parser.add_argument("--details", action="store_true", help="add them to the card that is there")
    parser.add_argument("--samples", type=int, default=16, help="on which executors are compared")
    options = parser.parse_args()
    path = FOLDER / f"{options.name}.pt"
    try:
        if options.model is not None:
            save_model(path, load_model(options.model), half=True)
        if options.details:
            card, good = json.loads(path.with_suffix(".json").read_text()), True
        else:
            card, good = measured(path, options)
        card["details"] = details(path, card, options.data_dir)
    except DeployError as error:
        parser.error(str(error))
    path.with_suffix(".json").write_text(json.dumps(card, indent=2) + "\n")
    (FOLDER / "README.md").write_text(page(read_cards()))
    print("\n".join(page({options.name: card}).splitlines()[-3:]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
