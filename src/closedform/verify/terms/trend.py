"""The direction in which a number moves on a run of steps, and the range of its values there.

By structure, from below: the direction follows from the operands' directions by the rules of
``terms.facts``, with the signs of the operands' ranges. Ranges are exact at the ends of the
run: where a number is monotone, its least and greatest value are those. A sum with several
multiples of one number has the range of their total: ``1 - c + c`` is 1. A number with a trend is
defined on the whole run: divisors and arguments of log have one sign, strictly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flint import arb, fmpq

from closedform.verify.terms.evaluate import value
from closedform.verify.terms.facts import (
    NON_NEGATIVE,
    NON_POSITIVE,
    STRICT,
    Direction,
    direction_from,
    direction_of_product,
)
from closedform.verify.terms.interval import Interval, Number, floor_of, plus
from closedform.verify.terms.limits import FOREVER
from closedform.verify.terms.linear import LinearForm, linear_forms
from closedform.verify.terms.tree import TRUTHS, Op, Sign, Term, walk

_ZERO, _MINUS = fmpq(0), fmpq(-1)
_ANY = Interval()
_AT_LEAST_0, _AT_MOST_0 = Interval(low=_ZERO), Interval(high=_ZERO)
_UNIT = Interval(fmpq(-1), fmpq(1))
_ARCTANGENTS = Interval(fmpq(-11, 7), fmpq(11, 7))  # pi/2 < 11/7
_PART, _ZERO_TO_ZERO = Interval(_ZERO, fmpq(1)), Interval(_ZERO, _ZERO)


@dataclass(frozen=True, slots=True)
class Trend:
    """The direction of a number on a run, weakly, and an interval that holds its values."""

    direction: Direction
    range: Interval = _ANY

    @property
    def sign(self) -> Sign:
        """Its sign on the run."""
        return self.range.sign


class NoTrend(Exception):  # noqa: N818 - says that nothing is known
    """A number of which neither direction nor definedness is known."""


def trend(term: Term, clock: Term, first: int, last: int) -> Trend | None:
    """Returns the trend of a number on a run; None where it may be undefined.

    Args:
        term: A number in the clock and other symbols, of which no more than the sign is used.
        clock: The clock.
        first: The first step of the run.
        last: The last one, or FOREVER or beyond.
    """
    forms = linear_forms(term)
    trends: dict[Term, Trend] = {}
    has_others: set[Term] = set()  # nodes with other symbols: they have no values at the ends
    try:
        for node in walk(term):
            if node == clock:
                node_trend = Trend(Direction.INCREASING)
            elif node.op in TRUTHS:
                node_trend = Trend(Direction.UNKNOWN)  # of numbers that are all defined
            elif node.op in _RULES:
                node_trend = _RULES[node.op](node, [trends[arg] for arg in node.args])
            else:
                return None
            if node.op is Op.ADD:
                # The sum of collected multiples: 1 - c + c is 1, where operand by operand it were
                # an interval.
                node_trend = Trend(node_trend.direction, _range_of(forms[node], forms, trends))
            if node != clock and (node.op is Op.SYMBOL or not has_others.isdisjoint(node.args)):
                has_others.add(node)
                trends[node] = Trend(Direction.UNKNOWN, node_trend.range)
            else:
                trends[node] = _with_ends(node, node_trend, clock, first, last)
    except NoTrend:
        return None
    return None if term.op in TRUTHS else trends[term]


def _range_of(
    form: LinearForm, forms: Mapping[Term, LinearForm], trends: Mapping[Term, Trend]
) -> Interval:
    """The range of a sum: of what is collected, and with ``floor(u)`` as ``u`` less a fraction."""
    total = Interval(form.constant, form.constant)
    for atom, multiple in form.multiples.items():
        total = total + trends[atom].range.scale(multiple)
    floors = {
        atom: coefficient for atom, coefficient in form.multiples.items() if atom.op is Op.FLOOR
    }
    if not floors:
        return total
    fractions = _ZERO_TO_ZERO
    for atom, multiple in floors.items():
        form = form + (forms[atom.args[0]] - LinearForm.of(atom)).scale(multiple)
        fractions = fractions + _PART.scale(-multiple)
    return total.common(_range_of(form, forms, trends) + fractions)


def _with_ends(node: Term, inner_trend: Trend, clock: Term, first: int, last: int) -> Trend:
    """A trend with the range that the values at the ends of the run give."""
    if inner_trend.direction is Direction.UNKNOWN or node.op is Op.RATIONAL:
        return inner_trend
    start = _value(node, clock, first)
    if inner_trend.direction is Direction.CONSTANT:
        return Trend(Direction.CONSTANT, Interval(start, start))
    end = _value(node, clock, last) if last < FOREVER - 1 else None
    low, high = (start, end) if inner_trend.direction is Direction.INCREASING else (end, start)
    return Trend(
        inner_trend.direction,
        Interval(
            inner_trend.range.low if low is None else low,
            inner_trend.range.high if high is None else high,
        ),
    )


def _value(node: Term, clock: Term, step: int) -> Number:
    number = value(node, {clock.value.name: fmpq(step)})
    if not isinstance(number, fmpq | arb):
        raise NoTrend
    return number


TrendRule = Callable[[Term, list[Trend]], Trend]


def _direction(node: Term, args: list[Trend]) -> Direction:
    return direction_from(node, [arg.direction for arg in args], [arg.sign for arg in args])


def _within(interval: Interval) -> TrendRule:
    """A rule for a function that is defined everywhere, with values in an interval."""
    return lambda node, args: Trend(_direction(node, args), interval)


def _rational(node: Term, _: list[Trend]) -> Trend:
    return Trend(Direction.CONSTANT, Interval(node.value, node.value))


def _add(node: Term, args: list[Trend]) -> Trend:
    return Trend(_direction(node, args))


def _multiply(_: Term, args: list[Trend]) -> Trend:
    result = args[0]
    for arg in args[1:]:
        result = _product(result, arg)
    return result


def _product(left: Trend, right: Trend) -> Trend:
    signs = left.sign, right.sign
    direction = direction_of_product((left.direction, right.direction), signs)
    # A constant scales the range exactly; the product of intervals would be wider by its radius.
    for constant, varying in ((left, right), (right, left)):
        if constant.direction is Direction.CONSTANT and constant.sign is not Sign.ANY:
            return Trend(direction, varying.range.scale(constant.range.low))
    return Trend(direction, left.range * right.range)


def _divide(_: Term, args: list[Trend]) -> Trend:
    above, below = args
    # A divisor without a strict sign may be 0: nothing is known, definedness included.
    if below.sign not in STRICT:
        raise NoTrend
    if below.direction is Direction.CONSTANT and below.range.low is not None:
        inverse = 1 / below.range.low
        return _product(above, Trend(Direction.CONSTANT, Interval(inverse, inverse)))
    return _product(above, Trend(below.direction.opposite, below.range.inverse()))


def _power(node: Term, args: list[Trend]) -> Trend:
    base, exponent = args
    if exponent.direction is Direction.CONSTANT:
        return _power_to_constant(node, args)
    number = base.range.low
    if base.direction is not Direction.CONSTANT or number is None or not number > 0:
        raise NoTrend
    is_above_1 = bool(number > 1)
    if is_above_1:
        return Trend(exponent.direction, _exponential_range(exponent.sign))
    if number < 1:
        negated_range = exponent.range.scale(_MINUS)
        return Trend(exponent.direction.opposite, _exponential_range(negated_range.sign))
    return Trend(Direction.UNKNOWN, _AT_LEAST_0)


def _exponential_range(exponent: Sign) -> Interval:
    """The values of ``b ^ x`` for b > 1, by the sign of x."""
    if exponent in NON_NEGATIVE:
        return Interval(low=fmpq(1))
    return _PART if exponent in NON_POSITIVE else _AT_LEAST_0


def _power_to_constant(node: Term, args: list[Trend]) -> Trend:
    base, exponent = args
    number = node.args[1]
    is_whole = number.op is Op.RATIONAL and number.value.q == 1 and number.value >= 0
    is_defined = base.sign in NON_NEGATIVE and exponent.sign is Sign.POSITIVE
    if not (is_defined or base.sign is Sign.POSITIVE or is_whole):
        raise NoTrend
    has_sign = base.sign in NON_NEGATIVE or number.value.p % 2 == 0
    values = _AT_LEAST_0 if has_sign else _ANY
    if exponent.sign is Sign.POSITIVE and base.range.is_within(_UNIT):
        values = values.common(_UNIT)
    return Trend(_direction(node, args), values)


def _log(node: Term, args: list[Trend]) -> Trend:
    if args[0].sign is not Sign.POSITIVE:
        raise NoTrend
    return Trend(_direction(node, args))


def _arctangent(node: Term, args: list[Trend]) -> Trend:
    sign = args[0].sign
    side = _AT_LEAST_0 if sign in NON_NEGATIVE else _AT_MOST_0 if sign in NON_POSITIVE else _ANY
    return Trend(_direction(node, args), _ARCTANGENTS.common(side))


def _cosine(offset: fmpq) -> TrendRule:
    """``cos(pi (u - offset))``: falls where that is from an even to an odd integer, else rises."""

    def rule(_: Term, args: list[Trend]) -> Trend:
        turns = args[0]
        if turns.direction is Direction.CONSTANT:
            return Trend(Direction.CONSTANT)
        low, high = turns.range.low, turns.range.high
        if low is None or high is None or turns.direction is Direction.UNKNOWN:
            return Trend(Direction.UNKNOWN, _UNIT)
        half_turn = floor_of(plus(low, -offset))
        # Monotone only within one half turn.
        if half_turn is None or not plus(high, -offset) <= half_turn + 1:
            return Trend(Direction.UNKNOWN, _UNIT)
        falls = half_turn % 2 == 0
        return Trend(turns.direction.opposite if falls else turns.direction, _UNIT)

    return rule


def _exponential(node: Term, args: list[Trend]) -> Trend:
    return Trend(_direction(node, args), _exponential_range(args[0].sign))


def _floor(node: Term, args: list[Trend]) -> Trend:
    return Trend(_direction(node, args), args[0].range.floors())


def _minimum(node: Term, args: list[Trend]) -> Trend:
    return Trend(_direction(node, args), args[0].range.minimum(args[1].range))


def _maximum(node: Term, args: list[Trend]) -> Trend:
    negated_ranges = [arg.range.scale(_MINUS) for arg in args]
    return Trend(_direction(node, args), negated_ranges[0].minimum(negated_ranges[1]).scale(_MINUS))


def _absolute(node: Term, args: list[Trend]) -> Trend:
    (number,) = args
    if number.sign is not Sign.ANY:
        is_positive = number.sign in NON_NEGATIVE
        values = number.range if is_positive else number.range.scale(_MINUS)
    else:
        values = _AT_LEAST_0.common(number.range.hull(number.range.scale(_MINUS)))
    return Trend(_direction(node, args), values)


def _choice(_: Term, args: list[Trend]) -> Trend:
    """Either branch: both are defined on the whole run."""
    return Trend(Direction.UNKNOWN, args[1].range.hull(args[2].range))


def _symbol(node: Term, _: list[Trend]) -> Trend:
    """A number of which the declared sign is known."""
    sign = node.value.sign
    side = _AT_LEAST_0 if sign in NON_NEGATIVE else _AT_MOST_0
    return Trend(Direction.UNKNOWN, _ANY if sign is Sign.ANY else side)


_RULES: Mapping[Op, TrendRule] = {
    Op.RATIONAL: _rational,
    Op.PI: _within(_ANY),
    Op.ADD: _add,
    Op.MULTIPLY: _multiply,
    Op.DIVIDE: _divide,
    Op.POWER: _power,
    Op.EXP: _exponential,
    Op.LOG: _log,
    Op.ATAN: _arctangent,
    Op.FLOOR: _floor,
    Op.SIGN: _within(_UNIT),
    Op.COSPI: _cosine(_ZERO),
    Op.SINPI: _cosine(fmpq(1, 2)),
    Op.MINIMUM: _minimum,
    Op.MAXIMUM: _maximum,
    Op.ABSOLUTE: _absolute,
    Op.ITE: _choice,
    Op.SYMBOL: _symbol,
}
