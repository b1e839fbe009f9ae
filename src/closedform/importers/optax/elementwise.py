"""Elementwise primitives of JAX, casts and selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import sympy as sp

from closedform.errors import TraceError
from closedform.importers.optax.interpreter import (
    Interpreter,
    Known,
    PrimitiveRule,
    places_of,
)
from closedform.importers.optax.jaxprs import Equation
from closedform.importers.tensors.algebra import Rule, as_number, truth
from closedform.importers.tensors.comparisons import atan2, is_finite, is_infinite, is_nan
from closedform.importers.tensors.steps import STEPS, values_at
from closedform.importers.tensors.values import Value
from closedform.language.elementary import ELEMENTARY, Elementary
from closedform.language.integers import floor_div, floor_mod
from closedform.language.model import NonFinite
from closedform.language.symbols import hyper, t

# optax.safe_increment stops there (optax/_src/numerics.py).
_LARGEST_COUNT = 2**31 - 1
"""The largest int32, at which counts of steps stop; steps are below it."""

_LEAST = sp.Rational(1, 2**100)


def _is_integer(equation: Equation) -> bool:
    return bool(np.issubdtype(equation.invars[0].aval.dtype, np.integer))


def _elementwise(function: Rule, *, is_boolean: bool = False) -> PrimitiveRule:
    def rule(run: Interpreter, equation: Equation, *operands: Known) -> Known:
        return run.map(function, *operands, name=equation.primitive.name, is_boolean=is_boolean)

    return rule


def _comparison(kind: Callable[..., sp.Basic]) -> PrimitiveRule:
    def holds(a: sp.Basic, b: sp.Basic) -> sp.Basic:
        is_of_branches = isinstance(a, sp.Piecewise) or isinstance(b, sp.Piecewise)
        if is_of_branches and a.free_symbols | b.free_symbols == {t}:
            return kind(a, b, evaluate=False)  # SymPy would expand the branches
        if not isinstance(a, sp.Expr) or not isinstance(b, sp.Expr):
            return _compared_truths(kind, a, b)
        # x != x is how jnp.isnan compiles.
        if a == b and kind is sp.Ne and not a.is_number:
            return is_nan(a)
        # A real symbol of SymPy is finite: Eq(x, oo) is False.
        if b in (sp.oo, -sp.oo) and kind in (sp.Eq, sp.Ne) and not a.is_number:
            holds = sp.And(is_infinite(a), a > 0 if b is sp.oo else a < 0)
            return holds if kind is sp.Eq else sp.Not(holds)
        # The step is below the largest count.
        if b.is_Integer and b >= _LARGEST_COUNT and a.is_integer:
            return kind(sp.Integer(0), sp.Integer(1))
        return kind(a, b)

    def rule(run: Interpreter, equation: Equation, a: Known, b: Known) -> Known:
        def compare(x: sp.Basic, y: sp.Basic) -> sp.Basic:
            for choice, is_first in ((run.choice_of(x), True), (run.choice_of(y), False)):
                if choice is not None:
                    sides = [(value, y) if is_first else (x, value) for value, _ in choice]
                    return _in_each_branch(choice, [compare(*pair) for pair in sides])
            return holds(x, y)

        return run.map(compare, a, b, name=equation.primitive.name, is_boolean=True)

    return rule


def _in_each_branch(
    choice: Sequence[tuple[sp.Basic, sp.Basic]], truths: Sequence[sp.Basic]
) -> sp.Basic:
    """The condition that holds where that of the branch that is taken does."""
    result, before = sp.false, sp.true
    for truth_there, (_, condition) in zip(truths, choice, strict=True):
        result = sp.Or(result, sp.And(before, condition, truth_there))
        before = sp.And(before, sp.Not(condition))
    return result


def _compared_truths(kind: Callable[..., sp.Basic], a: sp.Basic, b: sp.Basic) -> sp.Basic:
    if kind is sp.Ne:
        return sp.Xor(truth(a), truth(b))
    if kind is sp.Eq:
        return sp.Not(sp.Xor(truth(a), truth(b)))
    return kind(as_number(a), as_number(b))


def _logical(function: Callable[..., sp.Basic]) -> PrimitiveRule:
    def rule(run: Interpreter, equation: Equation, *operands: Known) -> Known:
        if equation.outvars[0].aval.dtype != bool:
            raise TraceError("operations on bits have no expression")
        return run.map(
            lambda *parts: function(*map(truth, parts)), *operands, name="mask", is_boolean=True
        )

    return rule


def _partial(
    function: Callable[[sp.Expr], sp.Expr], least: sp.Expr, *, pole: int = 0
) -> PrimitiveRule:
    """A function of numbers above 0.

    JAX computes NaN of others, which a later operation does not select: a scalar of the step is
    clamped there, and the comparison with the original shows where it is used after all. At 0 it
    is an infinity of the sign of ``pole``, if that is not 0.
    """

    def rule(run: Interpreter, equation: Equation, x: Known) -> Known:
        numbers = {hyper(key): v for key, v in run.algebra.definitions.hypers.items()}

        def total(a: sp.Expr) -> sp.Expr:
            value = with_pole(run, function(a), a, sp.Integer(pole))
            if t not in a.free_symbols or a.free_symbols - {t, *numbers}:
                return value
            if run.has_infinities and run.on_intervals(Value(sp.Ge(a, 0))).expr == sp.true:
                return value
            try:
                is_above = (values_at(a, STEPS, numbers) > float(least)).all()
            except TraceError:
                is_above = True
            return function(a if is_above else sp.Max(a, least))

        return run.map(total, x, name=equation.primitive.name)

    return rule


def _sign(run: Interpreter, equation: Equation, x: Known) -> Known:
    """The sign, NaN for NaN: torch and the language give 0 there."""
    numbers = {t, *(hyper(key) for key in run.algebra.definitions.hypers)}

    def sign_or_nan(a: sp.Expr) -> sp.Expr:
        sign = sp.sign(a)
        if not sign.has(sp.sign) or not a.free_symbols - numbers:
            return sign
        return sp.Piecewise((a, is_nan(a)), (sign, True))

    return run.map(sign_or_nan, x, name="sign")


def _truncate(x: sp.Expr) -> sp.Expr:
    if x.is_integer:
        return x
    if x.is_nonnegative:
        return sp.floor(x)
    return sp.Piecewise((sp.floor(x), x >= 0), (sp.ceiling(x), True))


def _truncated_quotient(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    if a.is_nonnegative and b.is_positive:
        return floor_div(a, b)
    if b.is_positive:
        return sp.Piecewise((floor_div(a, b), a >= 0), (-floor_div(-a, b), True))
    if a.is_number and b.is_number:
        return _truncate(a / b)
    raise TraceError("an integer is divided by one that is not a constant above 0")


def _div(run: Interpreter, equation: Equation, a: Known, b: Known) -> Known:
    if _is_integer(equation):  # lax.div of integers rounds toward 0, Python's // down
        return _by_divisor(run, _truncated_quotient, a, b)
    return run.map(lambda x, y: with_pole(run, x / y, y, x), a, b, name="quotient")


def _by_divisor(run: Interpreter, rule: Rule, a: Known, b: Known) -> Known:
    """A quotient or remainder; by a choice of constants, in each of its branches."""

    def divide(x: sp.Expr, y: sp.Expr) -> sp.Expr:
        choice = run.choice_of(y)
        if choice is None:
            return rule(x, y)
        return sp.Piecewise(*((rule(x, value), holds) for value, holds in choice))

    return run.map(divide, a, b, name="quotient")


def with_pole(
    run: Interpreter, value: sp.Expr, base: sp.Expr, factor: sp.Expr = sp.S.One
) -> sp.Expr:
    """Returns a function of the step, infinite at the steps at which a base is 0.

    A base that is never below 0 is +0 there, so the infinity has the sign of the factor. Other
    bases may be -0: the function stays without a value.

    Args:
        run: The interpreter; it tells whether values of the step may be infinite.
        value: The function.
        base: What it divides by.
        factor: What it multiplies by.
    """
    if not run.has_infinities or (base.free_symbols | factor.free_symbols) - {t}:
        return value

    def decide(condition: sp.Basic) -> sp.Basic:
        return run.on_intervals(Value(condition)).expr

    signs = [(1, sp.Gt(factor, 0)), (-1, sp.Lt(factor, 0))]
    sign = next((number for number, holds in signs if decide(holds) == sp.true), None)
    if sign is None or decide(sp.Ge(base, 0)) != sp.true:
        return value
    zeros = decide(sp.Eq(base, 0))
    return sp.Piecewise((sign * sp.oo, zeros), (value, True))


def _remainder(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    if a.is_nonnegative and b.is_positive:
        return floor_mod(a, b)
    if a.is_integer and b.is_integer:
        return a - b * _truncated_quotient(a, b)
    # lax.rem has the sign of the dividend; jnp.mod adds the correction itself.
    if b.is_positive:
        return sp.Piecewise((floor_mod(a, b), a >= 0), (-floor_mod(-a, b), True))
    return a - b * _truncate(a / b)


def _select(run: Interpreter, equation: Equation, selector: Known, *cases: Known) -> Known:
    return choose_case(run, selector, cases)


def choose_case(run: Interpreter, selector: Known, cases: Sequence[Known]) -> Known:
    """Returns the elements of the case that a condition or an index selects."""

    def choose(index: sp.Basic, *values: sp.Basic) -> sp.Basic:
        return select_value(run, index, values)

    result = run.map(choose, selector, *cases, name="where", is_boolean=True)
    if not isinstance(result, Value) or not isinstance(result.expr, sp.Piecewise):
        return result
    if result.expr.free_symbols <= {t}:
        return result
    # SymPy expands the branches of one that is compared.
    expr = run.algebra.definitions.define(result.expr, result.shape, "where")
    return Value(expr, result.shape)


def select_value(run: Interpreter, index: sp.Basic, values: Sequence[sp.Basic]) -> sp.Basic:
    """The value at the place that a condition or an index gives; indices are clamped."""
    condition = _as_condition(index)
    if condition is not None and len(values) == 2:
        no, yes = values
        # `where(isnan(x), nan, f(x))`: f(x) is NaN there without the branch.
        if yes in (sp.oo, -sp.oo, sp.nan) and condition.has(NonFinite):
            return no  # infinite or NaN, where it is
        if not isinstance(no, sp.Expr) and not isinstance(yes, sp.Expr):
            return sp.Or(sp.And(condition, yes), sp.And(sp.Not(condition), no))
        within = run.algebra.definitions.within
        holds = within(as_number(yes), condition)
        return sp.Piecewise((holds, condition), (within(as_number(no), sp.Not(condition)), True))
    if not isinstance(index, sp.Expr):
        raise TraceError("a truth value selects among more than two values")
    places = places_of(index)
    if places is not None:
        end = len(values) - 1
        return sp.Piecewise(
            *((as_number(values[min(max(place, 0), end)]), holds) for place, holds in places)
        )
    *rest, last = map(as_number, values)
    # `<=`, not `==`: an index below 0 is clamped to the first case.
    below = [Value(sp.Le(index, place, evaluate=False)) for place in range(len(rest))]
    first = [
        (value, run.on_intervals(condition).expr)
        for value, condition in zip(rest, below, strict=True)
    ]
    return sp.Piecewise(*first, (last, True))


def _as_condition(index: sp.Basic) -> sp.Basic | None:
    """The condition that a truth value is, or a number that is 1 where one holds, 0 elsewhere."""
    if not isinstance(index, sp.Expr):
        return index
    if isinstance(index, sp.Piecewise) and [value for value, _ in index.args] == [1, 0]:
        return index.args[0][1]
    return None


def _clamp(run: Interpreter, equation: Equation, low: Known, x: Known, high: Known) -> Known:
    # lax.clamp(low, x, high) has the bounds outside.
    at_least = run.map(sp.Max, x, low, name="clamped")
    return run.map(sp.Min, at_least, high, name="clamped")


def _power(run: Interpreter, base: Known, exponent: Known, name: str) -> Known:
    def raise_to(x: sp.Expr, y: sp.Expr) -> sp.Expr:
        power = x**y
        return with_pole(run, power, x) if y.is_number and y.is_negative else power

    return run.map(raise_to, base, exponent, name=name)


def _round(run: Interpreter, equation: Equation, x: Known) -> Known:
    is_even = "EVEN" in str(equation.params["rounding_method"])

    def round_to_even(a: sp.Expr) -> sp.Expr:
        down = sp.floor(a)
        if is_even:
            return sp.Piecewise(
                (down, a - down < sp.Rational(1, 2)),
                (down + 1, a - down > sp.Rational(1, 2)),
                (2 * sp.floor((down + 1) / 2), True),
            )
        # lax.round is half away from zero by default; jnp.round is half-even.
        return sp.sign(a) * sp.floor(sp.Abs(a) + sp.Rational(1, 2))

    return run.map(round_to_even, x, name="rounded")


def _convert(run: Interpreter, equation: Equation, x: Known) -> Known:
    source_dtype, dtype = equation.invars[0].aval.dtype, equation.params["new_dtype"]
    if np.issubdtype(dtype, np.bool_):
        is_mask = np.issubdtype(source_dtype, np.bool_)
        return x if is_mask else run.map(lambda a: sp.Ne(a, 0), x, name="mask")
    if np.issubdtype(source_dtype, np.bool_):
        return run.map(as_number, x, name="number", is_boolean=True)
    if np.issubdtype(dtype, np.integer):
        return x if np.issubdtype(source_dtype, np.integer) else run.map(_truncate, x, name="whole")
    narrow = {"bfloat16": "bf16", "float16": "f16"}.get(str(dtype))
    # Between float32 and float64 nothing is rounded: the rule has one dtype.
    if narrow is not None and str(source_dtype) != str(dtype) and isinstance(x, Value):
        return run.algebra.round_to(x, narrow)
    if not np.issubdtype(dtype, np.floating) and narrow is None:
        raise TraceError(f"a cast to {dtype} has no expression")
    return x


def _identity(run: Interpreter, equation: Equation, x: Known, *_: Known) -> Known:
    return x


_POLES: Mapping[str, int] = {"rsqrt": 1, "log": -1}
"""The sign of the infinity at the end of a domain, where JAX computes one."""


def _elementary(name: str, function: Elementary) -> PrimitiveRule:
    if function.margin is None:
        return _elementwise(function.form)
    least = (sp.Integer(0) if function.has_end else _LEAST) - function.margin(sp.Integer(0))
    return _partial(function.form, least, pole=_POLES.get(name, 0))


ELEMENTWISE: Mapping[str, PrimitiveRule] = {
    **{f.jax: _elementary(name, f) for name, f in ELEMENTARY.items() if f.jax},
    **dict.fromkeys(("add", "add_any"), _elementwise(lambda x, y: x + y)),
    "sub": _elementwise(lambda x, y: x - y),
    "mul": _elementwise(lambda x, y: x * y),
    "div": _div,
    "rem": lambda run, _, a, b: _by_divisor(run, _remainder, a, b),
    "pow": lambda run, _, x, y: _power(run, x, y, "pow"),
    "integer_pow": lambda run, equation, x: _power(
        run, x, Value(sp.Integer(equation.params["y"])), "power"
    ),
    "max": _elementwise(sp.Max),
    "min": _elementwise(sp.Min),
    "atan2": _elementwise(atan2),
    "neg": _elementwise(lambda x: -x),
    "abs": _elementwise(sp.Abs),
    "sign": _sign,
    # A third root of a negative number is complex in SymPy.
    "cbrt": _elementwise(lambda x: sp.sign(x) * sp.Abs(x) ** sp.Rational(1, 3)),
    "square": _elementwise(lambda x: x**2),
    "floor": _elementwise(sp.floor),
    "ceil": _elementwise(sp.ceiling),
    "round": _round,
    "is_finite": _elementwise(is_finite),
    **dict.fromkeys(("lt", "lt_to"), _comparison(sp.Lt)),
    **dict.fromkeys(("le", "le_to"), _comparison(sp.Le)),
    "gt": _comparison(sp.Gt),
    "ge": _comparison(sp.Ge),
    **dict.fromkeys(("eq", "eq_to"), _comparison(sp.Eq)),
    "ne": _comparison(sp.Ne),
    "and": _logical(sp.And),
    "or": _logical(sp.Or),
    "not": _logical(sp.Not),
    "xor": _logical(sp.Xor),
    "select_n": _select,
    "clamp": _clamp,
    "convert_element_type": _convert,
    **dict.fromkeys(("copy", "copy_p", "stop_gradient", "real"), _identity),
    "optimization_barrier": lambda run, equation, *operands: list(operands),
}
"""The rules of elementwise primitives by name."""
