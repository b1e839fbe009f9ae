"""The code cells of a notebook as one Python text; nothing is run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping

from closedform.errors import ConfigError
from closedform.recipes.documents.json_text import parsed_json
from closedform.recipes.documents.limits import MAX_BYTES

MAX_NOTEBOOK = 20_000_000
"""The most bytes of a notebook; its outputs, often images, are skipped."""
_MAGIC = ("%", "!", "?")


def code_of_notebook(text: str, source: str) -> str:
    r"""Returns the code of a notebook, one cell below the other.

    Lines of IPython (``%magic``, ``!command``) and cells in other languages, such as ``%%bash``,
    are skipped.

    Raises:
        ConfigError: It is not a notebook, or its code is too large.

    Example:
        >>> cells = '{"cells": [{"cell_type": "code", "source": ["!pip list\\n", "lr = 0.1"]}]}'
        >>> code_of_notebook(cells, "run.ipynb").strip()
        'lr = 0.1'
    """
    content = parsed_json(text, source)
    cells = content.get("cells") if isinstance(content, Mapping) else None
    if not isinstance(cells, list):
        raise ConfigError("a notebook must have a list of cells", where=source)
    parts = []
    for cell in cells:
        if not isinstance(cell, Mapping) or cell.get("cell_type") != "code":
            continue
        code = cell.get("source", "")
        code = "".join(map(str, code)) if isinstance(code, list) else str(code)
        if code.lstrip().startswith("%%"):
            continue
        lines = ["" if line.lstrip().startswith(_MAGIC) else line for line in code.splitlines()]
        if _is_python("\n".join(lines)):
            parts.append("\n".join(lines))
    result = "\n\n".join(parts)
    if len(result) > MAX_BYTES:
        raise ConfigError(
            f"the code of a notebook must have at most {MAX_BYTES} bytes", where=source
        )
    return result


def _is_python(code: str) -> bool:
    if len(code) > MAX_BYTES:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
