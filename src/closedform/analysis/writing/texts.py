"""Configs as the text of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from closedform.recipes.forms import Config, literal


def render_config(config: Config, suffix: str) -> str:
    """Returns a config as the text of a file.

    Example:
        >>> print(render_config({"lr": 0.001, "train-iters": 10}, ".args"), end="")
        --lr 0.001
        --train-iters 10
    """
    match suffix:
        case ".args":
            return "".join(f"--{key} {_scalar(value)}\n" for key, value in config.items())
        case ".json":
            return json.dumps(config, indent=2) + "\n"
        case ".toml":
            return "\n".join(_toml(config))
        case ".py" | ".gin":
            return "".join(f"{key} = {literal(value)}\n" for key, value in config.items())
        case _:
            return yaml.safe_dump(dict(config), sort_keys=False)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) and not value.isidentifier() else str(value)


def _toml(config: Config) -> Iterator[str]:
    for name, section in config.items():
        yield f"[{name}]"
        yield from _toml_section(name, section)


def _toml_section(path: str, section: Config) -> Iterator[str]:
    """The values of a table, then its tables and its arrays of tables."""
    tables = {key: value for key, value in section.items() if _is_table(value)}
    for key, value in section.items():
        if key not in tables:
            yield f"{key} = {json.dumps(value)}"
    yield ""
    for key, value in tables.items():
        name = f"{path}.{key}"
        for entry in value if isinstance(value, list) else [value]:
            yield f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
            yield from _toml_section(name, entry)


def _is_table(value: Any) -> bool:
    entries = value if isinstance(value, list) else [value]
    return bool(entries) and all(isinstance(entry, Mapping) for entry in entries)
