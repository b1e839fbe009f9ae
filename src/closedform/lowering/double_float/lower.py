"""Double-float lowering: scalars of 48 bits in a graph that holds only float32 and integers.

For devices without float64. What is an integer stays one (the reductions are as in the other
lowering), everything else is a pair of float32 (``lowering/pair_arithmetic.py``), hyperparameters
included, and the pair is rounded once at the end. One dict from SymPy class to handler; a class
without a handler is rejected by name and place.

The result is off by less than 2**-14 ulp more than the half of its one rounding where every part of
a sum is at most some 2**20 times the sum; cancellation costs the bits that it cancels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.language.integers import FloorDiv, FloorMod
from closedform.lowering.analysis.annotate import interval, is_integral
from closedform.lowering.analysis.domain import Domain, Interval
from closedform.lowering.arithmetic import (
    constants_last,
    fits_line,
    primitive,
    reference,
    split_fraction,
    split_irrational,
    split_radical,
)
from closedform.lowering.context import Lowering
from closedform.lowering.double_float.context import DoubleFloat, Handler
from closedform.lowering.double_float.functions import arctangent
from closedform.lowering.double_float.powers import lower_exp, lower_log, lower_power
from closedform.lowering.double_float.trigonometry import lower_cosine, lower_sine, raised_cosine
from closedform.lowering.exponential import Exponential
from closedform.lowering.pair_arithmetic import Number, columns
from closedform.lowering.piecewise import Segment, join_branches, line_of, milestones_reached
from closedform.lowering.safe_operand import SafeOperand


def lower_rounded(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Returns an expression as one float32, computed in pairs and rounded once.

    Args:
        low: The graph under construction, with float32 scalars.
        expr: A prepared scalar expression.
        domain: Every step at which the graph may run.

    Raises:
        LoweringError: A class has no double-float form.
    """
    pairs = DoubleFloat(low, HANDLERS)
    largest = interval(expr, domain).absolute().high
    return pairs.math.rounded(pairs.number(expr, domain), is_bounded=largest < 2**126)


def _add(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """A sum: multiples of integers and the constant as one line, then the other terms."""
    common_factor = split_irrational(expr)
    if common_factor is not None:
        irrational, rational_sum = common_factor
        return low.math.multiply(low.number(rational_sum, domain), low.constant(irrational))
    constant, terms = expr.as_coeff_Add()
    integral: list[sp.Expr] = []
    real_terms: list[sp.Expr] = []
    for term in sp.Add.make_args(terms):
        factor, core = term.as_coeff_Mul()
        is_multiple = factor.is_Rational and is_integral(core)
        (integral if is_multiple else real_terms).append(term)
    if not fits_line(low.low, integral, domain):
        integral, real_terms = [], [*integral, *real_terms]
    if not integral and len(real_terms) == 1:
        cosine_value = raised_cosine(low, constant, real_terms[0], domain)
        if cosine_value is not None:
            return cosine_value
    parts = [_line(low, constant, integral, domain)] if integral else []
    if not integral and constant != 0:
        real_terms.append(constant)
    parts += [
        (low.number(term, domain), interval(term, domain))
        for term in sorted(real_terms, key=constants_last)
    ]
    return _sum(low, parts)


def _sum(low: DoubleFloat, parts: Sequence[tuple[Number, Interval]]) -> Number:
    total, values = parts[0]
    for number, addend_range in parts[1:]:
        # Numbers of one sign do not cancel: the shorter sum of pairs has its bound there.
        is_same_sign = (values.low >= 0 and addend_range.low >= 0) or (
            values.high <= 0 and addend_range.high <= 0
        )
        total = low.math.add(total, number, is_same_sign=is_same_sign)
        values = values + addend_range
    return total


def _line(
    low: DoubleFloat, constant: sp.Expr, multiples: Sequence[sp.Expr], domain: Domain
) -> tuple[Number, Interval]:
    """``a + g*I`` as ``g*(I - k) + (a + g*k)``, k an integer near the zero: nothing cancels."""
    slope, integer = primitive(sp.Add(*multiples))
    start = sp.Integer(0)
    if constant.is_Rational:
        start = sp.Integer(reference(constant, slope, interval(integer, domain)))
    if not low.low.fits_integer(integer - start, domain):
        start = sp.Integer(0)
    offset, height = integer - start, constant + slope * start
    values = interval(slope * offset, domain)
    line = low.math.multiply(low.integral(offset, domain), low.constant(slope))
    if height == 0:
        return line, values
    parts = [(line, values), (low.constant(height), interval(height, domain))]
    return _sum(low, parts), values + interval(height, domain)


def _mul(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """A product: the factors, then the number, then one division.

    A rational multiple of an integer takes the integer exactly. An irrational number goes under the
    root that it multiplies, so that ``sqrt(n/240000)`` is 1 at the end.
    """
    factor, core = expr.as_coeff_Mul()
    if factor.is_Rational and is_integral(core) and low.low.fits_integer(core, domain):
        return low.math.multiply(low.integral(core, domain), low.constant(factor))
    radical = split_radical(expr)
    if radical is not None:
        sign, radicand = radical
        root = low.math.square_root(low.number(radicand, domain))
        return low.math.negate(root) if sign < 0 else root
    number = sp.Mul(*(arg for arg in expr.args if arg.is_number))
    above, below = split_fraction([arg for arg in expr.args if not arg.is_number])
    factors = [low.number(arg, domain) for arg in sorted(above, key=sp.default_sort_key)]
    if number != 1 or not factors:
        factors.append(low.constant(number))
    result = functools.reduce(low.math.multiply, factors)
    if not below:
        return result
    divisors = [low.number(arg, domain) for arg in sorted(below, key=sp.default_sort_key)]
    return low.math.divide(result, functools.reduce(low.math.multiply, divisors))


def _extremum(op: Op) -> Handler:
    """Min or Max: the first operand where it is below (above) the second one."""

    def handler(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
        numbers = [low.number(arg, domain) for arg in sorted(expr.args, key=constants_last)]
        total = numbers[0]
        for number in numbers[1:]:
            pair = (total, number) if op is Op.MIN else (number, total)
            total = low.math.select(low.math.compare(Op.LT, *pair), total, number)
        return total

    return handler


# A quotient of pairs is off by less than 2**-43 of itself: ``(a + 1/2) / b`` of integers stays
# between the multiples of 1/b around it up to this size of a.
_LARGEST_NUMERATOR = 2**42


def _floor_div(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    if not all(arg.is_integer for arg in expr.args):
        return low.math.floor(low.math.divide(*(low.number(arg, domain) for arg in expr.args)))
    return _integer_quotient(low, expr, domain)


def _floor_mod(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """``a - b * floor(a / b)`` of integers, all of them below 2**48 and so exact."""
    if not all(arg.is_integer for arg in expr.args):
        raise low.low.error(
            f"{expr} has no double-float form: it is not of integers",
            "compile with precision='single'",
        )
    quotient = _integer_quotient(low, expr, domain)
    numerator, divisor = (low.number(arg, domain) for arg in expr.args)
    return low.math.add(numerator, low.math.negate(low.math.multiply(divisor, quotient)))


def _integer_quotient(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """The floor of the quotient of the two operands, integers."""
    numerator, divisor = expr.args
    if interval(numerator, domain).absolute().high > _LARGEST_NUMERATOR:
        raise low.low.error(
            f"{numerator} may exceed 2**42, up to which pairs divide integers exactly, in {expr}",
            "write it as sums and products of floor_mod(…, m) by the same m, or compile with "
            "precision='single'",
        )
    if interval(divisor, domain).is_negative:
        numerator, divisor = -numerator, -divisor
    above, below = low.number(numerator, domain), low.number(divisor, domain)
    half = low.constant(sp.S.Half)
    if not interval(divisor, domain).is_positive:
        is_negative = low.math.emit(Op.LT, low.math.settle(below).high, low.math.single(0.0))
        half = low.math.select(is_negative, low.constant(-sp.S.Half), half)
    return low.math.floor(low.math.divide(low.math.add(above, half), below))


def _piecewise(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    def table(segments: Sequence[Segment]) -> Number:
        return _table(low, segments)

    return join_branches(low.low, expr, domain, low.number, table, low.math.select)


def _table(low: DoubleFloat, segments: Sequence[Segment]) -> Number:
    """``height[i] + slope[i] * (t - start[i])``, i the number of milestones that are reached."""
    heights, slopes, starts = zip(*(line_of(segment) for segment in segments), strict=True)
    index = milestones_reached(low.low, [segment.first for segment in segments[1:]])
    height = _lookup(low, heights, index)
    if not any(slopes):
        return height
    integers = low.low.builder.const(np.array(starts), low.low.integer)
    start = low.math.emit(Op.LOOKUP, integers, index)
    # In integers, where the difference is exact.
    steps_since = low.math.emit(Op.SUB, low.low.step, start)
    largest = max(segment.last - segment.first for segment in segments)
    run = low.math.multiply(
        _lookup(low, slopes, index), low.math.from_integer(steps_since, largest)
    )
    return low.math.add(height, run)


def _lookup(low: DoubleFloat, numbers: Sequence[Fraction], index: Value) -> Number:
    high, low_part = columns(numbers)
    entries = low.math.emit(Op.LOOKUP, low.low.builder.const(high, DType.F32), index)
    if not low_part.any():
        return Number(entries)
    low_entries = low.math.emit(Op.LOOKUP, low.low.builder.const(low_part, DType.F32), index)
    return Number(entries, low_entries)


HANDLERS: Mapping[type[sp.Basic], Handler] = {
    sp.Add: _add,
    sp.Mul: _mul,
    sp.Pow: lower_power,
    sp.Min: _extremum(Op.MIN),
    sp.Max: _extremum(Op.MAX),
    sp.Abs: lambda low, expr, domain: low.math.absolute(low.number(expr.args[0], domain)),
    sp.floor: lambda low, expr, domain: low.math.floor(low.number(expr.args[0], domain)),
    sp.exp: lower_exp,
    Exponential: lower_exp,
    sp.log: lower_log,
    sp.cos: lower_cosine,
    sp.sin: lower_sine,
    sp.atan: lambda low, expr, domain: arctangent(low.math, low.number(expr.args[0], domain)),
    sp.Piecewise: _piecewise,
    SafeOperand: lambda low, expr, domain: low.number(expr.piecewise, domain),
    FloorDiv: _floor_div,
    FloorMod: _floor_mod,
}
