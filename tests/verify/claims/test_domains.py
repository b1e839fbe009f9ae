"""Claims about schedules that end: each step that is compared, or named, is one of the schedule."""

from collections.abc import Callable

import pytest
import sympy as sp

from closedform import Schedule, claims, t
from closedform.errors import VerificationError
from closedform.expr import hyper
from closedform.verify.claims.core import Claim

HALF = sp.Rational(1, 2)
LINE = Schedule(t)
SHORT = Schedule(t, name="short", domain=(t < 100,))
END = hyper("end", integer=True, positive=True)
OPEN = Schedule(t * END, domain=(t <= END,))
LATE = Schedule(sp.Piecewise((t, t < 100), (7, True)))
FALLS_LATER = Schedule(sp.Piecewise((t, t < 100), (7, True)), domain=(t < 100,))


def piecewise(value: sp.Expr, after: sp.Expr, end: int = 100) -> Schedule:
    return Schedule(sp.Piecewise((value, t < end), (after, True)))


PROVED: dict[str, Callable[[], Claim]] = {
    "equal, shifted back where both have values": lambda: claims.equal(
        Schedule(t - 5), LINE, shift=-5, where=t >= 5
    ),
    "equal, until the other one ends": lambda: claims.equal(LATE, SHORT, where=t < 100),
    "equal, the first one ends": lambda: claims.equal(SHORT, LATE),
    "equal, both end": lambda: claims.equal(FALLS_LATER, SHORT),
    "equal, shifted, until the other one ends": lambda: claims.equal(
        piecewise(t + 10, 7, 90), SHORT, shift=10, where=t < 90
    ),
    "equal, scaled, until the other one ends": lambda: claims.equal(
        piecewise(t / 2, 7, 200), SHORT, scale=HALF, where=t < 200
    ),
    "close, until the other one ends": lambda: claims.close(LATE, SHORT, 0, until=99),
    "argmax, at the last step": lambda: claims.argmax(SHORT, 99),
    "argmax, at an open last step": lambda: claims.argmax(OPEN, END),
    "argmin": lambda: claims.argmin(SHORT, 0),
    "ends_at, the last step": lambda: claims.ends_at(SHORT, 99, 99),
    "monotone": lambda: claims.monotone(FALLS_LATER, "strictly increasing"),
    "monotone, open": lambda: claims.monotone(OPEN, "increasing"),
    "bounded_change": lambda: claims.bounded_change(FALLS_LATER, 1, 1),
    "recurrence": lambda: claims.recurrence(FALLS_LATER, 0, lambda before, _: before + 1),
    "continuous": lambda: claims.continuous(FALLS_LATER),
    "area": lambda: claims.area(FALLS_LATER, 4950, 100),
    "area by induction": lambda: claims.area(FALLS_LATER, t * (t - 1) / 2),
    "periodic": lambda: claims.periodic(
        Schedule(sp.Piecewise((sp.cos(sp.pi * t), t < 100), (7, True)), domain=(t < 100,)), 2
    ),
    "bounded": lambda: claims.bounded(FALLS_LATER, 0, 99),
}
REFUTED: dict[str, Callable[[], Claim]] = {
    "equal, the domain of the other at its step": lambda: claims.equal(
        piecewise(t - 50, 999), SHORT, shift=-50, where=t >= 50
    ),
    "equal, the domain of the other at its scaled step": lambda: claims.equal(
        piecewise(t / 2, 999), SHORT, scale=HALF
    ),
    "equal, the other one ends": lambda: claims.equal(LATE, SHORT),
    "equal, no step before the first": lambda: claims.equal(Schedule(t - 5), LINE, shift=-5),
    "equal, no step before the first, scaled": lambda: claims.equal(
        Schedule(2 * t - 5), LINE, shift=-5, scale=2
    ),
    "equal, an expression before the first step": lambda: claims.equal(
        Schedule(t - 5), t, shift=-5
    ),
    "equal, an open end": lambda: claims.equal(Schedule(t * END), OPEN),
    "close, the other one ends": lambda: claims.close(LATE, SHORT, 1000),
    "argmax, at no step": lambda: claims.argmax(Schedule(-((2 * t - 21) ** 2)), sp.Rational(21, 2)),
    "argmax, beyond the domain": lambda: claims.argmax(SHORT, 1000),
    "argmax, beyond an open end": lambda: claims.argmax(OPEN, END + 1),
    "argmin, before the first step": lambda: claims.argmin(LINE, -1),
    "argmin, at no step": lambda: claims.argmin(Schedule(t**2), sp.pi),
    "ends_at, beyond the domain": lambda: claims.ends_at(SHORT, 7, 200),
    "ends_at, at no step": lambda: claims.ends_at(Schedule(1 + 0 * t), 1, HALF),
    "periodic, of no step": lambda: claims.periodic(Schedule(sp.cos(2 * sp.pi * t)), HALF),
    "periodic, longer than the domain": lambda: claims.periodic(SHORT, 100),
    "area, beyond the domain": lambda: claims.area(SHORT, 5050, 101),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_holds_on_the_domain_is_proved(name: str) -> None:
    verdict = PROVED[name]().verify()
    assert verdict.proved, verdict


@pytest.mark.parametrize("name", REFUTED)
def test_a_step_without_a_value_refutes(name: str) -> None:
    verdict = REFUTED[name]().verify()
    assert verdict.refuted, verdict


def test_a_counterexample_names_the_step_of_the_compared_schedule() -> None:
    claim = claims.equal(piecewise(t / 2, 999), LINE, scale=HALF)
    assert claim.verify().counterexample == {"t/2": 50}
    assert (
        claim.sentence
        == "it is equal to 'schedule' at step t/2, at each step that is a multiple of 2"
    )
    assert claims.equal(LATE, LINE).verify().counterexample == {"t": 100}


def test_a_sentence_names_the_domain_and_the_condition() -> None:
    assert claims.equal(SHORT, LINE, where=t > 3).sentence == (
        "it is equal to 'schedule' on its domain t < 100 where 3 < t"
    )
    assert claims.bounded(LINE, 0, 9, assume=[t < 10]).sentence == (
        "the value is >= 0 and <= 9 where t < 10"
    )


def test_a_sum_takes_no_condition_on_the_steps() -> None:
    with pytest.raises(VerificationError, match=r"got the condition 1 <= t in assume"):
        claims.area(LINE, t**2, assume=[t >= 1])
