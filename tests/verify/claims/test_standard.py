"""The standard claims: what is asked of a schedule, and that it is decided.

The whole library and all configs are in `compare_claims.py`; here is a part of both.
"""

import random
from collections.abc import Callable

import pytest
import sympy as sp

from closedform import claims, schedules
from closedform.errors import VerificationError
from closedform.language import Schedule, hyper, t
from closedform.recipes import load_schedules
from closedform.verify.claims.report import Report
from closedform.verify.claims.standard import verify_schedule
from tests.reference.records import CONFIGS
from tests.test_library import SCHEDULES
from tests.verify.defaults import default_conditions

LINE = schedules.linear(0, 3e-4, 20)
WARMED = LINE.then(schedules.cosine(3e-4, 3e-5, 80))
MUST_BE_DECIDED = ("total", "finite", "bounded", "continuous")


def words(report: Report) -> list[tuple[str, str]]:
    return [(finding.shown, finding.claim.sentence) for finding in report]


def test_report_of_a_schedule_with_values() -> None:
    assert words(WARMED.verify()) == [
        ("PROVED", "every step has a branch"),
        ("PROVED", "the value is finite and real"),
        ("PROVED", "branches not taken are finite and real, too"),
        ("PROVED", "every branch is taken"),
        ("PROVED", "the value is >= 0 and <= 3/10000"),
        ("PROVED", "the value is never below 0"),
        ("PROVED", "the value does not jump"),
        ("PROVED", "the value is increasing from 0 to 20, decreasing from 20 on"),
        ("PROVED", "the value is 3/100000 from step 100 on"),
    ]


def test_report_of_all_values() -> None:
    assert words(LINE.unbind().verify()) == [
        ("PROVED", "every step has a branch"),
        ("PROVED", "the value is finite and real"),
        ("PROVED", "branches not taken are finite and real, too"),
        ("PROVED", "every branch is taken"),
        ("PROVED", "the value is >= Min(end, start) and <= Max(end, start)"),
        ("PROVED", "the value does not jump"),
        ("PROVED", "the value is end from step steps on"),
    ]


def test_assumptions_say_more() -> None:
    start, end = hyper("start"), hyper("end")
    report = LINE.unbind().verify(assume=[start >= 0, end >= start])
    assert report["bounded"].claim.sentence == "the value is >= start and <= end"
    assert report["non_negative"].verdict.proved


# The defect or notable fact, the claim that finds it, and its words.
FINDINGS: dict[str, tuple[Schedule, str, str, str]] = {
    "a gap": (Schedule(sp.Piecewise((1, t < 5), (2, t > 5))), "total", "REFUTED", "t = 5: "),
    "a pole": (Schedule(1 / (t - 7)), "finite", "REFUTED", "t = 7: 1 / (t + -7) is defined"),
    "below 0": (
        schedules.one_cycle(1, 2, 0, 10, anneal="linear", clamp=False),
        "non_negative",
        "REFUTED",
        "value >= 0, it is -",
    ),
    "a root not taken": (
        Schedule(sp.Piecewise((sp.sqrt(t - 5), t >= 5), (0, True))),
        "where_safe",
        "NO",
        "((t + -5) ^ 1/2) is defined",
    ),
    "a dead branch": (
        Schedule(sp.Piecewise((1, t < 5), (2, t + 1 < 5), (3, True))),
        "reached",
        "NO",
        "the branch where t < 4 is taken, it is so nowhere",
    ),
    "jumps": (
        schedules.multi_step(1, 0.5, [4, 8]),
        "continuous",
        "NO",
        "from 1 to 1/2 at step 4, from 1/2 to 1/4 at step 8, up to step 8",
    ),
    "many jumps": (
        schedules.step_decay(1, 0.5, 100),
        "continuous",
        "NO",
        "at step 400 and 6 more, up to step 1000",
    ),
    "goes on": (
        schedules.cosine_annealing(1, 0, 10),
        "ends_at",
        "NO",
        "value = 0, it is ",
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_what_is_found(name: str) -> None:
    schedule, claim, shown, detail = FINDINGS[name]
    finding = schedule.verify()[claim]
    assert finding.shown == shown
    assert detail in finding.detail
    assert finding.is_fault == (shown == "REFUTED")


def test_growth_has_no_upper_bound() -> None:
    growing = schedules.multiplicative(1, 1.5).verify()
    assert growing["bounded"].claim.sentence == "the value is >= 1"
    swinging = Schedule((-2) ** t).verify()
    assert "bounded" not in [finding.claim.name for finding in swinging]


def test_a_schedule_that_turns_often_is_not_asked_for_its_phases() -> None:
    asked = [finding.claim.name for finding in schedules.cyclic(0, 1, 4).verify()]
    assert "monotone" not in asked


def test_named_claims_replace_the_standard_ones() -> None:
    report = WARMED.verify(claims.bounded(WARMED, high=1), claims.total(WARMED), effort=0.2)
    assert words(report) == [
        ("PROVED", "the value is <= 1"),
        ("PROVED", "every step has a branch"),
    ]
    assert report.subject == "schedule 'sequential'"


def test_invalid_claims_are_refused() -> None:
    with pytest.raises(VerificationError) as caught:
        WARMED.verify("total")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "verify takes claims, got str 'total': make them with closedform.claims"
    )
    for wrong in (0, -1, float("nan"), float("inf"), True, "3"):
        with pytest.raises(VerificationError, match="effort must be a number above 0, got "):
            WARMED.verify(effort=wrong)  # type: ignore[arg-type]
        with pytest.raises(VerificationError, match="budget must be a number of seconds above 0"):
            WARMED.verify(budget=wrong)  # type: ignore[arg-type]


# --- decided -------------------------------------------------------------------------------------


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_entry_with_values_is_decided(name: str) -> None:
    report = SCHEDULES[name]().verify()
    undecided = [f.claim.sentence for f in report.unknown if f.claim.name in MUST_BE_DECIDED]
    assert not undecided
    assert {"total", "finite", "continuous"} <= {finding.claim.name for finding in report}
    assert not report.refuted


SYMBOLIC = (
    "linear",
    "cosine",
    "cosine_annealing",
    "exponential",
    "inverse_square_root",
    "noam",
    "power",
    "rex",
    "step_decay",
    "wsd",
)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", SYMBOLIC)
def test_entries_are_decided_for_all_values(name: str) -> None:
    schedule = SCHEDULES[name]().unbind()
    report = schedule.verify(assume=default_conditions(schedule))
    assert not report.unknown
    assert not report.refuted
    assert report["bounded"].verdict.proved
    assert report["non_negative"].verdict.proved


@pytest.mark.parametrize("path", CONFIGS[::7], ids=lambda path: path.stem)
def test_configs_are_decided(path: object) -> None:
    found, _ = load_schedules(str(path))
    for schedule in found.values():
        report = schedule.verify()
        assert not report.unknown
        assert not report.refuted


def test_a_long_table_is_decided() -> None:
    draw = random.Random(5)
    values = [draw.randint(1, 10**6) / 1e9 for _ in range(1000)]
    report = schedules.table(values).verify()
    assert not report.unknown
    low, high = sp.Rational(str(min(values))), sp.Rational(str(max(values)))
    sentence = report["bounded"].claim.sentence
    assert sentence == f"the value is >= {low} and <= {high}"
    assert report["continuous"].shown == "NO"


# --- planted faults: no false proof, and the fault is found --------------------------------------


def faulty(change: Callable[[sp.Expr], sp.Expr]) -> Schedule:
    """A warmup and a decay with a change to the formula of the decay."""
    peak, warmup, total = 1, 10, 50
    decay = peak * (1 - (t - warmup) / sp.Integer(total - warmup))
    expr = sp.Piecewise((t / sp.Integer(warmup), t < warmup), (change(decay), t < total), (0, True))
    return Schedule(expr, length=total)


FAULTS: dict[str, tuple[Callable[[sp.Expr], sp.Expr], str]] = {
    "sign": (lambda decay: -decay, "non_negative"),
    "one late": (lambda decay: decay.xreplace({t: t - 1}), "continuous"),
    "missing clamp": (lambda decay: decay.xreplace({t: 2 * t}), "non_negative"),
    "pole": (lambda decay: 1 / (t - 30), "finite"),
    "no end": (lambda decay: decay + 1, "continuous"),
}


def test_the_formula_without_a_fault_is_proved() -> None:
    assert not [f for f in verify_schedule(faulty(lambda decay: decay)) if not f.verdict.proved]


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    change, claim = FAULTS[name]
    assert faulty(change).verify()[claim].verdict.refuted
