"""Numbers of a config that have no effect, decided by reading the config with another number.

A reader is a function of the config. Where twice a rate gives the same schedules in every group, or
twice a weight decay the same schedules and optimizers, the number has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from closedform.errors import ClosedFormError
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.document import Document, Syntax

RATE = re.compile(r"(^|.*[_-])(lr|learning[_-]?rate)$")
WEIGHT_DECAY = re.compile(r"(^|.*[_-])(weight[_-]?decay|wd)$")
WARMUP_FRACTION = re.compile(r".*warm[_-]?up[_-]?(ratio|frac|fraction|proportion|steps)$")
MINIMUM = re.compile(r"(min[_-]?lr|lr[_-]?min|eta_min|min[_-]learning[_-]rate)$")

# Readers take values of Python and gin files from their syntax trees, too.
_CHANGEABLE = (Syntax.MAPPING, Syntax.YAML, Syntax.JSON, Syntax.TOML, Syntax.ARGUMENTS)

# Names of floors, of schedules that are not the run's, and of starts, which a peak does not change.
_NOT_A_BASE = re.compile(r"min|end|final|start|init|warm|floor|scale|decay_lr")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """A number of a config."""

    path: Path
    number: float

    @property
    def name(self) -> str:
        """Its key."""
        return next((str(part) for part in reversed(self.path) if isinstance(part, str)), "")

    @property
    def text(self) -> str:
        """The path with dots."""
        return ".".join(map(str, self.path))


def settings(document: Document, pattern: re.Pattern[str]) -> Iterator[Setting]:
    """Yields the numbers of a config whose keys match a pattern."""
    yield from _numbers(document.content, (), pattern)


def base_rates(document: Document) -> list[Setting]:
    """Returns the rates other than floors and starts that a config states above 0."""
    return [
        setting
        for setting in settings(document, RATE)
        if setting.number > 0 and not _NOT_A_BASE.search(setting.name)
    ]


def without_effect(recipe: Recipe, pattern: re.Pattern[str]) -> list[Setting]:
    """Returns the numbers above 0 of a config that do not change its recipe."""
    document = recipe.document
    if document is None or document.syntax not in _CHANGEABLE or recipe.framework == "generic":
        return []
    content = _schedules if pattern is RATE else _content
    reference = content(recipe)
    if content(_read(document, recipe)) != reference:
        return []  # the recipe was changed after it was read
    idle = []
    for setting in settings(document, pattern):
        if setting.number <= 0 or _NOT_A_BASE.search(setting.name):
            continue
        alternative = with_double(recipe, document, setting)
        # A number that is refused is checked, and so it is read.
        if alternative is not None and content(alternative) == reference:
            idle.append(setting)
    return idle


def with_double(recipe: Recipe, document: Document, setting: Setting) -> Recipe | None:
    """Returns the recipe with twice a number of its document; None where that is refused."""
    try:
        return _read(replace(document, content=_edit(document.content, setting)), recipe)
    except ClosedFormError:
        return None


def _read(document: Document, recipe: Recipe) -> Recipe:
    facts = replace(recipe.facts, group=None)
    return load_recipe(document, recipe.framework, recipe.version or None, facts)


def _schedules(recipe: Recipe) -> Mapping[str, Any]:
    """The schedules of the groups, by their names."""
    return {
        group.name: {
            key: (str(schedule.expr), str(schedule.hyperparameters))
            for key, schedule in group.schedules.items()
        }
        for group in recipe.param_groups
    }


def _content(recipe: Recipe) -> Mapping[str, Any]:
    """The schedules and the optimizers of the groups, by their names."""
    optimizers = {
        group.name: {key: str(value) for key, value in group.optimizer.arguments.items()}
        for group in recipe.param_groups
    }
    return {"schedules": _schedules(recipe), "optimizers": optimizers}


def _numbers(node: Any, path: Path, pattern: re.Pattern[str]) -> Iterator[Setting]:
    if isinstance(node, Mapping):
        for key, child in node.items():
            yield from _numbers(child, (*path, key), pattern)
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from _numbers(child, (*path, index), pattern)
    elif path:
        setting = Setting(path, 0.0)
        number = _number(node)
        if number is not None and pattern.fullmatch(setting.name):
            yield replace(setting, number=number)


def _number(node: object) -> float | None:
    if isinstance(node, bool) or not isinstance(node, int | float | str):
        return None
    try:
        return float(node)
    except ValueError:
        return None


def _edit(content: dict[str, Any], setting: Setting) -> dict[str, Any]:
    edited_content = deepcopy(content)
    node: Any = edited_content
    for part in setting.path[:-1]:
        node = node[part]
    number = 2 * setting.number
    node[setting.path[-1]] = repr(number) if isinstance(node[setting.path[-1]], str) else number
    return edited_content
