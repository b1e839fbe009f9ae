"""Configs in tests, as texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from closedform.recipes import Recipe, load_recipe
from closedform.recipes.document import document_of


def read_recipe(text: str, facts: Mapping[str, Any] | None = None, suffix: str = ".args") -> Recipe:
    """The recipe of a config of a framework that is recognized."""
    return load_recipe(document_of(text, suffix, f"config{suffix}"), facts=facts)


def write_experiment(text: str, folder: Path) -> Path:
    """Writes the text to a Python file; returns its path."""
    path = folder / "experiment.py"
    path.write_text(text, encoding="utf-8")
    return path
