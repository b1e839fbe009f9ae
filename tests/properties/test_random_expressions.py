"""Random expressions mean the same to arb, the evaluator, onnxruntime and torch."""

from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, note, reject, settings
from hypothesis import strategies as st

from closedform.compiler import compile_schedule
from closedform.errors import DomainError
from closedform.ir.text import parse_graph, print_graph
from closedform.language import Schedule, t
from closedform.options import GraphOptions
from tests.support.backends import INSTALLED
from tests.support.enclosures import UndecidedError, enclosure
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch
from tests.support.expressions import HYPERS, reals
from tests.support.sampling import examples

STEPS = np.array([*range(22), 29, 30, 31, 39, 40, 41, 81, 1000, 2**31 + 7], dtype=np.int64)
VALUES = {HYPERS[0]: Fraction(3, 10), HYPERS[1]: Fraction(-7, 4)}

relaxed = settings(
    max_examples=examples(300),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def agrees(expected: Any, value: float) -> bool:
    """Whether an enclosure, widened by the subnormal range, contains the value."""
    widened = expected + flint.arb(0, 1e-300)
    return bool(np.isfinite(value)) and bool(widened.contains(flint.arb(float(value))))


def make(expr: Any) -> Schedule:
    expr = sp.sympify(expr)
    used = {symbol.name for symbol in expr.free_symbols}
    values = {s.name: sp.Rational(v.numerator, v.denominator) for s, v in VALUES.items()}
    return Schedule(expr, **{name: value for name, value in values.items() if name in used})


@given(reals(3), st.booleans())
@relaxed
def test_engines_agree(expr: Any, are_inputs: bool) -> None:
    note(str(expr))
    schedule = make(expr)
    names = tuple(schedule.hyperparameters) if are_inputs else ()
    # Every drawn expression is defined at every step, so a refusal is a fault too, unless an input
    # that may be any number stands where intervals cannot show it to be legal.
    try:
        graph = compile_schedule(schedule, GraphOptions(step_shape=("n",), inputs=names))
    except DomainError as error:
        if not (names and error.hint and error.hint.startswith("declare it")):
            raise
        reject()
    note(f"{expr}\n{print_graph(graph)}")
    assert parse_graph(print_graph(graph)) == graph
    numbers = {name: np.array(float(schedule.hyperparameters[name])) for name in names}
    inputs = {"step": STEPS, **numbers}
    results = {
        "evaluator": run_evaluator(graph, inputs)["value"],
        "onnxruntime": run_onnxruntime(graph, inputs)["value"],
    }
    if "torch" in INSTALLED:
        results["torch"] = run_torch(graph, inputs)["value"]
    for place, step in enumerate(STEPS):
        try:
            expected = enclosure(sp.sympify(expr), {t: Fraction(int(step)), **VALUES})
        except (UndecidedError, ZeroDivisionError):
            continue
        for engine, values in results.items():
            assert agrees(expected, values[place]), (engine, int(step), values[place], expected)


@pytest.mark.parametrize("wrong", ["add", "min"])
def test_a_planted_fault_is_seen(wrong: str) -> None:
    expr = sp.Min(t / 7, 3) + sp.cos(sp.pi * t / 9)
    fault = {"add": expr + sp.Rational(1, 10**9), "min": sp.Max(t / 7, 3) + sp.cos(sp.pi * t / 9)}
    values = run_evaluator(
        compile_schedule(Schedule(fault[wrong]), GraphOptions(step_shape=("n",))), {"step": STEPS}
    )
    truth = [enclosure(expr, {t: Fraction(int(step))}) for step in STEPS]
    assert not all(agrees(b, v) for b, v in zip(truth, values["value"], strict=True))
