"""Fail a build when an exported network no longer fits, is no longer exact, or has lost accuracy.

python examples/check_in_ci.py model.loihi2 --cores 8 --points 0.5
"""

import argparse
import json
import sys
from pathlib import Path


def problems(folder: Path, most_cores: int, most_points: float) -> list[str]:
    """Return what is wrong; the keys are described by mpbn_deploy.api.json_schema("fit") and ("verify")."""
    fit = json.loads((folder / "fit.json").read_text())
    verify = json.loads((folder / "verify.json").read_text())
    assert (fit["schema"], verify["schema"]) == ("mpbn_deploy.fit/1", "mpbn_deploy.verify/1")
    found = [each["message"] for each in fit["findings"] if each["severity"] == "error"]
    if fit["cores"] is not None and fit["cores"] > most_cores:
        found.append(f"{fit['cores']} cores; at most {most_cores}")
    if not verify["bit_exact"]:
        found.append(f"not bit-exact: {verify['first_mismatch']}")
    accuracy = verify["accuracy"]
    if accuracy is not None and 100 * (accuracy["float"] - accuracy["integer"]) > most_points:
        found.append(f"accuracy {accuracy['integer']:.2%}, in float {accuracy['float']:.2%}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cores", type=int, default=128, help="at most (default %(default)s)")
    parser.add_argument("--points", type=float, default=1.0, help="of accuracy that may be lost")
    given = parser.parse_args()
    wrong = problems(given.folder, given.cores, given.points)
    print(*wrong or ["fits, bit-exact, accuracy kept"], sep="\n")
    sys.exit(1 if wrong else 0)
