"""Random schedules: nested Piecewise, floor, mod, min, max, pow, exp, log, atan, cos, sqrt."""

from typing import Any

import sympy as sp
from hypothesis import strategies as st

from closedform.language import floor_div, floor_mod, t

HYPERS = (sp.Symbol("alpha", real=True), sp.Symbol("beta", real=True))

_small = st.integers(1, 40).map(sp.Integer)
_rationals = st.fractions(-3, 3, max_denominator=50).map(
    lambda number: sp.Rational(number.numerator, number.denominator)
)
_bases = st.sampled_from(
    [sp.Rational(1, 2), sp.Rational(9, 10), sp.Rational(99, 100), sp.Integer(2)]
)


def _integers(depth: int) -> st.SearchStrategy[Any]:
    """Integer expressions of the clock, small ones."""
    leaf = st.one_of(st.just(t), st.builds(lambda k: t - k, _small), _small)
    if depth == 0:
        return leaf
    inner = _integers(depth - 1)
    return st.one_of(
        leaf,
        st.builds(lambda x, k: sp.Min(x, k), inner, _small),
        st.builds(lambda x, k: sp.Max(x, k), inner, _small),
        st.builds(floor_div, inner, _small),
        st.builds(floor_mod, inner, _small),
        st.builds(lambda x, k: sp.floor(x / k), inner, _small),
        st.builds(lambda x, y: 2 * x - y, inner, inner),
    )


def _bounded(x: Any) -> Any:
    return sp.Max(sp.Min(x, 4), -4)


def _power(base: Any, exponent: Any) -> Any:
    """A power that stays symbolic: SymPy would work out numeric ones to thousands of digits."""
    return base ** _bounded(exponent) if exponent.free_symbols else base


def _conditions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    thresholds = st.builds(lambda x, k: x < k, _integers(1), _small)
    return st.one_of(
        thresholds,
        st.builds(lambda k: t >= k, _small),
        st.builds(lambda a, b: sp.And(a, b), thresholds, thresholds),
        st.builds(lambda x, q: x <= q, inner, _rationals),
    )


def _piecewise(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    conditions = _conditions(inner)
    return st.one_of(
        st.builds(
            lambda a, p, b, q, c: sp.Piecewise((a, p), (b, q), (c, True)),
            inner,
            conditions,
            inner,
            conditions,
            inner,
        ),
        # Partial where they are not taken: the guard must make these safe.
        st.builds(lambda k, c: sp.Piecewise((sp.sqrt(k - t), t <= k), (c, True)), _small, inner),
        st.builds(lambda k, c: sp.Piecewise((c, t <= k), (sp.log(t - k), True)), _small, inner),
        st.builds(lambda k, c: sp.Piecewise((1 / (t - k), t > k), (c, True)), _small, inner),
        st.builds(lambda k, c: sp.Piecewise((1 / (t - k), t < k), (c, True)), _small, inner),
        st.builds(
            lambda k, c: sp.Piecewise((floor_mod(20, k - t), t < k), (c, True)), _small, inner
        ),
    )


def reals(depth: int) -> st.SearchStrategy[Any]:
    """Real expressions of the clock and two hyperparameters, defined at every step."""
    leaf = st.one_of(
        _rationals,
        st.sampled_from(HYPERS),
        st.builds(lambda x, k: x / k, _integers(2), _small),
    )
    if depth == 0:
        return leaf
    inner = reals(depth - 1)
    return st.one_of(
        leaf,
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, q: q - x, inner, _rationals),
        st.builds(lambda x, y: x * y, inner, inner),
        st.builds(lambda x, y: x / (1 + sp.Abs(y)), inner, inner),
        st.builds(lambda x, y: sp.Min(x, y), inner, inner),
        st.builds(lambda x, y: sp.Max(x, y), inner, inner),
        st.builds(lambda x: sp.exp(_bounded(x)), inner),
        st.builds(lambda x: sp.log(1 + sp.Abs(x)), inner),
        st.builds(sp.atan, inner),
        st.builds(lambda x: sp.sqrt(sp.Max(x, 0)), inner),
        st.builds(lambda x: sp.cos(_bounded(x)), inner),
        st.builds(lambda x, k: sp.cos(sp.pi * x / k), _integers(2), _small),
        st.builds(
            lambda x, k, a, b: a + b * sp.cos(sp.pi * sp.Min(x, k) / k),
            _integers(1),
            _small,
            _rationals,
            _rationals,
        ),
        st.builds(lambda x, k: sp.sin(sp.pi * x / k), _integers(1), _small),
        st.builds(_power, _bases, inner),
        st.builds(lambda x, y: _power(sp.Rational(1, 8) + sp.Abs(x), y), inner, inner),
        st.builds(lambda x, n: x**n if x.free_symbols else x, inner, st.integers(2, 3)),
        _piecewise(inner),
    )
