"""The words that error messages are made of."""

import argparse
import os
from pathlib import Path

import pytest

from mpbn_deploy.base import (
    FormatError,
    OptionError,
    check_writable,
    class_of,
    layer_name,
    read_text,
    whole_number,
)
from mpbn_deploy.schemas import json_schema


@pytest.mark.parametrize(
    ("value", "shown"), [(1, "an int"), ("", "a str"), (OSError(), "an OSError"), (None, "None")]
)
def test_classes_have_their_article(value, shown):
    assert class_of(value) == shown


@pytest.mark.parametrize(
    ("path", "kind", "shown"),
    [
        ("conv1", "", "conv1"),
        ("conv1", "Conv2d", "conv1 (Conv2d)"),
        ("2", "", 'layer "2"'),
        ("2.conv", "Conv2d", 'layer "2.conv" (Conv2d)'),
    ],
)
def test_a_layer_with_only_a_number_is_called_a_layer(path, kind, shown):
    assert layer_name(path, kind) == shown


def test_numbers_and_files_that_options_cannot_take(tmp_path):
    with pytest.raises(argparse.ArgumentTypeError, match="9 is too large; at most 8"):
        whole_number(1, 8)("9")
    with pytest.raises(OptionError, match="null: is a device or a pipe; give the name of a file"):
        check_writable(Path(os.devnull))
    (tmp_path / "letter.toml").write_bytes(b"\xff")
    with pytest.raises(FormatError, match=r"letter\.toml: not a file of UTF-8 text"):
        read_text(tmp_path / "letter.toml", FormatError)
    with pytest.raises(OptionError, match=r"no JSON schema 'fitt'\. Did you mean 'fit'\?"):
        json_schema("fitt")
