"""The first lines of docstrings, which tables show; also under ``python -OO``, which drops them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def summary(function: Callable[..., Any]) -> str:
    """Returns the first line of the docstring of a function, without markup.

    >>> summary(summary)
    'the first line of the docstring of a function, without markup.'
    """
    text = inspect.getdoc(function) or _docstring_in_source(function)
    return text.partition("\n")[0].removeprefix("Returns ").replace("``", "")


def _docstring_in_source(function: Callable[..., Any]) -> str:
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError:  # the source is not installed
        return ""
    (definition,) = ast.parse(source).body
    if not isinstance(definition, ast.FunctionDef | ast.ClassDef):
        return ""
    return ast.get_docstring(definition) or ""
