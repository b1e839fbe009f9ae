"""One run of a traced function: the steps for which it is valid, and what it decides.

A run begins with an interval of steps and facts that hold there. Where the function asks for the
truth of a condition, the prover splits the interval: the run goes on with the first part, the other
parts become separate runs. A condition that changes too often, or depends on hyperparameters,
is assumed to hold; another run assumes that it does not.

Invariant: the intervals and facts of the run and of the runs that it adds cover those with which
it began, and none of them overlap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

import sympy as sp
from sympy.core.relational import Relational

from closedform.effort import Effort, spend
from closedform.errors import DomainError
from closedform.importers.python.decider import Comparison, Decider
from closedform.importers.python.exact import number_of
from closedform.importers.python.number import Number, Truth
from closedform.importers.python.place import (
    NotReal,
    Place,
    Unreachable,
    Untraceable,
    current_place,
)
from closedform.importers.python.prover import Prover, interval_facts
from closedform.importers.python.tape import Tape
from closedform.importers.python.text import is_only_shown
from closedform.language import t
from closedform.language.exact import value_at


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a trace goes.

    Attributes:
        runs: Runs of the function, one for each path.
        decisions: Decisions in one run.
        splits: Splits at one line of the function.
        endless_splits: The same where the steps have no last one.
        work: Work of all runs, in units of ``closedform.effort``.
        values: Values of an index that are tried.
    """

    runs: int = 1024
    decisions: int = 20_000
    splits: int = 512
    endless_splits: int = 64
    work: int = 20_000_000
    values: int = 4096


LIMITS = Limits()

Signal = TypeVar("Signal", bound=BaseException)

# Units of work for one decision, with the arithmetic of SymPy before it.
_PER_DECISION = 300


Decision = tuple[sp.Basic, bool]
"""A condition, and whether it holds."""


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the steps on which the function is still to be run.

    Attributes:
        first: The first step.
        end: The step after the last one; None if there is no last one.
        assumptions: Decisions that are not decided by the interval, in the order of the function.
    """

    first: int
    end: int | None
    assumptions: tuple[Decision, ...] = ()

    @property
    def facts(self) -> list[sp.Basic]:
        """The decisions as conditions that hold."""
        return [
            # Assumptions keep the condition as the function asked for it; facts are what the prover
            # takes.
            condition if holds else negation(condition)
            for condition, holds in self.assumptions
        ]


class Run(Decider):
    """The runs of a function, one after the other; it begins anew for each interval of steps.

    Args:
        prover: What decides.
        symbols: The symbols of hyperparameters.
        limits: How far the trace goes.

    Attributes:
        codes: The ids of the codes of the functions that are traced.
        pending: The parts of the steps that are still to be run.
        splits: How often the runs split at each line.
        notes: What the report says.
        effort: When the trace stops.
        is_single: Whether the function computes in float32.
        stop: The signal that stopped the run: no handler of the function can take it back.
        doubt: The refusal of a run that returns a value, after an exception that is not the
            function's own.
        is_over: Whether the function has returned, so that texts are only written for errors.
    """

    def __init__(
        self, prover: Prover, symbols: frozenset[sp.Symbol], limits: Limits = LIMITS
    ) -> None:
        self.prover = prover
        self.symbols = symbols
        self.limits = limits
        self.effort = Effort.of(limits.work)
        self.codes: set[int] = set()
        self.pending: list[Task] = []
        self.splits: Counter[Place | None] = Counter()
        self.notes: dict[str, None] = {}
        self.is_single = False
        self.begin(Task(0, None))

    stop: BaseException | None
    doubt: Untraceable | None
    is_over: bool
    first: int
    end: int | None
    assumptions: list[Decision]
    tape: Tape
    _truths: dict[sp.Basic, bool]
    _decisions: int

    def begin(self, task: Task) -> None:
        """Begins a run on the steps of a task."""
        self.first = task.first
        self.end = task.end
        self.assumptions = list(task.assumptions)
        self.tape = Tape()
        self.stop = self.doubt = None
        self.is_over = False
        self._truths = {}
        self._decisions = 0
        for condition, holds in task.assumptions:
            self._note(condition, holds)

    @property
    def task(self) -> Task:
        """The steps for which what the run has done is valid."""
        return Task(self.first, self.end, tuple(self.assumptions))

    def decide(self, condition: sp.Basic, _: bool | None = None) -> bool:
        """Returns the truth of a condition on the steps of the run, which may become fewer."""
        if self.stop is not None:
            raise self.stop  # a handler of the function has caught it
        if condition in (sp.true, sp.false):
            return bool(condition)
        answer = self._truths.get(condition)
        if answer is not None:
            return answer
        self._check()
        decision = self._by_interval(condition)
        return self._by_assumption(condition) if decision is None else decision

    def certain(self, condition: sp.Basic) -> bool | None:
        """Returns the truth of a condition on all steps of the run; None if it changes."""
        if condition in (sp.true, sp.false):
            return bool(condition)
        if condition.free_symbols - {t}:
            return self.prover.decide(condition, self.facts())
        parts = self.prover.split(condition, self.first, self.end)
        return parts[0].truth if len(parts) == 1 else None

    def _by_interval(self, condition: sp.Basic) -> bool | None:
        if condition.free_symbols - {t}:
            return None
        parts = self.prover.split(condition, self.first, self.end)
        if len(parts) > 1:
            self._count_split()
            self.pending += [
                Task(part.first, part.end, tuple(self.assumptions)) for part in parts[1:]
            ]
            # The run goes on with the first part only.
            self.end = parts[0].end
        return parts[0].truth

    def _by_assumption(self, condition: sp.Basic) -> bool:
        """Assumes that an open condition holds, unless the prover knows better."""
        if self.assumptions or condition.free_symbols - {t}:
            decision = self.prover.decide(condition, self.facts())
            if decision is not None:
                self._note(condition, decision)
                return decision
        self._count_split()
        self.pending.append(Task(self.first, self.end, (*self.assumptions, (condition, False))))
        self.assumptions.append((condition, True))
        self._note(condition, True)
        return True

    def facts(self) -> list[sp.Basic]:
        """Returns all that holds in the run."""
        interval = interval_facts(t, self.first, self.end)
        return [*interval, *self.task.facts]

    def _note(self, condition: sp.Basic, holds: bool) -> None:
        for form, truth in equivalents(condition, holds):
            self._truths[form] = truth

    # --- numbers -----------------------------------------------------------------------------

    def place(self) -> Place | None:
        """Returns the line of the user's function that is running."""
        return current_place(self.codes)

    def refuse(
        self, reason: str, hint: str | None = None, place: Place | None = None
    ) -> Untraceable:
        """Returns the signal that stops the run at the line that is running.

        The run keeps it, since ``except BaseException`` of the function may catch it.
        """
        return self._stop_run(Untraceable(reason, place or self.place(), hint))

    def doubtful_error(self, reason: str) -> TypeError:
        """Returns an exception that may be raised, but not handled by the function."""
        self.doubt = Untraceable(reason, self.place(), "compute each number by itself")
        return TypeError(reason)

    def not_real(self, reason: str) -> NotReal:
        """Returns the signal of a number that is not real, where Python raises no exception."""
        return self._stop_run(NotReal(reason))

    def _stop_run(self, signal: Signal) -> Signal:
        """Returns a signal that stops the run, and keeps the first one."""
        if self.stop is None:
            self.stop = signal
        return signal

    def compare(self, kind: Comparison, left: Number, right: Number) -> bool | Truth:
        """Returns the truth of a comparison, decided where it is asked for."""
        return self.truth(kind(left.expr, right.expr, evaluate=False))

    def truth(self, condition: sp.Basic) -> bool | Truth:
        """Returns a condition as a truth; a bool where it does not depend on anything."""
        if condition in (sp.true, sp.false):
            return bool(condition)
        return Truth(self, condition) if condition.free_symbols else self.decide(condition)

    def raises(self, kind: Comparison, number: Number) -> bool:
        """Returns whether a number compares so with 0, where Python raises an exception."""
        return self.decide(kind(number.expr, 0, evaluate=False))

    def exact(self, value: float) -> sp.Expr:
        """Returns the expression of a constant."""
        if not math.isfinite(value):
            raise self.refuse(
                f"{value} in the arithmetic of a step", hint="compare with it instead"
            )
        number = number_of(value)
        return self.prover.exact(value) if number is None else number

    def fits(self, expr: sp.Expr, info: Any) -> bool | sp.Basic:
        """Returns True if a fixed width holds an integer at all steps, or the condition."""
        low, high = int(info.min), int(info.max)
        if expr.is_Integer and low <= expr <= high:
            return True
        inside = sp.And(sp.Ge(expr, low, evaluate=False), sp.Le(expr, high, evaluate=False))
        if inside in (sp.true, sp.false) or inside.free_symbols - {t} or self.first >= _FARTHEST:
            return True if inside == sp.true else inside
        end = _FARTHEST if self.end is None else min(self.end, _FARTHEST)
        parts = self.prover.split(inside, self.first, end)
        return True if len(parts) == 1 and parts[0].truth else inside

    def is_bounded(self, condition: sp.Basic) -> bool:
        """Returns whether a condition is decided at all steps of the run."""
        return self.end is not None or self.certain(condition) is not None

    def is_shown(self, frame: FrameType) -> bool:
        """Returns whether the text that a frame makes is only raised or logged."""
        return self.is_over or is_only_shown(frame, self.codes)

    def note_single(self) -> None:
        """Notes that the function computes in float32."""
        self.is_single = True

    def concrete(self, number: Number, purpose: str) -> int:
        """Returns the value of an integer, by which the steps are split.

        Args:
            number: The integer.
            purpose: Its use, for errors.
        """
        expr = number.expr
        if expr.is_Integer:
            return int(expr)
        if expr.free_symbols - {t}:
            raise self.refuse(
                f"{purpose} depends on a hyperparameter that is a symbol",
                hint="leave it out of hyper, so that it has its value",
            )
        if self.end is None and _is_unbounded(expr):
            raise self._too_many(purpose, expr)
        candidates: set[sp.Expr] = set()
        end = self.first + self.limits.values
        # Candidates are the values at the first steps: an index mostly takes all of its values
        # there.
        for step in range(self.first, end if self.end is None else min(end, self.end)):
            number = value_at(expr, {t: sp.Integer(step)})
            if number in candidates or not number.is_Integer:
                continue
            candidates.add(number)
            if self.decide(sp.Eq(expr, number, evaluate=False)):
                return int(number)
        if self._is_exhausted(expr, candidates):
            raise self._stop_run(Unreachable())
        raise self._too_many(purpose, expr)

    def _too_many(self, purpose: str, expr: sp.Expr) -> Untraceable:
        return self.refuse(
            f"{purpose} takes too many values: {expr}",
            hint="bound it, such as min(index, len(values) - 1)",
        )

    def _is_exhausted(self, expr: sp.Expr, candidates: set[sp.Expr]) -> bool:
        alternatives = sp.Or(
            *(sp.Eq(expr, number, evaluate=False) for number in candidates), evaluate=False
        )
        parts = self.prover.split(alternatives, self.first, self.end)
        if all(part.truth for part in parts):
            return True
        return self.prover.decide(alternatives, self.facts()) is True

    # --- limits ------------------------------------------------------------------------------

    def _check(self) -> None:
        self._decisions += 1
        # Work is counted and not timed: a trace stops at the same place on each machine.
        spend(_PER_DECISION)
        if self._decisions > self.limits.decisions or not self.effort.left:
            raise self.refuse(
                "the number of iterations is not bounded, or the function has too many branches",
                hint="bound the step, such as step = min(step, total), before the loop",
            )

    def _count_split(self) -> None:
        place = self.place()
        self.splits[place] += 1
        limits = self.limits
        limit = limits.splits if self.end is not None else limits.endless_splits
        if self.splits[place] > limit:
            raise self.refuse(
                f"more than {limit} cases of the step: the number of iterations is "
                "not bounded, or the table is too long",
                hint="bound the step, such as step = min(step, total); make a long table a list "
                "outside the function",
            )


def _is_unbounded(expr: sp.Expr) -> bool:
    """Whether an integer takes another value at each of some far steps."""
    try:
        values = {value_at(expr, {t: sp.Integer(10**power)}) for power in _FAR}
    except DomainError:
        return False
    return len(values) == len(_FAR)


# Powers of 10; far beyond any schedule, and below 2**53.
_FAR = (6, 9, 12, 15)
_FARTHEST = 1 << 53
"""Steps until which integers of NumPy are looked at."""


def negation(condition: sp.Basic) -> sp.Basic:
    """Returns the negation of a condition, as a comparison where it is one."""
    return condition.negated if isinstance(condition, Relational) else sp.Not(condition)


def equivalents(condition: sp.Basic, holds: bool) -> Sequence[Decision]:
    """Returns a decision in the forms in which a function may ask for it again."""
    if not isinstance(condition, Relational):
        return [(condition, holds)]
    # With evaluate=False SymPy does not bring a < b and b > a into one form.
    forms = (condition, condition.reversed)
    return [*((form, holds) for form in forms), *((form.negated, not holds) for form in forms)]
