"""Claims about the schedules of the library that are false by their construction.

Each has a step, or two, at which it is false: the values there are computed by
``tests.support.term_values``, which shares nothing with the prover or the checker.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from closedform.verify.claims.reading import LATER, read_schedule
from closedform.verify.terms.build import (
    add,
    equal,
    less,
    less_equal,
    rational,
    substitute,
)
from closedform.verify.terms.sympy_io import CLOCK
from closedform.verify.terms.tree import Op, Term, symbols, walk
from tests.support.term_values import UndecidedError, UndefinedError, value_at
from tests.test_library import SCHEDULES
from tests.verify.proved_goals import ProvedGoal

STEPS = 150
LARGEST = 400
"""Nodes of the value of a schedule: larger ones take the search seconds each."""
ULP = Fraction(1, 2**52)

_DIGITS = Fraction(1, 10**20)
"""Values that differ by less are not taken for different; irrational ones have 40 digits."""

Values = Mapping[int, Fraction]


@dataclass(frozen=True, slots=True)
class FalseClaim:
    """A claim that is false.

    Attributes:
        kind: What is wrong with it.
        goal: The claim as a goal.
        truth: A goal like it that is true.
        witness: The values of the steps at which it is false.
    """

    kind: str
    goal: ProvedGoal
    truth: ProvedGoal
    witness: Mapping[str, Fraction]

    @property
    def is_false(self) -> bool:
        """Whether its premises hold at the witness, and it does not."""
        has_premises = all(value_at(fact, self.witness) for fact in self.goal.assume)
        return has_premises and not value_at(self.goal.goal, self.witness)


@dataclass(frozen=True, slots=True)
class _Subject:
    name: str
    value: Term
    premises: tuple[Term, ...]
    values: Values

    def claim(
        self, kind: str, false: Term, truth: Term, step: int, later: int | None = None
    ) -> FalseClaim:
        facts = self.premises
        if later is not None:
            facts = (*facts, *(substitute(fact, {CLOCK: LATER}) for fact in facts))
            facts = (*facts, less(CLOCK, LATER))
        end = step if later is None else later
        witness = {"t": Fraction(step), LATER.value.name: Fraction(end)}
        goals = [ProvedGoal(f"{self.name}: {kind}", goal, facts) for goal in (false, truth)]
        return FalseClaim(kind, goals[0], goals[1], witness)


def subjects(every: int) -> Iterator[_Subject]:
    """Yields each so many-th schedule with its values at the first steps of its domain."""
    for name, make in [*SCHEDULES.items()][::every]:
        reading = read_schedule(make())
        if set(symbols(reading.value)) - {"t"} or len(list(walk(reading.value))) > LARGEST:
            continue
        values = {}
        for step in range(STEPS):
            point = {"t": Fraction(step)}
            try:
                if all(value_at(fact, point) for fact in reading.given):
                    values[step] = _fraction(value_at(reading.value, point))
            except (UndefinedError, UndecidedError):
                continue
        if len(values) > 1:
            yield _Subject(name, reading.value, reading.given, values)


def _bounds(subject: _Subject) -> Iterator[FalseClaim]:
    """Bounds by an ulp, or by a thousandth, beyond a value that is attained."""
    for part in (ULP, Fraction(1, 1000)):
        step = max(subject.values, key=lambda t: subject.values[t])
        high = subject.values[step]
        wrong, right = high - abs(high) * part, high + abs(high) + 1
        yield subject.claim(
            "bound below a value",
            less_equal(subject.value, rational(wrong)),
            less_equal(subject.value, rational(right)),
            step,
        )
        step = min(subject.values, key=lambda t: subject.values[t])
        low = subject.values[step]
        wrong, right = low + max(abs(low), ULP) * part, low - abs(low) - 1
        yield subject.claim(
            "bound above a value",
            less_equal(rational(wrong), subject.value),
            less_equal(rational(right), subject.value),
            step,
        )


def _fraction(value: Any) -> Fraction:
    """A value as a fraction; of one with 40 digits, its first 30."""
    if isinstance(value, Fraction):
        return value
    return Fraction(int(value * 10**30), 10**30)


def _directions(subject: _Subject) -> Iterator[FalseClaim]:
    """A direction that two steps contradict."""
    later = substitute(subject.value, {CLOCK: LATER})
    steps = sorted(subject.values)
    for kind, sign in (("increasing", 1), ("decreasing", -1)):
        sides = (subject.value, later) if sign == 1 else (later, subject.value)
        truth = less_equal(subject.value, add(subject.value, rational(1)))
        wrong_steps = [
            (a, b)
            for a, b in itertools.pairwise(steps)
            if sign * (subject.values[b] - subject.values[a]) < -abs(subject.values[a]) * ULP
        ]
        if wrong_steps:
            a, b = wrong_steps[len(wrong_steps) // 2]
            yield subject.claim(f"{kind}, and two steps are not", less_equal(*sides), truth, a, b)


def _constants(subject: _Subject) -> Iterator[FalseClaim]:
    """The value with another constant, or a branch that begins at another step."""
    conditions = {
        node
        for choice in walk(subject.value)
        if choice.op is Op.ITE
        for node in walk(choice.args[0])
    }
    for node in dict.fromkeys(walk(subject.value)):
        if node.op is not Op.RATIONAL:
            continue
        number = Fraction(int(node.value.p), int(node.value.q))
        for difference in (1, -1, number * ULP):
            changed = substitute(subject.value, {node: rational(number + difference)})
            kind = "boundary of a branch" if node in conditions else "constant of an equality"
            step = _step_of_difference(subject, changed)
            if step is not None:
                same = equal(subject.value, subject.value)
                yield subject.claim(kind, equal(subject.value, changed), same, step)


def _step_of_difference(subject: _Subject, changed: Term) -> int | None:
    """A step at which a term has another value, beyond the digits of both."""
    for step, value in subject.values.items():
        try:
            number = _fraction(value_at(changed, {"t": Fraction(step)}))
        except (UndefinedError, UndecidedError):
            continue
        if abs(value - number) > _DIGITS:
            return step
    return None


_KINDS: tuple[Callable[[_Subject], Iterator[FalseClaim]], ...] = _bounds, _directions, _constants


def false_claims(count: int, every: int = 1, seed: int = 38) -> Iterator[FalseClaim]:
    """Yields so many false claims, each kind and each so many-th schedule in turn."""
    chance = random.Random(seed)
    pools: dict[tuple[str, str], list[FalseClaim]] = {}
    goals: set[Term] = set()
    for subject in subjects(every):
        for make in _KINDS:
            for claim in make(subject):
                if claim.goal.goal in goals:
                    continue
                goals.add(claim.goal.goal)
                pools.setdefault((claim.kind, subject.name), []).append(claim)
    names = sorted(pools)
    chance.shuffle(names)
    for pool in pools.values():
        chance.shuffle(pool)
    while count and any(pools.values()):
        for name in names:
            if pools[name] and count:
                count -= 1
                yield pools[name].pop()
