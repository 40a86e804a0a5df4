"""Train the integers themselves: four-bit weights whose training, emulation and export fire the same spikes.

python examples/four_bits.py [MODEL] [FOLDER]
"""

import sys
from pathlib import Path

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.api import export

HERE = Path(__file__).parent


def main(model: Path, folder: Path) -> None:
    small = folder / "small.pt"
    trained = ["--data", "digits", "--quantize", "loihi2", "--weight-bits", "4", "--epochs", "1"]
    if code := console_script(["train", *trained, "--init", str(model), "--out", str(small)]):
        sys.exit(code)
    result = export(small, "loihi2")  # keeps the integers as they are
    accuracy = result.verified.accuracy
    print(f"four bits: {accuracy.integer_network:.2%} of {accuracy.samples} test samples")
    print(f"PyTorch, emulator and Lava agree in every integer: {result.verified.bit_exact}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0]) if given else HERE / "models" / "digits.pt", Path(given[1] if given[1:] else "."))
