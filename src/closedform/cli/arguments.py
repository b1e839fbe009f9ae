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
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from closedform.cli.parser import UsageError, argument, bundle, flag, option, positive
from closedform.errors import ArgumentError
from closedform.files import check_regular
from closedform.magnitude import LAST_STEP

NAME_HELP = (
    "a name of the library, FRAMEWORK:CLASS, a config or .onnx file, or FILE.py:FUNCTION, which is "
    "imported"
)

FILES_HELP = "the directory of the files that a config inherits from"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How NAME is read.

    Attributes:
        key: For a framework's class, the hyperparameter that it schedules; of a recipe, the one
            that is shown.
        base: For a framework's class that scales the optimizer's own value, that value.
        as_implemented: Whether to reproduce the defects of the framework.
        framework: For a config file, the framework that it is written for, also with
            ``@version``.
        facts: For a config file, numbers of the run that it does not contain.
        files: For a config file, the directory of the files that it inherits from.
        paths: For a config of no known framework, the path or value of each concept.
    """

    key: str = "lr"
    base: float | None = None
    as_implemented: bool = False
    framework: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Path | None = None
    paths: Mapping[str, str] | None = None


def name_argument(nargs: str | None = None) -> Any:
    """Declares NAME: what a command reads."""
    return argument(NAME_HELP, nargs=nargs)


def until_option(text: str) -> Any:
    """Declares the last step that a command looks at."""
    return option(text, type=positive)


def json_flag() -> Any:
    """Declares that a command prints JSON."""
    return flag("print JSON", "--json")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is read.

    Attributes:
        offset: The logged step of update 0; None to try 0 and 1.
        pattern: For text, the pattern of a line, or the name of a program.
        column: The column of the rate.
        updates_per_epoch: The updates of an epoch, where the log counts them anew in each.
    """

    offset: int | None = None
    pattern: str | None = None
    column: str | None = None
    updates_per_epoch: int | None = None


def log_bundle() -> Any:
    """Declares the options that say how a log is read; their value is ``LogOptions``."""
    return bundle(
        LogOptions,
        offset=option(
            "the step of a log's first update, 0 or 1 (default: that of the format; both are "
            "tried)",
            "--log-offset",
            metavar="LOG_OFFSET",
            type=int,
        ),
        pattern=option(
            "for a log of text, the pattern of a line, 'step {step} .* lr {lr}', or the name of "
            "a program: nanochat, megatron, torchtitan, mmengine, fairseq, deepspeed, "
            "transformers, tqdm"
        ),
        column=option("the column of the rate in the log"),
        updates_per_epoch=option(
            "the updates of an epoch, of a log that counts them anew in each",
            "--log-epoch",
            metavar="UPDATES",
            type=positive,
        ),
    )


def source_bundle() -> Any:
    """Declares the options that say how NAME is read; their value is ``SourceOptions``."""
    return config_bundle(
        key=option(
            "the hyperparameter of a framework's class or a config (default: lr)", default="lr"
        ),
        base_value=option("the optimizer's own value, for a class that scales it", type=float),
        as_implemented=flag("reproduce the defects of the framework"),
        framework=option("the framework of a config, also with @version"),
        facts="facts of the run that a config leaves out: total_steps=1000 dataset_size=50000",
    )


def config_bundle(*, facts: str, **parts: object) -> Any:
    """Declares the options that say how a config is read, after some others.

    Args:
        facts: The help of ``--facts``.
        parts: The options before it.
    """
    return bundle(
        _source_options,
        **parts,
        facts=option(facts, action="append", metavar="NAME=VALUE"),
        files=option(FILES_HELP, type=Path),
        generic=flag("read a config of no known framework by the names of its keys"),
        map=option(
            "with --generic, the key of a concept, or its value: lr=train.optim.lr, decay=cosine",
            action="append",
            metavar="CONCEPT=PATH",
        ),
    )


def folder_option() -> Any:
    """Declares the folder of a page."""
    return option("the folder of the page", "-o", type=Path, required=True)


def packages_option() -> Any:
    """Declares where a page finds onnxruntime-web."""
    return option(
        "the node_modules folder with onnxruntime-web; default: searched for upward", type=Path
    )


def _source_options(
    *,
    generic: bool,
    map: Sequence[str] | None,
    facts: Sequence[str] | None,
    framework: str | None,
    base_value: float | None = None,
    **options: Any,
) -> SourceOptions:
    framework, paths = generic_options(framework, map, is_generic=generic)
    return SourceOptions(
        base=base_value, facts=parse_facts(facts), framework=framework, paths=paths, **options
    )


def generic_options(
    framework: str | None, words: Sequence[str] | None, *, is_generic: bool
) -> tuple[str | None, dict[str, str] | None]:
    """Returns the framework and the paths of ``--framework``, ``--generic`` and ``--map``.

    Raises:
        UsageError: They contradict each other, or a word of ``--map`` has another form.
    """
    if is_generic and framework not in (None, "generic"):
        raise UsageError(f"give either --generic or --framework, got both, {framework!r}")
    is_generic = is_generic or framework == "generic"
    if words and not is_generic:
        raise UsageError("--map is for configs of no known framework", hint="give --generic")
    paths: dict[str, str] = {}
    for word in words or ():
        concept, equals, path = word.partition("=")
        if not equals or not concept or not path:
            raise UsageError(f"expected concept=path, got {word!r}", hint="--map lr=train.optim.lr")
        paths[concept] = path
    return ("generic" if is_generic else framework), (paths if words else None)


def parse_facts(words: Sequence[str] | None) -> dict[str, Any]:
    """Returns facts from words such as ``total_steps=1000``, also several in one word.

    Raises:
        UsageError: A word has another form.

    Example:
        >>> parse_facts(["total_steps=1000 global_batch_size=8"])
        {'total_steps': 1000, 'global_batch_size': 8}
    """
    facts: dict[str, Any] = {}
    for word in [part for text in words or () for part in split_words(text)]:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"expected name=value, got {word!r}")
        facts[name] = parse_literal(value)
        if isinstance(facts[name], str) and "=" in value:
            raise UsageError(f"expected name=value, got {word!r}", hint="put spaces between facts")
    return facts


def split_words(text: str) -> list[str]:
    """Returns the words of a text in the quoting of a shell.

    Raises:
        UsageError: A quotation is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text!r} cannot be split into words: {error}") from None


def split_name(text: str) -> tuple[str, list[str]]:
    """Returns the NAME and the arguments that a text denotes: a file, or words.

    Raises:
        UsageError: A quotation is not closed.
    """
    name, *words = [text] if Path(text).is_file() else split_words(text)
    return name, words


Shapes = dict[str, tuple[int, ...]]

TENSOR_FILES = (".npz", ".safetensors")
"""Suffixes of the files from which shapes are read."""

# None of Python and null of JSON and YAML.
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
        UsageError: A value has no name, or a name occurs twice.

    Example:
        >>> free_arguments(["--total-iters", "100", "--min=-1", "--cycle"])
        {'total_iters': 100, 'min': -1, 'cycle': True}
    """
    arguments: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise UsageError(f"expected --name value, got {word!r}", hint="each value has a name")
        key, equals, text = word[2:].partition("=")
        if equals:
            value = parse_literal(text)
        # Two dashes, not one: -1 is a value.
        elif rest and not rest[0].startswith("--"):
            value = parse_literal(rest.pop(0))
        else:
            value = not key.startswith("no-")
            key = key.removeprefix("no-")
        name = key.replace("-", "_")
        if name in arguments:
            raise UsageError(f"--{key} is given twice")
        arguments[name] = value
    return arguments


MOST_ROWS = 4_000_000
"""The most steps of a table: some seconds and a gigabyte."""


def parse_steps(text: str) -> range:
    """Returns the steps of ``stop``, ``start:stop`` or ``start:stop:stride``.

    Raises:
        UsageError: ``text`` does not consist of integers >= 0 in this form, one of them is beyond
            the last step, or the range is empty.
    """
    # 10_000 as in Python.
    parts = text.replace("_", "").split(":")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        raise UsageError(f"steps must be start:stop:stride in integers, got {text!r}")
    longest = max(parts, key=len)  # int() refuses 4,300 digits
    if len(longest) > len(str(LAST_STEP)) or max(map(int, parts)) > LAST_STEP + 1:
        raise UsageError(f"steps must be in 0..{LAST_STEP}, got {text:.60}")
    numbers = [int(part) for part in parts]
    steps = range(*numbers) if len(numbers) < 3 or numbers[2] > 0 else range(0)
    if not steps:
        raise UsageError(f"the range of steps {text!r} is empty")
    if len(steps) > MOST_ROWS:
        stride = -(-(steps.stop - steps.start) // MOST_ROWS)
        raise UsageError(
            f"the range of steps {text!r} has {len(steps)} steps, expected at most {MOST_ROWS}",
            hint=f"give a stride, as in --steps {steps.start}:{steps.stop}:{stride}",
        )
    return steps


def parse_shapes(words: Sequence[str]) -> Shapes:
    """Returns shapes by name from words such as ``w=64x10``, ``b=10``, ``s=`` and ``model.npz``.

    ``s=`` is a scalar; a .npz or .safetensors file gives the shapes of all its tensors.

    Raises:
        UsageError: A word has another form, a file cannot be read or contains no tensors,
            or a name occurs twice.
    """
    shapes: Shapes = {}
    for word in words:
        is_file = word.lower().endswith(TENSOR_FILES) and "=" not in word
        for name, shape in _shapes_in(Path(word)) if is_file else [_shape(word)]:
            if name in shapes:
                raise UsageError(f"parameter {name!r} is given twice")
            shapes[name] = shape
    return shapes


def _shape(word: str) -> tuple[str, tuple[int, ...]]:
    name, equals, text = word.partition("=")
    # `s=` is a scalar: an empty shape.
    sizes = text.split("x") if text else []
    if not name or not equals or not all(size.isdecimal() and int(size) for size in sizes):
        raise UsageError(
            f"expected name=64x10 with positive sizes, or a file {' or '.join(TENSOR_FILES)}, "
            f"got {word!r}"
        )
    return name, tuple(int(size) for size in sizes)


def _shapes_in(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    check_regular(path, UsageError)
    try:
        shapes = _npz_shapes(path) if path.suffix.lower() == ".npz" else _safetensors_shapes(path)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from None
    if not shapes:
        raise UsageError(f"{str(path)!r} contains no tensors")
    return shapes


def _npz_shapes(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    import numpy as np

    try:
        # A pickle would run code of the file.
        with np.load(path, allow_pickle=False) as arrays:
            return [(name, arrays[name].shape) for name in arrays.files]
    except (ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"{str(path)!r} is not a valid npz file: {error}") from None


def _safetensors_shapes(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as tensors:
            names = list(tensors.keys())
            # get_slice reads the header of the file and none of the numbers.
            return [(name, tuple(tensors.get_slice(name).get_shape())) for name in names]
    except SafetensorError as error:
        raise UsageError(f"{str(path)!r} is not a valid safetensors file: {error}") from None


def _number(word: str) -> int | float | None:
    with contextlib.suppress(ValueError):
        return int(word)
    with contextlib.suppress(ValueError):
        # `inf` and `nan` stay words.
        return float(word) if math.isfinite(float(word)) else None
    return None


def _json(text: str) -> Any:
    try:
        # json.loads accepts NaN and Infinity, which JSON does not have.
        return json.loads(text, parse_constant=_refuse)
    # Deeply nested brackets end in a RecursionError.
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"{text!r} is not valid JSON: {error}",
            hint="quote it for the shell, and write names in double quotes",
        ) from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")
