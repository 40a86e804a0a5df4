"""Execute a notebook and store what its cells print and draw: python .ci/notebook.py examples/story.ipynb

Needs no Jupyter: code cells run in order in one namespace, `print` becomes text, and each matplotlib figure a
picture. tests/examples/test_notebook.py uses `executed`, too.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of this run."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _outputs(compile("".join(cell["source"]), f"cell {count}", "exec"), namespace)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(code: Any, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
        exec(code, namespace)
    outputs: list[dict[str, Any]] = []
    if shown.getvalue():
        lines = shown.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(
            picture, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None}
        )
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    plt.close("all")
    return outputs


if __name__ == "__main__":
    file = Path(sys.argv[1])
    found = executed(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
