"""Stable: expressions whose parts overflow in floats get a form of equal value that does not.

``exp(t)/(1 + exp(t))`` is between 0 and 1 and yet NaN in float64 from t = 710 on. Where an interval
shows that a part of a product or the operand of a logarithm may exceed the largest float:

1. a sum in a product is divided by its fastest growing term g, ``D**r`` is ``g**r * (D/g)**r``, and
   exponentials and powers of the product are joined: logistic functions, ratios of powers;
2. powers of large numbers with exponents of opposite sign become the power of a quotient,
   ``exp(p*log(x/y))``, and a power times an exponential becomes ``exp(p*log(x) + a)``;
3. ``log(D)`` is ``log(g) + log(D/g)``, the logarithm of a product a sum: softplus, log-sum-exp;
4. a product with an exact zero is zero, if its other factors have a value everywhere.

The terms of 1 to 3 are exponentials of real numbers and powers of numbers x >= 0. The form with g
is taken where ``g >= 1`` is sure, that is where its exponent is >= 0 and ``x >= 1``, and the
expression as it was elsewhere. All equations hold over the real numbers there, whichever g is
chosen; the choice matters only to floats. Where no part is too large nothing is rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp
from sympy.functions.elementary.piecewise import ExprCondPair

from closedform.language.exact import to_float
from closedform.language.symbols import t
from closedform.lowering.analysis.annotate import branches, decide, interval
from closedform.lowering.analysis.domain import INFINITY, Domain
from closedform.lowering.exponential import Exponential
from closedform.lowering.simplify import Rewriter, without_choice


def stable(expr: sp.Expr, domain: Domain, largest: float) -> sp.Expr:
    """Returns an expression of the same value on the domain.

    Args:
        expr: A simplified expression.
        domain: Where it is taken.
        largest: The largest number of the dtype in which it is computed.
    """
    return _Stabilizer(largest).visit(expr, domain)


@dataclass(slots=True)
class _Factors:
    """A product ``rest * exp(exponent) * x**p * ...`` of powers of numbers >= 0.

    Attributes:
        rest: The other factors.
        exponent: The sum of the exponents.
        powers: Exponents by base.
    """

    rest: list[sp.Expr] = field(default_factory=list)
    exponent: sp.Expr = sp.S.Zero
    powers: dict[sp.Expr, sp.Expr] = field(default_factory=dict)

    def multiply(self, factors: _Factors, power: sp.Expr) -> None:
        """Multiplies with a power of the exponential and the powers of another product."""
        self.exponent = self.exponent + power * factors.exponent
        for base, exponent in factors.powers.items():
            self.powers[base] = self.powers.get(base, sp.Integer(0)) + power * exponent

    @property
    def logarithm(self) -> sp.Expr:
        """The logarithm of all but the rest, with the exponents multiplied out."""
        logs = [power * sp.log(_at_least_one(base)) for base, power in self.powers.items()]
        return sp.Add(_collect_exponent(self.exponent), *logs)

    @property
    def has_growth(self) -> bool:
        """Whether there is an exponential or a power at all."""
        return self.exponent != 0 or any(power != 0 for power in self.powers.values())


def _at_least_one(base: sp.Expr) -> sp.Expr:
    """A base where it is >= 1, and 1 elsewhere: it is safe in a branch that is not taken."""
    return sp.Max(base, 1)


class _Stabilizer(Rewriter):
    def __init__(self, largest: float) -> None:
        super().__init__()
        self.largest = largest

    def _rewrite(self, expr: sp.Basic, domain: Domain) -> sp.Basic:
        if isinstance(expr, sp.Piecewise):
            parts = [
                (self.visit(value, inside), self.visit(condition, domain))
                for value, condition, inside in branches(expr, domain)
            ]
            is_same = len(parts) == len(expr.args) and all(
                new[0] is old[0] and new[1] is old[1]
                for new, old in zip(parts, expr.args, strict=True)
            )
            return expr if is_same else sp.Piecewise(*parts)
        # 0 * exp(t) is NaN in floats once exp overflows; it is 0 only where all factors have
        # values.
        if isinstance(expr, sp.Mul) and sp.S.Zero in expr.args and _is_total(expr):
            return sp.Integer(0)
        if isinstance(expr, sp.log) and isinstance(expr.args[0], sp.Mul):
            # A logarithm takes its product apart, which is not joined before.
            factors = [self.visit(arg, domain) for arg in expr.args[0].args]
            return self._logarithm(sp.log(sp.Mul(*factors)), domain)
        args = [self.visit(arg, domain) for arg in expr.args]
        is_unchanged = all(new is old for new, old in zip(args, expr.args, strict=True))
        result = expr if is_unchanged else expr.func(*args)
        if isinstance(result, sp.Mul):
            return self._product(result, domain)
        if isinstance(result, sp.Pow) and result.exp.is_Rational and result.exp != -1:
            return self._product(result, domain)
        if isinstance(result, sp.log):
            return self._logarithm(result, domain)
        return result

    # 1 and 2.
    def _product(self, expr: sp.Expr, domain: Domain) -> sp.Expr:
        arguments = sp.Mul.make_args(expr)
        sums = [_as_power(arg) for arg in arguments]
        if sp.S.Zero in arguments or not any(self._is_large(arg, domain) for arg in arguments):
            return expr
        product = _Factors()
        where: list[sp.Basic] = []
        for (base, power), argument in zip(sums, arguments, strict=True):
            leading = None
            if isinstance(base, sp.Add) and power.is_Rational and self._is_large(base, domain):
                leading = self._leading(base, domain)
            if leading is not None:
                where += _is_large_where(leading, domain)
                product.multiply(leading, power)
                product.rest.append(_over(base, leading, domain) ** power)
                continue
            factor = _factors(argument, domain)
            product.rest += factor.rest
            product.multiply(factor, sp.Integer(1))
        joined_factor, more = self._join_growth(product, domain)
        if joined_factor is None:
            return expr
        return _where(sp.Mul(*product.rest, joined_factor), [*where, *more], expr, domain)

    def _join_growth(
        self, product: _Factors, domain: Domain
    ) -> tuple[sp.Expr | None, list[sp.Basic]]:
        """The exponential and the powers as factors that do not overflow if their product does not.

        Also the conditions under which they are that.
        """
        # Multiplied out, a*t - a*(t - 5) is 5*a: two exponents near 1e9 would cancel in floats.
        exponent = _collect_exponent(product.exponent)
        powers = {base: power for base, power in product.powers.items() if power != 0}
        plain = sp.exp(exponent) * sp.Mul(*(base**power for base, power in powers.items()))
        parts = [sp.exp(exponent), *(base ** abs(power) for base, power in powers.items())]
        if len(powers) + (exponent != 0) < 2 or not any(
            self._is_large(part, domain) for part in parts
        ):
            return plain, []
        where: list[sp.Basic] = [base >= 1 for base in powers if not _is_above(base, 1, domain)]
        if exponent != 0:
            return Exponential(product.logarithm), where
        return _quotients(powers), where

    # 3.
    def _logarithm(self, expr: sp.Expr, domain: Domain) -> sp.Expr:
        (operand,) = expr.args
        if isinstance(operand, sp.Add) and self._is_large(operand, domain):
            leading = self._leading(operand, domain)
            if leading is None:
                return expr
            rest = sp.log(_over(operand, leading, domain))
            where = _is_large_where(leading, domain)
            return _where(leading.logarithm + rest, where, expr, domain)
        if not any(self._is_large(part, domain) for part in sp.Mul.make_args(operand)):
            return expr
        factors = _factors(operand, domain)
        arguments = factors.rest
        if not factors.has_growth or not all(_is_above(arg, 0, domain) for arg in arguments):
            return expr
        where = [base >= 1 for base in factors.powers if not _is_above(base, 1, domain)]
        logs = [sp.log(sp.Mul(*arguments))] if arguments else []
        return _where(sp.Add(factors.logarithm, *logs), where, expr, domain)

    def _is_large(self, expr: sp.Expr, domain: Domain) -> bool:
        """Whether a number or its inverse may exceed the largest float, for all that is known.

        Of a hyperparameter that is an input nothing is known, and nothing is rewritten.
        """
        if expr.free_symbols - {t}:
            return False
        base, power = _as_power(expr)
        # A small number with a negative power counts as large: its inverse is computed.
        size = interval(base**-power if _is_negative(power) else expr, domain).absolute().high
        return bool(size > self.largest)

    def _leading(self, total: sp.Expr, domain: Domain) -> _Factors | None:
        """The exponential and the powers of the term of a sum that is largest at the last step."""
        largest: tuple[float, _Factors] | None = None
        for term in total.args:
            factors = _factors(term, domain)
            # Logarithms compare growth without overflow; the last step is where exponentials differ
            # most.
            growth = _at_the_end(factors.logarithm, domain)
            if growth is None:
                return None
            if factors.has_growth and (largest is None or growth > largest[0]):
                largest = growth, factors
        return None if largest is None else largest[1]


def _is_total(expr: sp.Expr) -> bool:
    return not any(
        isinstance(part, sp.log) or (isinstance(part, sp.Pow) and not part.exp.is_nonnegative)
        for part in sp.preorder_traversal(expr)
    )


def _is_negative(power: sp.Expr) -> bool:
    return bool(power.is_Rational and power < 0)


def _as_power(expr: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    if isinstance(expr, sp.Pow) and expr.exp.is_Rational:
        return expr.base, expr.exp
    return expr, sp.Integer(1)


def _is_above(expr: sp.Expr, bound: int, domain: Domain) -> bool:
    """Whether a number is >= bound, or above it if the bound is 0."""
    values = interval(expr, domain)
    return values.is_positive if bound == 0 else bool(values.low >= bound)


def _factors(expr: sp.Expr, domain: Domain) -> _Factors:
    """A product taken apart."""
    result = _Factors()
    for arg in sp.Mul.make_args(expr):
        base, power = _as_power(arg)
        if isinstance(arg, sp.exp):
            result.exponent = result.exponent + arg.args[0]
        elif isinstance(arg, sp.Pow) and arg.base.is_number and arg.base.is_positive:
            result.exponent = result.exponent + arg.exp * sp.log(arg.base)
        elif not base.is_number and power.is_Rational and interval(base, domain).is_nonnegative:
            result.powers[base] = result.powers.get(base, sp.Integer(0)) + power
        else:
            result.rest.append(arg)
    return result


def _collect_exponent(exponent: sp.Expr) -> sp.Expr:
    """An exponent multiplied out, with one coefficient for each power of the clock."""
    return sp.collect(sp.expand_mul(exponent), t)


def _over(total: sp.Expr, leading: _Factors, domain: Domain) -> sp.Expr:
    """A sum divided by a product, term by term."""
    terms = []
    for term in total.args:
        factors = _factors(term, domain)
        factors.multiply(leading, sp.Integer(-1))
        powers = [
            (_at_least_one(base) if base in leading.powers else base) ** power
            for base, power in factors.powers.items()
            if power != 0
        ]
        terms.append(sp.Mul(*factors.rest, sp.exp(_collect_exponent(factors.exponent)), *powers))
    return sp.Add(*terms)


def _is_large_where(leading: _Factors, domain: Domain) -> list[sp.Basic]:
    """The conditions under which a product is >= 1 for sure, those that are not known to hold."""
    exponent = _collect_exponent(leading.exponent)
    where = [exponent >= 0] if exponent != 0 else []
    return [*where, *(base >= 1 for base in leading.powers)]


def _where(
    value: sp.Expr, conditions: Sequence[sp.Basic], fallback: sp.Expr, domain: Domain
) -> sp.Expr:
    """A value where the conditions hold, another one elsewhere."""
    open_ = [
        condition_part
        for condition_part in conditions
        if decide(condition_part, domain) is not True
    ]
    if not open_:
        return value
    # A Piecewise in a condition becomes an ITE when SymPy makes the branch.
    condition = ExprCondPair(value, sp.And(*open_)).cond
    return sp.Piecewise((value, condition.replace(sp.ITE, without_choice)), (fallback, True))


def _quotients(powers: dict[sp.Expr, sp.Expr]) -> sp.Expr:
    """A product of powers, powers of opposite sign in pairs as powers of quotients."""
    above = {base: power for base, power in powers.items() if power > 0}
    below = {base: -power for base, power in powers.items() if power < 0}
    result: list[sp.Expr] = []
    while above and below:
        # Any pairing is equal over the reals; insertion order makes it the same in each run.
        first, second = next(iter(above)), next(iter(below))
        common_power = min(above[first], below[second])
        quotient = _at_least_one(first) / _at_least_one(second)
        result.append(Exponential(common_power * sp.log(quotient)))
        for powers_, base in ((above, first), (below, second)):
            powers_[base] -= common_power
            if powers_[base] == 0:
                del powers_[base]
    result += [_at_least_one(base) ** power for base, power in above.items()]
    result += [_at_least_one(base) ** -power for base, power in below.items()]
    return sp.Mul(*result)


def _at_the_end(expr: sp.Expr, domain: Domain) -> float | None:
    """A number near the value at the last step; None if it is not a float, or hard to know.

    It is computed in floats: an exact number may have more digits than fit in memory.
    """
    end = domain.interval(t).high
    if end == INFINITY:
        return None
    try:
        value = _float_at(expr, float(end))
    # OverflowError and math domain errors; LookupError is a class without a row in _FLOATS.
    except (ArithmeticError, TypeError, ValueError, LookupError):
        return None
    return value if math.isfinite(value) else None


def _float_at(expr: sp.Expr, step: float) -> float:
    if expr == t:
        return step
    if expr.is_Rational or (expr.is_number and not expr.has(sp.Pow)):
        return to_float(expr)
    return _FLOATS[expr.func](*(_float_at(arg, step) for arg in expr.args))


_FLOATS: Mapping[type[sp.Basic], Callable[..., float]] = {
    sp.Add: lambda *args: math.fsum(args),
    sp.Mul: lambda *args: math.prod(args),
    sp.Pow: math.pow,
    sp.exp: math.exp,
    sp.log: math.log,
    sp.Max: max,
    sp.Min: min,
    sp.Abs: abs,
}
