"""A verdict says how a claim ended and is never taken for a truth value."""

import pytest
import sympy as sp

from closedform.verify.terms.verdict import Status, Verdict


@pytest.mark.parametrize("status", Status)
def test_exactly_one_question_is_answered_yes(status: Status) -> None:
    verdict = Verdict(status)
    answers = {
        Status.PROVED: verdict.proved,
        Status.REFUTED: verdict.refuted,
        Status.UNKNOWN: verdict.unknown,
    }
    assert [asked for asked, answer in answers.items() if answer] == [status]


@pytest.mark.parametrize("status", Status)
def test_no_verdict_is_a_truth_value(status: Status) -> None:
    with pytest.raises(TypeError, match=r"ask .proved, .refuted or .unknown"):
        bool(Verdict(status))


def test_a_verdict_reads_as_a_line() -> None:
    point = {"a": sp.Rational(1, 3), "t": sp.Integer(7)}
    refuted = Verdict(Status.REFUTED, ("samples",), point, "left is 2, right is 1")
    assert str(refuted) == "REFUTED by samples at a = 1/3, t = 7: left is 2, right is 1"
    assert str(Verdict(Status.UNKNOWN, reason="no time left")) == "UNKNOWN: no time left"
    assert refuted.after(2.5).seconds == 2.5
