"""Sums, products and powers: exact where they can be, accurate near zero, in few nodes."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.ir.ops import Op
from closedform.language import Schedule, t
from closedform.options import GraphOptions
from tests.support.engines import run_evaluator

STEPS = np.arange(2000)


def test_a_quotient_is_rounded_once() -> None:
    values = Schedule(t / (t + 3))(STEPS)
    assert np.array_equal(values, [float(Fraction(step, step + 3)) for step in range(2000)])


def test_a_line_that_is_nearly_flat_begins_at_its_constant() -> None:
    for power in range(16, 22):
        line = Schedule(sp.Rational(9, 10) + t / 10**power)
        assert line(0) == 0.9


def test_a_negative_base() -> None:
    alternating = Schedule(sp.Rational(-1, 3) ** t)
    assert [alternating(step) for step in range(3)] == pytest.approx([1, -1 / 3, 1 / 9], rel=1e-15)


def test_an_integer_that_wraps_is_not_computed_in_integers() -> None:
    clamped = Schedule(sp.Min(t * (t + 1), 10))
    # In int64 the product is -2**32 at this step.
    assert [clamped(step) for step in (0, 1, 2, 3, 2**32 - 1, 2**50)] == [0, 2, 6, 10, 10, 10]


def test_a_sum_of_negative_terms_needs_no_constant() -> None:
    graph = compile_schedule(Schedule(-sp.sqrt(t) - sp.exp(-t)))
    constants = [node for node in graph.nodes if node.op is Op.CONST]
    assert not constants


def test_integers_beyond_those_that_float32_holds_are_not_computed_in_it() -> None:
    late = Schedule(sp.Min(t, 2**30) - 2**24 - 1)
    graph = compile_schedule(late, GraphOptions(dtype="f32", scalar_dtype="f32", step_dtype="i32"))
    for step in (2**24 + 1, 2**24 + 3, 2**24 + 1001):
        value = run_evaluator(graph, {"step": np.array(step, np.int32)})["value"]
        assert value == step - 2**24 - 1


PRECISIONS = {
    "float64": GraphOptions(dtype="f64"),
    "float32": GraphOptions(dtype="f32", scalar_dtype="f32"),
    "double-float": GraphOptions(dtype="f32", scalar_dtype="f32", precision="double-float"),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("seed", range(8))
def test_a_decay_to_zero_ends_at_positive_zero(seed: int, precision: str) -> None:
    # SymPy takes the root apart, and the first number of the second sum is not rational.
    draws = np.random.default_rng(seed)
    length, start = (int(number) for number in draws.integers(2, 10**6, 2))
    elapsed = sp.Min(sp.Max(t - start, 0), length)
    factor = sp.sqrt(int(draws.integers(2, 100))) / 3
    root = 1 - sp.sqrt(elapsed / sp.Integer(length))
    line = sp.expand(factor * (1 - elapsed / sp.Integer(length)))
    for expr in (root, line, 1 - elapsed / sp.Integer(length)):
        graph = compile_schedule(Schedule(expr), PRECISIONS[precision])
        for step in (start + length, start + length + 1, 2**31 - 1):
            value = run_evaluator(graph, {"step": np.array(step)})["value"]
            assert value == 0, (expr, step)
            assert not np.signbit(value), (expr, step)


def test_a_number_times_a_root_is_one_root() -> None:
    graph = compile_schedule(Schedule(sp.sqrt(6) * sp.sqrt(t) / 1200), GraphOptions())
    assert [node.op for node in graph.nodes if node.operands] == [Op.CAST, Op.DIV, Op.SQRT]
    rational = compile_schedule(Schedule(3 * sp.sqrt(t)), GraphOptions())
    assert [node.op for node in rational.nodes if node.operands] == [Op.CAST, Op.SQRT, Op.MUL]
