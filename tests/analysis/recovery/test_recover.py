"""Schedules from logs: simple numbers, forms of the library, files, and logs without a schedule."""

import csv
import inspect
import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import schedules
from closedform.analysis import recovery
from closedform.analysis.numeric import CompiledCurve, degree, values_of
from closedform.analysis.recovery import compositions, recover
from closedform.analysis.recovery.fit import Fits, Problem
from closedform.analysis.recovery.marks import Points, kinks, linear_prefix
from closedform.analysis.recovery.simplest import candidates, digits
from closedform.analysis.recovery.structures import NOT_RECOVERED, forms, structure
from closedform.errors import ArgumentError, ClosedFormError, ConfigError, UnknownNameError
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from tests.analysis.recovery.draws import (
    ARGUMENTS,
    COMPOSITIONS,
    NOT_DRAWN,
    Drawer,
    draw,
    is_proved_on_log,
    is_right,
)
from tests.support.commands import CliRunner


def logged(schedule: Schedule, steps: range, count: int = 6) -> dict[int, float]:
    return {step: float(f"{schedule(step):.{count}g}") for step in steps}


# One cheap draw of each kind of schedule: compare_recover.py has 20 of all.
SAMPLE = ["constant", "cosine", "linear", "multi_step", "polynomial", "step_decay"]


@pytest.mark.parametrize("name", SAMPLE)
def test_drawn_schedules_are_recovered(name: str) -> None:
    drawn = draw(name, 0)
    found = recover(drawn.logged())
    assert is_right(drawn, found.schedule), found.call
    assert found.precisions <= 1 + 1e-9


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted({*ARGUMENTS, *COMPOSITIONS}))
def test_a_draw_of_each_schedule_is_recovered(name: str) -> None:
    drawn = draw(name, 1)
    found = recover(drawn.logged(), digits=6).schedule
    assert is_right(drawn, found) or is_proved_on_log(drawn, found)


def test_a_log_with_gaps_that_begins_late_and_ends_early() -> None:
    lr = schedules.cosine(3e-4, 3e-5, 2000)
    values = logged(lr, range(300, 1500, 50))
    del values[800]
    assert recover(values).call == "cosine(start=0.0003, end=3e-05, steps=2000)"


def test_a_warmup_in_a_log_of_every_tenth_update() -> None:
    lr = schedules.linear(0, 6e-4, 150).then(schedules.cosine(6e-4, 6e-5, 1850))
    found = recover(logged(lr, range(0, 2100, 10)))
    assert found.schedule is not None
    assert cf.diff(found.schedule, lr, until=2500).max_gap == 0


def test_fewer_digits_are_enough_and_are_given() -> None:
    lr = schedules.linear(0.01, 0.001, 333)
    assert recover(logged(lr, range(400), 4)).call == "linear(start=0.01, end=0.001, steps=333)"
    exact = {step: float(lr(step)) + 1e-7 * math.sin(step) for step in range(400)}
    assert recover(exact, digits=3).call == "linear(start=0.01, end=0.001, steps=333)"


@pytest.mark.parametrize("warmup", [0, 2, 3])
@pytest.mark.parametrize("milestones", [(4,), (5, 7)])
def test_numbers_of_one_digit_are_not_values_rounded_to_one(
    warmup: int, milestones: tuple[int, ...]
) -> None:
    steps = schedules.multi_step(0.1, gamma=0.1, milestones=milestones)
    lr = schedules.linear(0, 0.1, warmup).then(steps) if warmup else steps
    values = {step: round(float(lr(step)), 12) for step in range(16)}
    short = {step: value for step, value in values.items() if len(f"{value:g}") < 7}
    schedule = recover(short).schedule
    assert schedule is not None
    assert all(math.isclose(schedule(step), value) for step, value in short.items())


@pytest.mark.parametrize("count", [300, 30_000])
@pytest.mark.parametrize(("first", "second"), [(0.3, 0.6), (0.45, 0.7)])
@pytest.mark.parametrize("peak", [0.02, 1e-3])
def test_levels_of_one_digit_in_a_csv_file(
    peak: float, first: float, second: float, count: int, tmp_path: Path
) -> None:
    milestones = [int(first * count), int(second * count)]
    lr = schedules.multi_step(peak, 0.1, milestones)
    path = tmp_path / "log.csv"
    values = lr(np.arange(count))
    path.write_text("step,lr\n" + "".join(f"{u},{v:.6g}\n" for u, v in enumerate(values)))
    recovered = recover(path)
    assert recovered.schedule is not None
    assert cf.diff(recovered.schedule, lr, until=count).first_step is None
    assert recovered.call.startswith(("multi_step(", "step_decay("))


def test_a_log_that_no_schedule_reproduces(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = {step: float(f"{value:.6g}") for step, value in enumerate(random.random(9))}
    found = recover(values)
    assert found.schedule is None
    assert found.residual == math.inf
    path = tmp_path / "log.jsonl"
    rows = [json.dumps({"step": step, "lr": value}) for step, value in values.items()]
    path.write_text("\n".join(rows), encoding="utf-8")
    result = CliRunner().invoke(["recover", str(path)])
    assert result.exit_code == 1
    assert result.stdout == "no schedule of the library reproduces the 9 values\n"


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    lr = schedules.linear(0, 1e-3, 50)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "lr"])
        rows.writerows((step + 1, f"{lr(step):.6g}") for step in range(80))
    result = CliRunner().invoke(["recover", str(path), "--log-offset", "1"])
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert "transformers:constant_with_warmup(learning_rate=0.001, warmup_steps=50): repr" in (
        result.stderr
    )
    assert ": lost: needs " in result.stderr
    assert first == "linear(start=0, end=0.001, steps=50)"
    assert second.startswith("reproduces 80 values, updates 0 to 79; largest distance ")
    found = json.loads(CliRunner().invoke(["recover", str(path), "--json"]).stdout)
    assert (found["points"], found["first"], found["last"]) == (80, 0, 79)
    assert found["offset"] == 1
    assert found["candidates"][0]["is_right"]


def test_refused_logs(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="at least 3 values, got 2"):
        recover({0: 1.0, 1: 0.5})
    with pytest.raises(ArgumentError, match="digits must be from 1 to 17, got 18"):
        recover({0: 1.0}, digits=18)
    path = tmp_path / "log.csv"
    path.write_text("step,lr\n0,1\n1,1\n2,1\n", encoding="utf-8")
    with pytest.raises(UnknownNameError, match="the log has no values of 'momentum'"):
        recover(path, key="momentum")
    with pytest.raises(ConfigError, match="there is no such file"):
        recover(tmp_path / "missing.csv")


def test_every_schedule_of_the_library_has_forms_or_a_reason() -> None:
    names = {form.name for form in forms()}
    assert names | set(NOT_RECOVERED) == set(schedules.__all__)
    assert not names & set(NOT_RECOVERED)
    assert {*ARGUMENTS, *COMPOSITIONS, *NOT_DRAWN} >= set(schedules.__all__)


@pytest.mark.parametrize("name", sorted({form.name for form in forms()}))
def test_structures_are_the_schedules(name: str) -> None:
    """The program of a structure has the values of the schedule that it makes."""
    form = next(form for form in forms() if form.name == name and structure(form) is not None)
    made = structure(form)
    assert made is not None
    given = ARGUMENTS[name](Drawer(f"{name} structure")) if name in ARGUMENTS else {}
    chosen = {one.name: given[one.name] for one in made.parameters if one.name in given}
    assert len(chosen) == len(made.parameters)
    schedule = made.make(**chosen, **made.fixed_arguments)
    steps = np.arange(0, 300)
    symbols = {one.symbol: np.array([[float(chosen[one.name])]]) for one in made.parameters}
    found = made.program(is_projected=False).columns(symbols, steps.astype(float))[0]
    expected = np.asarray(schedule(steps), dtype=np.float64)
    assert np.allclose(np.broadcast_to(found, (1, 300))[0], expected, rtol=1e-11, atol=1e-15)


def test_simple_numbers() -> None:
    assert [str(n) for n in candidates(0.099998, is_integer=False)[:2]] == ["0", "1/10"]
    assert Fraction(1, 3) in candidates(0.333333, is_integer=False)
    assert candidates(71525.6, is_integer=True)[-1].denominator == 1
    assert candidates(math.inf, is_integer=False) == []
    assert [digits(Fraction(n)) for n in ("0.00030", "71526", "2/3")] == [1, 5, 3]


def test_linear_prefix() -> None:
    steps = np.arange(40.0)
    values = np.minimum(steps / 25, 1.0)
    points = Points(steps, values, np.full(40, 1e-9))
    assert linear_prefix(points) == 26


def test_a_coarse_kink_beside_a_fine_one_is_left_out() -> None:
    steps = np.arange(120.0)
    values = np.where(steps < 81, steps / 81, 1 - (steps - 81) / 39)
    assert kinks(Points(steps, values, np.full(120, 1e-9))) == [81]


def test_a_least_square_is_close_though_one_residual_is_above_1() -> None:
    residuals = np.array([[0.1, -1.4, 0.3], [1.0, 1.1, -1.2], [4.5, 0.0, 0.0]])
    fits = Fits({}, residuals)
    assert [fits.is_close(index) for index in range(3)] == [True, False, False]


def test_rounding_does_not_leave_a_power_without_a_value() -> None:
    """22 * float(1/479) - float(22/479) is below 0."""
    lr = schedules.cosine_k_decay(0.03, 0, 501, 0.5, warmup=22)
    assert np.all(np.isfinite(values_of(lr.bound, np.arange(600.0))))


def test_two_levels_are_two_values_where_their_ratio_is_not_simple() -> None:
    lr = schedules.piecewise_constant([0.00068, 0.05], [324])
    found = recover(logged(lr, range(400)), digits=6)
    assert found.call == "piecewise_constant(values=[0.00068, 0.05], milestones=[324])"


def test_many_arguments_are_found_by_the_steps_at_which_the_form_changes() -> None:
    drawn = draw("tri_stage", 2)
    assert is_right(drawn, recover(drawn.logged()).schedule)


def test_degree_and_columns() -> None:
    a, b = sp.symbols("a b", real=True)
    expr = sp.Piecewise((a + b * cf.t, cf.t < 5), (a * 3, True))
    assert degree(expr, frozenset({a, b})) == 1
    assert degree(a * b, frozenset({a, b})) == 2
    assert degree(sp.cos(a), frozenset({a})) == math.inf
    steps = np.array([0.0, 2.0, 7.0])
    base, of_a, of_b = CompiledCurve(expr, (a, b)).columns({}, steps)
    assert base.tolist() == [0, 0, 0]
    assert of_a.tolist() == [1, 1, 3]
    assert of_b.tolist() == [0, 2, 0]


def test_signatures_have_no_unknown_parameters() -> None:
    """A new parameter of a schedule needs a role, or a default that is left unchanged."""
    for form in forms():
        function = getattr(schedules, form.name)
        assert {*form.free, *dict(form.fixed_arguments)} <= set(
            inspect.signature(function).parameters
        )


INFINITE = "step,lr\n" + "\n".join(f"{step},1e{'9' * 300}" for step in range(5))
REFUSED_LOGS = {
    "infinite values": (
        INFINITE,
        "no row of the log has a whole number in step and a number in lr",
    ),
    "a long field": ('step,lr\n"' + "x" * 10**6, "field larger than field limit (131072)"),
    "long steps": (
        "step,lr\n" + "\n".join(f"{'9' * 400}{step},0.1" for step in range(9)),
        "no row of the log has a whole number in step and a number in lr, got '9999",
    ),
}


@pytest.mark.parametrize("name", REFUSED_LOGS)
def test_logs_without_numbers_are_refused(name: str, tmp_path: Path) -> None:
    text, message = REFUSED_LOGS[name]
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ClosedFormError, match=re.escape(message)):
        recover(path)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ({10**400: 0.1}, "a step of a log must be an integer of at most 1125899906842624, got int"),
        ({float("nan"): 0.1}, "a step of a log must be an integer of at most .*, got float nan"),
        ({0: 10**400}, "a value of a log must be a number of a float64, got int 1000"),
        ({0: "x"}, "a value of a log must be a number of a float64, got str 'x'"),
        (dict.fromkeys(range(5), float("inf")), "a schedule is recovered from at least"),
    ],
)
def test_values_by_step_other_than_numbers_are_refused(log: dict[Any, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        recover(log)


def test_a_search_ends_by_its_calls_where_the_points_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Three points: 77,000 calls took 15 s and were a tenth of the values that a search may compute.
    calls: list[int] = []
    project = Problem.project

    def counted(problem: Problem, theta: FloatArray) -> Fits:
        calls.append(len(theta))
        return project(problem, theta)

    monkeypatch.setattr(Problem, "project", counted)
    assert recover(dict.fromkeys(range(3), 2**31), offset=-1).residual < 1
    assert len(calls) < 4_000


@pytest.mark.parametrize(
    "values",
    [
        [1e300, 5.0, 7e-9, 1e20, 3.3, 2.0**40],
        [1e300, 1e-300, 1e300],
        [5e-324, 1e-200, 1.7976931348623157e308, 0.0],
        [1e-200, 2e-200, 1e-200, 0.0],
        [1e-320, -1e300, 1e-320],
    ],
)
def test_rates_of_any_size_have_a_result(
    values: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compositions, "MOST_EVALUATIONS", 200_000)
    recovered = recover(dict(enumerate(values)))
    assert recovered.schedule is None or recovered.precisions <= 1


def linear(update: int, peak: float, warmup: int, total: int) -> float:
    """transformers' linear schedule."""
    if update < warmup:
        return peak * update / warmup
    return peak * (total - update) / (total - warmup)


@pytest.mark.parametrize(("total", "every"), [(2500, 500), (45, 10), (400, 50)])
@pytest.mark.parametrize("peak", [5e-5, 2e-4, 1e-5])
@pytest.mark.parametrize("has_warmup", [False, True])
def test_a_short_log_has_a_warmup_only_where_it_had(
    peak: float, total: int, every: int, has_warmup: bool, tmp_path: Path
) -> None:
    warmup = total // 10 if has_warmup else 0
    path = tmp_path / "trainer_state.json"
    rows = [
        {"step": step, "learning_rate": linear(step - 1, peak, warmup, total)}
        for step in range(every, total + 1, every)
    ]
    path.write_text(json.dumps({"global_step": total, "max_steps": total, "log_history": rows}))
    config = {"learning_rate": peak, "warmup_steps": warmup, "max_steps": total}
    arguments = ", ".join(f"{key}={value}" for key, value in config.items())
    assert recover(path).call == f"transformers:linear({arguments})"


@pytest.mark.parametrize("steps", [333, 417])
def test_a_long_log_is_searched_with_fewer_values_that_all_confirm(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MOST_POINTS", 200)
    monkeypatch.setattr(recovery, "SEARCHED_POINTS", 20)
    # A jump between two of the fewer values needs the others.
    curve = schedules.step_decay(0.1, 0.5, steps)
    result = recover({step: float(curve(step)) for step in range(1000)})
    assert (result.call, result.points) == (
        f"step_decay(value=0.1, gamma=0.5, steps={steps})",
        1000,
    )


@pytest.mark.parametrize("warmup", [125, 250])
def test_warmups_that_a_log_leaves_open_are_named(warmup: int) -> None:
    rates = {step: linear(step, 3e-4, warmup, 2500) for step in range(499, 2500, 500)}
    result = recover(rates)
    texts = [candidate.call for candidate in result.candidates if candidate.is_right]
    assert (
        f"transformers:linear(learning_rate=0.0003, warmup_steps={warmup}, max_steps=2500)" in texts
    )
    if warmup == 250:
        assert result.config["warmup_steps"] == warmup
        assert any("as many digits" in candidate.reason for candidate in result.candidates)
