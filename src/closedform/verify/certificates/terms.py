"""A term compiled once into a function of the step, for its exact values at many steps.

What is rational stays so (comparisons, floors and remainders are exact), the rest is a ball of the
precision that is set. Branches that thresholds of the step decide become segments, so that a table
of thousands costs one look-up a step.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from flint import arb, fmpq, fmpz

from closedform.errors import DomainError, VerificationError
from closedform.verify.certificates.lines import Compiled, Function, Kind, Line, UndecidedError
from closedform.verify.terms.tree import Op, Term, fold, show


def compile_term(term: Term) -> Compiled:
    """Returns a term in the one symbol t as a function of the step.

    The balls of its constants have the precision of the context in which this is called.

    Raises:
        VerificationError: The term holds another symbol or a function of tensors.
    """
    return fold(term, _compile)


# --- numbers ---------------------------------------------------------------------------------


def _compile(node: Term, args: list[Compiled]) -> Compiled:
    rule = _RULES.get(node.op)
    if rule is None:
        raise VerificationError(
            f"{show(node)} has no exact value at a step",
            hint="a certificate is of a schedule; see the claims for update rules",
        )
    return rule(node, args)


def _of_line(line: Line) -> Compiled:
    slope, offset, divisor = line.slope, line.offset, line.divisor
    if slope == 0:
        number = offset if divisor == 1 else fmpq(offset, divisor)
        return Compiled(_kind_of(divisor), lambda _: number, line)
    if divisor == 1:
        return Compiled(Kind.INTEGER, lambda t: slope * t + offset, line)
    return Compiled(Kind.RATIONAL, lambda t: fmpq(slope * t + offset, divisor), line)


def _kind_of(divisor: int) -> Kind:
    return Kind.INTEGER if divisor == 1 else Kind.RATIONAL


def _ball(part: Compiled) -> Function:
    """The function with its result as a ball; that of a number is made once."""
    function = part.function
    if part.kind is Kind.BALL:
        return function
    if part.line is not None and part.line.slope == 0:
        number = arb(function(0))
        return lambda _: number
    return lambda t: arb(function(t))


def _of_kind(part: Compiled, kind: Kind) -> Function:
    """The function as a ball where a ball is wanted; flint does not check what it is given."""
    return _ball(part) if kind is Kind.BALL else part.function


def _rational(node: Term, _: list[Compiled]) -> Compiled:
    return _of_line(Line(0, int(node.value.p), int(node.value.q)))


def _symbol(node: Term, _: list[Compiled]) -> Compiled:
    if node.value.name != "t":
        raise VerificationError(
            f"the symbol {node.value.name} has no value", hint="bind it before certifying"
        )
    return _of_line(Line(1, 0, 1))


def _pi(_: Term, __: list[Compiled]) -> Compiled:
    number = arb.pi()
    return Compiled(Kind.BALL, lambda _: number)


def _add(_: Term, args: list[Compiled]) -> Compiled:
    lines = [arg.line for arg in args if arg.line is not None]
    total = _of_line(_total(lines)) if lines else None
    others = [arg for arg in args if arg.line is None]
    if total is not None and not others:
        return total
    return _joined([*others, total] if total is not None else others, lambda a, b: a + b)


def _total(lines: Sequence[Line]) -> Line:
    total = lines[0]
    for line in lines[1:]:
        total = total.plus(line)
    return total


def _multiply(_: Term, args: list[Compiled]) -> Compiled:
    numbers = [arg.line.fraction for arg in args if arg.line is not None]
    factor = math.prod((number for number in numbers if number is not None), start=Fraction(1))
    others = [arg for arg in args if arg.line is None or arg.line.slope]
    if not others:
        return _of_line(Line(0, factor.numerator, factor.denominator))
    if len(others) == 1 and others[0].line is not None:
        return _of_line(others[0].line.times(factor))
    if factor != 1:
        others.append(_of_line(Line(0, factor.numerator, factor.denominator)))
    return _joined(others, lambda a, b: a * b)


def _joined(args: Sequence[Compiled], combine: Callable[[Any, Any], Any]) -> Compiled:
    """A fold of functions from the left, all in the widest of their kinds."""
    kind = max(arg.kind for arg in args)
    functions = [_of_kind(arg, kind) for arg in args]

    def join(first: Function, second: Function) -> Function:
        return lambda t: combine(first(t), second(t))

    total = functions[0]
    for function in functions[1:]:
        total = join(total, function)
    return Compiled(kind, total)


def _divide(_: Term, args: list[Compiled]) -> Compiled:
    above, below = args
    if below.kind is Kind.BALL or above.kind is Kind.BALL:
        return _joined(args, lambda a, b: a / b)
    top, bottom = above.function, below.function
    return Compiled(Kind.RATIONAL, lambda t: fmpq(1) * top(t) / bottom(t))


def _power(_: Term, args: list[Compiled]) -> Compiled:
    base, exponent = args
    whole = exponent.line.fraction if exponent.line is not None else None
    value, power = base.function, exponent.function
    if whole is not None and whole.denominator == 1 and whole >= 0:
        number = int(whole)
        if base.kind is not Kind.BALL and number <= 64:
            return Compiled(base.kind, lambda t: value(t) ** number)
        ball = _ball(base)
        return Compiled(Kind.BALL, lambda t: ball(t) ** number)
    ball, rate = _ball(base), _ball(exponent)
    if whole == Fraction(1, 2):
        return Compiled(Kind.BALL, lambda t: ball(t).sqrt())
    constant = base.line.fraction if base.line is not None else None
    if constant is not None and constant > 0:
        logarithm = arb(fmpq(constant.numerator, constant.denominator)).log()
        return Compiled(Kind.BALL, lambda t: (logarithm * rate(t)).exp())
    if exponent.kind is Kind.INTEGER:
        return Compiled(Kind.BALL, lambda t: ball(t) ** fmpz(power(t)))
    return Compiled(Kind.BALL, lambda t: _power_at(ball(t), rate(t)))


def _power_at(base: Any, exponent: Any) -> Any:
    if base == 0 and exponent > 0:
        return arb(0)
    return (base.log() * exponent).exp()


def _circular(of_fraction: Callable[[Any], Any], of_ball: Callable[[Any], Any]) -> Rule:
    def rule(_: Term, args: list[Compiled]) -> Compiled:
        turns = args[0].function
        if args[0].kind is Kind.BALL:
            return Compiled(Kind.BALL, lambda t: of_ball(turns(t)))
        return Compiled(Kind.BALL, lambda t: of_fraction(fmpq(turns(t))))

    return rule


def _of_ball(function: Callable[[Any], Any]) -> Rule:
    def rule(_: Term, args: list[Compiled]) -> Compiled:
        operand = _ball(args[0])
        return Compiled(Kind.BALL, lambda t: function(operand(t)))

    return rule


def _floor(_: Term, args: list[Compiled]) -> Compiled:
    (operand,) = args
    value, line = operand.function, operand.line
    if operand.kind is Kind.INTEGER:
        return operand
    if line is not None:
        slope, offset, divisor = line.slope, line.offset, line.divisor
        return Compiled(Kind.INTEGER, lambda t: (slope * t + offset) // divisor)
    if operand.kind is Kind.RATIONAL:
        return Compiled(Kind.INTEGER, lambda t: int(value(t).floor()))
    return Compiled(Kind.INTEGER, lambda t: _floor_of_ball(value(t)))


def _floor_of_ball(ball: Any) -> int:
    whole = ball.floor().unique_fmpz()
    if whole is None:
        raise UndecidedError(f"floor of {ball}")
    return int(whole)


def _extreme(of_numbers: Callable[..., Any], of_balls: Callable[[Any, Any], Any]) -> Rule:
    def rule(_: Term, args: list[Compiled]) -> Compiled:
        is_ball = max(arg.kind for arg in args) is Kind.BALL
        return _joined(args, of_balls if is_ball else of_numbers)

    return rule


def _absolute(_: Term, args: list[Compiled]) -> Compiled:
    value = args[0].function
    return Compiled(args[0].kind, lambda t: abs(value(t)))


def _sign(_: Term, args: list[Compiled]) -> Compiled:
    value = args[0].function
    return Compiled(Kind.INTEGER, lambda t: _sign_of(value(t)))


def _sign_of(number: Any) -> int:
    if number > 0:
        return 1
    if number < 0:
        return -1
    if number == 0:
        return 0
    raise UndecidedError(f"the sign of {number}")


def _lookup(node: Term, args: list[Compiled]) -> Compiled:
    table, index = node.value, args[0].function

    def value(t: int) -> Any:
        position = int(index(t))
        if not 0 <= position < len(table):
            raise DomainError(f"index {position} is outside the table", where=f"t = {t}")
        return table[position]

    return Compiled(Kind.RATIONAL, value)


def _undefined(_: Term, __: list[Compiled]) -> Compiled:
    def value(t: int) -> Any:
        raise DomainError("the schedule has no value", where=f"t = {t}")

    return Compiled(Kind.INTEGER, value)


# --- truths ----------------------------------------------------------------------------------


def _relation(holds: Callable[[int], bool], whole: Callable[[Line], tuple[int, bool]]) -> Rule:
    """A comparison by the sign of the difference; of lines, by a threshold of the step."""

    def rule(_: Term, args: list[Compiled]) -> Compiled:
        first, second = args
        if first.line is not None and second.line is not None:
            difference = first.line.minus(second.line)
            slope, offset = difference.slope, difference.offset
            threshold = whole(difference) if slope else None
            return Compiled(
                Kind.INTEGER, lambda t: holds(_sign_of(slope * t + offset)), threshold=threshold
            )
        if max(first.kind, second.kind) is Kind.BALL:
            left, right = _ball(first), _ball(second)
        else:
            left, right = first.function, second.function
        return Compiled(Kind.INTEGER, lambda t: holds(_sign_of(left(t) - right(t))))

    return rule


def _less_threshold(line: Line) -> tuple[int, bool]:
    """``slope*t + offset < 0``: below the ceiling of the root, or from above its floor."""
    if line.slope > 0:
        return -(line.offset // line.slope), True
    return line.offset // -line.slope + 1, False


def _less_equal_threshold(line: Line) -> tuple[int, bool]:
    """``slope*t + offset <= 0``: up to the floor of the root, or from its ceiling."""
    if line.slope > 0:
        return -line.offset // line.slope + 1, True
    return -(-line.offset // -line.slope), False


def _equal(_: Term, args: list[Compiled]) -> Compiled:
    rule = _relation(lambda order: order == 0, _less_threshold)
    return replace(rule(_, args), threshold=None)


def _junction(combine: Callable[[Any], bool]) -> Rule:
    def rule(_: Term, args: list[Compiled]) -> Compiled:
        functions = [arg.function for arg in args]
        return Compiled(Kind.INTEGER, lambda t: combine(function(t) for function in functions))

    return rule


def _not(_: Term, args: list[Compiled]) -> Compiled:
    test = args[0].function
    threshold = args[0].threshold
    opposite = None if threshold is None else (threshold[0], not threshold[1])
    return Compiled(Kind.INTEGER, lambda t: not test(t), threshold=opposite)


def _fixed_truth(truth: bool) -> Rule:
    return lambda _, __: Compiled(Kind.INTEGER, lambda t: truth)


def _choice(_: Term, args: list[Compiled]) -> Compiled:
    condition, then, other = args
    if condition.threshold is not None:
        milestone, is_below = condition.threshold
        return _branched(milestone, *((then, other) if is_below else (other, then)))
    kind = max(then.kind, other.kind)
    test, first, second = condition.function, _of_kind(then, kind), _of_kind(other, kind)
    return Compiled(kind, lambda t: first(t) if test(t) else second(t))


def _branched(milestone: int, before: Compiled, after: Compiled) -> Compiled:
    """``before`` for t < milestone, else ``after``; the segments of both are found when called."""
    segments: list[tuple[list[int], list[Function]]] = []

    def value(t: int) -> Any:
        if not segments:
            starts, parts = result.segments()
            segments.append((starts, [_of_kind(part, kind) for part in parts]))
        starts, functions = segments[0]
        return functions[bisect.bisect_right(starts, t) - 1](t)

    kind = max(before.kind, after.kind)
    result = Compiled(kind, value, branch=(milestone, before, after))
    return result


Rule = Callable[[Term, list[Compiled]], Compiled]

_RULES: Mapping[Op, Rule] = {
    Op.RATIONAL: _rational,
    Op.SYMBOL: _symbol,
    Op.PI: _pi,
    Op.UNDEFINED: _undefined,
    Op.ADD: _add,
    Op.MULTIPLY: _multiply,
    Op.DIVIDE: _divide,
    Op.POWER: _power,
    Op.COSPI: _circular(arb.cos_pi_fmpq, arb.cos_pi),
    Op.SINPI: _circular(arb.sin_pi_fmpq, arb.sin_pi),
    Op.EXP: _of_ball(arb.exp),
    Op.LOG: _of_ball(arb.log),
    Op.FLOOR: _floor,
    Op.MINIMUM: _extreme(min, arb.min),
    Op.MAXIMUM: _extreme(max, arb.max),
    Op.ABSOLUTE: _absolute,
    Op.SIGN: _sign,
    Op.ITE: _choice,
    Op.LOOKUP: _lookup,
    Op.TRUE: _fixed_truth(True),
    Op.FALSE: _fixed_truth(False),
    Op.LESS: _relation(lambda order: order < 0, _less_threshold),
    Op.LESS_EQUAL: _relation(lambda order: order <= 0, _less_equal_threshold),
    Op.EQUAL: _equal,
    Op.AND: _junction(all),
    Op.OR: _junction(any),
    Op.NOT: _not,
}
