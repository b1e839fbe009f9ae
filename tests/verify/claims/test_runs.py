"""Refutations of claims about rules: each is a run, replayed here in other arithmetic."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import sympy as sp

from closedform import claims, optimizers, schedules, transforms
from closedform.errors import VerificationError
from closedform.language import GRAD, PARAM, Schedule, Shared, State, UpdateRule, hyper, state, t
from closedform.language.model import shared
from closedform.language.symbols import local
from closedform.verify.claims.core import Claim
from closedform.verify.terms.verdict import Run, Verdict

LR = hyper("lr")
THIRD = sp.Rational(1, 3)
MEAN = state("mean") * sp.Rational(9, 10) + GRAD / 10


def rule(param: sp.Expr, states: Mapping[str, State] | None = None, /, **values: Any) -> UpdateRule:
    return UpdateRule("drawn", param, states or {}, values)


# --- a replay that shares nothing with the prover ------------------------------------------------


class Replay:
    """Steps of a rule by the numbers of a run, in SymPy's fractions, else with 60 digits."""

    def __init__(self, subject: UpdateRule, run: Run) -> None:
        self.rule, self.run = subject, run
        self.first = run.first
        self.step = 0
        self.carried = {PARAM: self.first["param"]}
        for name, spec in subject.states.items():
            self.carried[state(name)] = self._number(sp.sympify(spec.initial), self.carried)

    def values(self) -> dict[sp.Symbol, Any]:
        """The values of all symbols before the step."""
        inputs = self.run.inputs[min(self.step, len(self.run.inputs) - 1)]
        point = {**self.carried, t: sp.Integer(self.step), GRAD: inputs["grad"]}
        for name, value in self.rule.hyperparameters.items():
            symbol = next(s for s in self._symbols() if s.name == name)
            if value is None:
                point[symbol] = self.first[name]
            else:
                expr = value.bound if isinstance(value, Schedule) else value
                point[symbol] = self._number(expr, point)
        for name, expr in self.rule.definitions.items():
            point[local(name)] = self._number(expr, point)
        return point

    def next_values(self) -> dict[str, Any]:
        """The parameter and the states after the step; None for one without a value."""
        point = self.values()
        return {name: self._number(expr, point) for name, expr in self.rule.expressions().items()}

    def advance(self) -> None:
        following = self.next_values()
        assert None not in following.values(), following
        self.carried = {
            PARAM if name == "param" else state(name): number for name, number in following.items()
        }
        self.step += 1

    def _symbols(self) -> set[sp.Symbol]:
        return {s for expr in self.rule.all_expressions() for s in expr.free_symbols}

    def _number(self, expr: sp.Expr, point: Mapping[sp.Symbol, Any]) -> Any:
        if isinstance(expr, sp.Piecewise):
            for value, condition in expr.args:
                sides = [self._number(side, point) for side in condition.args]
                if condition == sp.true or condition.func(*sides) == sp.true:
                    return self._number(value, point)
            return None
        if expr.is_Symbol:
            return point[expr]
        # Part by part: 0 / sqrt(-1) is 0 in SymPy.
        args = [self._number(arg, point) for arg in expr.args]
        if None in args:
            return None
        value = expr.func(*args) if args else expr
        number = value if value.is_Rational else value.evalf(60)
        return number if number.is_real and number.is_finite else None


def replay_of(subject: UpdateRule, verdict: Verdict) -> Replay:
    """The replay of a refutation, before the step that it is about."""
    assert verdict.refuted
    assert verdict.run is not None
    replay = Replay(subject, verdict.run)
    for _ in range(verdict.run.steps):
        replay.advance()
    point = verdict.counterexample or {}
    for symbol, number in replay.values().items():
        if symbol.name in point:
            assert number == point[symbol.name], symbol
    return replay


# --- rules that are drawn ------------------------------------------------------------------------


def draw_rule(seed: int) -> UpdateRule:
    """A composition of means, squares, maxima and counters, with a divisor and a root."""
    draw = random.Random(seed)
    decay = sp.Rational(draw.choice((1, 9, 99)), draw.choice((2, 10, 100)))
    decay = decay if decay < 1 else sp.Rational(1, 2)
    mean = decay * state("mean") + (1 - decay) * GRAD
    square = decay * state("square") + (1 - decay) * GRAD**2
    states = {
        "mean": State(mean),
        "square": State(square, draw.choice((0, 0, 1))),
        "largest": State(sp.Max(state("largest"), square)),
        "count": State(state("count") + draw.choice((1, 2))),
        "product": State(state("product") * sp.Rational(9, 10), 1),
    }
    inside = draw.choice(
        (
            square,
            square - mean**2,
            state("square") - state("mean") ** 2,
            sp.Max(state("largest"), square),
            square * (1 - state("product")),
            mean + draw.choice((0, 1, 3)),
            3 - state("count"),
            state("square") + state("count") - draw.choice((0, 1)),
        )
    )
    eps = draw.choice((0, sp.Rational(1, 10**8), 1))
    divisor = draw.choice((sp.sqrt(inside) + eps, sp.sqrt(inside + eps), inside + eps))
    step = draw.choice((GRAD, mean, LR * mean, LR * GRAD))
    lr = draw.choice((None, sp.Rational(1, 10), schedules.linear(0, 1, 4)))
    used = PARAM - step / divisor
    values = {"lr": lr} if LR in used.free_symbols else {}
    names = {s.name.removeprefix("state.") for s in used.free_symbols}
    used_states = {
        name: spec
        for name, spec in states.items()
        if name in names or (name == "square" and "largest" in names)
    }
    subject = rule(used, used_states, **values)
    wrap: Callable[[UpdateRule], UpdateRule] = draw.choice(
        (
            lambda subject: subject,
            lambda subject: transforms.clip_by_value(subject, 1),
            lambda subject: transforms.grokfast(subject),
            lambda subject: transforms.lookahead(subject, 2),
            lambda subject: transforms.weight_average(subject, 0.9),
        )
    )
    return wrap(subject)


@pytest.mark.sample(every=40)
@pytest.mark.parametrize("seed", range(120))
def test_a_refuted_standard_claim_is_replayed(seed: int) -> None:
    """No REFUTED is off-run: at the step that the run comes to some value is missing."""
    subject = draw_rule(seed)
    for finding in subject.verify(effort=0.05):
        if finding.verdict.refuted:
            replay = replay_of(subject, finding.verdict)
            if finding.claim.name == "finite":
                assert None in replay.next_values().values(), (seed, finding)


# --- refuted by a run, and only by a run ---------------------------------------------------------

COUNTED = rule(PARAM - GRAD / (state("count") - 3), {"count": State(state("count") + 1)})
MOMENTUM = rule(PARAM - GRAD / (state("mean") - 5), {"mean": State(MEAN)})
# No pattern of gradients comes to this value: the prover finds the gradient before.
ODD = rule(PARAM - GRAD / (state("mean") - sp.Rational(31, 997)), {"mean": State(MEAN)})
FROM_PARAM = rule(
    PARAM - GRAD / (state("mean") - state("first") + THIRD),
    {"mean": State(MEAN), "first": State(state("first"), PARAM)},
)


def with_schedule(peak: Any) -> UpdateRule:
    return rule(PARAM - GRAD / (1 - LR), {}, lr=schedules.linear(0, peak, 4))


REFUTED: dict[str, tuple[UpdateRule, int]] = {
    "at the first step": (optimizers.adam(eps=0), 0),
    "after three steps": (COUNTED, 3),
    "by a gradient that the prover finds": (ODD, 1),
    "by some gradients": (MOMENTUM, 1),
    "from a first parameter": (FROM_PARAM, 0),
    "by the schedule": (with_schedule(2), 2),
}


@pytest.mark.parametrize("name", REFUTED)
def test_a_rule_is_refuted_by_the_run_that_shows_it(name: str) -> None:
    subject, steps = REFUTED[name]
    verdict = subject.verify()["finite"].verdict
    replay = replay_of(subject, verdict)
    assert replay.step == steps
    assert None in replay.next_values().values()
    assert not steps or f", after {steps} step" in verdict.reason


UNKNOWN: dict[str, UpdateRule] = {
    "a schedule that does not come to 1": with_schedule(sp.Rational(1, 2)),
    "a range": replace(rule(PARAM - GRAD / (1 - LR), {}, lr=None), ranges={"lr": (0, 0.5)}),
    "a state that is 0 in each run": rule(
        PARAM - GRAD / (1 - state("zero")), {"zero": State(-state("zero"))}
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_point_that_no_run_reaches_refutes_nothing(name: str) -> None:
    verdict = UNKNOWN[name].verify()["finite"].verdict
    assert verdict.unknown, verdict
    assert ", which no run was found to reach" in verdict.reason
    assert ("give invariants=" in verdict.reason) == ("state" in name)


def test_a_claim_about_a_rule_without_runs_is_not_refuted() -> None:
    claim = claims.finite_steps(optimizers.adam(eps=0))
    assert claim.verify().refuted
    assert replace(claim, runs=None).verify().unknown


def test_an_invariant_that_is_false_leaves_the_claim_open() -> None:
    """Every step of SGD is finite, whatever its momentum buffer is said to be."""
    heavy = optimizers.sgd(0.1, momentum=0.9)
    false = state("momentum_buffer") >= 0
    assert claims.invariant(heavy, false).verify().refuted
    verdict = claims.finite_steps(heavy, invariants=[false]).verify()
    assert verdict.unknown
    assert verdict.reason.startswith("state.momentum_buffer >= 0 is preserved by a step: ")


FOUND: dict[str, tuple[UpdateRule, str]] = {
    "variance": (optimizers.rmsprop(centered=True), "state.square_avg >= state.grad_avg**2"),
    "product": (optimizers.nadam(), "state.mu_product <= 1"),
    "support": (optimizers.ftrl(), "Eq(state.z, 0) | (state.n > 0)"),
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", FOUND)
def test_an_invariant_is_found(name: str) -> None:
    subject, condition = FOUND[name]
    report = subject.verify()
    assert report.all_proved, str(report)
    assert condition in report["invariant"].claim.sentence


def test_rounded_states_are_not_run() -> None:
    """The states of a run are those between steps, which the formula does not round."""
    spec = State(state("count") + 1, 0, stored="bf16")
    rounded = rule(COUNTED.param, {"count": spec})
    assert rounded.verify()["finite"].verdict.unknown


# --- two rules -----------------------------------------------------------------------------------


def shared_size(growth: sp.Expr, first: int = 1, advances: Any = sp.true) -> UpdateRule:
    states = {"size": Shared(shared("size") * growth, first)}
    return UpdateRule("sized", PARAM - GRAD * shared("size"), shared=states, advances=advances)


GROWS = shared_size(sp.Integer(2))
DIFFERENT: dict[str, tuple[Callable[[], Claim], str]] = {
    "a state of the model": (
        lambda: claims.same_rule(GROWS, shared_size(sp.Integer(3))),
        "shared.size after the step is the same",
    ),
    "its first value": (
        lambda: claims.same_rule(GROWS, shared_size(sp.Integer(2), 2)),
        "shared.size begins the same",
    ),
    "the clock": (
        lambda: claims.same_rule(GROWS, shared_size(sp.Integer(2), 1, shared("size") > 4)),
        "both steps count, or neither",
    ),
    "the point of evaluation": (
        lambda: claims.same_rule(GROWS, replace(GROWS, evaluation=PARAM + 1)),
        "the point of evaluation after the step is the same",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_two_rules_have_besides_their_states_is_compared(name: str) -> None:
    make, text = DIFFERENT[name]
    verdict = make().verify()
    assert verdict.refuted, verdict
    assert verdict.reason.startswith(text)
    assert claims.same_rule(GROWS, GROWS).verify().proved


def test_a_state_of_the_model_that_one_rule_has_not_is_named() -> None:
    with pytest.raises(VerificationError) as caught:
        claims.same_rule(optimizers.sgd(0.1), GROWS)
    assert str(caught.value) == (
        "shared.size of sized is not a state of the whole model in sgd (same_rule): compare rules "
        "that have the same states of the whole model"
    )


@pytest.mark.sample(every=15)
@pytest.mark.parametrize("seed", range(60))
def test_two_rules_that_are_refuted_differ_in_the_run(seed: int) -> None:
    """A rule gets another term, which is 0 in all runs for half of the seeds."""
    draw = random.Random(seed)
    states = {"mean": State(MEAN), "square": State(state("square") / 2 + GRAD**2)}
    size = draw.choice((sp.sqrt(states["square"].next) + 1, states["square"].next + 1, 2))
    base = rule(PARAM - draw.choice((GRAD, MEAN)) / size, states)
    terms: list[sp.Expr] = [sp.Min(state("square"), 0), sp.Max(-state("square"), 0)]
    if seed % 2:
        terms = [state("square"), sp.Max(state("square") - 3, 0), GRAD**2 / 7]
    other = replace(base, param=base.param + draw.choice(terms))
    verdict = claims.same_rule(base, other).verify(effort=0.05)
    assert verdict.refuted == bool(seed % 2), verdict
    if verdict.refuted:
        replay = replay_of(base, verdict)
        twin = Replay(other, replay.run)
        twin.carried, twin.step = replay.carried, replay.step
        assert replay.next_values() != twin.next_values()


# --- without effort ------------------------------------------------------------------------------


@pytest.mark.parametrize("effort", [1e-5, 1e-3, 0.02])
def test_an_unproved_invariant_refutes_nothing(effort: float) -> None:
    """Where the invariants are not proved, states that no run reaches leave a claim open."""
    for rule in (optimizers.adamw(), optimizers.rmsprop(centered=True)):
        assert not rule.verify(effort=effort)["finite"].verdict.refuted
    same = claims.same_rule(optimizers.adamw(weight_decay=0), optimizers.adam())
    assert not same.verify(effort=effort).refuted
