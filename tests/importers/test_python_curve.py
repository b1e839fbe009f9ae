"""Curves of frameworks: what a plain function of the count is at every step."""

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import sympy as sp

from closedform import claims, delegation
from closedform.errors import TraceError
from closedform.importers.python.curve import Curve
from closedform.language import Schedule, t

PEAK = 0.1
"""A number of a module, which is exact as well."""
TENTH = sp.Rational(1, 10)


def trace(function: Callable[..., Any], count: sp.Expr = t, **numbers: Any) -> Curve:
    return delegation.functions().trace_curve(function, count, numbers)


def warmup(count: int, *, rate: float, steps: int) -> float:
    return rate * count / steps if count < steps else rate


def cosine(count: int, *, total: int) -> float:
    progress = min(count / total, 1)
    return PEAK * wave(progress)


def wave(progress: float) -> float:
    return (1 + math.cos(math.pi * progress)) / 2


def stairs(count: int, *, every: int, ratio: float) -> float:
    factor: float = ratio ** int(count / every)
    return PEAK * factor


def table(count: int, *, marks: tuple[int, ...]) -> float:
    return PEAK / 3.0 ** sum(count >= mark for mark in marks)


def inverse_root(count: int, *, low: float) -> float:
    return max(1 / math.sqrt(count + 1), low)


def pole(count: int, *, total: int) -> float:
    return 1 / (total - count)


def check(count: int) -> float:
    if count == 3:
        raise ValueError("the table has 3 rows")
    return math.log(5 - count)


@pytest.mark.parametrize(
    ("function", "count", "numbers", "expected"),
    [
        (warmup, t, {"rate": TENTH, "steps": 4}, sp.Piecewise((t / 40, t < 4), (TENTH, True))),
        (warmup, 8 * t + 8, {"rate": 0.1, "steps": 20}, sp.Min((t + 1) / 25, TENTH)),
        (cosine, t, {"total": 30}, (sp.cos(sp.pi * sp.Min(t / 30, 1)) + 1) / 20),
        (stairs, t, {"every": 5, "ratio": 0.5}, sp.Rational(1, 2) ** sp.floor(t / 5) / 10),
        (table, t, {"marks": (2,)}, sp.Piecewise((TENTH, t < 2), (TENTH / 3, True))),
        (inverse_root, t, {"low": 0.2}, sp.Max(TENTH * 2, 1 / sp.sqrt(t + 1))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_curve_is_an_expression_at_every_step(
    function: Callable[..., Any], count: sp.Expr, numbers: dict[str, Any], expected: sp.Expr
) -> None:
    curve = trace(function, count, **numbers)
    assert curve.end is None
    assert claims.equal(Schedule(curve.expr), expected).verify().status.value == "PROVED"


def test_an_exception_ends_a_curve() -> None:
    curve = trace(pole, total=7)
    assert (curve.end, curve.reason, curve.expr) == (7, "division by zero", 1 / (7 - sp.Min(t, 6)))
    curve = trace(check)
    assert (curve.end, curve.reason) == (3, "the table has 3 rows")


def test_an_exception_at_the_first_step_leaves_no_value() -> None:
    curve = trace(pole, total=0)
    assert (curve.cells, curve.end) == ([], 0)


def test_a_mistake_in_a_curve_is_not_the_end_of_a_run() -> None:
    with pytest.raises(TypeError, match="total"):
        trace(pole)


def test_a_loop_without_a_bound_is_refused() -> None:
    def endless(count: int) -> float:
        total = 0
        while total <= count:
            total += 1
        return total

    with pytest.raises(TraceError, match="not bounded"):
        trace(endless)


def test_a_curve_of_lines_needs_neither_numpy_nor_the_prover() -> None:
    program = """
import sys
import closedform
from closedform.language import t
closedform.delegation.functions().trace_curve(lambda count: 1 if count < 9 else count / 9, t, {})
print({"numpy", "closedform.verify"} & set(sys.modules))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "set()\n"
