"""Train on arrays of your own, saved as .npz, and export with the same file.

python examples/own_data.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from mpbn_deploy.api import Training, export, load_dataset, save_model, train


def main(folder: Path) -> None:
    digits = load_digits()  # put your own inputs and labels here
    np.savez(folder / "mine.npz", inputs=digits.images, labels=digits.target)
    data = load_dataset(str(folder / "mine.npz"))
    network = train(data, "digits-mlp", mpbn="channel", timesteps=4, training=Training(epochs=4, seed=0))
    save_model(folder / "mine.pt", network)
    result = export(folder / "mine.pt", "loihi2", data=str(folder / "mine.npz"))
    right = result.verified.accuracy
    print(f"{right.integer_network:.1%} of {right.samples} test samples right; {result.verified.verdict}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
