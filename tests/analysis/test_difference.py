"""Differences of schedules, recipes and logs, beside a plain count over all updates."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import schedules
from closedform.analysis import difference
from closedform.analysis.difference import curve_values
from closedform.errors import ArgumentError, ConfigError, UnknownNameError
from closedform.recipes import load_recipe
from closedform.recipes.logs import read_log
from closedform.verify.claims import values
from closedform.verify.claims.core import Claim, Goal
from closedform.verify.terms import build
from closedform.verify.terms.verdict import Status

LINEAR = schedules.linear(1, 0, 10)


def counted(one: cf.Schedule, other: cf.Schedule, end: int) -> tuple[int, int, float, float]:
    """First update, update and size of the largest gap, and area, by exact values."""
    gaps = [abs(one.exact(step) - other.exact(step)) for step in range(end)]
    first = next(step for step, gap in enumerate(gaps) if gap != 0)
    floats = [float(gap) for gap in gaps]
    return first, int(np.argmax(floats)), max(floats), sum(floats)


PAIRS = {
    "shapes": (LINEAR, schedules.cosine(1, 0, 10)),
    "lengths": (LINEAR, schedules.linear(1, 0, 12)),
    "at the end": (LINEAR, schedules.linear(1, 0, 9).then(schedules.constant(sp.Rational(1, 100)))),
    "one update": (
        schedules.constant(1),
        cf.Schedule(sp.Piecewise((2, sp.Eq(cf.t, 7)), (1, True)), name="step"),
    ),
    "barely": (LINEAR, LINEAR.scale(1 + sp.Rational(1, 10**12))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_differences_are_those_of_exact_values(name: str) -> None:
    one, other = PAIRS[name]
    first, at, gap, area = counted(one, other, 20)
    found = cf.diff(one, other, until=20)
    assert (found.verdict, found.first_step, found.at) == (Status.REFUTED, first, at)
    # float64: a rounding of the values, 1.1e-16 each.
    assert found.max_gap == pytest.approx(gap, rel=0, abs=2.3e-16)
    assert found.area == pytest.approx(area, rel=0, abs=20 * 2.3e-16)


EQUAL = {
    "the same": (LINEAR, LINEAR, "the expressions are identical"),
    "by another formula": (
        LINEAR,
        cf.Schedule(sp.Max(0, 1 - cf.t / sp.Integer(10))),
        "equal for every update",
    ),
    "for the run alone": (
        LINEAR,
        cf.Schedule(1 - cf.t / sp.Integer(10)),
        "equal for the updates 0 to 9",
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_schedules_are_proved(name: str) -> None:
    one, other, reason = EQUAL[name]
    found = cf.diff(one, other)
    assert (found.verdict, found.first_step, found.max_gap) == (Status.PROVED, None, 0)
    assert found.curves[0].reason == reason


ONE = schedules.constant(1)
WITHOUT_HORIZON = {
    "a step after those that are compared": (
        ONE,
        cf.Schedule(sp.Piecewise((2, sp.Eq(cf.t, 12_345)), (1, True))),
        (Status.REFUTED, 12_345),
    ),
    "a step far away": (
        cf.Schedule(sp.Min(cf.t, 10**30)),
        cf.Schedule(cf.t),
        (Status.REFUTED, 10**30 + 1),
    ),
    "a domain that ends after those": (
        ONE,
        cf.Schedule(1 + 0 * cf.t, domain=(cf.t < 20_000,)),
        (Status.REFUTED, 20_000),
    ),
    "domains that end in two places": (
        cf.Schedule(1 + 0 * cf.t, domain=(cf.t < 30_000,)),
        cf.Schedule(1 + 0 * cf.t, domain=(cf.t < 20_000,)),
        (Status.REFUTED, 20_000),
    ),
    "a difference in the domain after those": (
        cf.Schedule(cf.t, domain=(cf.t < 30_000,)),
        cf.Schedule(sp.Min(cf.t, 20_000), domain=(cf.t < 30_000,)),
        (Status.REFUTED, 20_001),
    ),
    "equal for every update": (
        cf.Schedule(sp.Max(cf.t, 7)),
        cf.Schedule(sp.Piecewise((7, cf.t < 7), (cf.t, True))),
        (Status.PROVED, None),
    ),
    "equal on one domain": (
        cf.Schedule(sp.Max(cf.t, 7), domain=(cf.t < 30_000,)),
        cf.Schedule(sp.Piecewise((7, cf.t < 7), (cf.t, True)), domain=(cf.t < 30_000,)),
        (Status.PROVED, None),
    ),
}


@pytest.mark.parametrize("name", WITHOUT_HORIZON)
def test_without_a_horizon_a_proof_is_for_every_update(name: str) -> None:
    one, other, (verdict, step) = WITHOUT_HORIZON[name]
    for sides in ((one, other), (other, one)):
        found = cf.diff(*sides)
        assert (found.verdict, found.first_step) == (verdict, step), found
        assert str(found)


def test_what_is_proved_of_the_first_updates_is_open_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the prover finds neither a proof for every update nor a counterexample."""
    real = values.equal_to

    def equal_to(*sides: cf.Schedule, where: Any = True) -> Claim:
        claim = real(*sides, where=where)
        goal = Goal("for every update", build.FALSE, is_sufficient=True)
        return replace(claim, goals=(goal,)) if where is True else claim

    monkeypatch.setattr(values, "equal_to", equal_to)
    one, other, _ = WITHOUT_HORIZON["equal for every update"]
    (curve,) = cf.diff(one, other).curves
    assert curve.verdict is Status.UNKNOWN
    assert curve.reason.startswith("equal for the updates 0 to 9,999, open beyond: ")
    assert str(curve).startswith("lr: no difference in 10,000 updates (equal for the updates 0 to")
    assert cf.diff(one, other, until=50).verdict is Status.PROVED


def test_a_difference_below_a_rounding_is_found_by_the_prover() -> None:
    found = cf.diff(LINEAR, LINEAR.scale(1 + sp.Rational(1, 10**30)), until=10)
    assert (found.verdict, found.first_step) == (Status.REFUTED, 0)
    assert found.max_gap == pytest.approx(1e-30)


def test_long_runs_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "ALL_STEPS", 1000)
    one = schedules.constant(1)
    other = cf.Schedule(sp.Piecewise((1, cf.t < 70_001), (2, True)))
    curve = cf.diff(one, other, until=100_000).curves[0]
    assert (curve.first_step, curve.max_gap, curve.is_sampled) == (70_001, 1, True)
    # The trapezoid over the interval with the jump is off by half of an interval, at most.
    assert curve.area == pytest.approx(29_999, abs=500)


def test_a_schedule_that_ends_differs_there() -> None:
    given = {"lr": 1, "sched": {"name": "WarmupHoldPolicy", "warmup_steps": 2}}
    ends = cf.frameworks.schedule("nemo", "WarmupHoldPolicy", given)
    reaches = cf.Schedule(sp.Min(1, (cf.t + 1) / sp.Integer(3)))
    curve = cf.diff(ends, reaches, until=10).curves[0]
    assert (curve.verdict, curve.first_step, curve.until) == (Status.REFUTED, 3, 3)
    assert curve.reason
    assert cf.diff(ends, ends).verdict is Status.PROVED


TRAINER = {"learning_rate": 1e-3, "max_steps": 10, "per_device_train_batch_size": 1}


def test_recipes_are_compared_by_key_and_group() -> None:
    one = load_recipe({**TRAINER, "weight_decay": 0.1})
    other = load_recipe({**TRAINER, "weight_decay": 0.2, "lr_scheduler_type": "cosine"})
    found = cf.diff(one, other)
    verdicts = {(curve.key, curve.group): curve.verdict for curve in found.curves}
    assert verdicts == {
        ("lr", ""): Status.REFUTED,
        ("weight_decay", ""): Status.REFUTED,
        ("lr", "no_decay"): Status.REFUTED,
        ("weight_decay", "no_decay"): Status.PROVED,
    }
    assert (found.at, found.first_step) == (2, 0)
    against = cf.diff(one, LINEAR.scale(sp.Rational(1, 1000)))
    assert against.verdict is Status.PROVED
    assert against.only_in_a == ("weight_decay", "lr of no_decay", "weight_decay of no_decay")


MEGATRON = {
    "lr": 1e-3,
    "train-iters": 10,
    "lr-decay-style": "linear",
    "global-batch-size": 1,
    "weight-decay": 0.1,
}
LEVANTER = {
    "optimizer": {"type": "adam", "learning_rate": 1e-3, "weight_decay": 0.1, "warmup": 0},
    "trainer": {"num_train_steps": 10, "train_batch_size": 1},
}
NANOTRON = {
    "optimizer": {
        "optimizer_factory": {
            "name": "adamW",
            "adam_beta1": 0.9,
            "adam_beta2": 0.95,
            "adam_eps": 1e-8,
        },
        "weight_decay": 0.1,
        "weight_decay_exclude_named_params": [".*bias"],
        "learning_rate_scheduler": {"learning_rate": 1e-3, "lr_warmup_style": "linear"},
    },
    "tokens": {"train_steps": 10},
}
OLMO = {
    "optimizer": {"name": "adamw", "learning_rate": 1e-3, "weight_decay": 0.2},
    "scheduler": {"name": "constant", "t_warmup": 0},
    "max_duration": 10,
}
NO_DECAY_PAIRS = {
    # Both have the group.
    "megatron and transformers": (MEGATRON, "megatron", TRAINER, "transformers", Status.PROVED),
    "nanotron and olmo": (NANOTRON, "nanotron", OLMO, "olmo", Status.PROVED),
    # levanter decays these parameters as all others.
    "levanter and transformers": (LEVANTER, "levanter", TRAINER, "transformers", Status.REFUTED),
}


@pytest.mark.parametrize("pair", NO_DECAY_PAIRS.values(), ids=NO_DECAY_PAIRS)
def test_groups_pair_by_role(pair: tuple[Any, str, Any, str, Status]) -> None:
    first, first_framework, second, second_framework, expected = pair
    sides = load_recipe(first, first_framework), load_recipe(second, second_framework)
    for a, b in (sides, sides[::-1]):
        found = cf.diff(a, b)
        verdicts = {(curve.key, curve.group): curve.verdict for curve in found.curves}
        assert verdicts["weight_decay", "no_decay"] is expected
        assert found.only_in_a == found.only_in_b == ()
        curve = next(one for one in found.curves if one.group == "no_decay")
        assert len(curve_values(a, b, curve)[0]) == 10


def test_norms_are_compared_with_the_parameters_without_decay() -> None:
    solver = {"BASE_LR": 1e-3, "MAX_ITER": 10, "STEPS": [8], "WARMUP_ITERS": 0}
    norms = load_recipe({"SOLVER": solver}, "detectron2")
    found = cf.diff(norms, load_recipe(TRAINER))
    verdicts = {(curve.key, curve.group): curve.verdict for curve in found.curves}
    assert verdicts["weight_decay", "norm"] is Status.PROVED  # 0 in both
    # Biases are in the default group of detectron2, and without weight decay in transformers.
    assert found.only_in_b == ("lr of no_decay", "weight_decay of no_decay")


def test_values_for_a_plot() -> None:
    other = schedules.cosine(1, 0, 10)
    found = cf.diff(LINEAR, other, until=10)
    steps, ours, theirs = curve_values(LINEAR, other, found.curves[0])
    assert list(steps) == list(range(10))
    assert (ours[5], theirs[5]) == (0.5, pytest.approx(0.5))


def test_no_key_in_common_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"until must be an integer of at least 1 .*, got int 0"
    ):
        cf.diff(LINEAR, LINEAR, until=0)
    recipe = load_recipe(TRAINER)
    group = recipe.param_groups[0]
    object.__setattr__(group, "schedules", {"momentum": LINEAR})
    with pytest.raises(UnknownNameError, match=r"no key in common: momentum, .* and lr$"):
        cf.diff(recipe, LINEAR)


# --- logs ----------------------------------------------------------------------------------------

WARMUP = schedules.linear(0, sp.Rational(1, 3000), 7)


def log_of(text: str, name: str, folder: Path, **more: Any) -> Any:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_log(path, **more)


FORMATS: dict[str, Callable[[float], str]] = {
    "repr": repr,
    "four digits": lambda value: f"{value:.4g}",
    "scientific": lambda value: f"{value:.3e}",
    "fixed": lambda value: f"{value:.7f}",
    "rounded": lambda value: repr(round(value, 8)),
    "float32": lambda value: repr(float(np.float32(value))),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_log_agrees_within_its_digits(form: str, suffix: str, tmp_path: Path) -> None:
    values = [FORMATS[form](float(WARMUP(step))) for step in range(10)]
    if suffix == "csv":
        text = "loss,step,lr\n" + "".join(f"1.0,{i},{value}\n" for i, value in enumerate(values))
    else:
        text = "".join(
            f'{{"step": {i}, "learning_rate": {value}}}\n' for i, value in enumerate(values)
        )
    log = log_of(text, f"log.{suffix}", tmp_path)
    found = cf.diff(WARMUP, log)
    assert found.verdict is Status.UNKNOWN
    assert found.curves[0].reason == "equal within the printed digits at 10 logged updates"
    # 0.1 %: more than the last of four digits, less than a whole unit of the first three.
    other = cf.diff(WARMUP.scale(sp.Rational(1002, 1000)), log)
    assert other.verdict is Status.REFUTED
    assert other.first_step is not None
    assert other.first_step <= 7


def test_a_shifted_log_is_recognized(tmp_path: Path) -> None:
    rows = [{"step": step + 1, "lr": float(WARMUP(step))} for step in range(10)]
    text = json.dumps({"log_history": [*rows, {"step": 10, "eval_loss": 3}]})
    log = log_of(text, "state.json", tmp_path)
    found = cf.diff(WARMUP, log)
    assert (found.verdict, found.first_step) == (Status.UNKNOWN, None)
    assert found.curves[0].reason.endswith("at 10 logged updates, read with an offset of 1")
    log = log_of(text, "state.json", tmp_path, offset=0)
    found = cf.diff(WARMUP, log)
    assert (found.verdict, found.first_step) == (Status.REFUTED, 1)
    assert found.curves[0].reason == "the log agrees with an offset of 1"
    log = log_of(text, "state.json", tmp_path, offset=1)
    assert cf.diff(WARMUP, log).verdict is Status.UNKNOWN
    assert cf.diff(log, log).first_step is None


BAD_LOGS = {
    "a,b\n1,2\n": "a log must have a step and a learning rate, got the columns a, b",
    "": "the log has no rows",
    "{": "this is not a log",
}


@pytest.mark.parametrize("text", BAD_LOGS)
def test_log_is_refused(text: str, tmp_path: Path) -> None:
    name = "log.jsonl" if text == "{" else "log.csv"
    with pytest.raises(ConfigError, match=BAD_LOGS[text]):
        log_of(text, name, tmp_path)


def test_differences_are_printed_as_sentences() -> None:
    shifted = LINEAR.then(LINEAR)
    assert str(cf.diff(LINEAR, shifted, until=20)) == (
        "lr: differs from update 10, 0.0 and 1.0; largest gap 1 at update 10"
    )
    assert str(cf.diff(LINEAR, LINEAR, until=20)).startswith("lr: PROVED equal")
    logged = difference.CurveDifference("lr", "bias", Status.UNKNOWN, 2000, reason="sampled")
    found = difference.Difference((logged,), only_in_b=("beta1", "weight_decay"))
    assert str(found) == (
        "lr of bias: no difference in 2,000 updates (sampled)\n"
        "only the second one has beta1, weight_decay"
    )
