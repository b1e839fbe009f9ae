"""Schedules: exact numbers, calls, composition, and what is refused."""

import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform import optimizers, schedules
from closedform.errors import DefinitionError, DomainError
from closedform.language import (
    GRAD,
    Schedule,
    chained,
    exact_number,
    floor_div,
    floor_mod,
    hyper,
    sequential,
    t,
)
from closedform.language.printing import text
from tests.test_mistakes import untyped

PEAK, WARMUP = sp.symbols("peak warmup")
N = hyper("n", integer=True, positive=True)
RAMP = Schedule(
    sp.Piecewise((PEAK * t / WARMUP, t < WARMUP), (PEAK, True)), length=4, peak=0.3, warmup=4
)
FALL = Schedule(1 - t / 10, name="fall", length=10)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.1, sp.Rational(1, 10)),
        (3e-4, sp.Rational(3, 10000)),
        (7, sp.Integer(7)),
        (Fraction(1, 3), sp.Rational(1, 3)),
        (np.float32(0.1), sp.Rational(1, 10)),
        (np.float64(0.1), sp.Rational(1, 10)),
        (np.int64(5), sp.Integer(5)),
        (sp.Float(0.1), sp.Rational(1, 10)),
        (sp.sqrt(2), sp.sqrt(2)),
        (5e-324, sp.Rational("5e-324")),
    ],
)
def test_numbers_are_the_decimals_they_print(given: Any, expected: sp.Expr) -> None:
    assert exact_number(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (True, "peak must be a number, got bool True"),
        ("1e-3", "peak must be a number, got str '1e-3'"),
        (None, "peak must be a number, got NoneType None"),
        (math.nan, "peak must be finite, got nan"),
        (math.inf, "peak must be finite, got inf"),
        (1j, "peak must be a number, got complex 1j"),
        (sp.I, "peak must be finite and real, got I"),
        (sp.zoo, "peak must be finite and real, got zoo"),
        (t + 1, r"peak must be a number, got the expression t \+ 1"),
    ],
)
def test_values_that_are_not_numbers_are_refused(given: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        exact_number(given, "peak")


def test_floats_in_an_expression_mean_decimals_too() -> None:
    assert Schedule(0.1 * t).expr == t / 10


def test_value_float_and_exact() -> None:
    assert RAMP(1) == 0.075
    assert isinstance(RAMP(1), float)
    assert RAMP.exact(3) == sp.Rational(9, 40)
    assert RAMP(np.int64(2)) == 0.15
    steps = np.array([[0, 1], [4, 100]])
    values = RAMP(steps)
    assert isinstance(values, np.ndarray)
    assert values.shape == (2, 2)
    assert values.tolist() == [[0.0, 0.075], [0.3, 0.3]]


def test_bind_replaces_and_completes() -> None:
    assert RAMP.bind(peak=0.6).exact(1) == sp.Rational(3, 20)
    unbound = Schedule(PEAK * t, name="line")
    assert [symbol.name for symbol in unbound.open] == ["peak"]
    assert unbound.bind(peak=2).exact(3) == 6


def test_immutable_hashable_picklable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        RAMP.name = "other"
    assert RAMP == copy.deepcopy(RAMP)
    assert hash(pickle.loads(pickle.dumps(RAMP))) == hash(RAMP)
    assert RAMP != RAMP.bind(peak=1)


def test_then_is_half_open_and_local() -> None:
    joined = RAMP.then(FALL)
    assert joined.exact(3) == sp.Rational(9, 40)
    assert joined.exact(4) == 1
    assert joined.exact(9) == sp.Rational(1, 2)
    assert joined.length == 14
    assert RAMP.then(FALL, at=2).exact(2) == 1


def test_hyperparameters_shared_and_clashing() -> None:
    other = Schedule(PEAK - t / 100, peak=0.3)
    shared = RAMP.then(other)
    assert shared.hyperparameters["peak"] == sp.Rational(3, 10)
    assert shared.bind(peak=0.6).exact(4) == sp.Rational(3, 5)
    clash = RAMP.then(other.bind(peak=0.9))
    assert list(clash.hyperparameters) == ["peak_1", "peak_2", "warmup"]
    assert clash.exact(1) == sp.Rational(3, 40)
    assert clash.exact(4) == sp.Rational(9, 10)
    assert clash.bind(peak_2=0.5).exact(4) == sp.Rational(1, 2)


def test_lengths_follow_their_hyperparameters() -> None:
    n = hyper("steps", integer=True, positive=True)
    line = Schedule(sp.Min(t, n) / n, length=n, steps=10)
    assert line.length == 10
    assert line.bind(steps=4).length == 4
    two = line.then(line.bind(steps=5))
    assert two.length == 15
    moved = two.bind(steps_1=2)
    assert (moved.length, moved.exact(1), moved.exact(3)) == (
        7,
        sp.Rational(1, 2),
        sp.Rational(1, 5),
    )
    assert Schedule(t / n, length=n).length is None
    assert line.rename("ramp").name == "ramp"
    assert line.rename("ramp") == line


def test_chained_is_a_product_of_relative_values() -> None:
    product = chained((FALL, Schedule(sp.Integer(8) / (t + 2))))
    assert product.exact(0) == 1
    assert product.exact(2) == sp.Rational(8, 10) * sp.Rational(1, 2)


@pytest.mark.parametrize(
    ("change", "step", "value"),
    [
        (lambda s: s.scale(0.5), 5, sp.Rational(1, 4)),
        (lambda s: s.clip(low=0.7), 5, sp.Rational(7, 10)),
        (lambda s: s.clip(high=0.9), 0, sp.Rational(9, 10)),
        (lambda s: s.shift(3), 2, sp.Rational(1, 2)),
        (lambda s: s.shift(-3), 2, sp.Integer(1)),
        (lambda s: s.shift(-3), 5, sp.Rational(8, 10)),
    ],
)
def test_transforms(change: Callable[[Schedule], Schedule], step: int, value: sp.Expr) -> None:
    changed = change(FALL)
    assert changed.exact(step) == value
    assert changed(step) == pytest.approx(float(value), rel=1e-15)  # one or two roundings


def test_latex_and_notebook() -> None:
    assert r"t < \mathit{warmup}" in RAMP.latex()
    up, down = sp.symbols("up down")
    remainder = Schedule(floor_mod(t + 1, up + down))
    assert remainder.latex() == (
        r"\left(\left(t + 1\right) \bmod \left(\mathit{down} + \mathit{up}\right)\right)"
    )
    product = Schedule(sp.Symbol("rate") * sp.Symbol("cycles") / 2)
    assert product.latex() == r"\frac{\mathit{cycles} \, \mathit{rate}}{2}"
    assert text(sp.Lt(t, N)) == "t < n"
    assert text(sp.Piecewise((1, N > t), (0, True))) == "Piecewise((1, t < n), (0, True))"
    assert str(RAMP._repr_latex_()).startswith("$\\displaystyle ")
    assert r"\bmod" in sp.latex(floor_mod(t, 3))
    assert r"\lfloor" in sp.latex(floor_div(t, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Schedule("t + 1"),
            "the expression of schedule 'schedule' must be a number, got str",
        ),
        (lambda: Schedule(PEAK * t, paek=1), r"'paek' is not a symbol .*did you mean 'peak'\?"),
        (lambda: Schedule(t, x=1), "'x' is not a symbol .*has no symbols"),
        (lambda: Schedule(t * sp.I), "finite and real"),
        (lambda: Schedule(t + GRAD), "function of t and hyperparameters, got grad"),
        (lambda: Schedule(sp.Symbol("t") + 1), "a symbol t that is not the clock"),
        (lambda: Schedule(t, length=-1), r"length must be an integer >= 0, got -1"),
        (lambda: Schedule(t, length=2.5), r"length must be an integer >= 0, got 2.5"),
        (lambda: RAMP.exact(-1), "step must be an integer >= 0, got -1"),
        (
            lambda: RAMP.exact(0.5),  # type: ignore[arg-type]
            "step must be an integer >= 0, got 0.5",
        ),
        (lambda: RAMP(-1), "steps must be in 0..1125899906842624, got -1"),
        (lambda: untyped(RAMP)(0.5), "steps must be integers, got float64 0.5"),
        (lambda: untyped(RAMP)([1.0]), r"steps must be integers, got float64 \[1.0\]"),
        (lambda: Schedule(PEAK * t).exact(1), r"\['peak'\] have no value .*bind"),
        (lambda: sequential([]), "at least one schedule, got none"),
        (lambda: sequential([RAMP, FALL], []), "expected 1, got 0"),
        (lambda: sequential([RAMP, RAMP, FALL], [5, 5]), "strictly increasing, got 5 after 5"),
        (lambda: sequential([RAMP, RAMP, FALL], [5, 4]), "strictly increasing, got 4 after 5"),
        (lambda: sequential([RAMP, FALL], [0]), "above 0 and strictly increasing, got 0 after 0"),
        (lambda: sequential([RAMP, FALL], [2.5]), "milestone must be an integer >= 0, got 2.5"),
        (
            lambda: Schedule(t).then(RAMP),
            "without a length needs a milestone.*member 0, 'schedule'",
        ),
        (lambda: chained([]), "at least one schedule, got none"),
        (lambda: chained([FALL, RAMP]), "divided by its first value, which is 0 .*member 1"),
        (
            lambda: sequential(["a", "b"]),  # type: ignore[list-item]
            r"sequential takes Schedules, got str 'a' \(member 0\)",
        ),
        (
            lambda: chained(3),  # type: ignore[arg-type]
            "chained takes a list of Schedules, got int 3",
        ),
        (lambda: Schedule(t * N, n=0), "n must be above 0, got 0 .*schedule 'schedule'"),
        (lambda: Schedule(t * N, n=0.5), "n must be an integer, got 0.5"),
        (lambda: Schedule(N * sp.Symbol("n")), "two symbols are named 'n'"),
        (lambda: RAMP(10**21), "steps must be in 0..1125899906842624, got 1000000000000000000000"),
        (
            lambda: FALL.shift(0.5),
            "steps must be an integer, got 0.5",
        ),
        (lambda: hyper("grad"), "identifier other than .*, got 'grad'"),
        (lambda: hyper("a b"), "identifier other than .*, got 'a b'"),
        (lambda: floor_mod("t", 3), "argument of floor_mod must be a number, got str 't'"),
    ],
)
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


@pytest.mark.parametrize(
    ("expr", "step", "message"),
    [
        (sp.Piecewise((1, t < 5)), 7, "Piecewise has no value .*t = 7"),
        (1 / (t - 3), 3, "zoo, not a finite real number .*t = 3"),
        (sp.sqrt(2 - t), 3, "I, not a finite real number .*t = 3"),
    ],
)
def test_exact_outside_of_the_domain(expr: sp.Expr, step: int, message: str) -> None:
    with pytest.raises(DomainError, match=message):
        Schedule(expr).exact(step)


def test_inert_functions_are_right_where_sympy_is_wrong() -> None:
    nested = Schedule(floor_mod(3 * floor_mod(t, 6), 8))
    assert [nested.exact(step) for step in range(7)] == [0, 3, 6, 1, 4, 7, 0]
    assert [nested(step) for step in range(7)] == [0, 3, 6, 1, 4, 7, 0]


def test_long_powers_end() -> None:
    decay = Schedule(sp.Rational(999, 1000) ** t)
    assert decay.exact(1000) == sp.Rational(999, 1000) ** 1000
    assert float(decay.exact(200_000)) == pytest.approx(
        math.exp(200_000 * math.log(0.999)), rel=1e-9
    )
    assert 0 <= float(decay.exact(2**50)) < 1e-300


def test_text_has_length_hyperparameters_and_values_where_the_formula_changes() -> None:
    curve = schedules.linear(0, 1e-3, 1200).then(schedules.cosine(1e-3, 0, 300))
    assert str(curve).splitlines() == [
        "sequential, 1,500 steps",
        "  end_1 = 0.001, end_2 = 0, start_1 = 0, start_2 = 0.001, steps_1 = 1200, steps_2 = 300",
        "  t = 0      0",
        "  t = 1,200  0.001",
        "  t = 1,500  0",
    ]
    assert repr(schedules.cosine(1e-3, 0, 300)) == (
        "<Schedule 'cosine': end = 0, start = 0.001, steps = 300>"
    )


def test_text_of_numbers_beyond_floats() -> None:
    curve = schedules.linear(-(sp.Integer(10) ** 400), 0, 2**63 - 1)
    assert repr(curve) == "<Schedule 'linear': end = 0, start = -1.00000e+400, steps = 9.22337e+18>"


def test_text_of_an_open_schedule_has_no_values() -> None:
    curve = schedules.linear(0, 1, 10).unbind("end")
    assert str(curve) == "linear, 10 steps\n  end = open, start = 0, steps = 10"
    assert "<svg" not in curve._repr_html_()


def test_text_of_many_marks_is_short() -> None:
    curve = schedules.multi_step(1, 0.5, list(range(10, 400, 10)))
    lines = str(curve).splitlines()
    assert len(lines) == 12
    assert [line.split() for line in lines[-2:]] == [["…", "…"], ["t", "=", "390", "1.81899e-12"]]


def test_html_has_formula_values_and_picture() -> None:
    page = schedules.linear(0, 1, 10).rename("a<b")._repr_html_()
    assert "<b>a&lt;b, 10 steps</b>" in page
    assert "$\\displaystyle" in page
    assert '<td style="text-align:left">t = 10</td><td style="text-align:left">1</td>' in page
    assert '<svg role="img" aria-label="a&lt;b by step, from 0 to 10"' in page


def test_rules_print_their_formulas() -> None:
    rule = optimizers.sgd(schedules.linear(0.1, 0, 10), momentum=0.9)
    assert repr(rule).startswith("<UpdateRule 'sgd': ")
    assert "lr = linear" in repr(rule)
    assert "next momentum_buffer = " in str(rule)
