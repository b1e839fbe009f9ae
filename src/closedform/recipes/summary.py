"""The summary of a recipe: lines for a terminal, HTML for a notebook, and plain data for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy as sp

from closedform import markup
from closedform.alignment import align_columns
from closedform.language import Schedule
from closedform.language.description import summarize as summarize_schedule

if TYPE_CHECKING:
    from closedform.recipes.clock import Clock
    from closedform.recipes.recipe import Clipping, ParamGroup, Recipe

MOST_GROUPS = 12
"""Param groups in a shortened summary: a screen has some 40 lines."""

_MOST_KEYS = 4
_PATTERNS_WIDTH = 40
_NOTE_WIDTH = 96
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A param group in a summary.

    Attributes:
        name: Its name, ``default`` for the default group.
        role: Its role.
        patterns: The patterns of its parameters.
        optimizer: The name of its optimizer.
        schedules: The description of each schedule by key; ``as default`` for an equal one.
    """

    name: str
    role: str
    patterns: tuple[str, ...]
    optimizer: str
    schedules: dict[str, str]


@dataclass(frozen=True, slots=True)
class Summary:
    """The parts of a recipe in words.

    Attributes:
        title: Its name and framework.
        options: Optimizer, updates, clock, clipping, accumulation.
        groups: Its param groups; the first one is the default group.
        notes: The known defects of the framework that concern it.
    """

    title: str
    options: dict[str, str]
    groups: tuple[GroupRow, ...]
    notes: dict[str, str]

    def lines(self, most_groups: int | None = MOST_GROUPS) -> list[str]:
        """Returns the summary as lines of text, with at most so many param groups."""
        width = max(len(name) for name in self.options)
        rows, remaining = self.groups[:most_groups], len(self.groups[most_groups or None :])
        options = [f"  {name:<{width}}  {text}" for name, text in self.options.items()]
        result = [self.title, *options, "", *align_columns(self._rows(rows))]
        if most_groups is not None and remaining:
            result.append(f"… and {_quantity(remaining, 'more param group', 'more param groups')}")
        if self.notes:
            result += ["", "notes"]
            for name, text in self.notes.items():
                result += textwrap.wrap(
                    f"{name}: {text}", _NOTE_WIDTH, initial_indent="  ", subsequent_indent="    "
                )
        return result

    def html(self, picture: str = "") -> str:
        """Returns the summary as HTML, with an element that shows its curves."""
        head, *rows = self._rows(self.groups)
        return markup.block(
            self.title,
            markup.definitions(self.options),
            picture,
            markup.table(rows, head),
            markup.definitions(self.notes),
        )

    def data(self) -> dict[str, Any]:
        """Returns the summary as plain data."""
        return {
            "title": self.title,
            "options": self.options,
            "groups": [
                {
                    "name": row.name,
                    "role": row.role,
                    "patterns": list(row.patterns),
                    "optimizer": row.optimizer,
                    "schedules": row.schedules,
                }
                for row in self.groups
            ],
            "notes": self.notes,
        }

    def _rows(self, groups: Sequence[GroupRow]) -> list[tuple[str, ...]]:
        keys = list(dict.fromkeys(key for row in groups for key in row.schedules))
        has_optimizers = len({row.optimizer for row in groups}) > 1
        title = ("group", "parameters", *keys, *(["optimizer"] if has_optimizers else []))
        return [
            title,
            *(
                (
                    row.name,
                    _shorten(", ".join(row.patterns)),
                    *(row.schedules.get(key, "") for key in keys),
                    *([row.optimizer] if has_optimizers else []),
                )
                for row in groups
            ),
        ]


def summarize(recipe: Recipe) -> Summary:
    """Returns the summary of a recipe."""
    first = recipe.param_groups[0]
    plan = first.optimizer
    arguments = ", ".join(
        f"{key}={amount_text(value)}"
        for key, value in plan.arguments.items()
        if key not in first.schedules
    )
    options = {
        "optimizer": f"{plan.name}({arguments})" if arguments else plan.name,
        "updates": "not determined" if recipe.horizon is None else f"{recipe.horizon:,}",
        "clock": _clock(recipe.clock),
        "clipping": _clipping(recipe.clipping),
    }
    if recipe.accumulation is not None:
        options["accumulation"] = _quantity(recipe.accumulation, "micro-batch", "micro-batches")
    version = f" {recipe.version}" if recipe.version else ""
    assumptions = [name for name, text in recipe.notes.items() if "assumed" in text]
    if assumptions and not recipe.version:
        version += f"; {_quantity(len(assumptions), 'assumption', 'assumptions')}: "
        version += f"{', '.join(assumptions)}"
    if recipe.guessed_by:
        version += f", guessed by {', '.join(recipe.guessed_by[:_MOST_KEYS])}"
    return Summary(
        f"{recipe.name} ({recipe.framework}{version})",
        options,
        tuple(_row(group, first, recipe.horizon) for group in recipe.param_groups),
        dict(recipe.notes),
    )


def _row(group: ParamGroup, first: ParamGroup, horizon: int | None) -> GroupRow:
    schedules = {}
    for key, schedule in group.schedules.items():
        default = first.schedules.get(key)
        # Expressions are compared, not names: scaled by 1, a schedule is the default's.
        is_default = group is not first and default is not None and default.bound == schedule.bound
        schedules[key] = f"as {_DEFAULT}" if is_default else summarize_schedule(schedule, horizon)
    name = group.name or _DEFAULT
    return GroupRow(name, str(group.role), group.patterns, group.optimizer.name, schedules)


def _clock(clock: Clock) -> str:
    unit = {"micro_batch": "micro-batches"}.get(clock.unit, f"{clock.unit}s".replace("_", " "))
    return f"{unit}, {clock.offset:+} at each update" if clock.offset else unit


def _quantity(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def _clipping(clipping: Clipping | None) -> str:
    if clipping is None:
        return "none"
    threshold = clipping.threshold
    amount = (
        summarize_schedule(threshold, None)
        if isinstance(threshold, Schedule)
        else amount_text(threshold)
    )
    return f"{clipping.kind.replace('_', ' ')} {amount}"


def amount_text(value: object) -> str:
    """Returns a value of a config, exact numbers as decimals."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(amount_text, value))})"
    return f"{float(value):g}" if isinstance(value, sp.Number) else str(value)


def _shorten(text: str) -> str:
    return text if len(text) <= _PATTERNS_WIDTH else f"{text[: _PATTERNS_WIDTH - 1]}…"
