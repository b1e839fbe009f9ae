"""Claims about update rules: each proved where it is true, and refuted on a planted fault."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import sympy as sp

from closedform import claims, optimizers, schedules
from closedform.errors import VerificationError
from closedform.language import GRAD, PARAM, FloorMod, State, UpdateRule, hyper, state, t
from closedform.verify.claims.core import Claim
from closedform.verify.claims.standard import verify_rule
from closedform.verify.terms.limits import LIMITS
from tests.test_library import OPTIMIZERS

LR, B1, B2, EPS, WD, MU = (
    hyper(name) for name in ("lr", "beta1", "beta2", "eps", "weight_decay", "momentum")
)
BETAS = [B1 > 0, B1 < 1, B2 > 0, B2 < 1, EPS > 0, LR > 0]
ALL = ("lr", "beta1", "beta2", "eps")
SQUARE = state("exp_avg_sq") >= 0
ADAM, BARE = optimizers.adam(), optimizers.adamw(weight_decay=0)
BEFORE = optimizers.adam(eps_added="before_correction")
LION = optimizers.lion(weight_decay=0.1)


def _renamed(rule: UpdateRule, names: Mapping[str, str]) -> UpdateRule:
    """The rule with other names for its states."""
    places = {state(old): state(new) for old, new in names.items()}
    states = {
        names[name]: State(spec.next.xreplace(places), spec.initial)
        for name, spec in rule.states.items()
    }
    return UpdateRule(rule.name, rule.param.xreplace(places), states, rule.hyperparameters)


HEAVY = optimizers.sgd(0.1, momentum=0.9)
NAMES = {"momentum_buffer": "velocity"}
DOUBLED = UpdateRule(
    "doubled",
    PARAM - LR / 2 * state("twice") * MU - LR * GRAD,
    {"twice": State(MU * state("twice") + 2 * GRAD)},
    {"lr": 0.1, "momentum": 0.9},
)
PLAIN = UpdateRule(
    "plain",
    PARAM - LR * (MU * state("mean") + GRAD),
    {"mean": State(MU * state("mean") + GRAD)},
    {"lr": 0.1, "momentum": 0.9},
)


def _same(**options: Any) -> Claim:
    return claims.same_rule(BARE, ADAM, invariants=[SQUARE], **options)


PAIRS: dict[str, tuple[Callable[[], Claim], Callable[[], Claim]]] = {
    "same_rule": (lambda: _same(), lambda: _same(substitution={"eps": 1e-6})),
    "same_rule for all values": (
        lambda: _same(open=ALL, assume=BETAS),
        lambda: _same(open=ALL, assume=BETAS, substitution={"eps": 2 * EPS}),
    ),
    "same_rule under a substitution": (
        lambda: claims.same_rule(
            BEFORE,
            ADAM,
            open=ALL,
            assume=BETAS,
            invariants=[SQUARE],
            substitution={"eps": EPS / sp.sqrt(1 - B2 ** (t + 1))},
        ),
        lambda: claims.same_rule(BEFORE, ADAM, open=ALL, assume=BETAS, invariants=[SQUARE]),
    ),
    "same_rule, states renamed": (
        lambda: claims.same_rule(
            HEAVY, _renamed(HEAVY, NAMES), states={"velocity": "momentum_buffer"}
        ),
        lambda: claims.same_rule(
            HEAVY, _renamed(HEAVY, NAMES), states={"velocity": 2 * state("momentum_buffer")}
        ),
    ),
    "same_rule, a state in terms of another": (
        lambda: claims.same_rule(PLAIN, DOUBLED, states={"twice": 2 * state("mean")}),
        lambda: claims.same_rule(PLAIN, DOUBLED, states={"twice": state("mean")}),
    ),
    "same_rule, another first value": (
        lambda: claims.same_rule(PLAIN, PLAIN),
        lambda: claims.same_rule(
            PLAIN, UpdateRule("late", PLAIN.param, {"mean": State(_next("mean"), 1)}, _values())
        ),
    ),
    "same_rule where": (
        lambda: claims.same_rule(PLAIN, _late(), where=t < 5),
        lambda: claims.same_rule(PLAIN, _late(), where=t <= 5),
    ),
    "invariant": (
        lambda: claims.invariant(ADAM, SQUARE, open=ALL, assume=BETAS),
        lambda: claims.invariant(ADAM, state("exp_avg") >= 0, open=ALL, assume=BETAS),
    ),
    "invariant at the beginning": (
        lambda: claims.invariant(ADAM, SQUARE),
        lambda: claims.invariant(ADAM, state("exp_avg_sq") > 0),
    ),
    "invariant of the clock": (
        lambda: claims.invariant(_counting(1), state("count") <= t),
        lambda: claims.invariant(_counting(2), state("count") <= t),
    ),
    "finite_steps": (
        lambda: claims.finite_steps(ADAM, invariants=[SQUARE]),
        lambda: claims.finite_steps(optimizers.adam(eps=0), invariants=[SQUARE]),
    ),
    "finite_steps without the invariant": (
        lambda: claims.finite_steps(LION),
        lambda: claims.finite_steps(optimizers.adam(eps=0)),
    ),
    "bounded_update": (
        lambda: claims.bounded_update(LION, LR * (1 + WD * sp.Abs(PARAM))),
        lambda: claims.bounded_update(LION, LR),
    ),
    "bounded_update with an invariant": (
        lambda: claims.bounded_update(_clipped(), 1, invariants=[state("mean") >= 0]),
        lambda: claims.bounded_update(_clipped(), 0.5, invariants=[state("mean") >= 0]),
    ),
    "after_steps": (
        lambda: claims.after_steps(
            ADAM,
            {"exp_avg": GRAD * (1 - B1**t), "exp_avg_sq": GRAD**2 * (1 - B2**t)},
            open=ALL,
            assume=BETAS,
        ),
        lambda: claims.after_steps(
            ADAM, {"exp_avg": GRAD * (1 - B1 ** (t + 1))}, open=ALL, assume=BETAS
        ),
    ),
    "after_steps, the step": (
        lambda: claims.after_steps(PLAIN, {"mean": GRAD * (1 - MU**t) / (1 - MU)}),
        lambda: claims.after_steps(PLAIN, {"mean": GRAD * t}),
    ),
}


def _values() -> dict[str, float]:
    return {"lr": 0.1, "momentum": 0.9}


def _next(name: str) -> sp.Expr:
    return PLAIN.states[name].next


def _late() -> UpdateRule:
    """The plain rule whose step at t = 5 and after is twice as long."""
    factor = sp.Piecewise((1, t < 5), (2, True))
    param = PARAM + factor * (PLAIN.param - PARAM)
    return UpdateRule("late", param, PLAIN.states, _values())


def _counting(by: int) -> UpdateRule:
    return UpdateRule("counting", PARAM - GRAD, {"count": State(state("count") + by)})


def _clipped() -> UpdateRule:
    """A step that is the mean of squares over one more than it: between 0 and 1."""
    mean = state("mean")
    return UpdateRule("clipped", PARAM - mean / (1 + mean), {"mean": State(mean / 2 + GRAD**2)})


@pytest.mark.parametrize("name", PAIRS)
def test_a_true_claim_is_proved_and_a_planted_fault_refuted(name: str) -> None:
    true, false = PAIRS[name]
    verdict = true().verify()
    assert verdict.proved, verdict
    assert false().verify().refuted


def test_every_claim_about_a_rule_has_a_pair() -> None:
    made = {name.partition(" ")[0].rstrip(",") for name in PAIRS}
    assert made == {"same_rule", "invariant", "finite_steps", "bounded_update", "after_steps"}


def test_numbers_of_the_same_name_are_not_one() -> None:
    slow = optimizers.lion(lr=0.25)
    verdict = claims.same_rule(optimizers.lion(lr=0.5), slow).verify()
    assert verdict.refuted
    assert verdict.reason.startswith("the parameter after the step is the same, lion is ")


def test_a_schedule_inside_is_its_expression() -> None:
    scheduled = optimizers.lion(lr=schedules.linear(0, 1, 4))
    bounded = claims.bounded_update(scheduled, sp.Min(t, 4) / 4)
    assert bounded.verify().proved
    assert claims.bounded_update(scheduled, sp.Min(t, 5) / 5).verify().refuted


def test_definitions_are_read() -> None:
    from closedform.language.symbols import local

    named = UpdateRule(
        "named",
        PARAM - LR * local("step"),
        {"mean": State(local("step"))},
        {"lr": 0.1, "momentum": 0.9},
        definitions={"scaled": MU * state("mean"), "step": local("scaled") + GRAD},
    )
    assert claims.same_rule(PLAIN, named).verify().proved


def test_sentences() -> None:
    assert _same().sentence == "adamw and adam make the same steps"
    where = claims.same_rule(PLAIN, _late(), where=t < 5)
    assert where.sentence == "plain and late make the same steps from the same states where t < 5"
    invariant = claims.invariant(ADAM, SQUARE)
    assert invariant.sentence == "state.exp_avg_sq >= 0 before every step"
    assert claims.bounded_update(LION, LR).sentence == (
        "a step changes the parameter by at most lr"
    )
    assert claims.after_steps(PLAIN, {"mean": GRAD * t}).sentence == (
        "after t steps with one gradient mean = grad*t"
    )


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "no rule": (
        lambda: claims.invariant(3, SQUARE),  # type: ignore[arg-type]
        "this claim is about an UpdateRule, got int: make one with closedform.UpdateRule or "
        "closedform.optimizers",
    ),
    "open": (
        lambda: claims.invariant(ADAM, SQUARE, open=["beta3"]),
        "'beta3' is not a hyperparameter (rule 'adam'): did you mean 'beta2'?",
    ),
    "open of neither": (
        lambda: _same(open=["rate"]),
        "'rate' is a hyperparameter of neither rule (adamw and adam): known are beta1, beta2, "
        "eps, lr",
    ),
    "state without a meaning": (
        lambda: claims.same_rule(PLAIN, _renamed(PLAIN, {"mean": "average"})),
        "state 'average' of plain has no meaning in plain (same_rule): say with states which "
        "state or expression of the first rule it is",
    ),
    "state of no name": (
        lambda: claims.same_rule(PLAIN, HEAVY, states={"buffer": "mean"}),
        "'buffer' is not a state (rule 'sgd'): did you mean 'momentum_buffer'?",
    ),
    "no such state after steps": (
        lambda: claims.after_steps(PLAIN, {"maen": 1}),
        "'maen' is not a state (rule 'plain'): did you mean 'mean'?",
    ),
    "a rule without states": (
        lambda: claims.after_steps(UpdateRule("bare", PARAM - GRAD), {"mean": 0}),
        "'mean' is not a state (rule 'bare'): it has none",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_claim_is_refused(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(VerificationError) as caught:
        make()
    assert str(caught.value) == message


# --- the standard claims -------------------------------------------------------------------------

STANDARD: dict[str, tuple[UpdateRule, list[str]]] = {
    "sgd": (HEAVY, ["every step is finite"]),
    "adam": (ADAM, ["state.exp_avg_sq >= 0 before every step", "every step is finite"]),
    "amsgrad": (
        optimizers.adam(amsgrad=True),
        [
            "(state.exp_avg_sq >= 0) & (state.max_exp_avg_sq >= 0) before every step",
            "every step is finite",
        ],
    ),
    "lion": (LION, ["every step is finite"]),
    "with a schedule": (
        optimizers.adamw(lr=schedules.linear(0, 1, 4)),
        ["state.exp_avg_sq >= 0 before every step", "every step is finite"],
    ),
}


@pytest.mark.parametrize("name", STANDARD)
def test_standard_claims_of_a_rule(name: str) -> None:
    rule, sentences = STANDARD[name]
    report = rule.verify()
    assert [finding.claim.sentence for finding in report] == sentences
    assert report.all_proved


def test_a_rule_that_divides_by_zero_is_refuted() -> None:
    report = verify_rule(optimizers.adam(eps=0))
    assert [finding.claim.name for finding in report.refuted] == ["finite"]
    assert report.exit_code() == 1


def test_a_schedule_inside_is_not_below_0() -> None:
    dividing = UpdateRule(
        "dividing", PARAM - GRAD / (1 + LR), {}, {"lr": schedules.linear(0, 1, 4)}
    )
    assert dividing.verify()["finite"].verdict.proved
    assert claims.finite_steps(dividing, open=["lr"]).verify().refuted


def test_functions_of_whole_tensors_are_unknown() -> None:
    (finding,) = optimizers.adafactor().verify()
    assert finding.shown == "UNKNOWN"
    assert "has no meaning to the prover" in finding.detail


@pytest.mark.parametrize("name", ["muon", "shampoo", "kron"])
def test_a_step_too_large_to_read_is_unknown_at_once(name: str) -> None:
    """Each definition reads the last one several times: Shampoo has 3.6e11 nodes without names."""
    (finding,) = getattr(optimizers, name)(1e-3).verify()
    assert finding.shown == "UNKNOWN"
    assert finding.detail.endswith(f"the prover reads at most {LIMITS.step_nodes:,}")


@pytest.mark.sample(every=10)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_rule_of_the_library_is_verified(name: str) -> None:
    report = OPTIMIZERS[name]().verify()
    assert {finding.shown for finding in report} <= {"PROVED", "UNKNOWN"}
    assert all(len(finding.detail) < 1500 for finding in report)


def test_a_function_without_meaning_is_named_in_a_line() -> None:
    (finding,) = optimizers.muon(1e-3, ns_steps=1).verify()
    assert finding.detail.startswith("LikeParam has no meaning to the prover, got LikeParam(")
    assert len(finding.detail) < 300
    assert finding.detail.endswith(" …")


def test_named_claims_replace_the_standard_ones() -> None:
    report = ADAM.verify(claims.invariant(ADAM, state("exp_avg") >= 0))
    assert [finding.shown for finding in report] == ["REFUTED"]
    assert report.subject == "rule 'adam'"


def test_a_difference_at_a_state_that_no_run_reaches_is_unknown() -> None:
    """The sum of squares of a run is not negative: a difference below 0 refutes nothing."""
    tilted = UpdateRule(
        "tilted",
        PARAM - LR * GRAD - LR * sp.Min(state("energy"), 0),
        {"energy": State(state("energy") + GRAD**2)},
        {"lr": 0.1},
    )
    plain = UpdateRule(
        "plain", PARAM - LR * GRAD, {"energy": State(state("energy") + GRAD**2)}, {"lr": 0.1}
    )
    verdict = claims.same_rule(tilted, plain).verify()
    assert verdict.unknown
    assert verdict.reason.startswith("the parameter after the step is the same: false at ")
    assert verdict.reason.endswith(
        ", which no run was found to reach; give invariants= of the states that a run reaches"
    )
    assert claims.same_rule(tilted, plain, invariants=[state("energy") >= 0]).verify().proved
    double = UpdateRule(
        "double", PARAM - 2 * LR * GRAD, {"energy": State(state("energy") + GRAD**2)}, {"lr": 0.1}
    )
    at_start = claims.same_rule(double, plain, where=sp.And(sp.Eq(t, 0), sp.Eq(state("energy"), 0)))
    refuted = at_start.verify()
    assert refuted.refuted
    assert refuted.run is not None
    assert refuted.run.steps == 0


# --- the induction of after_steps ----------------------------------------------------------------

MEANS = {
    "right": GRAD * (1 - MU**t) / (1 - MU),
    "wrong from step 1 on": GRAD * (1 - MU**t) / (1 - MU)
    + sp.Piecewise((0, t < 1), (7 * MU**t, True)),
    "wrong from step 5 on": sp.Piecewise((GRAD * (1 - MU**t) / (1 - MU), t < 5), (0, True)),
    "nothing": 0 * GRAD,
}


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize(
    ("where", "steps"),
    [
        (True, range(9)),
        (t >= 1, range(1, 9)),
        (t >= 6, range(6, 9)),
        (t < 5, range(5)),
        (t < 1, range(1)),
        (sp.Eq(t, 4), range(4, 5)),
        (sp.Eq(FloorMod(t, 2), 0), range(0, 9, 2)),
        ((t < 2) | (t > 5), (0, 1, 6, 7, 8)),
        (GRAD > 1, range(9)),
        ((GRAD > 1) & (t < 5), range(5)),
    ],
    ids=str,
)
def test_after_steps_is_what_a_run_shows(name: str, where: Any, steps: Iterable[int]) -> None:
    """The states of a run with one gradient, at each number of steps that the condition names."""
    claim = claims.after_steps(PLAIN, {"mean": MEANS[name]}, where=where)
    mean, run = sp.Rational(0), []
    values = {MU: sp.Rational(9, 10), GRAD: sp.Integer(2)}
    for _ in range(9):
        run.append(mean)
        mean = values[MU] * mean + values[GRAD]
    is_right = all(MEANS[name].subs({**values, t: step}) == run[step] for step in steps)
    verdict = claim.verify()
    assert not verdict.proved or is_right, verdict
    if is_right and name == "right":
        assert verdict.proved, verdict
    assert not verdict.refuted or not is_right, verdict
    if not is_right and where in (True, t < 5, t < 1, GRAD > 1):
        assert verdict.refuted, verdict
    assert where is True or str(where) in claim.sentence


def test_a_condition_that_never_holds_proves_nothing() -> None:
    verdict = claims.after_steps(PLAIN, {"mean": 0 * GRAD}, where=t < 0).verify()
    assert verdict.refuted
    assert "holds for some number of steps, it is so nowhere" in verdict.reason


@pytest.mark.parametrize(
    "claim",
    [
        lambda: claims.after_steps(PLAIN, {"mean": 0 * GRAD}, assume=[t >= 1]),
        lambda: claims.invariant(PLAIN, state("mean") >= 0, assume=[state("mean") >= 0]),
        lambda: claims.finite_steps(PLAIN, assume=[PARAM > 1]),
        lambda: claims.after_steps(PLAIN, {"mean": 0 * GRAD}, where=state("mean") >= 0),
    ],
)
def test_an_induction_takes_no_condition_on_what_it_steps_through(claim: Any) -> None:
    with pytest.raises(VerificationError, match=r"got (t|state\.mean|param) in"):
        claim()
