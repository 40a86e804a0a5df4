"""The seam for new kinds: mypy points at each room that must know a kind of neuron, and at no other.

A copy of the package gets a kind of neuron, and an operation of a trained network, that nobody knows.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mpbn_deploy

PACKAGE = Path(mpbn_deploy.__file__).parent
KINDS = {"Lif", "SoftLif", "Readout", "Relay", "Delta", "SigmaDelta", "Sigma", "Xylo"}
KINDS |= {"FloatLif", "FloatSoftLif", "FloatReadout", "FloatXylo"}
UNIONS = {
    "ir/neurons.py": (
        ("Neuron = Lif | SoftLif | Readout | Relay | Delta | SigmaDelta | Sigma | Xylo", "Odd"),
        ("FloatNeuron = FloatLif | FloatSoftLif | FloatReadout | FloatXylo", "Odd"),
    ),
    "ir/trained.py": (("Gate | Add | OverTime", "Strange"),),
}


def add_kind(path, name, unions):
    """Define a record in front of the first union, and add it to all."""
    text = path.read_text(encoding="utf-8")
    for union in unions:
        assert text.count(f"{union}\n") == 1
        text = text.replace(f"{union}\n", f"{union} | {name}\n")
    assignment = re.search(rf"^\w+ = .*\b{name}$", text, re.MULTILINE)
    record = f'@record\nclass {name}:\n    """Unknown to all."""\n\n\n'
    path.write_text(text[: assignment.start()] + record + text[assignment.start() :], encoding="utf-8")


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """What mypy says of the copy, as (room, message)."""
    pytest.importorskip("mypy")
    scratch = tmp_path_factory.mktemp("seam")
    copy = scratch / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE.parent / "pyproject.toml", scratch)
    if (known := PACKAGE.parent / ".mypy_cache").exists():  # `make lint` has read torch: mypy need not again
        shutil.copytree(known, scratch / "cache")
    for file, unions in UNIONS.items():
        add_kind(copy / file, unions[0][1], [union for union, _ in unions])
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(scratch / "cache")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    return [(Path(line.split(":")[0]).parts[1], line.split(": error: ")[1]) for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_new_neuron_is_an_error_in_each_room_that_must_know_it_and_in_no_other(complaints):
    """Rooms that only ask (`fires`, `membrane`, ...), such as verify, fold or export, need not know it."""
    clean = sys.version_info >= (3, 11)  # the torch of Python 3.10 has too few types (see the Makefile)
    rooms = {room for room, message in complaints if "Odd" in message or (clean and "Strange" not in message)}
    assert rooms == {"ir", "hardware", "execute", "formats", "quantize", "fit", "report"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_new_operation_is_an_error_where_networks_are_traced_and_folded(complaints):
    rooms = {room for room, message in complaints if "Strange" in message}
    assert rooms == {"frontend", "fold"}


# ---- nothing that mypy could not see -----------------------------------------------------------


def trees():
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def names(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & KINDS


def test_nobody_asks_isinstance_of_a_kind_of_neuron():
    """It would pass over a kind that it does not know, in silence."""
    asked = [
        f"{file}:{node.lineno}"
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", None) in ("isinstance", "type")
        and any(map(names, node.args[1:]))
    ]
    assert not asked


def test_every_match_on_kinds_of_neurons_ends_with_assert_never():
    matches = [
        (f"{file}:{node.lineno}", node.cases[-1])
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Match) and any(names(case.pattern) for case in node.cases)
    ]
    open_ended = [where for where, last in matches if "assert_never" not in ast.unparse(last)]
    assert len(matches) > 10 and not open_ended
