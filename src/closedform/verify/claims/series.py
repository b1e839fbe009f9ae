"""Claims about the sum of all values of a schedule, and of their squares: Robbins and Monro.

A sum over infinitely many steps is compared with a series that is known to converge or to diverge.
With q the value or its square, on the steps t from some step on (the tail):

==================== ========================================================= =============
series               goals                                                     the sum
==================== ========================================================= =============
nothing              q(t) <= 0                                                 is finite
geometric            q(t + P) <= r q(t), 0 <= r < 1                            is finite
a power              t^p q(t) <= c, p > 1                                      is finite
recurring values     q(t + P) >= q(t) >= 0, and q > 0 at a step of each period is infinite
a power              t^p q(t) >= c > 0, 0 <= p <= 1                            is infinite
harmonic             t q(t) never falls, and is above 0                        is infinite
==================== ========================================================= =============

An upper bound keeps all sums below a number, whatever the sign of q. The numbers c, r, p and P
are guessed from values far out; all goals are proved, and that the domain holds the tail, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import sympy as sp
from flint import arb, fmpq

from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.language import Schedule, t
from closedform.language.boundaries import root_of_line
from closedform.verify.claims.core import Claim, Goal, Proofs
from closedform.verify.claims.guesses import differences, draws
from closedform.verify.claims.reading import (
    Condition,
    ScheduleReading,
    condition_text,
    has_value,
    read_schedule,
)
from closedform.verify.claims.statements import as_texts
from closedform.verify.claims.sums import defined_goals
from closedform.verify.claims.values import by_parity
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.real_line import TIME, cells_of
from closedform.verify.terms.sympy_io import CLOCK, term, to_sympy
from closedform.verify.terms.tree import Op, Sign, Term, walk
from closedform.verify.terms.verdict import Status, Verdict

_INDEX = build.own_symbol("k", integer=True, sign=Sign.NONNEGATIVE)
"""The number of a period."""
_FAR = tuple(range(8)) + tuple(2**power for power in range(3, 50))
"""Distances from the beginning of the tail at which values are looked at."""
_MOST_POWER = 64
_MOST_BITS = 4000
_BEYOND = 1000
_MOST_VALUES = 256
_FLAT = 1e-3
"""Two powers of t that are nearer are one: far out the logarithms of their values differ by 1 %."""


def sum_diverges(lr: Schedule, *, assume: Iterable[Condition] = ()) -> Claim:
    r"""Claims that the values add up to infinity: :math:`\sum_{t \ge 0} f(t) = \infty`.

    With ``square_summable`` it is what Robbins and Monro (1951) ask of the rates of a stochastic
    approximation. The schedule is the function that runs: a rate that holds its last value for ever
    has an infinite sum, one that is 0 from a step on, or whose domain ends, a finite one.

    Args:
        lr: The schedule f.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: A condition is about the step.

    Example:
        >>> from closedform import schedules
        >>> sum_diverges(schedules.inverse_time(1, 1, 20)).verify().status.value
        'PROVED'
        >>> print(sum_diverges(schedules.multiplicative(1, 0.97)).verify().reason)
        the value is at most 97/100 of itself a step later
    """
    return _claim(lr, assume, "sum_diverges", "the values add up to infinity")


def square_summable(lr: Schedule, *, assume: Iterable[Condition] = ()) -> Claim:
    r"""Claims that the squares have a finite sum: :math:`\sum_{t \ge 0} f(t)^2 < \infty`.

    Args:
        lr: The schedule f.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: A condition is about the step.

    Example:
        >>> from closedform import schedules
        >>> square_summable(schedules.inverse_time(1, 1, 20)).verify().status.value
        'PROVED'
        >>> square_summable(schedules.inverse_square_root(1, 1, 40)).verify().status.value
        'REFUTED'
    """
    return _claim(lr, assume, "square_summable", "the squares of the values have a finite sum")


def _claim(lr: Schedule, assume: Iterable[Condition], name: str, sentence: str) -> Claim:
    conditions = tuple(assume)
    reading = read_schedule(lr, conditions)
    if reading.where != build.TRUE:
        raise VerificationError(
            f"a sum is over all steps, got the condition {condition_text(reading.where)} in assume",
            where=f"schedule {lr.name!r}",
            hint="assume is for hyperparameters; write a condition on t as a branch",
        )
    decide = partial(_decide, reading, conditions, name)
    arguments = None if reading.assume or reading.steps != build.TRUE else as_texts()
    return Claim(name, sentence, lr, (), assume=reading.assume, arguments=arguments, decide=decide)


def _decide(
    reading: ScheduleReading, conditions: tuple[Condition, ...], name: str, effort: Effort
) -> Verdict:
    units, proofs, lr = effort.left, Proofs(), reading.schedule
    is_sum = name == "sum_diverges"
    presumed = Claim(name, "", lr, (), has_value(reading), reading.assume)
    verdict = presumed.judge(effort.portion(units / 8), proofs)
    if verdict.refuted:
        return verdict
    for comparison in _comparisons(_Tail.of(reading, 1 if is_sum else 2)):
        claim = replace(presumed, goals=comparison.goals)
        portion = effort.portion(units / 2)
        if claim.has_proof(portion, proofs):
            status = Status.PROVED if comparison.diverges == is_sum else Status.REFUTED
            subject = "the value is" if is_sum else "the square is"
            grounds = claim.judge(effort.portion(units / 2), proofs).grounds
            return Verdict(status, grounds, reason=f"{subject} {comparison.text}")
    for point in draws(reading) if lr.open else ():
        if not effort.left:
            break
        numbers = {str(key): sp.Rational(int(n.p), int(n.q)) for key, n in point.items()}
        bound_reading = read_schedule(lr.bind(**numbers), conditions)
        if bound_reading.schedule.open:
            continue
        verdict = _decide(bound_reading, conditions, name, effort.portion(units / 8))
        if verdict.refuted:
            return Verdict(Status.REFUTED, verdict.grounds, numbers, verdict.reason)
    return Verdict(Status.UNKNOWN, reason="no comparison with a known series is proved")


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Goals that are enough for a sum to be finite or infinite.

    Attributes:
        diverges: Whether the sum is infinite if they hold.
        text: The comparison, for readers.
        goals: The goals.
    """

    diverges: bool
    text: str
    goals: tuple[Goal, ...]


def _roots(expr: sp.Expr) -> Iterator[Term]:
    """Yields the steps at which comparisons of lines turn, also of those within a Min or Max."""
    for difference in differences(expr):
        root = root_of_line(difference.replace(sp.Min, _moving).replace(sp.Max, _moving))
        if root is not None:
            yield term(root)


def _moving(*operands: sp.Expr) -> sp.Expr:
    """The first operand of a Min or Max that depends on the step."""
    return next((operand for operand in operands if operand.has(t)), operands[0])


@dataclass(frozen=True, slots=True)
class _Tail:
    """The steps beyond all breakpoints that are known.

    Attributes:
        reading: The schedule.
        value: The value, in the form that it has there.
        power: 1 where values are added up, 2 where their squares are.
        first: A step at or before its beginning.
        roots: Further steps at or before its beginning, terms in open hyperparameters.
        goals: That the form is right, and the conditions have a value.
    """

    reading: ScheduleReading
    value: Term
    power: int
    first: int
    roots: tuple[Term, ...]
    goals: tuple[Goal, ...]

    @classmethod
    def of(cls, reading: ScheduleReading, power: int) -> _Tail:
        """Returns the steps from the last breakpoint on, and from the end of the domain."""
        lr = reading.schedule
        if lr.open:
            roots = tuple(dict.fromkeys(_roots(lr.bound)))
            goals = tuple(goal for root in roots for goal in defined_goals(root))
            return cls(reading, by_parity(reading.value), power, 1, roots, goals)
        last_cell = cells_of(lr)[-1]
        first = max(1, last_cell.first, 1 if lr.last_step is None else lr.last_step + 1)
        tail_value = by_parity(build.substitute(last_cell.value, {TIME: CLOCK}))
        tail = cls(reading, tail_value, power, first, (), ())
        same = tail.goal("the value has this form", build.equal(reading.value, tail_value))
        return replace(tail, goals=(*defined_goals(tail_value, tail.facts), same))

    @property
    def facts(self) -> tuple[Term, ...]:
        """The conditions on a step of the tail."""
        return tuple(
            build.less_equal(root, CLOCK) for root in (build.rational(self.first), *self.roots)
        )

    @property
    def summand(self) -> Term:
        """The number that is added up."""
        return build.multiply(*[self.value] * self.power)

    def at(self, clock: Term) -> Term:
        """Returns the summand at another step."""
        return build.substitute(self.summand, {CLOCK: clock})

    def goal(self, text: str, statement: Term, clock: Term = CLOCK) -> Goal:
        """Returns a goal for all steps of the tail that are in the domain."""
        given = (*self.facts, self.reading.steps)
        return _sufficient(text, statement, *(build.substitute(f, {CLOCK: clock}) for f in given))

    def comparison(self, text: str, *goals: Goal, diverges: bool = False) -> _Comparison:
        """Returns a comparison on all steps of the tail, which must be in the domain."""
        inside = _sufficient("the domain holds its steps", self.reading.steps, *self.facts)
        return _Comparison(diverges, text, (*self.goals, inside, *goals))


def _sufficient(text: str, statement: Term, *given: Term) -> Goal:
    facts = tuple(fact for fact in given if fact != build.TRUE)
    return Goal(text, statement, facts, is_sufficient=True)


def _comparisons(tail: _Tail) -> Iterator[_Comparison]:
    """Yields comparisons, none of which is known to hold."""
    is_spent = tail.goal("it is at most 0", build.less_equal(tail.summand, build.ZERO))
    # At the steps of the domain: where it ends there are none, and the sum is finite.
    yield _Comparison(False, "at most 0 from some step on", (*tail.goals, is_spent))
    values = _values(tail)
    for period in _periods(tail.summand):
        yield _recurring(tail, period)
        yield _geometric(tail, period)
    slope = _slope(values)
    if slope < _MOST_POWER:
        yield _by_power(tail, slope, values)
    yield _by_growth(tail)
    yield from _by_leading_terms(tail)


def _values(tail: _Tail, distances: Iterable[int] = _FAR) -> Mapping[int, arb]:
    """Values of the summand at distances from the beginning of the tail, by step; none if open."""
    if tail.reading.schedule.open:
        return {}
    steps = (tail.first + distance for distance in distances)
    numbers = {step: value(tail.summand, {"t": fmpq(step)}) for step in steps}
    return {step: arb(n) for step, n in numbers.items() if not isinstance(n, Undefined)}


def _periods(summand: Term) -> Iterator[Term]:
    """Yields 1, the periods of floors and cosines of lines in the clock, and a common multiple."""
    lengths: dict[sp.Expr, None] = {}
    for node in walk(summand):
        slope = to_sympy(node.args[0]).diff(t) if node.op in (Op.FLOOR, Op.COSPI) else sp.S.Zero
        if slope != 0 and not slope.has(t):
            length = (1 if node.op is Op.FLOOR else 2) / slope
            lengths[sp.Integer(abs(length.p)) if length.is_Rational else length] = None
    joint = sp.Integer(sp.ilcm(1, 1, *(length for length in lengths if length.is_Integer)))
    for length in dict.fromkeys((sp.S.One, joint, *lengths)):
        yield term(length)


def _later(period: Term) -> str:
    return "a step later" if period == build.ONE else f"{period} steps later"


def _period_goals(period: Term) -> tuple[Goal, ...]:
    whole = _sufficient("the period is an integer", build.equal(period, build.floor(period)))
    longer = _sufficient("the period is at least 1", build.less_equal(build.ONE, period))
    return (*defined_goals(period), whole, longer)


def _recurring(tail: _Tail, period: Term) -> _Comparison:
    """The same values, or larger ones, again and again; one of each period is above 0."""
    here = _largest(tail, period) or build.multiply(period, _INDEX)
    later = tail.at(build.add(CLOCK, period))
    return tail.comparison(
        f"above 0 and as large {_later(period)}",
        *_period_goals(period),
        tail.goal("it is at least 0", build.less_equal(build.ZERO, tail.summand)),
        tail.goal("it is as large a period later", build.less_equal(tail.summand, later)),
        tail.goal("it is above 0 once in a period", build.less(build.ZERO, tail.at(here)), here),
        diverges=True,
    )


def _largest(tail: _Tail, period: Term) -> Term | None:
    """A step with the largest of the first values of the tail; None where these are unknown."""
    length = int(period.value) if build.is_rational(period) else 0
    values = _values(tail, range(min(length, _MOST_VALUES)))
    return build.rational(max(values, key=lambda step: values[step].mid())) if values else None


def _geometric(tail: _Tail, period: Term) -> _Comparison:
    """A part of its size a period later."""
    after = build.add(CLOCK, period)
    quotient = to_sympy(build.substitute(tail.value, {CLOCK: after})) / to_sympy(tail.value)
    # The exponents are collected, and then expanded: (t + 1)/N - t/N is 1/N.
    exact = sp.powsimp(quotient).expand(power_exp=False, power_base=False, multinomial=False)
    ratio = CLOCK if exact.has(sp.zoo, sp.nan) else term(exact**tail.power)
    if CLOCK in walk(ratio):
        # From some step on t r^t falls by any ratio that is above r.
        tail = replace(tail, first=tail.first + _BEYOND)
        ratio = _ratio(tail, period) or build.ONE
    bounds = build.both(build.less_equal(build.ZERO, ratio), build.less(ratio, build.ONE))
    falls = build.less_equal(tail.at(after), build.multiply(ratio, tail.summand))
    return tail.comparison(
        f"at most {ratio} of itself {_later(period)}",
        *_period_goals(period),
        *defined_goals(ratio),
        _sufficient("the ratio is at least 0 and below 1", bounds),
        tail.goal("it falls", falls),
    )


def _ratio(tail: _Tail, period: Term) -> Term | None:
    """A number between 1 and the ratio of two values a period apart; None if that is above 1."""
    values = [*_values(tail, (0, int(period.value)) if build.is_rational(period) else ()).values()]
    ratio = float((values[-1] / values[0]).mid()) if len(values) > 1 else math.nan
    return build.rational(Fraction((1 + ratio) / 2).limit_denominator(100)) if ratio < 1 else None


def _by_power(tail: _Tail, slope: float, values: Mapping[int, arb]) -> _Comparison:
    """A power of 1/t, a constant among them, by values far out.

    It is of the value itself: the prover compares ``(t/20 + 1)^p`` with ``(t/20)^p``.
    """
    diverges = slope < 1 + _FLAT
    power = Fraction(max(0, min(slope, 1) if diverges else slope)).limit_denominator(20)
    first, last = min(values), max(values)
    bases = [to_sympy(node.args[0]) for node in walk(tail.value) if node.op is Op.POWER]
    slopes = [slope for base in bases for slope in (base.diff(t), base.subs(t, first) / first)]
    slopes = [slope for slope in slopes if slope.is_Rational and slope > 0] or [sp.S.One]
    weight = build.power(
        build.multiply(term(max(slopes) if diverges else min(slopes)), CLOCK),
        build.rational(power / tail.power),
    )
    product = build.multiply(weight, tail.value)
    numbers = {step: arb(value(product, {"t": fmpq(step)})) for step in values}
    if diverges:
        is_below_0 = tail.power == 2 and numbers[last] < 0
        sign = build.MINUS_ONE if is_below_0 else build.ONE
        bound = _power_of_2(min((abs(number) for number in numbers.values()), key=arb.mid))
        statements = [build.less_equal(bound, build.multiply(sign, product))]
        in_range = build.less_equal(build.rational(power), build.ONE)
    else:
        largest = max((abs(number) for number in numbers.values()), key=arb.mid)
        bound = build.rational(16 * _power_of_2(largest).value)
        # A lower bound is of no use to a sum, and needed by a sum of squares.
        sides = (product, build.negative(product))[: tail.power]
        statements = [build.less_equal(side, bound) for side in sides]
        in_range = build.less(build.ONE, build.rational(power))
    goals = (tail.goal(f"c = {bound}", statement) for statement in statements)
    side = _sufficient("p is at most 1" if diverges else "p is above 1", in_range)
    text = (
        f"at least {_series_text(power)}, c > 0" if diverges else f"at most {_series_text(power)}"
    )
    return tail.comparison(text, side, *goals, diverges=diverges)


def _series_text(power: int | Fraction) -> str:
    if power in (0, 1):
        return "c/t" if power else "c"
    return f"c/t^{power}" if int(power) == power else f"c/t^({power})"


def _slope(values: Mapping[int, arb]) -> float:
    """The power of 1/t with which values fall far out; infinite where they are not above 0."""
    if len(values) < 2 or not all(number > 0 for number in values.values()):
        return math.inf
    *_, before, last = values
    slope = (values[before] / values[last]).log() / arb(fmpq(last, before)).log()
    return float(slope.mid()) if slope.is_finite() else math.inf


def _power_of_2(number: arb) -> Term:
    """A power of 2 between a fourth and a half of a number above 0 that is not extreme."""
    size = float(number.log().mid()) / math.log(2) - 1
    return build.rational(fmpq(2) ** math.floor(max(-_MOST_BITS, min(size, _MOST_BITS))))


def _by_growth(tail: _Tail) -> _Comparison:
    """At least c/t, where the product with t never falls."""
    now = build.multiply(CLOCK, tail.summand)
    later = build.substitute(now, {CLOCK: build.add(CLOCK, build.ONE)})
    above = tail.goal("it is above 0", build.less(build.ZERO, tail.summand))
    grows = tail.goal("t times it never falls", build.less_equal(now, later))
    return tail.comparison("at least c/t, c > 0", above, grows, diverges=True)


def _by_leading_terms(tail: _Tail) -> Iterator[_Comparison]:
    """Yields the comparison of a quotient of polynomials with that of their leading terms."""
    value_as_expr = to_sympy(tail.value)
    if not value_as_expr.is_rational_function(t):
        return
    above, below = (sp.Poly(part, t) for part in sp.fraction(sp.together(value_as_expr)))
    power = below.degree() - above.degree()
    if power * tail.power > 1:
        bound = term(sp.Abs(above.LC() / below.LC()))
        product = build.multiply(build.power(CLOCK, build.rational(power)), tail.value)
        sides = (product, build.negative(product))[: tail.power]
        goals = (tail.goal("it is", build.less_equal(side, bound)) for side in sides)
        yield tail.comparison(
            f"at most {_series_text(power * tail.power)}", *defined_goals(bound), *goals
        )
