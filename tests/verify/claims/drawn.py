"""Random claims about random schedules, judged by fractions: nothing false is proved.

A schedule is drawn as an expression and as a Python function of fractions at the same time, and so
is each condition; SymPy evaluates nothing for the judge. Schedules end, have steps without a value,
and open hyperparameters with any name.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy as sp

from closedform import Schedule, claims, t
from closedform.expr import floor_div, floor_mod
from closedform.verify.claims.core import Claim
from closedform.verify.terms.verdict import Verdict

Value = Fraction | None
Function = Callable[[int, Fraction], Value]
"""The value at a step, with a value of the hyperparameter; None for none."""

SEEN = (*range(64), 127, 128, 1000)
"""The steps at which claims are judged. The last breakpoint of a drawn schedule is before 40."""
HYPERS = tuple(Fraction(number) for number in (1, 2, 5))
NAMES = (
    "x",
    "previous",
    "t'",
    "choice 1",
    "cycle",
    "phase",
    "t/2",
    "later",
    "floor#0",
    "!prover t'",
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A schedule with the function that it is; ``end`` is that of its domain."""

    expr: sp.Expr
    function: Function
    end: int | None = None

    @property
    def schedule(self) -> Schedule:
        """The schedule."""
        return Schedule(self.expr, domain=() if self.end is None else (t < self.end,))

    def has(self, step: Fraction | int) -> bool:
        """Whether a number is one of its steps."""
        is_step = Fraction(step).denominator == 1 and step >= 0
        return is_step and (self.end is None or step < self.end)

    def at(self, step: int, x: Fraction) -> Value:
        """The value at one of its steps."""
        return self.function(step, x) if self.has(step) else None


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on the step."""

    condition: Any = True
    holds: Callable[[int], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim and the function that says whether it holds at a step (or between two).

    Attributes:
        claim: The claim.
        holds: Of a step and a value of the hyperparameter.
        always: What has to hold besides.
    """

    claim: Claim
    holds: Callable[[int, Fraction], bool]
    always: Callable[[Fraction], bool] = lambda _: True

    def is_true(self, steps: Iterable[int], hypers: Iterable[Fraction]) -> bool:
        """Whether it is true at some steps, with some values of the hyperparameter."""
        at = tuple(steps)
        return all(self.always(x) and all(self.holds(step, x) for step in at) for x in hypers)


# --- schedules -----------------------------------------------------------------------------------


def _number(chance: random.Random) -> Fraction:
    return Fraction(chance.randint(-6, 6), chance.choice((1, 1, 2, 3)))


def _rational(number: Fraction) -> sp.Rational:
    return sp.Rational(number.numerator, number.denominator)


_HALF = Fraction(1, 2)
_COSINES = {1: (1,), 2: (1, -1), 3: (1, -_HALF, -_HALF), 4: (1, 0, -1, 0)}


def _segment(chance: random.Random, x: sp.Symbol | None) -> tuple[sp.Expr, Function]:
    a, b = _number(chance), _number(chance)
    m, n = _rational(a), _rational(b)
    k = chance.randint(1, 9)
    match chance.randrange(10 if x is None else 12):
        case 0 | 1:
            return n + 0 * t, lambda *_: b
        case 2 | 3:
            return m * t + n, lambda step, _: a * step + b
        case 4:
            return m * (t - k) ** 2 + n, lambda step, _: a * (step - k) ** 2 + b
        case 5:
            period = chance.choice((1, 2, 3, 4))
            cosine = sp.cos(2 * sp.pi * t / period, evaluate=False)
            return m * cosine + n, lambda step, _: a * _COSINES[period][step % period] + b
        case 6:
            return m * floor_mod(t, k) + n, lambda step, _: a * (step % k) + b
        case 7:
            return m * floor_div(t, k) + n, lambda step, _: a * (step // k) + b
        case 8:
            return sp.Min(m * t, n), lambda step, _: min(a * step, b)
        case 9:
            if chance.random() < 0.7:
                ratio = sp.Rational(k, 10)
                return m * ratio**t + n, lambda step, _: a * Fraction(k, 10) ** step + b
            a = a or Fraction(1)
            return _rational(a) / (
                t - k
            ) + n, lambda step, _: None if step == k else a / (step - k) + b
        case 10:
            return m * x + t, lambda step, y: a * y + step
        case _:
            return n + sp.Max(x, t), lambda step, y: b + max(y, step)


def drawn_schedule(chance: random.Random, x: sp.Symbol | None = None) -> Drawn:
    """Returns a random schedule of one to three segments."""
    ends = sorted(chance.sample(range(1, 38), chance.choice((0, 1, 1, 2))))
    segments = [_segment(chance, x) for _ in range(len(ends) + 1)]
    pairs = [(segment, t < end) for (segment, _), end in zip(segments, ends, strict=False)]
    expr = sp.Piecewise(*pairs, (segments[-1][0], True)) if ends else segments[0][0]

    def function(step: int, y: Fraction) -> Value:
        place = sum(step >= end for end in ends)
        return segments[place][1](step, y)

    end = chance.randint(1, 50) if chance.random() < 0.3 else None
    return Drawn(expr, function, end)


def drawn_where(chance: random.Random) -> Where:
    """Returns a random condition, most often none."""
    k, n = chance.randint(0, 50), chance.randint(2, 5)
    match chance.randrange(8):
        case 0:
            return Where(t < k + 1, lambda step: step <= k)
        case 1:
            return Where(t >= k + 1, lambda step: step > k)
        case 2:
            condition = sp.Eq(floor_mod(t, n), 1, evaluate=False)
            return Where(condition, lambda step: step % n == 1)
        case 3:
            return Where((t < k + 1) | (t > 2 * k + 3), lambda step: step <= k or step > 2 * k + 3)
        case _:
            return Where()


# --- claims --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Claims:
    """Draws claims about one schedule."""

    chance: random.Random
    drawn: Drawn
    x: sp.Symbol | None

    def claims(self) -> Iterator[Judged]:
        """Yields a claim of each kind."""
        for make in (
            self._bounded,
            self._monotone,
            self._changes,
            self._extreme,
            self._ends,
            self._periodic,
            self._equal,
            self._moved,
            self._close,
            self._recurrence,
            self._area,
            self._finite,
        ):
            yield make()

    def _near(self) -> Fraction:
        """A value of the schedule, or a number near one."""
        values = [self.drawn.at(step, HYPERS[0]) for step in SEEN[:45]]
        value = self.chance.choice([each for each in values if each is not None] or [Fraction(0)])
        return value + self.chance.choice((0, 0, 0, 0, 1, -1, Fraction(1, 1000)))

    def _extremes(self) -> tuple[Fraction, Fraction]:
        values = [self.drawn.at(step, x) for step in SEEN for x in HYPERS]
        numbers = [each for each in values if each is not None] or [Fraction(0)]
        return min(numbers), max(numbers)

    def _asked(self, where: Where) -> Callable[[int], bool]:
        return lambda step: self.drawn.has(step) and where.holds(step)

    def _has_value(self, asked: Callable[[int], bool]) -> Callable[[Fraction], bool]:
        """Whether the schedule has a value wherever it is asked."""
        return lambda x: all(self.drawn.at(step, x) is not None for step in SEEN if asked(step))

    def _bounded(self) -> Judged:
        where = drawn_where(self.chance)
        asked = self._asked(where)
        low, high = self._extremes()
        low += self.chance.choice((0, 0, -1, Fraction(1, 1000)))
        claim = claims.bounded(
            self.drawn.schedule, _rational(low), _rational(high), where=where.condition
        )

        def holds(step: int, x: Fraction) -> bool:
            value = self.drawn.at(step, x)
            return not asked(step) or (value is not None and low <= value <= high)

        return Judged(claim, holds)

    def _monotone(self) -> Judged:
        where = drawn_where(self.chance)
        asked = self._asked(where)
        directions: dict[str, Callable[[Fraction, Fraction], bool]] = {
            "increasing": lambda a, b: a <= b,
            "decreasing": lambda a, b: a >= b,
            "constant": lambda a, b: a == b,
            "strictly increasing": lambda a, b: a < b,
            "strictly decreasing": lambda a, b: a > b,
        }
        direction = self.chance.choice(list(directions))
        claim = claims.monotone(self.drawn.schedule, direction, where=where.condition)

        def holds(step: int, x: Fraction) -> bool:
            if not asked(step):
                return True
            here = self.drawn.at(step, x)
            if here is None:
                return False
            pairs = ((other, self.drawn.at(other, x)) for other in SEEN if asked(other))
            return all(
                there is not None
                and (
                    other == step
                    or directions[direction](*((here, there) if step < other else (there, here)))
                )
                for other, there in pairs
            )

        return Judged(claim, holds)

    def _changes(self) -> Judged:
        where = drawn_where(self.chance)
        asked = self._asked(where)
        low, high = sorted((_number(self.chance), _number(self.chance)))
        claim = claims.bounded_change(
            self.drawn.schedule, _rational(low), _rational(high), where=where.condition
        )

        def holds(step: int, x: Fraction) -> bool:
            if not asked(step):
                return True
            here, after = self.drawn.at(step, x), self.drawn.at(step + 1, x)
            if here is None:
                return False
            return not asked(step + 1) or (after is not None and low <= after - here <= high)

        return Judged(claim, holds)

    def _extreme(self) -> Judged:
        where = drawn_where(self.chance)
        asked = self._asked(where)
        is_largest = self.chance.random() < 0.5
        steps = [step for step in SEEN if self.drawn.at(step, HYPERS[0]) is not None]
        choose = max if is_largest else min
        at: Fraction | int = choose(
            steps, key=lambda step: self.drawn.at(step, HYPERS[0]) or 0, default=0
        )
        at += self.chance.choice((0, 0, 0, 1, -1, Fraction(1, 2)))
        make = claims.argmax if is_largest else claims.argmin
        claim = make(self.drawn.schedule, _rational(Fraction(at)), where=where.condition)

        def holds(step: int, x: Fraction) -> bool:
            if not asked(step):
                return True
            value, best = self.drawn.at(step, x), self.drawn.at(int(at), x)
            if value is None or best is None:
                return False
            return value <= best if is_largest else value >= best

        def always(x: Fraction) -> bool:
            return self.drawn.has(at) and self.drawn.at(int(at), x) is not None

        return Judged(claim, holds, always)

    def _ends(self) -> Judged:
        at = Fraction(
            self.chance.choice((0, 20, 38, 45)) + self.chance.choice((0, 0, 0, _HALF, -1))
        )
        value = self.drawn.at(self.chance.choice((38, 45)), HYPERS[0]) or self._near()
        claim = claims.ends_at(self.drawn.schedule, _rational(value), _rational(at))

        def holds(step: int, x: Fraction) -> bool:
            return step < at or not self.drawn.has(step) or self.drawn.at(step, x) == value

        return Judged(claim, holds, lambda _: self.drawn.has(at))

    def _periodic(self) -> Judged:
        period = Fraction(self.chance.choice((0, 1, 2, 3, 4, 6, 12, 40, _HALF)))
        claim = claims.periodic(self.drawn.schedule, _rational(period))

        def holds(step: int, x: Fraction) -> bool:
            if not self.drawn.has(step):
                return True
            here, later = self.drawn.at(step, x), int(step + period)
            if here is None:
                return False
            return not self.drawn.has(later) or here == self.drawn.at(later, x)

        return Judged(claim, holds, lambda _: period >= 1 and self.drawn.has(period))

    def _compared(self, other: Drawn, shift: int, scale: Fraction, where: Where) -> Judged:
        asked = self._asked(where)
        claim = claims.equal(
            self.drawn.schedule,
            other.schedule,
            shift=shift,
            scale=_rational(scale),
            where=where.condition,
        )

        def holds(step: int, x: Fraction) -> bool:
            at = scale * step + shift
            if not asked(step) or (scale * step).denominator != 1:
                return True
            here = self.drawn.at(step, x)
            return here is not None and other.has(at) and other.at(int(at), x) == here

        return Judged(claim, holds)

    def _equal(self) -> Judged:
        shift = self.chance.choice((0, 0, 0, 1, -1, 7, -7))
        scale = self.chance.choice((Fraction(1), Fraction(1), Fraction(2), _HALF, Fraction(2, 3)))
        other = self.chance.choice((self.drawn, drawn_schedule(self.chance, self.x)))
        return self._compared(other, shift, scale, drawn_where(self.chance))

    def _moved(self) -> Judged:
        """The same curve on another clock, often with another domain."""
        shift = self.chance.choice((0, 3, -3, 10, -10))
        end = self.chance.choice((None, self.drawn.end, 30, 60))
        moved = Drawn(
            self.drawn.expr.subs(t, sp.Max(t - shift, 0)),
            lambda step, x: self.drawn.function(max(step - shift, 0), x),
            end,
        )
        if self.chance.random() < 0.2:
            k = self.chance.randint(0, 60)
            inner = moved
            moved = Drawn(
                sp.Piecewise((inner.expr + 1, sp.Eq(t, k)), (inner.expr, True)),
                lambda step, x: _plus(inner.function(step, x), int(step == k)),
                end,
            )
        where = drawn_where(self.chance)
        if shift < 0 and self.chance.random() < 0.7:
            where = Where(t >= -shift, lambda step: step >= -shift)
        return self._compared(moved, shift, Fraction(1), where)

    def _close(self) -> Judged:
        where = drawn_where(self.chance)
        other = self.chance.choice((self.drawn, drawn_schedule(self.chance, self.x)))
        within = abs(_number(self.chance)) * self.chance.choice((1, 10, 100))
        until = self.chance.choice((None, 10, 37))
        claim = claims.close(
            self.drawn.schedule,
            other.schedule,
            _rational(within),
            until=until,
            where=where.condition,
        )
        asked = self._asked(where)

        def holds(step: int, x: Fraction) -> bool:
            if not asked(step) or (until is not None and step > until):
                return True
            here, there = self.drawn.at(step, x), other.at(step, x)
            return here is not None and there is not None and abs(here - there) <= within

        return Judged(claim, holds)

    def _recurrence(self) -> Judged:
        where = drawn_where(self.chance)
        first = self.drawn.at(0, HYPERS[0])
        begin = self._near() if first is None or self.chance.random() < 0.2 else first
        a, b = self.chance.choice(
            ((1, _number(self.chance)), (_number(self.chance), Fraction(0)), (1, Fraction(0)))
        )
        a = Fraction(a)
        start: sp.Expr = _rational(begin)
        claim = claims.recurrence(
            self.drawn.schedule,
            start,
            lambda previous, _: _rational(a) * previous + _rational(b),
            where=where.condition,
        )

        def holds(step: int, x: Fraction) -> bool:
            if not self.drawn.has(step):
                return True
            here = self.drawn.at(step, x)
            if here is None:
                return False
            if step == 0:
                return here == begin
            before = self.drawn.at(step - 1, x)
            return not where.holds(step) or (before is not None and a * before + b == here)

        return Judged(claim, holds)

    def _area(self) -> Judged:
        steps = self.chance.choice((0, 1, 5, 20, 40, 45))
        values = [self.drawn.at(step, HYPERS[0]) for step in range(steps)]
        total = sum((value for value in values if value is not None), Fraction(0))
        total += self.chance.choice((0, 0, 0, 1, Fraction(1, 1000)))
        claim = claims.area(self.drawn.schedule, _rational(total), steps)

        def always(x: Fraction) -> bool:
            summed = [self.drawn.at(step, x) for step in range(steps)]
            return None not in summed and sum(each for each in summed if each is not None) == total

        def holds(step: int, x: Fraction) -> bool:
            return not self.drawn.has(step) or self.drawn.at(step, x) is not None

        return Judged(claim, holds, always)

    def _finite(self) -> Judged:
        where = drawn_where(self.chance)
        asked = self._asked(where)
        claim = claims.finite(self.drawn.schedule, where=where.condition)
        return Judged(claim, lambda step, x: not asked(step) or self.drawn.at(step, x) is not None)


def _plus(value: Value, change: int) -> Value:
    return None if value is None else value + change


def judged(schedules: int, seed: int) -> Counter[str]:
    """Returns the counts of verdicts by kind of claim.

    Raises:
        AssertionError: A proved claim is false at a step, or a refuted one is true at all of them
            and at its counterexample.
    """
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    for _ in range(schedules):
        x = None
        if chance.random() < 0.4:
            x = sp.Symbol(chance.choice(NAMES), integer=True, positive=True)
        drawn = drawn_schedule(chance, x)
        for asked in _Claims(chance, drawn, x).claims():
            verdict = asked.claim.verify(budget=1)
            counts[f"{asked.claim.name} {verdict.status.value}"] += 1
            _check(
                asked,
                verdict,
                f"seed {seed}: {drawn.expr} until {drawn.end}",
                is_open=x is not None,
            )
    return counts


def _check(asked: Judged, verdict: Verdict, drawn: str, *, is_open: bool) -> None:
    claim = asked.claim
    text = f"{drawn}: {claim.name}, {claim.sentence}: {verdict}"
    if verdict.proved:
        for x in HYPERS:
            assert asked.always(x), text
            for step in SEEN:
                assert asked.holds(step, x), f"{text} but at {step}, {x}"
    if not verdict.refuted:
        return
    steps, hypers = set(SEEN), set(HYPERS)
    for name, number in (verdict.counterexample or {}).items():
        number = Fraction(int(number.p), int(number.q))
        if name in ("t", "t'", "t/2", "t/3") and number.denominator == 1:
            factor = int(name[2:]) if name.startswith("t/") else 1
            steps |= {int(number) * factor, int(number) * factor + 1}
        if is_open and number > 0:
            hypers.add(number)
    assert not asked.is_true(sorted(steps), hypers), text
