"""Composition by substitution: schedules in a row, and products of their relative values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sympy as sp

from closedform.errors import DefinitionError, describe
from closedform.language.aliases import Steps
from closedform.language.exact import value_at
from closedform.language.integers import floor_mod
from closedform.language.lengths import with_lengths
from closedform.language.schedule import Schedule, check_schedule, whole_steps
from closedform.language.settled import values_in
from closedform.language.symbols import t


@with_lengths
def sequential(
    schedules: Sequence[Schedule],
    milestones: Sequence[Steps] | None = None,
    *,
    name: str = "sequential",
) -> Schedule:
    r"""Returns schedules one after the other, each in its own local time.

    .. math:: f(t) = f_i(t - m_{i-1}) \quad\text{for}\quad m_{i-1} \le t < m_i, \; m_{-1} = 0

    A hyperparameter that members share under one name and value stays one; one that differs gets
    the number of its member: ``steps_1``, ``steps_2``.

    Args:
        schedules: At least one.
        milestones: The steps at which the next one begins, strictly increasing, one fewer than
            schedules; the running sum of the lengths if not given.
        name: Name of the result.

    Raises:
        DefinitionError: No schedules, wrong number of milestones, milestones out of order or not
            integers > 0, or a schedule but the last has no length where milestones are not given.

    Example:
        >>> from closedform.schedules import constant, linear
        >>> lr = sequential([linear(0, 1, 4), linear(1, 0, 8)])
        >>> [lr.exact(step) for step in (0, 2, 4, 8, 12)]
        [0, 1/2, 1, 1/2, 0]
        >>> lr.bind(steps_2=4).exact(6)
        1/2

    Source: ``SequentialLR`` of torch 2.13 and of cerebras.pytorch 2.10, whose members are not in
    local time where they hold others; ``join_schedules`` of optax.
    """
    members, hyperparameters = _merge("sequential", schedules)
    if milestones is None:
        marks = _milestones_from_lengths(members)
    elif not isinstance(milestones, Sequence) or isinstance(milestones, str):
        raise DefinitionError(
            f"milestones must be a list of steps, got {type(milestones).__name__} {milestones!r}",
            hint="give a list of integers, or None for the lengths of the schedules",
        )
    else:
        marks = _checked_milestones(milestones, len(members) - 1)
    starts = (sp.Integer(0), *marks)
    local = [
        member.expr.xreplace({t: t - start}) for member, start in zip(members, starts, strict=True)
    ]
    # Conditions t < mark in rising order: the first one that holds is the member, as in
    # bisect_right of SequentialLR.
    branches = [(expr, t < mark) for expr, mark in zip(local, marks, strict=False)]
    expr = sp.Piecewise(*branches, (local[-1], True)) if branches else local[0]
    last = members[-1].duration
    length = None if last is None else starts[-1] + last
    domain = _joined_domain(members, expr)
    return Schedule.of(
        expr, values_in(expr, hyperparameters), name=name, length=length, domain=domain
    )


@with_lengths
def chained(schedules: Sequence[Schedule], *, name: str = "chained") -> Schedule:
    r"""Returns the first schedule times each other one relative to its first value.

    .. math:: f(t) = f_0(t) \prod_{i \ge 1} f_i(t) / f_i(0)

    Args:
        schedules: At least one; only the first keeps its size.
        name: Name of the result.

    Raises:
        DefinitionError: No schedules, or a later one begins at 0.

    Example:
        >>> from closedform.schedules import constant, linear
        >>> chained([constant(3), linear(2, 1, 10)]).exact(5)
        9/4

    Source: ``ChainedLR`` of cerebras.pytorch 2.10; ``ChainedScheduler`` of torch 2.13 for members
    that are factors of the base value.
    """
    members, hyperparameters = _merge("chained", schedules)
    expr = members[0].expr
    for index, (member, schedule) in enumerate(zip(members[1:], schedules[1:], strict=True), 1):
        # Open hyperparameters stand for themselves, so the quotient stays symbolic.
        initial = value_at(schedule.bound, {t: sp.Integer(0), **{s: s for s in schedule.open}})
        if initial == 0:
            raise DefinitionError(
                "a chained schedule is divided by its first value, which is 0",
                where=f"member {index}, {schedule.name!r}",
                hint="put it first, or start it above 0",
            )
        expr = expr * member.expr / initial
    durations = [member.duration for member in members if member.duration is not None]
    length = sp.Max(*durations) if durations else None
    domain = _joined_domain(members, expr)
    return Schedule.of(
        expr, values_in(expr, hyperparameters), name=name, length=length, domain=domain
    )


@with_lengths
def product(schedules: Sequence[Schedule], *, name: str = "product") -> Schedule:
    r"""Returns the product of schedules.

    .. math:: f(t) = \prod_i f_i(t)

    Args:
        schedules: At least one; one may be the value, the others factors of it.
        name: Name of the result.

    Raises:
        DefinitionError: No schedules.

    Example:
        >>> from closedform.schedules import inverse_square_root, linear
        >>> lr = product([linear(0, 1, 100), inverse_square_root(1, warmup=100)])
        >>> [lr.exact(step) for step in (0, 50, 100, 400)]
        [0, 1/20, 1/10, 1/20]

    Source: the factors of ``create_learning_rate_scheduler`` of T5X.
    """
    return _combine_schedules("product", schedules, lambda exprs: sp.Mul(*exprs), name)


@with_lengths
def total(schedules: Sequence[Schedule], *, name: str = "sum") -> Schedule:
    r"""Returns the sum of schedules at each step; ``a + b`` calls it.

    .. math:: f(t) = \sum_i f_i(t)

    Args:
        schedules: At least one.
        name: Name of the result.

    Raises:
        DefinitionError: No schedules.

    Example:
        >>> from closedform.schedules import constant, linear
        >>> total([linear(0, 1, 10), constant(3)]).exact(5)
        7/2
    """
    return _combine_schedules("total", schedules, lambda exprs: sp.Add(*exprs), name)


@with_lengths
def maximum(schedules: Sequence[Schedule], *, name: str = "maximum") -> Schedule:
    r"""Returns the largest value of schedules at each step.

    .. math:: f(t) = \max_i f_i(t)

    Args:
        schedules: At least one.
        name: Name of the result.

    Raises:
        DefinitionError: No schedules.

    Example:
        >>> from closedform.schedules import constant, linear
        >>> lr = maximum([linear(1, 0, 100), constant(0.1)])
        >>> [lr.exact(step) for step in (0, 50, 90, 100)]
        [1, 1/2, 1/10, 1/10]

    Source: ``max_scheduler`` of OLMo.
    """
    return _combine_schedules("maximum", schedules, lambda exprs: sp.Max(*exprs), name)


def _combine_schedules(
    composition: str,
    schedules: Sequence[Schedule],
    combine: Callable[[Sequence[sp.Expr]], sp.Expr],
    name: str,
) -> Schedule:
    """One function of the values of all schedules at each step."""
    members, hyperparameters = _merge(composition, schedules)
    expr = combine([member.expr for member in members])
    durations = [member.duration for member in members if member.duration is not None]
    # A member without a length may change for ever, so that the combination has none either.
    length = sp.Max(*durations) if len(durations) == len(members) else None
    domain = _joined_domain(members, expr)
    return Schedule.of(
        expr, values_in(expr, hyperparameters), name=name, length=length, domain=domain
    )


@with_lengths
def repeat(schedule: Schedule, every: Steps | None = None, *, name: str = "repeat") -> Schedule:
    r"""Returns a schedule that starts again every so many steps, for ever.

    .. math:: g(t) = f(t \bmod n)

    Args:
        schedule: The schedule f.
        every: The number of steps n of a period, an integer above 0; the length of f if not given.
        name: Name of the result.

    Raises:
        DefinitionError: ``every`` is not an integer above 0, or f has no length where it is not
            given.

    Example:
        >>> from closedform.schedules import linear
        >>> saw = repeat(linear(0, 1, 4))
        >>> [saw.exact(step) for step in (0, 3, 4, 6)]
        [0, 3/4, 0, 1/2]

    Source: the cycles of ``CyclicLR`` and of timm's schedulers, for any shape.
    """
    period = schedule.duration if every is None else whole_steps(every, "every")
    if period is None:
        raise DefinitionError(
            "a schedule without a length needs the number of steps after which it repeats",
            where=f"schedule {schedule.name!r}",
            hint="give every",
        )
    if period == 0 or schedule.length == 0:
        raise DefinitionError("every must be above 0, got 0", where=f"schedule {schedule.name!r}")
    expr = schedule.expr.xreplace({t: floor_mod(t, period)})
    values = values_in(expr, schedule.hyperparameters)
    domain = [rule for rule in schedule.domain if t not in rule.free_symbols]
    return Schedule.of(expr, values, name=name, domain=domain)


@with_lengths
def splice(schedule: Schedule, at: Steps, new: Schedule, *, name: str = "splice") -> Schedule:
    r"""Returns a schedule that follows another one from step ``at`` on, at the same step.

    .. math:: g(t) = \begin{cases} f(t) & t < n \\ h(t) & t \ge n \end{cases}

    It changes the horizon of a run that has begun: history stays as it was. ``then`` is what
    begins the other one at its own step 0.

    Args:
        schedule: The schedule f until then.
        at: The step n from which the new one holds, an integer >= 0.
        new: The schedule h, in the global time of the run.
        name: Name of the result.

    Raises:
        DefinitionError: ``at`` is not an integer >= 0.

    Example:
        >>> from closedform.schedules import linear
        >>> longer = splice(linear(1, 0, 10), 5, linear(1, 0, 20))
        >>> [longer.exact(step) for step in (4, 5, 10, 20)]
        [3/5, 3/4, 1/2, 0]

    Source: none; it describes a run whose number of steps is changed while it is under way.
    """
    mark = whole_steps(at, "at")
    members, hyperparameters = _merge("splice", (schedule, new))
    expr = sp.Piecewise((members[0].expr, t < mark), (members[1].expr, True))
    if mark == 0:
        expr = members[1].expr
    length = None if members[1].duration is None else sp.Max(members[1].duration, mark)
    domain = _joined_domain(members, expr)
    return Schedule.of(
        expr, values_in(expr, hyperparameters), name=name, length=length, domain=domain
    )


class _Member(NamedTuple):
    """A schedule with its hyperparameters renamed where others use the name for another value."""

    name: str
    expr: sp.Expr
    duration: sp.Expr | None
    domain: tuple[sp.Basic, ...]


def _merge(
    composition: str, schedules: Sequence[Schedule]
) -> tuple[list[_Member], dict[str, sp.Expr]]:
    """The members, and the values of all their hyperparameters."""
    if not isinstance(schedules, Sequence) or isinstance(schedules, str):
        raise DefinitionError(
            f"{composition} takes a list of Schedules, got {describe(schedules)}",
            hint=f"give a list: {composition}([first, second])",
        )
    for index, schedule in enumerate(schedules):
        check_schedule(schedule, f"{composition} takes Schedules", f"member {index}")
    if not schedules:
        raise DefinitionError(f"{composition} needs at least one schedule, got none")
    # The value belongs to the meaning: two members with steps=10 share it, with steps=10 and 20
    # not, and one with an open steps neither.
    meanings: dict[str, set[tuple[sp.Symbol, sp.Expr | None]]] = {}
    for schedule in schedules:
        for symbol in schedule.expr.free_symbols - {t}:
            value = schedule.hyperparameters.get(symbol.name)
            meanings.setdefault(symbol.name, set()).add((symbol, value))
    members: list[_Member] = []
    values: dict[str, sp.Expr] = {}
    for number, schedule in enumerate(schedules, 1):
        new_symbols = {}
        for symbol in schedule.expr.free_symbols - {t}:
            key = symbol.name
            if len(meanings[key]) > 1:
                # steps_1 may itself be a hyperparameter.
                key = _free_name(f"{symbol.name}_{number}", meanings)
                new_symbols[symbol] = sp.Symbol(key, **symbol.assumptions0)
            if symbol.name in schedule.hyperparameters:
                values[key] = schedule.hyperparameters[symbol.name]
        duration = None if schedule.duration is None else schedule.duration.xreplace(new_symbols)
        domain = tuple(condition.xreplace(new_symbols) for condition in schedule.domain)
        members.append(
            _Member(schedule.name, schedule.expr.xreplace(new_symbols), duration, domain)
        )
    return members, values


def _free_name(name: str, names_in_use: Mapping[str, Any]) -> str:
    while name in names_in_use:
        name = f"{name}_"
    return name


def _joined_domain(members: Sequence[_Member], expr: sp.Expr) -> list[sp.Basic]:
    """The conditions of all members on hyperparameters of the expression, each once.

    The last step of a member says nothing of the composition, whose clock is another one.
    """
    conditions = dict.fromkeys(rule for member in members for rule in member.domain)
    symbols = expr.free_symbols - {t}
    return [rule for rule in conditions if rule.free_symbols <= symbols]


def _checked_milestones(milestones: Sequence[Steps], expected: int) -> tuple[sp.Integer, ...]:
    if len(milestones) != expected:
        raise DefinitionError(
            f"milestones must be one fewer than schedules: expected {expected}, "
            f"got {len(milestones)}"
        )
    marks = tuple(whole_steps(mark, "milestone") for mark in milestones)
    for earlier, later in zip((sp.Integer(0), *marks), marks, strict=False):
        if later <= earlier:
            raise DefinitionError(
                f"milestones must be above 0 and strictly increasing, got {later} after {earlier}",
                hint="sort them, and drop duplicates",
            )
    return marks


def _milestones_from_lengths(members: Sequence[_Member]) -> tuple[sp.Expr, ...]:
    marks: list[sp.Expr] = []
    for index, member in enumerate(members[:-1]):
        if member.duration is None:
            raise DefinitionError(
                "a schedule without a length needs a milestone after it",
                where=f"member {index}, {member.name!r}",
                hint="give milestones, or a length to the schedule",
            )
        marks.append((marks[-1] if marks else sp.Integer(0)) + member.duration)
    return tuple(marks)
