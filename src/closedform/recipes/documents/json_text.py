"""JSON and TOML to plain data."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.limits import MAX_DEPTH, checked_keys

_KEY = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DOTTED = re.compile(rf"{_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{MAX_DEPTH},}}+")
"""A key of more parts than are read."""


def parsed_json(text: str, source: str) -> Any:
    """Returns the content of a JSON file.

    Raises:
        ConfigError: It is not a JSON file, or a key occurs twice.

    The content of an empty file is None.
    """

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise ConfigError(f"the key {key!r} occurs twice", where=source)
            result[key] = value
        return result

    # json.loads refuses an empty file, which YAML and TOML read as one without keys.
    if not text.strip():
        return None
    try:
        return json.loads(text, object_pairs_hook=mapping)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"this is not JSON: {error}", where=source) from error


def parsed_toml(text: str, source: str) -> Any:
    """Returns the content of a TOML file; dates and times become texts.

    Raises:
        ConfigError: It is not a TOML file.
    """
    # tomllib keeps every prefix of a dotted key: the memory is the square of its parts.
    for key in _DOTTED.finditer(text):
        checked_keys(key.group(), source)
    try:
        return _without_dates(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"this is not TOML: {error}", where=source) from error


def _without_dates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_dates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_dates(item) for item in value]
    # Dates and times of TOML are objects; no framework reads one.
    return value if isinstance(value, str | int | float | bool) else str(value)
