"""Schedules by intervals: the order of tests, empty intervals, values that are undefined."""

import pickle

import numpy as np
import pytest
import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.language import t
from closedform.recipes.intervals import (
    UndefinedError,
    by_intervals,
    first_from,
    power_quotient,
    quotient,
)


def undefined() -> sp.Expr:
    raise UndefinedError("division by zero")


def test_a_stage_without_updates_is_not_built() -> None:
    made = by_intervals(
        "x",
        (lambda: sp.Integer(1), 4),
        (undefined, 3),
        (lambda: t, 6),
        (lambda: sp.Integer(9), None),
        (undefined, None),
    )
    assert [made.exact(step) for step in (0, 3, 4, 5, 6, 70)] == [1, 1, 4, 5, 9, 9]


def test_values_end_where_one_is_undefined() -> None:
    made = by_intervals("x", (lambda: t / 3, 4), (undefined, None))
    assert (made.last_step, made.ending) == (3, "division by zero")
    np.testing.assert_array_equal(made(np.arange(4)), np.arange(4) / 3)
    for read in (made, made.exact):
        with pytest.raises(DomainError) as caught:
            read(5)
        assert str(caught.value) == (
            "the schedule has no value at t = 5, its last step is 3: division by zero "
            "(schedule 'x'): splice(…) continues it with another schedule"
        )


def test_an_undefined_first_value_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        by_intervals("rate", (undefined, None))
    assert str(caught.value) == "update 0 has no value: division by zero (rate)"


def test_the_end_and_its_reason_are_preserved() -> None:
    made = by_intervals("x", (lambda: t, 4), (undefined, None))
    copied = pickle.loads(pickle.dumps(made))
    for same in (copied, made.scale(3), made.clip(0, 9), made.rename("y")):
        assert (same.last_step, same.ending) == (3, "division by zero")
    assert made.shift(2).last_step == 1


def test_first_updates_of_marks() -> None:
    marks = (sp.Rational(-7, 2), 0, sp.Rational(5, 2), 3)
    assert [first_from(mark) for mark in marks] == [0, 0, 3, 3]


def test_quotients_refuse_zero() -> None:
    assert quotient(t, sp.Integer(4)) == t / 4
    assert power_quotient(sp.Integer(9), sp.Integer(4), sp.S.Half) == sp.Rational(3, 2)
    with pytest.raises(UndefinedError, match="division by zero"):
        quotient(t, sp.S.Zero)
    with pytest.raises(UndefinedError, match="division by zero"):
        power_quotient(t, sp.S.Zero, sp.S.Half)
