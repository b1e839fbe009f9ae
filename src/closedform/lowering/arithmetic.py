"""Integers exactly; sums, products and powers in a stated order, without avoidable cancellation.

Small integers are computed in floats (``cast(step)`` is shared by the whole graph); values that may
exceed the integers that the scalar dtype holds exactly, and every division and remainder, stays
integer, in the dtype of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.language.integers import FloorDiv, FloorMod
from closedform.lowering.analysis.annotate import branches, interval, is_integral
from closedform.lowering.analysis.domain import MAX_STEP, Domain, Interval
from closedform.lowering.context import Lowering
from closedform.lowering.pair_arithmetic import Arithmetic, Number
from closedform.lowering.safe_operand import SafeOperand
from closedform.lowering.trigonometry import raised_cosine


def lower_integer(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers an integer expression to a value of the integer dtype."""
    if not is_integral(expr):
        raise low.error(f"{expr} is not known to be an integer", "use floor_div or floor_mod")
    if not low.fits_integer(expr, domain):
        raise low.error(f"{expr} may exceed {low.integer}")
    return _arithmetic(low, expr, domain, low.integer)


def lower_integral(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers an integer expression to an exact value of the scalar float dtype."""
    if _is_exact_in_float(expr, domain, 2**low.scalar.row.precision):
        return _arithmetic(low, expr, domain, low.scalar)
    return low.cast(lower_integer(low, expr, domain), low.scalar)


def _is_exact_in_float(expr: sp.Expr, domain: Domain, limit: int) -> bool:
    # Quotients of floats round before they are rounded down: floor(fl(a / b)) may be one too large.
    if isinstance(expr, FloorDiv | FloorMod | SafeOperand | sp.Piecewise):
        return False
    # The partial sums of a sum are within the sum of the sizes of its terms.
    terms = expr.args if isinstance(expr, sp.Add) else (expr,)
    sizes = [interval(term, domain).absolute().high for term in terms]
    if sum(sizes, Fraction(0)) > limit:
        return False
    return all(_is_exact_in_float(arg, domain, limit) for arg in expr.args)


def _arithmetic(low: Lowering, expr: sp.Expr, domain: Domain, dtype: DType) -> Value:
    if expr.is_Integer:
        return low.constant(expr, dtype)
    if isinstance(expr, sp.Symbol):
        return low.cast(low.symbol(expr), dtype)
    if isinstance(expr, SafeOperand):
        return _arithmetic(low, expr.piecewise, domain, dtype)
    if isinstance(expr, sp.Piecewise):
        return _piecewise(low, expr, domain, dtype)
    if isinstance(expr, sp.Add):
        return _add(low, expr, domain, dtype)
    if isinstance(expr, sp.Abs):
        return low.emit(Op.ABS, _arithmetic(low, expr.args[0], domain, dtype))
    if isinstance(expr, sp.Pow):
        return low.fold(Op.MUL, [_arithmetic(low, expr.base, domain, dtype)] * int(expr.exp))
    if isinstance(expr, sp.Mul) and expr.args[0] == -1:
        return low.emit(Op.NEG, _arithmetic(low, -expr, domain, dtype))
    op = _FOLDED.get(expr.func)
    if op is not None:
        operands = sorted(expr.args, key=constants_last)
        return low.fold(op, [_arithmetic(low, arg, domain, dtype) for arg in operands])
    if isinstance(expr, FloorDiv | FloorMod):
        op = Op.FLOOR_DIV if isinstance(expr, FloorDiv) else Op.FLOOR_MOD
        return low.emit(op, *(_arithmetic(low, arg, domain, dtype) for arg in expr.args))
    raise low.error(f"{expr.func} has no exact integer form, in {expr}")


_FOLDED = {sp.Mul: Op.MUL, sp.Min: Op.MIN, sp.Max: Op.MAX}


def constants_last(expr: sp.Expr) -> tuple[bool, object]:
    """Sort key of the operands of a fold: SymPy's order, numbers last."""
    return bool(expr.is_number), sp.default_sort_key(expr)


def _add(low: Lowering, expr: sp.Expr, domain: Domain, dtype: DType) -> Value:
    """Positive terms first, then the negative ones subtracted: one node less than negating."""
    terms = sorted(expr.args, key=constants_last)
    positive = [term for term in terms if term.as_coeff_Mul()[0] > 0]
    negative = [-term for term in terms if term.as_coeff_Mul()[0] < 0]
    if not positive:
        return low.emit(Op.NEG, _arithmetic(low, -expr, domain, dtype))
    total = low.fold(Op.ADD, [_arithmetic(low, term, domain, dtype) for term in positive])
    for term in negative:
        total = low.emit(Op.SUB, total, _arithmetic(low, term, domain, dtype))
    return total


def _piecewise(low: Lowering, expr: sp.Piecewise, domain: Domain, dtype: DType) -> Value:
    cases = branches(expr, domain)
    result = _arithmetic(low, cases[-1][0], cases[-1][2], dtype)
    for value, condition, inside in reversed(cases[:-1]):
        case_value = _arithmetic(low, value, inside, dtype)
        result = low.emit(Op.WHERE, low.rules.condition(low, condition, domain), case_value, result)
    return result


# Integer powers up to this are products; a product of n factors is off by at most n/2 ulp.
_LARGEST_PRODUCT = 8
# Every integer up to this is a float32.
_EXACT_SINGLE = 2**24


def lower_add(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers a sum: integer multiples and the constant in one exact form, then the other terms."""
    if low.is_tensor(expr):
        return _add_tensors(low, expr, domain)
    common_factor = split_irrational(expr)
    if common_factor is not None:
        irrational, rational_sum = common_factor
        return low.emit(Op.MUL, low.real(rational_sum, domain), low.constant(irrational))
    constant, terms = expr.as_coeff_Add()
    integral: list[sp.Expr] = []
    real_terms: list[sp.Expr] = []
    for term in sp.Add.make_args(terms):
        factor, core = term.as_coeff_Mul()
        (integral if factor.is_Rational and is_integral(core) else real_terms).append(term)
    if not fits_line(low, integral, domain):
        integral, real_terms = [], [*integral, *real_terms]
    if not integral and len(real_terms) == 1:
        cosine_value = raised_cosine(low, constant, real_terms[0], domain)
        if cosine_value is not None:
            return cosine_value
    if integral:
        start = _line(low, constant, sp.Add(*integral), domain)
        return _add_terms(low, real_terms, expr, domain, start)
    # ``c - x`` and not ``-x + c``: one node less.
    if constant > 0 and all(_sign(term) < 0 for term in real_terms):
        return _add_terms(low, real_terms, expr, domain, low.constant(constant))
    total = _add_terms(low, real_terms, expr, domain)
    if constant == 0:
        return total
    if constant < 0:
        return low.emit(Op.SUB, total, low.constant(-constant))
    return low.emit(Op.ADD, total, low.constant(constant))


def split_irrational(expr: sp.Add) -> tuple[sp.Expr, sp.Expr] | None:
    """Returns (q, S), ``expr == q * S``, if q is an irrational number in every term, else None.

    ``sqrt(2)/4 - sqrt(2)*n/1280000`` is exactly 0 at its end as ``sqrt(2)*(1/4 - n/1280000)``. With
    two rounded constants it ends at a rounding error.
    """
    factors = [
        sp.Mul(*(arg for arg in sp.Mul.make_args(term) if arg.is_number)) for term in expr.args
    ]
    irrational = factors[0].as_coeff_Mul()[1]
    if irrational == 1 or any(factor.as_coeff_Mul()[1] != irrational for factor in factors):
        return None
    return irrational, sp.Add(*(term / irrational for term in expr.args))


def split_radical(expr: sp.Mul) -> tuple[int, sp.Expr] | None:
    """Returns (sign, u), ``expr == sign * sqrt(u)``, for an irrational number times a root.

    SymPy splits ``sqrt(n/240000)`` into ``sqrt(6)*sqrt(n)/1200``. As one root of a quotient it is
    exactly 1 at n = 240000. As a product with a rounded constant it is not, and a decay by
    ``1 - sqrt(n/240000)`` ends at a rounding error. For other products the result is None.
    """
    number = sp.Mul(*(arg for arg in expr.args if arg.is_number))
    factors = [arg for arg in expr.args if not arg.is_number]
    # sqrt(6)/1200: its square 6/1440000 goes back under the root.
    square = number**2
    is_radical = not number.is_Rational and square.is_Rational and len(factors) == 1
    if not is_radical or not isinstance(factors[0], sp.Pow) or factors[0].exp != sp.Rational(1, 2):
        return None
    return (1 if number > 0 else -1), square * factors[0].base


def fits_line(low: Lowering, terms: Sequence[sp.Expr], domain: Domain) -> bool:
    """Returns whether multiples of integers have an integer form; else floats are added."""
    return bool(terms) and low.fits_integer(primitive(sp.Add(*terms))[1], domain)


def _add_terms(
    low: Lowering,
    terms: Sequence[sp.Expr],
    user: sp.Expr,
    domain: Domain,
    total: Value | None = None,
) -> Value:
    # Positive terms first: the others are subtracted, so that no term needs a negation.
    ordered_terms = sorted(terms, key=lambda term: (_sign(term) < 0, *_order(low, term)))
    for term in ordered_terms:
        is_negative = total is not None and _sign(term) < 0
        magnitude = -term if is_negative else term
        value = low.operand(magnitude, user, domain)
        if total is None:
            total = value
        else:
            total = low.emit(Op.SUB if is_negative else Op.ADD, total, value)
    if total is None:
        raise low.error("an empty sum cannot be lowered")
    return total


def _add_tensors(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Tensor terms in the stated order, then the scalar ones as a single scalar."""
    tensors = [term for term in expr.args if low.is_tensor(term)]
    scalars = sp.Add(*(term for term in expr.args if not low.is_tensor(term)))
    # Scalars are one number of the scalar dtype, rounded once to that of the tensor, and cost one
    # elementwise op.
    terms = [*tensors, scalars] if scalars != 0 else tensors
    return _add_terms(low, terms, expr, domain)


def _sign(term: sp.Expr) -> int:
    factor = term.as_coeff_Mul()[0]
    return -1 if factor.is_extended_real and factor < 0 else 1


def _order(low: Lowering, term: sp.Expr) -> tuple[int, object]:
    """Parameter, states and gradient in their order, then compound terms, then scalars."""
    if not low.is_tensor(term):
        return len(low.tensor_places) + 1, sp.default_sort_key(term)
    bare = [factor for factor in sp.Mul.make_args(term) if low.is_tensor(factor)]
    first = bare[0] if len(bare) == 1 else None
    rank = low.tensor_places.get(first, len(low.tensor_places))
    return rank, sp.default_sort_key(term)


def _line(low: Lowering, constant: sp.Expr, multiples: sp.Expr, domain: Domain) -> Value:
    """Lowers ``a + g*I`` for an integer I as ``(a + g*k) + g*(I - k)``, k an integer.

    The constant of the result is exact and rounded once, and k is where the line is smallest on
    the domain: near its small end it is accurate relative to its value, without cancellation.
    """
    slope, integer = primitive(multiples)
    if not constant.is_Rational:
        line = _slope_times(low, slope, integer, domain)
        return low.emit(Op.ADD, line, low.constant(constant))
    start = sp.Integer(reference(constant, slope, interval(integer, domain)))
    if not low.fits_integer(integer - start, domain):
        start = sp.Integer(0)
    height = constant + slope * start
    if height == 0 and slope < 0:
        return _slope_times(low, -slope, start - integer, domain)  # ends at 0 and not at -0
    line = _slope_times(low, slope, integer - start, domain)
    if height == 0:
        return line
    if slope < 0 and height > 0:
        line = _slope_times(low, -slope, integer - start, domain)
        return low.emit(Op.SUB, low.constant(height), line)
    return low.emit(Op.ADD, line, low.constant(height))


def primitive(multiples: sp.Expr) -> tuple[sp.Rational, sp.Expr]:
    """Returns (g, I), ``multiples == g * I``, I an integer with a positive first coefficient."""
    terms = sp.Add.make_args(multiples)
    pairs = [term.as_coeff_Mul() for term in sorted(terms, key=sp.default_sort_key)]
    numerator = sp.igcd(0, *(abs(factor.p) for factor, _ in pairs))
    denominator = sp.ilcm(1, *(factor.q for factor, _ in pairs))
    slope = sp.Rational(numerator, denominator) * (1 if pairs[0][0] > 0 else -1)
    return slope, sp.Add(*((factor / slope) * core for factor, core in pairs))


def reference(constant: sp.Rational, slope: sp.Rational, values: Interval) -> int:
    """Returns the integer at which ``constant + slope * I`` is smallest, I in ``values``."""
    root = -constant / slope
    zero = Fraction(int(root.p), int(root.q))
    # A zero beyond every step: shifting would only make the integers larger.
    if abs(zero) > MAX_STEP:
        return 0
    # The zero itself is an integer: the line is then exactly 0 there and has no constant at all.
    if root.is_Integer:
        return int(root)
    if values.low <= zero <= values.high:
        return round(zero)
    ends = [int(end) for end in (values.low, values.high) if isinstance(end, Fraction)]
    return min(ends, key=lambda end: abs(end - zero), default=0)


def _slope_times(low: Lowering, slope: sp.Rational, integer: sp.Expr, domain: Domain) -> Value:
    """``g * I``: a division where g is 1/q, correctly rounded."""
    if integer == 0:
        return low.constant(sp.Integer(0))
    value = low.real(integer, domain)
    if slope == 1:
        return value
    if slope == -1:
        return low.emit(Op.NEG, value)
    # x / q is rounded once; x * fl(1 / q) twice, and fl(1 / q) * q need not be 1: a decay would
    # miss its end by an ulp.
    if slope.p in (1, -1):
        return low.emit(Op.DIV, value, low.constant(1 / slope))
    return low.emit(Op.MUL, value, low.constant(slope))


def lower_mul(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers a product: scalars first as one factor, then tensors; one division at the end."""
    if low.is_tensor(expr):
        return _multiply_tensors(low, expr, domain)
    factor, core = expr.as_coeff_Mul()
    if factor.is_Rational and is_integral(core) and low.fits_integer(core, domain):
        return _slope_times(low, factor, core, domain)
    radical = split_radical(expr)
    if radical is not None:
        sign, radicand = radical
        root = low.emit(Op.SQRT, low.real(radicand, domain))
        return low.emit(Op.NEG, root) if sign < 0 else root
    numbers = sp.Mul(*(arg for arg in expr.args if arg.is_number))
    factors = [arg for arg in expr.args if not arg.is_number]
    numerators, denominators = split_fraction(factors)
    values = [low.real(arg, domain) for arg in sorted(numerators, key=sp.default_sort_key)]
    return _quotient(low, numbers, values, denominators, domain)


def _quotient(
    low: Lowering,
    number: sp.Expr,
    values: list[Value],
    denominators: Sequence[sp.Expr],
    domain: Domain,
) -> Value:
    if number == -1 and values:
        values[0] = low.emit(Op.NEG, values[0])
    elif number != 1 or not values:
        values.insert(0, low.constant(number))
    result = low.fold(Op.MUL, values)
    if not denominators:
        return result
    ordered_denominators = sorted(denominators, key=sp.default_sort_key)
    below = low.fold(Op.MUL, [low.real(arg, domain) for arg in ordered_denominators])
    return low.emit(Op.DIV, result, below)


def split_fraction(factors: Sequence[sp.Expr]) -> tuple[list[sp.Expr], list[sp.Expr]]:
    """Returns factors above and below the line: a negative rational power goes below."""
    numerators: list[sp.Expr] = []
    denominators: list[sp.Expr] = []
    for factor in factors:
        is_below = isinstance(factor, sp.Pow) and factor.exp.is_Rational and factor.exp < 0
        (denominators if is_below else numerators).append(1 / factor if is_below else factor)
    return numerators, denominators


def _multiply_tensors(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """``((s * x) * y) / z``: the scalars as one factor, a square as two factors ((s*g)*g)."""
    scalar = sp.Mul(*(arg for arg in expr.args if not low.is_tensor(arg)))
    numerators, denominators = split_fraction([arg for arg in expr.args if low.is_tensor(arg)])
    ordered_factors = sorted(numerators, key=lambda arg: _order(low, arg))
    values = [value for arg in ordered_factors for value in _repeat_factor(low, arg, domain)]
    if scalar == -1 and values:
        values[0] = low.emit(Op.NEG, values[0])
    elif scalar != 1 or not values:
        values.insert(0, low.tensor_value(scalar, domain))
    result = low.fold(Op.MUL, values)
    if not denominators:
        return result
    below = [low.real(arg, domain) for arg in sorted(denominators, key=lambda a: _order(low, a))]
    return low.emit(Op.DIV, result, low.fold(Op.MUL, below))


def _repeat_factor(low: Lowering, factor: sp.Expr, domain: Domain) -> list[Value]:
    if isinstance(factor, sp.Pow) and factor.exp.is_Integer and 2 <= factor.exp <= 3:
        return [low.real(factor.base, domain)] * int(factor.exp)
    return [low.real(factor, domain)]


def lower_power(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers a power: small constant exponents become products and square roots."""
    base, exponent = expr.args
    if exponent.is_Rational:
        return _constant_power(low, base, exponent, domain)
    if base.is_number and not low.is_tensor(exponent):
        return _exponential(low, base, exponent, domain)
    return low.emit(Op.POW, *(low.operand(arg, expr, domain) for arg in (base, exponent)))


def _constant_power(low: Lowering, base: sp.Expr, exponent: sp.Rational, domain: Domain) -> Value:
    dtype = low.dtype_of(base)
    if exponent < 0:
        below = _constant_power(low, base, -exponent, domain)
        return low.emit(Op.DIV, low.constant(sp.Integer(1), dtype), below)
    value = low.real(base, domain)
    whole = int(exponent.p // exponent.q)
    if exponent.q > 2 or whole > _LARGEST_PRODUCT:
        return low.emit(Op.POW, value, low.constant(exponent, dtype))
    factors = [value] * whole
    if exponent.q == 2:
        factors.append(low.emit(Op.SQRT, value))
    return _balanced_product(low, factors)


def _balanced_product(low: Lowering, factors: Sequence[Value]) -> Value:
    if len(factors) == 1:
        return factors[0]
    half = len(factors) // 2
    left, right = _balanced_product(low, factors[:half]), _balanced_product(low, factors[half:])
    return low.emit(Op.MUL, left, right)


def _exponential(low: Lowering, base: sp.Expr, exponent: sp.Expr, domain: Domain) -> Value:
    """``b**x`` as ``exp(x * log(b))`` unless b is exact in binary.

    Rounding b would cost x/2 ulp of the result; rounding log(b) costs x*log(b)/2, far less near 1.
    """
    is_dyadic = base.is_Rational and base.q & (base.q - 1) == 0 and base.p < 2**24
    if is_dyadic or not base.is_positive:
        return low.emit(Op.POW, low.constant(base), low.real(exponent, domain))
    factor, core = exponent.as_coeff_Mul()
    rate = factor * sp.log(base)
    if low.scalar is DType.F32:
        return _compensated_exponential(low, core, rate, domain)
    return low.emit(Op.EXP, low.emit(Op.MUL, low.real(core, domain), low.constant(rate)))


def _compensated_exponential(low: Lowering, core: sp.Expr, rate: sp.Expr, domain: Domain) -> Value:
    """``exp(x * rate)`` in float32: e**(p + r) is ``e**p + e**p * r``, r the error of p.

    The product would be off by up to 43 ulp of the result, at the end of the range.
    """
    math = Arithmetic(low.builder)
    largest = interval(core, domain).absolute().high
    if is_integral(core) and low.fits_integer(core, domain) and largest > _EXACT_SINGLE:
        value = math.from_integer(lower_integer(low, core, domain), ceil(largest))
    else:
        value = Number(low.real(core, domain))
    product = math.multiply(value, math.constant(rate))
    exponential = low.emit(Op.EXP, product.high)
    if product.low is None:
        return exponential
    return low.emit(Op.ADD, exponential, low.emit(Op.MUL, exponential, product.low))
