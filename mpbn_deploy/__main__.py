"""python -m mpbn_deploy <command>: the same as mpbn-deploy <command>"""

import sys

from .cli import console_script

if __name__ == "__main__":
    sys.exit(console_script())
