"""Configs in tests, as texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from closedform.recipes import Recipe, load_recipe
from closedform.recipes.document import document_of


def read(text: str, facts: Mapping[str, Any] | None = None, suffix: str = ".args") -> Recipe:
    """The recipe of a config of a framework that is recognized."""
    return load_recipe(document_of(text, suffix, f"config{suffix}"), facts=facts)


def written(text: str, folder: Path) -> Path:
    """The path of a Python file with this text."""
    path = folder / "experiment.py"
    path.write_text(text, encoding="utf-8")
    return path
