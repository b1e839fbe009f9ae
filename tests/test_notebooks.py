"""The notebooks of the site: run, and short; their stored outputs are the ones of today."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tools import run_notebooks as notebooks

PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))
MOST_LINES = 15


def texts(output: dict[str, Any]) -> str:
    """The text of an output; a plot may differ by a digit of a pixel."""
    if output["output_type"] == "stream":
        return "".join(output["text"])
    html = re.sub(r"<svg.*?</svg>", "", "".join(output["data"].get("text/html", ())))
    return "".join(output["data"]["text/plain"]) + html


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_its_outputs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = notebooks.read(path)
    stored = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    computed = notebooks.run(cells, path.name)
    assert [[texts(output) for output in outputs] for outputs in computed] == [
        [texts(output) for output in outputs] for outputs in stored
    ], f"{path.name}: run `make notebooks`"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_has_at_most_fifteen_lines_of_code(path: Path) -> None:
    lines = notebooks.code(notebooks.read(path))
    assert 0 < len(lines) <= MOST_LINES
    assert ast.parse("\n".join(lines)).body


def test_there_are_five_in_the_format_of_jupyter() -> None:
    assert len(PATHS) == 5
    for path in PATHS:
        text = path.read_text(encoding="utf-8")
        assert text == notebooks.text_of(notebooks.read(path))
        for cell in notebooks.read(path):
            assert {"cell_type", "id", "metadata", "source"} <= set(cell)


def test_a_page_has_texts_code_and_outputs() -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# A"]},
        {"cell_type": "code", "source": ["print(1)\n", "x"], "outputs": []},
    ]
    cells[1]["outputs"] = notebooks.run([{**cells[1], "source": ["print(1)\n", "'<b>'"]}])[0]
    page = notebooks.as_markdown(cells, "a")
    assert page.startswith(
        "# A\n\n```python\nprint(1)\nx\n```\n\n```text\n1\n```\n\n```text\n'<b>'\n```"
    )


def test_a_value_after_a_semicolon_is_not_shown() -> None:
    cell = {"cell_type": "code", "source": ["1;"]}
    assert notebooks.run([cell]) == [[]]
