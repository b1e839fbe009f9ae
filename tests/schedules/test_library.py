"""The library of schedules: values, ends, lengths, formulas, and what is refused."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform import schedules as library
from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule

HALF = sp.Rational(1, 2)

# Schedule, its length, and exact values by step.
VALUES: dict[str, tuple[Schedule, int | None, dict[int, Any]]] = {
    "constant": (library.constant(0.1), None, {0: Fraction(1, 10), 10**9: Fraction(1, 10)}),
    "constant with a length": (library.constant(3, steps=7), 7, {0: 3, 7: 3}),
    "warmup": (
        library.linear(0, 1, 4),
        4,
        {0: 0, 1: Fraction(1, 4), 3: Fraction(3, 4), 4: 1, 5: 1},
    ),
    "decay": (library.linear(1, 0, 4), 4, {0: 1, 3: Fraction(1, 4), 4: 0, 99: 0}),
    "linear over 5/2 steps": (library.linear(0, 5, Fraction(5, 2)), 3, {0: 0, 2: 4, 3: 5}),
    "linear through zero": (library.linear(-1, 1, 2), 2, {0: -1, 1: 0, 2: 1}),
    "square": (library.polynomial(1, 0, 10, 2), 10, {0: 1, 5: Fraction(1, 4), 10: 0}),
    "power 0 jumps": (library.polynomial(1, HALF, 8, 0), 8, {7: 1, 8: HALF}),
    "power -1 grows and jumps": (library.polynomial(1, HALF, 8, -1), 8, {0: 1, 7: 4.5, 8: HALF}),
    "polynomial that cycles": (
        library.polynomial(1, 0, 10, cycle=True),
        None,
        {0: 1, 9: Fraction(1, 10), 10: HALF, 19: Fraction(1, 20), 20: Fraction(1, 3)},
    ),
    "cosine": (library.cosine(1, 0, 10), 10, {0: 1, 5: HALF, 10: 0, 11: 0}),
    "rising cosine": (library.cosine(0, 2, 4), 4, {0: 0, 2: 1, 4: 2, 5: 2}),
    "annealing": (library.cosine_annealing(1, 0, 2), 2, {0: 1, 1: HALF, 2: 0, 3: HALF, 4: 1}),
    "inverse root": (library.inverse_square_root(2, 3, 9), None, {0: 2, 9: 2, 36: 1}),
    "multi-step": (library.multi_step(8, HALF, [3, 1, 3]), 3, {0: 8, 1: 4, 2: 4, 3: 1}),
    "multi-step at 0 and before": (
        library.multi_step(8, HALF, [0, -5, 2.5]),
        3,
        {0: 2, 2: 2, 3: 1},
    ),
    "multi-step from the start": (library.multi_step(8, HALF, [-5]), 0, {0: 4, 9: 4}),
    "multi-step without steps": (library.multi_step(8, HALF, []), None, {0: 8, 9: 8}),
    "three values": (
        library.piecewise_constant([3, 1, 2], [2, 5]),
        5,
        {0: 3, 1: 3, 2: 1, 4: 1, 5: 2},
    ),
    "one value": (library.piecewise_constant([3], []), None, {0: 3, 7: 3}),
    "scaled": (library.scale(library.linear(0, 1, 2), 0.5), 2, {1: Fraction(1, 4), 2: HALF}),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_exact_and_evaluated(name: str) -> None:
    schedule, length, wanted = VALUES[name]
    assert schedule.length == length
    for step, value in wanted.items():
        assert schedule.exact(step) == sp.nsimplify(value, rational=True)
    steps = np.array(list(wanted))
    computed = schedule(steps)
    expected = np.array([float(value) for value in wanted.values()])
    # float64: fewer than ten roundings of 1.1e-16, relative to the largest value
    np.testing.assert_allclose(computed, expected, rtol=0, atol=2e-15 * np.abs(expected).max())


FORMULAS = {
    "constant": (library.constant(1), "value"),
    "linear": (
        library.linear(0, 1, 5),
        "Piecewise((start + t*(end - start)/steps, steps > t), (end, True))",
    ),
    "cosine": (
        library.cosine(0, 1, 5),
        "end + (-end + start)*(cos(pi*Min(steps, t)/steps) + 1)/2",
    ),
    "cosine_annealing": (
        library.cosine_annealing(0, 1, 5),
        "end + (-end + start)*(cos(pi*t/steps) + 1)/2",
    ),
    "inverse_square_root": (library.inverse_square_root(), "scale*value/sqrt(Max(t, warmup))"),
    "multi_step": (
        library.multi_step(1, 2, [3]),
        "Piecewise((value, t < 3), (gamma*value, True))",
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula_keeps_its_symbols(name: str) -> None:
    schedule, formula = FORMULAS[name]
    assert schedule.name == name
    assert str(schedule.expr) == formula


def test_hyperparameters_can_be_changed() -> None:
    assert library.linear(0, 1, 10).bind(end=2).exact(5) == 1
    assert library.cosine(1, 0, 10).bind(steps=20).exact(10) == HALF


def test_schedules_follow_each_other_by_their_lengths() -> None:
    schedule = library.linear(0, 1, 4).then(library.cosine(1, 0, 6)).then(library.constant(5))
    assert [schedule.exact(step) for step in (0, 3, 4, 7, 9)] == [
        0,
        sp.Rational(3, 4),
        1,
        HALF,
        library.cosine(1, 0, 6).exact(5),
    ]
    assert schedule.exact(10) == 5


BAD: dict[str, tuple[Callable[[], Schedule], type[Exception], str]] = {
    "no steps": (
        lambda: library.linear(0, 1, 0),
        DomainError,
        "steps must be above 0, got 0 (linear): a schedule over no steps has no value; "
        "use constant(end)",
    ),
    "negative steps": (
        lambda: library.cosine(0, 1, -3),
        DomainError,
        "steps must be above 0, got -3 (cosine): a schedule over no steps has no value; "
        "use constant(end)",
    ),
    "negative half period": (
        lambda: library.cosine_annealing(0, 1, -2.5),
        DomainError,
        "steps must be above 0, got -2.5 (cosine_annealing): a schedule over no steps has no "
        "value; use constant(end)",
    ),
    "no warmup": (
        lambda: library.inverse_square_root(warmup=0),
        DomainError,
        "warmup must be above 0, got 0 (inverse_square_root): the value at step 0 would be "
        "infinite; 1 is the shortest",
    ),
    "steps in text": (
        lambda: library.linear(0, 1, "10"),
        DefinitionError,
        "steps of linear must be a number, got str '10': give an int, a float, a Fraction or a "
        "SymPy number",
    ),
    "steps True": (
        lambda: library.polynomial(0, 1, True),
        DefinitionError,
        "steps of polynomial must be a number, got bool True: give an int, a float, a Fraction or "
        "a SymPy number",
    ),
    "steps not a number": (
        lambda: library.cosine(0, 1, math.nan),
        DefinitionError,
        "steps of cosine must be finite, got nan",
    ),
    "irrational steps": (
        lambda: library.linear(0, 1, sp.pi),
        DefinitionError,
        "steps must be a rational number, got pi (linear)",
    ),
    "fractional cycle": (
        lambda: library.polynomial(1, 0, Fraction(15, 2), cycle=True),
        DomainError,
        "steps must be an integer where cycle is set, got Fraction(15, 2) (polynomial)",
    ),
    "infinite value": (
        lambda: library.constant(math.inf),
        DefinitionError,
        "hyperparameter 'value' must be finite, got inf",
    ),
    "milestones in text": (
        lambda: library.multi_step(1, 0.1, "12"),
        DefinitionError,
        "milestones must be a sequence of steps, got str '12' (multi_step): give a list, [] for "
        "none",
    ),
    "too few values": (
        lambda: library.piecewise_constant([1], [2, 4]),
        DefinitionError,
        "values must be one more than milestones: expected 3, got 1 (piecewise_constant)",
    ),
    "milestones out of order": (
        lambda: library.piecewise_constant([1, 2, 3], [6, 4]),
        DefinitionError,
        "milestones must be integers above 0 and strictly increasing, got 4 after 6 "
        "(piecewise_constant): sort them, and drop duplicates",
    ),
    "values that are not a list": (
        lambda: library.piecewise_constant(3, [2]),  # type: ignore[arg-type]
        DefinitionError,
        "values must be a sequence of numbers, got int 3 (piecewise_constant): "
        "give a list, one more than milestones",
    ),
    "fractional milestone": (
        lambda: library.piecewise_constant([1, 2], [2.5]),
        DefinitionError,
        "milestones must be integers above 0 and strictly increasing, got 5/2 after 0 "
        "(piecewise_constant): sort them, and drop duplicates",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, kind, message = BAD[name]
    with pytest.raises(kind) as caught:
        build()
    assert str(caught.value) == message
    assert type(caught.value) is kind
