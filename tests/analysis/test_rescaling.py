"""Recipes at another batch size, number of tokens or width, and the invariants that are proved."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.analysis.profile import warmup_length
from closedform.analysis.rescaling import INVARIANTS, Rescaled, dilate, rescale
from closedform.analysis.rescaling import rescale as rescaling
from closedform.analysis.rescaling.change import Change
from closedform.analysis.rescaling.clock import RescaledClock, between_updates
from closedform.errors import ArgumentError, ClosedFormError, DomainError
from closedform.language import Schedule, t
from closedform.recipes import load_recipe
from closedform.recipes.recipe import Recipe, Role, recipe_of
from closedform.schedules.examples import EXAMPLES
from closedform.verify.terms.verdict import Status

MEGATRON = {
    "lr": 1e-3,
    "min-lr": 1e-4,
    "train-iters": 1000,
    "lr-warmup-iters": 100,
    "lr-decay-style": "cosine",
    "weight-decay": 0.1,
}
RECIPE = load_recipe(MEGATRON, framework="megatron", facts={"global_batch_size": 8})
SCHEDULES = {name: entry for name, entry in EXAMPLES.items() if name != "reduce_on_plateau"}

CHANGES: Mapping[str, dict[str, Any]] = {
    "a batch four times as large": {"batch": 4, "rule": "sqrt"},
    "ten times the tokens": {"batch": 4, "tokens": 10, "rule": "linear"},
    "a longer run of half batches": {"batch": Fraction(1, 2), "tokens": 3, "rule": "none"},
    "a shorter run": {"tokens": Fraction(1, 3)},
}
# The end of the rise of the first three lies between milestones; the others rise for longer than
# the shorter run.
NO_WARMUP = {"cyclic", "function", "noam"}
TOO_SHORT = {"geometric", "log_warmup", "quadratic_warmup", "scale"}


def recipe(schedule: Schedule, total: int | None = 100) -> Recipe:
    return recipe_of(schedule, "test", total)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("change", CHANGES)
def test_the_invariants_of_every_schedule_are_proved_or_refused_by_name(
    name: str, change: str
) -> None:
    schedule = SCHEDULES[name].make()
    assert isinstance(schedule, Schedule)
    options = CHANGES[change]
    run = recipe(schedule, SCHEDULES[name].steps)
    changes_tokens = "tokens" in options
    is_refused = (name in NO_WARMUP and changes_tokens) or (
        name in TOO_SHORT and options.get("tokens") == Fraction(1, 3)
    )
    if is_refused:
        with pytest.raises(DomainError, match="the invariant 'warmup_tokens' cannot be kept"):
            run.rescale(**options)
        options = {**options, "keep": ["shape", "batch_rule"]}
    rescaled = run.rescale(**options)
    assert {entry.status for entry in rescaled.invariances} == {Status.PROVED}
    names = {entry.invariant for entry in rescaled.invariances}
    assert {"shape", "batch_rule"} <= names
    if not is_refused and not changes_tokens:
        assert "warmup_tokens" in names
        at_same_tokens(schedule, rescaled)


def at_same_tokens(schedule: Schedule, rescaled: Rescaled) -> None:
    """The values of float64 at whole batches: an update takes four of the old ones."""
    steps = np.arange(20)
    expected = 2 * np.asarray(schedule(4 * steps))
    assert np.allclose(rescaled.recipe.schedule()(steps), expected, rtol=1e-12, atol=1e-15)


def test_the_warmup_keeps_its_tokens_and_the_rest_its_shape() -> None:
    rescaled = RECIPE.rescale(batch=4, tokens=10, rule="sqrt")
    new, old = rescaled.recipe.schedule(), RECIPE.schedule()
    assert rescaled.recipe.horizon == 2500
    assert rescaled.warmup == (100, 25)
    assert [new.exact(step) for step in range(26)] == [
        2 * old.exact(4 * step) for step in range(26)
    ]
    # 2,475 updates after the warmup stand for 900: 11 for 4.
    assert [new.exact(25 + 11 * step) for step in range(0, 226, 45)] == [
        2 * old.exact(100 + 4 * step) for step in range(0, 226, 45)
    ]
    assert new.exact(2500) == 2 * old.exact(1000)
    assert rescaled.recipe.facts.global_batch_size == 32
    assert rescaled.recipe.schedule("weight_decay").exact(7) == sp.Rational(1, 5)
    assert rescaled.recipe.optimizer().hyperparameters["weight_decay"].exact(0) == sp.Rational(1, 5)


def test_without_the_warmup_the_whole_run_is_stretched() -> None:
    rescaled = RECIPE.rescale(tokens=2, keep=["shape", "batch_rule"])
    assert rescaled.warmup is None
    new, old = rescaled.recipe.schedule(), RECIPE.schedule()
    assert all(new.exact(2 * step) == old.exact(step) for step in (0, 50, 100, 101, 700, 1000))


def test_a_rate_that_jumps_at_first_has_no_warmup() -> None:
    """WarmAndExpDecayLRSchedule of speechbrain begins at the peak, falls to 0 and rises."""
    decay = sp.Min(sp.Rational(1, 1250), 20 ** ((25_001 - t) / sp.Integer(65_000)) / 1250)
    rate = sp.Piecewise(
        (sp.Rational(1, 1250), t < 1), ((t - 1) / 31_250_000, t < 25_001), (decay, True)
    )
    rescaled = recipe(Schedule(rate), 100_000).rescale(batch=4, rule="sqrt")
    assert rescaled.warmup is None
    assert {entry.status for entry in rescaled.invariances} == {Status.PROVED}


def test_a_horizon_says_the_tokens() -> None:
    by_horizon = RECIPE.rescale(batch=2, horizon=2000, rule="none")
    assert by_horizon.factors.tokens == 4
    assert (
        by_horizon.recipe.schedule()
        == RECIPE.rescale(batch=2, tokens=4, rule="none").recipe.schedule()
    )


def test_the_written_config_of_the_framework_is_exact() -> None:
    for options in ({"batch": 4, "tokens": 10, "rule": "sqrt"}, {"batch": 2, "rule": "linear"}):
        rescaled = RECIPE.rescale(**options)  # type: ignore[arg-type]
        written = cf.write_recipe(rescaled.recipe, "megatron")
        assert written.verdict.value == "exact", written.why
        assert not written.left_out


@pytest.mark.parametrize("offset", [0, 1])
def test_the_clock_of_the_framework_counts(offset: int) -> None:
    """torchtitan takes the value after the update is counted: warmup 20 becomes warmup 5."""
    clock = replace(RECIPE.clock, offset=offset)
    late = cf.schedules.trapezoidal(1, 0, 100, warmup=20, decay=40)
    run = replace(recipe(late.shift(offset)), clock=clock)
    rescaled = run.rescale(batch=4, rule="none")
    expected = cf.schedules.trapezoidal(1, 0, 25, warmup=5, decay=10).shift(offset)
    new = rescaled.recipe.schedule()
    assert all(new.exact(step) == expected.exact(step) for step in range(30))


def test_moments_keep_their_half_life() -> None:
    rescaled = RECIPE.rescale(batch=4, rule="none", keep=["shape", "moment_tokens"])
    rule = rescaled.recipe.optimizer()
    assert rule.hyperparameters["beta1"] == sp.Rational(9, 10) ** 4
    assert rule.hyperparameters["beta2"] == sp.Rational(999, 1000) ** 4
    curves = {entry.curve for entry in rescaled.invariances if entry.invariant == "moment_tokens"}
    assert {"beta1", "beta2"} <= curves


def test_the_rule_of_malladi_changes_moments_and_eps() -> None:
    rule = RECIPE.rescale(batch=4, rule="sde").recipe.optimizer()
    assert rule.hyperparameters["beta1"] == sp.Rational(6, 10)
    assert rule.hyperparameters["beta2"] == sp.Rational(996, 1000)
    assert rule.hyperparameters["eps"] == sp.Rational(1, 2 * 10**8)


def test_the_critical_batch_size_decides() -> None:
    rescaled = RECIPE.rescale(batch=4, rule="critical", critical_batch=32)
    assert rescaled.rate == sp.Rational(5, 2)
    assert "batch size 8, critical 32: 5 of the fewest updates, 1.25 of" in str(rescaled)
    assert "batch size 32, critical 32: 2 of the fewest updates, 2 of" in str(rescaled)


def test_widths_change_hidden_weights_only() -> None:
    rescaled = RECIPE.rescale(width=4)
    groups = {group.role: group for group in rescaled.recipe.param_groups}
    old = RECIPE.schedule()
    assert groups[Role.DEFAULT].schedules["lr"].exact(500) == old.exact(500) / 4
    assert groups[Role.DEFAULT].schedules["weight_decay"].exact(0) == sp.Rational(4, 10)
    for role in (Role.NO_DECAY, Role.EMBEDDING_AND_OUTPUT):
        assert groups[role].schedules["lr"].exact(500) == old.exact(500)
    assert groups[Role.EMBEDDING_AND_OUTPUT].schedules["weight_decay"].exact(0) == sp.Rational(
        1, 10
    )


def test_the_timescale_is_of_the_run_where_it_is_asked_for() -> None:
    keep = ["warmup_tokens", "shape", "timescale_run"]
    rescaled = RECIPE.rescale(tokens=10, keep=keep)
    assert rescaled.recipe.schedule("weight_decay").exact(0) == sp.Rational(1, 100)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"batch": 2}, "a rule is needed for another batch size"),
    ({"batch": 0, "rule": "none"}, "batch must be a rational number above 0, got 0"),
    ({"batch": 2, "rule": "cubic"}, "none, linear, sqrt, sde, critical, got 'cubic'"),
    ({"keep": ["warmup"]}, "there is no invariant 'warmup'"),
    ({"tokens": 2, "horizon": 10}, "one of tokens and horizon must be given"),
    ({"batch": 2, "rule": "critical"}, "missing critical_batch"),
    ({"batch": Fraction(1, 3), "rule": "none"}, "global_batch_size must be a whole number, got 8"),
    (
        {"batch": 4, "rule": "sqrt", "keep": ["area_per_token"]},
        "'area_per_token' cannot be kept: the rate is multiplied by 2 and the batch size by 4",
    ),
    (
        {"batch": 4, "tokens": 10, "rule": "linear", "keep": ["warmup_tokens", "area_per_token"]},
        "'area_per_token' cannot be kept: a warmup of the same tokens is another part of the run",
    ),
    (
        {"tokens": 2, "keep": ["timescale_tokens", "timescale_run"]},
        "'timescale_run' cannot be kept: it and 'timescale_tokens' exclude each other",
    ),
    (
        {"batch": 16, "rule": "sde"},
        r"'sde_moments' cannot be kept: beta1 would be 1 - 16 \(1 - 9/10",
    ),
    ({"tokens": Fraction(1, 10)}, "'warmup_tokens' cannot be kept: the warmup of 100 updates"),
    ({"keep": ["critical_batch"]}, "'critical_batch' cannot be kept: it needs critical_batch"),
    ({"keep": ["mup"]}, "'mup' cannot be kept: the width does not change"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        RECIPE.rescale(**options)


def test_a_run_without_a_horizon_has_no_tokens() -> None:
    run = recipe(cf.schedules.linear(0, 1, 10), None)
    with pytest.raises(ArgumentError, match="the recipe has no horizon"):
        run.rescale(tokens=2)
    assert run.rescale(batch=2, rule="none").recipe.horizon is None


def test_a_schedule_without_an_optimizer_has_no_moments() -> None:
    with pytest.raises(
        DomainError, match="'moment_tokens' cannot be kept: the rule of 'not named'"
    ):
        recipe(cf.schedules.linear(0, 1, 10)).rescale(batch=2, rule="none", keep=["moment_tokens"])


# --- faults ---------------------------------------------------------------------------------------


def planted(invariant: str, change: Callable[[Recipe], Recipe]) -> Status:
    """The worst verdict of an invariant whose rescaled recipe is changed afterwards."""
    captured: list[Change] = []
    original = INVARIANTS[invariant].claims

    def claims(entry: Change) -> Any:
        captured.append(entry)
        return original(entry)

    table = dict(INVARIANTS) | {invariant: replace(INVARIANTS[invariant], claims=claims)}
    module = rescaling.__globals__
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module, "INVARIANTS", table)
        rescale(RECIPE, batch=4, tokens=10, rule="sqrt")
    faulty = replace(captured[0], after=change(captured[0].after))
    verdicts = [claim.verify().status for _, claim in original(faulty)]
    return next((status for status in verdicts if status is not Status.PROVED), Status.PROVED)


def with_curve(run: Recipe, key: str, change: Callable[[Schedule], Schedule]) -> Recipe:
    first = run.param_groups[0]
    schedules = {**first.schedules, key: change(first.schedules[key])}
    return replace(run, param_groups=(replace(first, schedules=schedules), *run.param_groups[1:]))


FAULTS: list[tuple[str, str, Callable[[Schedule], Schedule]]] = [
    ("warmup_tokens", "lr", lambda lr: lr.shift(1)),
    ("warmup_tokens", "lr", lambda lr: lr.scale(1.001)),
    ("shape", "lr", lambda lr: lr.splice(700, lr.scale(0.5))),
    ("batch_rule", "lr", lambda lr: lr.scale(2)),
    ("timescale_tokens", "weight_decay", lambda decay: decay.scale(2)),
]


@pytest.mark.parametrize(("invariant", "key", "fault"), FAULTS)
def test_a_fault_refutes_its_invariant(
    invariant: str, key: str, fault: Callable[[Schedule], Schedule]
) -> None:
    assert planted(invariant, lambda run: run) is Status.PROVED
    assert planted(invariant, lambda run: with_curve(run, key, fault)) is Status.REFUTED


# --- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "end"), [(t < 9, 8), (t <= 8, 8), (t < 8, 8), (t <= sp.Rational(17, 2), 8)]
)
def test_a_branch_ends_where_the_curve_does_not_jump(condition: sp.Basic, end: int) -> None:
    rise = Schedule(sp.Piecewise((t / 8, condition), (2 - t / 8, True)))
    formula = between_updates(rise)
    assert formula == sp.Piecewise((t / 8, t < end), (2 - t / 8, True)) or (
        formula == sp.Piecewise((t / 8, t <= end), (2 - t / 8, True))
    )
    peak = dilate(rise, sp.S.Zero, sp.Rational(2, 5))
    assert max(peak.subs(t, step) for step in range(60)) == 1


def test_a_jump_stays_where_it_is_written() -> None:
    steps = cf.schedules.piecewise_constant([1, 2, 3], [4, 9])
    assert between_updates(steps) == steps.bound


@pytest.mark.parametrize(
    ("schedule", "length"),
    [
        (cf.schedules.linear(1, 0, 10), 0),
        (cf.schedules.linear(0, 1, 10), 10),
        (cf.schedules.one_cycle(0.04, 1, 0, 100), 29),
        (cf.schedules.linear(0, 1, 2000).then(cf.schedules.cosine(1, 0, 8000)), 2000),
        (cf.schedules.constant(1), 0),
        # The first two values are equal, as those of a warmup along log(t).
        (Schedule(sp.Piecewise((0, t < 2), (t, t < 10), (10, True)), name="late"), 10),
        # A warmup by epochs of 10 updates.
        (Schedule(sp.Piecewise((sp.floor(t / 10), t < 50), (5, True)), name="by epochs"), 50),
        (cf.schedules.piecewise_constant([1, 3, 2], [4, 9]), 4),
    ],
)
def test_the_warmup_is_the_first_rise(schedule: Schedule, length: int) -> None:
    assert warmup_length(schedule, 10_000) == length


def test_the_clock_maps_lengths_and_last_updates() -> None:
    clock = RescaledClock(sp.Integer(4), sp.Rational(1, 2), sp.Integer(20), 0)
    assert [clock.new_length(sp.Integer(n)) for n in (10, 20, 30)] == [3, 5, 25]
    assert [clock.last_step(n) for n in (10, 20, 30)] == [2, 5, 25]


def test_a_domain_goes_with_its_curve() -> None:
    domain = (t < 100,)
    declared = Schedule(sp.Integer(1) / (t + 1), domain=domain)
    assert recipe(declared).rescale(batch=2, rule="none").recipe.schedule().last_step == 49
