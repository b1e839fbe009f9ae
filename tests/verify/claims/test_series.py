"""Sums over all steps: the library against numpy, random tails against known series, and edges."""

import random
from collections import Counter

import mpmath
import pytest
import sympy as sp

from closedform import Schedule, claims, schedules, t
from closedform.errors import VerificationError
from closedform.expr import hyper
from closedform.schedules.examples import EXAMPLES
from closedform.verify.terms.verdict import Status
from tests.verify.claims.series import drawn_tail, grows
from tools.theorems_sums import SUMS

CLAIMS = (claims.sum_diverges, claims.square_summable)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", SUMS)
def test_the_library_is_decided_as_numpy_sums_it(name: str) -> None:
    schedule = EXAMPLES[name].make()
    assert isinstance(schedule, Schedule)
    verdicts = tuple(make(schedule).verify().status for make in CLAIMS)
    assert verdicts == SUMS[name]
    assert grows(schedule, 1) is (verdicts[0] is Status.PROVED)
    assert grows(schedule, 2) is (verdicts[1] is Status.REFUTED)


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("seed", range(16))
def test_random_tails(seed: int) -> None:
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    for index in range(10):
        tail = drawn_tail(chance)
        for make, is_true in zip(CLAIMS, (tail.diverges, tail.square_summable), strict=True):
            # An undecided claim takes all of its effort.
            verdict = make(tail.schedule).verify(effort=1 if tail.is_decided else 0.02)
            where = f"seed {seed}, tail {index}: {make.__name__} of {tail.schedule.expr}: {verdict}"
            assert not (verdict.proved and not is_true), where
            assert not (verdict.refuted and is_true), where
            assert not (verdict.unknown and tail.is_decided), where
            counts[verdict.status.value] += 1
    assert min(counts["PROVED"], counts["REFUTED"]) > 2, counts


@pytest.mark.parametrize(
    ("value", "total"),
    [
        ((t + 3) ** sp.Rational(-3, 2), mpmath.zeta(1.5, 3)),
        (1 / (t + 1) ** 2, mpmath.zeta(2)),
        (sp.Rational(97, 100) ** t, mpmath.mpf(100) / 3),
    ],
)
def test_finite_sums_are_those_of_known_series(value: sp.Expr, total: mpmath.mpf) -> None:
    assert claims.sum_diverges(Schedule(value)).verify().refuted
    numeric = mpmath.nsum(
        sp.lambdify(t, value, "mpmath"), [0, mpmath.inf], method="euler-maclaurin"
    )
    assert abs(numeric - total) < 1e-9  # 15 digits, and sums of up to 100


LOG = sp.log(t + 2)


@pytest.mark.parametrize(
    ("value", "is_diverging", "is_summable"),
    [
        # Powers next to 1 from either side: a guess of the power that is rounded to 1 proves none.
        ((t + 1) ** sp.Rational(-1001, 1000), False, True),
        ((t + 1) ** sp.Rational(-999, 1000), True, True),
        ((t + 1) ** sp.Rational(-501, 1000), True, True),
        ((t + 1) ** sp.Rational(-499, 1000), True, False),
        # The values at multiples of a period are 0, or of one only.
        (sp.sin(sp.pi * t) ** 2 + 0 * t, False, True),
        (1 - sp.cos(sp.pi * t), True, False),
        # Sums that are bounded, of values that recur.
        (sp.cos(sp.pi * t), False, False),
        (-sp.S.One + 0 * t, False, False),
        (1 / ((t + 2) * LOG), True, True),
        (1 / ((t + 2) * LOG**2), False, True),
        (1 / ((t + 2) * sp.sqrt(LOG)), True, True),
        (LOG / (t + 2), True, True),
        (1 / LOG, True, False),
        (t * sp.Rational(9, 10) ** t, False, True),
        (sp.Piecewise((1, t < 10**6), (0, True)), False, True),
        (sp.Piecewise((1, sp.Eq(sp.Mod(t, 7), 0)), (0, True)), True, False),
        (sp.Piecewise((1 / (t + 1), sp.Eq(sp.Mod(t, 7), 0)), (0, True)), True, True),
        (sp.exp(sp.exp(t)), True, False),
        (sp.exp(-sp.exp(t)), False, True),
        ((t + 1) ** -100, False, True),
        (sp.Piecewise((0, t < 10**6), (1 / (t + 1), True)), True, True),
        (sp.Piecewise((1, sp.Eq(t, 3)), (1 / (t - 3) ** 2, True)), False, True),
    ],
    ids=str,
)
def test_no_verdict_is_wrong(value: sp.Expr, is_diverging: bool, is_summable: bool) -> None:
    for make, is_true in zip(CLAIMS, (is_diverging, is_summable), strict=True):
        verdict = make(Schedule(value)).verify(effort=0.05)
        assert not (verdict.refuted if is_true else verdict.proved), verdict


def test_a_value_that_is_missing_refutes_both() -> None:
    for make in CLAIMS:
        verdict = make(Schedule(1 / (t - 3) ** 2)).verify()
        assert verdict.counterexample == {"t": 3}


def test_a_domain_that_ends_has_a_finite_sum() -> None:
    short = Schedule(sp.S.One + 0 * t, domain=(t < 100,))
    assert claims.sum_diverges(short).verify().refuted
    assert claims.square_summable(short).verify().proved


def test_robbins_and_monro_for_all_hyperparameters() -> None:
    decay = schedules.inverse_time(1, 1, 20).unbind()
    positive = [hyper("value") > 0, hyper("rate") > 0]
    for make in CLAIMS:
        assert make(decay, assume=positive).verify().proved
    verdict = claims.square_summable(decay).verify()
    assert verdict.refuted, "a rate of 0 makes a constant"
    assert verdict.counterexample is not None
    assert verdict.counterexample["rate"] == 0


def test_what_depends_on_hyperparameters_is_refuted_at_a_point() -> None:
    decay = schedules.multiplicative(1, 0.5).unbind()
    gamma, first = hyper("gamma"), hyper("value")
    for make, is_below_1 in zip(CLAIMS, (True, False), strict=True):
        verdict = make(decay, assume=[first > 0, gamma > 0]).verify()
        assert verdict.counterexample is not None
        assert (verdict.counterexample["gamma"] < 1) is sp.S(is_below_1)
    assert claims.square_summable(decay, assume=[gamma > 0, gamma < 1]).verify().proved
    verdict = claims.sum_diverges(decay, assume=[gamma > 0, gamma < 1]).verify()
    assert verdict.refuted, "at all points"
    assert verdict.counterexample is None


def test_a_ratio_that_tends_to_1_makes_no_geometric_series() -> None:
    """(1 + t)/(2 + t) is below 1 at all steps, and the harmonic series has no finite sum."""
    harmonic = Schedule(hyper("c") / (t + hyper("d")), domain=(hyper("c") > 0, hyper("d") > 0))
    assert claims.sum_diverges(harmonic).verify().proved
    assert claims.square_summable(harmonic).verify().proved


def test_a_constant_that_may_be_0_has_no_infinite_sum() -> None:
    constant = schedules.constant(1).unbind()
    verdict = claims.sum_diverges(constant, assume=[hyper("value") >= 0]).verify()
    assert not verdict.proved


def test_verdicts_name_the_series() -> None:
    verdict = claims.sum_diverges(schedules.multiplicative(1, 0.97)).verify()
    assert verdict.reason == "the value is at most 97/100 of itself a step later"
    verdict = claims.sum_diverges(schedules.power(1, -0.7, warmup=20)).verify()
    assert verdict.reason == "the value is at least c/t^(7/10), c > 0"
    verdict = claims.square_summable(schedules.linear(1, 0, 10)).verify()
    assert verdict.reason == "the square is at most 0 from some step on"
    verdict = claims.sum_diverges(Schedule(1 / ((t + 2) * LOG))).verify(effort=0.1)
    assert verdict.reason == "no comparison with a known series is proved"


def test_the_table_has_a_row_for_each_schedule() -> None:
    assert SUMS.keys() == EXAMPLES.keys() - {"reduce_on_plateau"}, "an update rule has no sum"


def test_a_condition_on_the_step_is_refused() -> None:
    with pytest.raises(VerificationError) as caught:
        claims.sum_diverges(schedules.linear(1, 0, 10), assume=[t > 3])
    assert caught.value.what.startswith("a sum is over all steps, got the condition ")
    assert caught.value.hint is not None


def test_at_most_a_smoothness_constant() -> None:
    cosine = schedules.cosine(1, 0, 10).unbind()
    start, end, most = hyper("start"), hyper("end"), hyper("L", positive=True)
    assert (
        claims.at_most(cosine, 1 / most, assume=[end <= start, start <= 1 / most]).verify().proved
    )
    verdict = claims.at_most(cosine, 1 / most, assume=[end <= start]).verify()
    assert verdict.refuted
    assert verdict.counterexample is not None
    assert verdict.counterexample["start"] > 1 / verdict.counterexample["L"]
    assert claims.at_most(schedules.linear(1, 0, 10), 1).sentence == "the value is <= 1"
