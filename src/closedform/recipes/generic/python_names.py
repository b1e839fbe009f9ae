"""Values that a Python file states elsewhere than in assignments: class bodies and argparse."""

from __future__ import annotations

import ast
from typing import Any

from closedform.recipes.document import Document
from closedform.recipes.documents.python_text import literal
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved

ARGPARSE = "add_argument"
"""The section of the defaults of a command line."""
_MOST = 2000


def stated_elsewhere(document: Document) -> dict[str, Any]:
    """Returns the attributes of classes by the class, and the defaults of command-line options.

    Only literals, and what is computed from them, are values; nothing is run.

    Raises:
        ConfigError: A value is too large or nested too deeply.
    """
    if document.python is None:
        return {}
    result: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for node in list(ast.walk(document.python.tree))[: 10 * _MOST]:
        if isinstance(node, ast.ClassDef) and node.name not in document.content:
            body = _attributes(node, document)
            if body:
                result[node.name] = body
        elif isinstance(node, ast.Call) and _is_option(node):
            name, value = _option(node, document)
            if value is not None:
                # Sub-commands may have options of one name with different defaults.
                is_new = options.get(name, value) == value
                options[name] = value if is_new else Unresolved("two defaults")
    if options and ARGPARSE not in document.content:
        result[ARGPARSE] = options
    return result


def _attributes(node: ast.ClassDef, document: Document) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name):
            literal_value = literal(value, {**document.content, **result}, document.source)
            if not isinstance(literal_value, Reference | ConfigCall):
                result[target.id] = literal_value
    return result


def _is_option(node: ast.Call) -> bool:
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == ARGPARSE
    return is_method and any(
        isinstance(word, ast.Constant) and str(word.value).startswith("--") for word in node.args
    )


def _option(node: ast.Call, document: Document) -> tuple[str, Any]:
    words = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
    name = next(word for word in words if word.startswith("--")).lstrip("-")
    for keyword in node.keywords:
        if keyword.arg == "default":
            value = literal(keyword.value, document.content, document.source)
            return name, None if isinstance(value, Reference | ConfigCall) else value
    return name, None
