"""Completion in bash: what pressing the tabulator offers, asked of bash itself."""

import shutil
import subprocess
from typing import get_args

import pytest

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.formats.options import Thresholds
from mpbn_deploy.hardware import profile_names

OFFER = """
offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mpbn_deploy; echo "${COMPREPLY[@]}"; }
offer mpbn-deploy ex
offer mpbn-deploy export model.pt --ta
offer mpbn-deploy export --target loihi
offer mpbn-deploy export --thresholds ""
offer mpbn-deploy run mod
"""


def printed(capsys, shell):
    with pytest.raises(SystemExit) as ended:
        console_script(["--completion", shell])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_offers_commands_options_and_values(capsys):
    script = printed(capsys, "bash") + OFFER
    done = subprocess.run(["bash", "-u"], input=script, capture_output=True, text=True, check=True)
    command, option, chips, choices, files = done.stdout.splitlines()
    assert (command, option) == ("export", "--target")
    assert chips.split() == [name for name in profile_names() if name.startswith("loihi")]
    assert choices.split() == list(get_args(Thresholds))
    assert files == ""  # bash then offers names of files


def test_zsh_reads_the_completion_of_bash(capsys):
    first, _, rest = printed(capsys, "zsh").partition("\n")
    assert first == "autoload -U +X bashcompinit && bashcompinit"
    assert rest == printed(capsys, "bash")
