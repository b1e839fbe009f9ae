"""Exact values of expressions at one step: branch by branch, in SymPy numbers.

Only the branch that is taken is evaluated, so a pole in another one does no harm. An And or Or has
a value where its arguments that have values decide it, in whatever order they are written: SymPy
sorts them. ``ITE(c, a, b)`` means ``(c & a) | (~c & b)``. The prover and graphs do the same.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy as sp
from flint import fmpq
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFunction

from closedform.errors import DomainError, LimitError
from closedform.language.enclosures import Resolve, floor_of, sign_of
from closedform.language.integers import FloorDiv, FloorMod
from closedform.language.sizes import check_exponentials
from closedform.magnitude import bits, number_text, power_bits

# Digits from which a value is rounded to float64.
_DIGITS = 60
# Rational powers of more bits than this become Floats: (999/1000)**(2**50) would never end.
_MOST_BITS = 100_000
_MOST_EXPONENT_BITS = 1000
_LARGEST_EXPONENT = sp.Integer(2**_MOST_EXPONENT_BITS)
_LONG_DIGITS = 80

# Roots of rational numbers of more bits than this become Floats: SymPy factors the base, which took
# minutes for the roots of RAdam's rectification at t = 300.
_LARGEST_ROOT = 256

COMPARISONS: Mapping[Callable[..., sp.Basic], Callable[..., bool]] = {
    sp.Eq: operator.eq,
    sp.Ne: operator.ne,
    sp.Lt: operator.lt,
    sp.Le: operator.le,
    sp.Gt: operator.gt,
    sp.Ge: operator.ge,
}
"""Comparisons of expressions, and of numbers: SymPy's classes take 0.1 ms."""

_FLOORS = (sp.floor, sp.ceiling, FloorDiv, FloorMod, sp.Mod)

# Powers with a finer exponent are Floats, too: 24**(14234567890123457/10**16) would never end in
# SymPy 1.14, which works 3**14234567890123457 out.
FINEST = 10_000
"""The largest denominator of an exponent of which SymPy works powers of numbers out."""


def value_at(expr: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    """Returns the exact value of ``expr`` with each symbol replaced by its number.

    Raises:
        DomainError: No branch of a Piecewise holds, or the value is not finite and real.
    """
    result = _value(expr, values)
    if result.is_finite is False or result.is_extended_real is False or result.has(sp.nan, sp.zoo):
        raise DomainError(f"the value is {result}, not a finite real number", where=_place(values))
    return result


def holds_at(condition: sp.Basic, values: dict[sp.Symbol, sp.Expr]) -> bool:
    """Returns whether a condition of a Piecewise holds at these values.

    Raises:
        DomainError: It has no value there, or is not a comparison.
    """
    if condition in (sp.true, sp.false):
        return bool(condition)
    if isinstance(condition, sp.And | sp.Or):
        return _junction_at(condition, values)
    if isinstance(condition, sp.Not):
        return not holds_at(condition.args[0], values)
    if isinstance(condition, sp.ITE):
        return _choice_at(condition, values)
    if not isinstance(condition, Relational) or isinstance(condition, BooleanFunction):
        raise DomainError(f"{condition} is not a comparison", where=_place(values))
    left, right = (_value(arg, values) for arg in condition.args)
    if left.is_Rational and right.is_Rational:
        # Cross products: SymPy's denominators are positive, so this has the sign of left - right.
        sign = int(left.p) * int(right.q) - int(right.p) * int(left.q)
    else:
        first, second = condition.args
        difference = sp.Add(first, sp.Mul(-1, second, evaluate=False), evaluate=False)
        sign = _sign(difference, left - right, values)
    return COMPARISONS[condition.func](sign, 0)


def _junction_at(condition: sp.Basic, values: dict[sp.Symbol, sp.Expr]) -> bool:
    """An And or Or; an argument may have no value where another one decides."""
    decisive = isinstance(condition, sp.Or)
    domain_error: DomainError | None = None
    for arg in condition.args:
        try:
            if holds_at(arg, values) is decisive:
                return decisive
        # Not raised at once: a later argument may decide. SymPy sorts arguments, so their order has
        # no meaning.
        except DomainError as error:
            domain_error = error
    if domain_error is not None:
        raise domain_error
    return not decisive


def _choice_at(condition: sp.ITE, values: dict[sp.Symbol, sp.Expr]) -> bool:
    test, yes, no = condition.args
    try:
        is_taken = holds_at(test, values)
    except DomainError:
        # (c & a) | (~c & b) is false whatever c is, as with the three-valued And and Or above.
        if not holds_at(yes, values) and not holds_at(no, values):
            return False
        raise
    return holds_at(yes if is_taken else no, values)


def _fraction(value: sp.Expr) -> Fraction:
    return Fraction(int(value.p), int(value.q))


def nearest_float(number: Fraction | fmpq | sp.Rational) -> float:
    """Returns the float64 nearest to a fraction; infinite where that is above the largest one.

    Of two nearest ones it is the one whose last bit is 0. python-flint 0.7 has no float of a
    fraction, and SymPy's takes longer where the integers are long.

    Example:
        >>> nearest_float(Fraction(1, 3)), nearest_float(Fraction(-(10**400), 3))
        (0.3333333333333333, -inf)
    """
    numerator = int(number.numerator)
    try:
        # The quotient of integers of Python is rounded once.
        return numerator / int(number.denominator)
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def to_float(value: sp.Expr) -> float:
    """Returns the float64 nearest to an exact number.

    Raises:
        LimitError: It has an exponential that is too large to be worked out.
        OverflowError: It is a fraction above the largest float64.
    """
    if value.is_Rational:
        number = nearest_float(value)
        if math.isinf(number):
            raise OverflowError(f"{number_text(_fraction(value))} is above the largest float64")
        return number
    check_exponentials(value, "a value")
    # Rounded twice, to 60 digits and to 53 bits: wrong only if the 43 digits after the 17th are the
    # digits of a tie.
    return float(sp.N(value, _DIGITS))


def to_odd_float(value: sp.Expr) -> float:
    """Returns a float64 that rounds to the same float of at most 51 bits as an exact number.

    It is the number rounded to odd: where it is not a float64, the one of its two neighbours whose
    last bit is 1. So a tie of narrower floats is one only if the number is (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums", 2008).

    Raises:
        OverflowError: It is above the largest float64.
        TypeError: It is not a real number.
    """
    near = to_float(value)
    if not math.isfinite(near):
        return near
    difference = value - sp.Rational(*near.as_integer_ratio())
    side = sign_of(difference, lambda part: part, lambda: difference)
    # The last bit of the significand is the last bit of the pattern.
    is_odd = int.from_bytes(struct.pack("<d", near), "little") % 2 == 1
    if not side or is_odd:
        return near
    # An even neighbour that is not the number: the other neighbour, on the number's side, is odd.
    return math.nextafter(near, side * math.inf)


def _resolver(values: dict[sp.Symbol, sp.Expr]) -> Resolve:
    """The function that returns a symbol, branch or floor at these values."""

    def resolve(part: sp.Basic) -> sp.Expr:
        return _branch(part, values) if isinstance(part, sp.Piecewise) else _value(part, values)

    return resolve


def _sign(difference: sp.Expr, number: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> int:
    """The sign of a difference, of which a number is the value."""
    if number.is_Rational:
        return int(sp.sign(number))
    sign = sign_of(difference, _resolver(values), lambda: number)
    if sign is None:
        raise DomainError(f"cannot compare {number} with 0", where=_place(values))
    return sign


def _floor(expr: sp.Expr, number: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> sp.Integer:
    """The floor of an expression, of which a number is the value."""
    if number.is_Rational:
        return sp.Integer(int(number.p) // int(number.q))
    floor = floor_of(expr, _resolver(values), lambda: number)
    if floor is None:
        raise DomainError(f"{number} has no floor", where=_place(values))
    return sp.Integer(floor)


def _round_integer(expr: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    """The value of a floor, ceiling, quotient or remainder."""
    args = [_value(arg, values) for arg in expr.args]
    if isinstance(expr, sp.floor):
        return _floor(expr.args[0], args[0], values)
    if isinstance(expr, sp.ceiling):
        # ceil(x) = -floor(-x): one algorithm for both.
        return -_floor(-expr.args[0], -args[0], values)
    a, b = args
    if b.is_zero:
        raise DomainError(f"{a} is divided by 0", where=_place(values))
    quotient = sp.Mul(expr.args[0], sp.Pow(expr.args[1], -1, evaluate=False), evaluate=False)
    # Both forms: enclosures need the unevaluated operands, algebra the value.
    floor = _floor(quotient, a / b, values)
    return floor if isinstance(expr, FloorDiv) else a - b * floor


_OF_REAL_NUMBERS = (sp.Min, sp.Max, sp.Abs, sp.Heaviside)
"""Functions of real numbers: for others SymPy raises ValueError, or takes the modulus."""


def _value(expr: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    if isinstance(expr, sp.Symbol):
        if expr not in values:
            raise DomainError(f"{expr} has no value", where=_place(values), hint="bind it first")
        return values[expr]
    if not expr.args:
        return expr
    if isinstance(expr, sp.Piecewise):
        return _value(_branch(expr, values), values)
    if isinstance(expr, _FLOORS):
        return _round_integer(expr, values)
    args = [_value(arg, values) for arg in expr.args]
    if isinstance(expr, sp.sign):
        return sp.Integer(_sign(expr.args[0], args[0], values))
    if isinstance(expr, sp.Min | sp.Max) and all(arg.is_Rational for arg in args):
        # SymPy sorts and compares the arguments several times: 0.2 ms
        return (min if isinstance(expr, sp.Min) else max)(args, key=_fraction)
    if isinstance(expr, _OF_REAL_NUMBERS):
        for arg in args:
            if arg.is_extended_real is False:
                raise DomainError(f"{arg} is not a real number", where=_place(values))
    return _power(*args) if isinstance(expr, sp.Pow) else expr.func(*args)


def _branch(expr: sp.Piecewise, values: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    for branch, condition in expr.args:
        if holds_at(condition, values):
            return branch
    raise DomainError("Piecewise has no value", where=_place(values), hint="add a final branch")


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    """A power, as a Float of many digits where the exact one would be too long to work out."""
    is_number = exponent.is_Rational or exponent.is_Float
    # The time of SymPy grows with the cube of these bits.
    if is_number and abs(exponent) > _LARGEST_EXPONENT and base not in (0, 1):
        raise LimitError(
            f"a power has an exponent of more than {_MOST_EXPONENT_BITS} bits",
            hint="write its limit, 0 for a large negative exponent",
        )
    if base.is_Rational and exponent.is_Rational:
        number = _fraction(base)
        is_long_root = exponent.q > 1 and bits(number) > _LARGEST_ROOT
        is_long = power_bits(number, _fraction(exponent)) > _MOST_BITS
        if is_long or exponent.q > FINEST or is_long_root:
            return sp.Float(base, _LONG_DIGITS) ** exponent
    return base**exponent


def _place(values: dict[sp.Symbol, sp.Expr]) -> str:
    return ", ".join(f"{symbol} = {value}" for symbol, value in values.items())
