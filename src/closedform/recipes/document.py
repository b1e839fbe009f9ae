"""Safe reading of a config: a file in one of seven syntaxes, a mapping or object, to plain data.

Config files are untrusted: nothing in them is run, and size, depth and number of values are
limited. What a syntax refuses is described in its module of :mod:`closedform.recipes.documents`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from numbers import Number
from os import PathLike
from pathlib import Path
from typing import Any

from closedform.errors import ConfigError
from closedform.files import check_regular
from closedform.recipes.documents.command_line import parsed_command_line, program_of
from closedform.recipes.documents.gin_text import parsed_gin
from closedform.recipes.documents.json_text import parsed_json, parsed_toml
from closedform.recipes.documents.limits import MAX_BYTES, Budget, checked_path
from closedform.recipes.documents.notebook_text import MAX_NOTEBOOK, code_of_notebook
from closedform.recipes.documents.objects import is_config, plain_object
from closedform.recipes.documents.python_text import PythonText, parsed_python
from closedform.recipes.documents.values import ConfigCall, Unresolved
from closedform.recipes.documents.yaml_text import parsed_yaml

FileSource = str | PathLike[str] | Mapping[str, str]
"""A directory, or the texts of files by their paths."""


class Syntax(StrEnum):
    """The syntax of a config."""

    MAPPING = "mapping"
    YAML = "YAML"
    JSON = "JSON"
    TOML = "TOML"
    ARGUMENTS = "command line"
    PYTHON = "Python"
    GIN = "gin"


SUFFIXES: Mapping[str, Syntax] = {
    ".yaml": Syntax.YAML,
    ".yml": Syntax.YAML,
    ".json": Syntax.JSON,
    ".toml": Syntax.TOML,
    ".args": Syntax.ARGUMENTS,
    ".sh": Syntax.ARGUMENTS,
    ".py": Syntax.PYTHON,
    ".ipynb": Syntax.PYTHON,
    ".gin": Syntax.GIN,
}
"""The syntax of a file by its ending."""

_PARSERS: Mapping[Syntax, Callable[[str, str], Any]] = {
    Syntax.YAML: parsed_yaml,
    Syntax.JSON: parsed_json,
    Syntax.TOML: parsed_toml,
    Syntax.ARGUMENTS: parsed_command_line,
    Syntax.GIN: parsed_gin,
}


@dataclass(frozen=True, slots=True)
class Document:
    """A config that was read.

    Attributes:
        content: Dicts, lists and scalars, the reader's own: sections of YAML, JSON and TOML; flags
            of a command line by their names without dashes; bindings of a gin file; assigned names
            of a Python file. A value that the file does not determine is an
            :class:`~closedform.recipes.documents.values.Unresolved`.
        source: The file, or ``<mapping>``.
        syntax: The syntax of the file.
        python: The syntax tree and the expressions of a Python file.
        program: The name of the Python script that a command line runs, without its ending.
        files: The files that it may name; None for those next to it.
        keys_read: The entries that a reader has read so far, with their values.
    """

    content: dict[str, Any]
    source: str
    syntax: Syntax = Syntax.MAPPING
    python: PythonText | None = None
    program: str = ""
    files: FileSource | None = None
    keys_read: set[str] = field(default_factory=set, repr=False, compare=False)

    def place(self, path: str) -> str:
        """Returns a place in errors: the source, and the path within it."""
        return f"{self.source}: {path}" if path else self.source

    def error(self, message: str, path: str, hint: str | None = None) -> ConfigError:
        """Returns the error of a value, with its place."""
        return ConfigError(message, where=self.place(path), hint=hint)

    @property
    def values(self) -> list[Any]:
        """The values at the top level: of the expressions of a Python file, then of its names."""
        expressions = [] if self.python is None else self.python.expressions
        return [*expressions, *self.content.values()]

    @property
    def name(self) -> str:
        """The file's name without its ending, or ``recipe`` for a mapping."""
        return "recipe" if self.syntax is Syntax.MAPPING else Path(self.source).stem


def read_document(source: str | PathLike[str] | Mapping[str, Any] | Document) -> Document:
    """Returns a config as plain data; a mapping is copied, never changed.

    Args:
        source: The path of a file of at most 1 MB, whose ending is its syntax: ``.yaml``, ``.yml``,
            ``.json``, ``.toml``, ``.args`` or ``.sh`` for a command line, ``.py``, ``.gin``,
            ``.ipynb`` for the code cells of a notebook; a mapping, as YAML would have it; a
            dataclass such as ``TrainingArguments``, ``argparse.Namespace`` or OmegaConf; a document
            is returned as it is.

    Raises:
        ConfigError: The file cannot be read, is not of its syntax, or holds what is refused.

    Example:
        >>> read_document({"a": (1, 2)}).content
        {'a': [1, 2]}
    """
    if isinstance(source, Document):
        return source
    # OmegaConf's DictConfig is a mapping, too, but raises exceptions for missing values: items_ex
    # is its own.
    if isinstance(source, Mapping) and not hasattr(source, "items_ex"):
        content = _copy(source, "", Budget("<mapping>"))
        return Document(content, "<mapping>")
    if is_config(source):
        name = f"<{type(source).__name__}>"
        return Document(plain_object(source, name), name)
    if not isinstance(source, str | PathLike):
        raise ConfigError(
            f"a config must be a path, a mapping, a dataclass or a namespace, got "
            f"{type(source).__name__}",
            hint="give the path of a file, or the object's dict",
        )
    path = Path(source)
    is_notebook = path.suffix.lower() == ".ipynb"
    return document_of(
        text_of(path, MAX_NOTEBOOK if is_notebook else MAX_BYTES), path.suffix, str(path)
    )


def document_of(text: str, suffix: str, name: str) -> Document:
    """Returns the text of a config as plain data.

    Args:
        text: The text.
        suffix: The ending of its file, which decides its syntax.
        name: The name of the file, for errors.

    Raises:
        ConfigError: The text is not of its syntax, or holds what is refused.

    Example:
        >>> document_of("lr = 0.1", ".toml", "run.toml").content
        {'lr': 0.1}
    """
    syntax = SUFFIXES.get(suffix.lower())
    if syntax is None:
        raise ConfigError(
            f"the ending of a config must be one of {', '.join(SUFFIXES)}, got {suffix!r}",
            where=name,
        )
    if suffix.lower() == ".ipynb":
        text = code_of_notebook(text, name)
    if syntax is Syntax.PYTHON:
        module = parsed_python(text, name)
        return Document(module.names, name, syntax, module)
    content = _PARSERS[syntax](text, name)
    if not isinstance(content, dict):
        if content is None:
            raise ConfigError("the file is empty, expected a config", where=name)
        raise ConfigError(f"a config must be a mapping, got {type(content).__name__}", where=name)
    if syntax in (Syntax.JSON, Syntax.TOML):
        content = _copy(content, "", Budget(name))
    program = program_of(text) if syntax is Syntax.ARGUMENTS else ""
    return Document(content, name, syntax, program=program)


def document_by_content(text: str, name: str) -> Document:
    r"""Returns a config whose ending says nothing: of JSON, TOML, YAML or a command line.

    Raises:
        ConfigError: The text is a mapping in none of these syntaxes.

    Example:
        >>> document_by_content("[net]\nlearning_rate=0.001", "yolo.cfg").content
        {'net': {'learning_rate': 0.001}}
    """
    for suffix in (".json", ".toml", ".yaml", ".args"):
        # A command line has options; any text has words.
        if suffix == ".args" and "--" not in text:
            break
        try:
            document = document_of(text, suffix, name)
        except ConfigError:
            continue
        if document.content:
            return document
    if not text.strip():
        raise ConfigError("the file is empty, expected a config", where=name)
    raise ConfigError(
        f"the text is not a config: neither JSON, TOML and YAML with keys nor a command line, "
        f"got {text.strip()!r:.40}",
        where=name,
        hint=f"the ending of a config of Python or gin is its syntax: {', '.join(SUFFIXES)}",
    )


def text_of(path: Path, most: int = MAX_BYTES) -> str:
    """Returns the text of a file of at most ``most`` bytes.

    Raises:
        ConfigError: There is none, it is larger, or it is not UTF-8.
    """
    checked_path(str(path), "a config")
    check_regular(path, ConfigError)
    try:
        if not path.is_file():
            raise ConfigError("there is no such file", where=str(path))
        with path.open("rb") as file:
            # One byte more than allowed shows that the file is larger, without its size on disk.
            content = file.read(most + 1)
        if len(content) > most:
            raise ConfigError(f"a config must have at most {most} bytes, got more", where=str(path))
        # utf-8-sig drops the byte order mark that editors on Windows write.
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the file: {error}", where=str(path)) from error


def join_path(path: str, key: object) -> str:
    """Returns the path of an entry of a mapping."""
    return f"{path}.{key}" if path else str(key)


def entries(content: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yields the path, the key and the value of each entry at any depth, sections as well.

    An item of a list has no key.

    Example:
        >>> list(entries({"optim": {"lr": 1}, "steps": [3]}))[1:]
        [('optim.lr', 'lr', 1), ('steps', 'steps', [3]), ('steps[0]', '', 3)]
    """
    if isinstance(content, ConfigCall):
        content = content.kwargs
    if isinstance(content, Mapping):
        inner = [(join_path(path, key), str(key), value) for key, value in content.items()]
    elif isinstance(content, list | tuple):
        inner = [(f"{path}[{index}]", "", value) for index, value in enumerate(content)]
    else:
        return
    for place, key, value in inner:
        yield place, key, value
        yield from entries(value, place)


def _copy(value: Any, path: str, budget: Budget, depth: int = 0) -> Any:
    """A deep copy in plain types, within the limits."""
    budget.spend(depth, f"{budget.source}: {path[:80]}")
    if isinstance(value, Mapping):
        return {
            key: _copy(item, join_path(path, key), budget, depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_copy(item, f"{path}[{i}]", budget, depth + 1) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | Number):
        return value
    raise ConfigError(
        f"a value must be a mapping, list, number, text or boolean, got {type(value).__name__}",
        where=f"{budget.source}: {path}",
    )


def in_sections(document: Document) -> Document:
    """Returns a document whose keys ``a.b.c``, as on a command line, are paths of sections.

    A path ``a.b.c`` overrides the same key of a section.

    Raises:
        ConfigError: A path goes through a value that is not a section.

    Example:
        >>> in_sections(read_document({"optim": {"lr": 1}, "optim.betas": 2, "a": 3})).content
        {'optim': {'lr': 1, 'betas': 2}, 'a': 3}
    """
    # YAML keys may be numbers.
    paths = [key for key in document.content if isinstance(key, str) and "." in key]
    if not paths:
        return document
    content = {key: deepcopy(value) for key, value in document.content.items() if key not in paths}
    for path in paths:
        *sections, key = path.split(".")
        place = content
        for name in sections:
            inner = place.setdefault(name, {})
            if not isinstance(inner, dict):
                raise document.error(f"{name} must be a section, got {inner!r:.40}", path)
            place = inner
        place[key] = document.content[path]
    return replace(document, content=content)


_INTERPOLATION = re.compile(r"\$\{([^{}$]*)\}")
_MISSING = "???"


def interpolate(document: Document) -> Document:
    """Returns a document whose ``${a.b.c}`` are replaced as OmegaConf replaces them.

    A string that is one interpolation becomes the value, with its type; within a longer string,
    the value is inserted as text. A path that the file does not have, a resolver such as
    ``${oc.env:X}`` and ``???`` are unresolved.

    Raises:
        ConfigError: The result is too large, or an interpolation contains itself.

    Example:
        >>> config = read_document({"a": {"b": 3}, "c": "${a.b}", "d": "x${a.b}", "e": "${f}"})
        >>> interpolate(config).content["c"], interpolate(config).content["e"]
        (3, Unresolved(text='${f}'))
    """
    budget = Budget(document.source)

    def lookup(path: str) -> Any:
        value: Any = document.content
        for key in path.split("."):
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                return Unresolved("${" + path + "}")
        return value

    def resolve(value: Any, depth: int) -> Any:
        budget.spend(depth)
        if isinstance(value, dict):
            return {key: resolve(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [resolve(item, depth + 1) for item in value]
        if not isinstance(value, str):
            return value
        # OmegaConf's marker of a mandatory value that is not set.
        if value == _MISSING:
            return Unresolved(value)
        whole = _INTERPOLATION.fullmatch(value)
        if whole is not None:
            return resolve(lookup(whole.group(1).strip()), depth + 1)
        if "${" not in value:
            return value
        parts = [resolve(lookup(path), depth + 1) for path in _INTERPOLATION.findall(value)]
        if not all(isinstance(part, str | int | float) for part in parts):
            return Unresolved(value)
        texts = iter(str(part) for part in parts)
        text = _INTERPOLATION.sub(lambda match: next(texts), value)
        return Unresolved(value) if "${" in text or len(text) > MAX_BYTES else text

    return replace(document, content=resolve(document.content, 0))
