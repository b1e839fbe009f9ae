"""Schedules and rules in words: the steps at which they change and the values there."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import sympy as sp

from closedform import markup
from closedform.errors import ClosedFormError
from closedform.language.boundaries import boundaries
from closedform.language.exact import to_float
from closedform.language.printing import text

if TYPE_CHECKING:
    from closedform.language.schedule import Schedule
    from closedform.language.update_rule import UpdateRule

_MOST_VALUES = 5
_MOST_MARKS = 10


def summarize(schedule: Schedule, horizon: int | None) -> str:
    """Returns a schedule in one line: its number, or its name and values where it changes.

    Example:
        >>> from closedform.schedules import constant, cosine, linear
        >>> summarize(linear(0, 1, 10).then(cosine(1, 0, 90)), 100), summarize(constant(0.1), None)
        ('sequential: 0 → 1 → 0', '0.1')
    """
    if schedule.open:
        return f"{schedule.name}, with {', '.join(map(str, schedule.open))} open"
    marks = [mark for mark in boundaries(schedule.bound) if horizon is None or mark < horizon]
    end = [] if horizon is None else [horizon]
    steps = sorted({0, *marks, *end})
    try:
        values = [_decimal(schedule.exact(step)) for step in steps]
    except ClosedFormError:
        return schedule.name
    changes = [value for value, _ in itertools.groupby(values)]
    if len(changes) == 1 and not marks:
        return changes[0]
    if len(changes) > _MOST_VALUES:
        changes = [*changes[: _MOST_VALUES - 2], "…", changes[-1]]
    return f"{schedule.name}: {' → '.join(changes)}"


def title(schedule: Schedule) -> str:
    """Returns the name of a schedule and its length."""
    if schedule.length is None:
        return schedule.name
    return f"{schedule.name}, {int(schedule.length):,} step{'s' * (schedule.length != 1)}"


def assignments(values: Mapping[str, sp.Expr | Schedule | None]) -> str:
    """Returns hyperparameters with their values: "open" for None, the name of a schedule."""
    return ", ".join(f"{name} = {_in_words(values[name])}" for name in sorted(values))


def _in_words(value: sp.Expr | Schedule | None) -> str:
    if value is None:
        return "open"
    return _decimal(value) if isinstance(value, sp.Expr) else value.name


def rule_as_text(rule: UpdateRule) -> str:
    """Returns the name, the hyperparameters and the formulas of an update rule.

    Example:
        >>> from closedform.optimizers import sgd
        >>> print(rule_as_text(sgd(0.1)))
        sgd
          lr = 0.1
          next param = -grad*lr + param
    """
    values = assignments(rule.hyperparameters)
    formulas = [
        *(f"{name} = {text(expr)}" for name, expr in rule.definitions.items()),
        *(f"next {name} = {text(expr)}" for name, expr in rule.expressions().items()),
        *(f"next {name} (of the model) = {text(s.next)}" for name, s in rule.shared.items()),
    ]
    lines = [*([values] if values else []), *formulas]
    return "\n".join([rule.name, *(f"  {line}" for line in lines)])


def values_at_marks(schedule: Schedule) -> list[tuple[str, str]]:
    """Returns the first step, those at which the formula changes and the end, with their values.

    There are none where a hyperparameter is open; of many, the middle ones are left out.
    """
    if schedule.open:
        return []
    ends = (schedule.length, schedule.last_step)
    marks = sorted({0, *boundaries(schedule.bound), *(int(end) for end in ends if end is not None)})
    if schedule.last_step is not None:
        marks = [mark for mark in marks if mark <= schedule.last_step]
    rows = [(f"t = {mark:,}", _value(schedule, mark)) for mark in marks]
    if len(rows) <= _MOST_MARKS:
        return rows
    return [*rows[: _MOST_MARKS - 2], ("…", "…"), rows[-1]]


def as_text(schedule: Schedule) -> str:
    """Returns name, length, hyperparameters, and the values where the formula changes.

    Example:
        >>> from closedform.schedules import linear
        >>> print(as_text(linear(0, 1e-3, 20)))
        linear, 20 steps
          end = 0.001, start = 0, steps = 20
          t = 0   0
          t = 20  0.001
    """
    rows = values_at_marks(schedule)
    width = max((len(mark) for mark, _ in rows), default=0)
    values = assignments(schedule.assignments)
    return "\n".join(
        [
            title(schedule),
            *([f"  {values}"] if values else []),
            *(f"  {mark:<{width}}  {value}" for mark, value in rows),
        ]
    )


def as_html(schedule: Schedule, picture: str = "") -> str:
    """Returns the same as HTML, with the formula.

    Args:
        schedule: The schedule.
        picture: An element with its curve.
    """
    return markup.block(
        title(schedule),
        markup.formula(schedule.latex()),
        markup.paragraph(assignments(schedule.assignments)),
        picture,
        markup.table(values_at_marks(schedule)),
    )


def rule_as_html(rule: UpdateRule, picture: str = "") -> str:
    """Returns name, hyperparameters and formulas of an update rule as HTML.

    Args:
        rule: The rule.
        picture: An element with the curves of its schedules.
    """
    _, *lines = rule_as_text(rule).splitlines()
    formulas = lines[1:] if rule.hyperparameters else lines
    return markup.block(
        rule.name,
        markup.paragraph(assignments(rule.hyperparameters)),
        picture,
        markup.code(line.strip() for line in formulas),
    )


def _value(schedule: Schedule, step: int) -> str:
    try:
        return _decimal(schedule.exact(step))
    except ClosedFormError:
        return "no value"


def _decimal(number: sp.Expr) -> str:
    try:
        return f"{to_float(number):.6g}"
    except OverflowError:
        return str(sp.N(number, 6))
