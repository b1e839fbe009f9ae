"""Intervals, domains, simplify and guard: sound, and as sharp as the lowering needs."""

from fractions import Fraction
from typing import Any

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.language import floor_div, floor_mod, t
from closedform.lowering.analysis.annotate import decide, interval, is_integral
from closedform.lowering.analysis.domain import MAX_STEP, Domain, Interval, clock_domain, narrow
from closedform.lowering.guard import guard
from closedform.lowering.simplify import simplify
from tests.support.enclosures import UndecidedError, enclosure
from tests.support.expressions import HYPERS, reals
from tests.support.sampling import examples

CLOCK = clock_domain()
VALUES = {HYPERS[0]: Fraction(3, 10), HYPERS[1]: Fraction(-7, 4)}
POINTS = {symbol: Interval(value, value) for symbol, value in VALUES.items()}


def between(low: int, high: int) -> Domain:
    return CLOCK.with_interval(t, Interval(Fraction(low), Fraction(high)))


@given(reals(3), st.integers(0, 50), st.integers(0, 200))
@settings(max_examples=examples(300))
def test_intervals_enclose(expr: Any, low: int, width: int) -> None:
    domain = Domain({**between(low, low + width).bounds, **POINTS})
    bounds = interval(sp.sympify(expr), domain)
    for step in {low, low + width // 2, low + width}:
        try:
            value = enclosure(sp.sympify(expr), {t: Fraction(step), **VALUES})
        except (UndecidedError, ZeroDivisionError):
            continue
        # The enclosure is wider than rounding; only an enclosure wholly outside refutes the
        # interval.
        if isinstance(bounds.low, Fraction):
            assert not value < float(bounds.low) - abs(float(bounds.low)) * 1e-12
        if isinstance(bounds.high, Fraction):
            assert not value > float(bounds.high) + abs(float(bounds.high)) * 1e-12
        assert not (bounds.is_nonzero and value.is_zero())


@given(reals(3))
@settings(max_examples=examples(200))
def test_simplify_and_guard_keep_values(expr: Any) -> None:
    domain = Domain({**CLOCK.bounds, **POINTS})
    expr = sp.sympify(expr).xreplace({s: sp.Rational(str(v)) for s, v in VALUES.items()})
    changed = guard(simplify(expr, domain, "test"), domain, "test")
    for step in (0, 1, 5, 17, 40, 1000):
        try:
            before = enclosure(expr, {t: Fraction(step)})
            after = enclosure(changed, {t: Fraction(step)})
        except (UndecidedError, ZeroDivisionError):
            continue
        assert before.overlaps(after), (step, before, after, changed)


@pytest.mark.parametrize(
    ("condition", "holds", "low", "high"),
    [
        (t < 5, True, 0, 4),
        (t < 5, False, 5, MAX_STEP),
        (t <= sp.Rational(9, 2), True, 0, 4),
        (3 * t >= 10, True, 4, MAX_STEP),
        (10 - 2 * t > 0, True, 0, 4),
        (sp.And(t > 3, t < 9), True, 4, 8),
        (sp.Or(t < 3, t > 9), False, 3, 9),
        (sp.Not(sp.And(t >= 2, t < 4)), True, 0, MAX_STEP),
        (sp.Eq(t, 7), True, 7, 7),
        (sp.cos(t) < 0, True, 0, MAX_STEP),
    ],
)
def test_narrow(condition: sp.Basic, holds: bool, low: int, high: int) -> None:
    domain = narrow(CLOCK, condition, holds=holds)
    assert domain is not None
    assert domain.interval(t) == Interval(Fraction(low), Fraction(high))


def test_narrow_to_nothing() -> None:
    assert narrow(between(5, 9), t < 5) is None
    assert narrow(between(5, 9), t >= 5, holds=False) is None
    assert narrow(CLOCK, sp.Eq(t, sp.Rational(1, 2))) is None


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        (sp.Max(t, 3) < 3, False),
        (sp.Min(t, 3) < 4, True),
        (floor_mod(t, 8) < 8, True),
        (sp.exp(-t) > 0, True),
        (t < 10, None),
    ],
)
def test_decide(condition: sp.Basic, outcome: bool | None) -> None:
    assert decide(condition, CLOCK) is outcome


def test_is_integral() -> None:
    for expr in (t, 2 * t - 3, sp.Min(t, 5), floor_div(t, 3), floor_mod(t, 4) * t, sp.Abs(3 - t)):
        assert is_integral(expr)
    for expr in (t / 2, sp.sqrt(t), 2**t, sp.Symbol("x"), floor_div(t / 2, 3)):
        assert not is_integral(expr)


@pytest.mark.parametrize(
    ("expr", "simple"),
    [
        (sp.Piecewise((t, t < 5), (sp.Min(t, 5), True)), sp.Piecewise((t, t < 5), (5, True))),
        (
            sp.Piecewise((sp.Piecewise((1, t < 9), (2, True)), t < 5), (3, True)),
            sp.Piecewise((1, t < 5), (3, True)),
        ),
        (
            sp.Piecewise((1, t < 5), (sp.Piecewise((2, t < 9), (3, True)), True)),
            sp.Piecewise((1, t < 5), (2, t < 9), (3, True)),
        ),
        (sp.floor(t / 6 + sp.Rational(1, 2)), floor_div(t + 3, 6)),
        (sp.Mod(t, 7), floor_mod(t, 7)),
        (floor_mod(t / 2, 7), floor_mod(t, 14) / 2),
        (sp.Max(0, t - 5) + 1, sp.Max(0, t - 5) + 1),
        (sp.Abs(t - 100), sp.Abs(t - 100)),
    ],
)
def test_simplify(expr: sp.Expr, simple: sp.Expr) -> None:
    assert simplify(expr, CLOCK, "test") == simple
    assert simplify(simple, CLOCK, "test") == simple


@pytest.mark.parametrize(
    ("expr", "guarded"),
    [
        (
            sp.Piecewise((sp.sqrt(50 - t), t < 50), (0, True)),
            sp.Piecewise((sp.sqrt(sp.Max(50 - t, 1)), t < 50), (0, True)),
        ),
        (
            sp.Piecewise((0, t < 50), (sp.log(t - 49), True)),
            sp.Piecewise((0, t < 50), (sp.log(sp.Max(t - 49, 1)), True)),
        ),
        (
            sp.Piecewise((1 / (t - 9), t < 9), (0, True)),
            sp.Piecewise((1 / sp.Min(t - 9, -1), t < 9), (0, True)),
        ),
        (
            sp.Piecewise((floor_mod(20, 7 - t), t < 7), (0, True)),
            sp.Piecewise((floor_mod(20, sp.Max(7 - t, 1)), t < 7), (0, True)),
        ),
        (
            sp.Piecewise((1, sp.And(t <= 1, sp.sqrt(1 - t) <= 0)), (2, True)),
            sp.Piecewise((1, sp.And(t <= 1, sp.sqrt(sp.Max(1 - t, 0)) <= 0)), (2, True)),
        ),
        (
            sp.Piecewise((1, sp.Or(t > 5, sp.log(6 - t) > 1)), (2, True)),
            sp.Piecewise((1, sp.Or(t > 5, sp.log(sp.Max(6 - t, 1)) > 1)), (2, True)),
        ),
        (1 / (1 + t), 1 / (1 + t)),
    ],
)
def test_guard(expr: sp.Expr, guarded: sp.Expr) -> None:
    assert guard(expr, CLOCK, "test") == guarded
    assert guard(guarded, CLOCK, "test") == guarded
