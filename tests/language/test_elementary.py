"""The table of elementary functions, against the libraries that it names."""

import math
from itertools import product

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.language.elementary import ELEMENTARY, angle

POINTS = (-3.7, -1.0, -0.25, 0.0, 0.5, 1.0, 2.75, 11.0)
ROUNDING = 1e-13
"""Relative: SymPy evaluates to 30 digits, and tan(11) has a condition number of 2500."""


def exact(name: str, point: float) -> float:
    return float(sp.N(ELEMENTARY[name].form(sp.Float(point, 40)), 30))


@pytest.mark.parametrize("name", ELEMENTARY)
@pytest.mark.parametrize("point", POINTS)
def test_forms_and_domains_are_the_libraries(name: str, point: float) -> None:
    function = ELEMENTARY[name]
    with np.errstate(all="ignore"):
        values = [
            float(getattr(module, native)(convert(point)))
            for module, native, convert in (
                (np, function.numpy, np.float64),
                (torch, function.torch, lambda x: torch.tensor(x, dtype=torch.float64)),
            )
            if native
        ]
    assert values
    if function.is_outside(point):
        assert not any(math.isfinite(value) for value in values)
        if function.math:
            with pytest.raises(ValueError, match=r"domain|expected"):
                getattr(math, function.math)(point)
        return
    if function.math:
        values.append(getattr(math, function.math)(point))
    assert values == pytest.approx([exact(name, point)] * len(values), rel=ROUNDING, abs=1e-300)


@pytest.mark.parametrize("name", [key for key, function in ELEMENTARY.items() if function.math])
def test_math_and_numpy_have_the_same_expression(name: str) -> None:
    function = ELEMENTARY[name]

    def of_math(step: int) -> float:
        return float(getattr(math, function.math)(step / 7 + 1))

    def of_numpy(step: int) -> float:
        return float(getattr(np, function.numpy)(step / 7 + 1))

    form = function.form(cf.t / 7 + 1)
    for traced in map(cf.from_python, (of_math, of_numpy)):
        assert sp.simplify(traced.expr - form) == 0


@pytest.mark.parametrize("kind", [sp.tan, sp.atan, sp.sinh, sp.cosh, sp.tanh])
def test_classes_of_sympy_are_lowered_by_the_table(kind: type[sp.Expr]) -> None:
    schedule = cf.Schedule(kind(cf.t / 7))
    assert schedule(3) == pytest.approx(exact(kind.__name__, 3 / 7), rel=1e-6)  # float32


COORDINATES = (-1e300, -7.5, -1.0, -1e-300, 0.0, 1e-300, 0.25, 1.0, 1e300)


@pytest.mark.parametrize(("y", "x"), [*product(COORDINATES, COORDINATES)])
def test_an_angle_is_that_of_libraries(y: float, x: float) -> None:
    exact_angle = float(sp.N(angle(sp.Rational(y), sp.Rational(x)), 30))
    of_torch = torch.atan2(*torch.tensor([[y], [x]], dtype=torch.float64)).item()
    for library in (math.atan2(y, x), float(np.arctan2(y, x)), of_torch):
        assert exact_angle == pytest.approx(library, rel=1e-15, abs=0)


def test_an_angle_is_a_schedule_in_every_quadrant() -> None:
    def turn(step: int) -> float:
        return math.atan2(abs(step - 6) - 3, step - 4)

    schedules = cf.from_python(turn), cf.Schedule(sp.atan2(sp.Abs(cf.t - 6) - 3, cf.t - 4))
    for schedule in schedules:
        values = [schedule(step) for step in range(12)]
        assert values == pytest.approx([turn(step) for step in range(12)], rel=1e-6, abs=1e-7)
