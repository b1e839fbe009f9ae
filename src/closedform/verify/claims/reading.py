"""Schedules as the prover reads them, and the code shared by claims about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import VerificationError
from closedform.language import Schedule, exact_number, t
from closedform.language.printing import text
from closedform.language.symbols import rationalize
from closedform.verify.claims.core import Claim, Goal, all_defined
from closedform.verify.claims.statements import as_texts
from closedform.verify.terms.build import (
    FALSE,
    TRUE,
    ZERO,
    both,
    equal,
    floor,
    less_equal,
    own_symbol,
    substitute,
)
from closedform.verify.terms.sympy_io import CLOCK, term, to_sympy, value_term
from closedform.verify.terms.tree import Sign, Term, symbols, walk

LATER = own_symbol("t'", integer=True, sign=Sign.NONNEGATIVE)
"""A second step in claims that compare two."""

Condition = Any
"""A SymPy condition, a term of the prover, or True for everywhere."""


@dataclass(frozen=True, slots=True)
class ScheduleReading:
    """A schedule as the prover reads it.

    Attributes:
        schedule: The schedule.
        value: Its value at ``t``, known hyperparameters as numbers.
        assume: What its domain and the claim assume of hyperparameters.
        where: The condition on ``t`` under which it is asked about; true for everywhere.
        steps: The condition on ``t`` that its domain declares: the steps at which it has a value.
    """

    schedule: Schedule
    value: Term
    assume: tuple[Term, ...]
    where: Term = TRUE
    steps: Term = TRUE

    def read(self, expr: Any) -> Term:
        """Returns the term of a number, an expression or a condition about the schedule."""
        return read_about(self.schedule, expr)

    @property
    def given(self) -> tuple[Term, ...]:
        """The conditions on the step as premises; none where they hold everywhere.

        What is asked about another step, too, has them at that step, too (``given_at``).
        """
        return tuple(fact for fact in (self.steps, self.where) if fact != TRUE)

    def given_at(self, step: Term) -> tuple[Term, ...]:
        """Returns the conditions on the step at another step."""
        return tuple(substitute(fact, {CLOCK: step}) for fact in self.given)

    def later(self, root: Term) -> Term:
        """Returns a term at the later of two steps."""
        return substitute(root, {CLOCK: LATER})

    def step_goals(self, step: Term, name: str) -> tuple[Goal, ...]:
        """Returns the goals that a term is a step of the schedule: an integer in its domain."""
        whole = equal(step, floor(step))
        goals = [Goal(f"{name} is an integer", whole, shown=(("it", step),))]
        goals.append(Goal(f"{name} is at least 0", less_equal(ZERO, step), shown=(("it", step),)))
        if self.steps != TRUE:
            inside = substitute(self.steps, {CLOCK: step})
            text = f"{name} is in the domain {condition_text(self.steps)}"
            goals.append(Goal(text, inside, shown=(("it", step),)))
        return (*all_defined(step), *goals)


def read_schedule(
    schedule: Schedule, assume: Iterable[Condition] = (), where: Condition = True
) -> ScheduleReading:
    """Returns the schedule as the prover reads it, with its domain as premises.

    What ``assume`` says of the step is part of the condition ``where``, which the claim states.

    Raises:
        VerificationError: It is not a Schedule, or the prover cannot read its expression.
    """
    if not isinstance(schedule, Schedule):
        raise VerificationError(
            f"this claim is about a Schedule, got {type(schedule).__name__}",
            hint="make one with closedform.Schedule or closedform.schedules",
        )
    domain = [read_about(schedule, rule) for rule in schedule.domain]
    assumptions = [read_about(schedule, rule) for rule in assume]
    facts = (fact for fact in (*domain, *assumptions) if not _is_about_steps(fact))
    return ScheduleReading(
        schedule,
        value_term(schedule),
        tuple(fact for fact in dict.fromkeys(facts) if fact != TRUE),
        both(read_about(schedule, where), *filter(_is_about_steps, assumptions)),
        both(*filter(_is_about_steps, domain)),
    )


def _is_about_steps(fact: Term) -> bool:
    return CLOCK in walk(fact)


def read_about(schedule: Schedule, expr: Any) -> Term:
    """Returns the term of an expression in which the schedule's names mean its hyperparameters.

    Raises:
        VerificationError: It is a string, or an expression that the prover has no meaning for.
    """
    if isinstance(expr, Term):
        return expr
    if isinstance(expr, bool):
        return TRUE if expr else FALSE
    if not isinstance(expr, sp.Basic):
        if isinstance(expr, str):
            raise VerificationError(
                f"a claim is made of numbers and SymPy expressions, got the text {expr!r}",
                where=f"schedule {schedule.name!r}",
                hint="write it with closedform.t and closedform.expr.hyper",
            )
        return term(exact_number(expr, "a value in a claim"))
    open_by_name = {symbol.name: symbol for symbol in schedule.open}
    values_by_name = {**open_by_name, **schedule.hyperparameters}
    # By name: a user's symbol need not have the assumptions of the schedule's. Dummies are bound.
    symbols_in_expr = expr.free_symbols - expr.atoms(sp.Dummy) - {t}
    names = {s: values_by_name[s.name] for s in symbols_in_expr if s.name in values_by_name}
    return term(rationalize(expr.xreplace(names)))


def has_value(reading: ScheduleReading, *further: Term) -> tuple[Goal, ...]:
    """Returns the goals that the schedule, and other terms of a claim, have a value."""
    return tuple(
        goal
        for operand in (reading.value, *further)
        for goal in all_defined(operand, reading.given)
    )


def claim_about(
    reading: ScheduleReading,
    name: str,
    sentence: str,
    goals: Iterable[Goal],
    presumes: Iterable[Goal] = (),
    *,
    is_question: bool = False,
    **arguments: Any,
) -> Claim:
    """Returns a claim about a schedule, each goal asked under the reading's condition.

    The arguments of the claim are recorded where all of them have a text.
    """
    count = len(reading.given)
    goals_in_place = tuple(
        goal
        # Goals about two steps bring the premises of both.
        if goal.given[:count] == reading.given
        else replace(goal, given=(*reading.given, *goal.given))
        for goal in goals
    )
    condition = f" where {condition_text(reading.where)}" if reading.where != TRUE else ""
    return Claim(
        name,
        sentence + condition,
        reading.schedule,
        goals_in_place,
        tuple(presumes),
        reading.assume,
        is_question,
        _arguments_of_claim(reading, name, arguments),
    )


_WITHOUT_CONDITIONS = frozenset({"area", "ends_at", "periodic"})
"""Claims that take no condition on the steps."""


def _arguments_of_claim(
    reading: ScheduleReading, name: str, arguments: Mapping[str, Any]
) -> dict[str, str] | None:
    """The arguments of a claim and its conditions as text; None where one has none."""
    condition = both(reading.where, reading.steps, *reading.assume)
    if condition == TRUE:
        return as_texts(**arguments)
    if name in _WITHOUT_CONDITIONS or set(symbols(condition)) - {"t"}:
        return None
    return as_texts(**arguments, where=to_sympy(condition))


_LONGEST = 60


def condition_text(condition: Term) -> str:
    """Returns a condition in a line, cut where it is long."""
    line = str(condition)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def value_text(value: Any) -> str:
    """Returns a value of a claim as people wrote it."""
    return text(value) if isinstance(value, sp.Basic) else str(value)
