"""Each rewrite of simplify at the steps where a neighbour of it would differ."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.language.exact import value_at
from closedform.lowering.analysis.domain import clock_domain
from closedform.lowering.simplify import simplify
from tests.support.engines import run_evaluator

TEN = clock_domain(last=30)
HALF, THIRD = sp.Rational(1, 2), sp.Rational(1, 3)

EXPRESSIONS = {
    "overlapping maximum": sp.Max(t, 15),
    "nested extrema": sp.Max(sp.Min(t, 20), 10, sp.Min(2 * t, 3)),
    "size across zero": sp.Abs(sp.Min(t, 2) - 1),
    "size below zero": sp.Abs(-t - 1),
    "sign": sp.sign(t - 5),
    "step": sp.Heaviside(t - 5),
    "step with a value": sp.Heaviside(t - 5, THIRD),
    "remainder of fractions": floor_mod(t / 2 + THIRD, sp.Rational(3, 4)),
    "remainder of a half": floor_mod(t + HALF, 3),
    "fraction": sp.frac(t / 7),
    "ceiling": sp.ceiling(t / 7 + HALF),
    "quotient of fractions": floor_div(t / 2, sp.Rational(3, 4)),
    "branches in the last branch": sp.Piecewise(
        (1, t < 5), (sp.Piecewise((2, t < 9), (t, t < 20), (3, True)), True)
    ),
    "branches in the first branch": sp.Piecewise(
        (sp.Piecewise((t, t < 9), (2, t > 25), (4, True)), t < 15), (3, True)
    ),
}
for kind in (sp.Lt, sp.Le, sp.Gt, sp.Ge):
    for outer in (sp.Min, sp.Max):
        name = f"{kind.__name__} of {outer.__name__}"
        parts = outer(t, floor_mod(3 * t, 11))
        EXPRESSIONS[f"{name}, left"] = sp.Piecewise((1, kind(parts, 7)), (0, True))
        EXPRESSIONS[f"{name}, right"] = sp.Piecewise((1, kind(7, parts)), (0, True))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_stay(name: str) -> None:
    expr = EXPRESSIONS[name]
    simple = simplify(expr, TEN, name)
    for step in range(31):
        at = {t: sp.Integer(step)}
        assert value_at(simple, at) == value_at(expr, at), step


CYCLE = floor_mod(t, 31)
THRESHOLDS = [
    kind(factor * CYCLE + shift, bound, evaluate=False)
    for kind in (sp.Lt, sp.Le, sp.Gt, sp.Ge, sp.Eq, sp.Ne)
    for factor, shift, bound in ((1, 0, 5), (2, 0, 7), (-2, 30, 9), (HALF, THIRD, 3), (-1, 3, -4))
]


@pytest.mark.parametrize("condition", THRESHOLDS, ids=str)
def test_a_comparison_of_integers_holds_at_the_same_steps(condition: sp.Rel) -> None:
    # A remainder, not the clock itself: the comparison is lowered, and is not an entry of a table.
    branches = sp.Piecewise((1, condition), (2, True), evaluate=False)
    graph = compile_schedule(Schedule(branches))
    for step in range(31):
        number = Fraction(str(condition.lhs.xreplace({t: sp.Integer(step)})))
        bound = Fraction(str(condition.rhs))
        expected = 1 if bool(condition.func(sp.Rational(number), sp.Rational(bound))) else 2
        assert run_evaluator(graph, {"step": np.array(step)})["value"] == expected, step
