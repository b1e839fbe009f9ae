"""Notebooks of docs/notebooks/: runs their cells, stores the outputs, and writes them as pages.

`make notebooks` runs them all. Cells are Python without magics, so that neither Jupyter nor a
kernel is needed: the value of the last expression of a cell is shown as a notebook shows it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.sections import DOCS

FOLDER = DOCS / "notebooks"

Cell = dict[str, Any]


def read(path: Path) -> list[Cell]:
    """Returns the cells of a notebook."""
    cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return cells


def source(cell: Cell) -> str:
    """Returns the text of a cell."""
    return "".join(cell["source"])


def code(cells: Sequence[Cell]) -> list[str]:
    """Returns the lines of code of a notebook, empty ones left out."""
    texts = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    return [line for text in texts for line in text.splitlines() if line.strip()]


def run(cells: Sequence[Cell], name: str = "notebook") -> list[list[dict[str, Any]]]:
    """Returns the outputs of each code cell, run in order in one namespace."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [
        _run_cell(source(cell), namespace, f"{name}[{index}]")
        for index, cell in enumerate(cells)
        if cell["cell_type"] == "code"
    ]


def _run_cell(text: str, namespace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed)})
    if value is not None and not text.rstrip().endswith(";"):
        data = {"text/plain": _lines(io.StringIO(repr(value)))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(io.StringIO(value._repr_html_()))
        result = {"output_type": "execute_result", "execution_count": 1, "metadata": {}}
        outputs.append({**result, "data": data})
    return outputs


def _lines(text: io.StringIO) -> list[str]:
    return text.getvalue().splitlines(keepends=True)


def as_markdown(cells: Sequence[Cell], name: str) -> str:
    """Returns a notebook as a page: texts, code, and the outputs below it."""
    link = f"https://github.com/closedform/closedform/blob/main/docs/notebooks/{name}.ipynb"
    parts = []
    for cell in cells:
        if cell["cell_type"] == "markdown":
            parts.append(source(cell))
            continue
        parts.append(f"```python\n{source(cell)}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    parts.append(f"[This page is a notebook]({link}), with its outputs as they were stored.")
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    html = "".join(output["data"].get("text/html", ()))
    if html:
        return f'<div class="output">{html}</div>'
    return f"```text\n{''.join(output['data']['text/plain']).rstrip()}\n```"


def store(path: Path) -> None:
    """Runs a notebook in an empty folder, and writes it with its outputs."""
    cells = read(path)
    with tempfile.TemporaryDirectory() as folder:
        home = os.getcwd()
        os.chdir(folder)
        try:
            outputs = iter(run(cells, path.name))
        finally:
            os.chdir(home)
    for cell in cells:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = next(outputs), None
            for output in cell["outputs"]:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = None
    path.write_text(text_of(cells), encoding="utf-8", newline="\n")


def text_of(cells: Sequence[Cell]) -> str:
    """Returns the file of a notebook."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    content = {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Runs all notebooks."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        store(path)
        sys.stdout.write(f"{path}: {len(code(read(path)))} lines of code\n")


if __name__ == "__main__":
    main()
