"""Export a NIR file from another tool. NIR does not say how spikes reset: say it, or see what was assumed.

python examples/nir_file.py [FOLDER]
"""

import sys
from pathlib import Path

import nir
import numpy as np

from mpbn_deploy.api import export

STEP = 1e-4  # seconds per time step: NIR's neurons are differential equations


def write(path: Path) -> None:
    """Write what another tool would: 64 inputs, 30 leaky neurons, 10 outputs."""
    generator = np.random.default_rng(0)
    one = np.ones(30)
    hidden = nir.LIF(tau=4 * STEP * one, r=4 * one, v_leak=0 * one, v_threshold=20 * one, v_reset=0 * one)
    inner = nir.Affine(weight=generator.normal(size=(30, 64)), bias=np.zeros(30))
    outer = nir.Affine(weight=generator.normal(size=(10, 30)), bias=np.zeros(10))
    nir.write(path, nir.NIRGraph.from_list(inner, hidden, outer))


def main(folder: Path) -> None:
    write(folder / "theirs.nir")
    facts = {"timesteps": 8, "input_range": (0, 16), "data": "digits"}
    assumed = export(folder / "theirs.nir", "loihi2", **facts)
    print(*(f"assumed: {assumption.what}" for assumption in assumed.verified.assumptions), sep="\n")
    stated = export(folder / "theirs.nir", "loihi2", **facts, nir_reset="zero", dt=STEP)
    print(f"assumptions left: {len(stated.verified.assumptions)}; bit-exact: {stated.verified.bit_exact}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
