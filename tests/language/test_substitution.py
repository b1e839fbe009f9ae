"""Substitution: the result of xreplace, without evaluating conditions again."""

import pytest
import sympy as sp
from sympy.core import relational

from closedform.language import Schedule, t
from closedform.language.settled import substitute
from closedform.schedules import multi_step
from closedform.schedules.examples import EXAMPLES

A, B = sp.symbols("a b", real=True)
CASES = {
    "a symbol": (A, {A: sp.Integer(3)}),
    "nothing to replace": (sp.Piecewise((t, t < 3), (0, True)), {A: sp.Integer(3)}),
    "neighbours become equal": (
        sp.Piecewise((A, t < 3), (B, t < 5), (0, True)),
        {A: sp.Integer(2), B: sp.Integer(2)},
    ),
    "the last two become equal": (sp.Piecewise((A, t < 3), (2, True)), {A: sp.Integer(2)}),
    "a condition is decided": (
        sp.Piecewise((1, t < A), (2, t < 9), (3, True)),
        {A: sp.Integer(-1)},
    ),
    "a condition changes": (sp.Piecewise((1, t < 2 * A), (2, True)), {A: sp.Integer(4)}),
    "a value becomes a Piecewise": (
        sp.Piecewise((A, t < 9), (1, True)),
        {A: sp.Piecewise((2, t < 4), (3, True))},
    ),
    "a value holds a Piecewise": (
        sp.Piecewise((sp.Piecewise((A, t < 4), (3, True)), t < 9), (1, True)),
        {A: sp.Integer(7)},
    ),
    "the clock": (sp.Piecewise((A * t, t < 9), (1, True)), {t: t + 5}),
}


@pytest.mark.parametrize("case", CASES)
def test_substituted_is_xreplace(case: str) -> None:
    expr, values = CASES[case]
    assert substitute(expr, values) == expr.xreplace(values)


SCHEDULES = {
    name: made
    for name, made in ((name, example.make()) for name, example in EXAMPLES.items())
    if isinstance(made, Schedule)
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_library_bound_is_xreplace(name: str) -> None:
    schedule = SCHEDULES[name]
    by_name = schedule.hyperparameters
    values = {s: by_name[s.name] for s in schedule.expr.free_symbols if s.name in by_name}
    assert schedule.bound == schedule.expr.xreplace(values)


def test_no_condition_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> object:
        raise AssertionError("SymPy evaluates a condition")

    monkeypatch.setattr(relational, "is_ge", asked)
    schedule = multi_step(0.1, 0.5, [10, 20, 30])
    assert schedule.bound.args[1][0] == sp.Rational(1, 20)
