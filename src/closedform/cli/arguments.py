"""Arguments of schedules and rules from the command line: ``--total-iters 100`` and the like.

The literals, which are read without eval::

    literal ::= true | false | none | integer | decimal | json | list | text
    json    ::= what json.loads reads that begins with "[" or "{"
    list    ::= number "," number ("," number)* — such as 0.9,0.95
    text    ::= anything else
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import typer

from closedform.errors import ArgumentError

_INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
_DECIMAL = re.compile(r"[+-]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NAMED = {"true": True, "false": False, "none": None, "null": None}


def parse_literal(text: str) -> Any:
    """Returns the number, boolean, None, list, dict or text that ``text`` means.

    Raises:
        ArgumentError: It begins like JSON and is not.

    Example:
        >>> [parse_literal(text) for text in ("3e-4", "100_000", "0.9,0.95", "True", "cos")]
        [0.0003, 100000, [0.9, 0.95], True, 'cos']
    """
    word = text.strip()
    if word.lower() in _NAMED:
        return _NAMED[word.lower()]
    if word[:1] in ("[", "{"):
        return _json(word)
    number = _number(word)
    if number is not None:
        return number
    parts = [_number(part.strip()) for part in word.split(",")]
    if len(parts) > 1 and all(part is not None for part in parts):
        return parts
    return word


def free_arguments(words: Sequence[str]) -> dict[str, Any]:
    """Returns keyword arguments from ``--name value``, ``--name=value`` and ``--flag``.

    A name in kebab-case becomes snake_case; ``--no-flag`` is False.

    Raises:
        typer.BadParameter: A value stands without a name, or a name occurs twice.

    Example:
        >>> free_arguments(["--total-iters", "100", "--min=-1", "--cycle"])
        {'total_iters': 100, 'min': -1, 'cycle': True}
    """
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise typer.BadParameter(f"expected --name value, got {word!r}")
        key, equals, text = word[2:].partition("=")
        if equals:
            value = parse_literal(text)
        elif rest and not rest[0].startswith("--"):
            value = parse_literal(rest.pop(0))
        else:
            value = not key.startswith("no-")
            key = key.removeprefix("no-")
        name = key.replace("-", "_")
        if name in found:
            raise typer.BadParameter(f"--{key} is given twice")
        found[name] = value
    return found


def parse_steps(text: str) -> range:
    """Returns the steps that ``stop``, ``start:stop`` or ``start:stop:stride`` names.

    Raises:
        typer.BadParameter: Not integers >= 0 in this form, or no step lies in the range.
    """
    parts = text.replace("_", "").split(":")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"steps must be start:stop:stride in integers, got {text!r}")
    numbers = [int(part) for part in parts]
    steps = range(*numbers) if len(numbers) < 3 or numbers[2] > 0 else range(0)
    if not steps:
        raise typer.BadParameter(f"no step lies in {text!r}")
    return steps


def parse_shapes(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Returns shapes by name from words such as ``w=64x10``, ``b=10`` and, for a scalar, ``s=``.

    Raises:
        typer.BadParameter: A word has another form, or a name occurs twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        sizes = text.split("x") if text else []
        if not name or not equals or not all(size.isdecimal() and int(size) for size in sizes):
            raise typer.BadParameter(f"a parameter is name=64x10 with sizes above 0, got {word!r}")
        if name in shapes:
            raise typer.BadParameter(f"parameter {name!r} is given twice")
        shapes[name] = tuple(int(size) for size in sizes)
    return shapes


def _number(word: str) -> int | float | None:
    if _INTEGER.fullmatch(word):
        return int(word)
    if _DECIMAL.fullmatch(word) and math.isfinite(float(word)):
        return float(word)
    return None


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"{text!r} begins like JSON, but is not: {error}",
            hint="quote it for the shell, and write names in double quotes",
        ) from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number")
