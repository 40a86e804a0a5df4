"""The validation accuracy of a network whose norms are calibrated on whole or on augmented samples.

    python benchmarks/recalibration.py model.pt --data-dir DIR

The running statistics of a trained network are replaced by those of 2,048 training samples in inference mode,
as `train --recalibration on` does: once of whole samples, once of samples augmented as in its training.
The validation split that it was trained without judges.
"""

import argparse
from pathlib import Path

from mpbn_deploy.api import load_dataset, load_model
from mpbn_deploy.train import evaluate
from mpbn_deploy.train.recalibration import augmented_samples, drawn_samples, recalibrate
from mpbn_deploy.train.stage import hold_out


def accuracies(path, data_dir):
    """Yield what the norms are calibrated on, and the accuracy on the validation split."""
    trained = load_model(path)
    settings = trained.card.training
    dataset, validation = hold_out(load_dataset(settings["data"], data_dir), settings["validation"])
    yield "training, as they are", evaluate(trained, validation)[1]
    chosen, _ = drawn_samples(len(dataset.train), settings["seed"])
    used = settings["augmentation"] or dataset.augmentation
    for name, kind in (("whole samples", "none"), (f"augmented samples ({used})", used)):
        network = load_model(path)
        recalibrate(network, augmented_samples(dataset, chosen, kind, settings["seed"]))
        yield name, evaluate(network, validation)[1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a network of `train` that has a validation split")
    parser.add_argument("--data-dir", type=Path, help="folder of its data set")
    options = parser.parse_args()
    print("| statistics of | validation |\n|---|---|")
    for name, accuracy in accuracies(options.model, options.data_dir):
        print(f"| {name} | {accuracy:.1%} |", flush=True)


if __name__ == "__main__":
    main()
