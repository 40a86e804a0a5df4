"""The words that error messages are made of."""

import pytest

from mpbn_deploy.base import layer_name


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
