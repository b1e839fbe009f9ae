"""Guard where intervals show nothing: operands are replaced outside of their branch."""

import numpy as np
import pytest
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.errors import DomainError
from closedform.language import Schedule, floor_mod, t
from closedform.language.exact import value_at
from closedform.lowering.analysis.annotate import interval, is_integral
from closedform.lowering.analysis.domain import clock_domain
from closedform.lowering.guard import guard
from closedform.lowering.safe_operand import SafeOperand
from closedform.options import GraphOptions
from tests.support.engines import run_evaluator, run_onnxruntime

CYCLE = floor_mod(t, 3)
LEFT = 7 - t

TOTAL = {
    # The branches before it, and those around it, keep the operand from zero.
    "after": sp.Piecewise((5, sp.Eq(CYCLE, 0)), (1 / CYCLE, True)),
    "inside": sp.Piecewise((sp.Piecewise((1 / CYCLE, t < 5), (2, True)), CYCLE > 0), (5, True)),
    # The argument that an And or Or depends on comes before or after it.
    "and": sp.Piecewise((1, sp.And(t < 7, floor_mod(20, LEFT) > 2)), (2, True)),
    "and not equal": sp.Piecewise((1, sp.And(sp.Ne(t, 7), floor_mod(20, LEFT) > 2)), (2, True)),
    "two": sp.Piecewise(
        (1, sp.And(t < 7, floor_mod(20, LEFT) > 2, floor_mod(11, LEFT) > 1)), (2, True)
    ),
    "between": sp.Piecewise((1, sp.And(t > 2, t < 7, floor_mod(20, LEFT) > 2)), (2, True)),
    "or": sp.Piecewise((1, sp.Or(t >= 7, floor_mod(20, LEFT) > 2)), (2, True)),
    "or cycle": sp.Piecewise((1, sp.Or(sp.Eq(CYCLE, 0), floor_mod(5, CYCLE) > 0)), (2, True)),
    "root below": sp.Piecewise((5, t < 1), (t ** sp.Rational(-1, 2), True)),
}


@pytest.mark.parametrize("name", TOTAL)
def test_taken_branches_keep_their_value_and_the_rest_is_legal(name: str) -> None:
    schedule = Schedule(TOTAL[name])
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",)))
    steps = np.arange(20)
    with np.errstate(all="raise"):
        values = run_evaluator(graph, {"step": steps})["value"]
    assert values == pytest.approx([float(schedule.exact(step)) for step in range(20)], rel=1e-15)
    assert np.array_equal(run_onnxruntime(graph, {"step": steps})["value"], values)


@pytest.mark.parametrize("name", TOTAL)
def test_an_argument_leans_on_the_others(name: str) -> None:
    guarded = guard(TOTAL[name], clock_domain(), name)
    for step in range(20):
        assert value_at(guarded, {t: sp.Integer(step)}) == Schedule(TOTAL[name]).exact(step)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (
            1 / sp.sqrt(t),
            "1/sqrt(t) has no finite real value at t = 0: t is 0, and must be above zero "
            "(schedule 'bad'): change the formula or the branch conditions there",
        ),
        (
            sp.Piecewise((1, floor_mod(7, CYCLE) > 0), (2, True)),
            "FloorMod(7, FloorMod(t, 3)) has no finite real value at t = 0: FloorMod(t, 3) is 0, "
            "and must be not zero (schedule 'bad'): change the formula or the branch conditions "
            "there",
        ),
    ],
)
def test_an_illegal_operand_in_a_taken_branch_is_refused(expr: sp.Expr, message: str) -> None:
    with pytest.raises(DomainError) as caught:
        compile_schedule(Schedule(expr, name="bad"))
    assert str(caught.value) == message


def test_a_safe_operand_has_the_properties_of_its_operand() -> None:
    safe = SafeOperand(t, t > 3)
    assert safe.is_integer
    assert is_integral(safe)
    assert interval(safe, clock_domain(last=10)) == interval(safe.piecewise, clock_domain(last=10))
    assert [safe.xreplace({t: sp.Integer(step)}) for step in (3, 4)] == [1, 4]
