"""Floors and comparisons in floats: those of exact numbers where a graph is PROVED, or named."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

import closedform as cf
from closedform import Schedule, t
from closedform.api.verification import verify
from closedform.compiler import compile_schedule
from closedform.expr import floor_div, hyper
from closedform.ir.text import parse_graph, print_graph
from closedform.options import ANY_STEPS, GraphOptions
from closedform.verify.certificates.certificate import certify
from closedform.verify.certificates.decisions import first_open_decision
from closedform.verify.translation.translation import validate
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch
from tests.support.jumping_schedules import draw
from tests.support.sampling import is_exhaustive

STEPS = np.array(
    sorted({*range(70), 99, 100, 125, 511, 624, 999, 1000, 4095, 4096, 99_999, 2**31, 2**40 - 1}),
    np.int64,
)

HALVINGS = Schedule(sp.Rational(1, 2) ** sp.floor(sp.log(t + 1) / sp.log(2)), name="halvings")

# As it was lowered before: the logarithm of 8 in units of log(2) is 2.9999999999999996.
ROUNDED = """graph halvings(step: i64[] step) -> (value: f64[]) {
  %0 = cast(step) to=f64 : f64[]
  %1 = const 1.0 : f64[]
  %2 = add(%0, %1) : f64[]
  %3 = log(%2) : f64[]
  %4 = const 1.4426950408889634 : f64[]
  %5 = mul(%3, %4) : f64[]
  %6 = floor(%5) : f64[]
  %7 = const 0.5 : f64[]
  %8 = pow(%7, %6) : f64[]
  value = %8
}
"""


@pytest.mark.sample(every=12)
@pytest.mark.parametrize("seed", range(120))
def test_drawn_schedules_jump_where_their_exact_values_do(seed: int) -> None:
    schedule = draw(seed)
    graph = compile_schedule(schedule, ANY_STEPS)
    if not validate(schedule, graph).proved:
        return
    expected = np.array([float(schedule.exact(int(step))) for step in STEPS])
    for run in (run_evaluator, run_onnxruntime, run_torch):
        values = run(graph, {"step": STEPS})["value"]
        # A remainder of numbers up to 2**40 loses 40 of its 52 bits; a jump is far above that.
        np.testing.assert_allclose(values, expected, rtol=0, atol=2e-4)


def test_most_drawn_schedules_are_proved() -> None:
    schedules = [draw(seed) for seed in range(500, 540 if is_exhaustive() else 520)]
    open_names = [
        schedule.name
        for schedule in schedules
        if not validate(schedule, compile_schedule(schedule)).proved
    ]
    # Remainders of products with irrational numbers, without end.
    assert len(open_names) <= 0.1 * len(schedules), open_names


@pytest.mark.parametrize(("number", "width"), [(sp.E * t / 365, "3/10"), (sp.E * t, "1/2")])
def test_a_remainder_of_an_exact_zero_decides_nothing(number: sp.Expr, width: str) -> None:
    schedule = Schedule(cf.expr.floor_mod(number, sp.Rational(width)))
    graph = compile_schedule(schedule, ANY_STEPS)
    decision = first_open_decision(graph)
    # 0.3 is rounded, and a multiple 0 of it is 0; later steps are decided one by one.
    assert decision is not None
    assert decision.step > 98_000
    steps = np.arange(0, 98_000, 97)
    expected = [float(schedule.exact(int(step))) for step in steps]
    values = run_onnxruntime(graph, {"step": steps})["value"]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)


def test_a_floor_that_rounding_chooses_is_not_proved() -> None:
    verdict = validate(HALVINGS, parse_graph(ROUNDED))
    assert verdict.unknown
    assert verdict.reason == (
        "PROVED over the real numbers, and open in floats: it has a floor of a number that floats "
        "round, from t = 1 on, where rounding may choose the other side of a threshold"
    )
    assert validate(HALVINGS, compile_schedule(HALVINGS)).proved


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (sp.floor(sp.sin(t)), "floor of a number that floats round, from t = 0 on"),
        (
            sp.Piecewise((1, sp.cos(t) < sp.Rational(1, 3)), (2, True)),
            "comparison of a number that floats round, from t = ",
        ),
        (cf.expr.floor_mod(sp.E * t, 1), "remainder of a number that floats round, from t = "),
    ],
)
def test_an_open_decision_names_its_function_and_step(expr: sp.Expr, text: str) -> None:
    schedule = Schedule(expr + 1)
    assert str(first_open_decision(compile_schedule(schedule))).startswith(text)
    verdict = cf.claims.float_decides(schedule).verify()
    assert verdict.unknown
    assert text in verdict.reason
    assert text in str(certify(schedule, steps=range(0, 2**40, 2**28)))


def test_a_report_has_an_open_decision_and_none_that_holds() -> None:
    for expr, is_open in ((cf.expr.floor_mod(sp.E * t, 1), True), (sp.floor(t**2 / 50), False)):
        schedule = Schedule(1 + expr, domain=(t <= 10**6,))
        verdicts = {row.claim.name: row.verdict for row in verify(schedule).floats}
        assert ("float_decides" in verdicts) is is_open
        if is_open:
            verdict = cf.claims.float_decides(schedule).verify()
            assert verdicts["float_decides"].reason == verdict.reason


THIRD = sp.Rational(1, 3)

# With the first step at which it is open: that of a root that is whole, where the radicand is too
# large for integers or, of a cube root, for pow, which may be off by 4 units. None: at no step.
ROOTS = {
    sp.floor(sp.sqrt(t) / 36): None,
    sp.ceiling(sp.sqrt(t) / 3): None,
    sp.floor(sp.sqrt(2 * t) / 3) + sp.floor(sp.sqrt(t) / 3 + 1): None,
    sp.floor(sp.sqrt(sp.floor(t / 3))): None,
    sp.floor((2 * t + 3) ** THIRD / 7): None,
    cf.expr.floor_mod(sp.sqrt(t), 2): None,
    cf.expr.floor_mod(sp.sqrt(t + 7) / 3 - 1, 1): None,
    sp.Piecewise((1, (16 * t + 11) / (t + 8) <= sp.Rational(179, 12)), (2, True)): None,
    sp.floor((t + 1) ** sp.Rational(1, 4) / 2): None,
    sp.floor(sp.Max(3, sp.sqrt(t) / 2)): None,
    # The sequence of triangular numbers.
    sp.floor((sp.sqrt(8 * t + 1) - 1) / 2): 2**47,
    sp.floor(t ** sp.Rational(3, 2) / 20): 880**2,
    sp.ceiling(t ** sp.Rational(3, 2) / 20): 880**2,
    sp.floor(3 * t ** sp.Rational(2, 3) / 7): 336**3,
    sp.floor(sp.sqrt(t**2 + 3 * t + 1) / 5): 167_956_448,
    cf.expr.floor_mod(t ** sp.Rational(2, 3), sp.Rational(3, 10)): 1_860_867,
}


@pytest.mark.parametrize("expr", ROOTS, ids=str)
def test_floors_of_roots_are_those_of_integers(expr: sp.Expr) -> None:
    schedule = Schedule(1 + expr)
    graph = compile_schedule(schedule, ANY_STEPS)
    verdict = validate(schedule, graph)
    assert verdict.proved_until == ROOTS[expr]
    assert verdict.proved is (ROOTS[expr] is None)
    last = (ROOTS[expr] or 2**50) - 1
    roots = np.array([1, 2, 3, 6, 20, 77, 100, 440, 880, 1290])
    near = np.concatenate([roots**2, 6 * roots**2, roots**3, (10 * roots) ** 2])
    steps = np.unique([*range(20), *near, *(near - 1), last])
    steps = steps[steps <= last]
    expected = np.array([float(schedule.exact(int(step))) for step in steps])
    for run in (run_evaluator, run_onnxruntime, run_torch):
        values = run(graph, {"step": steps})["value"]
        # A floor that is another one is off by 1, a remainder by 0.3; roots of 2**50 have 2**-28.
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-7)


RATE_INPUT, PERIOD_INPUT = hyper("rate"), hyper("period", positive=True)
WARMUP_INPUT = hyper("warmup", positive=True, integer=True)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (sp.Piecewise((1, t < RATE_INPUT), (2, True)), None),
        (sp.Piecewise((1, t <= sp.Max(RATE_INPUT, 3)), (2, True)), None),
        (sp.Piecewise((1, t - WARMUP_INPUT < 5), (2, True)), None),
        (floor_div(t, WARMUP_INPUT), None),
        (sp.Piecewise((1, t * RATE_INPUT < 3), (2, True)), "comparison"),
        (sp.Piecewise((1, t - RATE_INPUT < 3), (2, True)), "comparison"),
        (sp.floor(t / PERIOD_INPUT), "floor"),
        (sp.floor(3 * RATE_INPUT) * t, "floor"),
    ],
    ids=str,
)
def test_decisions_on_hyperparameters_that_are_inputs(expr: sp.Expr, text: str | None) -> None:
    schedule = Schedule(expr)
    names = tuple(symbol.name for symbol in expr.free_symbols - {t})
    graph = compile_schedule(schedule, GraphOptions(inputs=names))
    decision = first_open_decision(graph)
    if text is None:
        assert decision is None
    else:
        assert str(decision) == f"{text} of a number that floats round, from t = 0 on"
        assert validate(schedule, graph).unknown


def test_a_floor_of_a_step_over_a_float_is_not_that_of_the_quotient() -> None:
    schedule = Schedule(sp.floor(t / PERIOD_INPUT))
    graph = compile_schedule(schedule, GraphOptions(inputs=("period",)))
    value = run_onnxruntime(graph, {"step": np.array(3), "period": np.array(0.1)})["value"]
    assert value == 30
    # The float 0.1 is above 1/10.
    assert Fraction(3) // Fraction(0.1) == 29


def test_a_branch_that_is_not_taken_decides_nothing() -> None:
    early = sp.Piecewise((sp.floor(t / 3), t < 10), (sp.floor(sp.sin(t)), t < 10**6), (t, True))
    graph = compile_schedule(Schedule(early))
    decision = first_open_decision(graph)
    assert decision is not None
    assert decision.step == 10
    assert first_open_decision(graph, 9) is None


@pytest.mark.parametrize(
    "expr",
    [
        sp.floor(t**2 / 50),
        sp.floor(sp.Pow(t + 1, sp.Rational(1, 3))),
        sp.Piecewise((1, sp.cos(2 * sp.pi * t / 12) >= sp.sqrt(3) / 2), (2, True)),
        cf.expr.floor_mod(sp.Abs(t / 10 - sp.Rational(303, 10)), sp.Rational(3, 10)),
    ],
    ids=str,
)
def test_decisions_that_hold_at_every_step(expr: sp.Expr) -> None:
    schedule = Schedule(1 + expr, domain=(t <= 10**6,))
    verdict = cf.claims.float_decides(schedule).verify()
    assert verdict.proved
    steps = np.arange(1000)
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",)))
    expected = [float(schedule.exact(int(step))) for step in steps]
    values = run_onnxruntime(graph, {"step": steps})["value"]
    np.testing.assert_allclose(values, expected, rtol=1e-15)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_warm_restarts_begin_at_their_peak(factor: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=20, T_mult=factor)
    schedule = cf.from_torch(scheduler)
    assert isinstance(schedule, Schedule)
    rates = []
    for _ in range(700):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    values = [schedule(step) for step in range(700)]
    np.testing.assert_allclose(values, rates, rtol=1e-12, atol=1e-18)


def test_the_text_of_the_planted_graph_is_a_graph() -> None:
    assert print_graph(parse_graph(ROUNDED)).strip() == ROUNDED.strip()


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_comparison_with_nan_or_an_infinity_is_a_decision_without_error(number: str) -> None:
    graph = parse_graph(f"""\
graph guard(step: i64[] step) -> (value: f64[]) {{
  %0 = cast(step) to=f64 : f64[]
  %1 = const {number} : f64[]
  %2 = lt(%0, %1) : bool[]
  %3 = where(%2, %0, %1) : f64[]
  value = %3
}}
""")
    decision = first_open_decision(graph)
    assert decision is None or decision.op == "lt"
