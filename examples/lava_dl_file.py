"""Ask which chips a lava-dl file (.net) fits; the file may come from lava-dl's slayer or from `export`.

python examples/lava_dl_file.py network.net
"""

import sys

from mpbn_deploy.api import fit, load_profile, read_netx


def main(path: str) -> None:
    network = read_netx(path)  # timesteps=..., input_shape=... if the file does not state them
    for target in ("loihi1", "loihi2"):
        report = fit(network, load_profile(target))
        print(f"{target}: fits {report.fits}, {report.cores} cores")
        for finding in report.found("error"):
            print(f"  {finding.message}")


if __name__ == "__main__":
    main(sys.argv[1])
