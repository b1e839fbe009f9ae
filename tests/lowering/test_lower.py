"""Lowering: forms, node counts, and what is refused by name and place."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
import sympy as sp

import closedform as cf
from closedform.compiler import compile_schedule
from closedform.errors import DomainError, LoweringError
from closedform.ir.graph import Graph
from closedform.ir.ops import Op
from closedform.ir.text import parse_graph, print_graph
from closedform.ir.types import DType
from closedform.language import Schedule, floor_div, floor_mod, hyper, t
from closedform.lowering.lower import HANDLERS
from closedform.options import GraphOptions
from tests.support.engines import run_evaluator, run_onnxruntime
from tests.support.exact import evaluate_exactly, mpf

RATE = sp.Symbol("rate", real=True)


def nodes(graph: Graph) -> int:
    return sum(node.op not in (Op.INPUT, Op.CONST) for node in graph.nodes)


def onnx_nodes(schedule: Schedule, path: Any) -> int:
    model = cf.to_onnx(schedule, path)
    assert isinstance(model, onnx.ModelProto)
    return len(model.graph.node)


WARMUP = cf.schedules.linear(0, 3e-4, 2000)


@pytest.mark.parametrize("end", [3e-5, 0, 1e-12, 1e-6])
def test_cosine_after_warmup_takes_at_most_16_nodes(end: float, tmp_path: Any) -> None:
    lr = WARMUP.then(cf.schedules.cosine(3e-4, end, 98_000))
    limit = 17 if 0 < end < 2e-9 else 16  # a floor far below the peak costs one addition more
    assert onnx_nodes(lr, tmp_path / "lr.onnx") <= limit


def test_a_thousand_milestones_take_at_most_12_nodes(tmp_path: Any) -> None:
    marks = [5 * k for k in range(1, 1001)]
    steps = cf.schedules.piecewise_constant([k / 7 for k in range(1001)], marks)
    assert onnx_nodes(steps, tmp_path / "steps.onnx") <= 12


def test_a_sequence_of_a_hundred_lines_is_one_table(tmp_path: Any) -> None:
    lines = [cf.schedules.linear(k / 7, (k * 13 % 29) / 3, 10) for k in range(100)]
    path = cf.schedules.sequential(lines)
    with pytest.warns(cf.errors.UnprovedWarning, match="proved for t < 270; open beyond"):
        assert onnx_nodes(path, tmp_path / "lines.onnx") <= 12
    for step in (0, 9, 10, 11, 555, 989, 990, 999, 1000, 5000):
        expected = float(path.exact(step))
        assert path(step) == pytest.approx(expected, rel=4e-16, abs=1e-15)  # 2 ulp of scale 9.3


GOLDENS: dict[str, Schedule] = {
    "warmup_cosine": WARMUP.then(cf.schedules.cosine(3e-4, 3e-5, 98_000)),
    "warmup_cosine_to_zero": WARMUP.then(cf.schedules.cosine(3e-4, 0, 98_000)),
    "cosine_annealing": cf.schedules.cosine_annealing(0.1, 0.001, 50),
    "inverse_square_root": cf.schedules.inverse_square_root(1, 1, 8307),
    "polynomial_half": cf.schedules.polynomial(1e-3, 1e-5, 1000, power=0.5),
    "staircase": Schedule(sp.Rational(1, 2) ** floor_div(t, 30)),
    "exponential": Schedule(sp.Rational(96, 100) ** (t / 1000)),
    "triangle": Schedule(1 - sp.Abs(floor_mod(t, 20) - 10) / 10),
    "lines": cf.schedules.sequential([cf.schedules.linear(k, k + 1, 10) for k in range(6)]),
    "guarded": Schedule(sp.Piecewise((sp.sqrt(50 - t), t < 50), (1 / (t - 48), True))),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    graph = compile_schedule(GOLDENS[name])
    text = print_graph(graph)
    golden(f"lowering/{name}", text)
    assert parse_graph(text) == graph
    for step in (0, 1, 9, 10, 49, 50, 51, 999, 2000, 99_999, 100_000, 10**6):
        truth = mpf(evaluate_exactly(GOLDENS[name].bound, {t: Fraction(step)}))
        value = float(run_evaluator(graph, {"step": np.array(step)})["value"])
        scale = max(1e-3 if "warmup" in name else 1.0, abs(float(truth)))
        assert abs(value - truth) <= 4 * np.spacing(scale), (step, value, truth)


def test_thresholds_are_exact_integers() -> None:
    # The peak of a one-cycle: 0.29*100 - 1 is 27.999… in binary, and exactly 28 here.
    steps = Schedule(sp.Piecewise((1, t <= sp.Rational(29, 100) * 100 - 1), (0, True)))
    assert [steps(27), steps(28), steps(29)] == [1, 1, 0]
    halves = Schedule(sp.Piecewise((1, t < sp.Rational(57, 2)), (0, True)))
    assert [halves(28), halves(29)] == [1, 0]
    assert Schedule(sp.Piecewise((1, sp.Eq(t, sp.Rational(5, 2))), (0, True)))(2) == 0


def test_floor_of_a_quotient_is_an_integer_division() -> None:
    # In float32 and float64, t * (1/41) is below 1 at t = 41.
    assert Schedule(sp.floor(t / 41))(41) == 1
    assert Schedule(sp.ceiling(t / 41))(42) == 2
    graph = compile_schedule(Schedule(sp.floor(t / 41)))
    assert Op.FLOOR_DIV in {node.op for node in graph.nodes}


def test_far_steps_stay_exact() -> None:
    annealing = cf.schedules.cosine_annealing(1, 0, 1000)
    for step in (10**9 + 500, 2**40 + 123, 2**50):
        truth = mpf(evaluate_exactly(annealing.bound, {t: Fraction(step)}))
        assert abs(annealing(step) - truth) <= 2 * np.spacing(1.0)


def test_float32_arithmetic_reduces_the_step_in_integers_first() -> None:
    annealing = cf.schedules.cosine_annealing(1, 0, 1000)
    graph = compile_schedule(
        annealing, GraphOptions(dtype="f32", scalar_dtype="f32", step_dtype="i32")
    )
    assert {str(node.type.dtype) for node in graph.nodes} <= {"i32", "f32", "bool"}
    for step in (10**6 + 1, 2**31 - 1):
        value = run_onnxruntime(graph, {"step": np.array(step, np.int32)})["value"]
        truth = mpf(evaluate_exactly(annealing.bound, {t: Fraction(step)}))
        assert abs(float(value) - truth) <= 2 * np.spacing(np.float32(1))


def test_hyperparameters_as_inputs() -> None:
    warmup = hyper("warmup", integer=True, positive=True)
    lr = Schedule(RATE * sp.Min(t, warmup) / warmup, rate=0.1, warmup=10)
    graph = compile_schedule(lr, GraphOptions(inputs=("rate", "warmup")))
    inputs = {"step": np.array(3), "rate": np.array(0.5), "warmup": np.array(6)}
    assert run_evaluator(graph, inputs)["value"] == 0.25
    assert run_onnxruntime(graph, inputs)["value"] == 0.25


def test_a_constant_takes_the_shape_of_the_steps() -> None:
    graph = compile_schedule(Schedule(0.1), GraphOptions(step_shape=("n",)))
    inputs = {"step": np.arange(3)}
    assert run_evaluator(graph, inputs)["value"].tolist() == [0.1] * 3
    assert run_onnxruntime(graph, inputs)["value"].tolist() == [0.1] * 3


def test_handlers_cover_the_documented_vocabulary() -> None:
    names = {kind.__name__ for kind in HANDLERS}
    assert {"Add", "Mul", "Pow", "Piecewise", "Min", "Max", "exp", "log", "cos", "sin"} <= names


@pytest.mark.parametrize(
    ("expr", "error", "message"),
    [
        (sp.Piecewise((1, t < 7)), LoweringError, r"no value for t >= 7 \(schedule 'bad'\): add"),
        (sp.Piecewise((1, t > 7)), LoweringError, "no value for 0 <= t <= 7"),
        (sp.gamma(t + 1), LoweringError, r"gamma cannot be lowered, in gamma\(t \+ 1\)"),
        (sp.Function("f")(t), LoweringError, r"f cannot be lowered, in f\(t\)"),
        (RATE * t, LoweringError, r"the symbol rate has no value .*bind\(rate=…\)"),
        (sp.Mod(3 * sp.Mod(t, 6), 8), LoweringError, "Mod inside Mod .*closedform.expr.floor_mod"),
        (
            1 / (t - 3),
            DomainError,
            "no finite real value at t = 3: t - 3 is 0, and must be not zero",
        ),
        (sp.sqrt(9 - t), DomainError, "at t = 10: 9 - t is -1, and must be not below zero"),
        (sp.log(t), DomainError, "at t = 0: t is 0, and must be above zero"),
        (1 / (t - 123_456), DomainError, "at t = 123456: t - 123456 is 0"),
        (sp.log((t - 123_456) ** 2), DomainError, "at t = 123456"),
        (floor_mod(7, t - 2), DomainError, "at t = 2: t - 2 is 0"),
        ((t - 2) ** sp.Rational(1, 3), DomainError, "at t = 0: t - 2 is -2"),
        (sp.Integer(10) ** 400 + t, LoweringError, "is not finite in f64"),
    ],
)
def test_refused(expr: sp.Expr, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        compile_schedule(Schedule(expr, name="bad"))


def test_an_input_that_may_be_zero_is_refused_under_a_division() -> None:
    warmup = sp.Symbol("warmup")
    with pytest.raises(DomainError, match=r"declare it: hyper\('warmup', positive=True\)"):
        compile_schedule(Schedule(t / warmup, warmup=5), GraphOptions(inputs=("warmup",)))
    with pytest.raises(
        LoweringError, match=r"'wramup' is not a hyperparameter .*did you mean 'warmup'"
    ):
        compile_schedule(Schedule(t / warmup, warmup=5), GraphOptions(inputs=("wramup",)))


def test_a_table_of_integers_is_a_table() -> None:
    counts = cf.schedules.table([k * k % 17 for k in range(300)])
    assert nodes(compile_schedule(counts)) <= 12
    assert [counts(step) for step in (0, 5, 299, 1000)] == [0, 8, 299 * 299 % 17, 299 * 299 % 17]


def test_integers_that_do_not_fit_are_added_as_floats() -> None:
    squares = Schedule(t * (t + 1) + t)
    assert [squares(step) for step in (0, 3, 10**6)] == [0, 15, 10**12 + 2 * 10**6]
    assert Schedule(sp.Integer(10) ** 30 + t)(5) == 1e30


def test_lengths_as_inputs() -> None:
    lr = WARMUP.then(cf.schedules.cosine(3e-4, 3e-5, 98_000))
    graph = compile_schedule(lr, GraphOptions(inputs=("steps_1",)))
    for step in (0, 500, 1000, 2000, 50_000, 99_000):
        inputs = {"step": np.array(step), "steps_1": np.array(1000)}
        expected = float(lr.bind(steps_1=1000).exact(step))
        assert run_evaluator(graph, inputs)["value"] == pytest.approx(expected, rel=1e-12)
        assert run_onnxruntime(graph, inputs)["value"] == pytest.approx(expected, rel=1e-12)


def test_an_even_minimum_halved_is_an_integer_exponent() -> None:
    signs = Schedule((-1) ** (sp.Min(4, 2 * t) / 2))
    assert [signs(step) for step in range(4)] == [1, -1, 1, 1]


BEYOND = {
    "mod": floor_mod(4826665561 * t, 2**31 - 1),
    "nested": floor_mod(16807000 * floor_mod(48271 * t, 2**31 - 1) + 3 * t, 2**31 - 1),
    "negative": floor_mod(3 - 10**7 * t, 1000003),
    "div": floor_div(1234567 * t + 5, 10**9),
    "product": floor_mod(t * (t + 1), 97),
    "digits": floor_mod(23641175691827 * t + 5, 250000000000000),
    "digits of a remainder": floor_mod(98765432101234 * floor_mod(t, 10**15), 3 * 10**15),
    "threshold": sp.Piecewise((1, floor_mod(10**6 * t, 1009) < 500), (2, True)),
}


@pytest.mark.parametrize("name", BEYOND)
def test_integers_beyond_the_clock_are_divided_exactly(name: str) -> None:
    schedule = Schedule(BEYOND[name])
    steps = np.array([0, 1, 5, 12345678, 2**33 + 1, 2**50 - 12345, 2**50 - 1, 2**50])
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",)))
    values = run_onnxruntime(graph, {"step": steps})["value"]
    assert values.tolist() == [float(schedule.exact(int(step))) for step in steps]


def test_an_angle_of_many_digits_is_reduced_exactly() -> None:
    turns = sp.Rational("1.89129405534616") / 20
    schedule = Schedule(sp.cos(2 * sp.pi * turns * t))
    steps = np.array([0, 1, 7, 10**9 + 7, 2**50 - 12345, 2**50])
    expected = [float(sp.N(schedule.exact(int(step)), 30)) for step in steps]
    np.testing.assert_allclose(schedule(steps), expected, rtol=0, atol=4e-16)


def test_a_constant_is_rounded_once() -> None:
    options = GraphOptions(dtype="f64", scalar_dtype="f32")
    graph = compile_schedule(cf.schedules.constant(0.1), options)
    assert run_evaluator(graph, {"step": np.array(0)})["value"] == 0.1


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_shortest_decimal_of_the_largest_float_is_that_float(dtype: str) -> None:
    largest = DType(dtype).limits.max
    decimal = sp.Rational(str(largest))
    graph = compile_schedule(Schedule(sp.Max(decimal, t)), GraphOptions(dtype=dtype))
    assert run_evaluator(graph, {"step": np.array(0)})["value"] == largest
    with pytest.raises(LoweringError, match=f"is not finite in {dtype}"):
        compile_schedule(
            Schedule(sp.Max(2 * decimal, t)), GraphOptions(dtype=dtype, scalar_dtype=dtype)
        )


def test_a_comparison_of_a_piecewise() -> None:
    """SymPy makes an ITE of it."""
    rise = sp.Piecewise((t / 10, t < 5), (1, True))
    schedule = Schedule(sp.Piecewise((2, rise >= sp.Rational(3, 10)), (3, True)))
    assert schedule.expr.has(sp.ITE)
    np.testing.assert_array_equal(schedule(np.arange(6)), [3, 3, 3, 2, 2, 2])


def test_a_division_that_floats_would_round_is_refused() -> None:
    schedule = Schedule(floor_mod(t**9, 97), name="power")
    with pytest.raises(LoweringError, match=r"t\*\*9 may reach 2.91e\+135, .*schedule 'power'"):
        compile_schedule(schedule)
