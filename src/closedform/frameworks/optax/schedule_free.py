"""The rates of ``optax.contrib.schedule_free``: of its optimizer, and of its averaging weight.

The weight of update t is the largest rate so far to a power. optax counts from 1 there, and the
optimizer inside from 0: the weight of an update has the rate of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language import Schedule, t
from closedform.recipes import kit
from closedform.schedules import constant

DEFECTS: Mapping[str, kit.Note[...]] = {
    "schedule-free-count": kit.Defect(
        "the count of schedule_free starts at 1, that of the optimizer inside at 0: the averaging "
        "weight uses the rate of the next update (optax#1744)",
        "optax/contrib/_schedule_free.py:150",
        documented="the largest rate so far, which is that of the update where it rises",
        classes=("schedule_free",),
    )
}

_ARGUMENTS = (
    kit.Parameter("learning_rate", kit.REQUIRED),
    *kit.parameters(base_optimizer=None, b1=0.9),
)
_KEYS = ("lr", "base_lr", "weighting_lr")


_MARKS: Mapping[str, tuple[str, ...]] = {
    "constant_schedule": (),
    "linear_schedule": ("transition_begin", "transition_steps"),
    "cosine_decay_schedule": ("decay_steps",),
    "warmup_constant_schedule": ("warmup_steps",),
    "warmup_cosine_decay_schedule": ("warmup_steps", "decay_steps"),
}
"""The arguments at which a schedule may turn; before, between and after them it is monotone."""


def _largest(name: str, given: Mapping[str, Any], curve: Schedule, first: int) -> sp.Expr:
    """The largest value from step ``first`` to step ``t + first`` of a curve with one peak."""
    if name not in _MARKS:
        raise DefinitionError(
            f"the largest rate of {name} so far has no formula here", hint=nearest(name, _MARKS)
        )
    marks = [0, *(int(given.get(argument, 0)) for argument in _MARKS[name])]
    if name == "linear_schedule":
        marks = [0, marks[1] + marks[2]]
    values = [curve.exact(mark) for mark in marks]
    place = values.index(sp.Max(*values))
    rising, falling = values[: place + 1], values[place:]
    has_one_peak = rising == sorted(rising) and falling == sorted(falling, reverse=True)
    if not has_one_peak or min(values) < 0:
        raise DefinitionError(f"the rate of {name} must not be negative, nor rise after a fall")
    return curve.bound.xreplace({t: sp.Min(t + first, max(marks[place], first))})


def _build(given: Mapping[str, Any], context: kit.Context) -> Schedule:
    if context.key not in _KEYS:
        raise DefinitionError(
            f"schedule_free has no {context.key!r}", hint=nearest(context.key, _KEYS)
        )
    arguments = kit.fill(_ARGUMENTS, given["schedule_free"], context.where)
    rate = arguments["learning_rate"]
    if not isinstance(rate, Mapping):
        return constant(kit.checks.number(rate, "learning_rate", context.where))
    if len(rate) != 1:
        raise DefinitionError(f"learning_rate must be a number or a schedule, got {rate!r:.60}")
    ((name, keywords),) = rate.items()
    curve = kit.build_schedule(name, keywords, context)
    if context.key != "weighting_lr":
        return curve
    first = 1 if context.as_implemented else 0
    return Schedule(_largest(name, keywords, curve, first), name="schedule_free")


ENTRY = kit.ScheduleEntry("schedule_free", (), kit.parameters(schedule_free=kit.REQUIRED), _build)
