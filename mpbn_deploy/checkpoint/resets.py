"""How neurons reset, as their network is built and as its file says.

Weights trained with one reset do not suit another. snnTorch stores it as a number, our checkpoints as an
argument of the network; a state_dict of other neurons does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..base import CheckpointError, announce
from ..nn import LIF, RESETS

SNNTORCH = "reset_mechanism"  # its attribute; with _val, its number in a state_dict


def check_resets(
    path: str | Path, body: nn.Module, state: Mapping[str, Tensor], arguments: Mapping[str, Any]
) -> None:
    """Raise CheckpointError if neurons are built with another reset than the file says.

    The names in `state` are those of the body.
    """
    problems = []
    for name, module in body.named_modules():
        stored = state.get(f"{name}.{SNNTORCH}_val")
        if stored is not None and hasattr(module, SNNTORCH):
            numbers = {number: reset for reset, number in module.reset_dict.items()}
            built, trained = getattr(module, SNNTORCH), numbers.get(int(stored), int(stored))
            problems += [f"{name}: {trained} in the file, {built} as built"] * (built != trained)
    ours = {name: module.reset for name, module in body.named_modules() if isinstance(module, LIF)}
    stated = arguments.get("reset")
    if stated in RESETS and ours and stated not in ours.values():
        problems += [f"{name}: {stated} in the file, {reset} as built" for name, reset in ours.items()]
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise CheckpointError(
            f"{path}: its neurons were trained with another reset than the network is built with:{listed}\n"
            "Name a function with --arch that builds them with the reset of the file."
        )


def announce_resets(path: str | Path, body: nn.Module, arch: str) -> None:
    """Announce how neurons reset whose state_dict does not say it: ours and SpikingJelly's."""
    ours = {module.reset for module in body.modules() if isinstance(module, LIF)}
    theirs = {module.v_reset for module in body.modules() if hasattr(module, "v_reset")}
    found = ours | {"subtract" if value is None else "zero" for value in theirs}
    if found:
        words = {"zero": "reset to zero", "subtract": "subtract the threshold"}
        announce(
            f"note: {path}: a state_dict does not say how neurons reset; as {arch} builds them, spikes "
            f"{' or '.join(words[reset] for reset in sorted(found))}"
        )
