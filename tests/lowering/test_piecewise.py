"""Tables of lines: accurate at the small end of each line, and clamps are lines too."""

from fractions import Fraction
from typing import Any

import onnx
import pytest
import sympy as sp

import closedform as cf
from closedform.language import Schedule, t


def test_a_table_keeps_its_relative_accuracy_where_lines_end_near_zero() -> None:
    saw = cf.schedules.sequential([cf.schedules.linear(1, 0, 3000)] * 6)
    for tooth in range(6):
        for step in (0, 1, 2998, 2999):
            exact = float(1 - Fraction(step, 3000))
            assert saw(3000 * tooth + step) == pytest.approx(exact, rel=3e-16, abs=0)
    assert saw(18_000) == 0


@pytest.mark.parametrize("clamp", [sp.Rational(9, 2), 9])
def test_clamps_between_steps_or_at_the_last_one_are_lines_of_a_table(
    clamp: Any, tmp_path: Any
) -> None:
    ramp = Schedule(sp.Min(t, clamp) / 8)
    path = cf.schedules.sequential([ramp] * 12, [10 * k for k in range(1, 12)])
    model = cf.to_onnx(path, tmp_path / "ramps.onnx")
    assert isinstance(model, onnx.ModelProto)
    assert len(model.graph.node) <= 12
    for step in (0, 4, 5, 9, 10, 14, 15, 19, 20, 119, 500):
        assert path(step) == float(path.exact(step))
