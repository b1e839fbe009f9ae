"""Floors and remainders of combinations of integers: exact, in parts that fit."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.errors import LoweringError
from closedform.ir.types import LAST_STEP, DType
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.language.exact import value_at
from closedform.lowering import simplify as simplification
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain, clock_domain, largest_integer
from closedform.lowering.arithmetic import fits_line
from closedform.lowering.double_float.context import DoubleFloat
from closedform.lowering.double_float.lower import HANDLERS
from closedform.lowering.pair_arithmetic import Number
from closedform.lowering.simplify import simplify
from closedform.options import GraphOptions
from tests.support.engines import run_evaluator, run_onnxruntime
from tests.support.graph_kinds import KINDS

DOMAINS = {dtype: clock_domain(last=last) for dtype, last in LAST_STEP.items()}
CENT, THIRD = sp.Rational(1, 100), sp.Rational(1, 3)


def drawn_combination(rng: random.Random) -> sp.Expr:
    """A rational combination of the step and of a remainder, below 2**200."""
    factor = sp.Rational(rng.randrange(-(2**60), 2**60), rng.choice([1, 1, 30, 10**9, 2**40]))
    constant = sp.Rational(rng.randrange(-(10**12), 10**12), 10 ** rng.randrange(14))
    cycle = rng.choice([0, 0, 1, -(2**40)]) * floor_mod(t, 17)
    return rng.choice([factor, sp.Rational(1, rng.randrange(1, 99))]) * t + constant + cycle


def drawn_quotient(rng: random.Random) -> sp.Expr:
    divisor = sp.Integer(rng.choice([1, 7, 97, 1000, 2**29 - 3, rng.randrange(2, 2**60)]))
    kind = rng.choice([floor_div, floor_mod])
    return kind(drawn_combination(rng), divisor * rng.choice([1, 1, -1]))


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.sample(every=3)
def test_a_quotient_in_parts_has_the_exact_value(seed: int) -> None:
    rng = random.Random(seed)
    expr = drawn_quotient(rng)
    for dtype, domain in DOMAINS.items():
        last = LAST_STEP[dtype]
        simple = simplify(expr, domain, "a test")
        for step in (0, 1, 29, 30, 31, last - 1, last, *(rng.randrange(last) for _ in range(3))):
            values: dict[sp.Symbol, sp.Expr] = {t: sp.Integer(step)}
            assert value_at(simple, values) == value_at(expr, values), (seed, expr, simple, step)


def is_within(expr: sp.Expr, domain: Domain) -> bool:
    """Whether an integer and all in it fit the clock's dtype."""
    size = interval(expr, domain).absolute().high
    return size <= largest_integer(domain) and all(is_within(arg, domain) for arg in expr.args)


GUARDS = [
    sp.Rational(1, divisor) * t + sp.Rational(sign, 10**digits)
    for divisor in (7, 30, 97, 1000)
    for digits in (5, 6, 9, 10, 12)
    for sign in (1, -1)
]


@pytest.mark.parametrize("dtype", LAST_STEP)
@pytest.mark.parametrize("argument", GUARDS, ids=str)
def test_a_guard_against_rounding_leaves_small_integers(argument: sp.Expr, dtype: DType) -> None:
    assert is_within(simplify(sp.floor(argument), DOMAINS[dtype], "a test"), DOMAINS[dtype])


@pytest.mark.parametrize(
    ("expr", "simple"),
    [
        (sp.floor(t / 30 + sp.Rational(1, 10**12)), floor_div(t, 30)),
        (sp.floor((t + sp.Rational(1, 10**5)) / 97), floor_div(t, 97)),
        (sp.floor(1 + t / 100), floor_div(t, 100) + 1),
        (floor_mod(t + CENT, 30), floor_mod(t, 30) + CENT),
        (sp.floor((2**40 * t + 5) / 2**40), t),
        (floor_div(10**8 * sp.Min(2, t) + 1, 10**12), sp.Integer(0)),
    ],
    ids=str,
)
def test_common_divisors_are_taken_out_of_32_bits(expr: sp.Expr, simple: sp.Expr) -> None:
    assert simplify(expr, DOMAINS[DType.I32], "a test") == simple


CYCLE = sp.floor(1 + t / 100)

# Sums of integers that fit one by one and not together, guards, roundings to decimals.
SUMS: Mapping[str, Any] = {
    "triangular": CENT + 9 * CENT * sp.Max(0, 1 - sp.Abs(t / 50 - 2 * CYCLE + 1)),
    "seven tenths": sp.floor(10 * t / 7),
    "shifted": sp.floor(t + sp.Rational(3, 2)),
    "rounded": sp.floor(100 * t / 7 + sp.Rational(1, 2)) * CENT,
    "steps and a line": floor_div(t, 31) / 1000 - sp.Rational(3, 2 * 10**6) * t,
    "fine": floor_mod(t, 26) + sp.floor(10000 * t),
    "guard": sp.Rational(1, 2) ** sp.Min(sp.floor(t / 30 + sp.Rational(1, 10**12)), 20),
    "falling": floor_div(sp.Rational(1, 10**4) - t, sp.Rational(3, 10)),
    "remainder of a clamped step": floor_mod(5 * sp.Min(1000, t + 1), 96),
    "quotient of a clamped step": floor_div(7 * sp.Min(1000, t + 1) - 3, -96),
    "large divisor": floor_div(3 * t + 1, 2**28 - 57) + floor_div(-(t + 2**20), 57 - 2**28),
}
STEPS = np.array([*range(12), 29, 30, 31, 99, 100, 101, 199, 200, 2**20, 2**24 + 1, 2**31 - 1])
# Relative to the value: of float64, float32, and of pairs that cancel 2**31 to a value of 0.01.
BOUNDS = {"f64": 1e-9, "f32": 2e-6, "pairs": 2e-6}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_floors_and_remainders_in_six_kinds_of_graphs(name: str, kind: str) -> None:
    schedule = Schedule(SUMS[name])
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",), **KINDS[kind]))
    steps = STEPS.astype(graph.inputs[0].type.dtype.numpy)
    exact = np.array([float(schedule.exact(int(step))) for step in STEPS])
    for run in (run_evaluator, run_onnxruntime):
        values = run(graph, {"step": steps})["value"]
        near = np.abs(values - exact) <= BOUNDS[kind.split()[0]] * np.maximum(np.abs(exact), CENT)
        assert near.all(), (steps[~near], values[~near], exact[~near])


def test_a_sum_whose_line_does_not_fit_is_added_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As lowering was before: each multiple was asked for by itself, and the line came back."""
    monkeypatch.setattr(
        "closedform.lowering.double_float.lower.fits_line",
        lambda low, terms, domain: all(fits_line(low, [term], domain) for term in terms),
    )
    with pytest.raises(LoweringError, match="may exceed i32"):
        compile_schedule(Schedule(SUMS["fine"]), GraphOptions(**KINDS["pairs i32"]))


def test_a_handler_that_comes_back_to_its_expression_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def come_back(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
        return low.number(expr, domain)

    monkeypatch.setitem(HANDLERS, sp.Abs, come_back)
    with pytest.raises(LoweringError) as caught:
        compile_schedule(Schedule(sp.Abs(t / 3 - 5), name="s"), GraphOptions(**KINDS["pairs i64"]))
    assert str(caught.value) == (
        "the lowering of Abs(t/3 - 5) comes back to itself (schedule 's'): "
        "report it: a handler of its operands must make them simpler"
    )


def test_a_definition_has_no_function_with_a_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        simplification._DEFINITIONS,
        sp.sign,
        lambda x: sp.sign(x + 1),
    )
    with pytest.raises(LoweringError) as caught:
        simplify(sp.sign(sp.cos(t)), DOMAINS[DType.I64], "a test")
    assert str(caught.value) == (
        "a definition contains functions that have one: sign(cos(t) + 1) (a test): "
        "report it: write it with functions that have none"
    )


@pytest.mark.parametrize("divisor", [2, 3, 10_000, 2**20, -7])
def test_a_dividend_near_the_least_integer_does_not_wrap(divisor: int) -> None:
    """ONNX has no floor division: its files divide ``a - a mod b``."""
    quotients = floor_div(-t, divisor) + floor_div(1 - t, divisor) / 4
    schedule = Schedule(quotients)
    steps = np.array([0, 1, 2**30, 2**31 - 2, 2**31 - 1], np.int32)
    exact = [float(schedule.exact(int(step))) for step in steps]
    graph = compile_schedule(schedule, GraphOptions(step_dtype="i32", step_shape=("n",)))
    assert run_onnxruntime(graph, {"step": steps})["value"].tolist() == exact


@pytest.mark.parametrize(
    ("divisor", "kind", "message"),
    [
        (
            2**45 + 1,
            "pairs i32",
            "2147483647*t + 1 may exceed 2**42, up to which pairs divide integers exactly, in "
            "FloorDiv(2147483647*t + 1, 35184372088833) (schedule 's'): write it as sums and "
            "products of floor_mod(…, m) by the same m, or compile with precision='single'",
        ),
        (
            2**62 + 1,
            "f64 i64",
            "2147483647*t + 1 may reach 2.42e+24, which no integer of the graph holds, in "
            "FloorDiv(2147483647*t + 1, 4611686018427387905) (schedule 's'): write it as sums and "
            "products of floor_mod(…, m) by the same m",
        ),
    ],
)
def test_quotients_of_integers_that_no_number_holds_are_refused(
    divisor: int, kind: str, message: str
) -> None:
    schedule = Schedule(floor_div((2**31 - 1) * t + 1, divisor), name="s")
    with pytest.raises(LoweringError) as caught:
        compile_schedule(schedule, GraphOptions(**KINDS[kind]))
    assert str(caught.value) == message
