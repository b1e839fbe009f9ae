"""Calls of SymPy's constructors, without the work of those that leave their operands unchanged.

``Min(a, b)`` asks SymPy whether one operand is never above the other, ``a < b`` whether it always
holds, ``cos(a)`` whether a is a multiple of pi: through the signs and parities of differences,
factors and derivatives, 1 to 50 ms in each case. The answer is usually no, and two points show it
in microseconds: one at which a is below b, and one at which it is above. SymPy, which must not
decide against these points, then returns the expression that it returns with ``evaluate=False``.

Substitution costs time linear in the nodes, also in a Piecewise of 10,000 branches.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from decimal import (
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    Underflow,
)
from fractions import Fraction
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.language.symbols import t
from closedform.magnitude import power_bits

# Bounds of the effort for one answer: where they are reached SymPy decides, at its usual cost.
_MOST_BITS = 2**14
_MOST_MARKS = 8
_MOST_POINTS = 40

# Samples are positive integers: they are values of a symbol only if its assumptions hold for all
# positive integers.
_POSITIVE_INTEGER = sp.Symbol("n", integer=True, positive=True).assumptions0

# Traps turn a quiet NaN or infinity into an exception. With 60 digits, the error of a root stays
# below _LEAST_GAP for values up to 1e30.
_ROOTS = Context(
    prec=60,
    Emin=-5000,
    Emax=5000,
    traps=[DivisionByZero, InvalidOperation, Overflow, Underflow],
)
_LEAST_GAP = Fraction(1, 10**30)
"""Values that differ by more have an order also if roots are rounded to 60 digits."""

_STEPS = (0, 1, 2, 30, 1000, 10**6, 2**45)
"""Numbers of the clock: the operands of a schedule cross between two of them."""

_EXTREMA = (sp.Min, sp.Max)
_ORDERS = (sp.Lt, sp.Le, sp.Gt, sp.Ge)


class RealValued:
    """Functions of which SymPy knows that their values are real, like symbols."""


def construct(func: type[sp.Basic], *operands: sp.Basic | int) -> Any:
    """Returns ``func(*operands)``.

    Example:
        >>> from closedform.language.symbols import t
        >>> from sympy import Integer, Min
        >>> construct(Min, t, Integer(100))
        Min(100, t)
        >>> construct(Min, t, t + 1)
        t
    """
    args = [sp.Integer(operand) if isinstance(operand, int) else operand for operand in operands]
    try:
        # cos asks whether 2 * angle / pi is an integer, to return 0, 1 or -1.
        if func is sp.cos:
            angle = _reduce_angle(args[0])
            return func(args[0]) if angle is None else func(angle, evaluate=False)
        if (func in _EXTREMA and _is_flat(func, args)) or func in _ORDERS:
            return func(*args, evaluate=not _has_no_order(args))
    except _UnknownError:
        pass
    return func(*args)


def square_root(operand: sp.Basic) -> Any:
    """Returns ``sqrt(operand)``.

    SymPy asks whether a product is imaginary, through the signs of all parts of its factors; one
    point at which it is a positive number shows that it is not.
    """
    if not isinstance(operand, sp.Mul) or not _is_positive_somewhere(operand):
        return sp.sqrt(operand)
    number, factors = operand.as_coeff_mul()  # SymPy asks for the sign of each factor
    if number > 0 and all(map(_is_shifted_extremum, factors)):
        product = sp.Mul(*factors, evaluate=False) if len(factors) > 1 else factors[0]
        # The form that sp.sqrt returns: the root of the number outside, the root of the product
        # unexpanded.
        root = sp.Pow(product, sp.S.Half, evaluate=False)
        return sp.Mul(*sp.Mul.make_args(sp.sqrt(number)), root, evaluate=False)
    root = sp.Pow(operand, sp.S.Half, evaluate=False)
    # Only power_base: the root is distributed over the factors that are nonnegative, as Mul does
    # it.
    return root.expand(
        deep=False,
        power_base=True,
        power_exp=False,
        mul=False,
        log=False,
        multinomial=False,
        basic=False,
    )


def product(factors: Sequence[sp.Expr]) -> Any:
    """Returns ``Mul(*factors)``.

    SymPy makes each power again: for a root of a product it asks for the signs of its factors.
    """
    parts = [part for factor in factors for part in sp.Mul.make_args(factor)]
    if not any(map(_is_settled_root, parts)) or not _stay_apart(parts):
        return sp.Mul(*factors)
    numbers = [part for part in parts if part.is_Rational]
    non_numbers = [part for part in parts if not part.is_Rational]
    # Mul.flatten sorts factors with Basic.compare; another order would make an unequal expression.
    ordered_factors = sorted(non_numbers, key=functools.cmp_to_key(sp.Basic.compare))
    return sp.Mul(*numbers, *ordered_factors, evaluate=False)


def _is_settled_root(expr: sp.Basic) -> bool:
    """Whether an expression is a root that ``square_root`` has made without SymPy."""
    if not isinstance(expr, sp.Pow) or expr.exp is not sp.S.Half:
        return False
    return isinstance(expr.base, sp.Mul) and all(map(_is_shifted_extremum, expr.base.args))


def _stay_apart(parts: Sequence[sp.Expr]) -> bool:
    """Whether no two factors of three or more are joined, nor is one changed.

    Factors of equal bases are joined, and numbers with powers of numbers; a number and a sum alone
    are multiplied out.
    """
    numbers = [part for part in parts if part.is_Rational]
    bases = [part.as_base_exp()[0] for part in parts if not part.is_Rational]
    of_numbers = [part for part in parts if isinstance(part, sp.Pow) and part.base.is_number]
    are_roots = all(part.base.is_Integer and part.exp is sp.S.Half for part in of_numbers)
    is_scaled = not numbers or (numbers[0] not in (0, 1) and len(bases) > 1)
    return (
        len(numbers) <= 1
        and is_scaled
        and len(set(bases)) == len(bases)
        and not any(base.is_number for base in bases if not base.is_Integer)
        and len(of_numbers) <= 1
        and are_roots
    )


def _is_shifted_extremum(expr: sp.Basic) -> bool:
    """Whether an expression is a number < -1 and a Max or Min, whose sign SymPy does not find."""
    if not isinstance(expr, sp.Add) or len(expr.args) != 2:
        return False
    number, extremum = expr.args
    return isinstance(extremum, _EXTREMA) and number.is_Rational and number < -1


def _is_positive_somewhere(expr: sp.Basic) -> bool:
    try:
        return any(values[0] > 0 for values in _samples((expr,), with_roots=True))
    except _UnknownError:
        return False


def _is_flat(func: type[sp.Basic], args: Sequence[sp.Basic]) -> bool:
    """Whether at most one operand of a Min or Max is a Max or Min, and shares no operand."""
    extrema = [arg for arg in args if isinstance(arg, _EXTREMA)]
    if len(extrema) > 1 or any(isinstance(arg, func) for arg in extrema):
        return False
    parts = {part for arg in extrema for part in sp.preorder_traversal(arg)}
    return not any(arg in parts for arg in args if arg not in extrema)


def _has_no_order(args: Sequence[sp.Basic]) -> bool:
    """Whether each of two operands is above the other one somewhere."""
    open_pairs = set(itertools.combinations(range(len(args)), 2))
    orders: dict[tuple[int, int], bool] = {}
    for values in _samples(args, with_roots=True):
        for pair in tuple(open_pairs):
            first, second = (values[index] for index in pair)
            if abs(first - second) <= _LEAST_GAP:
                continue
            # The first order is noted; a sample with the opposite order proves that neither operand
            # is always the smaller one.
            if orders.setdefault(pair, first < second) is not (first < second):
                open_pairs.discard(pair)
        if not open_pairs:
            return True
    return False


def _reduce_angle(angle: sp.Basic) -> sp.Expr | None:
    """An angle pi*x as a cosine holds it; None if x may be half an integer at each step.

    The factor of x is in (0, 2): SymPy takes whole turns off, and negative angles.
    """
    if not isinstance(angle, sp.Mul) or angle.args.count(sp.pi) != 1 or angle.is_number:
        return None
    parts = [arg for arg in angle.args if arg is not sp.pi]
    if isinstance(parts[0], sp.Rational) and not 0 < parts[0] < 2:
        return None
    turns = sp.Mul(*parts)
    # One sample at which 2x is not an integer refutes that it always is.
    if all((2 * values[0]).denominator == 1 for values in _samples((turns,))):
        return None
    return sp.pi * turns


class _UnknownError(Exception):
    """An expression has a part that is not looked into."""


class _NoValueError(Exception):
    """A value is not rational, not real, or too long."""


def _samples(exprs: Sequence[sp.Basic], *, with_roots: bool = False) -> Iterator[list[Fraction]]:
    """Values of expressions at some numbers of their symbols.

    Args:
        exprs: The expressions.
        with_roots: Whether roots have values, which are rounded.
    """
    symbols = set().union(*(expr.free_symbols for expr in exprs)) - {t}
    if not all(symbol.assumptions0.items() <= _POSITIVE_INTEGER.items() for symbol in symbols):
        raise _UnknownError
    names = sorted(symbols.union(*(expr.atoms(RealValued) for expr in exprs)), key=str)
    marks = {int(atom.p) for expr in exprs for atom in expr.atoms(sp.Integer)}
    # Operands cross at the numbers that the expression contains: t - 2000 changes its sign after
    # 2000.
    near = [mark + 1 for mark in sorted(marks)[:_MOST_MARKS] if mark > 0]
    steps = (*_STEPS, *near)
    signed_names = [
        name for name in names if name.is_positive is None and name.is_nonnegative is None
    ]
    # After a point where all are positive, each in turn is negative.
    count = min(_MOST_POINTS, len(steps) * max(1, len(signed_names)))
    for index in range(count):
        values = {atom: _number(atom, index, i) for i, atom in enumerate(names)}
        turn = (index + index // len(steps)) % (len(signed_names) + 1)
        if turn:
            values[signed_names[turn - 1]] *= -1
        # The clock is a nonnegative integer and may be 0; the other symbols may not.
        values[t] = Fraction(steps[index % len(steps)])
        try:
            yield [_value(expr, values, with_roots=with_roots) for expr in exprs]
        except (ZeroDivisionError, _NoValueError):
            continue


def _number(symbol: sp.Basic, index: int, place: int) -> Fraction:
    """A positive number for a symbol or reduction; of two, each is the larger in some samples."""
    # 1 + 7**0 to 1 + 7**4: the stride differs with the place, so that two symbols are ordered in
    # both ways within five samples.
    whole = 1 + 7 ** (index * (place + 1) % 5)
    is_below_one = symbol.is_integer is None and (index // 2 + place) % 2
    return Fraction(1, whole) if is_below_one else Fraction(whole)


def _value(
    expr: sp.Basic, values: Mapping[sp.Basic, Fraction], *, with_roots: bool = False
) -> Fraction:
    if isinstance(expr, sp.Rational):
        return Fraction(int(expr.p), int(expr.q))
    if isinstance(expr, sp.Symbol | RealValued):
        return values[expr]
    value = functools.partial(_value, values=values, with_roots=with_roots)
    if isinstance(expr, sp.Pow):
        base, exponent = (value(part) for part in expr.args)
        return _power(base, exponent, with_roots=with_roots)
    if isinstance(expr, sp.Piecewise):
        return value(_branch(expr, values, with_roots=with_roots))
    if isinstance(expr, sp.floor):
        # A rounded root may be on the other side of an integer: it has no value here.
        return Fraction(math.floor(_value(expr.args[0], values)))
    if not isinstance(expr, sp.Add | sp.Mul | sp.Min | sp.Max | sp.Abs):
        raise _UnknownError
    parts = [value(part) for part in expr.args]
    if isinstance(expr, sp.Add):
        return sum(parts, Fraction(0))
    if isinstance(expr, sp.Mul):
        return functools.reduce(operator.mul, parts)
    if isinstance(expr, sp.Abs):
        return abs(parts[0])
    return min(parts) if isinstance(expr, sp.Min) else max(parts)


def _power(base: Fraction, exponent: Fraction, *, with_roots: bool) -> Fraction:
    """A power, rounded to 60 digits if it is a root."""
    if exponent.denominator == 1:
        if power_bits(base, exponent) > _MOST_BITS:
            raise _NoValueError
        return base ** int(exponent)
    if not with_roots or base < 0 or (base == 0 and exponent < 0):
        raise _NoValueError
    try:
        return Fraction(_ROOTS.power(_decimal(base), _decimal(exponent)))
    except DecimalException as error:
        raise _NoValueError from error


def _decimal(value: Fraction) -> Decimal:
    return _ROOTS.divide(Decimal(value.numerator), Decimal(value.denominator))


def _branch(
    expr: sp.Piecewise, values: Mapping[sp.Basic, Fraction], *, with_roots: bool
) -> sp.Basic:
    """The value of the first branch whose condition, an order of two values, holds."""
    for branch, condition in (pair.args for pair in expr.args):
        if condition == sp.true:
            return branch
        if not isinstance(condition, _ORDERS):
            raise _UnknownError
        left, right = (_value(part, values, with_roots=with_roots) for part in condition.args)
        if abs(left - right) <= _LEAST_GAP:
            raise _NoValueError
        if (left < right) is isinstance(condition, sp.Lt | sp.Le):
            return branch
    raise _NoValueError


def substitute(expr: sp.Basic, values: Mapping[sp.Symbol, sp.Expr]) -> sp.Basic:
    """Returns ``expr.xreplace(values)``.

    SymPy re-evaluates each condition of a Piecewise whenever it is rebuilt, 5 ms a branch. A
    condition in which nothing is replaced has been asked already, so here it is not asked again.

    Example:
        >>> from closedform.language.symbols import t
        >>> from sympy import Integer, Piecewise, Symbol
        >>> a = Symbol("a")
        >>> substitute(Piecewise((a, t < 3), (0, True)), {a: Integer(2)})
        Piecewise((2, t < 3), (0, True))
    """
    return Substitution(values)(expr) if values else expr


class Substitution:
    """``substituted(expr, values)`` for many expressions: what they share is rebuilt once.

    Args:
        values: The value of each symbol.
    """

    def __init__(self, values: Mapping[sp.Symbol, sp.Expr]) -> None:
        self._known: dict[sp.Basic, sp.Basic] = dict(values)
        self._powers = _Powers()

    def __call__(self, expr: sp.Basic) -> sp.Basic:
        """Returns ``expr.xreplace(values)``."""
        results = self._known
        if expr in results:
            return results[expr]
        result = expr
        if expr.args:
            args = [self(arg) for arg in expr.args]
            if any(new is not old for new, old in zip(args, expr.args, strict=True)):
                result = _made_again(expr, args, self._powers)
        results[expr] = result
        return result


def _made_again(part: sp.Basic, args: list[sp.Basic], powers: _Powers) -> sp.Basic:
    if isinstance(part, sp.Piecewise):
        branches = [_with_clock_first(branch) for branch in args]
        if _is_settled(part, branches):
            return sp.Piecewise(*branches, evaluate=False)
    if isinstance(part, sp.Pow) and isinstance(args[0], sp.Rational) and args[1].is_Integer:
        return powers.power(args[0], args[1])
    if isinstance(part, sp.Pow) and args[1] is sp.S.Half:
        return square_root(args[0])
    if isinstance(part, sp.Mul) and all(isinstance(arg, sp.Rational) for arg in args):
        return math.prod(args[1:], start=args[0])
    if isinstance(part, sp.Mul):
        return product(args)
    return construct(part.func, *args)


class _Powers:
    """Powers of rational numbers, each from the one before: thousands have long numbers."""

    def __init__(self) -> None:
        self._last: dict[sp.Rational, tuple[int, sp.Rational]] = {}

    def power(self, base: sp.Rational, exponent: sp.Integer) -> sp.Expr:
        """Returns ``base**exponent``."""
        target = int(exponent)
        # Milestones come in rising order: b**n is b**m * b**(n - m), one long product per branch.
        last, value = self._last.get(base, (0, sp.S.One))
        if target < last or base in (0, 1, -1):
            return base**exponent
        further = base ** sp.Integer(target - last)
        # Powers of coprime integers are coprime.
        power_value = sp.Rational.from_coprime_ints(value.p * further.p, value.q * further.q)
        self._last[base] = (target, power_value)
        return power_value


def _is_settled(piecewise: sp.Piecewise, branches: list[sp.Basic]) -> bool:
    """Whether SymPy would leave these branches unchanged: nothing to drop, merge or flatten."""
    return (
        _have_settled_conditions(piecewise, branches)
        and not any(
            value.args and value.has(sp.Piecewise)
            for value, _ in (branch.args for branch in branches)
        )
        # Piecewise.__new__ joins neighbours of equal value by an Or of their conditions.
        and all(one.args[0] != next_one.args[0] for one, next_one in pairwise(branches))
    )


def _with_clock_first(branch: sp.Basic) -> sp.Basic:
    """A branch whose condition ``2000 > t`` is written ``t < 2000``, as SymPy writes it."""
    value, condition = branch.args
    is_reversed = isinstance(condition, sp.Gt | sp.Ge) and condition.lhs.is_Rational
    return branch.func(value, condition.reversed) if is_reversed else branch


def _have_settled_conditions(piecewise: sp.Piecewise, branches: list[sp.Basic]) -> bool:
    """Whether conditions are as before, or comparisons of a symbol with different numbers."""
    conditions = [new.args[1] for new in branches]
    if all(new is old.args[1] for new, old in zip(conditions, piecewise.args, strict=True)):
        return True
    *tests, last = conditions
    return (
        all(
            isinstance(test, sp.Lt | sp.Le) and test.lhs.is_Symbol and test.rhs.is_Rational
            for test in tests
        )
        and last == sp.true
        and len(set(tests)) == len(tests)
    )


def values_in(expr: sp.Basic, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values, by name, of symbols that an expression has."""
    names = {symbol.name for symbol in expr.free_symbols}
    return {name: value for name, value in values.items() if name in names}
