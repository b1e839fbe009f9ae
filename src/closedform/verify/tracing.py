"""The answers of the prover to the front ends: see ``importers.python.prover``."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import sympy as sp
from flint import arb, fmpq

from closedform.effort import METER, Effort, OutOfEffort
from closedform.errors import VerificationError
from closedform.importers.python.exact import is_decimal
from closedform.importers.python.prover import ConditionRange
from closedform.language import Schedule
from closedform.language.balls import ball_precision
from closedform.language.exact import nearest_float
from closedform.language.literals import multiple_of_pi
from closedform.verify.terms import build
from closedform.verify.terms.build import FALSE, TRUE, less, less_equal, negate, rational
from closedform.verify.terms.evaluate import UndecidedError, compile_steps, holds, value
from closedform.verify.terms.fractions import bits, simplest_between
from closedform.verify.terms.limits import FOREVER, LIMITS
from closedform.verify.terms.partition import Segment, Segments, partition
from closedform.verify.terms.sympy_io import CLOCK, term
from closedform.verify.terms.tree import RELATIONS, Op, Term, fold, symbols, walk

_ULPS = 2
"""A float that was computed is at most so many units in the last place from the exact number."""
_FEW_BITS = 34
"""Of 2**51 relative distances: one float in 2**17 is near a fraction of so few bits by accident."""
_MOST_PARTS = 8
"""A condition that changes more often becomes a part of the expression."""
_LEVELS = 16
_LISTED_STEPS = 4096
"""Steps that are evaluated one by one: 20 to 40 us each, and a search for a proof takes 1 s."""
_BITS = 128
_FEWEST_BITS = 64
"""Of a ball whose middle is taken for its value."""
_MOST_NODES = 400
"""Nodes of a term that is compiled; others are evaluated node by node."""
_MOST_LEVELS = 60
"""Nodes within one another of such a term, whose functions call one another."""


Truths = tuple[int, int, bool | None]
"""The first step, the step after the last one, and the truth between them; None if unknown."""


class TracingProver:
    """Answers the questions of a front end, each exactly or not at all."""

    def __init__(self) -> None:
        self._numbers: dict[sp.Expr, _Steps] = {}
        self._witnesses: dict[tuple[Term, ...], _Witnesses] = {}
        self._work = LIMITS.questions_work

    def __reduce__(self) -> tuple[type[TracingProver], tuple[()]]:
        """A schedule keeps its prover: what that remembers is not pickled."""
        return TracingProver, ()

    def exact(self, number: float) -> sp.Expr:
        """Returns the number that a float was rounded from.

        In this order: the decimal that it prints as, if that is short; the simplest fraction within
        two units in the last place, if it is simple; a multiple of pi as in ``literal``, or the
        root of a simple fraction; the decimal that it prints as.

        Example:
            >>> from math import pi
            >>> prover = TracingProver()
            >>> [prover.exact(x) for x in (0.1, 3e-4 / 10, 1 / 3, pi / 4, 512**-0.5)]
            [1/10, 3/100000, 1/3, pi/4, sqrt(2)/32]
        """
        return _exact(float(number))  # NumPy's float64 is a float with another repr

    def split(self, condition: sp.Basic, first: int, end: int | None) -> list[ConditionRange]:
        """Returns the parts of ``[first, end)`` on which a condition in t has one truth.

        The truth is None where it is not decided, and everywhere if it changes too often.

        Args:
            condition: A comparison or a junction of comparisons, in only t.
            first: The first step.
            end: The step after the last one; None if there is no last one.
        """
        last = FOREVER if end is None else end
        truths: list[Truths] = []
        for part in self._partition(term(condition), first, last, _LEVELS):
            truths += self._decide_segment(part)
        truths = _merge_truths(truths)
        if len(truths) > _MOST_PARTS:
            truths = [(first, last, None)]
        return [ConditionRange(a, None if b >= FOREVER else b, truth) for a, b, truth in truths]

    def _decide_segment(self, part: Segment[int]) -> list[Truths]:
        """The truths on a segment on which no comparison changes that moves in one direction."""
        statement = part.term(CLOCK)
        if statement in (TRUE, FALSE):
            return [(part.first, part.end, statement == TRUE)]
        if part.end - part.first <= _LISTED_STEPS:
            test = _Steps.of(statement)
            joined_truths: list[Truths] = []
            for step in range(part.first, part.end):
                joined_truths = _merge_truths([*joined_truths, (step, step + 1, test.truth(step))])
                if len(joined_truths) > _MOST_PARTS:
                    break
            else:
                return joined_truths
        upper_bound = (less(CLOCK, rational(part.end)),) if part.end < FOREVER else ()
        borders = (less_equal(rational(part.first), CLOCK), *upper_bound)
        for goal, truth in ((statement, True), (negate(statement), False)):
            if self._is_proved(goal, borders):
                return [(part.first, part.end, truth)]
        return [(part.first, part.end, None)]

    def decide(self, condition: sp.Basic, facts: Sequence[sp.Basic]) -> bool | None:
        """Returns the truth of a condition wherever the facts hold; None if it is not decided."""
        try:
            statement, assumptions = term(condition), tuple(map(term, facts))
            for truth in self._possible_truths(statement, assumptions):
                if self._is_proved(statement if truth else negate(statement), assumptions):
                    return truth
            return None
        except VerificationError:
            return None

    def _is_proved(self, goal: Term, facts: tuple[Term, ...]) -> bool:
        if self._is_proved_by_parts(build.either(*map(negate, facts), goal)):
            return True
        # Most functions ask nothing that needs a search: the prover takes 0.3 s to import.
        from closedform.verify.prover import prove

        with self._question() as effort:
            return prove(goal, assume=facts, effort=effort).proved

    def _is_proved_by_parts(self, statement: Term) -> bool:
        """Whether a statement about the clock is decided at all steps, and is true.

        The steps that the segments leave open, where remainders decide, are evaluated if they are
        few.
        """
        if not _is_of_clock(statement):
            return False
        parts = [part for part in self._partition(statement, 0, FOREVER) if part.value != TRUE]
        if sum(part.end - part.first for part in parts) > _LISTED_STEPS:
            return False
        test = _Steps.of(statement)
        return all(test.truth(step) for part in parts for step in range(part.first, part.end))

    def _partition(
        self, statement: Term, first: int, end: int, levels: int = LIMITS.floor_levels
    ) -> Segments[int]:
        """The segments of a statement; open ones by the operands of minima and maxima."""
        segments: Segments[int] = []
        for part in partition(statement, CLOCK, first, end, levels=levels):
            goal, parts = part.term(CLOCK), [part]
            with contextlib.suppress(OutOfEffort), self._question() as effort, effort.enforce():
                simpler = build.rewrite(goal, _without_extrema)
                if simpler != goal:
                    parts = partition(simpler, CLOCK, part.first, part.end, levels=levels)
            # An open segment keeps the statement as it was written, with fewer comparisons.
            segments += [s if s.value in (TRUE, FALSE) else replace(s, value=goal) for s in parts]
        return segments

    @contextlib.contextmanager
    def _question(self) -> Iterator[Effort]:
        """The effort for one question, whose work is charged to that of the trace."""
        # The work of all questions of a trace is bounded, not only that of each.
        effort, work_before = Effort.of(min(LIMITS.question_work, self._work)), METER.work
        try:
            yield effort
        finally:
            self._work = max(0, self._work - (METER.work - work_before))

    def _possible_truths(self, statement: Term, facts: tuple[Term, ...]) -> list[bool]:
        """The truths that a statement may have wherever some facts hold: what is worth a proof.

        Most questions about the clock have both, at steps that are quick to find.
        """
        if not _is_of_clock(statement) or not all(map(_is_of_clock, facts)):
            return [True, False]
        truths = _Steps.of(statement)
        possible = {truths.truth(step) for step in self._witnesses_of(facts).steps}
        # Both truths were seen: no proof of either can succeed.
        if possible >= {True, False}:
            return []
        return [truth for truth in (True, False) if truth in possible] or [True, False]

    def _witnesses_of(self, facts: tuple[Term, ...]) -> _Witnesses:
        """Steps at which facts hold: of those at which all but the last do, and later ones."""
        if facts not in self._witnesses:
            self._witnesses[facts] = (
                self._witnesses_of(facts[:-1]).restrict_to(facts) if facts else _Witnesses.all()
            )
        return self._witnesses[facts]

    def value(self, expr: sp.Expr, step: int) -> float | None:
        """Returns the value of an expression in t at a step; None if it has none."""
        number = self._numbers.get(expr)
        if number is None:
            number = self._numbers[expr] = _Steps.of(term(expr))
        result = number.value(step)
        if isinstance(result, fmpq):
            nearest = nearest_float(result)
            return nearest if math.isfinite(nearest) else None
        return float(result.mid()) if isinstance(result, arb) and result.is_finite() else None

    def follows(
        self, expr: sp.Expr, first: sp.Expr, previous: sp.Symbol, following: sp.Expr
    ) -> bool | None:
        """Returns whether a recurrence has the values of an expression in t, by induction."""
        from closedform.verify.claims.induction import recurrence

        def step(before: sp.Expr, _: sp.Expr) -> sp.Expr:
            return following.xreplace({previous: before})

        effort = Effort.of(LIMITS.induction_work)
        try:
            verdict = recurrence(Schedule(expr), first, step).judge(effort)
        except VerificationError:
            return None
        return verdict.proved if verdict.proved or verdict.refuted else None


@dataclass(frozen=True, slots=True)
class _Steps:
    """A term in only the clock at many steps.

    Args:
        term: The term.
        size: The units of work of one evaluation.
        function: The term as a function of the step; None if it is large.
    """

    term: Term
    size: int
    function: Callable[[int], Any] | None

    @classmethod
    def of(cls, root: Term) -> _Steps:
        """Compiles a term, if it is small."""
        depths: dict[Term, int] = {}
        for node in walk(root):
            depths[node] = 1 + max((depths[arg] for arg in node.args), default=0)
        size = len(depths)
        if size > _MOST_NODES or depths[root] > _MOST_LEVELS:
            return cls(root, size, None)
        with ball_precision(_BITS):
            return cls(root, size, compile_steps(root, CLOCK))

    def value(self, step: int) -> Any:
        """Returns the value at a step, as ``evaluate.value`` does."""
        if self.function is not None:
            METER.work += self.size
            with contextlib.suppress(UndecidedError, ArithmeticError), ball_precision(_BITS):
                result = self.function(step)
                if isinstance(result, fmpq) or result.rel_accuracy_bits() >= _FEWEST_BITS:
                    return result
        return value(self.term, {CLOCK.value.name: fmpq(step)})

    def truth(self, step: int) -> bool | None:
        """Returns the truth at a step; None if it has none, or it is not decided."""
        if self.function is not None:
            METER.work += self.size
            with contextlib.suppress(UndecidedError, ArithmeticError), ball_precision(_BITS):
                return bool(self.function(step))
        truth = holds(self.term, {CLOCK.value.name: fmpq(step)})
        return truth if isinstance(truth, bool) else None


@dataclass(frozen=True, slots=True)
class _Witnesses:
    """Steps at which some facts hold.

    Args:
        steps: The steps.
        following: The first step that was not looked at.
        remaining: How many steps may still be looked at.
    """

    steps: Sequence[int]
    following: int
    remaining: int

    @classmethod
    def all(cls) -> _Witnesses:
        """The steps of no facts."""
        return cls(range(LIMITS.witnesses), LIMITS.witnesses, LIMITS.witness_steps)

    def restrict_to(self, facts: Sequence[Term]) -> _Witnesses:
        """Returns steps for all facts: of these, which are for all but the last, and later ones."""
        tests = [_Steps.of(fact) for fact in facts]
        steps = [step for step in self.steps if tests[-1].truth(step)]
        if len(steps) >= LIMITS.few_witnesses:
            return _Witnesses(steps, self.following, self.remaining)
        # Few are left: later steps are tested, from the first that the bounds in the facts allow.
        step = max([self.following, *map(_least_step, facts)])
        end = step + self.remaining
        while step < end and len(steps) < LIMITS.witnesses:
            if all(test.truth(step) for test in tests):
                steps.append(step)
            step += 1
        return _Witnesses(steps, step, end - step)


def _least_step(fact: Term) -> int:
    """The least step at which a fact that bounds the clock from below holds; else 0."""
    is_bound = fact.op is Op.LESS_EQUAL and fact.args[1] == CLOCK
    return int(fact.args[0].value.ceil()) if is_bound and build.is_rational(fact.args[0]) else 0


def _is_of_clock(statement: Term) -> bool:
    return set(symbols(statement)) <= {CLOCK.value.name}


@functools.lru_cache(maxsize=4096)  # a table has its entries in each run
def _exact(number: float) -> sp.Expr:
    if number == 0 or is_decimal(number):
        return sp.Rational(repr(number))
    width = fmpq(*math.ulp(number).as_integer_ratio()) * _ULPS
    middle = fmpq(*number.as_integer_ratio())
    low, high = middle - width, middle + width
    simplest = simplest_between(low, high)
    if bits(simplest) <= _FEW_BITS:
        return _rational(simplest)
    multiple = multiple_of_pi(*sorted(abs(Fraction(int(x.p), int(x.q))) for x in (low, high)))
    if multiple is not None:
        return multiple * sp.pi if number > 0 else -multiple * sp.pi
    # 1 / sqrt(512), as of attention scales and inverse square root schedules.
    square = simplest_between(*sorted((low * low, high * high)))
    if bits(square) <= _FEW_BITS:
        root = sp.sqrt(_rational(square))
        return root if number > 0 else -root
    return sp.Rational(repr(number))


def _rational(number: fmpq) -> sp.Rational:
    return sp.Rational(int(number.p), int(number.q))


def _merge_truths(parts: Sequence[Truths]) -> list[Truths]:
    joined_truths: list[Truths] = []
    for first, end, truth in parts:
        if joined_truths and joined_truths[-1][2] is truth:
            joined_truths[-1] = (joined_truths[-1][0], end, truth)
        else:
            joined_truths.append((first, end, truth))
    return joined_truths


def _without_extrema(statement: Term) -> Term:
    """A comparison of minima and maxima as comparisons of their operands, each made once."""
    is_extreme = [side.op in _EXTREMA for side in statement.args]
    if statement.op not in RELATIONS or not any(is_extreme):
        return statement
    if statement.op is Op.EQUAL:
        pairs = (statement.args, statement.args[::-1])
        return build.both(*(_without_extrema(less_equal(*pair)) for pair in pairs))
    place = is_extreme.index(True)
    sides = list(statement.args)

    def compare(node: Term, truths: list[Term]) -> Term:
        if node.op in _EXTREMA:
            # min(a, b) < c where a < c or b < c; c < min(a, b) where c < a and c < b.
            is_any = (node.op is Op.MINIMUM) == (place == 0)
            return (build.either if is_any else build.both)(*truths)
        sides[place] = node
        return _without_extrema(build.rebuild(statement, tuple(sides)))

    return fold(sides[place], compare)


_EXTREMA = frozenset({Op.MINIMUM, Op.MAXIMUM})
