"""Sums over many steps: constants that hold cosines, slopes of whole turns, random sums."""

import pytest
import sympy as sp

from closedform import Schedule, claims, t
from closedform.verify.claims import sums
from closedform.verify.claims.core import Goal
from closedform.verify.prover import prove
from closedform.verify.terms import build
from tests.verify.claims.sums import CONSTANTS, judged


@pytest.mark.parametrize("constant", CONSTANTS, ids=str)
def test_a_constant_has_the_sum_of_a_constant(constant: sp.Expr) -> None:
    for value, total in ((constant + 0 * t, 20 * constant), (t + constant, 190 + 20 * constant)):
        lr = Schedule(value)
        assert claims.area(lr, total, 20).verify().proved
        for wrong in (0, 10**6, total + sp.Rational(1, 10**9)):
            assert claims.area(lr, wrong, 20).verify().refuted


@pytest.mark.parametrize("turns", [1, 2, -1, -3])
def test_whole_turns_make_a_constant(turns: int) -> None:
    lr = Schedule(sp.cos(2 * sp.pi * turns * t + 1, evaluate=False))
    assert claims.area(lr, 7 * sp.cos(1), 7).verify().proved
    assert claims.area(lr, 0, 7).verify().refuted


def test_a_factor_of_0_proves_nothing() -> None:
    """Both sides times 0 are equal; that the factor is not 0 is a goal that is not proved."""
    goal = Goal("1/0 = 7", build.FALSE)
    nonzero, product = sums._clear_denominator(goal, build.ZERO, build.rational(7), build.ZERO)
    assert prove(product.statement).proved
    assert not prove(nonzero.statement).proved


def test_random_sums() -> None:
    counts = judged(12, 1)
    assert counts["right PROVED"] > 6
    assert counts["wrong REFUTED"] > 30
