"""Statements about only the clock, as of schedules with bound hyperparameters.

``terms.partition`` splits the steps where comparisons of linear forms change. On each segment the
rest is decided by the first of these that can:

1. **evaluation**: a constant, or a single step, exactly;
2. **monotone**: a difference of known direction (``trend``), where it is least; or its range;
3. **identity**, for equalities;
4. **interval arithmetic**: the segment is halved until the sign is known everywhere. This proves
   statements that hold with room to spare, never a bound that is attained between two ends;
5. the **escalation** of tactics, with the ends of the segment as facts;
6. **every step**, one by one, where there are few.

The segments cover all steps, so a statement is proved if all of them are; a step at which it is
false, exactly, refutes it. A last segment without end has no last step: there a falling difference
must be shown by the escalation, or by its range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from flint import arb, ctx, fmpq

from closedform.effort import Effort, OutOfEffort
from closedform.verify.identity.canonical import is_zero
from closedform.verify.identity.equality import fold_period
from closedform.verify.tactics.cases import Sequent, TooManyCases
from closedform.verify.tactics.escalation import EVALUATION, IDENTITY, escalate
from closedform.verify.terms.build import TRUE, less_equal, rational, subtract
from closedform.verify.terms.evaluate import Undefined, holds, value
from closedform.verify.terms.facts import NON_NEGATIVE, STRICT, Direction
from closedform.verify.terms.limits import FOREVER, LIMITS
from closedform.verify.terms.partition import Segment, partition
from closedform.verify.terms.tree import RELATIONS, Op, Sign, Term, walk
from closedform.verify.terms.trend import trend

MONOTONE = "monotone on segments"
INTERVALS = "interval arithmetic"
EVERY_STEP = "every step"
SEGMENTS = "segments of steps"
PERIOD = "one period"


@dataclass(slots=True)
class Walkthrough:
    """The result of deciding a statement segment by segment.

    Args:
        tactics: The tactics that proved a segment, in the order of first use.
        counterexample: A step at which the statement is false or undefined.
        open: A segment that was not decided.
    """

    tactics: dict[str, None] = field(default_factory=dict)
    counterexample: int | None = None
    open: Segment[int] | None = None

    @property
    def is_proved(self) -> bool:
        """Whether every segment is proved."""
        return self.counterexample is None and self.open is None


def walk_through(statement: Term, clock: Term, first: int, effort: Effort) -> Walkthrough:
    """Decides a statement on all steps from ``first`` on.

    Args:
        statement: A truth in no symbol but the clock.
        clock: An integer symbol.
        first: The first step.
        effort: The work that it may do.

    Raises:
        OutOfEffort: Its effort is used up.
    """
    result = Walkthrough()
    decider = _Decider(clock, result, effort)
    pending = [(Segment(first, FOREVER, statement), 0)]
    while pending:
        effort.check()
        segment, depth = pending.pop()
        parts = decider.subdivide(segment)
        if depth < LIMITS.split_depth and parts != [segment]:
            if len(parts) > 1:
                result.tactics[SEGMENTS] = None
            pending += [(part, depth + 1) for part in reversed(parts)]
            continue
        if not all(decider.is_proved(part) for part in parts):
            return result
    return result


class _Decider:
    """Decides statements on single segments, and notes how."""

    def __init__(self, clock: Term, result: Walkthrough, effort: Effort) -> None:
        self._clock = clock
        self._result = result
        self._effort = effort

    def subdivide(self, segment: Segment[int]) -> list[Segment[int]]:
        """The segments on which no branch of a statement changes."""
        return partition(
            segment.term(self._clock),
            self._clock,
            segment.first,
            segment.end,
            levels=LIMITS.split_levels,
            check=self._effort.check,
        )

    def is_proved(self, segment: Segment[int]) -> bool:
        """Whether a segment is proved; else a counterexample or the segment is noted."""
        statement = segment.term(self._clock)
        if statement == TRUE:
            self._result.tactics[EVALUATION] = None
            return True
        for step in _probes(segment):
            if self._is_false(statement, step):
                self._result.counterexample = step
                return False
        tactics = self._tactics(segment)
        if tactics is None:
            if self._result.counterexample is None:
                self._result.open = segment
            return False
        self._result.tactics.update(dict.fromkeys(tactics))
        return True

    def _is_false(self, statement: Term, step: int) -> bool:
        truth = holds(statement, {self._clock.value.name: fmpq(step)})
        return truth is False or isinstance(truth, Undefined)

    def _tactics(self, segment: Segment[int]) -> tuple[str, ...] | None:
        """The tactics that prove a segment, or None."""
        # Cheap tactics first; z3 and single steps last.
        quick = self._quick(segment)
        if quick is not None:
            return quick
        statement = segment.term(self._clock)
        if statement.op is Op.AND:
            parts = [self._tactics(replace(segment, value=part)) for part in statement.args]
            if any(part is None for part in parts):
                return None
            return tuple(tactic for part in parts for tactic in part or ())
        period = self._by_period(segment)
        if period is not None:
            return period
        for tactic in (self._by_intervals, self._by_escalation, self._by_steps):
            names = tactic(segment)
            if names is not None or self._result.counterexample is not None:
                return names
        return None

    def _quick(self, segment: Segment[int]) -> tuple[str, ...] | None:
        """Evaluation, identity and monotony, and any part of a disjunction by them."""
        statement = segment.term(self._clock)
        if statement == TRUE:
            return (EVALUATION,)
        is_constant = self._clock not in walk(statement)
        if (segment.first == segment.last or is_constant) and self._holds(statement, segment.first):
            return (EVALUATION,)
        if statement.op is Op.OR:
            for part in statement.args:
                names = self._quick(replace(segment, value=part))
                if names is not None:
                    return names
            return None
        if statement.op in (Op.EQUAL, Op.LESS_EQUAL) and self._is_identity(segment):
            return (IDENTITY,)
        return (MONOTONE,) if self._is_monotone(segment) else None

    def _holds(self, statement: Term, step: int) -> bool:
        return holds(statement, {self._clock.value.name: fmpq(step)}) is True

    def _is_identity(self, segment: Segment[int]) -> bool:
        difference = subtract(*segment.term(self._clock).args)
        if not is_zero(difference):
            return False
        # An identity holds where both sides are defined, which a trend shows on the whole segment.
        return trend(difference, self._clock, segment.first, segment.last) is not None

    def _is_monotone(self, segment: Segment[int]) -> bool:
        """Whether the difference has the right sign where it is least, or by its bounds."""
        statement = segment.term(self._clock)
        relation = statement.args[0] if statement.op is Op.NOT else statement
        if relation.op not in RELATIONS:
            return False
        left, right = relation.args
        change = trend(subtract(right, left), self._clock, segment.first, segment.last)
        if change is None:
            return False
        match statement.op:
            case Op.LESS:
                is_positive = change.sign is Sign.POSITIVE
                return is_positive or self._at_least_end(segment, change.direction)
            case Op.LESS_EQUAL:
                is_positive = change.sign in NON_NEGATIVE
                return is_positive or self._at_least_end(segment, change.direction)
            case Op.NOT:
                return change.sign in STRICT
            case _:
                return bool(change.range.low == 0) and bool(change.range.high == 0)

    def _at_least_end(self, segment: Segment[int], direction: Direction) -> bool:
        """Whether the relation holds at the end of the segment at which its difference is least."""
        statement = segment.term(self._clock)
        if direction in (Direction.INCREASING, Direction.CONSTANT):
            return self._holds(statement, segment.first)
        # Without a last step, a falling difference has no least value.
        falls = direction is Direction.DECREASING and segment.end != FOREVER
        return falls and self._holds(statement, segment.last)

    def _by_period(self, segment: Segment[int]) -> tuple[str, ...] | None:
        """The statement on one period of its floors, where all periods are alike."""
        periodic = fold_period(segment.term(self._clock), self._clock)
        if periodic is None:
            return None
        statement, period = periodic
        inner = walk_segment(Segment(0, period, statement), self._clock, self._effort)
        if inner.counterexample is not None:
            step = inner.counterexample
            # The first step of the segment with this place in the period.
            step += -((step - segment.first) // period) * period
            if step <= segment.last:
                self._result.counterexample = step
            return None
        return (PERIOD, *inner.tactics) if inner.is_proved else None

    def _by_intervals(self, segment: Segment[int]) -> tuple[str, ...] | None:
        statement = segment.term(self._clock)
        relation = statement.args[0] if statement.op is Op.NOT else statement
        if relation.op not in RELATIONS or statement.op is Op.EQUAL or segment.end == FOREVER:
            return None
        difference = subtract(relation.args[1], relation.args[0])
        pending = [(segment.first, segment.last)]
        for _ in range(LIMITS.segment_intervals):
            if not pending:
                return (INTERVALS,)
            self._effort.check()
            first, last = pending.pop()
            if self._is_clear(statement, difference, first, last):
                continue
            if last - first < 2:
                if not all(self._holds(statement, step) for step in (first, last)):
                    return None
                continue
            middle = (first + last) // 2
            pending += [(first, middle), (middle + 1, last)]
        return None

    def _is_clear(self, statement: Term, difference: Term, first: int, last: int) -> bool:
        """Whether interval arithmetic shows the relation on all numbers between two steps."""
        range_of_difference = value(
            difference, {self._clock.value.name: _ball(first, last)}, precision=64
        )
        if not isinstance(range_of_difference, fmpq | arb):
            return False
        if statement.op is Op.NOT:
            return bool(range_of_difference != 0)
        return bool(range_of_difference > 0) or (
            statement.op is Op.LESS_EQUAL and bool(range_of_difference >= 0)
        )

    def _by_escalation(self, segment: Segment[int]) -> tuple[str, ...] | None:
        facts = [less_equal(rational(segment.first), self._clock)]
        if segment.end != FOREVER:
            facts.append(less_equal(self._clock, rational(segment.last)))
        sequent = Sequent(tuple(facts), segment.term(self._clock), {})
        try:
            escalation = escalate(sequent, self._effort.portion(LIMITS.escalation_work))
        except TooManyCases:
            return None
        except OutOfEffort:
            self._effort.check()
            return None
        return tuple(escalation.tactics) if escalation.is_proved else None

    def _by_steps(self, segment: Segment[int]) -> tuple[str, ...] | None:
        if segment.end - segment.first > LIMITS.segment_steps:
            return None
        statement = segment.term(self._clock)
        for step in range(segment.first, segment.end):
            self._effort.check()
            truth = holds(statement, {self._clock.value.name: fmpq(step)})
            if truth is False or isinstance(truth, Undefined):
                self._result.counterexample = step
            if truth is not True:
                return None
        return (EVERY_STEP,)


def walk_segment(segment: Segment[int], clock: Term, effort: Effort) -> Walkthrough:
    """Decides a statement on one segment, split again where that helps."""
    result = Walkthrough()
    decider = _Decider(clock, result, effort)
    for part in decider.subdivide(segment):
        if not decider.is_proved(part):
            break
    return result


def _probes(segment: Segment[int]) -> Iterator[int]:
    """Steps at which a false statement is likely false: ends, neighbours, the middle."""
    last = segment.first + 1000 if segment.last == FOREVER else segment.last
    middle = (segment.first + last) // 2
    steps = (segment.first, last, middle, segment.first + 1, last - 1)
    yield from dict.fromkeys(step for step in steps if segment.first <= step <= last)


def _ball(first: int, last: int) -> arb:
    """The ball that holds all numbers between two steps."""
    with ctx.workprec(128):
        return arb(fmpq(first + last, 2), fmpq(last - first, 2))
