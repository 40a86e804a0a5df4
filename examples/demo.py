"""Train a small network on real digits, export it for Loihi 2, run it in Lava, and say what came out.

python examples/demo.py FOLDER
python examples/demo.py FOLDER --model digits-4bit    without training: a network of examples/models
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

from mpbn_deploy.checkpoint import example_model, example_models, save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.export import export
from mpbn_deploy.train import Training, train


def main(folder: Path, name: str | None, data_dir: Path | None) -> int:
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    if name is None:
        train_digits(folder / "model.pt")
    else:
        shutil.copy(example_model(name), folder / "model.pt")
    result = export(folder / "model.pt", "loihi2", data_dir=data_dir)
    print(result.summary.with_rows(time=f"{time.perf_counter() - started:.0f} s"))
    return 0 if result.good else 1


def train_digits(path: Path) -> None:
    digits = load_dataset("digits")
    model = train(digits, "digits-cnn", mpbn="channel", timesteps=4, training=Training(epochs=8, seed=0))
    save_model(path, model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("demo"))
    parser.add_argument("--model", choices=list(example_models()))
    parser.add_argument("--data-dir", type=Path, help="folder of the data that the model was trained on")
    options = parser.parse_args()
    sys.exit(main(options.folder, options.model, options.data_dir))
