"""Casts over the exact numbers: what wraps, what is undefined, and what a float does not hold."""

from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp
from flint import fmpq

from closedform import Schedule, t
from closedform.expr import floor_mod
from closedform.ir import Builder, DType, Graph, Op, Role, TensorType, Value, evaluate
from closedform.ir.analysis.interval import Interval
from closedform.ir.types import FLOATS
from closedform.verify.terms import build
from closedform.verify.terms.conversions import (
    is_narrower,
    rounds_integers,
    where_small,
    wrap_integer,
)
from closedform.verify.terms.evaluate import Undefined
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.from_graph import terms_of_graph
from closedform.verify.terms.verdict import Status
from closedform.verify.translation.translation import validate

STEPS = (0, 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 + 5, 2**40 + 3, 2**50)
PROVED, REFUTED, UNKNOWN = Status


def graph_of(make: Callable[[Builder, Value], Value]) -> Graph:
    """A graph of an int64 step whose output is a float64."""
    builder = Builder("cast")
    step = builder.input("step", TensorType(DType.I64), Role.STEP)
    builder.output("value", make(builder, step))
    return builder.build()


def through(*dtypes: DType) -> Callable[[Builder, Value], Value]:
    """The step through some casts, as float64."""

    def make(builder: Builder, step: Value) -> Value:
        for dtype in (*dtypes, DType.F64):
            step = builder.emit(Op.CAST, step, to=dtype)
        return step

    return make


def quarter(*dtypes: DType, then: Op | None = None) -> Graph:
    """A fourth of the step through some casts, and perhaps another op on it."""

    def make(builder: Builder, step: Value) -> Value:
        fourth = builder.emit(
            Op.DIV, through(*dtypes)(builder, step), builder.const(4.0, DType.F64)
        )
        return fourth if then is None else builder.emit(then, fourth)

    return graph_of(make)


def test_a_fourth_of_a_narrow_step_is_refuted() -> None:
    verdict = validate(Schedule(t / 4), quarter(DType.I32))
    assert verdict.refuted
    assert verdict.counterexample is not None
    step = int(verdict.counterexample["t"])
    found = float(evaluate(quarter(DType.I32), {"step": step})["value"])
    assert found != step / 4
    assert f"value is {int(found)}" in verdict.reason


@pytest.mark.parametrize("step", STEPS)
def test_a_narrow_integer_wraps_as_the_evaluator_does(step: int) -> None:
    graph = graph_of(through(DType.I32))
    found = value_of(terms_of_graph(graph)["value"], {"t": fmpq(step)})
    assert found == int(evaluate(graph, {"step": step})["value"])
    assert int(np.int64(step).astype(np.int32)) == found


@pytest.mark.parametrize("step", STEPS)
def test_a_float_that_does_not_fit_its_integer_is_undefined(step: int) -> None:
    graph = graph_of(through(DType.F64, DType.I32))
    found = value_of(terms_of_graph(graph)["value"], {"t": fmpq(step)})
    assert isinstance(found, Undefined) if step >= 2**31 else found == step


def test_what_wraps_and_does_not_change_the_value_is_proved() -> None:
    def last_bits(builder: Builder, step: Value) -> Value:
        narrow = builder.emit(Op.CAST, step, to=DType.I32)
        rest = builder.emit(Op.FLOOR_MOD, narrow, builder.const(4, DType.I32))
        return builder.emit(Op.CAST, rest, to=DType.F64)

    assert validate(Schedule(floor_mod(t, 4)), graph_of(last_bits)).proved
    assert validate(Schedule(floor_mod(t, 5)), graph_of(last_bits)).refuted


def test_a_cast_that_is_not_reached_beyond_its_range_is_proved() -> None:
    def clamped(builder: Builder, step: Value) -> Value:
        low = builder.emit(Op.MIN, step, builder.const(1000, DType.I64))
        return through(DType.I32)(builder, low)

    def chosen(builder: Builder, step: Value) -> Value:
        low = builder.emit(Op.LT, step, builder.const(1000, DType.I64))
        narrow = through(DType.I32)(builder, step)
        return builder.emit(Op.WHERE, low, narrow, builder.const(1000.0, DType.F64))

    for make in (clamped, chosen):
        assert validate(Schedule(sp.Min(t, 1000)), graph_of(make)).proved


@pytest.mark.parametrize(
    ("dtypes", "then", "source", "status"),
    [
        ((DType.F32,), None, t / 4, PROVED),
        ((DType.F32,), Op.SQRT, sp.sqrt(t) / 2, PROVED),
        ((DType.F32,), Op.COS, sp.cos(t / 4), UNKNOWN),
        ((DType.F64, DType.F32), Op.COS, sp.cos(t / 4), UNKNOWN),
        ((DType.F32,), Op.FLOOR, sp.floor(t / 4), UNKNOWN),
        ((DType.F32, DType.I64), None, t / 4, UNKNOWN),
        ((DType.F64, DType.I64), None, t / 4, PROVED),
    ],
)
def test_a_step_that_a_float_may_not_hold(
    dtypes: tuple[DType, ...], then: Op | None, source: sp.Expr, status: Status
) -> None:
    """A relative error stays one in a quotient; in a floor or a cosine it does not."""
    assert validate(Schedule(source), quarter(*dtypes, then=then)).status is status


def test_bfloat16_to_float16_rounds() -> None:
    builder = Builder("stored")
    x = builder.input("x", TensorType(DType.F16), Role.PARAM)
    low = builder.emit(Op.CAST, x, to=DType.F32)
    low = builder.emit(Op.CAST, low, to=DType.BF16)
    builder.output("y", builder.emit(Op.CAST, low, to=DType.F16))
    assert "f16" in str(terms_of_graph(builder.build())["y"])


def test_facts_of_conversions() -> None:
    assert is_narrower(DType.I64, DType.I32)
    assert not is_narrower(DType.I32, DType.I64)
    assert not is_narrower(DType.F64, DType.I32)
    assert rounds_integers(DType.I64, DType.F32)
    assert rounds_integers(DType.F64, DType.F32)
    assert not rounds_integers(DType.F32, DType.F64)
    assert not rounds_integers(DType.BOOL, DType.F32)
    assert wrap_integer(build.rational(-(2**31) - 1), DType.I32) == build.rational(2**31 - 1)
    for dtype in FLOATS:
        bits = dtype.row.precision
        assert 2**bits - float(np.asarray(2**bits - 1).astype(dtype.numpy)) == 1
        assert float(np.asarray(2**bits + 1).astype(dtype.numpy)) != 2**bits + 1
    x = build.symbol("x")
    small = where_small(x, 24, x, build.ZERO)
    assert value_of(small, {"x": fmpq(2**12)}) == 2**12
    assert value_of(small, {"x": fmpq(2**12 + 1)}) == 0


def test_intervals_within_others() -> None:
    assert Interval(0, 3).is_within(Interval(0, 3))
    assert not Interval(0, 3).is_within(Interval(1, 3))
    assert not Interval(0.0, 3.0, maybe_nan=True).is_within(Interval(0.0, 3.0))
