"""Domains: a condition narrows the clock to just the steps at which it holds."""

from fractions import Fraction

import pytest
import sympy as sp

from closedform.language import t
from closedform.lowering.analysis.domain import Domain, Interval, clock_domain, narrow

NINE = clock_domain(last=9)


def steps(domain: Domain | None) -> list[int]:
    if domain is None:
        return []
    bounds = domain.interval(t)
    return [step for step in range(10) if bounds.low <= step <= bounds.high]


def odd(kind: type[sp.Rel], factor: int) -> sp.Rel:
    """``factor * t`` compared with ``factor * 7/2``, which no step meets."""
    return kind(factor * t, sp.Rational(7 * factor, 2), evaluate=False)


@pytest.mark.parametrize("factor", [1, 2, -2])
@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("kind", [sp.Lt, sp.Le, sp.Gt, sp.Ge, sp.Eq])
def test_a_threshold_between_two_steps(kind: type[sp.Rel], holds: bool, factor: int) -> None:
    condition = odd(kind, factor)
    expected = [k for k in range(10) if bool(kind(factor * k, sp.Rational(7 * factor, 2))) == holds]
    assert steps(narrow(NINE, condition, holds=holds)) == expected


@pytest.mark.parametrize(("step", "rest"), [(0, range(1, 10)), (9, range(9)), (4, range(10))])
def test_a_step_that_is_excluded_narrows_at_the_ends(step: int, rest: range) -> None:
    assert steps(narrow(NINE, sp.Ne(t, step))) == list(rest)


@pytest.mark.parametrize(("root", "is_nonzero"), [(0, True), (1, False)])
def test_only_a_number_that_is_not_0_is_nonzero(root: int, is_nonzero: bool) -> None:
    x = sp.Symbol("x", real=True)
    unit = Interval(Fraction(-1), Fraction(2))
    domain = narrow(Domain({x: unit}), sp.Ne(x, root))
    assert domain is not None
    assert domain.interval(x) == Interval(unit.low, unit.high, is_nonzero)
