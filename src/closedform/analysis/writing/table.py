"""The values of a recipe as a table: CSV with a row for each update of the run."""

from __future__ import annotations

import csv
import io

import numpy as np

from closedform.errors import ArgumentError
from closedform.recipes.recipe import Recipe

MOST_ROWS = 1_000_000
"""The longest run whose values are written out."""


def table_text(recipe: Recipe, total: int) -> str:
    """Returns the values of the default group in each update: ``step``, and a column for each key.

    Numbers have the digits that a float64 needs, so that the table is read back without a loss.

    Raises:
        ArgumentError: The run has more than :data:`MOST_ROWS` updates.

    Example:
        >>> from closedform.recipes import load_recipe
        >>> flags = {"lr": 0.5, "train-iters": 2, "lr-decay-style": "constant"}
        >>> recipe = load_recipe(flags, framework="megatron", facts={"global_batch_size": 1})
        >>> print(table_text(recipe, 2), end="")
        step,lr,weight_decay
        0,0.5,0.01
        1,0.5,0.01
    """
    if total > MOST_ROWS:
        raise ArgumentError(
            f"a table must have at most {MOST_ROWS} updates, got {total}",
            hint="write an extension, or give a smaller total",
        )
    steps = np.arange(total)
    columns = {
        key: np.asarray(schedule(steps), dtype=np.float64)
        for key, schedule in recipe.schedules.items()
    }
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["step", *columns])
    for step in range(total):
        writer.writerow([step, *(repr(float(column[step])) for column in columns.values())])
    return file.getvalue()
