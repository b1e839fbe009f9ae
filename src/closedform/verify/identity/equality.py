"""Equality of two terms on a run of steps, cheapest way first.

1. Both are lines: the numbers are compared.
2. They are written alike, or in their normal forms the identity engine (``canonical``) finds that
   their difference is 0.
3. Floors of lines repeat with a common period M: the clock is written as ``M * cycle + phase`` with
   0 <= phase < M, the floors become whole multiples of the cycle, and the phases are compared run
   by run. That covers all steps of the run, and may cover more.

The engine says that two terms are equal wherever both are defined. That the second one is defined
on the run, ``is_defined`` shows by the signs of its denominators, radicands and arguments of log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from flint import fmpq

from closedform.verify import terms
from closedform.verify.identity.canonical import is_zero
from closedform.verify.identity.normal import (
    by_angles,
    normal,
    opaque_cosines,
    with_one_condition,
)
from closedform.verify.terms import Op, Sign, Term
from closedform.verify.terms import facts as signs
from closedform.verify.terms.partition import Line, Value, aligned, as_term, runs_of

_LONGEST_PERIOD = 10**12
CYCLE = terms.symbol("cycle", integer=True, sign=Sign.NONNEGATIVE)
ANY_CYCLE = terms.symbol("any cycle", integer=True)
PHASE = terms.symbol("phase", integer=True, sign=Sign.NONNEGATIVE)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps from ``first`` to ``last`` of a clock."""

    clock: Term
    first: int
    last: int

    def sign_of(self, node: Term) -> Sign:
        """Returns the sign of a term at all of these steps, as far as it is plain."""
        runs = runs_of(node, self.clock, self.first, self.last)
        return signs.weakest([self._sign_of_value(run.value, run.first, run.last) for run in runs])

    def _sign_of_value(self, value: Value, first: int, last: int) -> Sign:
        if isinstance(value, Line):
            return _sign_of_line(value, first, last)
        steps = Steps(self.clock, first, last)
        return terms.fold(value, steps._sign_of_node)

    def _sign_of_node(self, node: Term, args: list[Sign]) -> Sign:
        """The sign of a node from those of its arguments; that of a line from the line."""
        found = signs.of_node(node, args)
        is_strict = found in (Sign.POSITIVE, Sign.NEGATIVE)
        if is_strict or node.op not in (Op.ADD, Op.MULTIPLY, Op.SYMBOL, Op.FLOOR):
            return found
        runs = runs_of(node, self.clock, self.first, self.last)
        lines = [(run.value, run.first, run.last) for run in runs if isinstance(run.value, Line)]
        if len(lines) < len(runs):
            return found
        return signs.weakest([_sign_of_line(*line) for line in lines])


def _sign_of_line(line: Line, first: int, last: int) -> Sign:
    """The sign of a line; other symbols add what their declarations say."""
    ends = line.at(first), line.at(last)
    pushes = [_push(symbol, times) for symbol, times in line.others]
    is_strict = any(symbol.value.sign in signs.STRICT for symbol, _ in line.others)
    if all(push > 0 for push in pushes) and min(ends) >= 0:
        return Sign.POSITIVE if is_strict or min(ends) > 0 else Sign.NONNEGATIVE
    if all(push < 0 for push in pushes) and max(ends) <= 0:
        return Sign.NEGATIVE if is_strict or max(ends) < 0 else Sign.NONPOSITIVE
    return Sign.ANY


def _push(symbol: Term, times: fmpq) -> int:
    """1 where a multiple of a symbol is never below 0, -1 where never above, 0 if unknown."""
    upward = {Sign.POSITIVE: 1, Sign.NONNEGATIVE: 1, Sign.NEGATIVE: -1, Sign.NONPOSITIVE: -1}
    return upward.get(symbol.value.sign, 0) * (1 if times > 0 else -1)


def are_equal(left: Value, right: Value, steps: Steps) -> str | None:
    """Returns the name of the way in which two values are shown to be equal on some steps."""
    if isinstance(left, Line) and isinstance(right, Line):
        if steps.first == steps.last:
            same = left.at(steps.first) == right.at(steps.first) and left.others == right.others
            return "lines" if same else None
        return "lines" if left == right else None
    one, other = as_term(left, steps.clock), as_term(right, steps.clock)
    if steps.first == steps.last:
        one, other = (_at(side, steps) for side in (one, other))
    if one == other:
        return "structure"
    if _are_identical(one, other, steps):
        return "identity"
    if steps.clock != PHASE and _are_equal_by_period(one, other, steps):
        return "period"
    return None


def _at(side: Term, steps: Steps) -> Term:
    """A term at the only step."""
    (run,) = runs_of(side, steps.clock, steps.first, steps.first)
    return as_term(run.value, steps.clock)


def _are_identical(left: Term, right: Term, steps: Steps) -> bool:
    """Whether two terms have one canonical form.

    With cosines as what is equal to itself alone, then with angles as variables, then as they are.
    """
    span = steps.clock, steps.first, steps.last
    one, other = (normal(side, *span) for side in (left, right))
    if any(node.op is Op.ITE for node in terms.walk(one, other)):
        one, other = with_one_condition(one, other, partial(_are_same, steps))
    difference = terms.subtract(one, other)
    return (
        one == other
        or is_zero(opaque_cosines(difference), steps.sign_of)
        or is_zero(by_angles(difference, *span), steps.sign_of)
        or is_zero(difference, steps.sign_of)
    )


def _are_same(steps: Steps, one: Term, other: Term) -> bool:
    return one == other or is_zero(terms.subtract(one, other), steps.sign_of)


def _are_equal_by_period(left: Term, right: Term, steps: Steps) -> bool:
    return any(
        _are_equal_in_cycles(left, right, steps, clock, period)
        for clock, period in _cycles(steps, left, right)
    )


def _are_equal_in_cycles(left: Term, right: Term, steps: Steps, clock: Term, period: int) -> bool:
    sides = [terms.substitute(side, {steps.clock: clock}) for side in (left, right)]
    lists = [runs_of(side, PHASE, 0, period - 1) for side in sides]
    return all(
        are_equal(one, other, Steps(PHASE, first, last)) is not None
        for first, last, (one, other) in aligned(*lists)
    )


def _cycles(steps: Steps, *sides: Term) -> Iterator[tuple[Term, int]]:
    """Yields the clock as a term in cycle and phase, and the number of phases, in ways to try.

    First by the common period of all floors. Then by one floor of a line ``(p t + c) / q`` alone:
    ``p t + c = q * cycle + phase``, where the floor is the cycle; these are more t than there are.
    """
    lines = dict.fromkeys(_floored_lines(steps, *sides))
    period = math.lcm(*(int(line.slope.q) for line in lines))
    if 1 < period <= _LONGEST_PERIOD:
        yield terms.add(terms.multiply(terms.rational(period), CYCLE), PHASE), period
    for line in lines:
        scale = math.lcm(int(line.slope.q), int(line.height.q))
        is_long = not 1 < scale <= _LONGEST_PERIOD or scale == period
        if is_long or line.others or line.slope == 0:
            continue
        cycle = CYCLE if min(line.at(steps.first), line.at(steps.last)) >= 0 else ANY_CYCLE
        phase = terms.multiply(terms.rational(1, scale), PHASE)
        shifted = terms.add(cycle, phase, terms.rational(-line.height))
        yield terms.divide(shifted, terms.rational(line.slope)), scale


def _floored_lines(steps: Steps, *sides: Term) -> Iterator[Line]:
    for node in terms.walk(*sides):
        if node.op is Op.FLOOR:
            runs = runs_of(node.args[0], steps.clock, steps.first, steps.last)
            if len(runs) == 1 and isinstance(runs[0].value, Line):
                yield runs[0].value


def is_defined(value: Value, steps: Steps) -> bool:
    """Returns whether a value is shown to be defined at every one of some steps."""
    if isinstance(value, Line):
        return True
    return all(_operand_fits(node, steps) for node in terms.walk(value))


def _operand_fits(node: Term, steps: Steps) -> bool:
    match node.op:
        case Op.UNDEFINED | Op.LOOKUP:
            return False
        case Op.DIVIDE:
            return steps.sign_of(node.args[1]) in (Sign.POSITIVE, Sign.NEGATIVE)
        case Op.LOG:
            return steps.sign_of(node.args[0]) is Sign.POSITIVE
        case Op.POWER:
            return _power_fits(node.args[0], node.args[1], steps)
        case _:
            return True


def _power_fits(base: Term, exponent: Term, steps: Steps) -> bool:
    if terms.is_rational(exponent) and exponent.value >= 0:
        return exponent.value.q == 1 or steps.sign_of(base) in (Sign.POSITIVE, Sign.NONNEGATIVE)
    if steps.sign_of(base) is Sign.POSITIVE:
        return True
    is_growing = steps.sign_of(exponent) is Sign.POSITIVE
    return is_growing and steps.sign_of(base) is Sign.NONNEGATIVE
