"""Claims about the graph of a schedule in floats."""

from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

from closedform import claims, schedules
from closedform.errors import VerificationError
from closedform.language import Schedule, hyper, t
from closedform.verify.claims.core import Claim
from closedform.verify.terms.verdict import Status

LINE = schedules.linear(0, 3e-4, 20)
WARMED = LINE.then(schedules.cosine(3e-4, 3e-5, 80))
STEPS = schedules.multi_step(0.1, 0.5, [10, 20, 30])
EXACT = sp.Rational(3, 10_000)
ABOVE = EXACT + sp.Rational(1, 10**15)

DECIDED: dict[str, tuple[Callable[[], Claim], Status, int | None]] = {
    "finite": (lambda: claims.float_finite(WARMED), Status.PROVED, None),
    "finite in f32": (
        lambda: claims.float_finite(Schedule(sp.exp(t)), dtype="f32", scalar_dtype="f32"),
        Status.REFUTED,
        89,
    ),
    "bounded": (lambda: claims.float_bounded(WARMED, 0, ABOVE), Status.PROVED, None),
    # fl(20 * fl(3e-4/20)) is one ulp above the float nearest to 3e-4.
    "a bound that rounding exceeds": (
        lambda: claims.float_bounded(WARMED, 0, EXACT),
        Status.REFUTED,
        20,
    ),
    "a bound below": (lambda: claims.float_bounded(LINE, high=1e-4), Status.REFUTED, 7),
    "rising": (lambda: claims.float_monotone(LINE, "increasing"), Status.PROVED, None),
    "not falling": (lambda: claims.float_monotone(LINE, "decreasing"), Status.REFUTED, 0),
    "falling in steps": (lambda: claims.float_monotone(STEPS, "decreasing"), Status.PROVED, None),
    "a jump upward": (
        lambda: claims.float_monotone(Schedule(sp.Piecewise((-t, t < 7), (9, True))), "decreasing"),
        Status.REFUTED,
        6,
    ),
    "an engine's own exp": (
        lambda: claims.float_monotone(schedules.exponential(1, 0.5, 3), "decreasing"),
        Status.UNKNOWN,
        None,
    ),
    "within 4 ulp": (
        lambda: claims.float_within(schedules.inverse_square_root(1, 1, 40), 4, until=1000),
        Status.PROVED,
        None,
    ),
    "not correctly rounded": (
        lambda: claims.float_within(WARMED, sp.Rational(1, 2)),
        Status.REFUTED,
        98,
    ),
    "no bound for all engines": (lambda: claims.float_within(WARMED, 4), Status.UNKNOWN, None),
}


@pytest.mark.parametrize("name", DECIDED)
def test_claims_about_floats(name: str) -> None:
    make, status, step = DECIDED[name]
    verdict = make().verify()
    assert verdict.status is status, verdict
    assert verdict.counterexample == (None if step is None else {"t": step})


def test_sentences_name_the_dtypes_and_the_last_step() -> None:
    claim = claims.float_bounded(LINE, 0, 1, dtype="f32")
    assert claim.sentence == f"the rounded value is >= 0 and <= 1 (in f64 and f32, to step {2**50})"
    short = claims.float_finite(Schedule(2**t, domain=(t < 100,)))
    assert short.sentence == "no value overflows or is NaN (in f64, to step 99)"
    assert short.verify().proved


def test_reports_have_the_floats_apart() -> None:
    report = LINE.verify()
    assert [finding.claim.name for finding in report.floats] == ["float_finite"]
    assert "float_finite" not in [finding.claim.name for finding in report]
    lines = str(report).splitlines()
    place = lines.index("its graph in floats")
    assert lines[place + 1].startswith("  PROVED   no value overflows or is NaN (in f64, to step")
    assert len(lines) == place + 2
    growing = Schedule(2**t).verify()
    assert [finding.claim.name for finding in growing.refuted] == ["float_finite"]
    assert growing.exit_code() == 1
    assert LINE.unbind().verify().floats == ()


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "open": (lambda: claims.float_finite(Schedule(hyper("rate") * t)), "have values, got rate"),
    "no schedule": (lambda: claims.float_finite(3), "have values, got int"),  # type: ignore[arg-type]
    "no bound": (lambda: claims.float_bounded(LINE), "got neither low nor high"),
    "no direction": (
        lambda: claims.float_monotone(LINE, "up"),  # type: ignore[arg-type]
        "direction must be increasing or decreasing, got 'up'",
    ),
    "negative": (lambda: claims.float_within(LINE, -1), "ulp must be at least 0, got -1"),
    "irrational": (
        lambda: claims.float_bounded(LINE, sp.sqrt(2)),
        "a bound of floats must be rational, got sqrt",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_claims_are_refused(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(VerificationError, match=message.replace("(", r"\(")):
        make()


def test_a_domain_of_one_step_has_no_other_steps() -> None:
    first = Schedule(t / 7, domain=(t < 1,))
    assert claims.float_bounded(first, 0, 0).verify().proved
    arguments = claims.float_within(first, 0).arguments
    assert arguments is not None
    assert arguments["last"] == "0"
