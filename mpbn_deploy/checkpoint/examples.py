"""The trained networks that ship with this package (examples/models)."""

from __future__ import annotations

from pathlib import Path

from ..base import OptionError, did_you_mean


def example_models() -> dict[str, Path]:
    """Return the checkpoint of every trained network that ships with this package, by name."""
    return {path.stem: path for path in sorted(_folder().glob("*.pt"))}


def example_model(name: str) -> Path:
    """Return the checkpoint of one of them."""
    known = example_models()
    if name not in known:
        raise OptionError(f"no example model {name!r}. {did_you_mean(name, known)}")
    return known[name]


def _folder() -> Path:
    """Return the folder of models: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "example_models"
    return inside if inside.is_dir() else package.parent / "examples" / "models"
