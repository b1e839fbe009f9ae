"""Statements about the clock alone, as of schedules with bound hyperparameters.

``runs`` splits the steps where comparisons of lines change. On each run what is left is decided by
the first of these that can:

1. **evaluation**: a constant, or a single step, exactly;
2. **monotone**: a difference that goes one way (``monotone``), where it is least; or its bounds;
3. **identity**, for equalities;
4. **balls**: the run is halved until interval arithmetic shows the sign everywhere. It proves what
   holds with room to spare, never a bound that is attained between two ends;
5. the **ladder**, with the run's ends as facts;
6. **every step**, one by one, where they are few.

All runs proved is the statement proved, for they cover all steps; a step that is found false,
exactly, refutes it. A last run without end has no step to judge at infinity: there a difference
that falls must be shown by the ladder, or by its bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from flint import arb, ctx, fmpq

from closedform.verify.identity.canonical import is_zero
from closedform.verify.identity.periods import fold_period
from closedform.verify.tactics.cases import Sequent, TooManyCases
from closedform.verify.tactics.escalation import EVALUATION, IDENTITY, climb
from closedform.verify.tactics.monotone import Way, course
from closedform.verify.tactics.runs import FOREVER, Run, split_into_runs
from closedform.verify.terms.build import TRUE, less_equal, rational, subtract
from closedform.verify.terms.evaluate import Undefined, holds, value
from closedform.verify.terms.limits import Deadline, OutOfTime
from closedform.verify.terms.tree import RELATIONS, Op, Term, walk

_DEEPEST = 6
_LADDER_SECONDS = 2.0
_MOST_STEPS = 20_000
_MOST_BALLS = 400

MONOTONE = "monotone on runs"
BALLS = "interval arithmetic"
EVERY_STEP = "every step"
RUNS = "runs of steps"
PERIOD = "one period"


@dataclass(slots=True)
class Walkthrough:
    """What became of the runs of a statement.

    Args:
        tactics: What proved them, in the order of first use.
        counterexample: A step at which the statement is false or undefined.
        open: A run that was not decided.
    """

    tactics: list[str] = field(default_factory=list)
    counterexample: int | None = None
    open: Run | None = None

    @property
    def is_proved(self) -> bool:
        """Whether every run is proved."""
        return self.counterexample is None and self.open is None

    def used(self, *tactics: str) -> None:
        """Notes tactics that proved a run."""
        for tactic in tactics:
            if tactic not in self.tactics:
                self.tactics.append(tactic)


def walk_through(statement: Term, clock: Term, first: int, deadline: Deadline) -> Walkthrough:
    """Returns what is decided of a statement on all steps from ``first`` on.

    Args:
        statement: A truth in no symbol but the clock.
        clock: An integer symbol.
        first: The first step.
        deadline: When to stop.

    Raises:
        OutOfTime: The moment has passed.
    """
    result = Walkthrough()
    decider = _Decider(clock, result, deadline)
    pending = [(Run(first, FOREVER, statement), 0)]
    while pending:
        deadline.check()
        run, depth = pending.pop()
        parts = split_into_runs(run.statement, clock, run.first, run.last, deadline.check)
        runs = list(parts)
        is_new = len(runs) > 1 or runs[0].statement != run.statement
        if is_new and depth < _DEEPEST:
            if len(runs) > 1:
                result.used(RUNS)
            pending += [(each, depth + 1) for each in reversed(runs)]
            continue
        if not all(decider.is_proved(each) for each in runs):
            return result
    return result


class _Decider:
    """Decides statements on single runs, and notes how."""

    def __init__(self, clock: Term, result: Walkthrough, deadline: Deadline) -> None:
        self._clock = clock
        self._result = result
        self._deadline = deadline

    def is_proved(self, run: Run) -> bool:
        """Whether a run is proved; else a counterexample or the run is noted."""
        if run.statement == TRUE:
            self._result.used(EVALUATION)
            return True
        for step in _probes(run):
            if self._is_false(run.statement, step):
                self._result.counterexample = step
                return False
        tactics = self._tactics(run)
        if tactics is None:
            if self._result.counterexample is None:
                self._result.open = run
            return False
        self._result.used(*tactics)
        return True

    def _is_false(self, statement: Term, step: int) -> bool:
        found = holds(statement, {self._clock.value.name: fmpq(step)})
        return found is False or isinstance(found, Undefined)

    # --- one run -----------------------------------------------------------------------------

    def _tactics(self, run: Run) -> tuple[str, ...] | None:
        """What proves a run, or None."""
        quick = self._quick(run)
        if quick is not None:
            return quick
        if run.statement.op is Op.AND:
            parts = [self._tactics(Run(run.first, run.last, part)) for part in run.statement.args]
            if any(part is None for part in parts):
                return None
            return tuple(tactic for part in parts for tactic in part or ())
        period = self._by_period(run)
        if period is not None:
            return period
        for tactic in (self._by_balls, self._by_ladder, self._by_steps):
            found = tactic(run)
            if found is not None or self._result.counterexample is not None:
                return found
        return None

    def _quick(self, run: Run) -> tuple[str, ...] | None:
        """Evaluation, identity and monotony, and any part of a disjunction by them."""
        statement = run.statement
        if statement == TRUE:
            return (EVALUATION,)
        is_constant = self._clock not in walk(statement)
        if (run.first == run.last or is_constant) and self._holds(statement, run.first):
            return (EVALUATION,)
        if statement.op is Op.OR:
            for part in statement.args:
                found = self._quick(Run(run.first, run.last, part))
                if found is not None:
                    return found
            return None
        if statement.op in (Op.EQUAL, Op.LESS_EQUAL) and self._is_identity(run):
            return (IDENTITY,)
        return (MONOTONE,) if self._is_monotone(run) else None

    def _holds(self, statement: Term, step: int) -> bool:
        return holds(statement, {self._clock.value.name: fmpq(step)}) is True

    def _is_identity(self, run: Run) -> bool:
        difference = subtract(*run.statement.args)
        return (
            is_zero(difference) and course(difference, self._clock, run.first, run.last) is not None
        )

    def _is_monotone(self, run: Run) -> bool:
        """Whether the difference has the right sign where it is least, or by its bounds."""
        relation = run.statement.args[0] if run.statement.op is Op.NOT else run.statement
        if relation.op not in RELATIONS:
            return False
        left, right = relation.args
        found = course(subtract(right, left), self._clock, run.first, run.last)
        if found is None:
            return False
        match run.statement.op:
            case Op.LESS:
                return found.strict_sign == 1 or self._at_least_end(run, found.way)
            case Op.LESS_EQUAL:
                return found.sign == 1 or self._at_least_end(run, found.way)
            case Op.NOT:
                return found.strict_sign is not None
            case _:
                return found.low is not None and found.low == 0 and bool(found.high == 0)

    def _at_least_end(self, run: Run, way: Way) -> bool:
        """Whether the relation holds at the end of the run at which its difference is least."""
        if way in (Way.UP, Way.FLAT):
            return self._holds(run.statement, run.first)
        return way is Way.DOWN and run.last != FOREVER and self._holds(run.statement, run.last)

    def _by_period(self, run: Run) -> tuple[str, ...] | None:
        """The statement on one period of its floors, where all periods are alike."""
        folded = fold_period(run.statement, self._clock)
        if folded is None:
            return None
        statement, period = folded
        inner = walk_run(Run(0, period - 1, statement), self._clock, self._deadline)
        if inner.counterexample is not None:
            step = inner.counterexample
            step += -((step - run.first) // period) * period
            if step <= run.last:
                self._result.counterexample = step
            return None
        return (PERIOD, *inner.tactics) if inner.is_proved else None

    def _by_balls(self, run: Run) -> tuple[str, ...] | None:
        relation = run.statement.args[0] if run.statement.op is Op.NOT else run.statement
        if relation.op not in RELATIONS or run.last == FOREVER or run.statement.op is Op.EQUAL:
            return None
        difference = subtract(relation.args[1], relation.args[0])
        pending = [(run.first, run.last)]
        for _ in range(_MOST_BALLS):
            if not pending:
                return (BALLS,)
            self._deadline.check()
            first, last = pending.pop()
            if self._is_clear(run.statement, difference, first, last):
                continue
            if last - first < 2:
                if not all(self._holds(run.statement, step) for step in (first, last)):
                    return None
                continue
            middle = (first + last) // 2
            pending += [(first, middle), (middle + 1, last)]
        return None

    def _is_clear(self, statement: Term, difference: Term, first: int, last: int) -> bool:
        """Whether interval arithmetic shows the relation on all numbers between two steps."""
        found = value(difference, {self._clock.value.name: _ball(first, last)}, precision=64)
        if not isinstance(found, fmpq | arb):
            return False
        if statement.op is Op.NOT:
            return bool(found != 0)
        return bool(found > 0) or (statement.op is Op.LESS_EQUAL and bool(found >= 0))

    def _by_ladder(self, run: Run) -> tuple[str, ...] | None:
        facts = [less_equal(rational(run.first), self._clock)]
        if run.last != FOREVER:
            facts.append(less_equal(self._clock, rational(run.last)))
        sequent = Sequent(tuple(facts), run.statement, {})
        try:
            found = climb(sequent, self._deadline.earlier(_LADDER_SECONDS))
        except TooManyCases:
            return None
        except OutOfTime:
            self._deadline.check()
            return None
        return tuple(found.tactics) if found.is_proved else None

    def _by_steps(self, run: Run) -> tuple[str, ...] | None:
        if run.last - run.first > _MOST_STEPS:
            return None
        for step in range(run.first, run.last + 1):
            self._deadline.check()
            found = holds(run.statement, {self._clock.value.name: fmpq(step)})
            if found is False or isinstance(found, Undefined):
                self._result.counterexample = step
            if found is not True:
                return None
        return (EVERY_STEP,)


def walk_run(run: Run, clock: Term, deadline: Deadline) -> Walkthrough:
    """Returns what is decided of a statement on one run, split again where that helps."""
    result = Walkthrough()
    decider = _Decider(clock, result, deadline)
    for each in split_into_runs(run.statement, clock, run.first, run.last, deadline.check):
        if not decider.is_proved(each):
            break
    return result


def _probes(run: Run) -> Iterator[int]:
    """Steps at which a false statement is likely false: ends, neighbours, the middle."""
    last = run.first + 1000 if run.last == FOREVER else run.last
    middle = (run.first + last) // 2
    steps = (run.first, last, middle, run.first + 1, last - 1)
    yield from dict.fromkeys(step for step in steps if run.first <= step <= last)


def _ball(first: int, last: int) -> arb:
    """The ball that holds all numbers between two steps."""
    with ctx.workprec(128):
        return arb(fmpq(first + last, 2), fmpq(last - first, 2))
