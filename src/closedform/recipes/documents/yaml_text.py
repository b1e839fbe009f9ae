"""YAML to plain data, by YAML's own parser up to its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_DEPTH, MAX_NODES, TOO_LARGE, Budget
from closedform.recipes.documents.scalars import integer, is_real, real
from closedform.recipes.documents.values import ConfigCall, Unresolved

_CORE = "tag:yaml.org,2002:"
_CALLS = ("!apply", "!name", "!new")
_TRUE = ("yes", "true", "on")


def parsed_yaml(text: str, source: str) -> Any:
    """Returns the content of a YAML file.

    Aliases and merge keys are expanded within the limits. Refused are tags, keys with two values,
    and numbers in base 8 or 60. Scalars are read as YAML 1.1 reads them, except that ``1e-5`` is a
    number, as in YAML 1.2.

    Raises:
        ConfigError: It is not a YAML file, or holds what is refused.
    """
    composer: Any = None
    try:
        composer = _Composer(text, source)
        node = composer.get_single_node()
    except yaml.YAMLError as error:
        raise ConfigError(f"this is not YAML: {error}", where=source) from error
    finally:
        if composer is not None:
            composer.dispose()
    return None if node is None else _Reader(source).plain(node, "", 0)


class _Composer(yaml.SafeLoader):
    """The parser, within the limits."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text)
        self.source = source
        self.depth = 0
        self.count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self.count += 1
        if self.count > MAX_NODES or self.depth > MAX_DEPTH:
            line = event.start_mark.line + 1
            raise ConfigError(TOO_LARGE, where=f"{self.source}, line {line}")
        self.depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Reader:
    """From nodes to plain data."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.budget = Budget(source)

    def plain(self, node: yaml.Node, path: str, depth: int) -> Any:
        place = f"{self.source}: {path}" if path else self.source
        self.budget.spend(depth)
        if node.tag.startswith("!"):
            return self._tag_value(node, path, place, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_CORE}seq":
            return [
                self.plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(node.value)
            ]
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_CORE}map":
            return self._mapping(node, path, place, depth)
        return _scalar(node, place)

    def _tag_value(self, node: yaml.Node, path: str, place: str, depth: int) -> Any:
        """The value of a tag of the application: the calls and references of HyperPyYAML.

        The file does not determine the values of other tags, such as !include.
        """
        kind, _, name = node.tag.partition(":")
        if kind in _CALLS and name and isinstance(node, yaml.MappingNode):
            arguments = self._mapping(node, path, place, depth)
            if all(isinstance(key, str) for key in arguments):
                return ConfigCall(name, kwargs=arguments)
        if kind == "!ref" and isinstance(node, yaml.ScalarNode):
            return Unresolved(f"!ref {node.value}")
        return Unresolved(f"{node.tag} …")

    def _mapping(self, node: yaml.MappingNode, path: str, place: str, depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        merged_entries: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_CORE}merge":
                for source in self._merge_sources(value_node, path, place, depth):
                    # Earlier mappings of a merge key win over later ones (YAML 1.1, merge key
                    # type).
                    merged_entries = {**source, **merged_entries}
                continue
            key = _key(key_node, place)
            value = self.plain(value_node, f"{path}.{key}" if path else str(key), depth + 1)
            # PyYAML would silently take the last one; equal duplicates are harmless.
            if key in result and result[key] != value:
                raise ConfigError(f"the key {key!r} occurs twice", where=place)
            result[key] = value
        # Keys of the mapping itself win over merged ones.
        return {**merged_entries, **result}

    def _merge_sources(
        self, node: yaml.Node, path: str, place: str, depth: int
    ) -> list[Mapping[Any, Any]]:
        value = self.plain(node, path, depth + 1)
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise ConfigError("a merge key << must have a mapping or a list of them", where=place)
        return sources


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
    if kind == "str" and node.style is None and is_real(text):
        kind = "float"  # 1e-5: a text in YAML 1.1, a number in YAML 1.2
    try:
        return _SCALARS[kind](text)
    except ValueError:
        raise ConfigError(
            f"the number {text[:40]!r} is not read", where=place, hint="write it in decimals"
        ) from None


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() in _TRUE,
    "int": integer,
    "float": real,
    "str": str,
    "timestamp": str,
}
