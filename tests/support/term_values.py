"""An evaluator of the prover's terms that shares no code with it: Fraction and mpmath.

Rational operations are exact, others have 60 digits. Two numbers that differ by less than NEAR of
their size are not told apart: a comparison of such raises ``UndecidedError``.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import mpmath

from closedform.verify.terms.tree import Op, Term

DIGITS = 60
NEAR = mpmath.mpf(10) ** -40
_LARGEST_WHOLE_EXPONENT = 256

Value = Any  # Fraction, mpf or bool


class UndefinedError(ValueError):
    """The term has no finite real value at this point."""


class UndecidedError(ValueError):
    """Two numbers are too near to each other to be compared."""


def value_at(term: Term, point: Mapping[str, Fraction]) -> Value:
    """Returns the value of a number, or whether a truth holds; only what is taken is evaluated."""
    with mpmath.workdps(DIGITS):
        return _value(term, point, {})


def _value(node: Term, point: Mapping[str, Fraction], done: dict[Term, Value]) -> Value:
    if node not in done:
        done[node] = _worked_out(node, point, done)
    return done[node]


def _worked_out(node: Term, point: Mapping[str, Fraction], done: dict[Term, Value]) -> Value:
    match node.op:
        case Op.RATIONAL:
            return Fraction(int(node.value.p), int(node.value.q))
        case Op.SYMBOL:
            return point[node.value.name]
        case Op.TRUE | Op.FALSE:
            return node.op is Op.TRUE
        case Op.UNDEFINED:
            raise UndefinedError("undefined")
        case Op.PI:
            return +mpmath.pi
        case Op.ITE:
            condition, then, otherwise = node.args
            return _value(then if _value(condition, point, done) else otherwise, point, done)
        case Op.AND | Op.OR:
            return _junction(node, point, done)
    return _HANDLERS[node.op](node, [_value(arg, point, done) for arg in node.args])


def _junction(node: Term, point: Mapping[str, Fraction], done: dict[Term, Value]) -> bool:
    """A part that decides outweighs parts that are undefined."""
    decisive = node.op is Op.OR
    errors: list[ValueError] = []
    for part in node.args:
        try:
            if bool(_value(part, point, done)) is decisive:
                return decisive
        except (UndefinedError, UndecidedError) as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return not decisive


def compare(left: Value, right: Value) -> int:
    """Returns -1, 0 or 1; raises UndecidedError where rounding could decide."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return (left > right) - (left < right)
    one, other = _mpf(left), _mpf(right)
    if abs(one - other) <= NEAR * max(1, abs(one), abs(other)):
        raise UndecidedError(f"{one} and {other}")
    return 1 if one > other else -1


def _mpf(number: Value) -> Any:
    if isinstance(number, Fraction):
        return mpmath.mpf(number.numerator) / number.denominator
    return number


def _sum(_: Term, args: list[Value]) -> Value:
    exact = sum((arg for arg in args if isinstance(arg, Fraction)), Fraction(0))
    others = [arg for arg in args if not isinstance(arg, Fraction)]
    return mpmath.fsum([*others, _mpf(exact)]) if others else exact


def _product(_: Term, args: list[Value]) -> Value:
    exact = math.prod((arg for arg in args if isinstance(arg, Fraction)), start=Fraction(1))
    others = [arg for arg in args if not isinstance(arg, Fraction)]
    return mpmath.fprod([*others, _mpf(exact)]) if others and exact else exact


def _quotient(_: Term, args: list[Value]) -> Value:
    left, right = args
    if compare(right, Fraction(0)) == 0:
        raise UndefinedError("division by zero")
    if left == 0 and isinstance(left, Fraction):
        return left
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left / right
    return _mpf(left) / _mpf(right)


def _power(node: Term, args: list[Value]) -> Value:
    """A number below 0 has powers where the exponent is whole by how it is written, as stated."""
    base, exponent = args
    sign = compare(base, Fraction(0))
    if sign == 0:
        if compare(exponent, Fraction(0)) < 0:
            raise UndefinedError("a power of 0 below 0")
        return Fraction(int(exponent == 0))
    if sign < 0 and not _is_whole(node.args[1]):
        raise UndefinedError("a fractional power of a number below 0")
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        small = isinstance(base, Fraction) and abs(exponent) <= _LARGEST_WHOLE_EXPONENT
        return base ** int(exponent) if small else _mpf(base) ** int(exponent)
    if base == 1:
        return Fraction(1)
    root = _exact_root(base) if exponent == Fraction(1, 2) else None
    return root if root is not None else mpmath.power(_mpf(base), _mpf(exponent))


def _exact_root(base: Value) -> Fraction | None:
    if not isinstance(base, Fraction):
        return None
    root = Fraction(math.isqrt(base.numerator), math.isqrt(base.denominator))
    return root if root**2 == base else None


def _is_whole(node: Term) -> bool:
    if node.op in (Op.FLOOR, Op.SIGN):
        return True
    if node.op is Op.SYMBOL:
        return bool(node.value.integer)
    if node.op is Op.RATIONAL:
        return bool(node.value.q == 1)
    closed = (Op.ADD, Op.MULTIPLY, Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE)
    return node.op in closed and all(map(_is_whole, node.args))


def _floor(_: Term, args: list[Value]) -> Value:
    if isinstance(args[0], Fraction):
        return Fraction(math.floor(args[0]))
    nearest = mpmath.nint(args[0])
    if abs(args[0] - nearest) <= NEAR * max(1, abs(nearest)):
        raise UndecidedError(f"the floor of {args[0]}")
    return Fraction(int(mpmath.floor(args[0])))


def _log(_: Term, args: list[Value]) -> Value:
    if compare(args[0], Fraction(0)) <= 0:
        raise UndefinedError("log of a number that is not above 0")
    return mpmath.log(_mpf(args[0])) if args[0] != 1 else Fraction(0)


def _cosine(turns: Value) -> Value:
    """cos(π x), exact at multiples of a half."""
    if isinstance(turns, Fraction) and (2 * turns).denominator == 1:
        return (Fraction(1), Fraction(0), Fraction(-1), Fraction(0))[int(2 * turns) % 4]
    return mpmath.cospi(_mpf(turns))


def _sine(_: Term, args: list[Value]) -> Value:
    shifted = (
        args[0] - Fraction(1, 2) if isinstance(args[0], Fraction) else args[0] - mpmath.mpf(0.5)
    )
    return _cosine(shifted)


def _extreme(node: Term, args: list[Value]) -> Value:
    try:
        order = compare(*args)
    except UndecidedError:
        return args[0]
    return args[0] if (order <= 0) is (node.op is Op.MINIMUM) else args[1]


def _sign(_: Term, args: list[Value]) -> Value:
    return Fraction(compare(args[0], Fraction(0)))


def _entry(node: Term, args: list[Value]) -> Value:
    index = args[0]
    if (
        not isinstance(index, Fraction)
        or index.denominator != 1
        or index not in range(len(node.value))
    ):
        raise UndefinedError(f"no entry {index}")
    entry = node.value[int(index)]
    return Fraction(int(entry.p), int(entry.q))


_HANDLERS: Mapping[Op, Any] = {
    Op.ADD: _sum,
    Op.MULTIPLY: _product,
    Op.DIVIDE: _quotient,
    Op.POWER: _power,
    Op.FLOOR: _floor,
    Op.LOG: _log,
    Op.ATAN: lambda _, args: mpmath.atan(_mpf(args[0])) if args[0] else Fraction(0),
    Op.EXP: lambda _, args: mpmath.exp(_mpf(args[0])) if args[0] else Fraction(1),
    Op.COSPI: lambda _, args: _cosine(args[0]),
    Op.SINPI: _sine,
    Op.MINIMUM: _extreme,
    Op.MAXIMUM: _extreme,
    Op.ABSOLUTE: lambda _, args: abs(args[0]),
    Op.SIGN: _sign,
    Op.LOOKUP: _entry,
    Op.NOT: lambda _, args: not args[0],
    Op.LESS: lambda _, args: compare(*args) < 0,
    Op.LESS_EQUAL: lambda _, args: compare(*args) <= 0,
    Op.EQUAL: lambda _, args: compare(*args) == 0,
}
