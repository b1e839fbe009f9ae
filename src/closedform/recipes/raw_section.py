"""Sections of a config with their places: typed access, and errors for keys that are unknown."""

from __future__ import annotations

import difflib
import json
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import ClosedFormError, ConfigError, MissingFactsError, nearest
from closedform.magnitude import number_text
from closedform.recipes.document import Document, join_path
from closedform.recipes.documents.scalars import integer, real
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved
from closedform.recipes.entries import REQUIRED, Required

RELATED = re.compile(
    r"(^|[_.\-/])(lr|lrs|learning_?rate|warm_?up|optim|optimizer|optimiser|schedule|scheduler"
    r"|lr_scheduler|weight_?decay|wd|beta|betas|beta1|beta2|adam|adamw|momentum|anneal|annealing"
    r"|decay|cooldown)([_.\-/0-9]|$)",
    re.IGNORECASE,
)
"""Names of keys that concern the optimizer or its schedules."""

MISSPELLED = 0.87
"""The similarity of a misspelled name: one letter in eight left out, added or exchanged."""


_LARGEST = sys.float_info.max
"""The largest number of a config: that of float64, in which its framework has it."""
_LARGEST_INTEGER = 2**63 - 1
"""The largest integer of a config: no run counts further, neither updates nor tokens."""


@dataclass(frozen=True, slots=True)
class RawSection:
    """A mapping within a config, whose entries are typed by the methods that read them.

    A key that is None counts as absent: it has its default.

    Attributes:
        document: The config.
        content: The entries.
        path: The place of the mapping in the config.
    """

    document: Document
    content: Mapping[str, Any]
    path: str = ""

    def __contains__(self, key: object) -> bool:
        return self.content.get(key) is not None  # type: ignore[call-overload]

    def error(self, message: str, key: str | None = None, hint: str | None = None) -> ConfigError:
        """Returns the error of an entry, with its place; without a key, of the section."""
        return self.document.error(message, self.at(key), hint)

    def at(self, key: str | None) -> str:
        """Returns the path of an entry."""
        return self.path if key is None else join_path(self.path, key)

    def value(self, key: str, default: object = None) -> Any:
        """Returns an entry of any type.

        Raises:
            ConfigError: It is missing and has no default, or the file does not determine it.
        """
        value = self.content.get(key)
        if value is None:
            if isinstance(default, Required):
                raise self.error(f"{key} is missing", hint=f"give {self.at(key)}")
            return default
        self.document.keys_read.add(entry_name(str(key), value))
        if isinstance(value, Unresolved):
            raise self.error(
                f"{key} is needed, but the file does not determine it: {value.text!r}",
                key,
                hint="write its value into the file",
            )
        return value

    def number(self, key: str, default: object = REQUIRED) -> Any:
        """Returns a finite number; strings that denote one are converted.

        Raises:
            ConfigError: It is not one, or missing without a default.
        """
        if key not in self and not isinstance(default, Required):
            return default
        value = self.value(key, REQUIRED)
        if isinstance(value, str):
            value = _number_of(value)
        # bool is an int in Python, but true is not a number in a config.
        is_number = isinstance(value, int | float | sp.Rational) and not isinstance(value, bool)
        if not is_number or value != value or abs(value) == math.inf:
            raise self.error(f"{key} must be a finite number, got {self.content[key]!r:.60}", key)
        # Compared, not converted: float() of a long integer raises an OverflowError.
        if abs(value) > _LARGEST:
            raise self.error(
                f"{key} must be at most {_LARGEST:.2g}, got {number_text(value)}",
                key,
                hint="a framework has it in a float64",
            )
        return value

    def integer(self, key: str, default: object = REQUIRED) -> Any:
        """Returns an integer; floats such as 3.0 and strings that denote one are converted.

        Raises:
            ConfigError: It is not one, or missing without a default.
        """
        if key not in self and not isinstance(default, Required):
            return default
        value = self.number(key)
        if value != int(value):
            raise self.error(f"{key} must be an integer, got {value!r}", key)
        if abs(value) > _LARGEST_INTEGER:
            raise self.error(
                f"{key} must be at most 2**63 - 1, got {number_text(int(value))}",
                key,
                hint="no run counts further",
            )
        return int(value)

    def text(self, key: str, default: object = REQUIRED) -> Any:
        """Returns a string.

        Raises:
            ConfigError: It is not one, or missing without a default.
        """
        value = self.value(key, default)
        if key in self and not isinstance(value, str):
            raise self.error(f"{key} must be a string, got {value!r:.60}", key)
        return value

    def flag(self, key: str, default: object = REQUIRED) -> Any:
        """Returns a boolean; the strings true and false are converted.

        Raises:
            ConfigError: It is not one, or missing without a default.
        """
        value = self.value(key, default)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        if key in self and value not in (True, False):
            raise self.error(f"{key} must be true or false, got {value!r:.60}", key)
        return bool(value) if key in self else value

    def numbers(self, key: str, default: object = REQUIRED) -> Any:
        """Returns a tuple of numbers; one number and strings like ``(0.9, 0.98)`` are converted.

        Raises:
            ConfigError: It is not such a list, or missing without a default.
        """
        if key not in self and not isinstance(default, Required):
            return default
        value = self.value(key, REQUIRED)
        if isinstance(value, str):
            value = [part for part in re.split(r"[\s,]+", value.strip("()[] ")) if part]
        inner = self.entries(key, value if isinstance(value, list | tuple) else [value])
        return tuple(inner.number(entry) for entry in inner.content)

    def section(self, key: str) -> RawSection:
        """Returns a mapping below this one, an empty one where there is none.

        A :class:`~closedform.recipes.documents.values.ConfigCall` is the mapping of its keyword
        arguments; a string of JSON, as on a command line, is parsed.

        Raises:
            ConfigError: It is not a mapping.
        """
        content = self.value(key, {})
        if isinstance(content, ConfigCall):
            content = content.kwargs
        if isinstance(content, str) and content.lstrip().startswith("{"):
            try:
                content = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise self.error(f"{key} is not valid JSON: {error}", key) from error
        if not isinstance(content, Mapping):
            raise self.error(f"{key} must be a mapping, got {type(content).__name__}", key)
        return RawSection(self.document, content, self.at(key))

    def sections(self, key: str) -> list[RawSection]:
        """Returns the mappings of a list below this one, an empty one where there is none.

        Raises:
            ConfigError: It is not a list of mappings.
        """
        items = self.value(key, [])
        if not isinstance(items, list | tuple):
            raise self.error(f"{key} must be a list, got {type(items).__name__}", key)
        inner = self.entries(key, items)
        return [inner.section(entry) for entry in inner.content]

    def entries(self, key: str, items: Sequence[object]) -> RawSection:
        """Returns the items of a list as a section, whose keys are ``key[0]`` and so on."""
        content = {f"{key}[{index}]": item for index, item in enumerate(items)}
        return RawSection(self.document, content, self.path)

    def name_and_arguments(self, key: str) -> tuple[str, RawSection]:
        """Returns the name and the arguments of a mapping of one name to its arguments.

        Raises:
            ConfigError: It is not such a mapping.
        """
        entry = self.value(key)
        if not isinstance(entry, Mapping) or len(entry) != 1:
            got = list(entry) if isinstance(entry, Mapping) else type(entry).__name__
            raise self.error(
                f"{key} must be a mapping of one name to its arguments, got {got!r:.60}", key
            )
        (name,) = entry
        if not isinstance(name, str):
            raise self.error(f"a name must be a string, got {name!r:.60}", key)
        return name, self.section(key).section(name)

    def check(self, known_keys: Collection[str]) -> None:
        """Refuses unknown keys, in a section that concerns only the optimizer and its schedules.

        Raises:
            ConfigError: A key is not in ``known_keys``.
        """
        for key in self.content:
            if key not in known_keys:
                raise self.error(f"unknown key {key!r}", hint=nearest(str(key), known_keys))

    def unknown_related(self, known_keys: Collection[str]) -> list[str]:
        """Returns the unknown keys whose names concern the optimizer or its schedules.

        A misspelled name is one that is close to a known name of concern.
        """
        concern = [key for key in known_keys if RELATED.search(key)]
        return [
            key
            for key in self.content
            # YAML keys may be numbers, which concern nothing.
            if (name := str(key)) not in known_keys
            and (RELATED.search(name) or difflib.get_close_matches(name, concern, 1, MISSPELLED))
        ]

    def check_related(self, known_keys: Collection[str]) -> None:
        """Refuses each unknown key whose name concerns the optimizer or its schedules.

        For a section with the keys of the whole training, most of which affect neither.

        Raises:
            ConfigError: A key that :data:`RELATED` matches, or a misspelled one, is not in
                ``known_keys``.
        """
        for key in self.unknown_related(known_keys):
            raise self.error(f"unknown key {key!r}", hint=nearest(str(key), known_keys))

    @contextmanager
    def locate_errors(self, key: str | None = None) -> Iterator[None]:
        """Adds the place in the config to the errors of a builder.

        Raises:
            ConfigError: Every error of the library that is raised within, except errors of
                configs, which have their place, and missing facts.
        """
        try:
            yield
        except (ConfigError, MissingFactsError):
            raise
        except ClosedFormError as error:
            inner = f"; {error.where}" if error.where else ""
            where = f"{self.document.place(self.at(key))}{inner}"
            raise ConfigError(error.what, where=where, hint=error.hint) from error


def entry_name(key: str, value: object) -> str:
    """Returns the name of an entry, with its value: a reader's own defaults have other values."""
    scalar = "" if isinstance(value, Mapping | list | tuple | ConfigCall) else f" = {value!r:.40}"
    return f"{key_name(key)}{scalar}"


def key_name(key: str) -> str:
    """Returns the name of a key for comparisons: in lower case, with underscores."""
    return key.strip("-").replace("-", "_").lower()


def document_section(document: Document) -> RawSection:
    """Returns the section that is the whole config."""
    return RawSection(document, document.content)


def calls(value: object, name: str | None = None) -> Iterator[ConfigCall]:
    """Yields the calls within a value, outermost first; if a name is given, only its calls.

    The name is compared with the last part of the dotted one.
    """
    if isinstance(value, ConfigCall):
        if name is None or value.name.rpartition(".")[2] == name:
            yield value
        for part in (*value.args, *value.kwargs.values()):
            yield from calls(part, name)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from calls(part, name)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from calls(part, name)


def is_open(value: object) -> bool:
    """Returns whether a value is not plain data."""
    return isinstance(value, Unresolved | ConfigCall | Reference)


def _number_of(text: str) -> Any:
    # Integers first: 10 must stay an int, 1e3 is a float.
    for kind in (integer, real):
        try:
            return kind(text.strip())
        except ValueError:
            continue
    return text
