"""Limits: one table, and proofs that keep to another one."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from closedform.effort import Effort
from closedform.verify.tactics import cases
from closedform.verify.tactics.cases import Sequent, TooManyCases, split
from closedform.verify.terms.build import ZERO, absolute, add, less_equal, symbol
from closedform.verify.terms.limits import LIMITS

LONG = Effort.of(10**10)


def test_every_limit_is_a_positive_number() -> None:
    values = {field.name: getattr(LIMITS, field.name) for field in fields(LIMITS)}
    assert all(isinstance(value, int | float) and value > 0 for value in values.values()), values


def test_limits_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        LIMITS.cases = 1  # type: ignore[misc]


def test_a_goal_that_exceeds_a_limit_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    goal = less_equal(ZERO, add(*(absolute(symbol(name)) for name in "abc")))
    sequent = Sequent((), goal, {})
    assert len(split(sequent, LONG)) == 8
    monkeypatch.setattr(cases, "LIMITS", replace(LIMITS, cases=7))
    with pytest.raises(TooManyCases):
        split(sequent, LONG)
