"""Conditions are evaluated lazily, by the prover as by ``exact`` and by graphs."""

import pytest
import sympy as sp

from closedform import Schedule, claims, t
from closedform.errors import DomainError
from closedform.verify.terms.build import either, less, rational, square_root, subtract, symbol
from closedform.verify.terms.definedness import obligations
from tests.verify.claims.conditions import judged

LATE, EARLY = t > sp.sqrt(t - 95), t < 95


@pytest.mark.parametrize(
    "condition",
    [
        sp.ITE(EARLY, t > 3, LATE),
        EARLY | LATE,
        LATE | EARLY,
        ~(~EARLY & ~LATE),
        (t >= 95) & LATE,
        LATE & (t >= 95),
        (t > 1 / (t - 3)) | (sp.sqrt(t - 3) < 100) | (t < 3),
        (sp.sqrt(50 - t) > -1) | (sp.sqrt(t - 50) > -1),
    ],
    ids=str,
)
def test_a_part_may_be_undefined_where_another_decides(condition: sp.Basic) -> None:
    lr = Schedule(sp.Piecewise((1, condition), (2, True)))
    assert claims.finite(lr).verify().proved
    for step in (0, 3, 4, 50, 94, 95, 200):
        assert float(lr(step)) == float(lr.exact(step))


@pytest.mark.parametrize(
    ("condition", "step"),
    [
        (LATE, 0),
        (EARLY & LATE, 0),
        ((t < 50) | LATE, 50),
        ((sp.sqrt(40 - t) > -1) | (sp.sqrt(t - 50) > -1), 41),
        (sp.ITE(LATE, t < 10, t < 7), 0),
    ],
    ids=str,
)
def test_a_condition_without_a_value_is_refuted(condition: sp.Basic, step: int) -> None:
    lr = Schedule(sp.Piecewise((1, condition), (2, True)))
    verdict = claims.finite(lr).verify()
    assert verdict.counterexample == {"t": step}
    with pytest.raises(DomainError):
        lr.exact(step)
    with pytest.raises(DomainError, match="has no finite real value"):
        lr(step)


def test_too_many_parts_are_asked_strictly_and_refute_nothing() -> None:
    x = symbol("x")
    roots = [less(square_root(subtract(x, rational(k))), rational(5)) for k in range(20)]
    found = obligations(either(less(x, rational(20)), *roots))
    assert len(found) == 20
    assert all(demand.is_sufficient for demand in found)


def test_random_conditions() -> None:
    counts = judged(40, 1)
    assert counts["finite PROVED"] > 10
    assert counts["finite REFUTED"] > 10
    assert not counts["finite UNKNOWN"]
