"""Claims about schedules: each proved where it is true, and refuted on a planted fault."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sympy as sp

from closedform import claims, schedules
from closedform.effort import Effort
from closedform.errors import DomainError, VerificationError
from closedform.language import Schedule, floor_div, floor_mod, hyper, t
from closedform.verify.claims.core import (
    Claim,
    Covering,
    Goal,
    Proofs,
    claim_effort,
    number_text,
    value_text,
)
from closedform.verify.terms.build import FALSE, ONE, TRUE, less, rational, symbol
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.verdict import Status

PEAK, END = hyper("peak"), hyper("end")
W, N = sp.symbols("warmup steps", integer=True)
POSITIVE = [W >= 1, N > W, END >= 0, PEAK >= END]
LINEAR = schedules.linear(0, 1, 10)
OPEN = LINEAR.unbind()
COSINE = schedules.cosine(1, 0, 10)
WARMED = Schedule(
    sp.Piecewise(
        (PEAK * t / W, t < W),
        (END + (PEAK - END) * (1 + sp.cos(sp.pi * (t - W) / (N - W))) / 2, t < N),
        (END, True),
    ),
    name="warmed",
)
CLOSED = Schedule(sp.Piecewise((PEAK * t / W, t <= W), (PEAK, True)), name="closed")
RESTARTS = schedules.warm_restarts(1, 0, 10, multiplier=2).unbind("start", "end")
RESTARTS = Schedule(RESTARTS.bound.xreplace({hyper("start"): PEAK}), name="restarts")
# It rises to 4, falls to 3 at t = 7, and rises again.
BENT = Schedule(sp.Piecewise((t, t < 5), (10 - t, t < 8), (t - 4, True)), name="bent")
GAP = Schedule(sp.Piecewise((1, t < 5), (2, t > 5)), name="gap")
DEAD = Schedule(sp.Piecewise((1, t < W), (2, t < W - 1), (3, True)), name="dead")
POLE = Schedule(1 / (t - 7), name="pole")
UNDER_ROOT = Schedule(sp.Piecewise((sp.sqrt(t - 5), t >= 5), (0, True)), name="root")

# Claims that are true, by name, each beside a false one: a planted fault.
PAIRS: dict[str, tuple[Callable[[], Claim], Callable[[], Claim]]] = {
    "total": (lambda: claims.total(WARMED), lambda: claims.total(GAP)),
    "total where": (lambda: claims.total(GAP, where=t > 5), lambda: claims.total(GAP, where=t > 4)),
    # A warmup that is taken has steps; one whose last step belongs to it may have none.
    "finite": (lambda: claims.finite(WARMED), lambda: claims.finite(CLOSED)),
    "finite where": (lambda: claims.finite(POLE, where=t > 7), lambda: claims.finite(POLE)),
    "where_safe": (
        lambda: claims.where_safe(WARMED, assume=POSITIVE),
        lambda: claims.where_safe(UNDER_ROOT),
    ),
    "reached": (
        lambda: claims.reached(WARMED, assume=POSITIVE),
        lambda: claims.reached(DEAD, assume=[W > 3]),
    ),
    "unambiguous": (
        lambda: claims.unambiguous(Schedule(sp.Piecewise((t, t <= 5), (5, t >= 5)))),
        lambda: claims.unambiguous(Schedule(sp.Piecewise((t, t <= 5), (4, t >= 5)))),
    ),
    "bounded": (
        lambda: claims.bounded(WARMED, 0, PEAK, assume=POSITIVE),
        lambda: claims.bounded(WARMED, END, PEAK, assume=POSITIVE),
    ),
    "bounded by numbers": (
        lambda: claims.bounded(LINEAR, high=1),
        lambda: claims.bounded(LINEAR, high=0.99),
    ),
    "bounded by a hyperparameter's value": (
        lambda: claims.bounded(LINEAR, low=hyper("start")),
        lambda: claims.bounded(LINEAR, low=hyper("end")),
    ),
    "bounded where": (
        lambda: claims.bounded(LINEAR, high=0.5, where=t <= 5),
        lambda: claims.bounded(LINEAR, high=0.5, where=t <= 6),
    ),
    "bounded by parity": (
        lambda: claims.bounded(schedules.step_decay(1, -0.5, 4), -0.5, 1),
        lambda: claims.bounded(schedules.step_decay(1, -0.5, 4), -0.25, 1),
    ),
    "bounded for any choice": (
        lambda: claims.bounded(RESTARTS, END, PEAK, assume=[END <= PEAK]),
        lambda: claims.bounded(RESTARTS, END, PEAK),
    ),
    "non_negative": (
        lambda: claims.non_negative(OPEN, assume=[hyper("start") >= 0, hyper("end") >= 0]),
        lambda: claims.non_negative(OPEN, assume=[hyper("start") >= 0]),
    ),
    "continuous": (
        lambda: claims.continuous(WARMED, assume=POSITIVE),
        lambda: claims.continuous(WARMED.bind(peak=1, end=0, warmup=3, steps=9).splice(5, LINEAR)),
    ),
    "continuous but": (
        lambda: claims.continuous(schedules.multi_step(1, 0.5, [4, 8]), jumps=[4, 8]),
        lambda: claims.continuous(schedules.multi_step(1, 0.5, [4, 8]), jumps=[4]),
    ),
    "increasing": (
        lambda: claims.monotone(WARMED, "increasing", where=t <= W, assume=POSITIVE),
        lambda: claims.monotone(WARMED, "increasing", where=t <= W + 1, assume=POSITIVE),
    ),
    "increasing from the first step on": (
        lambda: claims.monotone(Schedule((t - 1) ** 2), "increasing", where=t >= 1),
        lambda: claims.monotone(Schedule((t - 1) ** 2), "increasing"),
    ),
    "increasing on steps apart": (
        lambda: claims.monotone(BENT, "increasing", where=(t <= 4) | (t >= 8)),
        lambda: claims.monotone(BENT, "increasing", where=(t <= 4) | (t >= 7)),
    ),
    "decreasing": (
        lambda: claims.monotone(COSINE, "decreasing"),
        lambda: claims.monotone(schedules.cosine_annealing(1, 0, 10), "decreasing"),
    ),
    "constant": (
        lambda: claims.monotone(COSINE, "constant", where=t >= 10),
        lambda: claims.monotone(COSINE, "constant", where=t >= 9),
    ),
    "ends_at": (lambda: claims.ends_at(LINEAR, 1), lambda: claims.ends_at(LINEAR, 1, at=9)),
    "ends_at, open": (
        lambda: claims.ends_at(OPEN, hyper("end")),
        lambda: claims.ends_at(OPEN, hyper("start")),
    ),
    "periodic": (
        lambda: claims.periodic(schedules.cosine_annealing(1, 0, 10).unbind(), 2 * _steps()),
        lambda: claims.periodic(schedules.cosine_annealing(1, 0, 10).unbind(), _steps()),
    ),
    "periodic, a period of 0": (
        lambda: claims.periodic(schedules.repeat(LINEAR, 7), 7),
        lambda: claims.periodic(schedules.repeat(LINEAR, 7), 0),
    ),
    "equal": (
        lambda: claims.equal(
            schedules.cosine(1, 0, 10).unbind(),
            schedules.cosine_annealing(1, 0, 10).unbind(),
            where=t <= _steps(),
        ),
        lambda: claims.equal(
            schedules.cosine(1, 0, 10).unbind(), schedules.cosine_annealing(1, 0, 10).unbind()
        ),
    ),
    "equal to an expression": (
        lambda: claims.equal(LINEAR, sp.Min(t, 10) / 10),
        lambda: claims.equal(LINEAR, sp.Min(t, 11) / 10),
    ),
    "recurrence": (
        lambda: claims.recurrence(
            schedules.step_decay(1, 0.5, 7),
            1,
            lambda value, t: sp.Piecewise((value / 2, sp.Eq(floor_mod(t, 7), 0)), (value, True)),
        ),
        lambda: claims.recurrence(
            schedules.step_decay(1, 0.5, 7),
            1,
            lambda value, t: sp.Piecewise((value / 2, sp.Eq(floor_mod(t, 8), 0)), (value, True)),
        ),
    ),
    "recurrence, first value": (
        lambda: claims.recurrence(schedules.multiplicative(3, 2), 3, lambda value, t: 2 * value),
        lambda: claims.recurrence(schedules.multiplicative(3, 2), 2, lambda value, t: 2 * value),
    ),
    "recurrence with a pole": (
        lambda: claims.recurrence(Schedule(t + 1), 1, lambda value, t: value * (t + 1) / t),
        lambda: claims.recurrence(Schedule(t), 0, lambda value, t: value * t / (t - 1)),
    ),
    "strictly monotone": (
        lambda: claims.monotone(LINEAR, "strictly increasing", where=t <= 10),
        lambda: claims.monotone(LINEAR, "strictly increasing"),
    ),
    "bounded_change": (
        lambda: claims.bounded_change(schedules.linear(1, 0, 10), -0.1, 0),
        lambda: claims.bounded_change(schedules.linear(1, 0, 10), -0.09, 0),
    ),
    "argmax": (lambda: claims.argmax(LINEAR, 10), lambda: claims.argmax(LINEAR, 9)),
    "argmin": (lambda: claims.argmin(LINEAR, 0), lambda: claims.argmin(LINEAR, 1)),
    "close": (
        lambda: claims.close(COSINE, COSINE.bound + sp.Rational(1, 10), 0.1),
        lambda: claims.close(COSINE, COSINE.bound + sp.Rational(1, 10), 0.09),
    ),
    "equal, another clock": (
        lambda: claims.equal(schedules.linear(0, 1, 10), schedules.linear(0, 1, 20), scale=2),
        lambda: claims.equal(schedules.linear(0, 1, 10), schedules.linear(0, 1, 20), scale=3),
    ),
    "area, many steps": (
        lambda: claims.area(schedules.cosine(1, 0, 10**4), 5000 + sp.Rational(1, 2), 10**4),
        lambda: claims.area(schedules.cosine(1, 0, 10**4), 5000, 10**4),
    ),
    "area": (
        lambda: claims.area(Schedule(t), t * (t - 1) / 2),
        lambda: claims.area(Schedule(t), t * (t + 1) / 2),
    ),
    "area, first step": (
        lambda: claims.area(schedules.constant(0.1), t / 10),
        lambda: claims.area(schedules.constant(0.1), t / 10 + 1),
    ),
    "sum_diverges": (
        lambda: claims.sum_diverges(schedules.inverse_time(1, 1, 20)),
        lambda: claims.sum_diverges(schedules.multiplicative(1, 0.97)),
    ),
    "square_summable": (
        lambda: claims.square_summable(schedules.inverse_time(1, 1, 20)),
        lambda: claims.square_summable(schedules.inverse_square_root(1, 1, 40)),
    ),
    "area of steps": (lambda: claims.area(LINEAR, 4.5, 10), lambda: claims.area(LINEAR, 5.5, 10)),
}


def _steps() -> sp.Symbol:
    return hyper("steps", integer=True, positive=True)


@pytest.mark.parametrize("name", PAIRS)
def test_a_true_claim_is_proved_and_a_planted_fault_refuted(name: str) -> None:
    true, false = PAIRS[name]
    verdict = true().verify()
    assert verdict.proved, verdict
    assert verdict.grounds
    assert false().verify().refuted


def test_every_claim_about_a_schedule_has_a_pair() -> None:
    about_rules = {"same_rule", "invariant", "finite_steps", "bounded_update", "after_steps"}
    about_replays = {"capturable"}  # test_captured.py
    about_floats = {name for name in claims.__all__ if name.startswith("float_")}  # test_floats.py
    made = {true().name for true, _ in PAIRS.values()}
    about_polynomials = {"iterate_within"}  # test_iterates.py
    # ``at_most`` makes a claim of the name ``bounded``.
    functions = {name for name in claims.__all__ if name[0].islower()} - {"at_most"}
    assert made == functions - about_rules - about_floats - about_polynomials - about_replays


def _at(schedule: Schedule, point: dict[str, Any], clock: str = "t") -> sp.Expr:
    values = {symbol.name: point[symbol.name] for symbol in schedule.open}
    return schedule.bind(**values).exact(int(point[clock]))


# A false claim, and what the exact value at its counterexample must disagree with.
FALSE_CLAIMS: dict[str, tuple[Claim, Callable[[sp.Expr, dict[str, Any]], bool]]] = {
    "below": (
        claims.bounded(WARMED, high=PEAK / 2, assume=POSITIVE),
        lambda value, point: value > point["peak"] / 2,
    ),
    "above": (
        claims.bounded(WARMED, low=END, assume=POSITIVE),
        lambda value, point: value < point["end"],
    ),
    "end": (
        claims.ends_at(schedules.tanh_decay(1, 0, 10), 0),
        lambda value, point: value != 0 and point["t"] >= 10,
    ),
    "negative": (
        claims.non_negative(schedules.one_cycle(1, 2, 0, 9, anneal="linear", clamp=False)),
        lambda value, point: value < 0,
    ),
    "equal": (
        claims.equal(LINEAR, sp.Piecewise((t / 10, t < 9), (1, True))),
        lambda value, point: value != 1 and point["t"] == 9,
    ),
}


@pytest.mark.parametrize("name", FALSE_CLAIMS)
def test_a_counterexample_disagrees_exactly(name: str) -> None:
    claim, disagrees = FALSE_CLAIMS[name]
    verdict = claim.verify()
    assert verdict.refuted
    assert verdict.counterexample is not None
    point = dict(verdict.counterexample)
    assert isinstance(claim.subject, Schedule)
    assert disagrees(_at(claim.subject, point), point)


def test_a_counterexample_of_two_steps_goes_the_other_way() -> None:
    lr = schedules.cosine_annealing(1, 0, 10)
    verdict = claims.monotone(lr, "decreasing").verify()
    point = dict(verdict.counterexample or {})
    assert point["t"] < point["t'"]
    assert _at(lr, point) < _at(lr, point, "t'")


def test_a_counterexample_between_two_branches_is_named_by_its_steps() -> None:
    lr = LINEAR.then(schedules.linear(0.5, 0, 10))
    verdict = claims.monotone(lr, "increasing", where=t <= 10).verify()
    assert verdict.reason == (
        "from step 9 to step 10 it is increasing, before it is 9/10, after it is 1/2"
    )


# --- what is said --------------------------------------------------------------------------------


def test_sentences_and_reasons() -> None:
    claim = claims.bounded(LINEAR, 0, 0.5)
    assert claim.sentence == "the value is >= 0 and <= 0.5"
    verdict = claim.verify()
    step = int((verdict.counterexample or {})["t"])
    assert step > 5
    value = sp.Rational(min(step, 10), 10)
    assert verdict.reason == f"value <= 0.5, the value is {value}, the bound is 1/2"
    where = claims.monotone(COSINE, "constant", where=t >= 10)
    assert where.sentence == "the value is constant where 10 <= t"
    assert claims.ends_at(OPEN, 3, at=7).sentence == "the value is 3 from step 7 on"
    assert claims.periodic(LINEAR, 4).sentence == "the value repeats every 4 steps"
    jumping = claims.continuous(OPEN, jumps=[3, W])
    assert jumping.sentence == "the value does not jump but at t = 3, warmup"


def test_undefined_refutes_a_bound_with_the_place() -> None:
    verdict = claims.bounded(POLE, -1, 1).verify()
    assert verdict.refuted
    assert verdict.counterexample == {"t": 7}
    assert verdict.reason.startswith("1 / (t + -7) is defined, ")


def test_an_unreachable_branch_is_named() -> None:
    verdict = claims.reached(DEAD).verify()
    assert verdict.reason == "the branch where t < (warmup + -1) is taken, it is so nowhere"


def test_branches_are_compared_in_pairs() -> None:
    """Each pair once: a link of a chain of choices begins none of the pairs anew."""
    ends = range(10, 260, 10)
    stairs = Schedule(sp.Piecewise(*((end, t < end) for end in ends), (260, True)))
    goals = claims.unambiguous(stairs).goals
    assert len(goals) == len(set(goals)) == math.comb(len(ends), 2)


def test_a_question_says_so() -> None:
    assert claims.where_safe(OPEN).is_question
    assert claims.reached(OPEN).is_question
    assert not claims.continuous(OPEN).is_question
    assert claims.continuous(OPEN, is_question=True).is_question


# --- assumptions ---------------------------------------------------------------------------------


def test_the_domain_of_a_schedule_is_assumed() -> None:
    flat = schedules.flat_cosine(1, 0, 10, 4).unbind()
    assert claims.finite(flat).verify().proved
    assert claims.finite(Schedule(flat.expr)).verify().refuted


def test_names_are_those_of_the_schedule_whatever_they_declare() -> None:
    plain = sp.Symbol("steps")
    assert claims.ends_at(OPEN, hyper("end"), at=plain).verify().proved


def test_floats_mean_the_decimals_they_show() -> None:
    lr = Schedule(sp.Rational(1, 10) * t)
    assert claims.equal(lr, 0.1 * t).verify().proved


def test_schedules_share_open_hyperparameters_by_name() -> None:
    halved = schedules.linear(0, 1, 10).unbind("end").scale(0.5)
    assert claims.equal(LINEAR.unbind("end"), halved).verify().refuted
    assert claims.equal(LINEAR.unbind("end").scale(0.5), halved).verify().proved


# --- what is refused -----------------------------------------------------------------------------

BAD: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no schedule": (
        lambda: claims.total(3),  # type: ignore[arg-type]
        VerificationError,
        "this claim is about a Schedule, got int: make one with closedform.Schedule or "
        "closedform.schedules",
    ),
    "text": (
        lambda: claims.bounded(LINEAR, "peak"),
        VerificationError,
        "a claim is made of numbers and SymPy expressions, got the text 'peak' (schedule "
        "'linear'): write it with closedform.t and closedform.expr.hyper",
    ),
    "no bound": (
        lambda: claims.bounded(COSINE),
        VerificationError,
        "a bound is needed, got neither low nor high (schedule 'cosine'): give one of them",
    ),
    "direction": (
        lambda: claims.monotone(COSINE, "down"),
        VerificationError,
        "direction must be one of increasing, decreasing, constant, strictly increasing, "
        "strictly decreasing, got 'down' (schedule 'cosine')",
    ),
    "no end": (
        lambda: claims.ends_at(schedules.multiplicative(1, 0.5), 0),
        VerificationError,
        "a schedule without a length has no end (schedule 'multiplicative'): say from which "
        "step on with at",
    ),
    "many steps": (
        lambda: claims.area(LINEAR, 3, -2),
        VerificationError,
        "steps must be an integer of at least 0, got -2 (schedule 'linear'): give the sum as an "
        "expression in t, which is proved by induction",
    ),
    "fraction of steps": (
        lambda: claims.area(COSINE, 3, 2.5),  # type: ignore[arg-type]
        VerificationError,
        "steps must be an integer of at least 0, got 2.5 (schedule 'cosine'): give the sum as an "
        "expression in t, which is proved by induction",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_claim_is_refused(name: str) -> None:
    make, kind, message = BAD[name]
    with pytest.raises(kind) as caught:
        make()
    assert str(caught.value) == message


# --- how verdicts become one ---------------------------------------------------------------------

X = symbol("x")
CLEAR = Goal("x < x + 1 is clear", TRUE)
WRONG = Goal("it is below 0", less(X, rational(0)), shown=(("x", X),))


def _claim(*goals: Goal, **more: Any) -> Claim:
    return Claim("made", "made", LINEAR, goals, **more)


def test_a_claim_without_goals_holds_by_its_form() -> None:
    verdict = _claim().verify()
    assert (verdict.status, verdict.grounds) == (Status.PROVED, ("its form",))


def test_one_false_goal_refutes_the_claim() -> None:
    verdict = _claim(CLEAR, WRONG).verify()
    assert verdict.refuted
    assert verdict.reason == f"it is below 0, x is {(verdict.counterexample or {})['x']}"


def test_what_is_more_than_needed_does_not_refute() -> None:
    more = Goal("no two of them", FALSE, is_sufficient=True)
    verdict = _claim(CLEAR, more).verify()
    assert verdict.unknown
    assert verdict.reason.startswith("no two of them")


def test_reasons_of_unknown_goals_are_named_a_few() -> None:
    goals = [Goal(f"goal {index}", FALSE, is_sufficient=True) for index in range(5)]
    reason = _claim(*goals).verify().reason
    assert "goal 2" in reason
    assert "goal 3" not in reason
    assert reason.endswith("; and 2 more")


def test_without_effort_there_is_no_answer() -> None:
    verdict = _claim(Goal("x < 1 or so", less(X, ONE))).judge(Effort.of(0))
    assert verdict.unknown
    assert verdict.reason.startswith("x < 1 or so: the effort was used up")
    assert verdict.reason.endswith(", before it was asked")


def test_somewhere_is_a_point() -> None:
    assert _claim(Goal("some", less(X, ONE), is_somewhere=True)).verify().proved
    nowhere = Goal("none", less(X, X), is_somewhere=True)
    assert _claim(nowhere).verify().reason == "none, it is so nowhere"


def test_proofs_are_shared_between_claims() -> None:
    asked = Proofs()
    under = Goal("x below 2", less(X, rational(2)), (less(X, ONE),))
    first = _claim(under).verify(proofs=asked)
    effort = claim_effort()
    again = asked.ask(under, (), effort, Covering())
    assert again == replace(first, proof=again.proof)
    # The work of a verdict that is known counts again, and where it is not there nothing is known.
    assert effort.left < LIMITS.claim_work
    assert asked.ask(under, (), Effort.of(0), Covering()).unknown


def test_a_proof_covers_goals_of_its_claim_under_more_facts() -> None:
    asked, covering = Proofs(), Covering()
    under = Goal("x below 2", less(X, rational(2)), (less(X, ONE),))
    assert asked.ask(under, (), claim_effort(), covering).proved
    more = Goal("x below 2", less(X, rational(2)), (less(X, ONE), less(X, rational(-1))))
    assert asked.ask(more, (), Effort.of(0), covering).proved
    fewer = Goal("x below 2", less(X, rational(2)))
    assert asked.ask(fewer, (), claim_effort(), covering).refuted


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        ("1/3", "1/3"),
        (f"{10**20}/{10**20 + 3}", "≈ 1"),
        ("123456789/1000000000000", "≈ 0.00012345679"),
    ],
)
def test_numbers_are_short(number: str, shown: str) -> None:
    top, bottom = (int(part) for part in number.split("/"))
    assert number_text(rational(sp.Rational(top, bottom)).value) == shown


def test_the_value_of_a_term_may_be_undefined() -> None:
    pole = rational(1)
    from closedform.verify.terms.build import divide

    assert value_text(divide(pole, X), {"x": sp.Integer(0)}).startswith("undefined (division by")


def test_an_invalid_domain_is_refused() -> None:
    with pytest.raises(DomainError, match="flat < steps must hold"):
        schedules.flat_cosine(1, 0, 10, 4).bind(flat=11)


def test_staircases_count_from_the_left() -> None:
    stairs = Schedule(floor_div(t, 4))
    verdict = claims.continuous(stairs).verify()
    assert verdict.refuted
    assert (verdict.counterexample or {})["t"] % 4 == 0
