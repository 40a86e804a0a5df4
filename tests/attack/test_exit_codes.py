"""Whatever is wrong with the input or the machine: exit code 2 and one short message, in bounded time."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from json_schemas import check_json
from networks import int_chain

from mpbn_deploy.base import Outcome, ProfileError, commands, records, terminal
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.fit.__main__ import COMMAND as FIT
from mpbn_deploy.formats.folder import MANIFEST_FILE
from mpbn_deploy.formats.netx import write_netx
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.keys import LARGEST_NUMBER
from mpbn_deploy.train.__main__ import COMMAND as TRAIN
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY

TOY = Path(__file__).parents[1] / "toy_chip.toml"


@pytest.fixture
def refused(capfd):
    """Return a function that runs a command, which must end with exit code 2, and returns its message."""

    def run(command, *options):
        assert commands.main(command, [str(option) for option in options]) == 2
        out, err = capfd.readouterr()
        assert out == "" and err.count("error: ") == 1 and "Traceback" not in err and len(err) < 3100
        return err.partition("error: ")[2]

    return run


@pytest.fixture
def network(tmp_path):
    write_netx(int_chain(), tmp_path / "a.net")
    return tmp_path / "a.net"


# ---- any error of the machine -------------------------------------------------------------------


def odd(execute):
    """Return a command that executes a function."""
    return commands.Command(
        name="odd", summary="", details="", add_arguments=lambda parser: None, load=lambda: execute
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device."),
        (OSError(errno.EIO, os.strerror(errno.EIO), "disk/model.pt"), "disk/model.pt: Input/output error."),
        (
            PermissionError(errno.EACCES, "Permission denied", "x"),
            "x: Permission denied; check its permissions.",
        ),
        (OSError("a library's own words"), "a library's own words."),
        (RecursionError("deep"), "the input is nested too deeply"),
        (MemoryError("Unable to allocate 9 TiB"), "not enough memory (Unable to allocate 9 TiB)"),
    ],
)
def test_errors_of_the_machine_are_one_message(error, message, refused):
    def fail(options):
        raise error

    assert message in refused(odd(fail))


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("where", ["load", "expand", "show"])
def test_a_bug_of_ours_is_two_lines_and_a_log(where, as_json, capfd, tmp_path, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("by\n\x1b[31mnothing")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = odd(fail if where == "load" else lambda options: Outcome(data={"a": 1}, text="fine"))
    if where == "expand":
        command = replace(command, expand=fail)
    if where == "show":
        monkeypatch.setattr(records, "marked_json", fail if not as_json else broken_once(records.marked_json))
        monkeypatch.setattr(terminal, "show_text", fail)
    assert commands.main(command, ["--json"] if as_json else []) == 70
    out, err = capfd.readouterr()
    what, whose = err.splitlines()
    assert what == r"error: ZeroDivisionError: by\n\x1b[31mnothing" and "Traceback" not in out
    (log,) = tmp_path.iterdir()
    assert whose == f"this is a bug of mpbn_deploy, not of your input; please report it, with {log}"
    assert "Traceback" in log.read_text() and "ZeroDivisionError: by" in log.read_text()
    if as_json:
        data = json.loads(out)
        check_json("error", data)
        assert (data["error"], data["bug"]) == (what, whose)


def broken_once(function):
    """Return a function that fails when it is first called."""
    calls = []

    def called(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise ZeroDivisionError("by\n\x1b[31mnothing")
        return function(*arguments)

    return called


def test_a_bug_is_shown_where_no_file_can_be_written(capfd, monkeypatch):
    def fail(options):
        raise ZeroDivisionError("x")

    def full(**_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    assert commands.main(odd(fail), []) == 70
    err = capfd.readouterr().err
    assert "Traceback" in err and err.endswith("please report it, with the lines above\n")


def test_terminals_that_only_take_ascii():
    """A command prints its text, with micro as u."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    shown = "from mpbn_deploy.base import commands, Outcome; import sys; c = commands.Command(name='odd', "
    shown += "summary='', details='', add_arguments=lambda p: None, load=lambda: lambda o: Outcome(data={}, "
    shown += "text='3 \\u00b5J \\u2192 \\u6f22')); sys.exit(commands.main(c, []))"
    done = subprocess.run(
        [sys.executable, "-c", shown], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 uJ -> \\u6f22\n", "")


def test_long_messages_are_cut(capfd):
    assert commands._bad_input("x" * 10**6, as_json=True) == 2
    out, err = capfd.readouterr()
    assert len(err) < 3100 and len(json.loads(out)["error"]) == 3000
    assert commands._show(Outcome(data={}, text="fine"), as_json=False) == 0


# ---- names of files -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", [FIT, VERIFY])
def test_names_that_no_file_can_have(command, refused, tmp_path, network):
    assert "name too long" in refused(command, "a" * 5000 + ".net").lower()
    assert "no such file" in refused(command, network / "inside.net").lower()
    loop = tmp_path / "loop.net"
    loop.symlink_to(loop)
    refused(command, loop)


def test_a_checkpoint_with_a_name_that_no_file_can_have(refused):
    assert "name too long" in refused(EXPORT, "a" * 5000 + ".pt", "--target", "loihi2").lower()
    assert "hardware profile" in refused(EXPORT, "a.pt", "--target", "b" * 100_000)


@pytest.mark.parametrize("path", ["", "/"])
def test_paths_without_a_name_are_no_bug(path, refused):
    assert "a folder, not a file" in refused(EXPORT, path, "--target", "loihi2")
    assert "is a folder; give the name of a file" in refused(TRAIN, "--data", "digits", "--out", path)


# ---- profiles -----------------------------------------------------------------------------------


def profile(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def changed_toy(old, new):
    text = TOY.read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


def entry(name, value):
    return f'{name} = {{ value = {value}, source = "invented", basis = "published" }}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "cannot be read as TOML"),
        ("a" + ".a" * 5000 + " = 1", "mine.toml"),
        ("a = " + "9" * 5000, "cannot be read as TOML"),
        ("x = 1\n" * 3_000_000, "more than 16777216 bytes"),
        ("\udcff".encode("utf-8", "surrogatepass").decode("latin-1"), "mine.toml"),
        ('name = "a\x1bb"', "cannot be read as TOML"),
        (changed_toy('"toy"', '"a\\u202eb"'), "name: missing; a printable string is needed"),
        (changed_toy("[formats]\n", ""), "weight_bits: is in no table; a header such as [formats] is"),
        (changed_toy("[formats]\n", "[format]\n"), "format.weight_bits: unknown key"),
        ("\n".join(f"key{number} = 1" for number in range(5000)), "more"),
    ],
    ids=range(10),
)  # fmt: skip
def test_damaged_profiles_are_one_short_message(text, message, refused, tmp_path, network):
    found = refused(FIT, network, "--target", profile(tmp_path, text), "--samples", "0")
    assert message in found and "mine.toml" in found


@pytest.mark.parametrize(
    "number",
    ["10000000000000", "1000000000000", "33", "0x" + "f" * 50_000, str(-(10**12)), "0"],
    ids=["10**13", "10**12", "33", "hexadecimal", "negative", "zero"],
)
def test_absurd_numbers_of_bits_are_rejected(number, refused, tmp_path, network):
    """2**(10**12) would take an hour and all memory."""
    text = changed_toy(entry("bias_mantissa_bits", 13), entry("bias_mantissa_bits", number))
    message = refused(FIT, network, "--target", profile(tmp_path, text), "--samples", "0")
    assert "formats.bias_mantissa_bits: value" in message


def test_numbers_beyond_any_chip_are_rejected_and_the_largest_are_not(tmp_path):
    for number in (LARGEST_NUMBER, LARGEST_NUMBER + 1):
        path = profile(tmp_path, changed_toy(entry("neurons", 100), entry("neurons", number)))
        if number == LARGEST_NUMBER:
            assert load_profile(path).value("core.neurons") == number
        else:
            with pytest.raises(
                ProfileError, match=r"core\.neurons: value beyond 1099511627776, which no chip"
            ):
                load_profile(path)


# ---- manifests ----------------------------------------------------------------------------------


@pytest.fixture
def folder(export_folder, tmp_path):
    return Path(shutil.copytree(export_folder, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "not readable as JSON"),
        ("1" * 5000, "not readable as JSON"),
        ('{"format": ' + '{"a":' * 50_000 + "1" + "}" * 50_001, "manifest.json"),
        ("\x00", "not readable as JSON"),
    ],
    ids=range(4),
)
def test_damaged_manifests_are_one_short_message(content, message, refused, folder):
    (folder / MANIFEST_FILE).write_text(content)
    assert message in refused(FIT, folder)


def test_a_sparse_manifest_of_gigabytes_is_not_read(refused, folder):
    with (folder / MANIFEST_FILE).open("r+b") as file:
        file.truncate(3 * 2**30)
    assert "manifest.json: more than 16777216 bytes" in refused(FIT, folder)
