"""Safe reading of a config: a YAML file or a mapping, to plain dicts, lists and scalars.

Refused are tags, anchors and aliases, merge keys, duplicate keys, and what exceeds the limits,
each with its place. Scalars are read as YAML 1.1 reads them, except that ``1e-5`` is a number, as
in YAML 1.2, and that numbers in base 8 or 60 are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Number
from os import PathLike
from pathlib import Path
from typing import Any

import yaml

from closedform.errors import ConfigError

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000
_TOO_LARGE = f"a config must have at most {MAX_NODES} values, nested at most {MAX_DEPTH} deep"

_CORE = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TRUE = ("yes", "true", "on")


@dataclass(frozen=True, slots=True)
class Document:
    """A config that was read.

    Attributes:
        content: Plain dicts, lists and scalars, the reader's own.
        source: The file, or ``<mapping>``.
    """

    content: dict[str, Any]
    source: str

    def place(self, path: str) -> str:
        """Returns a place in errors: the source, and the path within it."""
        return f"{self.source}: {path}" if path else self.source

    def error(self, what: str, path: str, hint: str | None = None) -> ConfigError:
        """Returns the error of a value, with its place."""
        return ConfigError(what, where=self.place(path), hint=hint)


def read_document(source: str | PathLike[str] | Mapping[str, Any]) -> Document:
    """Returns a config as plain data; a mapping is copied, never changed.

    Args:
        source: The path of a YAML file of at most 1 MB, or a mapping of its form.

    Raises:
        ConfigError: The file cannot be read, is not a YAML mapping, or holds what is refused.
    """
    if isinstance(source, Mapping):
        content = _copied(source, "", [0])
        return Document(content, "<mapping>")
    if not isinstance(source, str | PathLike):
        raise ConfigError(
            f"a config must be a path or a mapping, got {type(source).__name__}",
            hint="give the path of a YAML file",
        )
    path = Path(source)
    content = _parsed(_text(path), str(path))
    if not isinstance(content, dict):
        raise ConfigError(
            f"a config must be a mapping, got {type(content).__name__}", where=str(path)
        )
    return Document(content, str(path))


def _text(path: Path) -> str:
    if not path.is_file():
        raise ConfigError("there is no such file", where=str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(
                f"a config must have at most {MAX_BYTES} bytes, got more", where=str(path)
            )
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the file: {error}", where=str(path)) from error


class _Composer(yaml.SafeLoader):
    """YAML's own parser up to nodes, without anchors and aliases, within the limits."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text)
        self.source = source
        self.depth = 0
        self.count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        place = f"{self.source}, line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ConfigError(
                "anchors and aliases are not read", where=place, hint="write the value in full"
            )
        self.count += 1
        if self.count > MAX_NODES or self.depth > MAX_DEPTH:
            raise ConfigError(_TOO_LARGE, where=place)
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _parsed(text: str, source: str) -> Any:
    composer: Any = None
    try:
        composer = _Composer(text, source)
        node = composer.get_single_node()
    except yaml.YAMLError as error:
        raise ConfigError(f"this is not a YAML: {error}", where=source) from error
    finally:
        if composer is not None:
            composer.dispose()
    return None if node is None else _plain(node, source, "")


def _plain(node: yaml.Node, source: str, path: str) -> Any:
    place = f"{source}: {path}" if path else source
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_CORE}seq":
        return [_plain(item, source, f"{path}[{i}]") for i, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode) and node.tag == f"{_CORE}map":
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = _key(key_node, place)
            if key in result:
                raise ConfigError(f"the key {key!r} occurs twice", where=place)
            result[key] = _plain(value_node, source, _joined(path, key))
        return result
    return _scalar(node, place)


def _key(node: yaml.Node, place: str) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError("a key must be a scalar", where=place)
    return _scalar(node, place)


def _scalar(node: yaml.Node, place: str) -> Any:
    kind = node.tag.removeprefix(_CORE)
    text = node.value
    if not isinstance(node, yaml.ScalarNode) or kind not in _SCALARS:
        raise ConfigError(
            f"the tag {node.tag!r} is not read",
            where=place,
            hint="only plain mappings, lists, numbers, texts and booleans are",
        )
    if kind == "str" and node.style is None and _REAL.fullmatch(text):
        kind = "float"  # 1e-5: a text in YAML 1.1, a number in YAML 1.2
    try:
        return _SCALARS[kind](text)
    except ValueError:
        raise ConfigError(
            f"the number {text[:40]!r} is not read", where=place, hint="write it in decimals"
        ) from None


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _real(text: str) -> float:
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1))
    if not _REAL.fullmatch(text):
        raise ValueError(text)
    return float(text)


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() in _TRUE,
    "int": _integer,
    "float": _real,
    "str": str,
    "timestamp": str,
}


def _joined(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _copied(value: Any, path: str, count: list[int], depth: int = 0) -> Any:
    """A deep copy in plain types; ``count`` holds the number of values so far."""
    count[0] += 1
    if count[0] > MAX_NODES or depth > MAX_DEPTH:
        raise ConfigError(_TOO_LARGE, where=f"<mapping>: {path[:80]}")
    if isinstance(value, Mapping):
        return {
            key: _copied(item, _joined(path, key), count, depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_copied(item, f"{path}[{i}]", count, depth + 1) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | Number):
        return value
    raise ConfigError(
        f"a value must be a mapping, list, number, text or boolean, got {type(value).__name__}",
        where=f"<mapping>: {path}",
    )
