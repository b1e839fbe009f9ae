"""Double-float: error-free where it says so, half an ulp at the end, float32 and integers alone."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, note, reject, settings

from closedform.compiler import compile_schedule
from closedform.errors import DomainError, ExportError, LoweringError
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Builder, Graph, Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.language import Schedule, floor_mod, hyper, t
from closedform.lowering.double_float.functions import (
    arctangent,
    logarithm,
    power_of_two,
    sine_of_quarter,
)
from closedform.lowering.pair_arithmetic import Arithmetic, Number, halves
from closedform.options import GraphOptions
from closedform.recipes import load_schedules
from closedform.verify.certificates.certificate import certify
from tests.properties.test_random_expressions import VALUES, agrees, make
from tests.reference.records import CONFIGS
from tests.support import enclosures
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch
from tests.support.expressions import reals
from tests.support.sampling import examples
from tests.support.study import STUDY, compile_double_float, cost, study_steps
from tests.test_library import SCHEDULES

# The guarantee of the double-float lowering, in ulp of a normal value; the study's bar is 0.51.
BAR = 0.501

Build = Callable[[Arithmetic, Number, Number], list[Value]]


def run_arithmetic(build: Build, *columns: Array) -> list[Array]:
    """Runs nodes on two pairs of float32, given as four columns; the columns of what they give."""
    builder = Builder("pairs")
    names = ("a", "b", "c", "d")
    a, b, c, d = (builder.input(name, TensorType(DType.F32, ("n",)), Role.HYPER) for name in names)
    values = build(Arithmetic(builder), Number(a, b), Number(c, d))
    for place, value in enumerate(values):
        builder.output(f"r{place}", value)
    results = evaluate(builder.build(), dict(zip(names, columns, strict=True)))
    return [results[f"r{place}"] for place in range(len(values))]


def pairs(count: int, seed: int, low: float, high: float) -> tuple[Array, Array]:
    """Random normalised pairs of either sign, their sizes between powers of two."""
    rng = np.random.default_rng(seed)
    size = np.exp2(rng.uniform(low, high, count)) * rng.choice([-1, 1], count)
    first = size.astype(np.float32)
    second = (np.spacing(first) / 2 * rng.uniform(-1, 1, count)).astype(np.float32)
    return first, second


def fractions(*columns: Array) -> list[Fraction]:
    """The exact sum of the columns, row by row."""
    return [
        sum((Fraction(float(x)) for x in row), Fraction(0)) for row in zip(*columns, strict=True)
    ]


# --- error-free transforms -------------------------------------------------------------------


def test_sums_and_products_of_two_floats_lose_nothing() -> None:
    a, _ = pairs(4000, 1, -30, 30)
    c, _ = pairs(4000, 2, -30, 30)
    zero = np.zeros_like(a)
    sums = run_arithmetic(lambda math, x, y: [*math.two_sum(x.high, y.high)], a, zero, c, zero)
    assert np.array_equal(sums[0], a + c)
    assert fractions(*sums) == fractions(a, c)
    products = run_arithmetic(
        lambda math, x, y: [*math.two_product(x.high, y.high)], a, zero, c, zero
    )
    assert np.array_equal(products[0], a * c)
    exact = [x * y for x, y in zip(fractions(a), fractions(c), strict=True)]
    assert fractions(*products) == exact


def test_a_fast_sum_of_a_larger_and_a_smaller_float_loses_nothing() -> None:
    a, _ = pairs(4000, 3, 0, 30)
    c, _ = pairs(4000, 4, -30, 0)
    zero = np.zeros_like(a)
    sums = run_arithmetic(lambda math, x, y: [*math.fast_two_sum(x.high, y.high)], a, zero, c, zero)
    assert fractions(*sums) == fractions(a, c)


def test_halves_of_a_float_have_twelve_bits() -> None:
    a, _ = pairs(4000, 5, -30, 30)
    zero = np.zeros_like(a)
    high, low = run_arithmetic(lambda math, x, _: [*math.split(x.high)], a, zero, a, zero)
    assert fractions(high, low) == fractions(a)
    for part in (high, low):
        mantissa, _ = np.frexp(part)
        assert np.array_equal(mantissa * 2**12, np.round(mantissa * 2**12))


# Bounds in units of 2**-48, of Joldes, Muller and Popescu (see the module); the root by Newton's
# step from a rounded root is within 4, with an ulp of the engine's root to spare.
@pytest.mark.parametrize(
    ("name", "build", "truth", "bound"),
    [
        ("add", lambda m, x, y: m.add(x, y), lambda x, y: x + y, 3),
        ("multiply", lambda m, x, y: m.multiply(x, y), lambda x, y: x * y, 7),
        ("divide", lambda m, x, y: m.divide(x, y), lambda x, y: x / y, 15),
    ],
)
def test_pairs_are_as_near_as_the_paper_says(
    name: str, build: Any, truth: Any, bound: float
) -> None:
    a, c = pairs(4000, 6, -20, 20), pairs(4000, 7, -20, 20)
    results = run_arithmetic(lambda m, x, y: both(build(m, x, y)), *a, *c)
    exact = [truth(x, y) for x, y in zip(fractions(*a), fractions(*c), strict=True)]
    for got, wanted in zip(fractions(*results), exact, strict=True):
        assert abs(got - wanted) <= abs(wanted) * bound / 2**48, name


def both(number: Number) -> list[Value]:
    assert number.low is not None
    assert not number.scale
    return [number.high, number.low]


def test_the_root_of_a_pair() -> None:
    a, low = pairs(2000, 8, -20, 20)
    a, low = np.append(abs(a), np.float32(0)), np.append(low, np.float32(0))
    results = run_arithmetic(lambda m, x, _: both(m.square_root(x)), a, low, a, low)
    for got, square in zip(fractions(*results), fractions(a, low), strict=True):
        assert abs(got**2 - square) <= square * 8 / 2**48


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        (DType.I32, 2**31 - 1),
        (DType.I32, 2**31 - 2**7),
        (DType.I32, 2**24 + 300),
        (DType.I64, 2**47),
        (DType.I64, 2**24 + 300),
    ],
)
def test_integers_are_pairs_without_loss(dtype: DType, largest: int) -> None:
    rng = np.random.default_rng(9)
    near = [largest - k for k in range(200)] + [2**24 + k for k in range(-9, 9)]
    values = np.array([*near, 0, 1, *rng.integers(0, largest, 2000)], dtype.numpy)
    builder = Builder("integers")
    step = builder.input("step", TensorType(dtype, ("n",)), Role.STEP)
    number = Arithmetic(builder).from_integer(step, largest)
    for name, value in zip(("high", "low"), both(number), strict=True):
        builder.output(name, value)
    results = evaluate(builder.build(), {"step": values})
    assert fractions(results["high"], results["low"]) == [Fraction(int(value)) for value in values]
    assert np.array_equal(results["high"], results["high"] + results["low"])


@pytest.mark.parametrize(
    "number", [sp.Rational(1, 3), sp.pi, Fraction(2**24 + 1), Fraction(1) + Fraction(1, 2**24)]
)
def test_a_constant_is_the_nearest_float_and_the_rest(number: Any) -> None:
    high, low = halves(number)
    exact = mpmath.mpf(number.numerator) / number.denominator if number != sp.pi else mpmath.pi
    assert abs(exact - high) <= np.spacing(np.float32(high)) / 2
    assert abs(exact - high - low) <= abs(exact) * 2.0**-48


# --- functions -------------------------------------------------------------------------------

# In units of the result, or of 1 for the logarithm: what the module states for its plain terms.
NEAR = 2.0**-39


@pytest.mark.parametrize(
    ("name", "build", "truth", "low", "high"),
    [
        ("logarithm", lambda m, x: logarithm(m, x), lambda x: mpmath.log(x, 2), -100, 100),
        ("power", lambda m, x: power_of_two(m, x, -130, 130), lambda x: mpmath.power(2, x), -9, 6),
        (
            "sine",
            lambda m, x: sine_of_quarter(m, x, 3),
            lambda x: mpmath.sin(mpmath.pi / 6 * x),
            -40,
            1.58,
        ),
        ("arctangent", arctangent, mpmath.atan, -70, 100),
    ],
)
def test_functions_beside_mpmath(
    name: str, build: Any, truth: Any, low: float, high: float
) -> None:
    a, b = pairs(1500, 10, low, high)
    b = b * np.sign(a)
    a = abs(a)
    if name in ("power", "arctangent"):
        sign = np.random.default_rng(11).choice([-1, 1], len(a)).astype(np.float32)
        a, b = a * sign, b * sign
    results = run_arithmetic(lambda m, x, _: both(m.settle(build(m, x))), a, b, a, b)
    with mpmath.workprec(120):
        for got, x in zip(fractions(*results), fractions(a, b), strict=True):
            wanted = truth(mpmath.mpf(x.numerator) / x.denominator)
            unit = max(1, abs(wanted)) if name == "logarithm" else abs(wanted)
            error = abs(mpmath.mpf(got.numerator) / got.denominator - wanted)
            assert error <= unit * NEAR, (float(x), float(error / unit))


def test_the_logarithm_of_one_is_zero_and_near_it_keeps_its_digits() -> None:
    a = np.float32(1) + np.arange(-50, 51).astype(np.float32) * np.float32(2.0**-20)
    zero = np.zeros_like(a)
    high, low = run_arithmetic(lambda m, x, _: both(logarithm(m, x)), a, zero, a, zero)
    assert high[50] == low[50] == 0
    with mpmath.workprec(120):
        for h, rest, x in zip(high, low, a, strict=True):
            wanted = mpmath.log(mpmath.mpf(float(x)), 2)
            assert abs(mpmath.mpf(float(h)) + float(rest) - wanted) <= abs(wanted) * 2.0**-35


# --- the ten schedules of the study ----------------------------------------------------------

# Nodes that compute: what docs/numerics.md states.
COST = {
    "linear": 30,
    "cosine_decay": 146,
    "cosine_annealing": 147,
    "decay_096": 148,
    "decay_099999": 148,
    "inverse_sqrt": 52,
    "polynomial_09": 276,
    "wsd_sqrt": 109,
    "inverse_time": 50,
    "step": 131,
}


def optimized(graph: Graph, inputs: dict[str, Array]) -> dict[str, Array]:
    return run_onnxruntime(graph, inputs, is_optimized=True)


ENGINES: dict[str, Callable[..., dict[str, Array]]] = {
    "evaluator": run_evaluator,
    "onnxruntime": run_onnxruntime,
    "onnxruntime, optimised": optimized,
    "torch": run_torch,
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", STUDY)
def test_half_an_ulp_up_to_two_to_the_31_in_every_engine(name: str) -> None:
    schedule = STUDY[name]
    graph = compile_double_float(schedule)
    steps = study_steps()
    results = {engine: run(graph, {"step": steps})["value"] for engine, run in ENGINES.items()}
    # Every operation is one that IEEE 754 prescribes, or is corrected: the engines are one engine.
    for values in results.values():
        assert np.array_equal(values, results["evaluator"])
    found = certify(schedule, graph, steps, engine=lambda s: run_torch(graph, {"step": s})["value"])
    assert found.measured.ulp.value <= BAR
    assert found.measured.rounded_share >= 0.9999


@pytest.mark.parametrize("name", STUDY)
def test_float32_and_integers_alone_at_a_stated_cost(name: str) -> None:
    graph = compile_double_float(STUDY[name])
    assert {node.type.dtype for node in graph.nodes} <= {
        DType.F32,
        DType.I64,
        DType.I32,
        DType.BOOL,
    }
    assert cost(graph) == COST[name]


@pytest.mark.parametrize("name", STUDY)
def test_a_step_of_i32_needs_no_wider_integer(name: str) -> None:
    wide, narrow = (compile_double_float(STUDY[name], step_dtype=d) for d in ("i64", "i32"))
    assert {node.type.dtype for node in narrow.nodes} <= {DType.F32, DType.I32, DType.BOOL}
    steps = study_steps()
    values = run_onnxruntime(narrow, {"step": steps.astype(np.int32)})["value"]
    # The error of these values is measured above.
    assert np.array_equal(values, run_evaluator(wide, {"step": steps})["value"])


def test_fast_mathematics_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that reassociates makes zero of the error terms: then the bar does not hold."""

    def two_product(self: Arithmetic, a: Value, b: Value) -> tuple[Value, Value]:
        return self.emit(Op.MUL, a, b), self.single(0.0)

    monkeypatch.setattr(Arithmetic, "two_product", two_product)
    for name in ("linear", "cosine_annealing", "inverse_time", "polynomial_09"):
        schedule = STUDY[name]
        found = certify(schedule, compile_double_float(schedule), study_steps())
        assert found.measured.ulp.value > 0.51, name


# --- the library, the configs, and random expressions ----------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_of_the_library(name: str) -> None:
    schedule = SCHEDULES[name]()
    found = certify(schedule, compile_double_float(schedule), range(200), engine="onnxruntime")
    assert found.measured.ulp.value <= BAR
    assert found.measured.rounded == found.measured.steps


@pytest.mark.parametrize("path", CONFIGS[::4], ids=lambda path: str(path.stem))
def test_schedules_of_configs(path: Any) -> None:
    schedules, _ = load_schedules(path)
    for schedule in schedules.values():
        found = certify(schedule, compile_double_float(schedule), range(0, 200_000, 97))
        assert found.measured.ulp.value <= BAR


@pytest.mark.parametrize(
    "expr",
    [(-1) ** t, 2 * (-1) ** t + t, sp.Rational(-9, 10) ** t, sp.Integer(-3) ** (-t)],
    ids=str,
)
def test_whole_powers_of_numbers_below_zero(expr: sp.Expr) -> None:
    schedule = Schedule(expr, name="alternating")
    found = certify(schedule, compile_double_float(schedule), range(60), engine="onnxruntime")
    assert found.measured.ulp.value <= BAR
    assert found.measured.rounded == 60


STEPS = np.array([*range(12), 29, 30, 31, 39, 40, 41, 81, 1000, 2**24 + 1], dtype=np.int64)


@given(reals(2))
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_random_expressions(expr: Any) -> None:
    note(str(expr))
    schedule = make(expr)
    try:
        graph = compile_double_float(schedule)
    except LoweringError as error:
        if "not finite in f32" not in error.what:
            raise
        reject()
    results = {name: run(graph, {"step": STEPS})["value"] for name, run in ENGINES.items()}
    for values in results.values():
        assert np.array_equal(values, results["evaluator"])
    for place, step in enumerate(STEPS):
        expected = enclosure_of_pairs(expr, int(step))
        if expected is not None:
            value = results["evaluator"][place]
            assert agrees(expected, value), (int(step), value, expected)


# The possible loss of 48 bits: 8 by the operations of an expression, as with float64.
PAIR_BITS = 38


def enclosure_of_pairs(expr: Any, step: int) -> Any:
    """Encloses results of 48 bits and one rounding to float32; None if undecided."""
    before, enclosures.BITS = enclosures.BITS, PAIR_BITS
    try:
        found = enclosures.enclosure(sp.sympify(expr), {t: Fraction(step), **VALUES})
    except (enclosures.UndecidedError, ZeroDivisionError):
        return None
    finally:
        enclosures.BITS = before
    return found + flint.arb(0, abs(found).upper() * 2.0**-24 + 2.0**-149)


def test_a_condition_on_pairs_is_decided_by_their_low_parts() -> None:
    """The two sides differ from step 10 on, by less than a float32 would show."""
    close = sp.Rational(1, 3) + sp.Rational(1, 10**12) * t
    mark = sp.Rational(1, 3) + sp.Rational(1, 10**11)
    for condition, first in ((close < mark, 10), (close <= mark, 11), (sp.Not(close > mark), 11)):
        schedule = Schedule(sp.Piecewise((1, sp.And(condition, close < 1 + sp.sqrt(t))), (2, True)))
        values = run_evaluator(compile_double_float(schedule), {"step": np.arange(20)})["value"]
        assert list(values) == [1] * first + [2] * (20 - first)


def test_hyperparameters_may_be_inputs() -> None:
    peak, warmup = hyper("peak", positive=True), hyper("warmup", integer=True, positive=True)
    schedule = Schedule(peak * sp.Min(t, warmup) / warmup, name="warm", peak=0.1, warmup=30)
    graph = compile_double_float(schedule, inputs=("peak", "warmup"))
    steps = np.arange(40)
    inputs: dict[str, Array] = {
        "step": steps,
        "peak": np.array(0.1, np.float32),
        "warmup": np.array(30, np.int64),
    }
    exact = [Fraction(float(np.float32(0.1))) * min(int(s), 30) / 30 for s in steps]
    wanted = np.array([float(value) for value in exact]).astype(np.float32)
    assert np.array_equal(run_onnxruntime(graph, inputs)["value"], wanted)


def test_a_schedule_without_the_step_has_its_shape() -> None:
    values = run_onnxruntime(
        compile_double_float(Schedule(sp.Rational(1, 3))), {"step": np.arange(4)}
    )
    assert list(values["value"]) == [np.float32(1 / 3)] * 4


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (
            floor_mod(sp.pi * t, sp.Rational(3, 2)),
            "FloorMod(pi*t, 3/2) has no double-float form: it is not of integers "
            "(schedule 's'): compile with precision='single'",
        ),
        (
            sp.asinh(t),
            "asinh has no double-float form, in asinh(t) (schedule 's'): known are Abs, Add, "
            "Exponential, FloorDiv, FloorMod, Max, Min, Mul, Piecewise, Pow, SafeOperand, atan, "
            "cos, exp, floor, log, sin; compile with precision='single'",
        ),
        (
            (sp.Rational(1, 3) - sp.sqrt(t)) ** 35,
            "(1/3 - sqrt(t))**35 has no double-float form: its base may be below zero "
            "(schedule 's'): write it with whole exponents, or compile with precision='single'",
        ),
        (sp.Integer(10) ** 40 * t, f"the constant {10**40} is not finite in f32 (schedule 's')"),
    ],
)
def test_unsupported_classes_are_refused(expr: Any, message: str) -> None:
    with pytest.raises(LoweringError) as caught:
        compile_double_float(Schedule(expr, name="s"))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"precision": "triple"},
            "precision must be single or double-float, got 'triple'",
        ),
        (
            {"precision": "double-float"},
            "precision 'double-float' computes in float32, got dtype f64: "
            'give dtype="f32" and scalar_dtype="f32"',
        ),
        (
            {"precision": "double-float", "dtype": "f32"},
            "precision 'double-float' computes in float32, got scalar_dtype f64: "
            'give dtype="f32" and scalar_dtype="f32"',
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ExportError) as caught:
        compile_schedule(Schedule(t / 7, name="s"), GraphOptions(**options))
    assert str(caught.value) == message


def test_a_value_that_is_not_finite_is_refused_as_elsewhere() -> None:
    with pytest.raises(DomainError, match="t = 5"):
        compile_double_float(Schedule(1 / (t - 5), name="s"))
