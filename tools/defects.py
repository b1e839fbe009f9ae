"""Defects of frameworks, each with a counterexample: a config, and the schedule that it suggests.

``tests/frameworks/NAME/defects.py`` has those of a framework; tools/build_frameworks.py computes
the differences and writes a page for each framework. A defect is a difference between the values
and those that a reader of the config's keys, or of the framework's documentation, expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

from closedform.frameworks import FRAMEWORKS
from closedform.language import Schedule
from tools.one_recipe import TESTS, name_of


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of a framework.

    Attributes:
        config: The text of the config.
        expected: The schedule that the config suggests.
        suggests: The reason, as the rest of a sentence that begins with "Expected:".
        facts: The facts of the run.
        name: The name of the defect in the framework's table, where it is one of those. For a
            departure with a documented formula, ``expected`` is the documented schedule.
        title: The defect, as a sentence; empty for the text of the framework's table.
        until: The updates that are compared; by default the whole run.
        suffix: The ending of the config's file.
        version: The version of the framework; the newest if not given.
        framework: The framework, which the folder names.
    """

    config: str
    expected: Callable[[], Schedule]
    suggests: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    title: str = ""
    until: int | None = None
    suffix: str = ".yaml"
    version: str | None = None
    framework: str = ""

    @property
    def heading(self) -> str:
        """The title, or the text of the framework's table."""
        if self.title:
            return self.title.rstrip(".")
        text = FRAMEWORKS[self.framework].defects[self.name].text
        is_word = text.partition(" ")[0].isalpha()
        return text[0].upper() + text[1:] if is_word else text


@cache
def defects() -> tuple[Defect, ...]:
    """Returns the defects of all frameworks: those of each ``tests/frameworks/*/defects.py``."""
    examples: list[Defect] = []
    for path in sorted(TESTS.glob("*/defects.py")):
        module = import_module(f"tests.frameworks.{path.parent.name}.defects")
        examples += (replace(example, framework=name_of(path)) for example in module.DEFECTS)
    return tuple(examples)
