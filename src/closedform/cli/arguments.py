"""Arguments of the commands: shared options, values of schedules and rules, shapes.

Values are parsed without eval, by this grammar::

    value   ::= true | false | none | integer | decimal | json | list | text
    json    ::= what json.loads accepts, beginning with "[" or "{"
    list    ::= number "," number ("," number)* — such as 0.9,0.95
    text    ::= anything else
"""

from __future__ import annotations

import contextlib
import json
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from closedform.errors import ArgumentError

_NAME_HELP = (
    "A name of the library, FRAMEWORK:CLASS, a config file, or FILE.py:FUNCTION, which is imported."
)
Name = Annotated[str, typer.Argument(help=_NAME_HELP)]
OptionalName = Annotated[str | None, typer.Argument(help=_NAME_HELP)]

Key = Annotated[
    str, typer.Option(help="The scheduled hyperparameter, for a framework's class or a config.")
]
BaseValue = Annotated[
    float | None, typer.Option(help="The optimizer's own value, for a class that scales it.")
]
AsImplemented = Annotated[
    bool, typer.Option("--as-implemented", help="Reproduce the defects of the framework.")
]

Shapes = dict[str, tuple[int, ...]]

TENSOR_FILES = (".npz", ".safetensors")
"""Suffixes of the files from which shapes are read."""

_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}


def parse_literal(text: str) -> Any:
    """Returns the number, boolean, None, list, dict or string that ``text`` denotes.

    Raises:
        ArgumentError: It begins like JSON but is not valid JSON.

    Example:
        >>> [parse_literal(text) for text in ("3e-4", "100_000", "0.9,0.95", "True", "cos")]
        [0.0003, 100000, [0.9, 0.95], True, 'cos']
    """
    word = text.strip()
    if word.lower() in _CONSTANTS:
        return _CONSTANTS[word.lower()]
    if word[:1] in ("[", "{"):
        return _json(word)
    number = _number(word)
    if number is not None:
        return number
    items = [_number(item.strip()) for item in word.split(",")]
    if len(items) > 1 and all(item is not None for item in items):
        return items
    return word


def free_arguments(words: Sequence[str]) -> dict[str, Any]:
    """Returns keyword arguments from ``--name value``, ``--name=value`` and ``--flag``.

    A name in kebab-case becomes snake_case; ``--no-flag`` is False.

    Raises:
        typer.BadParameter: A value has no name, or a name occurs twice.

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
    """Returns the steps of ``stop``, ``start:stop`` or ``start:stop:stride``.

    Raises:
        typer.BadParameter: ``text`` does not consist of integers >= 0 in this form, or the range is
            empty.
    """
    parts = text.replace("_", "").split(":")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"steps must be start:stop:stride in integers, got {text!r}")
    numbers = [int(part) for part in parts]
    steps = range(*numbers) if len(numbers) < 3 or numbers[2] > 0 else range(0)
    if not steps:
        raise typer.BadParameter(f"the range of steps {text!r} is empty")
    return steps


def parse_shapes(words: Sequence[str]) -> Shapes:
    """Returns shapes by name from words such as ``w=64x10``, ``b=10``, ``s=`` and ``model.npz``.

    ``s=`` is a scalar; a .npz or .safetensors file gives the shapes of all its tensors.

    Raises:
        typer.BadParameter: A word has another form, a file cannot be read or contains no tensors,
            or a name occurs twice.
    """
    shapes: Shapes = {}
    for word in words:
        is_file = word.lower().endswith(TENSOR_FILES) and "=" not in word
        for name, shape in _shapes_in(Path(word)) if is_file else [_shape(word)]:
            if name in shapes:
                raise typer.BadParameter(f"parameter {name!r} is given twice")
            shapes[name] = shape
    return shapes


def _shape(word: str) -> tuple[str, tuple[int, ...]]:
    name, equals, text = word.partition("=")
    sizes = text.split("x") if text else []
    if not name or not equals or not all(size.isdecimal() and int(size) for size in sizes):
        raise typer.BadParameter(
            f"expected name=64x10 with positive sizes, or a file {' or '.join(TENSOR_FILES)}, "
            f"got {word!r}"
        )
    return name, tuple(int(size) for size in sizes)


def _shapes_in(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    try:
        found = _npz_shapes(path) if path.suffix.lower() == ".npz" else _safetensors_shapes(path)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {str(path)!r}: {error.strerror}") from None
    if not found:
        raise typer.BadParameter(f"{str(path)!r} contains no tensors")
    return found


def _npz_shapes(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [(name, arrays[name].shape) for name in arrays.files]
    except (ValueError, zipfile.BadZipFile) as error:
        raise typer.BadParameter(f"{str(path)!r} is not a valid npz file: {error}") from None


def _safetensors_shapes(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as tensors:
            names = list(tensors.keys())
            return [(name, tuple(tensors.get_slice(name).get_shape())) for name in names]
    except SafetensorError as error:
        raise typer.BadParameter(
            f"{str(path)!r} is not a valid safetensors file: {error}"
        ) from None


def _number(word: str) -> int | float | None:
    with contextlib.suppress(ValueError):
        return int(word)
    with contextlib.suppress(ValueError):
        return float(word) if math.isfinite(float(word)) else None
    return None


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"{text!r} is not valid JSON: {error}",
            hint="quote it for the shell, and write names in double quotes",
        ) from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")
