"""Configs as the text of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
        for key, value in section.items():
            yield f"{key} = {json.dumps(value)}"
        yield ""
