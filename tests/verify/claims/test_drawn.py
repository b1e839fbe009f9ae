"""Random claims about random schedules: no verdict that fractions contradict."""

from dataclasses import replace
from fractions import Fraction

import pytest
import sympy as sp

from closedform import claims, t
from closedform.verify.terms.verdict import Status, Verdict
from tests.verify.claims import drawn
from tests.verify.claims.drawn import Drawn, Judged, judged


@pytest.mark.parametrize("seed", range(2))
def test_no_verdict_is_contradicted(seed: int) -> None:
    counts = judged(3, seed)
    verdicts = {
        status: sum(count for name, count in counts.items() if name.endswith(status))
        for status in ("PROVED", "REFUTED", "UNKNOWN")
    }
    assert sum(verdicts.values()) == 36
    assert verdicts["PROVED"] > 5
    assert verdicts["REFUTED"] > 5


def test_a_wrong_verdict_is_found() -> None:
    """The planted faults: a proof of a false claim, and a refutation of a true one."""
    line = Drawn(t * sp.Rational(1, 2), lambda step, _: Fraction(step, 2))
    claim = claims.bounded(line.schedule, 0)
    right = Judged(claim, lambda step, x: (line.at(step, x) or 0) >= 0)
    wrong = replace(right, holds=lambda step, x: (line.at(step, x) or 0) < 500)
    drawn._check(right, Verdict(Status.PROVED), "", is_open=False)
    with pytest.raises(AssertionError, match="but at 1000"):
        drawn._check(wrong, Verdict(Status.PROVED), "", is_open=False)
    with pytest.raises(AssertionError, match="REFUTED"):
        drawn._check(right, Verdict(Status.REFUTED), "", is_open=False)
