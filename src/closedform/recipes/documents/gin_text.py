"""Gin files as bindings: parameters, macros, references. Nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_DEPTH, MAX_NODES, TOO_LARGE, Budget
from closedform.recipes.documents.python_text import literal
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved

INCLUDES = "include"
"""The key of the list of included files."""

_REFERENCE = re.compile(r"@((?:[\w.]+/)*)([\w.]+)(\(\s*\))?")
_MACRO = re.compile(r"%([\w./]+)")
_BINDING = re.compile(r"\s*([\w./]+)\s*=\s*(.*)", re.DOTALL)
_BLOCK = re.compile(r"([\w./]+)\s*:\s*")


def parsed_gin(text: str, source: str) -> dict[str, Any]:
    r"""Returns the bindings of a gin file by ``scope/module.parameter``, macros by their names.

    ``@f()`` is a :class:`Call`, ``@f`` a :class:`Reference`, and ``%NAME`` the value that any line
    of the file binds to it. A macro without a value and ``%gin.REQUIRED`` are unresolved.
    The files of ``include`` lines are listed under ``include`` and not read.

    Raises:
        ConfigError: A line is not one of gin.

    Example:
        >>> parsed_gin("RATE = 0.1\nf.g:\n  lr = %RATE\n  h = @k()", "<text>")
        {'RATE': 0.1, 'f.g.lr': 0.1, 'f.g.h': ConfigCall(name='k', args=(), kwargs={}, scope='')}
    """
    result: dict[str, Any] = {}
    block = ""
    for number, line in _lines(text, source):
        place = f"{source}, line {number}"
        is_indented = line[0] in " \t"
        statement = line.strip()
        if statement.startswith(("import ", "from ")):
            continue
        if statement.startswith("include "):
            name = _value(statement.removeprefix("include "), place)
            result.setdefault(INCLUDES, []).append(name)
            continue
        head = _BLOCK.fullmatch(statement)
        if head is not None and not is_indented:
            block = head.group(1)
            continue
        binding = _BINDING.fullmatch(statement)
        if binding is None:
            raise ConfigError(f"this is not a line of gin: {statement[:60]!r}", where=place)
        prefix = f"{block}." if is_indented and block else ""
        if f"{prefix}{binding.group(1)}" == INCLUDES:
            raise ConfigError(f"{INCLUDES} is not a name that can be bound", where=place)
        result[f"{prefix}{binding.group(1)}"] = _value(binding.group(2), place)
        if len(result) > MAX_NODES:
            raise ConfigError(TOO_LARGE, where=source)
    budget = Budget(source)
    return {key: _without_macros(value, result, 0, budget) for key, value in result.items()}


def _lines(text: str, source: str) -> list[tuple[int, str]]:
    """The logical lines: comments removed, brackets closed."""
    lines: list[tuple[int, str]] = []
    pending, start, depth = "", 0, 0
    for number, raw in enumerate(text.replace("\\\n", " ").splitlines(), 1):
        line = _without_comment(raw)
        if not pending and not line.strip():
            continue
        start = start if pending else number
        pending = f"{pending} {line.strip()}" if pending else line.rstrip()
        # Brackets within strings do not count.
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", line)
        depth += sum(bare.count(c) for c in "([{") - sum(bare.count(c) for c in ")]}")
        if depth <= 0 and not pending.endswith("="):
            lines.append((start, pending))
            pending, depth = "", 0
    if pending:
        raise ConfigError("the file ends within a value", where=f"{source}, line {start}")
    return lines


def _without_comment(line: str) -> str:
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#":
            return line[:index]
    return line


class _Macro(Unresolved):
    """A macro, until the whole file is read: gin looks its value up after all bindings."""


def _value(text: str, place: str) -> Any:
    """The value of a binding: references and macros become names of Python for its parser."""
    values: dict[str, Any] = {}

    def reference(match: re.Match[str]) -> str:
        scope, name, parentheses = match.groups()
        scope = scope.rstrip("/")
        value = ConfigCall(name, scope=scope) if parentheses else Reference(name, scope)
        values[f"_r{len(values)}"] = value
        return f" _r{len(values) - 1} "

    def macro(match: re.Match[str]) -> str:
        values[f"_r{len(values)}"] = _Macro(match.group(1))
        return f" _r{len(values) - 1} "

    # Split at string literals: @ and % within them are characters.
    strings = re.split(r"('[^']*'|\"[^\"]*\")", text.strip())
    for index in range(0, len(strings), 2):
        strings[index] = _MACRO.sub(macro, _REFERENCE.sub(reference, strings[index]))
    try:
        tree = ast.parse("".join(strings).strip(), mode="eval")
        return literal(tree.body, values, place)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"this is not a value of gin: {text[:60]!r}", where=place) from error


def _without_macros(value: Any, bindings: Mapping[str, Any], depth: int, budget: Budget) -> Any:
    budget.spend(0)
    if isinstance(value, _Macro):
        is_bound = value.text in bindings and depth < MAX_DEPTH
        if not is_bound:
            return Unresolved(f"%{value.text}")
        return _without_macros(bindings[value.text], bindings, depth + 1, budget)
    if isinstance(value, list | tuple):
        return type(value)(_without_macros(item, bindings, depth + 1, budget) for item in value)
    if isinstance(value, dict):
        return {
            key: _without_macros(item, bindings, depth + 1, budget) for key, item in value.items()
        }
    return value
