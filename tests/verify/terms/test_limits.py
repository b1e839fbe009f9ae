"""Limits: one table of positive numbers."""

from dataclasses import FrozenInstanceError, fields

import pytest

from closedform.verify.terms.limits import LIMITS


def test_every_limit_is_a_positive_number() -> None:
    values = {field.name: getattr(LIMITS, field.name) for field in fields(LIMITS)}
    assert all(isinstance(value, int | float) and value > 0 for value in values.values()), values


def test_limits_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        LIMITS.search_work = 1  # type: ignore[misc]
