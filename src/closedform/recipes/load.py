"""The recipe of a training config, whichever framework it is written for."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from closedform.language import Schedule
from closedform.recipes.cerebras import reader
from closedform.recipes.document import read_document
from closedform.recipes.recipe import Recipe


def load_recipe(source: str | PathLike[str] | Mapping[str, Any]) -> Recipe:
    """Returns the recipe of a config.

    Where a scheduler drives a key, it takes the place of the optimizer's own number. A learning
    rate without a scheduler is a constant one.

    Args:
        source: The path of a YAML file, or a mapping of its form, which is not changed.

    Raises:
        ConfigError: The file cannot be read, a class or argument is unknown, or a value has no
            meaning. An optimizer that the library does not have is refused; ``load_schedules``
            reads such a config.

    Example:
        >>> recipe = load_recipe(
        ...     {
        ...         "trainer": {
        ...             "init": {
        ...                 "optimizer": {"AdamW": {"weight_decay": 0.1}},
        ...                 "schedulers": [
        ...                     {
        ...                         "LinearLR": {
        ...                             "initial_learning_rate": 0.0,
        ...                             "end_learning_rate": 1e-3,
        ...                             "total_iters": 10,
        ...                         }
        ...                     }
        ...                 ],
        ...                 "loop": {"max_steps": 100},
        ...             }
        ...         }
        ...     }
        ... )
        >>> recipe.optimizer.name, recipe.schedules["lr"].exact(5), recipe.max_steps
        ('adamw', 1/2000, 100)
    """
    document = read_document(source)
    name = "recipe" if isinstance(source, Mapping) else Path(source).stem
    return reader.read_recipe(document, name)


def load_schedules(
    source: str | PathLike[str] | Mapping[str, Any],
) -> tuple[dict[str, Schedule], int | None]:
    """Returns the schedules of a config by key, and its number of steps; no optimizer is built.

    Raises:
        ConfigError: As ``load_recipe``, but for the optimizer.
    """
    return reader.read_schedules(read_document(source))
