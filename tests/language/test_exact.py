"""Exact values: which branch is taken, also where a comparison is irrational or has no value."""

from __future__ import annotations

import pytest
import sympy as sp

from closedform.errors import DomainError
from closedform.language import t
from closedform.language.exact import holds_at, to_float, value_at

ROOTS = sp.sqrt(t) + sp.sqrt(t + 1)
NESTED = sp.sqrt(5 + 2 * sp.sqrt(6))  # ROOTS at t = 2, which SymPy does not see


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (sp.And(t > 2, t < 5), {3, 4}),
        (sp.Or(t < 2, t > 7), {0, 1, 8, 9}),
        (sp.Not(sp.And(t > 2, t < 5), evaluate=False), {0, 1, 2, 5, 6, 7, 8, 9}),
        (sp.ITE(t < 5, t > 2, t > 8), {3, 4, 9}),
        (sp.Eq(ROOTS, NESTED), {2}),
        (sp.Ne(ROOTS, NESTED), set(range(10)) - {2}),
        (ROOTS < NESTED, {0, 1}),
        (ROOTS > NESTED, set(range(3, 10))),
        (ROOTS <= NESTED, {0, 1, 2}),
        (ROOTS >= NESTED, set(range(2, 10))),
        # An argument without a value matters only where no other one decides.
        (sp.Or(t < 1, 1 / t > sp.Rational(1, 3)), {0, 1, 2}),
        (sp.And(t > 0, 1 / t > sp.Rational(1, 3)), {1, 2}),
    ],
)
def test_conditions(condition: sp.Basic, steps: set[int]) -> None:
    assert {k for k in range(10) if holds_at(condition, {t: sp.Integer(k)})} == steps


def test_an_argument_that_decides_alone_must_have_a_value() -> None:
    with pytest.raises(DomainError):
        holds_at(sp.And(t < 1, 1 / t > 0), {t: sp.Integer(0)})


def test_values_round_once() -> None:
    value = value_at(sp.Piecewise((t / 3, t < 5), (sp.sqrt(t), True)), {t: sp.Integer(2)})
    assert value == sp.Rational(2, 3)
    assert to_float(value) == 2 / 3
    assert to_float(sp.sqrt(2)) == 2**0.5
